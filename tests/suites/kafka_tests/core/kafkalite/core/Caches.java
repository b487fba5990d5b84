package kafkalite.core;

import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.mockito.invocation.InvocationOnMock;

/** What tests read from a broker's caches, by requests to this broker. */
final class Caches {
    private Caches() {
    }

    static KRaftMetadataCache metadata(Broker broker) {
        return Inside.standIn(KRaftMetadataCache.class, Map.of(
            "getLeaderAndIsr", call -> leaderAndIsr(broker, new TopicPartition(call.getArgument(0), call.<Integer>getArgument(1))),
            "numPartitions", call -> broker.wire().topic(call.getArgument(0)).map(each -> each.partitions().size()),
            "contains", call -> contains(broker, call),
            "getAllTopics", call -> broker.wire().topicIds().keySet(),
            "hasAliveBroker", call -> broker.wire().metadata().brokers().find(call.<Integer>getArgument(0)) != null,
            "getTopicId", call -> broker.wire().topicIds().getOrDefault(call.<String>getArgument(0), Uuid.ZERO_UUID),
            "topicNamesToIds", call -> broker.wire().topicIds(),
            "topicIdsToNames", call -> broker.wire().topicIds().entrySet().stream()
                .collect(Collectors.toMap(Map.Entry::getValue, Map.Entry::getKey)),
            "getAliveBrokerNodes", call -> broker.wire().metadata().brokers().stream()
                .map(each -> new Node(each.nodeId(), "localhost",
                    Quorum.current().port(each.nodeId(), call.getArgument(0, ListenerName.class).value()), each.rack())).toList()));
    }

    private static boolean contains(Broker broker, InvocationOnMock call) {
        if (call.getArgument(0) instanceof TopicPartition partition) {
            return broker.wire().partition(partition).isPresent();
        }
        return broker.wire().topic(call.getArgument(0)).isPresent();
    }

    private static Optional<LeaderAndIsr> leaderAndIsr(Broker broker, TopicPartition partition) {
        return broker.wire().partition(partition).map(each -> new LeaderAndIsr(
            each.errorCode() == Errors.LEADER_NOT_AVAILABLE.code() ? LeaderAndIsr.NO_LEADER : each.leaderId(),
            each.leaderEpoch(),
            LeaderRecoveryState.RECOVERED,
            each.isrNodes().stream().map(id -> new AlterPartitionRequestData.BrokerState().setBrokerId(id)).toList(),
            0));
    }
}
