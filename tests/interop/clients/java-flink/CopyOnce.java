import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies what is in the topic "input" to "output", exactly once; it fails at every so many records, and goes on from a checkpoint. */
public class CopyOnce {
    private static final int FAILS_AT = 7_000;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String naming = arguments[1];
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "10000");
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        settings.setString("execution.checkpointing.storage", "filesystem");
        settings.setString("execution.checkpointing.dir", "file://" + arguments[2]);
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(2);
        environment.enableCheckpointing(700);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics("input")
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic("output")
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-" + naming)
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(naming))
            .setProperty("transaction.timeout.ms", "120000")
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input").map(new Fails()).sinkTo(sink);
        environment.execute("copy");
        System.out.println("COPIED");
    }

    /** Slow enough for nodes to be killed meanwhile. */
    static class Fails implements MapFunction<String, String> {
        private static final AtomicInteger SEEN = new AtomicInteger();

        @Override
        public String map(String value) throws Exception {
            if (SEEN.incrementAndGet() % FAILS_AT == 0) {
                System.out.println("FAILS");
                throw new IllegalStateException("on purpose");
            }
            Thread.sleep(1);
            return value;
        }
    }
}
