package kafkalite.core;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.Base64;
import java.util.Collections;
import java.util.Map;

/** Java's keystores as PEM files beside them. */
final class Pem {
    private Pem() {
    }

    static String keystore(Map<String, String> settings, String prefix) {
        return written(settings, prefix, "ssl.keystore.", (store, text) -> {
            String password = settings.getOrDefault(prefix + "ssl.key.password", settings.get(prefix + "ssl.keystore.password"));
            for (String alias : Collections.list(store.aliases())) {
                if (store.isKeyEntry(alias)) {
                    Key key = store.getKey(alias, password.toCharArray());
                    block(text, "PRIVATE KEY", key.getEncoded());
                    for (Certificate each : store.getCertificateChain(alias)) {
                        block(text, "CERTIFICATE", each.getEncoded());
                    }
                }
            }
        });
    }

    static String truststore(Map<String, String> settings, String prefix) {
        return written(settings, prefix, "ssl.truststore.", (store, text) -> {
            for (String alias : Collections.list(store.aliases())) {
                if (store.isCertificateEntry(alias)) {
                    block(text, "CERTIFICATE", store.getCertificate(alias).getEncoded());
                }
            }
        });
    }

    private interface Content {
        void write(KeyStore store, StringBuilder text) throws GeneralSecurityException;
    }

    private static String written(Map<String, String> settings, String prefix, String kind, Content content) {
        Path from = Path.of(settings.get(prefix + kind + "location"));
        String password = settings.get(prefix + kind + "password");
        try (InputStream in = Files.newInputStream(from)) {
            KeyStore store = KeyStore.getInstance(settings.getOrDefault(prefix + kind + "type", "JKS"));
            store.load(in, password == null ? null : password.toCharArray());
            var text = new StringBuilder();
            content.write(store, text);
            Path to = from.resolveSibling(from.getFileName() + ".pem");
            Files.writeString(to, text);
            return to.toString();
        } catch (IOException | GeneralSecurityException error) {
            throw new IllegalStateException(from.toString(), error);
        }
    }

    private static void block(StringBuilder text, String name, byte[] content) {
        text.append("-----BEGIN ").append(name).append("-----\n");
        text.append(Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content));
        text.append("\n-----END ").append(name).append("-----\n");
    }
}
