package kafkalite.core;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.security.InvalidKeyException;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.message.AlterUserScramCredentialsRequestData;
import org.apache.kafka.common.message.AlterUserScramCredentialsRequestData.ScramCredentialUpsertion;
import org.apache.kafka.common.message.CreateAclsRequestData;
import org.apache.kafka.common.message.DeleteAclsRequestData;
import org.apache.kafka.common.message.DescribeUserScramCredentialsRequestData;
import org.apache.kafka.common.message.DescribeUserScramCredentialsRequestData.UserName;
import org.apache.kafka.common.message.MetadataResponseData;
import org.apache.kafka.common.message.MetadataResponseData.MetadataResponseTopic;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.AlterUserScramCredentialsRequest;
import org.apache.kafka.common.requests.AlterUserScramCredentialsResponse;
import org.apache.kafka.common.requests.CreateAclsRequest;
import org.apache.kafka.common.requests.CreateAclsResponse;
import org.apache.kafka.common.requests.DeleteAclsRequest;
import org.apache.kafka.common.requests.DeleteAclsResponse;
import org.apache.kafka.common.requests.DescribeAclsRequest;
import org.apache.kafka.common.requests.DescribeAclsResponse;
import org.apache.kafka.common.requests.DescribeUserScramCredentialsRequest;
import org.apache.kafka.common.requests.DescribeUserScramCredentialsResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.server.IntegrationTestUtils;

/** Requests to one broker on the listener whose clients may do everything. */
record Wire(int port) {
    private static final Pattern USER = Pattern.compile("(SCRAM-SHA-\\d+)=\\[(.*)\\]");

    @SuppressWarnings("unchecked")
    private <T extends AbstractResponse> T ask(AbstractRequest request) {
        try {
            return (T) IntegrationTestUtils.connectAndReceive(request, port);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    MetadataResponseData metadata() {
        return this.<MetadataResponse>ask(MetadataRequest.Builder.allTopics().build()).data();
    }

    String clusterId() {
        return metadata().clusterId();
    }

    Optional<MetadataResponseTopic> topic(String name) {
        return metadata().topics().stream().filter(each -> name.equals(each.name())).findFirst();
    }

    Map<String, Uuid> topicIds() {
        var found = new HashMap<String, Uuid>();
        metadata().topics().forEach(each -> found.put(each.name(), each.topicId()));
        return found;
    }

    Optional<MetadataResponseData.MetadataResponsePartition> partition(TopicPartition partition) {
        return topic(partition.topic()).flatMap(topic -> topic.partitions().stream()
            .filter(each -> each.partitionIndex() == partition.partition()).findFirst());
    }

    List<AclBinding> acls(AclBindingFilter filter) {
        DescribeAclsResponse response = ask(new DescribeAclsRequest.Builder(filter).build());
        if (response.error().isFailure()) {
            throw response.error().exception();
        }
        return DescribeAclsResponse.aclBindings(response.acls());
    }

    List<Optional<RuntimeException>> createAcls(List<AclBinding> bindings) {
        var data = new CreateAclsRequestData().setCreations(bindings.stream().map(CreateAclsRequest::aclCreation).toList());
        CreateAclsResponse response = ask(new CreateAclsRequest.Builder(data).build());
        var found = new ArrayList<Optional<RuntimeException>>();
        response.results().forEach(each -> found.add(
            Optional.ofNullable(Errors.forCode(each.errorCode()).exception(each.errorMessage()))));
        return found;
    }

    List<List<AclBinding>> deleteAcls(List<AclBindingFilter> filters) {
        var data = new DeleteAclsRequestData().setFilters(filters.stream().map(DeleteAclsRequest::deleteAclsFilter).toList());
        DeleteAclsResponse response = ask(new DeleteAclsRequest.Builder(data).build());
        var found = new ArrayList<List<AclBinding>>();
        response.filterResults().forEach(each -> {
            if (each.errorCode() != 0) {
                throw Errors.forCode(each.errorCode()).exception(each.errorMessage());
            }
            found.add(each.matchingAcls().stream().map(DeleteAclsResponse::aclBinding).toList());
        });
        return found;
    }

    boolean hasScram(String user, byte mechanism) {
        var data = new DescribeUserScramCredentialsRequestData().setUsers(List.of(new UserName().setName(user)));
        DescribeUserScramCredentialsResponse response = ask(new DescribeUserScramCredentialsRequest.Builder(data).build());
        return response.data().results().stream().flatMap(each -> each.credentialInfos().stream())
            .anyMatch(each -> each.mechanism() == mechanism);
    }

    /** `SCRAM-SHA-256=[name=NAME,password=PASSWORD,iterations=N]`, as kafka-storage takes them. */
    void createUsers(List<String> users) {
        var upsertions = new ArrayList<ScramCredentialUpsertion>();
        for (String each : users) {
            Matcher match = USER.matcher(each);
            if (!match.matches()) {
                throw new IllegalArgumentException(each);
            }
            var fields = new HashMap<String, String>();
            for (String pair : match.group(2).split(",")) {
                String[] halves = pair.split("=", 2);
                fields.put(halves[0].trim(), halves[1].replaceAll("^\"|\"$", ""));
            }
            upsertions.add(upsertion(ScramMechanism.forMechanismName(match.group(1)), fields));
        }
        AlterUserScramCredentialsResponse response;
        do {
            response = ask(new AlterUserScramCredentialsRequest.Builder(
                new AlterUserScramCredentialsRequestData().setUpsertions(upsertions)).build());
        } while (response.data().results().stream().anyMatch(each -> each.errorCode() == Errors.NOT_CONTROLLER.code()));
        response.data().results().forEach(each -> Errors.forCode(each.errorCode()).maybeThrow());
    }

    private static ScramCredentialUpsertion upsertion(ScramMechanism mechanism, Map<String, String> fields) {
        try {
            var formatter = new ScramFormatter(mechanism);
            byte[] salt = formatter.secureRandomBytes();
            int iterations = Integer.parseInt(fields.getOrDefault("iterations", "4096"));
            return new ScramCredentialUpsertion()
                .setName(fields.get("name"))
                .setMechanism(org.apache.kafka.clients.admin.ScramMechanism.fromMechanismName(mechanism.mechanismName()).type())
                .setSalt(salt)
                .setIterations(iterations)
                .setSaltedPassword(formatter.saltedPassword(fields.get("password"), salt, iterations));
        } catch (InvalidKeyException | NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
