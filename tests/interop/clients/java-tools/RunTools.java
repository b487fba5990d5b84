// Runs Kafka's command line tools one after the other in one JVM: a JVM for each would cost minutes.
//
// A line on stdin: seconds (negative: it works in other threads, and has that long), class, standard input, arguments, with tabs between them and \n for a line break. The answer on stdout:
// a line "CODE LENGTH" and the LENGTH bytes that the tool has printed on both streams. CODE is its exit code; -1: it was still running.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.utils.internals.Exit;

public final class RunTools {
    /** What a tool throws instead of ending the JVM. */
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    private static final int NOT_SAID = -2;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] fields = line.split("\t", -1);
            for (int i = 0; i < fields.length; i++) {
                fields[i] = fields[i].replace("\\n", "\n");
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            hooks.clear();
            int code = run(Integer.parseInt(fields[0]), fields[1], fields[2], Arrays.copyOfRange(fields, 3, fields.length), printed);
            for (Runnable hook : List.copyOf(hooks)) {
                hook.run();
            }
            byte[] bytes = printed.toByteArray();
            answers.println(code + " " + bytes.length);
            answers.write(bytes);
            answers.flush();
        }
    }

    private static int run(int seconds, String name, String input, String[] arguments, ByteArrayOutputStream printed) throws Exception {
        AtomicInteger code = new AtomicInteger(NOT_SAID);
        PrintStream out = new PrintStream(printed, true);
        // The first word counts: some tools catch what is thrown here, and exit with 1 after their 0.
        Exit.Procedure end = (status, message) -> {
            code.compareAndSet(NOT_SAID, status);
            if (message != null) {
                out.println(message);
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        System.setOut(out);
        System.setErr(out);
        System.setIn(new ByteArrayInputStream(input.getBytes()));
        Thread thread = new Thread(() -> {
            try {
                Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
                code.compareAndSet(NOT_SAID, 0);
            } catch (InvocationTargetException error) {
                if (code.compareAndSet(NOT_SAID, 1)) {
                    error.getCause().printStackTrace(out);
                }
            } catch (ReflectiveOperationException error) {
                error.printStackTrace(out);
                code.compareAndSet(NOT_SAID, 127);
            }
        }, name);
        thread.setDaemon(true);
        thread.start();
        thread.join(Math.abs(seconds) * 1000L);
        if (seconds < 0) {
            Thread.sleep(-seconds * 1000L);
        }
        if (thread.isAlive()) {
            thread.interrupt();
            return -1;
        }
        return code.get();
    }
}
