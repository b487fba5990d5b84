// What Admin answered, as lines of text that do not depend on the broker: `@@ STEP`, then what was seen.

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.KafkaFuture;

final class Shown {
    private static final long DEADLINE_S = 40;

    private Shown() { }

    static void step(String name, Callable<?> call) {
        System.out.println("@@ " + name);
        try {
            System.out.println(text(call.call()));
        } catch (Throwable error) {
            System.out.println(refusal(error));
        }
        System.out.flush();
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(DEADLINE_S, TimeUnit.SECONDS);
    }

    /** Each entry of a result, or why it was refused. */
    static <K, V> Object each(Map<K, KafkaFuture<V>> futures) {
        return each(futures, value -> value);
    }

    static <K, V> Object each(Map<K, KafkaFuture<V>> futures, Function<V, Object> show) {
        List<String> lines = new ArrayList<>();
        for (Map.Entry<K, KafkaFuture<V>> entry : futures.entrySet()) {
            String shown;
            try {
                shown = text(show.apply(get(entry.getValue())));
            } catch (Throwable error) {
                shown = refusal(error);
            }
            lines.add(text(entry.getKey()) + " -> " + shown);
        }
        lines.sort(null);
        return String.join("\n", lines);
    }

    static <V> Object one(KafkaFuture<V> future, Function<V, Object> show) throws Exception {
        return show.apply(get(future));
    }

    static String refusal(Throwable error) {
        Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        if (cause instanceof TimeoutException) {
            return "! none within " + DEADLINE_S + " s";
        }
        String message = cause.getMessage() == null ? "" : cause.getMessage().replace('\n', ' ');
        return "! " + cause.getClass().getSimpleName() + " | " + message;
    }

    /** Collections in order, maps by key. */
    static String text(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof Optional) {
            return ((Optional<?>) value).map(Shown::text).orElse("none");
        }
        if (value instanceof Throwable) {
            return refusal((Throwable) value);
        }
        if (value instanceof Map) {
            Map<String, String> sorted = new TreeMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> sorted.put(text(key), text(each)));
            return sorted.toString();
        }
        if (value instanceof Collection) {
            return ((Collection<?>) value).stream().map(Shown::text).sorted().collect(Collectors.joining(", ", "[", "]"));
        }
        if (value instanceof Object[]) {
            List<String> parts = new ArrayList<>();
            for (Object part : (Object[]) value) {
                parts.add(text(part));
            }
            return String.join(" ", parts);
        }
        return value.toString();
    }

    static Object row(Object... parts) {
        return parts;
    }
}
