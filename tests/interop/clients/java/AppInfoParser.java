// The file connectors of Kafka 4.3.1 ask this class for their version; Kafka 4.4.0 has it in another package.

package org.apache.kafka.common.utils;

public final class AppInfoParser {
    private AppInfoParser() {
    }

    public static String getVersion() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion();
    }
}
