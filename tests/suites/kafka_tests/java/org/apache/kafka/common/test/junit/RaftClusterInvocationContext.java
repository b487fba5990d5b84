package org.apache.kafka.common.test.junit;

import kafkalite.Brokers;
import kafkalite.Control;
import kafkalite.Rights;
import kafkalite.Waiting;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.TestKitDefaults;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.IntStream;

/** Takes the place of Kafka's class of this name: one run of a test, with a cluster of kafkalite's nodes. */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocationIndex) {
        return name + " [" + invocationIndex + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        Instance instance = new Instance(config, isCombined ? Type.CO_KRAFT : Type.KRAFT);
        ClusterInstanceParameterResolver parameters = new ClusterInstanceParameterResolver(instance);
        if (isCombined && config.clusterTypes().contains(Type.KRAFT)) {
            ExecutionCondition once = context -> ConditionEvaluationResult.disabled("kafkalite has one kind of cluster");
            // Test classes whose constructor has the parameter are made before they are asked.
            return List.of(once, parameters);
        }
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    instance.start();
                }
            },
            (AfterTestExecutionCallback) context -> instance.stop(),
            parameters
        );
    }

    private static final class Instance implements ClusterInstance {
        private final ClusterConfig config;
        private final Type type;
        private Control control;
        private Brokers brokers;
        private boolean isStopped;

        private Instance(ClusterConfig config, Type type) {
            this.config = config;
            this.type = type;
        }

        @Override
        public void start() {
            if (control != null) {
                return;
            }
            int first = TestKitDefaults.BROKER_ID_OFFSET;
            List<Integer> ids = IntStream.range(first, first + config.numBrokers()).boxed().toList();
            Map<Integer, Map<String, String>> own = config.perServerOverrideProperties();
            Map<String, String> settings = new HashMap<>(config.serverProperties());
            Map<String, String> users = new LinkedHashMap<>();
            if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
                users.put(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD);
                users.put(JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD);
                settings.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
                settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
                settings.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
            }
            control = new Control(ids, settings, own, config.numDisksPerBroker(), config.brokerSecurityProtocol().name, users);
            brokers = new Brokers(control, settings, own, this::admin);
        }

        private Brokers started(String what) {
            if (brokers == null) {
                throw new IllegalStateException("the cluster is not started: " + what);
            }
            return brokers;
        }

        @Override
        public void stop() {
            if (!isStopped && control != null) {
                control.close();
            }
            isStopped = true;
        }

        @Override
        public boolean started() {
            return control != null;
        }

        @Override
        public boolean stopped() {
            return isStopped;
        }

        @Override
        public Type type() {
            return type;
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            return started("brokers").all();
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            throw new Brokers.NotInThisJvm(ClusterInstance.class, "controllers");
        }

        @Override
        public Set<Integer> controllerIds() {
            // Tests leave these out of the brokers' ids.
            return Set.of();
        }

        @Override
        public List<Integer> controllerBoundPorts() {
            throw new Brokers.NotInThisJvm(ClusterInstance.class, "controllerBoundPorts");
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public String bootstrapServers() {
            started("bootstrapServers");
            return control.bootstrap();
        }

        @Override
        public String bootstrapControllers() {
            throw new Brokers.NotInThisJvm(ClusterInstance.class, "bootstrapControllers");
        }

        @Override
        public String clusterId() {
            return started("clusterId").clusterId();
        }

        @Override
        public void shutdownBroker(int brokerId) {
            started("shutdownBroker").stop(brokerId);
        }

        @Override
        public void startBroker(int brokerId) {
            started("startBroker").start(brokerId);
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public void waitForReadyBrokers() throws InterruptedException {
            long running = brokers().values().stream().filter(each -> !each.isShutdown()).count();
            Waiting.until(() -> brokers.nodes().size() == running, running + " brokers are there");
        }

        @Override
        public List<Authorizer> authorizers() {
            return Rights.authorizers(this::admin);
        }
    }
}
