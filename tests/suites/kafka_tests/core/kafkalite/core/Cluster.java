package kafkalite.core;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kafka.server.BrokerServer;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.server.authorizer.Authorizer;

/** The brokers of one test. */
final class Cluster {
    private final Control control = new Control();
    private final Map<Integer, Broker> brokers = new LinkedHashMap<>();
    private List<String> scramUsers;

    Cluster(List<String> scramUsers) {
        this.scramUsers = scramUsers;
    }

    BrokerServer create(KafkaConfig config, boolean startup) {
        var broker = new Broker(this, control, config);
        brokers.put(config.brokerId(), broker);
        if (startup) {
            broker.start();
        }
        return broker.server();
    }

    /** A broker has started: the users of the first start are written once. */
    void started(Broker broker) {
        if (!scramUsers.isEmpty()) {
            broker.wire().createUsers(scramUsers);
            scramUsers = List.of();
        }
    }

    Broker any() {
        return brokers.values().stream().filter(Broker::isRunning).findFirst()
            .orElseThrow(() -> new IllegalStateException("no broker is running"));
    }

    Iterable<Broker> running() {
        return brokers.values().stream().filter(Broker::isRunning).toList();
    }

    boolean isRunning(int broker) {
        return brokers.containsKey(broker) && brokers.get(broker).isRunning();
    }

    Wire wire() {
        return any().wire();
    }

    Plugin<Authorizer> anyAuthorizer() {
        return brokers.isEmpty() ? null : any().authorizer();
    }

    KafkaConfig anyConfig() {
        return brokers.values().iterator().next().config();
    }

    void settle() {
        control.settle();
    }

    int port(int broker, String listener) {
        return brokers.get(broker).port(listener);
    }

    /** The test is over: nothing is stopped one by one. */
    void abandon() {
        brokers.values().forEach(Broker::forget);
    }

    void close() {
        abandon();
        control.remove();
    }
}
