// Spring Kafka copies the topic input to the topic output, exactly once: one listener container with three threads, a transaction
// for each batch of a poll. The listener fails at every thousandth record the first time, so that transactions are aborted.
//
//   SpringCopy BOOTSTRAP PROTOCOL N    until the group has committed N records, then the line COPIED. "copied K" now and then before.

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.config.TopicBuilder;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

public final class SpringCopy {
    private static final Set<String> FAILED = ConcurrentHashMap.newKeySet();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        long wanted = Long.parseLong(arguments[2]);
        KafkaAdmin admin = new KafkaAdmin(Map.of("bootstrap.servers", bootstrap));
        admin.setFatalIfBrokerNotAvailable(true);
        NewTopic output = TopicBuilder.name("output").partitions(4).replicas(3).config("min.insync.replicas", "2").build();
        admin.createOrModifyTopics(output);

        Map<String, Object> producing = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class));
        var producers = new DefaultKafkaProducerFactory<String, String>(producing);
        producers.setTransactionIdPrefix("spring-");
        var template = new KafkaTemplate<>(producers);

        Map<String, Object> consuming = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", "copiers", "group.protocol", arguments[1], "auto.offset.reset", "earliest",
            "isolation.level", "read_committed", "max.poll.records", 100,
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
        var properties = new ContainerProperties("input");
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        properties.setMessageListener((BatchMessageListener<String, String>) records -> {
            for (ConsumerRecord<String, String> record : records) {
                template.send("output", record.value(), record.value());
                if (record.offset() % 1000 == 999 && FAILED.add(record.partition() + "-" + record.offset())) {
                    throw new IllegalStateException("a failure of the listener, at " + record.offset());
                }
            }
        });
        var container = new ConcurrentMessageListenerContainer<>(
            new DefaultKafkaConsumerFactory<String, String>(consuming), properties);
        container.setConcurrency(3);
        container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(new FixedBackOff(0, FixedBackOff.UNLIMITED_ATTEMPTS)));
        container.start();
        try (Admin plain = Admin.create(admin.getConfigurationProperties())) {
            long copied = 0;
            while (copied < wanted) {
                Thread.sleep(500);
                try {
                    copied = plain.listConsumerGroupOffsets("copiers").partitionsToOffsetAndMetadata().get().values().stream()
                        .mapToLong(OffsetAndMetadata::offset).sum();
                    System.out.println("copied " + copied);
                } catch (java.util.concurrent.ExecutionException error) {
                    System.out.println("not seen: " + error.getCause());
                }
            }
            System.out.println("failures " + FAILED.size());
            System.out.println("COPIED");
        }
        container.stop();
        producers.destroy();
    }
}
