// A Kafka Streams application that copies a topic with `group.protocol=streams`, until N records are copied: ShortStreams BOOTSTRAP FROM TO ID N

import java.nio.file.Files;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

public final class ShortStreams {
    public static void main(String[] arguments) throws Exception {
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[4]));
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1]).peek((key, value) -> left.countDown()).to(arguments[2]);
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("short-streams").toString());
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put("auto.offset.reset", "earliest");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            System.out.println(left.await(90, TimeUnit.SECONDS) ? "copied" : "not copied");
        }
    }
}
