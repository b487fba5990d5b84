package kafkalite.core;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.AclDeleteResult.AclBindingDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/** The ACLs as one broker knows them, by requests to this broker. */
final class Rights implements Authorizer {
    private final Broker broker;

    Rights(Broker broker) {
        this.broker = broker;
    }

    @Override
    public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo info) {
        return Map.of();
    }

    @Override
    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        throw new UnsupportedOperationException("looks inside the broker's JVM: Authorizer.authorize");
    }

    @Override
    public List<? extends CompletionStage<AclCreateResult>> createAcls(AuthorizableRequestContext context, List<AclBinding> bindings) {
        return broker.wire().createAcls(bindings).stream()
            .map(error -> error.map(each -> new AclCreateResult((ApiException) each)).orElse(AclCreateResult.SUCCESS))
            .map(CompletableFuture::completedFuture).toList();
    }

    @Override
    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(AuthorizableRequestContext context, List<AclBindingFilter> filters) {
        return broker.wire().deleteAcls(filters).stream()
            .map(each -> new AclDeleteResult(each.stream().map(AclBindingDeleteResult::new).toList()))
            .map(CompletableFuture::completedFuture).toList();
    }

    @Override
    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        return broker.wire().acls(filter);
    }

    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public void close() {
    }
}
