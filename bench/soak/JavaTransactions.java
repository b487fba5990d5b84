import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Transactions of the unmodified Java client. Arguments: bootstrap servers, partitions, seed. A line on stdout for each:
 * number, records, result (committed, aborted, unknown). Ends at the first line on stdin.
 */
public class JavaTransactions {
    private static final AtomicBoolean stopping = new AtomicBoolean();

    public static void main(String[] args) throws Exception {
        int partitions = Integer.parseInt(args[1]);
        Random random = new Random(Long.parseLong(args[2]));
        Thread reader = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException error) {
                // The parent has gone: stop as well.
            }
            stopping.set(true);
        });
        reader.setDaemon(true);
        reader.start();
        KafkaProducer<byte[], byte[]> producer = null;
        for (int number = 1; !stopping.get(); number++) {
            int count = 1 + random.nextInt(6);
            boolean commits = random.nextDouble() < 0.75;
            String result = "unknown";
            try {
                if (producer == null) {
                    producer = open(args[0]);
                }
                producer.beginTransaction();
                for (int record = 0; record < count; record++) {
                    byte[] value = ("java:" + number + ":" + record + ":" + count).getBytes();
                    producer.send(new ProducerRecord<>("transactions", random.nextInt(partitions), null, value));
                }
                if (commits) {
                    producer = commit(producer);
                    result = producer == null ? "unknown" : "committed";
                } else {
                    if (random.nextBoolean()) {
                        producer.flush();
                    }
                    producer.abortTransaction();
                    result = "aborted";
                }
            } catch (KafkaException error) {
                System.err.println(number + " " + error);
                if (producer != null && commits) {
                    try {
                        producer.abortTransaction();
                        result = "aborted";
                    } catch (KafkaException worse) {
                        producer = close(producer);
                    }
                } else {
                    producer = close(producer);
                }
            }
            System.out.println(number + " " + count + " " + result);
            System.out.flush();
            Thread.sleep(random.nextInt(100));
        }
        close(producer);
    }

    /** The producer, or null if it is not known how the transaction ended. Throws where it has to be aborted. */
    private static KafkaProducer<byte[], byte[]> commit(KafkaProducer<byte[], byte[]> producer) {
        for (int attempt = 0; attempt < 5; attempt++) {
            try {
                producer.commitTransaction();
                return producer;
            } catch (TimeoutException error) {
                System.err.println("commit again: " + error);
            }
        }
        return close(producer);
    }

    private static KafkaProducer<byte[], byte[]> close(KafkaProducer<byte[], byte[]> producer) {
        if (producer != null) {
            producer.close(java.time.Duration.ofSeconds(1));
        }
        return null;
    }

    private static KafkaProducer<byte[], byte[]> open(String bootstrap) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", "soak-java");
        settings.put("transaction.timeout.ms", "30000");
        settings.put("max.block.ms", "30000");
        settings.put("delivery.timeout.ms", "20000");
        settings.put("request.timeout.ms", "5000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        while (true) {
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
            try {
                producer.initTransactions();
                return producer;
            } catch (KafkaException error) {
                System.err.println("init " + error);
                producer.close(java.time.Duration.ofSeconds(1));
                if (stopping.get()) {
                    throw error;
                }
                Thread.sleep(500);
            }
        }
    }
}
