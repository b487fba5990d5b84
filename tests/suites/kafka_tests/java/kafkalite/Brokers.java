package kafkalite;

import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;

/**
 * What stands for the broker objects of Kafka's test kit: the questions that clients can ask are asked of the node, by an Admin.
 *
 * Any other question fails with {@link NotInThisJvm}, as the broker runs in a process of its own.
 */
public final class Brokers {
    /** A test asked for an object within the broker. */
    public static final class NotInThisJvm extends UnsupportedOperationException {
        public NotInThisJvm(Class<?> type, String member) {
            super("kafkalite: looks at the broker's objects in its own JVM: " + type.getSimpleName() + "." + member);
        }
    }

    private final Control control;
    private final Map<String, String> settings;
    private final Supplier<Admin> admin;
    private final Set<Integer> stopped = ConcurrentHashMap.newKeySet();
    private final Map<Integer, KafkaBroker> all = new TreeMap<>();

    public Brokers(Control control, Map<String, String> settings, Map<Integer, Map<String, String>> own, Supplier<Admin> admin) {
        this.control = control;
        this.settings = settings;
        this.admin = admin;
        control.brokers().keySet().forEach(id -> all.put(id, standIn(KafkaBroker.class, broker(id, own.getOrDefault(id, Map.of())))));
    }

    public Map<Integer, KafkaBroker> all() {
        return all;
    }

    public void stop(int id) {
        known(id);
        if (stopped.add(id)) {
            control.change(id, "stop");
        }
    }

    public void start(int id) {
        known(id);
        control.change(id, "start");
        stopped.remove(id);
    }

    public boolean isStopped(int id) {
        return stopped.contains(id);
    }

    private void known(int id) {
        if (!all.containsKey(id)) {
            throw new IllegalArgumentException("there is no broker " + id);
        }
    }

    private interface Answers {
        /** Null: nothing is known of this question. */
        Supplier<Object> to(String question, Object[] arguments);
    }

    private Answers broker(int id, Map<String, String> own) {
        return (question, arguments) -> switch (question) {
            case "startup" -> () -> {
                start(id);
                return null;
            };
            case "shutdown" -> () -> {
                stop(id);
                return null;
            };
            case "awaitShutdown" -> () -> null;
            case "isShutdown" -> () -> isStopped(id);
            case "brokerState" -> () -> isStopped(id) ? BrokerState.NOT_RUNNING : BrokerState.RUNNING;
            case "config" -> () -> config(id, own);
            case "boundPort" -> () -> Integer.valueOf(control.brokers().get(id).replaceAll(".*:", ""));
            case "clusterId" -> this::clusterId;
            case "metadataCache" -> () -> standIn(MetadataCache.class, this::metadata);
            case "toString" -> () -> "kafkalite's broker " + id;
            default -> null;
        };
    }

    private Supplier<Object> metadata(String question, Object[] arguments) {
        return switch (question) {
            case "numPartitions" -> () -> topic((String) arguments[0]).map(each -> each.partitions().size());
            case "contains" -> arguments[0] instanceof String name ? () -> topic(name).isPresent() : null;
            case "getTopicId" -> () -> topic((String) arguments[0]).orElseThrow().topicId();
            case "getLeaderAndIsr" -> () -> state((String) arguments[0], (Integer) arguments[1]);
            case "hasAliveBroker" -> () -> nodes().stream().anyMatch(each -> each.id() == (Integer) arguments[0]);
            case "getAliveBrokerNodes", "getBrokerNodes" -> this::nodes;
            case "getAliveBrokerNode" -> () -> nodes().stream().filter(each -> each.id() == (Integer) arguments[0]).findFirst();
            default -> null;
        };
    }

    /** Of a partition; the leader is -1 if there is none. Epochs are those of a new partition, as no client is told of them. */
    private Optional<LeaderAndIsr> state(String topic, int partition) {
        return topic(topic).flatMap(found -> found.partitions().stream().filter(each -> each.partition() == partition).findFirst())
            .map(each -> new LeaderAndIsr(
                each.leader() == null ? LeaderAndIsr.NO_LEADER : each.leader().id(), each.isr().stream().map(Node::id).toList()));
    }

    private KafkaConfig config(int id, Map<String, String> own) {
        Map<String, Object> values = new HashMap<>(settings);
        values.putAll(own);
        values.put("process.roles", "broker");
        values.put("node.id", String.valueOf(id));
        values.put("controller.listener.names", "CONTROLLER");
        values.put("controller.quorum.voters", "3000@localhost:1");
        values.put("listeners", "PLAINTEXT://" + control.brokers().get(id));
        values.put("log.dirs", "/nonexistent");
        return new KafkaConfig(values, false);
    }

    public String clusterId() {
        try (Admin client = admin.get()) {
            return got(() -> client.describeCluster().clusterId().get());
        }
    }

    public List<Node> nodes() {
        try (Admin client = admin.get()) {
            return new ArrayList<>(got(() -> client.describeCluster().nodes().get()));
        }
    }

    public Optional<TopicDescription> topic(String name) {
        try (Admin client = admin.get()) {
            return Optional.of(got(() -> client.describeTopics(List.of(name)).topicNameValues().get(name).get()));
        } catch (UnknownTopicOrPartitionException missing) {
            return Optional.empty();
        }
    }

    private interface Question<T> {
        T ask() throws ExecutionException, InterruptedException;
    }

    static <T> T got(Question<T> question) {
        try {
            return question.ask();
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof RuntimeException known ? known : new IllegalStateException(failed.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(interrupted);
        }
    }

    private static <T> T standIn(Class<T> type, Answers answers) {
        InvocationHandler handler = (Object self, Method method, Object[] arguments) -> {
            String name = method.getName();
            if (name.equals("equals")) {
                return self == arguments[0];
            }
            if (name.equals("hashCode")) {
                return System.identityHashCode(self);
            }
            Supplier<Object> answer = answers.to(name, arguments);
            if (answer == null) {
                throw new NotInThisJvm(type, name);
            }
            return answer.get();
        };
        return type.cast(Proxy.newProxyInstance(Brokers.class.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
