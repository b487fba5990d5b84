package kafkalite;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A cluster of kafkalite's nodes, started by tests/suites/cluster_control.py, whose port is in the property kafkalite.control.
 *
 * Each question is one connection: Kafka's tests fail if threads stay behind, such as those that keep connections open.
 */
public final class Control implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int MOST_MS = 180_000;

    private final String id;
    private final Map<Integer, String> brokers = new TreeMap<>();

    static {
        System.setProperty("http.keepAlive", "false");
    }

    public Control(List<Integer> ids, Map<String, String> settings, Map<Integer, Map<String, String>> own, int disks, String security) {
        this(ids, settings, own, disks, security, Map.of());
    }

    /** Starts a cluster; `settings` of all brokers, `own` those of one; the brokers are the first of `users`. Throws IllegalStateException with the server's reason. */
    public Control(List<Integer> ids, Map<String, String> settings, Map<Integer, Map<String, String>> own, int disks, String security, Map<String, String> users) {
        Map<String, Object> question = new HashMap<>();
        question.put("brokers", ids);
        question.put("settings", settings);
        question.put("own_settings", own);
        question.put("disks", disks);
        question.put("security", security);
        question.put("users", users);
        JsonNode answer = ask("POST", "/clusters", question);
        id = answer.get("id").asText();
        answer.get("brokers").fields().forEachRemaining(each -> brokers.put(Integer.valueOf(each.getKey()), each.getValue().asText()));
        if (!answer.get("ignored").isEmpty()) {
            System.err.println("kafkalite: settings without a counterpart: " + answer.get("ignored"));
        }
    }

    /** Broker to HOST:PORT. */
    public Map<Integer, String> brokers() {
        return Map.copyOf(brokers);
    }

    public String bootstrap() {
        return String.join(",", brokers.values());
    }

    /** `verb`: stop, kill or start. */
    public void change(int broker, String verb) {
        ask("POST", "/clusters/" + id + "/brokers/" + broker + "/" + verb, Map.of());
    }

    @Override
    public void close() {
        ask("DELETE", "/clusters/" + id, Map.of());
    }

    private static JsonNode ask(String method, String path, Map<String, ?> question) {
        try {
            String address = "http://127.0.0.1:" + System.getProperty("kafkalite.control") + path;
            HttpURLConnection connection = (HttpURLConnection) URI.create(address).toURL().openConnection();
            connection.setRequestMethod(method);
            connection.setRequestProperty("Connection", "close");
            connection.setReadTimeout(MOST_MS);
            connection.setDoOutput(true);
            try (OutputStream out = connection.getOutputStream()) {
                JSON.writeValue(out, question);
            }
            boolean isWell = connection.getResponseCode() == 200;
            try (InputStream in = isWell ? connection.getInputStream() : connection.getErrorStream()) {
                JsonNode answer = JSON.readTree(in);
                if (!isWell) {
                    throw new IllegalStateException("kafkalite: " + method + " " + path + ": " + answer.get("error").asText());
                }
                return answer;
            } finally {
                connection.disconnect();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
