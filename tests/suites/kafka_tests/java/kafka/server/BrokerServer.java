package kafka.server;

import kafkalite.Control;

import org.apache.kafka.metadata.BrokerState;

/** In place of Kafka's broker: a process of kafkalite. What looks at a broker's objects finds no such method. */
public class BrokerServer {
    private final Control cluster;
    private final int id;
    private volatile boolean isRunning = true;

    public BrokerServer(Control cluster, int id) {
        this.cluster = cluster;
        this.id = id;
    }

    public synchronized void startup() {
        cluster.change(id, "start");
        isRunning = true;
    }

    public synchronized void shutdown() {
        isRunning = false;
        cluster.change(id, "stop");
    }

    public void awaitShutdown() {
        // It has ended when the answer to "stop" is here.
    }

    public BrokerState brokerState() {
        return isRunning ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
    }
}
