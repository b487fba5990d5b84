package kafkalite.core;

import java.util.Optional;
import java.util.concurrent.Callable;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponsePartition;
import scala.Option;
import scala.collection.Iterable;
import scala.collection.Seq;

/** Methods of Kafka's TestUtils that wait for what is inside of brokers, by requests instead. The names are TestUtils' own. */
public final class Waits {
    static final String[] REPLACED = {
        "shutdownServers", "ensureConsistentKRaftMetadata", "findLeaderEpoch", "findFollowerId", "awaitLeaderChange",
        "waitUntilLeaderIsKnown", "verifyTopicDeletion",
    };
    private static final long DEADLINE_MS = 30_000;

    private Waits() {
    }

    /** The whole cluster ends with its test. */
    public static void shutdownServers(Seq<KafkaBroker> brokers, boolean deleteLogDirs) {
        Quorum.current().abandon();
    }

    public static void ensureConsistentKRaftMetadata(Seq<KafkaBroker> brokers, ControllerServer controller, String message) {
        Quorum.current().settle();
    }

    public static int findLeaderEpoch(int broker, TopicPartition partition, Iterable<KafkaBroker> brokers) {
        return known(partition).orElseThrow().leaderEpoch();
    }

    public static int findFollowerId(TopicPartition partition, Iterable<KafkaBroker> brokers) {
        var found = known(partition).orElseThrow();
        return found.replicaNodes().stream().filter(each -> each != found.leaderId() && Quorum.current().isRunning(each))
            .findFirst().orElseThrow();
    }

    public static int awaitLeaderChange(
        Seq<KafkaBroker> brokers, TopicPartition partition, Option<Object> old, Option<Object> wanted, long timeoutMs
    ) {
        return until(partition + " has no new leader", Math.max(timeoutMs, DEADLINE_MS), () -> known(partition)
            .map(MetadataResponsePartition::leaderId)
            .filter(each -> each >= 0 && !(old.isDefined() && old.get().equals(each)))
            .filter(each -> !wanted.isDefined() || wanted.get().equals(each)));
    }

    public static int waitUntilLeaderIsKnown(Seq<KafkaBroker> brokers, TopicPartition partition, long timeoutMs) {
        return until(partition + " has no leader", Math.max(timeoutMs, DEADLINE_MS),
            () -> known(partition).map(MetadataResponsePartition::leaderId).filter(each -> each >= 0));
    }

    public static void verifyTopicDeletion(String topic, int partitions, Seq<KafkaBroker> brokers) {
        until(topic + " is still there", DEADLINE_MS, () -> {
            for (Broker each : Quorum.current().running()) {
                if (each.wire().topic(topic).isPresent()) {
                    return Optional.empty();
                }
            }
            return Optional.of(true);
        });
    }

    private static Optional<MetadataResponsePartition> known(TopicPartition partition) {
        return Quorum.current().wire().partition(partition);
    }

    private static <T> T until(String otherwise, long timeoutMs, Callable<Optional<T>> poll) {
        long end = System.nanoTime() + timeoutMs * 1_000_000;
        try {
            while (System.nanoTime() < end) {
                Optional<T> found = poll.call();
                if (found.isPresent()) {
                    return found.get();
                }
                Thread.sleep(50);
            }
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        throw new AssertionError(otherwise);
    }
}
