import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.StringSerializer;

/** Makes a delegation token, writes with it, and shows what happens when it ends. */
public class TokenLogin {
    static Properties config(String bootstrap, String mechanism, String user, String password, boolean isToken) {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap);
        found.put("security.protocol", "SASL_PLAINTEXT");
        found.put("sasl.mechanism", mechanism);
        found.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"" + user
            + "\" password=\"" + password + "\"" + (isToken ? " tokenauth=\"true\"" : "") + ";");
        return found;
    }

    static String cause(Exception error) {
        Throwable found = error instanceof ExecutionException ? error.getCause() : error;
        return found.getClass().getSimpleName();
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], password = arguments[1];
        try (Admin alice = Admin.create(config(bootstrap, "SCRAM-SHA-512", "alice", password, false))) {
            DelegationToken token = alice.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(List.of(new KafkaPrincipal("User", "bob"))).maxLifetimeMs(3_600_000))
                .delegationToken().get();
            System.out.println("owner " + token.tokenInfo().owner());
            long renewed = alice.renewDelegationToken(token.hmac(), new RenewDelegationTokenOptions().renewTimePeriodMs(600_000))
                .expiryTimestamp().get();
            System.out.println("renewed " + (renewed <= token.tokenInfo().maxTimestamp()));
            while (alice.describeDelegationToken().delegationTokens().get().size() != 1) Thread.sleep(20);
            for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512")) {
                Properties login = config(bootstrap, mechanism, token.tokenInfo().tokenId(), token.hmacAsBase64String(), true);
                try (KafkaProducer<String, String> producer = new KafkaProducer<>(login, new StringSerializer(), new StringSerializer())) {
                    System.out.println("wrote " + mechanism + " " + producer.send(new ProducerRecord<>("t", 0, "k", "v")).get().hasOffset());
                }
                try (Admin by = Admin.create(login)) {
                    by.createDelegationToken().delegationToken().get();
                    System.out.println("created");
                } catch (Exception error) {
                    System.out.println("create with a token: " + cause(error));
                }
                try (Admin by = Admin.create(login)) {
                    by.createTopics(List.of(new NewTopic("forbidden", 1, (short) 1))).all().get();
                    System.out.println("created");
                } catch (Exception error) {
                    System.out.println("beyond the owner's rights: " + cause(error));
                }
            }
            Properties login = config(bootstrap, "SCRAM-SHA-256", token.tokenInfo().tokenId(), token.hmacAsBase64String(), true);
            try (Admin by = Admin.create(login)) {
                by.describeCluster().nodes().get();
                alice.expireDelegationToken(token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)).expiryTimestamp().get();
                try {
                    while (true) by.describeCluster().nodes().get(30, TimeUnit.SECONDS);
                } catch (Exception error) {
                    System.out.println("after its end: " + cause(error));
                }
            }
        }
    }
}
