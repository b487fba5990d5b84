package org.apache.kafka.common.test.junit;

import java.util.List;
import kafkalite.core.Instance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/** Takes the place of Kafka's class of this name: one run of a test with @ClusterTest. */
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
        var instance = new Instance(config, isCombined ? Type.CO_KRAFT : Type.KRAFT);
        var parameters = new ClusterInstanceParameterResolver(instance);
        if (isCombined && config.clusterTypes().contains(Type.KRAFT)) {
            ExecutionCondition once = context -> ConditionEvaluationResult.disabled("kafkalite has one kind of cluster");
            return List.of(once, parameters);
        }
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    instance.start();
                }
            },
            (AfterTestExecutionCallback) context -> instance.stop(),
            parameters);
    }
}
