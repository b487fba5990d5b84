package org.apache.kafka.common.utils;

/** Kafka 4.4 has moved this class; MirrorMaker 4.3 looks for it here. */
public final class Exit {
    private Exit() {}

    public static void exit(int code) {
        org.apache.kafka.common.utils.internals.Exit.exit(code);
    }

    public static void addShutdownHook(String name, Runnable hook) {
        org.apache.kafka.common.utils.internals.Exit.addShutdownHook(name, hook);
    }
}
