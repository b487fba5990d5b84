// A reader of what is committed in a topic of strings.
//
//   ReadLines BOOTSTRAP TOPIC N     wait for the topic, then for N records, then for its end; JSON with the lines in order

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class ReadLines {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class.getName());
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class.getName());
        long wanted = Long.parseLong(arguments[2]);
        List<ConsumerRecord<String, String>> seen = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<PartitionInfo> described = List.of();
            while (described == null || described.isEmpty()) {
                described = consumer.partitionsFor(arguments[1]);
            }
            List<TopicPartition> partitions = described.stream()
                .map(each -> new TopicPartition(each.topic(), each.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (seen.size() < wanted || !isAtEnd(consumer, partitions)) {
                consumer.poll(Duration.ofMillis(200)).forEach(seen::add);
            }
        }
        // Within a partition in its order; the lines are of plain letters.
        Comparator<ConsumerRecord<String, String>> place = Comparator.comparing(ConsumerRecord::partition);
        seen.sort(place.thenComparing(ConsumerRecord::offset));
        String lines = seen.stream().map(each -> '"' + each.value() + '"').collect(Collectors.joining(", "));
        System.out.println("{\"lines\": [" + lines + "]}");
    }

    private static boolean isAtEnd(KafkaConsumer<?, ?> consumer, List<TopicPartition> partitions) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        return partitions.stream().allMatch(each -> consumer.position(each) >= ends.get(each));
    }

    private ReadLines() { }
}
