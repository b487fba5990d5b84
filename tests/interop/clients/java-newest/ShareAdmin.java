// An administrator of share groups (KIP-932): what kafka-share-groups does, with Admin of the newest client.
//
//   ShareAdmin BOOTSTRAP TOPIC    creates the topic, consumes some of it, moves the group, deletes it. JSON with what was seen.

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class ShareAdmin {
    private static final String GROUP = "share-admin";

    private static Set<String> consume(String bootstrap, String topic, int most) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", GROUP);
        Set<String> seen = new HashSet<>();
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long until = System.nanoTime() + Duration.ofSeconds(90).toNanos();
            while (seen.size() < most && System.nanoTime() < until) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    seen.add(record.value());
                }
                consumer.commitSync();
            }
        }
        return seen;
    }

    private static Map<TopicPartition, SharePartitionOffsetInfo> offsets(Admin admin) throws Exception {
        return admin.listShareGroupOffsets(Map.of(GROUP, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(GROUP).get();
    }

    private static String refusal(java.util.concurrent.Callable<?> call) throws Exception {
        try {
            call.call();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(settings);
             KafkaProducer<String, String> producer =
                 new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) -1))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(number))).get();
            }
            int read = consume(bootstrap, topic, 100).size();
            ShareGroupDescription described = admin.describeShareGroups(List.of(GROUP)).describedGroups().get(GROUP).get();
            String type = "";
            for (GroupListing each : admin.listGroups(ListGroupsOptions.forShareGroups()).all().get()) {
                type += each.groupId() + ":" + each.type().get() + ":" + each.groupState().get();
            }
            SharePartitionOffsetInfo after = offsets(admin).get(first);
            for (int number = 100; number < 110; number++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(number))).get();
            }
            long lag = offsets(admin).get(first).lag().get();
            admin.alterShareGroupOffsets(GROUP, Map.of(first, 90L)).all().get();
            SharePartitionOffsetInfo moved = offsets(admin).get(first);
            int again = consume(bootstrap, topic, 20).size();
            String created = refusal(() -> admin.alterShareGroupOffsets("new-group", Map.of(first, 1L)).all().get());
            admin.deleteShareGroupOffsets(GROUP, Set.of(topic)).all().get();
            int left = offsets(admin).size();
            admin.deleteShareGroups(List.of(GROUP)).all().get();
            String gone = refusal(() -> admin.describeShareGroups(List.of(GROUP)).all().get());
            System.out.println("{\"read\": " + read
                + ", \"state\": \"" + described.groupState() + "\""
                + ", \"listed\": \"" + type + "\""
                + ", \"start\": " + after.startOffset()
                + ", \"lag\": [" + after.lag().get() + ", " + lag + ", " + moved.lag().get() + "]"
                + ", \"moved\": " + moved.startOffset()
                + ", \"again\": " + again
                + ", \"created\": \"" + created + "\""
                + ", \"left\": " + left
                + ", \"gone\": \"" + gone + "\"}");
        }
    }
}
