// Admin on groups of every type and on transactions.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

final class GroupAnswers {
    private static final TopicPartition PARTITION = new TopicPartition("records", 0);
    private static final List<String> ALL = List.of("g-classic", "g-consumer", "g-static", "g-share", "g-simple", "g-none");
    private final Admin admin;
    private final String bootstrap;

    GroupAnswers(Admin admin, String bootstrap) {
        this.admin = admin;
        this.bootstrap = bootstrap;
    }

    private Properties settings(Object... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int each = 0; each < more.length; each += 2) {
            settings.put(more[each], more[each + 1]);
        }
        return settings;
    }

    /** Ten records of known times in `records`. */
    void produce() throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
            for (int each = 0; each < 10; each++) {
                producer.send(new ProducerRecord<>("records", 0, 1_000_000L + each, "key", "value " + each)).get(30, TimeUnit.SECONDS);
            }
        }
    }

    private KafkaConsumer<String, String> consumer(String group, Object... more) {
        Properties settings = settings(more);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("client.id", "reader");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.interval.ms", "900000");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("records"));
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (consumer.poll(Duration.ofMillis(300)).isEmpty() && System.nanoTime() < until) {
            Thread.yield();
        }
        consumer.commitSync();
        return consumer;
    }

    private KafkaShareConsumer<String, String> shareConsumer() throws Exception {
        var resource = new org.apache.kafka.common.config.ConfigResource(org.apache.kafka.common.config.ConfigResource.Type.GROUP, "g-share");
        Shown.get(admin.incrementalAlterConfigs(Map.of(resource, List.of(new org.apache.kafka.clients.admin.AlterConfigOp(
            new org.apache.kafka.clients.admin.ConfigEntry("share.auto.offset.reset", "earliest"), org.apache.kafka.clients.admin.AlterConfigOp.OpType.SET)))).all());
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings("group.id", "g-share", "client.id", "sharer"), new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("records"));
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (consumer.poll(Duration.ofMillis(300)).isEmpty() && System.nanoTime() < until) {
            Thread.yield();
        }
        consumer.commitSync();
        return consumer;
    }

    private static Object members(Collection<MemberDescription> members) {
        return members.stream().map(each -> each.clientId() + " " + each.groupInstanceId() + " " + each.rackId() + " " + (each.host().startsWith("/"))
            + " " + each.assignment() + " target " + each.targetAssignment() + " epoch " + each.memberEpoch().isPresent() + " upgraded " + each.upgraded()).toList();
    }

    void groups() throws Exception {
        KafkaConsumer<String, String> classic = consumer("g-classic", "group.protocol", "classic");
        KafkaConsumer<String, String> modern = consumer("g-consumer", "group.protocol", "consumer");
        KafkaConsumer<String, String> fixed = consumer("g-static", "group.protocol", "classic", "group.instance.id", "one");
        KafkaShareConsumer<String, String> share = shareConsumer();
        look("with members");
        offsets("g-classic");
        offsets("g-consumer");
        remove("g-none", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one"))));
        remove("g-static", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("other"))));
        remove("g-static", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("one"))));
        remove("g-classic", new RemoveMembersFromConsumerGroupOptions());
        Shown.step("deleteConsumerGroups with members", () -> Shown.each(admin.deleteConsumerGroups(List.of("g-consumer", "g-share")).deletedGroups()));
        Shown.step("deleteShareGroups with members", () -> Shown.each(admin.deleteShareGroups(List.of("g-consumer", "g-share")).deletedGroups()));
        Shown.step("alterShareGroupOffsets with members", () -> Shown.get(admin.alterShareGroupOffsets("g-share", Map.of(PARTITION, 1L)).partitionResult(PARTITION)));
        Shown.step("deleteShareGroupOffsets with members", () -> Shown.get(admin.deleteShareGroupOffsets("g-share", Set.of("records")).topicResult("records")));
        remove("g-consumer", new RemoveMembersFromConsumerGroupOptions());
        for (AutoCloseable each : List.of(classic, modern, fixed, share)) {
            each.close();
        }
        offsets("g-simple");
        look("without members");
        offsets("g-classic");
        shares();
        streams();
        Shown.step("deleteConsumerGroups", () -> Shown.each(admin.deleteConsumerGroups(ALL).deletedGroups()));
        Shown.step("deleteConsumerGroups again", () -> Shown.each(admin.deleteConsumerGroups(ALL).deletedGroups()));
        Shown.step("listGroups in the end", () -> Shown.get(admin.listGroups().all()));
    }

    private void look(String when) {
        Shown.step("describeConsumerGroups " + when, () -> Shown.each(admin.describeConsumerGroups(ALL).describedGroups(), each -> Shown.row(
            each.groupState(), each.type(), each.partitionAssignor(), each.isSimpleConsumerGroup(), each.groupEpoch().isPresent(), each.targetAssignmentEpoch().isPresent(),
            each.coordinator() != null, each.authorizedOperations(), members(each.members()))));
        Shown.step("describeConsumerGroups with operations " + when, () -> Shown.each(admin.describeConsumerGroups(List.of("g-classic", "g-consumer"),
            new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).describedGroups(), each -> each.authorizedOperations()));
        Shown.step("describeClassicGroups " + when, () -> Shown.each(admin.describeClassicGroups(ALL).describedGroups(), each -> Shown.row(
            each.state(), each.protocol(), each.protocolData(), each.isSimpleConsumerGroup(), members(each.members()))));
        Shown.step("describeShareGroups " + when, () -> Shown.each(admin.describeShareGroups(ALL).describedGroups(), each -> Shown.row(
            each.groupState(), each.groupEpoch() > 0, each.targetAssignmentEpoch() > 0, each.members().stream().map(member -> member.clientId() + " " + member.assignment()).toList())));
        Shown.step("describeStreamsGroups " + when, () -> Shown.each(admin.describeStreamsGroups(ALL).describedGroups(), each -> each.groupState()));
        Shown.step("listGroups " + when, () -> Shown.get(admin.listGroups().all()));
        for (GroupType type : GroupType.values()) {
            Shown.step("listGroups of type " + type + " " + when, () -> Shown.get(admin.listGroups(new ListGroupsOptions().withTypes(Set.of(type))).all()));
        }
        for (GroupState state : GroupState.values()) {
            Shown.step("listGroups in state " + state + " " + when, () -> Shown.get(admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(state))).all()));
        }
        Shown.step("listGroups of consumers " + when, () -> Shown.get(admin.listGroups(ListGroupsOptions.forConsumerGroups()).all()));
        Shown.step("listGroups of a protocol " + when, () -> Shown.get(admin.listGroups(new ListGroupsOptions().withProtocolTypes(Set.of("share", ""))).all()));
        Shown.step("listConsumerGroups " + when, () -> Shown.get(admin.listConsumerGroups().all()));
        Shown.step("listConsumerGroupOffsets " + when, () -> {
            List<String> lines = new ArrayList<>();
            for (String group : ALL) {
                try {
                    lines.add(group + " -> " + Shown.text(Shown.get(admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec())).partitionsToOffsetAndMetadata(group))));
                } catch (Exception error) {
                    lines.add(group + " -> " + Shown.refusal(error));
                }
            }
            return String.join("\n", lines);
        });
        Shown.step("listConsumerGroupOffsets of partitions " + when, () -> Shown.get(admin.listConsumerGroupOffsets(Map.of("g-classic",
            new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(PARTITION, new TopicPartition("records", 9), new TopicPartition("none", 0))))).partitionsToOffsetAndMetadata("g-classic")));
        Shown.step("listShareGroupOffsets " + when, () -> Shown.get(admin.listShareGroupOffsets(Map.of("g-share", new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo("g-share")));
        for (String group : List.of("g-none", "g-classic")) {
            Shown.step("listShareGroupOffsets of " + group + " " + when, () -> Shown.get(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group)));
        }
    }

    private void offsets(String group) {
        TopicPartition unknown = new TopicPartition("none", 0);
        TopicPartition beyond = new TopicPartition("records", 9);
        Shown.step("alterConsumerGroupOffsets " + group, () -> Shown.get(admin.alterConsumerGroupOffsets(group, Map.of(PARTITION, new OffsetAndMetadata(4, "why"))).partitionResult(PARTITION)));
        Shown.step("alterConsumerGroupOffsets " + group + " unknown topic", () -> Shown.get(admin.alterConsumerGroupOffsets(group, Map.of(unknown, new OffsetAndMetadata(4))).partitionResult(unknown)));
        Shown.step("alterConsumerGroupOffsets " + group + " unknown partition", () -> Shown.get(admin.alterConsumerGroupOffsets(group, Map.of(beyond, new OffsetAndMetadata(4))).partitionResult(beyond)));
        Shown.step("alterConsumerGroupOffsets " + group + " long metadata", () -> Shown.get(admin.alterConsumerGroupOffsets(group, Map.of(PARTITION, new OffsetAndMetadata(4, "x".repeat(5000)))).partitionResult(PARTITION)));
        Shown.step("deleteConsumerGroupOffsets " + group, () -> Shown.get(admin.deleteConsumerGroupOffsets(group, Set.of(PARTITION)).partitionResult(PARTITION)));
        Shown.step("deleteConsumerGroupOffsets " + group + " unknown topic", () -> Shown.get(admin.deleteConsumerGroupOffsets(group, Set.of(unknown)).partitionResult(unknown)));
        Shown.step("deleteConsumerGroupOffsets " + group + " unknown partition", () -> Shown.get(admin.deleteConsumerGroupOffsets(group, Set.of(beyond)).partitionResult(beyond)));
        Shown.step("deleteConsumerGroupOffsets of nobody", () -> Shown.get(admin.deleteConsumerGroupOffsets("g-none", Set.of(PARTITION)).partitionResult(PARTITION)));
    }

    private void remove(String group, RemoveMembersFromConsumerGroupOptions options) {
        Shown.step("removeMembersFromConsumerGroup " + group + " " + options.members().size(), () -> Shown.get(admin.removeMembersFromConsumerGroup(group, options).all()));
    }

    private void shares() {
        TopicPartition unknown = new TopicPartition("none", 0);
        TopicPartition beyond = new TopicPartition("records", 9);
        for (String group : List.of("g-share", "g-share-new", "g-classic")) {
            Shown.step("alterShareGroupOffsets " + group, () -> Shown.get(admin.alterShareGroupOffsets(group, Map.of(PARTITION, 1L)).partitionResult(PARTITION)));
            Shown.step("alterShareGroupOffsets " + group + " all", () -> Shown.get(admin.alterShareGroupOffsets(group, Map.of(PARTITION, 1L)).all()));
            Shown.step("deleteShareGroupOffsets " + group + " unknown topic", () -> Shown.get(admin.deleteShareGroupOffsets(group, Set.of("none")).topicResult("none")));
        }
        Shown.step("alterShareGroupOffsets unknown topic", () -> Shown.get(admin.alterShareGroupOffsets("g-share", Map.of(unknown, 1L)).partitionResult(unknown)));
        Shown.step("alterShareGroupOffsets unknown partition", () -> Shown.get(admin.alterShareGroupOffsets("g-share", Map.of(beyond, 1L)).partitionResult(beyond)));
        Shown.step("alterShareGroupOffsets negative", () -> Shown.get(admin.alterShareGroupOffsets("g-share", Map.of(PARTITION, -5L)).partitionResult(PARTITION)));
        Shown.step("listShareGroupOffsets later", () -> Shown.get(admin.listShareGroupOffsets(Map.of("g-share", new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo("g-share")));
        Shown.step("deleteShareGroupOffsets", () -> Shown.get(admin.deleteShareGroupOffsets("g-share", Set.of("records")).topicResult("records")));
        Shown.step("deleteShareGroupOffsets again", () -> Shown.get(admin.deleteShareGroupOffsets("g-share", Set.of("records")).topicResult("records")));
        Shown.step("deleteShareGroupOffsets of nobody", () -> Shown.get(admin.deleteShareGroupOffsets("g-none", Set.of("records")).topicResult("records")));
        Shown.step("deleteShareGroups", () -> Shown.each(admin.deleteShareGroups(List.of("g-share", "g-share-new", "g-classic", "g-none")).deletedGroups()));
    }

    private void streams() {
        Shown.step("listStreamsGroupOffsets", () -> Shown.get(admin.listStreamsGroupOffsets(Map.of("g-none", new ListStreamsGroupOffsetsSpec())).partitionsToOffsetAndMetadata("g-none")));
        Shown.step("alterStreamsGroupOffsets", () -> Shown.get(admin.alterStreamsGroupOffsets("g-streams", Map.of(PARTITION, new OffsetAndMetadata(4))).all()));
        Shown.step("deleteStreamsGroupOffsets", () -> Shown.get(admin.deleteStreamsGroupOffsets("g-streams", Set.of(PARTITION)).all()));
        Shown.step("deleteStreamsGroupOffsets of nobody", () -> Shown.get(admin.deleteStreamsGroupOffsets("g-none", Set.of(PARTITION)).all()));
        Shown.step("deleteStreamsGroups", () -> Shown.each(admin.deleteStreamsGroups(List.of("g-streams", "g-none", "g-classic")).deletedGroups()));
    }

    void transactions() throws Exception {
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings("transactional.id", "t-open", "transaction.timeout.ms", "50000"), new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        Shown.step("describeTransactions before", () -> describedTransactions());
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("records", 0, 1_000_020L, "key", "open")).get(30, TimeUnit.SECONDS);
        Shown.step("describeTransactions", () -> describedTransactions());
        Shown.step("listTransactions", () -> Shown.get(admin.listTransactions().all()).stream().map(each -> each.transactionalId() + " " + each.state()).toList());
        for (Map.Entry<String, ListTransactionsOptions> each : Map.of("ongoing", new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING)),
            "unknown state", new ListTransactionsOptions().filterStates(List.of(TransactionState.UNKNOWN)),
            "old", new ListTransactionsOptions().filterOnDuration(3_600_000), "of a producer", new ListTransactionsOptions().filterProducerIds(List.of(999_999L)),
            "pattern", new ListTransactionsOptions().filterOnTransactionalIdPattern("t-o.*"), "other pattern", new ListTransactionsOptions().filterOnTransactionalIdPattern("x"),
            "bad pattern", new ListTransactionsOptions().filterOnTransactionalIdPattern("[")).entrySet().stream().sorted(Map.Entry.comparingByKey()).toList()) {
            Shown.step("listTransactions " + each.getKey(), () -> Shown.get(admin.listTransactions(each.getValue()).all()).stream().map(one -> one.transactionalId() + " " + one.state()).toList());
        }
        Shown.step("describeProducers", () -> Shown.get(admin.describeProducers(List.of(PARTITION)).partitionResult(PARTITION)).activeProducers().stream()
            .map(each -> each.lastSequence() + " " + each.currentTransactionStartOffset() + " " + each.coordinatorEpoch()).toList());
        TopicPartition unknown = new TopicPartition("none", 0);
        Shown.step("describeProducers unknown at a broker", () -> Shown.get(admin.describeProducers(List.of(unknown), new DescribeProducersOptions().brokerId(1)).partitionResult(unknown)));
        Shown.step("abortTransaction of nobody", () -> Shown.get(admin.abortTransaction(new AbortTransactionSpec(PARTITION, 999_999, (short) 3, 0)).all()));
        Shown.step("forceTerminateTransaction", () -> Shown.get(admin.forceTerminateTransaction("t-open").result()));
        Shown.step("forceTerminateTransaction of nobody", () -> Shown.get(admin.forceTerminateTransaction("t-none").result()));
        Shown.step("fenceProducers", () -> Shown.each(admin.fenceProducers(List.of("t-open", "t-new")).fencedProducers()));
        Shown.step("commit of a fenced producer", () -> {
            producer.commitTransaction();
            return "committed";
        });
        producer.close(Duration.ofSeconds(5));
        Shown.step("describeTransactions after", () -> describedTransactions());
    }

    private Object describedTransactions() {
        var result = admin.describeTransactions(List.of("t-open", "t-none", ""));
        return Shown.each(Map.of("t-open", result.description("t-open"), "t-none", result.description("t-none"), "", result.description("")), each -> Shown.row(
            each.state(), each.transactionTimeoutMs(), each.transactionStartTimeMs().isPresent(), each.topicPartitions()));
    }
}
