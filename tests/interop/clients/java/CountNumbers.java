// A Kafka Streams application that counts numbers by key exactly once, its feeder and its reader.
//
//   feed BOOTSTRAP             make the topics; send 0, 1, 2, ... to "numbers" until stdin ends; tell how many were sent
//   run BOOTSTRAP DIR PROTOCOL [ID]
//                              count them by (number % KEYS) into "counts"; PROTOCOL: of the group, classic or streams
//                              (KIP-1071); ID: static membership
//   read BOOTSTRAP N           read "counts" committed only, until it tells of N numbers and to the end of then
//   topics BOOTSTRAP           what Streams made: configurations and first offsets of its internal topics; the coordinator
//
// The last line on stdout is JSON; `run` prints one line once it runs, and no other.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.Stores;

public final class CountNumbers {
    private static final String APPLICATION = "count-numbers";
    private static final int KEYS = 20;
    private static final int PARTITIONS = 4;
    private static final int PER_SECOND = 200;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[1];
        switch (arguments[0]) {
            case "feed" -> feed(bootstrap);
            case "run" -> run(
                bootstrap, arguments[2], arguments[3], arguments.length > 4 ? arguments[4] : null);
            case "read" -> read(bootstrap, Long.parseLong(arguments[2]));
            case "topics" -> topics(bootstrap);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void feed(String bootstrap) throws Exception {
        try (Admin admin = admin(bootstrap)) {
            // Partitions that differ from the repartition topic's would be a mistake; the replication is the brokers' default.
            List<NewTopic> wanted = List.of(
                new NewTopic("numbers", PARTITIONS, (short) -1), new NewTopic("counts", PARTITIONS, (short) -1));
            admin.createTopics(wanted).all().get();
        }
        System.out.println("{\"feeding\": true}");
        AtomicBoolean isOver = new AtomicBoolean();
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) {
                // As good as its end.
            }
            isOver.set(true);
        });
        watcher.setDaemon(true);
        watcher.start();
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, IntegerSerializer.class.getName());
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, IntegerSerializer.class.getName());
        AtomicReference<Exception> failure = new AtomicReference<>();
        int sent = 0;
        try (KafkaProducer<Integer, Integer> producer = new KafkaProducer<>(settings)) {
            while (!isOver.get() && failure.get() == null) {
                // Without a key: the application gives them theirs, through its repartition topic.
                ProducerRecord<Integer, Integer> record = new ProducerRecord<>("numbers", sent++ % PARTITIONS, null, sent - 1);
                producer.send(record, (metadata, error) -> failure.compareAndSet(null, error));
                if (sent % (PER_SECOND / 10) == 0) {
                    Thread.sleep(100);
                }
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.println("{\"sent\": " + sent + "}");
    }

    private static void run(String bootstrap, String directory, String protocol, String instance) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<Integer, Integer> grouped = builder
            .stream("numbers", Consumed.with(Serdes.Integer(), Serdes.Integer()))
            .selectKey((key, number) -> number % KEYS)
            .groupByKey(Grouped.with("by-key", Serdes.Integer(), Serdes.Integer()));
        grouped
            .count(Materialized.<Integer, Long>as(Stores.persistentKeyValueStore("totals"))
                .withKeySerde(Serdes.Integer()).withValueSerde(Serdes.Long()))
            .toStream()
            .to("counts", Produced.with(Serdes.Integer(), Serdes.Long()));
        // A changelog that is compacted and deleted.
        grouped
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(1)))
            .count(Materialized.as("per-hour"));

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        // Every count shows: a reader sees 1, 2, 3, ... of each key.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put("repartition.purge.interval.ms", 1000);
        settings.put("probing.rebalance.interval.ms", 60_000);
        settings.put(StreamsConfig.ACCEPTABLE_RECOVERY_LAG_CONFIG, 100);
        // Small segments, compacted as soon as they can be: what is restored has been through the cleaner.
        settings.put(StreamsConfig.topicPrefix(TopicConfig.SEGMENT_BYTES_CONFIG), 10_000);
        settings.put(StreamsConfig.topicPrefix(TopicConfig.MIN_CLEANABLE_DIRTY_RATIO_CONFIG), 0.01);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        // Of a streams group the broker has these settings.
        if (protocol.equals("streams")) {
            settings.put("group.protocol", protocol);
        } else {
            settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6000);
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 1000);
        }
        if (instance != null) {
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), instance);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        AtomicBoolean wasReady = new AtomicBoolean();
        AtomicBoolean hasFailed = new AtomicBoolean();
        streams.setStateListener((now, before) -> {
            System.err.println("state " + before + " -> " + now);
            if (now == KafkaStreams.State.RUNNING && wasReady.compareAndSet(false, true)) {
                System.out.println("{\"running\": true}");
            }
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            hasFailed.set(true);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long from, long to) { }

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long end, long count) { }

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long total) {
                System.err.println("restored " + total + " of " + partition);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            boolean isClosed = streams.close(Duration.ofSeconds(30));
            System.err.println(isClosed ? "closed" : "did not close");
        }));
        streams.start();
        ended.await();
        if (hasFailed.get()) {
            System.exit(1);
        }
    }

    private static void read(String bootstrap, long wanted) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, IntegerDeserializer.class.getName());
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, LongDeserializer.class.getName());
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < PARTITIONS; number++) {
            partitions.add(new TopicPartition("counts", number));
        }
        Map<Integer, Long> last = new TreeMap<>();
        List<String> wrong = new ArrayList<>();
        long seen = 0;
        try (KafkaConsumer<Integer, Long> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            // The end of one moment: transactions that go on move it faster than a slow machine reads.
            Map<TopicPartition, Long> ends = Map.of();
            while (ends.isEmpty() || !isAt(consumer, ends)) {
                for (ConsumerRecord<Integer, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    long before = last.getOrDefault(record.key(), 0L);
                    if (record.value() != before + 1 && wrong.size() < 10) {
                        wrong.add("\"" + record.value() + " after " + before + " of " + record.key()
                            + " at " + record.partition() + ":" + record.offset() + "\"");
                    }
                    last.put(record.key(), record.value());
                    seen++;
                }
                if (ends.isEmpty() && seen >= wanted) {
                    ends = consumer.endOffsets(partitions);
                }
            }
        }
        String counts = last.entrySet().stream()
            .map(each -> "\"" + each.getKey() + "\": " + each.getValue()).collect(Collectors.joining(", "));
        System.out.println("{\"seen\": " + seen + ", \"wrong\": " + wrong + ", \"counts\": {" + counts + "}}");
    }

    private static boolean isAt(KafkaConsumer<?, ?> consumer, Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream().allMatch(each -> consumer.position(each.getKey()) >= each.getValue());
    }

    private static void topics(String bootstrap) throws Exception {
        Set<String> shown = Set.of("cleanup.policy", "retention.ms", "segment.bytes", "message.timestamp.type");
        try (Admin admin = admin(bootstrap)) {
            Set<String> names = admin.listTopics().names().get().stream()
                .filter(name -> name.startsWith(APPLICATION)).collect(Collectors.toSet());
            Map<String, TopicDescription> described = admin.describeTopics(names).allTopicNames().get();
            List<String> lines = new ArrayList<>();
            for (String name : names) {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
                Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
                String settings = shown.stream().map(key -> "\"" + key + "\": \"" + config.get(key).value() + "\"")
                    .collect(Collectors.joining(", "));
                TopicDescription topic = described.get(name);
                long purged = 0;
                for (int number = 0; number < topic.partitions().size(); number++) {
                    TopicPartition partition = new TopicPartition(name, number);
                    purged += admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition)
                        .get().offset();
                }
                lines.add("\"" + name + "\": {\"partitions\": " + topic.partitions().size() + ", \"replicas\": "
                    + topic.partitions().get(0).replicas().size() + ", \"leader\": "
                    + topic.partitions().get(0).leader().id() + ", \"purged\": " + purged + ", " + settings + "}");
            }
            int coordinator = admin.describeConsumerGroups(List.of(APPLICATION)).all().get().get(APPLICATION).coordinator().id();
            System.out.println("{\"coordinator\": " + coordinator + ", \"topics\": {" + String.join(", ", lines) + "}}");
        }
    }

    private static Admin admin(String bootstrap) {
        return Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap));
    }

    private CountNumbers() { }
}
