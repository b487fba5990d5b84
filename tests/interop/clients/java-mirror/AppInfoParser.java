package org.apache.kafka.common.utils;

/** Kafka 4.4 has moved this class; the connectors of MirrorMaker 4.3 look for it here. */
public final class AppInfoParser {
    private AppInfoParser() {}

    public static String getVersion() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion();
    }
}
