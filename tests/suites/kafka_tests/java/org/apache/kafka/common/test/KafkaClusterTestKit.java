package org.apache.kafka.common.test;

import kafka.server.BrokerServer;

import kafkalite.Control;
import kafkalite.Stores;

import org.apache.kafka.common.config.types.Password;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** In place of Kafka's own: the brokers are processes of kafkalite, which a control server starts. No controller is here. */
public class KafkaClusterTestKit implements AutoCloseable {
    private final TestKitNodes nodes;
    private final Map<String, String> settings;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final MockFaultHandler faults = new MockFaultHandler("fault");
    private Control cluster;

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            settings.put(key, text(value));
            return this;
        }

        private static String text(Object value) {
            if (value instanceof Password password) {
                return password.value();
            }
            return value instanceof List<?> list ? list.stream().map(String::valueOf).collect(Collectors.joining(",")) : String.valueOf(value);
        }

        public Builder setStandalone(boolean standalone) {
            return this;
        }

        public Builder setDeleteOnClose(boolean deleteOnClose) {
            return this;
        }

        public KafkaClusterTestKit build() {
            Stores.convert(settings);
            return new KafkaClusterTestKit(nodes, settings);
        }
    }

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, String> settings) {
        this.nodes = nodes;
        this.settings = settings;
    }

    public void format() {
        // A node makes its directories when it starts.
    }

    public void startup() {
        Map<Integer, Map<String, String>> own = new HashMap<>();
        nodes.brokerNodes().forEach((id, node) -> own.put(id, node.propertyOverrides()));
        List<Integer> ids = new ArrayList<>(own.keySet());
        int disks = nodes.brokerNodes().get(ids.get(0)).logDataDirectories().size();
        cluster = new Control(ids, settings, own, disks, nodes.brokerListenerProtocol().name);
        ids.forEach(id -> brokers.put(id, new BrokerServer(cluster, id)));
    }

    public void waitForReadyBrokers() {
        // They are, when the control server answers.
    }

    public String bootstrapServers() {
        return cluster.bootstrap();
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return faults;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    @Override
    public void close() {
        if (cluster != null) {
            cluster.close();
            cluster = null;
        }
    }
}
