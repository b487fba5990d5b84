// Admin on topics, partitions, their settings, records and replicas.

import static java.util.Map.entry;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ElectLeadersOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;

final class TopicAnswers {
    private final Admin admin;

    TopicAnswers(Admin admin) {
        this.admin = admin;
    }

    private static Object topic(TopicDescription each) {
        List<String> partitions = new ArrayList<>();
        each.partitions().forEach(partition -> partitions.add(
            partition.partition() + " replicas " + partition.replicas().size() + " isr " + partition.isr().size()
                + " leader " + (partition.leader() != null) + " elr " + partition.elr().size()
                + " last " + partition.lastKnownElr().size()));
        return Shown.row(each.name(), "internal", each.isInternal(), partitions,
            each.authorizedOperations() == null ? "null" : each.authorizedOperations());
    }

    private void create(String step, NewTopic topic) {
        create(step, topic, new CreateTopicsOptions());
    }

    private void create(String step, NewTopic topic, CreateTopicsOptions options) {
        Shown.step("createTopics " + step, () -> {
            CreateTopicsResult result = admin.createTopics(List.of(topic), options);
            Shown.get(result.all());
            Map<String, String> settings = new TreeMap<>();
            Shown.get(result.config(topic.name())).entries().forEach(entry -> settings.put(
                entry.name(), entry.value() + " " + entry.source() + (entry.isReadOnly() ? " ro" : "") + (entry.isSensitive() ? " secret" : "")));
            return Shown.row(Shown.get(result.numPartitions(topic.name())), Shown.get(result.replicationFactor(topic.name())),
                topic.name().equals("a") ? settings : Map.of());
        });
    }

    void creation() {
        create("a", new NewTopic("a", 3, (short) 3).configs(Map.of("retention.ms", "123456", "cleanup.policy", "compact,delete")));
        create("that exists", new NewTopic("a", 3, (short) 3));
        create("defaults", new NewTopic("defaults", Optional.empty(), Optional.empty()));
        create("by hand", new NewTopic("manual", Map.of(0, List.of(1, 2), 1, List.of(2, 3))));
        create("by hand, uneven", new NewTopic("uneven", Map.of(0, List.of(1, 2), 1, List.of(2))));
        create("by hand, gap", new NewTopic("gap", Map.of(0, List.of(1), 2, List.of(2))));
        create("by hand, twice", new NewTopic("twice", Map.of(0, List.of(1, 1))));
        create("by hand, unknown broker", new NewTopic("nobody", Map.of(0, List.of(77))));
        create("by hand, negative broker", new NewTopic("nobody", Map.of(0, List.of(-1))));
        create("by hand, no replica", new NewTopic("nobody", Map.of(0, List.of())));
        create("by hand, nothing", new NewTopic("nobody", Map.of()));
        for (String name : List.of("", ".", "..", "a/b", "x".repeat(250), "my.topic", "my_topic", "__cluster_metadata", "ü")) {
            create("name " + name, new NewTopic(name, 1, (short) 1));
        }
        create("factor 4", new NewTopic("b", 1, (short) 4));
        create("factor 0", new NewTopic("b", 1, (short) 0));
        create("factor -2", new NewTopic("b", 1, (short) -2));
        create("0 partitions", new NewTopic("b", 0, (short) 1));
        create("-2 partitions", new NewTopic("b", -2, (short) 1));
        for (Map.Entry<String, String> each : List.of(entry("no.such", "1"), entry("retention.ms", "soon"), entry("retention.ms", "-2"),
            entry("cleanup.policy", "burn"), entry("cleanup.policy", ""), entry("compression.type", "brotli"), entry("compression.gzip.level", "10"), entry("compression.zstd.level", "23"),
            entry("min.insync.replicas", "0"), entry("min.insync.replicas", "9"), entry("preallocate", "true"), entry("preallocate", "perhaps"),
            entry("remote.storage.enable", "true"), entry("remote.log.copy.disable", "true"), entry("remote.log.delete.on.disable", "true"), entry("local.retention.ms", "5"), entry("local.retention.ms", "-2"), entry("segment.bytes", "1"), entry("segment.bytes", "1048576"), entry("max.message.bytes", "-1"),
            entry("message.format.version", "3.0"), entry("message.downconversion.enable", "true"), entry("message.downconversion.enable", "false"),
            entry("message.timestamp.difference.max.ms", "5"), entry("leader.replication.throttled.replicas", "*"), entry("leader.replication.throttled.replicas", "x"),
            entry("message.timestamp.type", "Now"), entry("unclean.leader.election.enable", "x"), entry("min.cleanable.dirty.ratio", "2"), entry("segment.jitter.ms", "-1"), entry("delete.retention.ms", "-1"),
            entry("file.delete.delay.ms", "-1"), entry("flush.messages", "0"), entry("flush.ms", "-1"), entry("index.interval.bytes", "-1"), entry("segment.index.bytes", "3"), entry("errors.deadletterqueue.group.enable", "true"), entry("internal.segment.bytes", "1000"),
            entry("max.compaction.lag.ms", "0"), entry("min.compaction.lag.ms", "9223372036854775807"), entry("log.retention.ms", "5"), entry("retention.bytes", "-5"), entry("retention.ms", " 5 "))) {
            create("setting " + each.getKey() + "=" + each.getValue(),
                new NewTopic("set", 1, (short) 1).configs(Map.of(each.getKey(), each.getValue())), new CreateTopicsOptions().validateOnly(true));
        }
        create("two compaction lags", new NewTopic("set", 1, (short) 1).configs(Map.of("min.compaction.lag.ms", "5", "max.compaction.lag.ms", "4")), new CreateTopicsOptions().validateOnly(true));
        create("only to see", new NewTopic("seen", 2, (short) 2), new CreateTopicsOptions().validateOnly(true));
        create("gone", new NewTopic("gone", 1, (short) 1));
        create("gone-too", new NewTopic("gone-too", 1, (short) 1));
        create("_under.score", new NewTopic("_under.score", 1, (short) 1));
        create("collides", new NewTopic("_under_score", 1, (short) 1));
    }

