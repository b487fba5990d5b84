// Members of a share group (KIP-932) that accept, release and reject records, each with a thread of its own.
//
//   ShareGroup BOOTSTRAP TOPIC N    write N records, read them by three members, while a fourth one takes some and says nothing
//                                   until its locks have ended. JSON with what was seen; a line "read K" now and then before.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class ShareGroup {
    private static final String GROUP = "share-java";
    // Values whose acceptance or rejection was confirmed.
    private static final Set<String> ACCEPTED = ConcurrentHashMap.newKeySet();
    private static final Set<String> REJECTED = ConcurrentHashMap.newKeySet();
    private static final Set<String> RELEASED = ConcurrentHashMap.newKeySet();
    private static final Set<String> SEEN = ConcurrentHashMap.newKeySet();
    private static final Set<String> RETURNED = ConcurrentHashMap.newKeySet();
    private static final Set<String> SLEPT = ConcurrentHashMap.newKeySet();
    private static final Set<String> TAKEN_OVER = ConcurrentHashMap.newKeySet();
    private static final AtomicInteger AGAIN = new AtomicInteger();
    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final AtomicInteger DELIVERIES = new AtomicInteger();

    private static KafkaShareConsumer<String, String> consumer(String bootstrap, String topic, String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", GROUP);
        settings.put("client.id", name);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "50");
        KafkaShareConsumer<String, String> made =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    private static AcknowledgeType decide(ConsumerRecord<String, String> record) {
        int number = Integer.parseInt(record.value());
        boolean isFirst = RELEASED.add(record.value());
        if (number % 10 == 1 && isFirst) {
            return AcknowledgeType.RELEASE;
        }
        return number % 10 == 2 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }

    private static final class Member extends Thread {
        private final KafkaShareConsumer<String, String> consumer;
        private final AtomicBoolean stopping = new AtomicBoolean();

        Member(KafkaShareConsumer<String, String> consumer) {
            this.consumer = consumer;
        }

        @Override public void run() {
            try (consumer) {
                while (!stopping.get()) {
                    round();
                }
            }
        }

        private void round() {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            Map<ConsumerRecord<String, String>, AcknowledgeType> said = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                DELIVERIES.incrementAndGet();
                SEEN.add(record.value());
                if (ACCEPTED.contains(record.value()) || REJECTED.contains(record.value())) {
                    AGAIN.incrementAndGet();
                    System.out.println("again " + record.topic() + "-" + record.partition() + "@" + record.offset()
                        + " value " + record.value() + " delivery " + record.deliveryCount());
                }
                if (record.deliveryCount().orElse((short) 1) > 1) {
                    RETURNED.add(record.value());
                }
                if (SLEPT.contains(record.value())) {
                    TAKEN_OVER.add(record.value());
                }
                AcknowledgeType type = decide(record);
                consumer.acknowledge(record, type);
                said.put(record, type);
            }
            if (said.isEmpty()) {
                return;
            }
            Map<TopicIdPartition, Optional<KafkaException>> outcome;
            try {
                outcome = consumer.commitSync(Duration.ofSeconds(30));
            } catch (KafkaException error) {
                FAILED.addAndGet(said.size());
                return;
            }
            Set<Integer> stored = new HashSet<>();
            outcome.forEach((partition, error) -> {
                if (error.isEmpty()) {
                    stored.add(partition.partition());
                } else {
                    System.out.println("refused " + partition + ": " + error.get());
                }
            });
            said.forEach((record, type) -> {
                if (!stored.contains(record.partition())) {
                    FAILED.incrementAndGet();
                } else if (type == AcknowledgeType.ACCEPT) {
                    ACCEPTED.add(record.value());
                } else if (type == AcknowledgeType.REJECT) {
                    REJECTED.add(record.value());
                }
            });
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        Properties base = new Properties();
        base.put("bootstrap.servers", bootstrap);
        CountDownLatch awake = new CountDownLatch(1);
        try (Admin admin = Admin.create(base)) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(3), Optional.empty()))).all().get();
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
            List<AlterConfigOp> changes = new ArrayList<>();
            Map.of("share.auto.offset.reset", "earliest", "share.record.lock.duration.ms", "4000", "share.delivery.count.limit", "10")
                .forEach((name, value) -> changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
            admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
        }
        Properties producing = new Properties();
        producing.putAll(base);
        producing.put("linger.ms", "5");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, String.valueOf(number % 7), String.valueOf(number)));
                if (number % 100 == 99) {
                    producer.flush();
                }
            }
        }
        Thread sleeper = new Thread(() -> {
            try (KafkaShareConsumer<String, String> idle = consumer(bootstrap, topic, "sleeper")) {
                while (SLEPT.isEmpty()) {
                    idle.poll(Duration.ofMillis(500)).forEach(record -> SLEPT.add(record.value()));
                }
                System.out.println("sleeps over " + SLEPT.size());
                awake.await();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        });
        sleeper.start();
        while (SLEPT.isEmpty()) {
            Thread.sleep(20);
        }
        List<Member> members = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            Member member = new Member(consumer(bootstrap, topic, "member-" + number));
            member.start();
            members.add(member);
        }
        int told = 0;
        int deliveries = 0;
        long quietSince = System.currentTimeMillis();
        // An acknowledgement may be stored although its response was lost: then its records are never confirmed.
        while (ACCEPTED.size() + REJECTED.size() < count && System.currentTimeMillis() - quietSince < 20_000) {
            if (DELIVERIES.get() != deliveries) {
                deliveries = DELIVERIES.get();
                quietSince = System.currentTimeMillis();
            }
            if (ACCEPTED.size() - told > 200) {
                told = ACCEPTED.size();
                System.out.println("read " + told);
            }
            Thread.sleep(20);
        }
        Thread.sleep(5_000);  // longer than a lock: what was lost by the group would come again
        awake.countDown();
        for (Member member : members) {
            member.stopping.set(true);
        }
        for (Member member : members) {
            member.join();
        }
        sleeper.join();
        System.out.printf(
            "{\"accepted\": %d, \"rejected\": %d, \"seen\": %d, \"again\": %d, \"returned\": %b, \"taken over\": %b, \"failed\": %d, \"deliveries\": %d}%n",
            ACCEPTED.size(), REJECTED.size(), SEEN.size(), AGAIN.get(), !RETURNED.isEmpty(), SLEPT.equals(TAKEN_OVER),
            FAILED.get(), DELIVERIES.get());
    }
}
