package kafkalite.core;

import java.net.InetAddress;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;
import scala.jdk.javaapi.CollectionConverters;

/** A broker's settings as the control server takes them: texts, PEM files for keystores, the users of PLAIN as a file's lines. */
final class Settings {
    private static final String KEYSTORE = "ssl.keystore.location";
    private static final String TRUSTSTORE = "ssl.truststore.location";

    private Settings() {
    }

    static Map<String, String> of(KafkaConfig config) {
        var found = new HashMap<String, String>();
        config.originals().forEach((key, value) -> found.put(key, text(value)));
        for (String key : new TreeSet<>(found.keySet())) {
            String prefix = key.substring(0, Math.max(0, key.indexOf("ssl.")));
            if (key.endsWith(KEYSTORE)) {
                found.put(key, Pem.keystore(found, prefix));
            } else if (key.endsWith(TRUSTSTORE)) {
                found.put(key, Pem.truststore(found, prefix));
            }
        }
        found.keySet().removeIf(key -> key.contains("ssl.") && (key.endsWith(".password") || key.endsWith(".type")));
        for (String key : new String[] {"log.dir", "log.dirs"}) {
            // Relative ones are of this JVM's directory.
            found.computeIfPresent(key, (name, dirs) -> Arrays.stream(dirs.split(","))
                .map(each -> Path.of(each.trim()).toAbsolutePath().toString()).collect(Collectors.joining(",")));
        }
        String users = plainUsers(found.getOrDefault("listeners", ""));
        if (!users.isEmpty()) {
            found.put("sasl.plain.users", users);
        }
        if (!hasOwnRights(config)) {
            // An authorizer of the test's own decides in the broker's JVM only.
            found.remove("authorizer.class.name");
        }
        return found;
    }

    /** Whether the authorizer is Kafka's own one, whose rules a node has too. */
    static boolean hasOwnRights(KafkaConfig config) {
        String authorizer = text(config.originals().getOrDefault("authorizer.class.name", ""));
        return authorizer.equals("org.apache.kafka.metadata.authorizer.StandardAuthorizer");
    }

    static String text(Object value) {
        if (value instanceof Password password) {
            return password.value();
        }
        if (value instanceof Class<?> type) {
            return type.getName();
        }
        if (value instanceof Iterable<?> many) {
            var parts = new java.util.ArrayList<String>();
            many.forEach(each -> parts.add(String.valueOf(each)));
            return String.join(",", parts);
        }
        return String.valueOf(value);
    }

    /** Of listeners in plain text, if the test has a principal builder of its own. */
    static Map<String, String> principals(KafkaConfig config) {
        var found = new HashMap<String, String>();
        Object builder = config.originals().get("principal.builder.class");
        if (builder == null || text(builder).equals(DefaultKafkaPrincipalBuilder.class.getName())) {
            return found;
        }
        try {
            var build = (KafkaPrincipalBuilder) Class.forName(text(builder)).getDeclaredConstructor().newInstance();
            for (var endpoint : CollectionConverters.asJava(config.dataPlaneListeners())) {
                if (endpoint.securityProtocol() == SecurityProtocol.PLAINTEXT) {
                    var context = new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), endpoint.listener());
                    found.put(endpoint.listener(), build.build(context).toString());
                }
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
        return found;
    }

    /** NAME=PASSWORD lines, of the JVM's JAAS configuration; those of settings are read by the control server. */
    private static String plainUsers(String listeners) {
        var users = new HashMap<String, String>();
        Configuration jaas;
        try {
            jaas = Configuration.getConfiguration();
        } catch (SecurityException error) {
            jaas = null;
        }
        for (String listener : listeners.split(",")) {
            String name = listener.split("://")[0].trim().toLowerCase(Locale.ROOT);
            for (String context : new String[] {name + ".KafkaServer", "KafkaServer"}) {
                AppConfigurationEntry[] entries = jaas == null ? null : jaas.getAppConfigurationEntry(context);
                for (AppConfigurationEntry entry : entries == null ? new AppConfigurationEntry[0] : entries) {
                    entry.getOptions().forEach((key, value) -> note(users, key, String.valueOf(value)));
                }
            }
        }
        var lines = new StringBuilder();
        users.forEach((name, password) -> lines.append(name).append('=').append(password).append('\n'));
        return lines.toString();
    }

    private static void note(Map<String, String> users, String key, String value) {
        if (key.startsWith("user_")) {
            users.put(key.substring("user_".length()), value);
        }
    }
}
