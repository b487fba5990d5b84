// Admin on the cluster itself: brokers, settings, features, users, quotas, ACLs, tokens, KRaft.

import static java.util.Map.entry;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

final class ClusterAnswers {
    private static final Uuid NOBODY = Uuid.fromString("AAAAAAAAAAAAAAAAAAAAZZ");
    private final Admin admin;

    ClusterAnswers(Admin admin) {
        this.admin = admin;
    }

    void brokers() {
        Shown.step("describeCluster", () -> {
            DescribeClusterResult result = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            Collection<org.apache.kafka.common.Node> nodes = Shown.get(result.nodes());
            return Shown.row(nodes.stream().map(each -> each.id() + " " + each.rack() + " " + each.isFenced()).toList(),
                nodes.contains(Shown.get(result.controller())), Shown.get(result.clusterId()) != null, Shown.get(result.authorizedOperations()));
        });
        Shown.step("describeCluster fenced", () -> Shown.get(admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes()).size());
        Shown.step("unregisterBroker unknown", () -> Shown.get(admin.unregisterBroker(77).all()));
        Shown.step("unregisterBroker negative", () -> Shown.get(admin.unregisterBroker(-7).all()));
        Shown.step("unregisterController unknown", () -> Shown.get(admin.unregisterController(77).all()));
        Shown.step("describeMetadataQuorum", () -> Shown.get(admin.describeMetadataQuorum().quorumInfo()).voters().size());
        Shown.step("addRaftVoter", () -> Shown.get(admin.addRaftVoter(77, NOBODY, Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 9))).all()));
        Shown.step("removeRaftVoter", () -> Shown.get(admin.removeRaftVoter(77, NOBODY).all()));
        Shown.step("describeFeatures", () -> {
            var features = Shown.get(admin.describeFeatures().featureMetadata());
            return Shown.row(features.supportedFeatures(), "\nfinalized", features.finalizedFeatures(), "\nepoch", features.finalizedFeaturesEpoch().isPresent());
        });
        for (Map.Entry<String, FeatureUpdate> each : List.of(
            entry("no.such.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            entry("group.version", new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE)),
            entry("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            entry("share.version", new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            entry("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)),
            entry("transaction.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            entry("transaction.version", new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)),
            entry("", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)))) {
            Shown.step("updateFeatures only to see " + each.getKey() + " " + each.getValue(), () -> Shown.each(admin.updateFeatures(
                Map.of(each.getKey(), each.getValue()), new UpdateFeaturesOptions().validateOnly(true)).values()));
        }
        Shown.step("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(10)) != null);
    }

    private static String shown(ConfigEntry each) {
        return each.name() + " = " + each.value() + " " + each.source() + " " + each.type()
            + (each.isReadOnly() ? " ro" : "") + (each.isSensitive() ? " secret" : "") + (each.documentation() == null ? "" : " doc")
            + (each.synonyms().isEmpty() ? "" : " " + each.synonyms().stream().map(s -> s.name() + "=" + s.value() + " " + s.source()).toList());
    }

    private void describe(String step, ConfigResource resource, DescribeConfigsOptions options) {
        Shown.step("describeConfigs " + step, () -> String.join("\n", new TreeSet<>(
            Shown.get(admin.describeConfigs(List.of(resource), options).values().get(resource)).entries().stream().map(ClusterAnswers::shown).toList())));
    }

    private void alter(String step, ConfigResource resource, Object... operations) {
        Shown.step("incrementalAlterConfigs " + step, () -> {
            List<AlterConfigOp> list = new java.util.ArrayList<>();
            for (int each = 0; each < operations.length; each += 3) {
                list.add(new AlterConfigOp(new ConfigEntry((String) operations[each + 1], (String) operations[each + 2]), (AlterConfigOp.OpType) operations[each]));
            }
            return Shown.each(admin.incrementalAlterConfigs(Map.of(resource, list), new AlterConfigsOptions()).values());
        });
    }

    void settings() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "a");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource brokers = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "of-settings");
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "watched");
        ConfigResource logger = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1");
        AlterConfigOp.OpType set = AlterConfigOp.OpType.SET, delete = AlterConfigOp.OpType.DELETE;
        AlterConfigOp.OpType append = AlterConfigOp.OpType.APPEND, subtract = AlterConfigOp.OpType.SUBTRACT;
        alter("topic set", topic, set, "retention.ms", "654321", set, "min.insync.replicas", "2");
        alter("topic subtract", topic, subtract, "cleanup.policy", "compact");
        alter("topic append", topic, append, "cleanup.policy", "compact");
        alter("topic append again", topic, append, "cleanup.policy", "compact");
        alter("topic append to no list", topic, append, "retention.ms", "5");
        alter("topic delete", topic, delete, "min.insync.replicas", null);
        alter("topic delete what is not set", topic, delete, "segment.ms", null);
        alter("topic delete unknown", topic, delete, "no.such", null);
        alter("topic unknown name", topic, set, "no.such", "1");
        alter("topic bad value", topic, set, "retention.ms", "x");
        alter("topic null", topic, set, "retention.ms", null);
        alter("topic twice", topic, set, "retention.ms", "5", set, "retention.ms", "6");
        alter("topic nothing", topic);
        alter("topic that is not there", new ConfigResource(ConfigResource.Type.TOPIC, "none"), set, "retention.ms", "5");
        alter("topic without name", new ConfigResource(ConfigResource.Type.TOPIC, ""), set, "retention.ms", "5");
        alter("broker dynamic", broker, set, "log.cleaner.threads", "2");
        alter("broker dynamic again", broker, delete, "log.cleaner.threads", null);
        alter("broker read-only", broker, set, "broker.rack", "r");
        alter("broker node.id", broker, set, "node.id", "9");
        alter("broker unknown name", broker, set, "no.such", "r");
        alter("broker bad value", broker, set, "log.retention.ms", "r");
        alter("broker unknown", new ConfigResource(ConfigResource.Type.BROKER, "77"), set, "log.cleaner.threads", "2");
        alter("broker no number", new ConfigResource(ConfigResource.Type.BROKER, "x"), set, "log.cleaner.threads", "2");
        alter("brokers", brokers, set, "log.retention.ms", "987654321");
        alter("brokers delete", brokers, delete, "log.retention.ms", null);
        alter("brokers, of one only", brokers, set, "listeners", "PLAINTEXT://:1");
        alter("brokers rate", brokers, set, "leader.replication.throttled.rate", "1000");
        alter("brokers rate delete", brokers, delete, "leader.replication.throttled.rate", null);
        alter("group", group, set, "consumer.session.timeout.ms", "50000");
        alter("group share", group, set, "share.auto.offset.reset", "earliest");
        alter("group bad", group, set, "consumer.session.timeout.ms", "5");
        alter("group unknown", group, set, "no.such", "5");
        alter("group without name", new ConfigResource(ConfigResource.Type.GROUP, ""), set, "share.auto.offset.reset", "earliest");
        alter("metrics", metrics, set, "metrics", "org.apache.kafka.producer.", set, "interval.ms", "5000", set, "match", "client_id=x.*");
        alter("metrics bad interval", metrics, set, "interval.ms", "5");
        alter("metrics bad match", metrics, set, "match", "nobody=x");
        alter("metrics bad expression", metrics, set, "match", "client_id=[");
        alter("metrics unknown", metrics, set, "no.such", "5");
        alter("metrics without name", new ConfigResource(ConfigResource.Type.CLIENT_METRICS, ""), set, "interval.ms", "5000");
        alter("logger", logger, set, "kafka.no.such.logger", "DEBUG");
        alter("logger root", logger, set, "root", "LOUD");
        Shown.step("incrementalAlterConfigs only to see", () -> Shown.each(admin.incrementalAlterConfigs(
            Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "1"), set))), new AlterConfigsOptions().validateOnly(true)).values()));
        DescribeConfigsOptions plain = new DescribeConfigsOptions(), full = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        describe("topic", topic, plain);
        describe("topic with synonyms", topic, full);
        describe("topic that is not there", new ConfigResource(ConfigResource.Type.TOPIC, "none"), plain);
        describe("topic without name", new ConfigResource(ConfigResource.Type.TOPIC, ""), plain);
        describe("broker", broker, full);
        describe("brokers", brokers, plain);
        describe("broker unknown", new ConfigResource(ConfigResource.Type.BROKER, "77"), plain);
        describe("broker no number", new ConfigResource(ConfigResource.Type.BROKER, "x"), plain);
        describe("group", group, plain);
        describe("group without settings", new ConfigResource(ConfigResource.Type.GROUP, "other"), full);
        describe("metrics", metrics, plain);
        describe("metrics that are not there", new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "other"), plain);
        describe("logger unknown broker", new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "77"), plain);
        Shown.step("describeConfigs loggers", () -> !Shown.get(admin.describeConfigs(List.of(logger)).values().get(logger)).entries().isEmpty());
        for (ConfigResource.Type type : ConfigResource.Type.values()) {
            Shown.step("listConfigResources " + type, () -> Shown.get(admin.listConfigResources(Set.of(type), new ListConfigResourcesOptions()).all()).stream()
                .filter(each -> !each.name().startsWith("g-")).toList());
        }
        Shown.step("listConfigResources", () -> Shown.get(admin.listConfigResources(Set.of(), new ListConfigResourcesOptions()).all()).stream().filter(each -> !each.name().startsWith("g-")).toList());
        Shown.step("listClientMetricsResources", () -> Shown.get(admin.listClientMetricsResources().all()));
        alter("metrics delete", metrics, delete, "metrics", null, delete, "interval.ms", null, delete, "match", null);
        Shown.step("listClientMetricsResources after", () -> Shown.get(admin.listClientMetricsResources().all()));
    }

    private void scram(String step, UserScramCredentialAlteration... alterations) {
        Shown.step("alterUserScramCredentials " + step, () -> Shown.each(admin.alterUserScramCredentials(Arrays.asList(alterations)).values()));
    }

    private static UserScramCredentialUpsertion user(String name, ScramMechanism mechanism, int iterations) {
        return new UserScramCredentialUpsertion(name, new ScramCredentialInfo(mechanism, iterations), "secret".getBytes(StandardCharsets.UTF_8), "salt".getBytes(StandardCharsets.UTF_8));
    }

    void users() {
        scram("two", user("ann", ScramMechanism.SCRAM_SHA_256, 4096), user("ann", ScramMechanism.SCRAM_SHA_512, 8192), user("bob", ScramMechanism.SCRAM_SHA_256, 4096));
        scram("few iterations", user("ann", ScramMechanism.SCRAM_SHA_256, 4095));
        scram("many iterations", user("ann", ScramMechanism.SCRAM_SHA_256, 16385));
        scram("without name", user("", ScramMechanism.SCRAM_SHA_256, 4096));
        scram("twice", user("ann", ScramMechanism.SCRAM_SHA_256, 4096), user("ann", ScramMechanism.SCRAM_SHA_256, 4097));
        scram("unknown mechanism", user("ann", ScramMechanism.UNKNOWN, 4096));
        scram("delete what is not there", new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512));
        scram("delete nobody's", new UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_512));
        scram("good and bad", user("ann", ScramMechanism.SCRAM_SHA_256, 4096), new UserScramCredentialDeletion("eve", ScramMechanism.SCRAM_SHA_512));
        Shown.step("describeUserScramCredentials", () -> Shown.get(admin.describeUserScramCredentials().all()));
        Shown.step("describeUserScramCredentials ann", () -> Shown.get(admin.describeUserScramCredentials(List.of("ann")).description("ann")));
        Shown.step("describeUserScramCredentials eve", () -> Shown.get(admin.describeUserScramCredentials(List.of("eve")).description("eve")));
        scram("delete", new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256));
        Shown.step("describeUserScramCredentials users", () -> Shown.get(admin.describeUserScramCredentials().users()));
    }

    private void quota(String step, Map<String, String> entity, String key, Double value) {
        Shown.step("alterClientQuotas " + step, () -> Shown.each(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(entity),
            List.of(new ClientQuotaAlteration.Op(key, value)))), new AlterClientQuotasOptions()).values()));
    }

    void quotas() {
        Map<String, String> everybody = new java.util.HashMap<>();
        everybody.put("user", null);
        quota("user", Map.of("user", "ann"), "producer_byte_rate", 1000.0);
        quota("user and client", Map.of("user", "ann", "client-id", "c"), "consumer_byte_rate", 2000.0);
        quota("default user", everybody, "request_percentage", 50.5);
        quota("client", Map.of("client-id", "c"), "controller_mutation_rate", 5.0);
        quota("address", Map.of("ip", "10.0.0.1"), "connection_creation_rate", 5.0);
        quota("address, bad rate", Map.of("ip", "10.0.0.1"), "producer_byte_rate", 5.0);
        quota("bad address", Map.of("ip", "no address"), "connection_creation_rate", 5.0);
        quota("user, rate of addresses", Map.of("user", "ann"), "connection_creation_rate", 5.0);
        quota("address and user", Map.of("ip", "10.0.0.1", "user", "ann"), "connection_creation_rate", 5.0);
        quota("unknown key", Map.of("user", "ann"), "no_such_rate", 5.0);
        quota("unknown type", Map.of("planet", "ann"), "producer_byte_rate", 5.0);
        quota("negative", Map.of("user", "ann"), "producer_byte_rate", -1.0);
        quota("zero", Map.of("user", "ann"), "producer_byte_rate", 0.0);
        quota("fraction", Map.of("user", "ann"), "producer_byte_rate", 1.5);
        quota("too much", Map.of("user", "ann"), "producer_byte_rate", 1e300);
        quota("percentage fraction", Map.of("user", "bob"), "request_percentage", 0.5);
        quota("nobody", Map.of(), "producer_byte_rate", 5.0);
        quota("empty name", Map.of("user", ""), "producer_byte_rate", 5.0);
        quota("delete what is not there", Map.of("user", "eve"), "producer_byte_rate", null);
        for (Map.Entry<String, ClientQuotaFilter> each : Map.of("all", ClientQuotaFilter.all(),
            "users", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("user"))),
            "only users", ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntityType("user"))),
            "ann", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "ann"))),
            "default", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofDefaultEntity("user"))),
            "address", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("ip"))),
            "address and user", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("ip"), ClientQuotaFilterComponent.ofEntityType("user"))),
            "unknown", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("planet"))),
            "twice", ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("user"), ClientQuotaFilterComponent.ofEntity("user", "ann")))
        ).entrySet().stream().sorted(Map.Entry.comparingByKey()).toList()) {
            Shown.step("describeClientQuotas " + each.getKey(), () -> Shown.get(admin.describeClientQuotas(each.getValue()).entities()));
        }
        quota("delete", Map.of("user", "ann"), "producer_byte_rate", null);
        Shown.step("describeClientQuotas ann after", () -> Shown.get(admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity("user", "ann")))).entities()));
    }

    private void acl(ResourceType type, String name, PatternType pattern, String principal, String host, AclOperation operation, AclPermissionType permission) {
        AclBinding binding = new AclBinding(new ResourcePattern(type, name, pattern), new AccessControlEntry(principal, host, operation, permission));
        Shown.step("createAcls " + type + " " + name + " " + pattern + " " + principal + " " + host + " " + operation, () -> Shown.each(admin.createAcls(List.of(binding)).values()));
    }

    void acls() {
        acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "pre", PatternType.PREFIXED, "User:*", "10.0.0.1", AclOperation.WRITE, AclPermissionType.DENY);
        acl(ResourceType.GROUP, "*", PatternType.LITERAL, "User:bob", "*", AclOperation.ALL, AclPermissionType.ALLOW);
        acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:bob", "*", AclOperation.CREATE, AclPermissionType.ALLOW);
        acl(ResourceType.CLUSTER, "other", PatternType.LITERAL, "User:bob", "*", AclOperation.CREATE, AclPermissionType.ALLOW);
        acl(ResourceType.TRANSACTIONAL_ID, "t", PatternType.LITERAL, "User:bob", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW);
        acl(ResourceType.DELEGATION_TOKEN, "t", PatternType.LITERAL, "User:bob", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW);
        acl(ResourceType.USER, "User:u", PatternType.LITERAL, "User:bob", "*", AclOperation.CREATE_TOKENS, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "ann", "*", AclOperation.READ, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:ann", "", AclOperation.READ, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "", "*", AclOperation.READ, AclPermissionType.ALLOW);
        acl(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:ann", "*", AclOperation.CREATE_TOKENS, AclPermissionType.ALLOW);
        acl(ResourceType.GROUP, "a", PatternType.LITERAL, "User:ann", "*", AclOperation.WRITE, AclPermissionType.ALLOW);
        Map<String, AclBindingFilter> filters = Map.of("all", AclBindingFilter.ANY,
            "of a", new AclBindingFilter(new ResourcePatternFilter(ResourceType.TOPIC, "a", PatternType.LITERAL), AccessControlEntryFilter.ANY),
            "match", new AclBindingFilter(new ResourcePatternFilter(ResourceType.TOPIC, "prefix", PatternType.MATCH), AccessControlEntryFilter.ANY),
            "any pattern", new AclBindingFilter(new ResourcePatternFilter(ResourceType.GROUP, "g", PatternType.ANY), AccessControlEntryFilter.ANY),
            "of bob", new AclBindingFilter(ResourcePatternFilter.ANY, new AccessControlEntryFilter("User:bob", null, AclOperation.ANY, AclPermissionType.ANY)));
        filters.entrySet().stream().sorted(Map.Entry.comparingByKey()).forEach(each ->
            Shown.step("describeAcls " + each.getKey(), () -> Shown.get(admin.describeAcls(each.getValue()).values())));
        for (String name : List.of("of a", "match", "of bob", "of bob", "all")) {
            Shown.step("deleteAcls " + name, () -> Shown.each(admin.deleteAcls(List.of(filters.get(name))).values(), result ->
                result.values().stream().map(each -> Shown.text(each.binding()) + " " + each.exception()).toList()));
        }
    }

    void tokens() {
        Shown.step("createDelegationToken", () -> Shown.get(admin.createDelegationToken(new CreateDelegationTokenOptions().renewers(List.of(new KafkaPrincipal("User", "x")))).delegationToken()));
        Shown.step("describeDelegationToken", () -> Shown.get(admin.describeDelegationToken().delegationTokens()));
        Shown.step("renewDelegationToken", () -> Shown.get(admin.renewDelegationToken("x".getBytes(StandardCharsets.UTF_8)).expiryTimestamp()));
        Shown.step("expireDelegationToken", () -> Shown.get(admin.expireDelegationToken("x".getBytes(StandardCharsets.UTF_8)).expiryTimestamp()));
    }
}
