package kafkalite;

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

/** Java's key stores as PEM files, which nodes read. */
public final class Stores {
    private static final Base64.Encoder LINES = Base64.getMimeEncoder(64, "\n".getBytes());

    private Stores() { }

    /** Puts the names of PEM files in the place of those of stores of another type. */
    public static void convert(Map<String, String> settings) {
        for (String kind : new String[] {"ssl.keystore", "ssl.truststore"}) {
            String location = settings.get(kind + ".location");
            String type = settings.getOrDefault(kind + ".type", "JKS");
            settings.remove(kind + ".type");
            if (location != null && !type.equals("PEM")) {
                String password = settings.remove(kind + ".password");
                String keyPassword = settings.getOrDefault("ssl.key.password", password);
                settings.put(kind + ".location", converted(location, type, password, keyPassword));
            }
        }
        settings.remove("ssl.key.password");
    }

    private static String converted(String location, String type, String password, String keyPassword) {
        StringBuilder text = new StringBuilder();
        try (InputStream in = Files.newInputStream(Path.of(location))) {
            KeyStore store = KeyStore.getInstance(type);
            store.load(in, password.toCharArray());
            for (String alias : Collections.list(store.aliases())) {
                if (store.isKeyEntry(alias)) {
                    Key key = store.getKey(alias, keyPassword.toCharArray());
                    block(text, "PRIVATE KEY", key.getEncoded());
                    for (Certificate each : store.getCertificateChain(alias)) {
                        block(text, "CERTIFICATE", each.getEncoded());
                    }
                } else {
                    block(text, "CERTIFICATE", store.getCertificate(alias).getEncoded());
                }
            }
            Path pem = Files.createTempFile("store", ".pem");
            pem.toFile().deleteOnExit();
            return Files.writeString(pem, text).toString();
        } catch (IOException | GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void block(StringBuilder text, String name, byte[] bytes) {
        text.append("-----BEGIN ").append(name).append("-----\n").append(LINES.encodeToString(bytes));
        text.append("\n-----END ").append(name).append("-----\n");
    }
}
