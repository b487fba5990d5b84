package kafkalite;

import java.util.concurrent.Callable;

/** Waiting for something to become true. */
public final class Waiting {
    private static final long MOST_MS = 60_000;
    private static final long STEP_MS = 50;

    private Waiting() { }

    public static void until(Callable<Boolean> holds, String what) throws InterruptedException {
        until(holds, what, MOST_MS);
    }

    /** A failure of `holds` counts as not yet; the last one is the cause of the AssertionError. */
    public static void until(Callable<Boolean> holds, String what, long mostMs) throws InterruptedException {
        long end = System.nanoTime() + mostMs * 1_000_000;
        Exception last = null;
        while (System.nanoTime() < end) {
            try {
                if (holds.call()) {
                    return;
                }
            } catch (InterruptedException interrupted) {
                throw interrupted;
            } catch (Exception failed) {
                last = failed;
            }
            Thread.sleep(STEP_MS);
        }
        throw new AssertionError("not within " + mostMs + " ms: " + what, last);
    }
}
