"""Each verb of Apache Kafka's command line tools, in one fixed order, and what it prints if it works.

A verb that is refused here names the reason. `page` is docs/kafka-tools.md.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TOOLS = "org.apache.kafka.tools"
#: Name of the command -> its class.
CLASSES = {
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-configs": f"{_TOOLS}.ConfigCommand",
    "kafka-acls": f"{_TOOLS}.AclCommand",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": f"{_TOOLS}.streams.StreamsGroupCommand",
    "kafka-groups": f"{_TOOLS}.GroupsCommand",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "kafka-delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "kafka-consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "kafka-share-consumer-perf-test": f"{_TOOLS}.ShareConsumerPerformance",
    "kafka-verifiable-producer": f"{_TOOLS}.VerifiableProducer",
    "kafka-verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "kafka-verifiable-share-consumer": f"{_TOOLS}.VerifiableShareConsumer",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-share-consumer": f"{_TOOLS}.consumer.ConsoleShareConsumer",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "kafka-streams-application-reset": f"{_TOOLS}.StreamsResetter",
    "kafka-replica-verification": f"{_TOOLS}.ReplicaVerificationTool",
    "TransactionalMessageCopier": f"{_TOOLS}.TransactionalMessageCopier",
    "ShortStreams": "ShortStreams",
}
_KRAFT = "KRaft; the metadata is in ZooKeeper"
_LOGGERS = "loggers are Python's, and no resource"


class Verb(NamedTuple):
    """One call of a tool.

    Attributes:
        arguments: one text; `{b}` is the address.
        expects: a regular expression that the output must have.
        code: the exit code; None: 0 or 1, as something may be over before the tool asks for it.
        why: why it is refused here.
        alone: the address is not put in front.
        seconds: the most time that it has; negative: it works in threads of its own, and is given this time.
    """

    tool: str
    arguments: str
    expects: str = ""
    code: int | None = 0
    why: str = ""
    stdin: str = ""
    alone: bool = False
    seconds: int = 90


def _topics() -> list[Verb]:
    tool = "kafka-topics"
    return [
        Verb(
            tool, "--create --topic t --partitions 3 --replication-factor 3 --config retention.ms=-1", "Created topic t"
        ),
        Verb(tool, "--create --topic t --if-not-exists --partitions 3"),
        Verb(tool, "--create --topic t --partitions 3", "already exists", 1),
        Verb(tool, "--create --topic placed --replica-assignment 1:2,2:3", "Created topic placed"),
        Verb(tool, "--create --topic copy --partitions 3 --replication-factor 2", "Created topic copy"),
        Verb(tool, "--list", r"(?m)^t$"),
        Verb(tool, "--list --exclude-internal", r"(?m)^placed$"),
        Verb(tool, "--describe --topic t", r"PartitionCount: 3\s+ReplicationFactor: 3"),
        Verb(tool, "--describe --topics-with-overrides", r"Topic: t\s.*retention\.ms=-1"),
        Verb(tool, "--describe --under-replicated-partitions"),
        Verb(tool, "--describe --under-min-isr-partitions"),
        Verb(tool, "--describe --at-min-isr-partitions"),
        Verb(tool, "--describe --unavailable-partitions"),
        Verb(tool, "--describe --partition-size-limit-per-response 1", r"Topic: t\s"),
        Verb(tool, "--alter --topic copy --partitions 4"),
        Verb(tool, "--delete --topic placed"),
        Verb(tool, "--delete --topic no-such-topic --if-exists"),
        Verb(tool, "--delete --topic no-such-topic", "does not exist", 1),
    ]


def _clients() -> list[Verb]:
    produced = "".join(f"key {n}:{n}\n" for n in range(12))  # some in each partition
    return [
        Verb(
            "kafka-console-producer", "--topic t --reader-property parse.key=true --reader-property key.separator=:",
            stdin=produced,
        ),
        Verb("kafka-console-producer", "--topic t --compression-codec lz4 --sync", stdin="4\n5\n"),
        Verb("kafka-console-consumer", "--topic t --from-beginning --max-messages 5", "Processed a total of 5 messages"),
        Verb("kafka-console-consumer", "--topic t --partition 0 --offset earliest --timeout-ms 4000", "Processed a total of"),
        Verb("kafka-console-consumer", "--include t|copy --from-beginning --max-messages 5 --group by-pattern --isolation-level read_committed", "of 5 messages"),
        Verb("kafka-console-consumer", "--topic t --from-beginning --max-messages 5 --group modern --command-property group.protocol=consumer", "of 5 messages"),
        Verb("kafka-producer-perf-test", "--topic copy --num-records 2000 --record-size 100 --throughput -1", "2000 records sent"),
        Verb("kafka-producer-perf-test", "--topic copy --num-records 200 --record-size 100 --throughput -1 --transaction-duration-ms 100", "200 records sent"),
        Verb("kafka-consumer-perf-test", "--topic copy --num-records 2000 --timeout 30000", r"start\.time"),
        Verb("kafka-verifiable-producer", "--topic t --max-messages 20", r'"acked":20|"value":"19"', seconds=-8),
        Verb("kafka-verifiable-consumer", "--topic t --group-id verifiable --max-messages 20 --reset-policy earliest", "records_consumed"),
        Verb("kafka-verifiable-consumer", "--topic t --group-id verifiable-modern --max-messages 20 --reset-policy earliest --group-protocol consumer", "records_consumed"),
        Verb("kafka-e2e-latency", "--topic copy --num-records 100 --producer-acks 1 --record-size 100", "Percentiles"),
        Verb("kafka-e2e-latency", "{b} copy 100 all 100", "Percentiles", alone=True),
        Verb("TransactionalMessageCopier", "--broker-list {b} --input-topic t --input-partition 0 --output-topic copy --transactional-id copier --consumer-group copied --max-messages 1 --transaction-size 1 --group-mode", '"consumed":1', alone=True),
    ]  # fmt: skip


def _shares() -> list[Verb]:
    groups, consumer = "kafka-share-groups", "kafka-console-share-consumer"
    return [
        Verb("kafka-configs", "--alter --group shared --add-config share.auto.offset.reset=earliest", "Completed updating"),
        Verb(consumer, "--topic t --group shared --max-messages 2 --timeout-ms 30000"),
        Verb(consumer, "--topic t --group shared --max-messages 1 --release --timeout-ms 30000"),
        Verb(consumer, "--topic t --group shared --max-messages 1 --reject --timeout-ms 30000"),
        Verb("kafka-share-consumer-perf-test", "--topic copy --group perf --num-records 100 --timeout 8000", r"start\.time"),
        Verb("kafka-verifiable-share-consumer", "--topic t --group-id verified --max-messages 5 --offset-reset-strategy earliest --acknowledgement-mode sync", "records_consumed"),
        Verb(groups, "--list", r"(?m)^shared\s*$"),
        Verb(groups, "--list --state", r"shared\s+Empty"),
        Verb(groups, "--describe --group shared", r"shared\s+t\s"),
        Verb(groups, "--describe --group shared --verbose", r"shared\s+t\s"),
        Verb(groups, "--describe --group shared --state", r"shared\s"),
        Verb(groups, "--describe --group shared --members"),
        Verb(groups, "--describe --all-groups", r"shared\s+t\s"),
        Verb(groups, "--reset-offsets --group shared --topic t --to-earliest --dry-run", r"shared\s+t\s"),
        Verb(groups, "--reset-offsets --group shared --all-topics --to-latest --execute", r"shared\s+t\s"),
        Verb(groups, "--reset-offsets --group shared --topic t --to-datetime 2020-01-01T00:00:00.000 --execute", r"shared\s+t\s"),
        Verb(groups, "--delete-offsets --group shared --topic t", r"t\s+Successful|successful"),
        Verb(groups, "--delete --group shared", "successful"),
    ]  # fmt: skip


def _groups(directory: Path) -> list[Verb]:
    tool = "kafka-consumer-groups"
    verbs = [
        Verb(tool, "--list", r"(?m)^by-pattern\s*$"),
        Verb(tool, "--list --state", r"by-pattern\s+Empty"),
        Verb(tool, "--list --state Empty --type consumer", r"modern\s+Consumer\s+Empty"),
        Verb(tool, "--list --type", r"modern\s+Consumer"),
        Verb(tool, "--describe --group by-pattern", r"by-pattern\s+t\s"),
        Verb(tool, "--describe --group modern --verbose", r"modern\s+t\s"),
        Verb(tool, "--describe --group modern --members --verbose", "has no active members"),
        Verb(tool, "--describe --group modern --state --verbose", r"modern\s.*Empty"),
        Verb(tool, "--describe --all-groups", r"modern\s+t\s"),
        Verb(tool, "--validate-regex t.*", "valid"),
    ]
    resets = [
        "--to-earliest", "--to-latest", "--to-current", "--to-offset 1", "--shift-by -1", "--by-duration PT1H",
        "--to-datetime 2020-01-01T00:00:00.000",
    ]  # fmt: skip
    verbs += [
        Verb(tool, f"--reset-offsets --group by-pattern --topic t {how} --execute", r"by-pattern\s+t\s")
        for how in resets
    ]
    (directory / "offsets.csv").write_text("t,0,0\n")
    verbs += [
        Verb(tool, "--reset-offsets --group modern --all-topics --to-earliest --dry-run", r"modern\s+t\s"),
        Verb(tool, "--reset-offsets --group modern --all-topics --to-current --export --dry-run", "t"),
        Verb(tool, f"--reset-offsets --group modern --from-file {directory}/offsets.csv --execute", r"modern\s+t\s"),
        Verb(tool, "--delete-offsets --group modern --topic t", "Successful"),
        Verb(tool, "--delete --group by-pattern", "was successful"),
        Verb(tool, "--delete --group no-such-group", "not found|GroupIdNotFound|failed", 0),
    ]
    tool = "kafka-groups"
    verbs += [Verb(tool, "--list", r"modern\s+Consumer")]
    verbs += [
        Verb(tool, f"--list {which}", r"PROTOCOL|No groups")
        for which in (
            "--consumer", "--share", "--streams", "--group-type classic", "--group-type consumer", "--protocol consumer",
        )
    ]  # fmt: skip
    return verbs


def _streams() -> list[Verb]:
    tool = "kafka-streams-groups"
    return [
        Verb("ShortStreams", "{b} t copy app 34", "(?m)^copied", alone=True, seconds=150),
        Verb(tool, "--list", r"(?m)^app\s*$"),
        Verb(tool, "--list --state", r"app\s+(Empty|NotReady)"),
        Verb(tool, "--describe --group app"),
        Verb(tool, "--describe --group app --offsets --verbose"),
        Verb(tool, "--describe --group app --state --verbose", r"app\s"),
        Verb(tool, "--describe --group app --members --verbose", ""),
        Verb(tool, "--describe --all-groups"),
        Verb(tool, "--reset-offsets --group app --input-topic t --to-earliest --dry-run", r"app\s+t\s"),
        Verb(tool, "--reset-offsets --group app --all-input-topics --to-latest --execute", r"app\s+t\s"),
        Verb(tool, "--reset-offsets --group app --input-topic t --shift-by -1 --execute", r"app\s+t\s"),
        Verb(tool, "--delete-offsets --group app --input-topic t", r"t\s"),
        Verb("kafka-streams-application-reset", "--application-id app --input-topics t --to-earliest --dry-run", "Following input topics offsets"),
        Verb("kafka-streams-application-reset", "--application-id app --input-topics t --force", "Done"),
        Verb(tool, "--delete --group app", "successful"),
    ]  # fmt: skip


def _configs(directory: Path) -> list[Verb]:
    tool, done = "kafka-configs", "Completed updating"
    (directory / "topic.properties").write_text("segment.ms=3600000\n")
    verbs = [
        Verb(tool, "--alter --topic t --add-config max.message.bytes=200000", done),
        Verb(tool, f"--alter --topic t --add-config-file {directory}/topic.properties", done),
        Verb(tool, "--describe --topic t", r"max\.message\.bytes=200000"),
        Verb(tool, "--describe --topic t --all", r"cleanup\.policy=delete"),
        Verb(tool, "--alter --topic t --delete-config segment.ms", done),
        Verb(tool, "--alter --topic t --add-config cleanup.policy=[compact,delete]", done),
        Verb(tool, "--alter --topic t --delete-config cleanup.policy", done),
        Verb(tool, "--alter --topic t --add-config no.such.setting=1", "InvalidConfig|Unknown topic config|no such", 1),
        Verb(tool, "--alter --broker 1 --add-config log.cleaner.backoff.ms=20000", done),
        Verb(tool, "--describe --broker 1", r"log\.cleaner\.backoff\.ms=20000"),
        Verb(tool, "--describe --broker 1 --all", r"num\.io\.threads="),
        Verb(tool, "--alter --broker 1 --delete-config log.cleaner.backoff.ms", done),
        Verb(tool, "--alter --broker-defaults --add-config message.max.bytes=2000000", done),
        Verb(tool, "--describe --broker-defaults", r"message\.max\.bytes=2000000"),
        Verb(tool, "--alter --broker-defaults --delete-config message.max.bytes", done),
        Verb(tool, "--describe --broker-logger 1", "InvalidRequestException", 1, why=_LOGGERS),
        Verb(
            tool,
            "--alter --broker-logger 1 --add-config kafka.server.ReplicaManager=DEBUG",
            "InvalidRequestException",
            1,
            why=_LOGGERS,
        ),
        Verb(tool, "--alter --group modern --add-config consumer.session.timeout.ms=50000", done),
        Verb(tool, "--describe --group modern", r"consumer\.session\.timeout\.ms=50000"),
        Verb(tool, "--alter --group modern --delete-config consumer.session.timeout.ms", done),
        Verb(
            tool,
            "--alter --client-metrics cm --add-config interval.ms=10000,metrics=[org.apache.kafka.consumer.]",
            done,
        ),
        Verb(tool, "--describe --client-metrics cm", r"interval\.ms=10000"),
        Verb(tool, "--alter --client-metrics cm --delete-config interval.ms,metrics", done),
        Verb(tool, "--alter --user alice --add-config SCRAM-SHA-512=[iterations=4096,password=hush-hush-1]", done),
        Verb(tool, "--describe --user alice", "SCRAM-SHA-512=iterations=4096"),
        Verb(tool, "--alter --user alice --delete-config SCRAM-SHA-512", done),
    ]
    quota = "--add-config producer_byte_rate=1000000"
    for whom in ("--user alice", "--client c", "--user alice --client c", "--user-defaults", "--client-defaults"):
        verbs += [
            Verb(tool, f"--alter {whom} {quota}", done),
            Verb(tool, f"--describe {whom}", r"producer_byte_rate=1000000"),
            Verb(tool, f"--alter {whom} --delete-config producer_byte_rate", done),
        ]
    for whom in ("--ip 192.0.2.1", "--ip-defaults"):
        verbs += [
            Verb(tool, f"--alter {whom} --add-config connection_creation_rate=1000", done),
            Verb(tool, f"--describe {whom}", r"connection_creation_rate=1000"),
            Verb(tool, f"--alter {whom} --delete-config connection_creation_rate", done),
        ]
    tool = "kafka-client-metrics"
    return [
        *verbs,
        Verb(tool, "--alter --name s --metrics org.apache.kafka.producer. --interval 30000 --match client_id=c.*", "s"),
        Verb(tool, "--alter --generate-name --metrics org.apache.kafka.consumer.", ""),
        Verb(tool, "--list", r"(?m)^s$"),
        Verb(tool, "--describe --name s", r"interval\.ms=30000"),
        Verb(tool, "--describe", r"interval\.ms=30000"),
        Verb(tool, "--delete --name s", ""),
    ]


def _acls() -> list[Verb]:
    tool, alice = "kafka-acls", "--allow-principal User:alice"
    added = "Adding ACLs for resource|Current ACLs"
    return [
        Verb(tool, f"--add {alice} --operation Read --operation Describe --topic t", added),
        Verb(tool, f"--add {alice} --producer --topic t --transactional-id x --idempotent", added),
        Verb(tool, f"--add {alice} --consumer --topic a- --group a- --resource-pattern-type prefixed", added),
        Verb(tool, "--add --deny-principal User:bob --deny-host 192.0.2.1 --operation All --cluster", added),
        Verb(tool, f"--add {alice} --operation Describe --delegation-token token", added),
        Verb(tool, f"--add {alice} --operation CreateTokens --user-principal User:bob", added),
        Verb(tool, "--list", "User:alice"),
        Verb(tool, "--list --topic t", "operation=READ"),
        Verb(tool, "--list --principal User:bob", "DENY"),
        Verb(tool, "--list --topic a-1 --resource-pattern-type match", "PREFIXED"),
        Verb(tool, f"--remove {alice} --operation Read --topic t --force"),
        Verb(tool, "--remove --topic t --force"),
        Verb(tool, "--remove --cluster --force"),
    ]


def _cluster(directory: Path) -> list[Verb]:
    (directory / "move.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "copy"}]}))
    plan = {"version": 1, "partitions": [{"topic": "copy", "partition": n, "replicas": [3, 1]} for n in range(4)]}
    back = {"version": 1, "partitions": [{"topic": "copy", "partition": n, "replicas": [1, 2]} for n in range(4)]}
    (directory / "plan.json").write_text(json.dumps(plan))
    (directory / "back.json").write_text(json.dumps(back))
    (directory / "elect.json").write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0}]}))
    (directory / "delete.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 1}]})
    )
    moves, quorum, features = "kafka-reassign-partitions", "kafka-metadata-quorum", "kafka-features"
    elect, offsets = "kafka-leader-election", "kafka-get-offsets"
    return [
        Verb(moves, f"--generate --topics-to-move-json-file {directory}/move.json --broker-list 1,2,3", "Proposed partition reassignment"),
        Verb(moves, f"--generate --topics-to-move-json-file {directory}/move.json --broker-list 1,2,3 --disable-rack-aware", "Proposed"),
        Verb(moves, f"--execute --reassignment-json-file {directory}/plan.json --throttle 50000000", "Successfully started partition reassignment"),
        Verb(moves, "--list", "reassignment"),
        Verb(moves, f"--verify --reassignment-json-file {directory}/plan.json --preserve-throttles", "(?i)complete|in progress"),
        Verb(moves, f"--verify --reassignment-json-file {directory}/plan.json", "(?i)complete|in progress"),
        Verb(moves, f"--execute --additional --reassignment-json-file {directory}/back.json", "Successfully started"),
        Verb(moves, f"--cancel --reassignment-json-file {directory}/back.json", "cancel|None of the specified|is not being reassigned", code=None),
        Verb(moves, f"--execute --disallow-replication-factor-change --additional --reassignment-json-file {directory}/plan.json", "Successfully started"),
        Verb(elect, "--election-type PREFERRED --topic t --partition 0", ""),
        Verb(elect, "--election-type PREFERRED --all-topic-partitions", ""),
        Verb(elect, f"--election-type PREFERRED --path-to-json-file {directory}/elect.json", ""),
        Verb(elect, "--election-type UNCLEAN --topic t --partition 0", ""),
        Verb("kafka-log-dirs", "--describe", '"logDirs"'),
        Verb("kafka-log-dirs", "--describe --topic-list t --broker-list 1", '"partition":"t-0"'),
        Verb("kafka-delete-records", f"--offset-json-file {directory}/delete.json", r"partition: t-0\s+low_watermark: 1"),
        Verb(offsets, "", r"t:0:\d"),
        *(Verb(offsets, f"--topic t --time {time}", r"(?m)^t:0:\d*") for time in ("-1", "-2", "-3", "-4", "0", "latest", "earliest", "max-timestamp")),
        Verb(offsets, "--topic t --time -5"),  # of tiered storage: nothing, as with Kafka
        Verb(offsets, "--topic-partitions t:0-2 --exclude-internal-topics", r"t:1:\d"),
        Verb("kafka-broker-api-versions", "", r"Produce\(0\): 0 to 13"),
        Verb("kafka-cluster", "cluster-id --bootstrap-server {b}", r"Cluster ID: \S{22}", alone=True),
        Verb("kafka-cluster", "list-endpoints --bootstrap-server {b}", r"(?m)^3\s", alone=True),
        Verb("kafka-cluster", "list-endpoints --bootstrap-server {b} --include-fenced-brokers", r"(?m)^3\s", alone=True),
        Verb("kafka-cluster", "unregister --bootstrap-server {b} --id 77", "(?i)not (currently )?registered|no longer|unregistered|BrokerIdNotRegistered|does not exist", 1, alone=True),
        Verb(features, "describe", r"group\.version"),
        Verb(features, "downgrade --feature share.version=1", "(?i)downgraded to 1"),
        Verb(features, "upgrade --feature share.version=2 --dry-run", "(?i)can be upgraded"),
        Verb(features, "upgrade --feature share.version=2", "(?i)upgraded to 2"),
        Verb(features, "disable --feature streams.version", "(?i)was disabled"),
        Verb(features, "upgrade --feature streams.version=1", "(?i)upgraded to 1"),
        Verb(features, "upgrade --feature group.version=99", "", 1),
        Verb(features, "upgrade --metadata 4.3-IV0", "", 1, why=_KRAFT),
        Verb(features, "upgrade --release-version 4.3-IV0", "", 1, why=_KRAFT),
        Verb(features, "version-mapping", "group.version=1"),
        Verb(features, "feature-dependencies --feature group.version=1", ""),
        Verb(quorum, "describe --status", "UnsupportedVersionException", 1, why=_KRAFT),
        Verb(quorum, "describe --replication", "UnsupportedVersionException", 1, why=_KRAFT),
        Verb(quorum, "remove-controller --controller-id 3 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAA", "UnsupportedVersionException", 1, why=_KRAFT),
        Verb("kafka-delegation-tokens", f"--command-config {directory}/empty.properties --describe", "DelegationTokenDisabled|DELEGATION_TOKEN|delegation token", 1),
    ]  # fmt: skip


def _transactions() -> Iterator[Verb]:
    tool = "kafka-transactions"
    yield Verb(tool, "list", r"copier\s")
    yield Verb(tool, "list --duration-filter 1000000", "TransactionalId")
    yield Verb(tool, "list --transactional-id-pattern cop.*", r"copier\s")
    yield Verb(tool, "describe --transactional-id copier", r"copier\s")
    yield Verb(tool, "describe-producers --topic copy --partition 0", "ProducerId")
    yield Verb(tool, "find-hanging --broker-id 1", "Topic|")
    yield Verb(tool, "find-hanging --topic copy --partition 0", "Topic|")
    yield Verb(tool, "forceTerminateTransaction --transactionalId copier", "")
    yield Verb(tool, "abort --topic copy --partition 0 --start-offset 0", "Could not find any open transactions", 1)


def verbs(directory: Path) -> Iterator[Verb]:
    """All verbs, in their order. `directory`: for files that they read."""
    (directory / "empty.properties").write_text("")
    yield from _topics()
    yield from _clients()
    yield from _shares()
    yield from _groups(directory)
    yield from _streams()
    yield from _configs(directory)
    yield from _acls()
    yield from _transactions()
    yield from _cluster(directory)
    yield Verb(
        "kafka-replica-verification",
        "--broker-list {b} --topics-include t --report-interval-ms 500",
        r"max lag is 0",
        alone=True,
        seconds=-5,
    )


_PAGE = """# Kafka's own tools

