package kafkalite.core;

import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.takesArguments;

import java.lang.instrument.Instrumentation;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.implementation.MethodDelegation;

/**
 * Replaces the few methods of Kafka's test harness that start a quorum of KRaft, or wait for what is inside of a broker's JVM. The
 * tests themselves, and the rest of the harness, are unchanged.
 */
public final class Agent {
    private Agent() {
    }

    public static void premain(String arguments, Instrumentation instrumentation) {
        new AgentBuilder.Default()
            .with(AgentBuilder.Listener.StreamWriting.toSystemError().withErrorsOnly())
            .type(named("kafka.server.QuorumTestHarness"))
            .transform((builder, type, loader, module, domain) -> builder
                .method(named("newKRaftQuorum").and(takesArguments(2)))
                .intercept(MethodDelegation.to(Hook.class)))
            .type(named("kafka.utils.TestUtils$"))
            .transform((builder, type, loader, module, domain) -> builder
                .method(namedOneOf(Waits.REPLACED))
                .intercept(MethodDelegation.to(Waits.class)))
            .installOn(instrumentation);
    }
}
