package kafkalite.core;

import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import net.bytebuddy.implementation.bind.annotation.This;

/** In place of QuorumTestHarness.newKRaftQuorum; without that class in a signature, for it is being loaded when this is read. */
public final class Hook {
    private Hook() {
    }

    @RuntimeType
    public static Object newQuorum(@This Object harness) throws ReflectiveOperationException {
        return Quorum.newQuorum(harness);
    }
}
