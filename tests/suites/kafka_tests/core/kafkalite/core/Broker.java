package kafkalite.core;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.authorizer.Authorizer;
import scala.Option;

/** Stands in for one broker: a node of the control server. */
final class Broker {
    private static final Metrics NO_METRICS = new Metrics();

    private final Cluster cluster;
    private final Control control;
    private final KafkaConfig config;
    private final BrokerServer server;
    private final SocketServer socketServer;
    private Map<String, String> listeners = Map.of();
    private boolean running;

    Broker(Cluster cluster, Control control, KafkaConfig config) {
        this.cluster = cluster;
        this.control = control;
        this.config = config;
        var ignored = control.add(config.brokerId(), Settings.of(config), Settings.principals(config));
        if (Boolean.getBoolean("kafkalite.ignored")) {
            System.err.println("ignored by node " + config.brokerId() + ": " + ignored);
        }
        socketServer = Inside.standIn(SocketServer.class, Map.of("boundPort", call -> port(call.getArgument(0, ListenerName.class).value())));
        Plugin<Authorizer> authorizer = Settings.hasOwnRights(config)
            ? Plugin.wrapInstance(new Rights(this), NO_METRICS, "authorizer.class.name") : null;
        KRaftMetadataCache cache = Caches.metadata(this);
        KafkaApis apis = Inside.standIn(KafkaApis.class, Map.of(
            "metadataCache", call -> cache,
            "authorizerPlugin", call -> Option.apply(authorizer)));
        GroupCoordinator groups = Inside.standIn(GroupCoordinator.class, Map.of("groupMetadataTopicConfigs", call -> new Properties()));
        var answers = new HashMap<String, Inside.Method>();
        answers.put("config", call -> config);
        answers.put("boundPort", call -> port(call.getArgument(0, ListenerName.class).value()));
        answers.put("startup", call -> start());
        answers.put("shutdown", call -> stop());
        answers.put("awaitShutdown", call -> null);
        answers.put("isShutdown", call -> !running);
        answers.put("brokerState", call -> running ? BrokerState.RUNNING : BrokerState.NOT_RUNNING);
        answers.put("clusterId", call -> wire().clusterId());
        answers.put("authorizerPlugin", call -> Option.apply(authorizer));
        answers.put("socketServer", call -> socketServer);
        answers.put("metadataCache", call -> cache);
        answers.put("dataPlaneRequestProcessor", call -> apis);
        answers.put("groupCoordinator", call -> groups);
        BrokerLifecycleManager lifecycle = Inside.standIn(BrokerLifecycleManager.class, Map.of(
            "initialUnfenceFuture", call -> CompletableFuture.completedFuture(null),
            "initialCatchUpFuture", call -> CompletableFuture.completedFuture(null)));
        answers.put("lifecycleManager", call -> lifecycle);
        server = Inside.standIn(BrokerServer.class, answers);
        plugin = authorizer;
    }

    private final Plugin<Authorizer> plugin;

    BrokerServer server() {
        return server;
    }

    KafkaConfig config() {
        return config;
    }

    SocketServer socketServer() {
        return socketServer;
    }

    Plugin<Authorizer> authorizer() {
        return plugin;
    }

    boolean isRunning() {
        return running;
    }

    Wire wire() {
        return new Wire(port("CLUSTERCONTROL"));
    }

    Void start() {
        if (!running) {
            listeners = control.start(config.brokerId());
            running = true;
            cluster.started(this);
        }
        return null;
    }

    private Void stop() {
        if (running) {
            running = false;
            control.stop(config.brokerId());
        }
        return null;
    }

    /** The cluster is gone. */
    void forget() {
        running = false;
    }

    int interBrokerPort() {
        return port(config.interBrokerListenerName().value());
    }

    int port(String listener) {
        String address = listeners.get(listener);
        if (address == null) {
            throw new IllegalArgumentException("no listener " + listener + " in " + listeners);
        }
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }
}