    void description() throws Exception {
        Shown.step("listTopics", () -> Shown.one(admin.listTopics().listings(), all -> all.stream().map(each -> each.name() + " " + each.isInternal()).toList()));
        Shown.step("listTopics internal", () -> Shown.one(admin.listTopics(new ListTopicsOptions().listInternal(true)).names(), all -> all));
        Shown.step("describeTopics", () -> Shown.each(admin.describeTopics(List.of("a", "manual", "none", "", "a/b")).topicNameValues(), TopicAnswers::topic));
        Shown.step("describeTopics with operations", () -> Shown.each(
            admin.describeTopics(List.of("a"), new DescribeTopicsOptions().includeAuthorizedOperations(true)).topicNameValues(), TopicAnswers::topic));
        Shown.step("describeTopics two partitions at a time", () -> Shown.each(
            admin.describeTopics(List.of("a", "manual", "none"), new DescribeTopicsOptions().partitionSizeLimitPerResponse(2)).topicNameValues(), TopicAnswers::topic));
        Uuid id = Shown.get(admin.describeTopics(List.of("a")).topicNameValues().get("a")).topicId();
        Shown.step("describeTopics by id", () -> Shown.each(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues(), TopicAnswers::topic));
        Shown.step("describeTopics by an unknown id", () -> Shown.each(
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.fromString("AAAAAAAAAAAAAAAAAAAAZZ")))).topicIdValues(), TopicAnswers::topic));
        Shown.step("describeTopics by id zero", () -> Shown.each(
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.ZERO_UUID))).topicIdValues(), TopicAnswers::topic));
    }

    private void partitions(String step, String topic, NewPartitions wanted, boolean isTrial) {
        Shown.step("createPartitions " + step, () -> Shown.each(
            admin.createPartitions(Map.of(topic, wanted), new CreatePartitionsOptions().validateOnly(isTrial)).values()));
    }

    void partitions() {
        partitions("only to see", "a", NewPartitions.increaseTo(4), true);
        partitions("4", "a", NewPartitions.increaseTo(4), false);
        partitions("the same", "a", NewPartitions.increaseTo(4), false);
        partitions("fewer", "a", NewPartitions.increaseTo(2), false);
        partitions("0", "a", NewPartitions.increaseTo(0), false);
        partitions("unknown topic", "none", NewPartitions.increaseTo(2), false);
        partitions("by hand", "manual", NewPartitions.increaseTo(3, List.of(List.of(3, 1))), false);
        partitions("by hand, too few", "manual", NewPartitions.increaseTo(5, List.of(List.of(3, 1))), false);
        partitions("by hand, too many", "manual", NewPartitions.increaseTo(4, List.of(List.of(3, 1), List.of(1, 2))), false);
        partitions("by hand, uneven", "manual", NewPartitions.increaseTo(4, List.of(List.of(3))), false);
        partitions("by hand, twice", "manual", NewPartitions.increaseTo(4, List.of(List.of(3, 3))), false);
        partitions("by hand, unknown broker", "manual", NewPartitions.increaseTo(4, List.of(List.of(3, 77))), false);
        partitions("by hand, nobody", "manual", NewPartitions.increaseTo(4, List.of(List.of())), false);
    }

    void records() {
        TopicPartition there = new TopicPartition("records", 0);
        TopicPartition unknown = new TopicPartition("records", 9);
        for (Map.Entry<String, OffsetSpec> each : Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(), "max", OffsetSpec.maxTimestamp(),
            "time", OffsetSpec.forTimestamp(1_000_005), "future", OffsetSpec.forTimestamp(9_000_000_000_000_000L), "local", OffsetSpec.earliestLocal(), "tiered", OffsetSpec.latestTiered(),
            "pending", OffsetSpec.earliestPendingUpload()).entrySet().stream().sorted(Map.Entry.comparingByKey()).toList()) {
            Shown.step("listOffsets " + each.getKey(), () -> Shown.get(admin.listOffsets(Map.of(there, each.getValue())).partitionResult(there)));
        }
        Shown.step("listOffsets unknown partition", () -> Shown.get(admin.listOffsets(Map.of(unknown, OffsetSpec.latest())).partitionResult(unknown)));
        for (long offset : new long[] {3, 3, 1, 99, -1, -2}) {
            Shown.step("deleteRecords before " + offset, () -> Shown.each(admin.deleteRecords(Map.of(there, RecordsToDelete.beforeOffset(offset))).lowWatermarks(), each -> each.lowWatermark()));
        }
        Shown.step("deleteRecords unknown partition", () -> Shown.each(admin.deleteRecords(Map.of(unknown, RecordsToDelete.beforeOffset(1))).lowWatermarks(), each -> each.lowWatermark()));
        Shown.step("deleteRecords internal", () -> Shown.each(admin.deleteRecords(Map.of(new TopicPartition("__consumer_offsets", 0), RecordsToDelete.beforeOffset(1))).lowWatermarks(), each -> each.lowWatermark()));
    }

    void replicas() {
        TopicPartition manual = new TopicPartition("manual", 0);
        TopicPartition unknown = new TopicPartition("manual", 9);
        reassign("to itself", Map.of(manual, Optional.of(new NewPartitionReassignment(List.of(1, 2)))));
        reassign("to others", Map.of(manual, Optional.of(new NewPartitionReassignment(List.of(2, 3)))));
        reassign("cancel nothing", Map.of(new TopicPartition("a", 0), Optional.empty()));
        reassign("unknown partition", Map.of(unknown, Optional.of(new NewPartitionReassignment(List.of(1)))));
        reassign("unknown topic", Map.of(new TopicPartition("none", 0), Optional.of(new NewPartitionReassignment(List.of(1)))));
        reassign("unknown broker", Map.of(manual, Optional.of(new NewPartitionReassignment(List.of(77)))));
        reassign("negative broker", Map.of(manual, Optional.of(new NewPartitionReassignment(List.of(-1)))));
        reassign("twice", Map.of(manual, Optional.of(new NewPartitionReassignment(List.of(1, 1)))));
        reassign("nobody", Map.of(manual, Optional.of(new NewPartitionReassignment(new ArrayList<>(List.of(1)) {
            @Override public boolean isEmpty() { return false; }
            @Override public java.util.Iterator<Integer> iterator() { return List.<Integer>of().iterator(); }
            @Override public int size() { return 0; }
        }))));
        Shown.step("listPartitionReassignments unknown", () -> Shown.get(admin.listPartitionReassignments(Set.of(unknown)).reassignments()));
        Shown.step("listPartitionReassignments one at rest", () -> Shown.get(admin.listPartitionReassignments(Set.of(new TopicPartition("a", 0))).reassignments()));
        for (ElectionType type : ElectionType.values()) {
            Shown.step("electLeaders " + type, () -> Shown.get(admin.electLeaders(type, Set.of(new TopicPartition("a", 0), unknown, new TopicPartition("none", 0))).partitions()));
        }
        Shown.step("electLeaders none", () -> Shown.get(admin.electLeaders(ElectionType.PREFERRED, Set.of()).partitions()));
        Shown.step("electLeaders all", () -> Shown.get(admin.electLeaders(ElectionType.UNCLEAN, null, new ElectLeadersOptions()).partitions()));
        Shown.step("describeLogDirs", () -> Shown.each(admin.describeLogDirs(List.of(1)).descriptions(), dirs -> dirs.values().stream().map(dir ->
            dir.error() + " " + dir.totalBytes().isPresent() + " " + dir.usableBytes().isPresent() + " " + dir.isCordoned() + " "
                + dir.replicaInfos().entrySet().stream().filter(each -> each.getKey().topic().equals("a")).map(each -> each.getKey() + " " + each.getValue()).sorted().toList()).toList()));
        Shown.step("describeLogDirs unknown broker", () -> Shown.each(admin.describeLogDirs(List.of(77)).descriptions(), Map::size));
        TopicPartitionReplica replica = new TopicPartitionReplica("a", 0, 1);
        TopicPartitionReplica absent = new TopicPartitionReplica("none", 0, 1);
        Shown.step("describeReplicaLogDirs", () -> Shown.each(admin.describeReplicaLogDirs(List.of(replica, absent)).values(), each ->
            Shown.row(each.getCurrentReplicaLogDir() != null, each.getCurrentReplicaOffsetLag(), each.getFutureReplicaLogDir(), each.getFutureReplicaOffsetLag())));
        Shown.step("alterReplicaLogDirs elsewhere", () -> Shown.each(admin.alterReplicaLogDirs(Map.of(replica, "/no/such/dir", absent, "/no/such/dir")).values()));
        Shown.step("alterReplicaLogDirs relative", () -> Shown.each(admin.alterReplicaLogDirs(Map.of(replica, "somewhere")).values()));
        Shown.step("alterReplicaLogDirs where it is", () -> {
            String here = Shown.get(admin.describeReplicaLogDirs(List.of(replica)).values().get(replica)).getCurrentReplicaLogDir();
            return Shown.each(admin.alterReplicaLogDirs(Map.of(replica, here, absent, here)).values());
        });
    }

    private void reassign(String step, Map<TopicPartition, Optional<NewPartitionReassignment>> wanted) {
        Shown.step("alterPartitionReassignments " + step, () -> Shown.each(admin.alterPartitionReassignments(wanted).values()));
    }

    void deletion() throws Exception {
        Uuid id = Shown.get(admin.describeTopics(List.of("gone-too")).topicNameValues().get("gone-too")).topicId();
        delete("by name", TopicCollection.ofTopicNames(List.of("gone", "none", "")));
        delete("again", TopicCollection.ofTopicNames(List.of("gone")));
        Collection<Uuid> ids = List.of(id, Uuid.fromString("AAAAAAAAAAAAAAAAAAAAZZ"));
        Shown.step("deleteTopics by id", () -> Shown.each(Map.of("there", admin.deleteTopics(TopicCollection.ofTopicIds(ids)).topicIdValues().get(id))));
        Shown.step("deleteTopics by unknown id", () -> Shown.each(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.fromString("AAAAAAAAAAAAAAAAAAAAZZ")))).topicIdValues()));
        Shown.step("deleteTopics by id zero", () -> Shown.each(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.ZERO_UUID))).topicIdValues()));
    }

    private void delete(String step, TopicCollection topics) {
        Shown.step("deleteTopics " + step, () -> Shown.each(admin.deleteTopics(topics).topicNameValues()));
    }
}
