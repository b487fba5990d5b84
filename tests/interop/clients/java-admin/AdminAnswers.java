// Every method of Admin, in one fixed order, against a cluster of three brokers (1, 2, 3) that nobody else uses.
//
//   AdminAnswers BOOTSTRAP    prints what each call returned, or how it was refused (see Shown)

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

public final class AdminAnswers {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "request.timeout.ms", "15000", "default.api.timeout.ms", "20000");
        try (Admin admin = Admin.create(settings)) {
            waitForBrokers(admin);
            admin.createTopics(List.of(new NewTopic("records", 1, (short) 3).configs(Map.of("retention.ms", "-1")))).all().get(60, TimeUnit.SECONDS);
            TopicAnswers topics = new TopicAnswers(admin);
            ClusterAnswers cluster = new ClusterAnswers(admin);
            GroupAnswers groups = new GroupAnswers(admin, bootstrap);
            groups.produce();
            topics.creation();
            topics.description();
            topics.partitions();
            cluster.brokers();
            cluster.settings();
            cluster.users();
            cluster.quotas();
            cluster.acls();
            cluster.tokens();
            groups.groups();
            groups.transactions();
            topics.records();
            topics.replicas();
            topics.deletion();
        }
    }

    /** A broker that listens is not yet one that the others know. */
    private static void waitForBrokers(Admin admin) throws Exception {
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(5);
        while (System.nanoTime() < end) {
            try {
                if (admin.describeCluster().nodes().get().size() == 3) {
                    return;
                }
            } catch (ExecutionException error) {
                System.err.println(error);
            }
            Thread.sleep(200);
        }
        throw new IllegalStateException("there are no three brokers");
    }
}
