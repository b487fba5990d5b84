package kafkalite.core;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.util.LinkedHashMap;
import java.util.Map;

/** A cluster of the control server, whose port is the property `kafkalite.control`. */
final class Control {
    private static final ObjectMapper JSON = new ObjectMapper();

    static {
        // Tests with @ClusterTest fail if threads stay behind.
        System.setProperty("http.keepAlive", "false");
    }

    private final String name;

    Control() {
        name = ask("POST", "/clusters", Map.of()).get("id").asText();
    }

    /** Settings that a node does not take: key -> why. */
    Map<String, String> add(int broker, Map<String, String> settings, Map<String, String> principals) {
        var question = Map.of("broker", broker, "settings", settings, "principals", principals);
        return texts(ask("POST", "/clusters/" + name + "/brokers", question).get("ignored"));
    }

    /** Listener -> HOST:PORT. */
    Map<String, String> start(int broker) {
        return texts(ask("POST", "/clusters/" + name + "/brokers/" + broker + "/start", Map.of()).get("listeners"));
    }

    void stop(int broker) {
        ask("POST", "/clusters/" + name + "/brokers/" + broker + "/stop", Map.of());
    }

    /** Returns when all nodes have the same metadata. */
    void settle() {
        ask("POST", "/clusters/" + name + "/settle", Map.of());
    }

    void remove() {
        ask("DELETE", "/clusters/" + name, Map.of());
    }

    private static Map<String, String> texts(JsonNode node) {
        var found = new LinkedHashMap<String, String>();
        node.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    private static JsonNode ask(String method, String path, Object question) {
        try {
            var address = URI.create("http://127.0.0.1:" + System.getProperty("kafkalite.control") + path).toURL();
            var connection = (HttpURLConnection) address.openConnection();
            connection.setRequestMethod(method);
            connection.setDoOutput(true);
            byte[] body = JSON.writeValueAsBytes(question);
            connection.setFixedLengthStreamingMode(body.length);
            connection.getOutputStream().write(body);
            boolean failed = connection.getResponseCode() != 200;
            try (InputStream in = failed ? connection.getErrorStream() : connection.getInputStream()) {
                JsonNode answer = JSON.readTree(in);
                if (failed) {
                    throw new IllegalStateException("control server: " + answer.path("error").asText());
                }
                return answer;
            }
        } catch (IOException error) {
            throw new IllegalStateException("control server: " + error, error);
        }
    }
}