Written by `python -m tests.interop.kafka_tools`; do not edit. `tests/interop/test_kafka_tools.py` (`make interop`) runs all of it against three nodes.

Each verb of the command line tools of Apache Kafka 4.4.0. The same list was run
against its brokers: exit codes and results are the same, but for what the last column refuses. Addresses
(`--bootstrap-server`) are left out. `kafka-delegation-tokens` needs a login: `tests/interop/test_delegation_tokens.py` creates, describes, renews and expires tokens with
it. `kafka-streams-groups` describes running groups in `tests/interop/test_streams_groups.py`. Not in the list: `kafka-jmx` (no JVM), `kafka-storage` and
`kafka-metadata-shell` (KRaft's files), `connect-*` (clients; `tests/interop/test_connect.py`). `kafka-dump-log` reads our logs (`tests/interop/test_apache_kafka.py`).

| tool | verbs that work (or fail as with Kafka) | refused here, and why |
|---|---|---|
"""


def page() -> str:
    """docs/kafka-tools.md."""
    with tempfile.TemporaryDirectory() as name:
        rows: dict[str, tuple[list[str], list[str]]] = {}
        for verb in verbs(Path(name)):
            if verb.tool == "ShortStreams":
                continue
            words = verb.arguments.replace(f"{name}/", "").replace("--bootstrap-server {b}", "")
            words = words.replace("--command-config empty.properties ", "").replace("{b}", "HOST:PORT")
            text = " ".join(words.split()).replace("|", "\\|")
            works, refused = rows.setdefault(verb.tool, ([], []))
            if verb.why:
                refused.append(f"`{text}`: {verb.why}")
            else:
                works.append(f"`{text}`" if text else "without arguments")
    lines = (f"| {tool} | {'; '.join(works)} | {'; '.join(refused)} |" for tool, (works, refused) in rows.items())
    return _PAGE + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
