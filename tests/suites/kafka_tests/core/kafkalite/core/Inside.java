package kafkalite.core;

import java.util.Map;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

/** Stand-ins for objects of a broker's JVM: what is not answered from outside is refused by name. */
final class Inside {
    /** One method's answer. */
    interface Method {
        Object call(InvocationOnMock call) throws Throwable;
    }

    private Inside() {
    }

    static <T> T standIn(Class<T> type, Map<String, Method> answers) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            Method answer = answers.get(name);
            if (answer != null) {
                return answer.call(call);
            }
            if (name.equals("toString")) {
                return "stand-in for " + type.getSimpleName();
            }
            throw new UnsupportedOperationException("looks inside the broker's JVM: " + type.getSimpleName() + "." + name);
        }));
    }
}
