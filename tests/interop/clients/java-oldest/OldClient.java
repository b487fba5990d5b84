import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client of 2018 against a cluster: what it saw, one line of JSON. Its calls exist in version 2.1. */
public final class OldClient {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int PER_CODEC = 40;
    private static final long DEADLINE_MS = 90_000;
    private final String bootstrap;
    private final Map<String, Object> seen = new LinkedHashMap<>();

    private OldClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        OldClient client = new OldClient(arguments[0]);
        client.seen.put("client", AppInfoParser.getVersion());
        try (AdminClient admin = AdminClient.create(client.properties())) {
            List<NewTopic> topics = new ArrayList<>();
            topics.add(new NewTopic("old", 3, (short) 3));
            topics.add(new NewTopic("old-txn", 1, (short) 3));
            admin.createTopics(topics).all().get();
            client.produce();
            client.consume();
            client.transactions();
            client.administer(admin);
        }
        System.out.println(json(client.seen));
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (String kind : new String[] {"key", "value"}) {
            properties.put(kind + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            properties.put(kind + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
        return properties;
    }

    private KafkaProducer<String, String> producer(String name, String value) {
        Properties properties = properties();
        properties.put(name, value);
        return new KafkaProducer<>(properties);
    }

    private KafkaConsumer<String, String> consumer(String group, String topic) {
        Properties properties = properties();
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "500");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", "read_committed");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(Collections.singletonList(topic));
        return consumer;
    }

    private static List<ConsumerRecord<String, String>> poll(
            Collection<KafkaConsumer<String, String>> members, List<ConsumerRecord<String, String>> records,
            BooleanSupplier isDone) {
        long until = System.currentTimeMillis() + DEADLINE_MS;
        while (!isDone.getAsBoolean() && System.currentTimeMillis() < until) {
            for (KafkaConsumer<String, String> member : members) {
                member.poll(Duration.ofMillis(50)).forEach(records::add);
            }
        }
        return records;
    }

    private void produce() throws Exception {
        int acknowledged = 0;
        for (String codec : CODECS) {
            try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int number = 0; number < PER_CODEC; number++) {
                    ProducerRecord<String, String> record =
                        new ProducerRecord<>("old", String.valueOf(number), codec + "-" + number);
                    record.headers().add("codec", codec.getBytes());
                    sent.add(producer.send(record));
                }
                for (Future<RecordMetadata> each : sent) {
                    each.get();
                    acknowledged++;
                }
            }
        }
        try (KafkaProducer<String, String> producer = producer("enable.idempotence", "true")) {
            producer.send(new ProducerRecord<>("old", "idempotent")).get();
            acknowledged++;
        }
        seen.put("acknowledged", acknowledged);
    }

    private void consume() {
        List<KafkaConsumer<String, String>> members = new ArrayList<>();
        members.add(consumer("old-group", "old"));
        int total = PER_CODEC * CODECS.length + 1;
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        poll(members, records, () -> records.size() >= total);
        Set<String> places = new HashSet<>();
        Set<String> headers = new TreeSet<>();
        for (ConsumerRecord<String, String> each : records) {
            places.add(each.partition() + "-" + each.offset());
            each.headers().headers("codec").forEach(header -> headers.add(new String(header.value())));
        }
        seen.put("read", places.size());
        seen.put("headers", new ArrayList<>(headers));
        members.get(0).commitSync();
        members.add(consumer("old-group", "old"));
        members.add(consumer("old-group", "old"));
        poll(members, records, () -> members.stream().allMatch(each -> each.assignment().size() == 1));
        seen.put("assignments of three", owned(members));
        members.remove(2).close();
        poll(members, records, () -> members.stream().mapToInt(each -> each.assignment().size()).sum() == 3);
        seen.put("assignments of two", owned(members));
        members.forEach(KafkaConsumer::close);
        seen.put("read again", records.size() - total);
    }

    private static List<Integer> owned(List<KafkaConsumer<String, String>> members) {
        List<Integer> found = new ArrayList<>();
        members.forEach(each -> each.assignment().forEach(partition -> found.add(partition.partition())));
        Collections.sort(found);
        return found;
    }

    private void transactions() throws InterruptedException {
        TopicPartition partition = new TopicPartition("old-txn", 0);
        KafkaProducer<String, String> producer = producer("transactional.id", "old-txn");
        producer.initTransactions();
        for (String word : new String[] {"kept", "dropped", "kept too"}) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("old-txn", word));
            producer.flush();
            if (word.equals("dropped")) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (KafkaConsumer<String, String> reader = consumer("old-txn-group", "old-txn")) {
            poll(Collections.singletonList(reader), records, () -> records.size() >= 2);
            List<String> words = new ArrayList<>();
            records.forEach(each -> words.add(each.value()));
            seen.put("committed", words);
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            offsets.put(partition, new OffsetAndMetadata(5));
            producer.sendOffsetsToTransaction(offsets, "old-txn-group");
            producer.commitTransaction();
            // The marker comes to the group's coordinator after the answer.
            while (reader.committed(partition) == null) {
                Thread.sleep(20);
            }
            seen.put("offset by transaction", reader.committed(partition).offset());
        }
        try (KafkaProducer<String, String> fencing = producer("transactional.id", "old-txn")) {
            fencing.initTransactions();
            try {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("old-txn", "zombie"));
                producer.commitTransaction();
                seen.put("fenced", false);
            } catch (KafkaException expected) {
                seen.put("fenced", true);
            }
        }
        producer.close(Duration.ZERO.toMillis(), java.util.concurrent.TimeUnit.MILLISECONDS);
    }

    private void administer(AdminClient admin) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "old");
        Set<ConfigResource> alone = Collections.singleton(topic);
        Config config = new Config(Collections.singleton(new ConfigEntry("retention.ms", "123456")));
        admin.alterConfigs(Collections.singletonMap(topic, config)).all().get();
        seen.put("retention", admin.describeConfigs(alone).all().get().get(topic).get("retention.ms").value());
        admin.createPartitions(Collections.singletonMap("old-txn", NewPartitions.increaseTo(2))).all().get();
        seen.put("partitions", admin.describeTopics(Collections.singleton("old-txn")).all().get().get("old-txn")
            .partitions().size());
        seen.put("brokers", admin.describeCluster().nodes().get().size());
        Set<String> groups = new TreeSet<>();
        admin.listConsumerGroups().all().get().forEach(each -> groups.add(each.groupId()));
        seen.put("groups", new ArrayList<>(groups));
        seen.put("state", admin.describeConsumerGroups(groups).all().get().get("old-group").state().toString());
        seen.put("offsets", admin.listConsumerGroupOffsets("old-group").partitionsToOffsetAndMetadata().get().size());
        TopicPartition first = new TopicPartition("old", 0);
        seen.put("low watermark", admin.deleteRecords(Collections.singletonMap(first, RecordsToDelete.beforeOffset(2)))
            .lowWatermarks().get(first).get().lowWatermark());
        seen.put("log dirs", admin.describeLogDirs(Collections.singleton(1)).all().get().get(1).size());
        admin.deleteConsumerGroups(Collections.singleton("old-group")).all().get();
        admin.deleteTopics(Collections.singleton("old")).all().get();
        seen.put("topics", new ArrayList<>(new TreeSet<>(admin.listTopics().names().get())));
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            List<String> parts = new ArrayList<>();
            ((Map<?, ?>) value).forEach((key, each) -> parts.add(json(key) + ": " + json(each)));
            return "{" + String.join(", ", parts) + "}";
        }
        if (value instanceof Collection) {
            List<String> parts = new ArrayList<>();
            ((Collection<?>) value).forEach(each -> parts.add(json(each)));
            return "[" + String.join(", ", parts) + "]";
        }
        return value instanceof String ? "\"" + value + "\"" : String.valueOf(value);
    }
}
