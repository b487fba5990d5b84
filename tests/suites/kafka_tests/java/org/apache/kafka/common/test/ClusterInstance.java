package org.apache.kafka.common.test;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import kafkalite.Waiting;

import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

/**
 * Takes the place of Kafka's interface of this name: what it does with brokers' objects is done through an Admin here.
 *
 * The members are those that Apache Kafka 4.3.1's tests are compiled against.
 */
public interface ClusterInstance {
    Type type();

    Map<Integer, KafkaBroker> brokers();

    default Map<Integer, KafkaBroker> aliveBrokers() {
        Map<Integer, KafkaBroker> alive = new TreeMap<>(brokers());
        alive.values().removeIf(KafkaBroker::isShutdown);
        return alive;
    }

    Map<Integer, ControllerServer> controllers();

    ClusterConfig config();

    Set<Integer> controllerIds();

    default Set<Integer> brokerIds() {
        return brokers().keySet();
    }

    ListenerName clientListener();

    ListenerName controllerListenerName();

    String bootstrapServers();

    String bootstrapControllers();

    List<Integer> controllerBoundPorts();

    default List<Integer> brokerBoundPorts() {
        return brokers().values().stream().map(broker -> broker.boundPort(clientListener())).toList();
    }

    String clusterId();

    default <K, V> Producer<K, V> producer(Map<String, Object> configs) {
        Map<String, Object> all = withAddress(configs);
        all.putIfAbsent(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
        all.putIfAbsent(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
        return new KafkaProducer<>(all);
    }

    default <K, V> Producer<K, V> producer() {
        return producer(Map.of());
    }

    default <K, V> Consumer<K, V> consumer(Map<String, Object> configs) {
        Map<String, Object> all = withAddress(configs);
        all.putIfAbsent(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        all.putIfAbsent(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        all.putIfAbsent(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        all.putIfAbsent(ConsumerConfig.GROUP_ID_CONFIG, "group_" + TestUtils.randomString(5));
        return new KafkaConsumer<>(all);
    }

    default <K, V> Consumer<K, V> consumer() {
        return consumer(Map.of());
    }

    default <K, V> ShareConsumer<K, V> shareConsumer() {
        return shareConsumer(Map.of());
    }

    default <K, V> ShareConsumer<K, V> shareConsumer(Map<String, Object> configs) {
        return shareConsumer(configs, null, null);
    }

    default <K, V> ShareConsumer<K, V> shareConsumer(Map<String, Object> configs, Deserializer<K> key, Deserializer<V> value) {
        Map<String, Object> all = withAddress(configs);
        if (key == null) {
            all.putIfAbsent(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        }
        if (value == null) {
            all.putIfAbsent(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName());
        }
        all.putIfAbsent(ConsumerConfig.GROUP_ID_CONFIG, "group_" + TestUtils.randomString(5));
        return new KafkaShareConsumer<>(all, key, value);
    }

    default Admin admin(Map<String, Object> configs, boolean usingBootstrapControllers) {
        Map<String, Object> all = new HashMap<>(configs);
        if (usingBootstrapControllers) {
            all.remove(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG);
            all.putIfAbsent(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG, bootstrapControllers());
            return Admin.create(setClientSaslConfig(all));
        }
        all.remove(AdminClientConfig.BOOTSTRAP_CONTROLLERS_CONFIG);
        return Admin.create(withAddress(all));
    }

    default Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    default Admin admin() {
        return admin(Map.of());
    }

    /** A copy, with what clients need beside `configs`. */
    private Map<String, Object> withAddress(Map<String, Object> configs) {
        Map<String, Object> all = setClientSaslConfig(configs);
        all.putIfAbsent(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers());
        return all;
    }

    default Map<String, Object> setClientSaslConfig(Map<String, Object> configs) {
        Map<String, Object> all = new HashMap<>(configs);
        if (config().brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            all.putIfAbsent(SaslConfigs.SASL_MECHANISM, "PLAIN");
            all.putIfAbsent(CommonClientConfigs.SECURITY_PROTOCOL_CONFIG, SecurityProtocol.SASL_PLAINTEXT.name);
            all.putIfAbsent(SaslConfigs.SASL_JAAS_CONFIG, String.format(
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" password=\"%s\";",
                JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
        }
        return all;
    }

    default Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    Optional<FaultHandlerException> firstFatalException();

    Optional<FaultHandlerException> firstNonFatalException();

    void start();

    boolean started();

    void stop();

    boolean stopped();

    void shutdownBroker(int brokerId);

    void startBroker(int brokerId);

    default void waitTopicDeletion(String topic) throws InterruptedException {
        try (Admin admin = admin()) {
            Waiting.until(() -> !admin.listTopics().names().get().contains(topic), "the topic " + topic + " is gone");
        }
    }

    default void createTopic(String topic, int partitions, short replicas) throws InterruptedException {
        createTopic(topic, partitions, replicas, Map.of());
    }

    default void createTopic(String topic, int partitions, short replicas, Map<String, String> configs) throws InterruptedException {
        create(new NewTopic(topic, partitions, replicas).configs(configs), partitions);
    }

    default void createTopicWithAssignment(String topic, Map<Integer, List<Integer>> assignment) throws InterruptedException {
        create(new NewTopic(topic, assignment), assignment.size());
    }

    private void create(NewTopic topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(topic));
            waitTopicCreation(topic.name(), partitions);
        }
    }

    default void deleteTopic(String topic) throws InterruptedException, ExecutionException {
        try (Admin admin = admin()) {
            admin.deleteTopics(List.of(topic));
            waitTopicDeletion(topic);
        }
    }

    void waitForReadyBrokers() throws InterruptedException;

    /** Until each node that runs knows the topic with this number of partitions, each with a leader if one of its replicas runs. */
    default void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (partitions <= 0) {
            throw new IllegalArgumentException("a topic has partitions, not " + partitions);
        }
        for (KafkaBroker broker : aliveBrokers().values()) {
            Map<String, Object> address = Map.of(
                CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:" + broker.boundPort(clientListener()));
            try (Admin admin = admin(address)) {
                Waiting.until(() -> {
                    var found = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions();
                    return found.size() == partitions && found.stream().allMatch(
                        each -> each.leader() != null || each.replicas().stream().noneMatch(node -> aliveBrokers().containsKey(node.id())));
                }, broker + " knows " + topic + " with " + partitions + " partitions");
            }
        }
    }

    default void ensureConsistentMetadata() throws InterruptedException {
        waitForReadyBrokers();
    }

    default void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers)
            throws InterruptedException {
        waitForReadyBrokers();
    }

    List<Authorizer> authorizers();

    default void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        try (Admin admin = admin()) {
            Waiting.until(() -> {
                Set<AccessControlEntry> found = new java.util.HashSet<>();
                admin.describeAcls(filter).values().get().forEach(each -> found.add(each.entry()));
                return found.equals(Set.copyOf(entries));
            }, "the rights are " + entries);
        }
    }

    default int getLeaderBrokerId(TopicPartition partition) throws ExecutionException, InterruptedException {
        try (Admin admin = admin()) {
            String topic = partition.topic();
            return admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().stream()
                .filter(each -> each.partition() == partition.partition())
                .findFirst()
                .orElseThrow(() -> new IllegalStateException("there is no " + partition))
                .leader().id();
        }
    }

    /** The leader, once there is one. */
    default int waitUntilLeaderIsElectedOrChangedWithAdmin(Admin admin, String topic, int partition, long timeoutMs) throws Exception {
        int[] leader = {-1};
        Waiting.until(() -> {
            var found = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().stream()
                .filter(each -> each.partition() == partition && each.leader() != null && !each.leader().isEmpty())
                .findFirst();
            found.ifPresent(each -> leader[0] = each.leader().id());
            return found.isPresent();
        }, topic + "-" + partition + " has a leader", timeoutMs);
        return leader[0];
    }
}
