package kafkalite.core;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.TestKitDefaults;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

/** The cluster of a test with @ClusterTest, of the same stand-ins as those of QuorumTestHarness. */
public final class Instance implements ClusterInstance {
    private static final int CONTROLLER_ID = 3000;

    private final ClusterConfig config;
    private final Type type;
    private final Map<Integer, KafkaBroker> brokers = new TreeMap<>();
    private Cluster cluster;
    private boolean isStopped;

    public Instance(ClusterConfig config, Type type) {
        this.config = config;
        this.type = type;
    }

    @Override
    public void start() {
        if (cluster != null) {
            return;
        }
        cluster = Quorum.begin(List.of());
        int first = TestKitDefaults.BROKER_ID_OFFSET;
        for (int id = first; id < first + config.numBrokers(); id++) {
            brokers.put(id, cluster.create(settings(id), true));
        }
    }

    private KafkaConfig settings(int id) {
        var found = new HashMap<String, Object>(config.serverProperties());
        SecurityProtocol protocol = config.brokerSecurityProtocol();
        String listener = config.brokerListenerName().value();
        if (protocol == SecurityProtocol.SASL_PLAINTEXT) {
            found.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
            found.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
            found.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
            found.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
            found.put("listener.name." + listener.toLowerCase(java.util.Locale.ROOT) + ".plain.sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%1$s\" password=\"%2$s\" user_%1$s=\"%2$s\" user_%3$s=\"%4$s\";",
                JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
                JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD));
        }
        found.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        found.put("process.roles", "broker");
        found.put("node.id", String.valueOf(id));
        found.put("controller.listener.names", config.controllerListenerName().value());
        found.put("controller.quorum.voters", CONTROLLER_ID + "@localhost:1");
        found.put("listeners", listener + "://localhost:0");
        found.put("inter.broker.listener.name", listener);
        found.put("listener.security.protocol.map",
            listener + ":" + protocol.name + "," + config.controllerListenerName().value() + ":" + config.controllerSecurityProtocol().name);
        found.put("log.dirs", disks());
        return new KafkaConfig(found, false);
    }

    private String disks() {
        try {
            Path base = Files.createTempDirectory("disks");
            var found = new ArrayList<String>();
            for (int number = 0; number < config.numDisksPerBroker(); number++) {
                found.add(base.resolve("disk-" + number).toString());
            }
            return String.join(",", found);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void stop() {
        if (!isStopped && cluster != null) {
            cluster.close();
        }
        isStopped = true;
    }

    @Override
    public boolean started() {
        return cluster != null;
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    @Override
    public Type type() {
        return type;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return brokers;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return Map.of(CONTROLLER_ID, Quorum.controllerServer(cluster));
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of(CONTROLLER_ID);
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return List.of(cluster.any().interBrokerPort());
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return brokers.values().stream().filter(each -> !each.isShutdown())
            .map(each -> "localhost:" + each.boundPort(clientListener())).collect(Collectors.joining(","));
    }

    /** Any broker answers what a controller of KRaft would. */
    @Override
    public String bootstrapControllers() {
        return bootstrapServers();
    }

    @Override
    public String clusterId() {
        return cluster.wire().clusterId();
    }

    @Override
    public void shutdownBroker(int id) {
        brokers.get(id).shutdown();
    }

    @Override
    public void startBroker(int id) {
        brokers.get(id).startup();
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public List<Authorizer> authorizers() {
        return cluster.anyAuthorizer() == null ? List.of() : List.of(cluster.anyAuthorizer().get());
    }

    @Override
    public void waitForReadyBrokers() {
        cluster.settle();
    }

    @Override
    public void ensureConsistentMetadata() {
        cluster.settle();
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> some, Collection<ControllerServer> controllers) {
        cluster.settle();
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) {
        for (int partition = 0; partition < partitions; partition++) {
            Waits.waitUntilLeaderIsKnown(null, new org.apache.kafka.common.TopicPartition(topic, partition), 0);
        }
        cluster.settle();
    }

    @Override
    public void waitTopicDeletion(String topic) {
        Waits.verifyTopicDeletion(topic, 0, null);
    }
}
