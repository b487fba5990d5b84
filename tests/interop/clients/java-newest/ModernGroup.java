// Members of a consumer group with group.protocol=consumer (KIP-848), each with a thread of its own.
//
//   ModernGroup BOOTSTRAP TOPIC N    write N records, read them by two members, then four, then three; the topics are found by
//                                    a regular expression. JSON with what was seen; a line "read K" now and then before.

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class ModernGroup {
    private static final Set<String> SEEN = ConcurrentHashMap.newKeySet();
    private static final Map<TopicPartition, Integer> OWNERS = new ConcurrentHashMap<>();
    private static final AtomicInteger TWICE = new AtomicInteger();
    private static final AtomicInteger RECORDS = new AtomicInteger();

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> consumer;
        private final int number;
        private final AtomicBoolean stopping = new AtomicBoolean();

        Member(Properties base, int number) {
            this.number = number;
            Properties settings = new Properties();
            settings.putAll(base);
            settings.put("client.id", "member-" + number);
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(new SubscriptionPattern("modern-j.*"), this);
        }

        @Override public void run() {
            try (consumer) {
                while (!stopping.get()) {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
                    for (ConsumerRecord<String, String> record : records) {
                        RECORDS.incrementAndGet();
                        SEEN.add(record.value());
                    }
                    if (!records.isEmpty()) {
                        try {
                            consumer.commitSync();
                        } catch (KafkaException error) {
                            System.err.println("not committed: " + error);  // another member reads them again
                        }
                    }
                }
            }
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition partition : partitions) {
                Integer other = OWNERS.put(partition, number);
                if (other != null && other != number) {
                    TWICE.incrementAndGet();
                }
            }
        }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> OWNERS.remove(each, number));
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int wanted = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", "modern-java");
        settings.put("group.protocol", "consumer");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        Member[] members = new Member[4];
        for (int number = 0; number < 2; number++) {
            (members[number] = new Member(settings, number)).start();
        }
        Properties writing = new Properties();
        writing.put("bootstrap.servers", arguments[0]);
        int shown = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer());
                Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (int number = 0; number < wanted; number++) {
                producer.send(new ProducerRecord<>(topic, "key-" + number, "value-" + number));
                Thread.sleep(10);
                if (number == wanted / 3) {
                    for (int more = 2; more < 4; more++) {
                        (members[more] = new Member(settings, more)).start();
                    }
                }
                if (number == 2 * wanted / 3) {
                    members[0].stopping.set(true);
                }
                if (SEEN.size() >= shown + 100) {
                    shown = SEEN.size();
                    System.out.println("read " + shown);
                }
            }
            producer.flush();
            while (SEEN.size() < wanted) {
                Thread.sleep(50);
            }
            ConsumerGroupDescription described;
            do {
                Thread.sleep(100);
                described = admin.describeConsumerGroups(List.of("modern-java")).all().get().get("modern-java");
            } while (!described.groupState().toString().equals("Stable") || described.members().size() != 3);
            for (Member member : members) {
                member.stopping.set(true);
            }
            for (Member member : members) {
                member.join();
            }
            System.out.println("{\"distinct\": " + SEEN.size() + ", \"owned twice\": " + TWICE.get() + ", \"assignor\": \""
                + described.partitionAssignor() + "\", \"type\": \"" + described.type() + "\", \"state\": \""
                + described.groupState() + "\"}");
            System.err.println("records " + RECORDS.get());
        }
    }

    private ModernGroup() { }
}
