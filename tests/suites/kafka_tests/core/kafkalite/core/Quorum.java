package kafkalite.core;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KRaftQuorumImplementation;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.metadata.storage.Formatter;
import scala.Option;

/** Stands in for a quorum of KRaft: a cluster of the control server. */
final class Quorum {
    private static Cluster current;

    private Quorum() {
    }

    static Cluster current() {
        return current;
    }

    static KRaftQuorumImplementation newQuorum(Object harness) throws ReflectiveOperationException {
        Cluster cluster = begin(scramUsers((QuorumTestHarness) harness));
        ControllerServer controllerServer = controllerServer(cluster);
        return Inside.standIn(KRaftQuorumImplementation.class, Map.of(
            "createBroker", call -> cluster.create(call.getArgument(0, KafkaConfig.class), call.getArgument(2)),
            "controllerServer", call -> controllerServer,
            "clusterId", call -> cluster.wire().clusterId(),
            "shutdown", call -> {
                cluster.close();
                return null;
            }));
    }

    /** The brokers of the test that begins. */
    static Cluster begin(List<String> scramUsers) {
        return current = new Cluster(scramUsers);
    }

    static ControllerServer controllerServer(Cluster cluster) {
        return Inside.standIn(ControllerServer.class, Map.of(
            "controller", call -> controller(cluster),
            "clusterId", call -> cluster.wire().clusterId(),
            "authorizerPlugin", call -> Option.apply(cluster.anyAuthorizer()),
            "config", call -> cluster.anyConfig(),
            "socketServer", call -> controllerSocket(cluster),
            "shutdown", call -> null,
            "awaitShutdown", call -> null));
    }

    /** Any broker answers what a controller of KRaft would. */
    private static SocketServer controllerSocket(Cluster cluster) {
        return Inside.standIn(SocketServer.class, Map.of("boundPort", call -> cluster.any().interBrokerPort()));
    }

    private static Controller controller(Cluster cluster) {
        return Inside.standIn(Controller.class, Map.of(
            "isActive", call -> true,
            "findAllTopicIds", call -> CompletableFuture.completedFuture(cluster.wire().topicIds()),
            "findTopicIds", call -> {
                Map<String, Uuid> ids = cluster.wire().topicIds();
                Set<String> wanted = new HashSet<>(call.<java.util.Collection<String>>getArgument(1));
                return CompletableFuture.completedFuture(ids.entrySet().stream()
                    .filter(each -> wanted.contains(each.getKey()))
                    .collect(Collectors.toMap(Map.Entry::getKey, each -> ResultOrError.of(each.getValue()))));
            }));
    }

    /** What the harness would have written into the bootstrap records, as kafka-storage takes it. */
    @SuppressWarnings("unchecked")
    private static List<String> scramUsers(QuorumTestHarness harness) throws ReflectiveOperationException {
        Formatter formatter = new Formatter();
        harness.addFormatterSettings(formatter);
        var field = Formatter.class.getDeclaredField("scramArguments");
        field.setAccessible(true);
        return (List<String>) field.get(formatter);
    }
}
