import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringSerializer;

/** OAUTHBEARER with tokens that a server issues: login, re-authentication on the same connection, tokens that are refused. */
public class IssuedTokens {
    record Token(String value, Long startTimeMs, long lifetimeMs) implements OAuthBearerToken {
        public Set<String> scope() {
            return Set.of();
        }

        public String principalName() {
            return "alice";
        }
    }

    /** Asks the issuer for each token; it says when the token ends. */
    public static class Handler implements AuthenticateCallbackHandler {
        private String url;

        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            url = (String) entries.get(0).getOptions().get("url");
        }

        public void close() {}

        public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
            for (Callback callback : callbacks) {
                if (!(callback instanceof OAuthBearerTokenCallback wanted)) continue;
                try {
                    String[] answer = HttpClient.newHttpClient()
                        .send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString()).body().split(" ");
                    wanted.token(new Token(answer[0], Long.parseLong(answer[1]), Long.parseLong(answer[2])));
                } catch (InterruptedException error) {
                    throw new IOException(error);
                }
            }
        }
    }

    static Properties config(String bootstrap, String truststore, String url) {
        Properties found = new Properties();
        found.put("bootstrap.servers", bootstrap);
        found.put("security.protocol", "SASL_SSL");
        found.put("ssl.truststore.type", "PEM");
        found.put("ssl.truststore.location", truststore);
        found.put("sasl.mechanism", "OAUTHBEARER");
        found.put("sasl.login.callback.handler.class", Handler.class.getName());
        found.put("sasl.login.refresh.min.period.seconds", "0");
        found.put("sasl.login.refresh.buffer.seconds", "0");
        found.put("sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required url=\"" + url + "\";");
        return found;
    }

    static KafkaProducer<String, String> producer(Properties config) {
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static double total(KafkaProducer<?, ?> producer, String name) {
        return producer.metrics().values().stream().filter(each -> each.metricName().name().equals(name))
            .mapToDouble(each -> (Double) each.metricValue()).sum();
    }

    static void write(KafkaProducer<String, String> producer) throws Exception {
        producer.send(new ProducerRecord<>("t", 0, "k", "v")).get(60, TimeUnit.SECONDS);
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], truststore = arguments[1], issuer = arguments[2];
        try (KafkaProducer<String, String> producer = producer(config(bootstrap, truststore, issuer + "/short"))) {
            int written = 0;
            while (total(producer, "successful-reauthentication-total") < 3) {
                write(producer);
                written++;
                Thread.sleep(20);
            }
            System.out.println("written " + (written > 3));
            System.out.println("failed " + total(producer, "failed-reauthentication-total")
                + " " + total(producer, "failed-authentication-total"));
        }
        for (String kind : List.of("expired", "foreign", "audience", "issuer", "unsigned")) {
            try (KafkaProducer<String, String> producer = producer(config(bootstrap, truststore, issuer + "/" + kind))) {
                write(producer);
                System.out.println(kind + " written");
            } catch (ExecutionException error) {
                System.out.println(kind + " " + error.getCause().getClass().getSimpleName());
            }
        }
        try (KafkaProducer<String, String> producer = producer(config(bootstrap, truststore, issuer + "/changing"))) {
            write(producer);
            System.out.println("as the first user");
            // The connection ends; a new one may begin as the other user.
            while (total(producer, "failed-reauthentication-total") == 0) {
                try {
                    write(producer);
                } catch (ExecutionException error) {
                    System.err.println(error);
                }
                Thread.sleep(20);
            }
            System.out.println("as another user " + total(producer, "successful-reauthentication-total"));
        }
    }
}
