"""`make docs`: writes what comes from code: pages under docs/, and the types of the wire classes. A test compares them with what
is committed.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

from kafkalite.extension import MAX_BODY_BYTES, MAX_ELEMENTS
from kafkalite.extension import messages as extension_messages
from kafkalite.extension.apis import APIS
from kafkalite.kafka.apis import OFFERED, is_served
from kafkalite.protocol.schema import schemas
from kafkalite.rpc import messages
from kafkalite.rpc.messages.base import Message, by_kind, response_kind
from kafkalite.security.requirements import Row
from kafkalite_cli.docs.commands import commands_page
from kafkalite_cli.docs.configuration import configuration_page
from kafkalite_cli.docs.man import man_names, man_page
from kafkalite_cli.docs.metrics import grafana_dashboard, metrics_page
from kafkalite_cli.docs.settings import not_here
from kafkalite_cli.docs.suites import SUITES, SUITES_INTRODUCTION
from kafkalite_cli.docs.troubleshooting import troubleshooting_page
from kafkalite_cli.docs.wire import wire_stub

ROOT = Path(__file__).resolve().parents[3]


def _type_text(hint: Any) -> str:
    if isinstance(hint, NewType):
        return str(hint.__name__)
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join("nil" if arg is type(None) else _type_text(arg) for arg in args)
    if get_origin(hint) is dict:
        return f"map of {_type_text(args[0])} to {_type_text(args[1])}"
    if args[1:] == (Ellipsis,):
        return f"[{_type_text(args[0])}]"
    if get_origin(hint) is tuple:
        return f"({', '.join(_type_text(arg) for arg in args)})"
    return str(hint.__name__)


def _fields(cls: type) -> list[str]:
    specs = dataclasses.fields(cls)
    if not specs:
        return ["No fields.", ""]
    hints = get_type_hints(cls)
    lines = ["| field | type | default |", "|---|---|---|"]
    for spec in specs:
        default = "" if spec.default is dataclasses.MISSING else f"`{spec.default!r}`"
        lines.append(f"| {spec.name} | {_type_text(hints[spec.name])} | {default} |")
    return [*lines, ""]


def _says(cls: type) -> list[str]:
    text = cls.__dict__.get("__doc__") or ""
    # A dataclass without a docstring of its own gets its signature as one.
    return [] if text.startswith(f"{cls.__name__}(") else [inspect.cleandoc(text), ""]


def _structures(room: ModuleType) -> list[type]:
    areas = [getattr(room, area) for area in room.AREAS]
    found = {
        name: cls
        for area in areas
        for name, cls in vars(area).items()
        if isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == area.__name__
    }
    return [cls for _, cls in sorted(found.items()) if not issubclass(cls, Message)]


def rpc_api() -> str:
    """The table of RPC messages."""
    lines = [
        "# RPC messages",
        "",
        "Written by `make docs` from kafkalite/rpc/messages/ and kafkalite/extension/messages/; do not edit.",
        "",
        (
            "Nodes send each other these requests. The listener refuses the hello of a peer that is not a node. "
            "Clients use the Kafka listener ([kafka-protocol.md](kafka-protocol.md), "
            "[extension-api.md](extension-api.md))."
        ),
        "",
        (
            f"Protocol version {messages.PROTOCOL_VERSION}, oldest spoken {messages.MIN_PROTOCOL_VERSION}. A frame is "
            "`u32 length | u32 header length | header | body`; the header is the msgpack array `[kind, correlation id, "
            "[fields in order]]`, the body raw record batches. A request has an even kind, its response the next one; "
            "ErrorResponse (1) may answer any. Fields are only ever appended, with a default: missing ones take it, "
            "unknown ones are ignored."
        ),
        "",
        "| kind | request | response |",
        "|---|---|---|",
    ]
    requests = [cls for kind, cls in sorted(by_kind.items()) if kind % 2 == 0]
    for cls in requests:
        answer = by_kind.get(response_kind(cls))
        response = "none: one way" if answer is None else f"[{answer.__name__}](#{answer.__name__.lower()})"
        lines.append(f"| {cls.kind} | [{cls.__name__}](#{cls.__name__.lower()}) | {response} |")
    lines.append("")
    for _, cls in sorted(by_kind.items()):
        lines += [f"## {cls.__name__}", "", f"Kind {cls.kind}.", "", *_says(cls), *_fields(cls)]
    lines += ["# Structures inside messages", ""]
    structures = {cls.__name__: cls for room in (messages, extension_messages) for cls in _structures(room)}
    for name, structure in sorted(structures.items()):
        lines += [f"## {name}", "", *_says(structure), *_fields(structure)]
    return "\n".join(lines).rstrip() + "\n"


def _needs_text(needs: Row) -> str:
    if not needs:
        return "nothing"
    return "; ".join(
        f"{need.operation.name} on {need.resource_type.name}"
        + (f", or {need.or_cluster.name} on CLUSTER" if need.or_cluster is not None else "")
        + f" ({need.scope.value})"
        for need in needs
    )


def extension_api() -> str:
    """The kinds of the extension API, and their messages."""
    key = schemas()["ExtensionRequest"].api_key
    lines = [
        "# The extension API",
        "",
        "Written by `make docs` from kafkalite/extension/; do not edit.",
        "",
        (
            f"Requests for which Kafka has no API, or a poorer one, are requests of API {key}, `Extension`, on the Kafka "
            "listener. It is advertised in ApiVersions; clients that do not know it ignore it. Version 0 is flexible: the "
            "request is `kind` (a compact string) and `body` (compact bytes); the response is `throttle_time_ms` (int32), "
            "`error_code` (int16), `error_message` (a nullable compact string) and `body` (nullable compact bytes). `kind` "
            "is the name of a request below. A body is the msgpack array of the message's fields in their order. Fields "
            "are only ever appended, with a default: missing ones take it, unknown ones are ignored."
        ),
        "",
        (
            f"A body has at most {MAX_BODY_BYTES // 2**20} MiB, and {MAX_ELEMENTS:,} elements in all its arrays and maps unless the "
            "request needs a right on the cluster. A body that is no such message is answered with "
            "INVALID_REQUEST, an unknown kind with UNSUPPORTED_VERSION, both with a text. Quotas of requests hold as for "
            "any other API."
        ),
        "",
        "| kind | response | asked of | needs |",
        "|---|---|---|---|",
    ]
    for _, api in sorted(APIS.items()):
        names = [f"[{cls.__name__}](#{cls.__name__.lower()})" for cls in (api.request, api.response)]
        lines.append(f"| {names[0]} | {names[1]} | {api.node.value} | {_needs_text(api.needs)} |")
    lines.append("")
    for _, api in sorted(APIS.items()):
        for cls in (api.request, api.response):
            lines += [f"## {cls.__name__}", "", *_says(cls), *_fields(cls)]
    lines += ["# Structures inside messages", ""]
    for structure in _structures(extension_messages):
        lines += [f"## {structure.__name__}", "", *_says(structure), *_fields(structure)]
    return "\n".join(lines).rstrip() + "\n"


#: Differences that a reader who knows Apache Kafka does not expect.
_KAFKA_DIFFERENCES = (
    ("Records", "Only record batches of format version 2 (Kafka 0.11 and later). Produce 0 to 2 are advertised and refused with UNSUPPORTED_VERSION, because librdkafka turns compression off unless Produce begins at 0. Batches are stored as the client compressed them. If the topic's `compression.type` is another one, they are compressed again, off the event loop. Compressed batches are decompressed to check that their content is what the codec says (`compressed.content.validation.enable`); every record is parsed only on compacted topics, for their keys, and where the header shows a timestamp that is too far from the broker's clock (`message.timestamp.after.max.ms`, one hour; `message.timestamp.before.max.ms`, no limit; else INVALID_TIMESTAMP). The response names the records that are wrong (KIP-467), at most 1,000 of a batch. A batch with a delete horizon, or with a producer id and without an epoch, is refused with INVALID_RECORD (Kafka stores both). Of any other batch the first record is read, and the lengths of the first eight ([ADR 69](adr/0069-a-look-at-the-first-records.md)): if they are malformed, the batch is refused with INVALID_RECORD, as by Kafka. A batch that is cut short is refused with INVALID_RECORD, and so are bytes behind the batch (Kafka passes them over). Kafka reads all records; here, a batch that is damaged further inside is appended, and its readers fail. Content that is not what the codec says is INVALID_RECORD (Kafka: UNKNOWN_SERVER_ERROR)."),
    ("Produce", "One batch per partition and request, as Kafka from version 3 on. A partition that comes twice in a request is refused (Kafka takes the last one). An error with acks=0 closes the connection. The answer to a repeated batch of a topic with CreateTime has no append time, as the protocol says; Kafka's has the largest timestamp of the batch, which clients then show for each record of it."),
    ("Fetch", "Incremental fetch sessions (KIP-227) as in Kafka, at most `max.incremental.fetch.session.cache.slots` per node and 500,000 partitions in all; a session belongs to one principal and host (Kafka: any client that knows its number may use it). When a response of a session is full, the partitions behind are not looked at: their errors, too, come with the next one (Kafka has the errors in each). Followers answer up to the high watermark that they have, from version 11 on (KIP-392); with `replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector` leaders name the replica in the rack of the client (`client.rack`, `broker.rack`). One response has at most a sixteenth of the free part of `queued.max.request.bytes` (16 MiB with the default, more if one batch is larger), and waits if nothing is free."),
    ("Extension", "An API of kafkalite's own, in a private key range (docs/extension-api.md): disks, health, history, reassignments with limits, removal of partitions, groups of transactions."),
    ("Unsupported versions", "A request of an API or version that is not known closes the connection, as with Kafka, after the requests before it were answered. A version that is known and not offered (Fetch 0 to 3, Produce 0 to 2) is answered with UNSUPPORTED_VERSION in its own form (Kafka closes). Versions that Kafka 4 has removed are served (OffsetForLeaderEpoch 0 and 1, for example). DescribeUserScramCredentials that is refused as a whole has no results (Kafka: one without a name for each user), InitProducerId epoch 0 (Kafka: -1)."),
    ("CreateTopics", "As in Kafka's ZooKeeper mode, new replicas are placed on brokers with a session only: a topic with three replicas cannot be created on three nodes while the session of one of them with ZooKeeper is over (INVALID_REPLICATION_FACTOR). Apache Kafka 4.4 places them on registered brokers that are away, too; the topic begins with a smaller ISR. If several things are wrong with a topic, another one of them may be named (the number of partitions before the configuration)."),
    ("Metadata", "A node that has just started waits up to a second for its first command of the controller before it answers. If it does not know the cluster by then, its answer has neither brokers nor topics, and clients ask again. Topics are created on demand if `auto.create.topics.enable`."),
    ("Frames", "No request but Produce may be larger than 16 MiB; one array may have 200,000 elements at most; a request whose elements depend on each other (JoinGroup, AlterPartitionReassignments) 10,000, or 100,000 if it is handled in steps (Produce, OffsetCommit, TxnOffsetCommit, OffsetDelete, AddPartitionsToTxn, ConsumerGroupHeartbeat, DescribeTopicPartitions, DescribeLogDirs, and those of share groups); with more, the answer is INVALID_REQUEST. Memory for incomplete frames is bounded over all connections by `queued.max.request.bytes`; a quarter more is for users that have little (docs/adr/0067)."),
    ("Groups", "The classic protocol, with static members and cooperative rebalancing, and the consumer protocol (KIP-848, `group.protocol=consumer`): assignors `uniform` and `range`, which also take racks into account (Kafka's do not), regular expressions of RE2, static members, offsets fenced by member epochs (KIP-1251), online migration in both directions. A static member may join again under its own member id without having left (Kafka 4.4: UNRELEASED_INSTANCE_ID, which ends Java's client). Target assignments are computed in the background, once for all members that join meanwhile. The intervals between two assignments (`group.consumer.assignment.interval.ms`, `group.share.assignment.interval.ms`) are 0 by default (a second in Kafka). DescribeConfigs of a group shows the value in force: the group's own, else the broker's. A regular expression never matches the cluster's own topics. What the members of classic groups send with JoinGroup may take 256 MiB on a node; beyond that JoinGroup is refused with COORDINATOR_NOT_AVAILABLE. With `group.initial.rebalance.delay.ms=0` the first generation waits, a session at most, for members that have got an id and not joined yet (Kafka's does not). An empty group id is refused with INVALID_GROUP_ID everywhere; Kafka still keeps offsets for it, which KIP-289 deprecates."),
    ("Share groups", "KIP-932, `share.version` 2 (docs/adr/0038). Groups, members and assignments are in `__consumer_offsets`, states of partitions in `__share_group_state`, both in Kafka's records. A member that joins waits up to three seconds until the states of its partitions are begun; Kafka assigns them with a later heartbeat. So the epoch in its first answer is one higher. The offset at which a group begins on a partition is kept when it is first fetched from, and is described from then on (Kafka: with the first acknowledgement; `kafka-share-groups --describe` shows `-` until then). InitializeShareGroupState without a start offset does not reset a state of the same epoch. AlterShareGroupOffsets begins a new group epoch, so that writes of leaders that are still on their way are fenced. ShareFetch and ShareAcknowledge are served to version 2: record limits (KIP-1206), renewal of locks (KIP-1222). `share.partition.max.record.locks` counts records that are available or acquired (Kafka counts everything behind the start offset); a record at its last delivery comes without others; the records of a session that ends are free at once, also of one that begins again over another connection; a session goes with its member to another connection (Kafka ends it with the connection that it began on); an acknowledgement of records that were never delivered is INVALID_RECORD_STATE (Kafka: INVALID_REQUEST). Dead letters (KIP-1191, share.version 2, docs/adr/0048) go to the topic `errors.deadletterqueue.topic.name` of the group. If the state of a partition is not there, because its topic is being deleted for example, ShareFetch says UNKNOWN_TOPIC_OR_PARTITION (Kafka: GROUP_ID_NOT_FOUND, for which Java's consumer throws)."),
    ("Streams groups", "KIP-1071 (`group.protocol=streams`): the topology is kept with the group, internal topics are created with the client's rights, missing and wrongly partitioned topics are reported as status, tasks are assigned by the assignor `sticky` with standby tasks (`group.streams.num.standby.replicas`, or `streams.num.standby.replicas` of one group), static members, endpoints of interactive queries, offsets fenced by member epochs. A member that joins gets its tasks with the first response; only the delay of a new group's first assignment (`group.streams.initial.rebalance.delay.ms`) is reported as status. A task with state moves at once, if possible to a process with a standby task of it. Warm-up tasks, rack-aware tags and custom assignors are not offered, as in Apache Kafka 4.4.0: its `AssignmentRefiner.refine`, which is to assign warm-up tasks, returns the target assignment unchanged (kafka-group-coordinator 4.4.0), and its only assignor, `StickyTaskAssignor`, does not use tags (KAFKA-20665 and later changes come after 4.4). Of the settings of groups, `streams.assignor.name` can only be sticky, `streams.rack.aware.assignment.tags` has no effect, and `streams.num.warmup.replicas` and `….assignor.offload.enable`, which Kafka takes and does not show, are refused. An empty group takes another topology. Descriptions of topologies (KIP-1331) are kept in the coordinator's memory, without a plug-in."),
    ("Transactions", "KIP-890, both parts. Before a transaction begins on a partition, or with the offsets of a group, the leader verifies with the coordinator that it is part of the transaction (`transaction.partition.verification.enable`), or adds it (Produce 12, TxnOffsetCommit 5); EndTxn 5 bumps the epoch; markers carry the transaction's version (WriteTxnMarkers 2, KIP-1228). A transactional batch with the sequence of a batch whose transaction has ended gets INVALID_TXN_STATE; Kafka takes it for a retry and returns success, which loses a record of librdkafka (docs/adr/0017). InitProducerId with a stale epoch while a transaction is open is refused (PRODUCER_FENCED), and the transaction goes on; Kafka aborts it, which ends its producer, and then refuses, too, or gives the next epoch but one for an epoch that is newer than the current one (tests/interop/test_init_producer_id.py has every other state). An AddPartitionsToTxn, AddOffsetsToTxn or TxnOffsetCommit 5 of the next transaction waits a moment for the markers of the one before (Kafka: CONCURRENT_TRANSACTIONS, which clients repeat). InitProducerId 3 with the producer id of another producer is PRODUCER_FENCED also while markers are written (Kafka: CONCURRENT_TRANSACTIONS until they are). Two-phase commit (KIP-939) is not offered."),
    ("Client metrics", "KIP-714: an administrator subscribes with `kafka-client-metrics` (or IncrementalAlterConfigs of a CLIENT_METRICS resource). What clients push is `kafkalite_client_metric` on `/metrics`, with the client id as a label: gauges and sums, at most 200 series of a client and 5,000 of a node, for three push intervals. Each node shows what was pushed to it."),
    ("Features", "Without a choice, the highest level of a feature that all live brokers know is in force; UpdateFeatures chooses a lower one (`/config/features` in ZooKeeper), and no level is above what a live broker knows. `eligible.leader.replicas.version` is always 1 (docs/adr/0016). There is no `metadata.version`: name single features (`kafka-features upgrade --feature group.version=1`). A feature that comes twice in a request is refused; UpdateFeatures 0 and 1 name the features also if one is refused. UnregisterBroker forgets a broker that is stopped and has no replicas, and its settings; a running broker, or one with replicas, is refused."),
    ("Security", "TLS, SASL with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, OAUTHBEARER, SCRAM users: docs/security.md. Delegation tokens (KIP-48); their owners and renewers are of type `User` (Kafka takes owners of other types, who cannot log in). SCRAM credentials need a salt. No GSSAPI. A listener without SASL answers SaslHandshake and SaslAuthenticate with ILLEGAL_SASL_STATE, as Kafka does. The order of requests in SASL is Kafka's, also when clients authenticate again (KIP-368), but for this: within an exchange, a request of another API closes the connection without an answer (Kafka answers ILLEGAL_SASL_STATE in its form, and closes), so that nobody reaches other APIs before the login; a client that authenticates again with a mechanism that is not offered is answered (Kafka closes); a request before the login has 64 KiB at most, a PLAIN message 4 KiB (Kafka: 512 KiB). A session lasts 85 to 95 % of `connections.max.reauth.ms` (Kafka: all of it; clients take their share off that). SCRAM's first answer to an unknown user is like that to a known one; its flag `y` is taken and a mandatory extension (`m=`) refused, as RFC 5802 says (Kafka refuses the one and takes the other). Extensions of a client's last message are part of what its proof signs (Kafka leaves them out; no client sends any). A token of OAUTHBEARER needs no `iat` (Kafka refuses it without)."),
    ("ACLs", "Kafka's, in Kafka's znodes, if `authorizer.enabled` (docs/security.md). AddPartitionsToTxn 4 and later is for brokers only, as with Kafka. A filter of a kind that is not known is refused with INVALID_REQUEST; Kafka closes the connection for number 0, and DescribeAcls finds nothing for others."),
    ("Idempotent producers", "If a batch is refused for a passing reason (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID), up to four batches of the same producer that were on their way behind it get the same error, where Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER. All clients send them again in order. For Kafka's error, librdkafka takes a new epoch, and then repeats records that were written but not acknowledged. If the producer is new to the partition, Kafka even appends them: the first batch, which comes again, is then behind them in a new epoch."),
    ("Quotas", "Bytes produced and fetched, request percentage and `controller_mutation_rate`, for users and client ids; `connection_creation_rate` of addresses (no host names). An entity that names a type twice is refused (Kafka takes the last one), so is a quota that comes twice. A rate of bytes or connections is a whole number from 1 on; one that is off by less than a millionth is rounded. A batch larger than the quota of all windows is delivered. A new connection waits for what its user or client id has used before."),
    ("Configuration", "DescribeConfigs, AlterConfigs and IncrementalAlterConfigs for topics, brokers and all brokers (an empty name); which keys of a broker take effect without a restart: docs/configuration.md. Kafka's broker-wide spellings (log.retention.ms) are accepted, and returned beside ours (retention.ms). The limits of reassignments (`reassignment.parallel.*`) are settings of all brokers. A setting that is not set can be deleted whatever its name, as with Kafka. Any broker accepts the settings of any other. There is no `min.insync.replicas` of all brokers unless somebody sets it; KRaft writes one, which `kafka-topics --describe` shows for each topic. DescribeConfigs of a broker lists both spellings, and `log.retention.hours`, `log.retention.minutes`, `log.roll.hours`, which may be configured, too; a topic's default has the name that it has at a broker of Kafka. `max.decompressed.message.bytes` is refused. `remote.storage.enable` can only be false; `local.retention.*`, `remote.copy.lag.*`, `remote.log.copy.disable` and `remote.log.delete.on.disable` have no effect, as in Kafka without tiered storage. `preallocate=true` reserves room without making the file longer. Settings that Kafka 4 has removed (`message.format.version`, `message.downconversion.enable`, `message.timestamp.difference.max.ms`) are refused with INVALID_CONFIG, as by Kafka 4.4 (docs/adr/0045)."),
    ("Broker settings", "Kafka's names of a broker's settings (log.retention.ms, message.max.bytes) are shown beside ours and can be altered. Some that are no settings here have a value that is true, which is shown read-only (num.io.threads: 1). " + not_here()),
    ("Reassignment", "Any broker accepts AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders, not only the controller. If limits are set, a reassignment runs in batches (KIP-435): `replicas` of ListPartitionReassignments are all present and future replicas; the current steps are in the tagged field 435, `current_batch`: per topic `name` and `partitions`, each with `partition_index`, `current_replicas` and `target_replicas`. Throttles are given with `kafkalite admin reassign --throttle`, or with Kafka's settings (KIP-73), as its tools write them. A rate of a leader at which a replica falls behind for good is raised. Of a partition that comes twice in a request only one assignment is taken (Kafka makes both, one after the other). As in Kafka's ZooKeeper mode, a broker that gets a replica must be alive, and a reassignment ends when all its replicas are in sync; KRaft begins without the broker, and ends when those are in sync that were added. A time-out of zero or less is taken for a short one; Kafka answers REQUEST_TIMED_OUT and does nothing."),
    ("Disks", "DescribeLogDirs returns total and usable bytes. AlterReplicaLogDirs moves a replica between the disks of its node while it is in use, and refuses one that it names with two disks (Kafka takes the last one); DescribeLogDirs shows the current copy (`is_future_key`) and how far it is behind."),
)  # fmt: skip
#: How the clients below were tested.
_SEEN_TO_RUN = (
    "Apache Kafka's own services, three nodes, each a test of `make interop` (tests/interop). They have no "
    "settings for kafkalite; with a replication factor of -1 their own topics get `default.replication.factor`."
)
#: Services of Apache Kafka that run as clients, and the results.
_SERVICES = (
    (
        "The Java client's Admin 4.4.0, every method",
        "About 430 calls in one fixed order, right ones and wrong ones, on Apache Kafka 4.4.0 and on kafkalite (tests/interop/test_admin_answers.py). Results and classes of exceptions are the same, but for: methods of KRaft (unregisterController, describeMetadataQuorum, addRaftVoter), loggers of brokers (no resource here), names and synonyms of settings, `retention.bytes` below -1 (refused; Kafka takes it for no limit), names of broker settings that do not exist (refused; Kafka stores them), wrong values of client metrics (INVALID_CONFIG), both SCRAM mechanisms of a user in one request (accepted), offsets of a share group that does not exist (an error) or below zero (refused). The texts of errors are ours.",
    ),
    (
        "Clients of years ago",
        (
            "confluent-kafka 1.9.2 (librdkafka 1.9.2, of 2022) and Kafka's Java client 2.1.1 (of 2019), unchanged: each codec, idempotent producers, groups"
            " whose members come and go (range, roundrobin, cooperative-sticky), transactions with offsets, fencing, their Admin's calls"
            " (tests/interop/test_old_clients.py)."
        ),
    ),
    (
        "Java clients 2.1.1, 2.4.1, 2.8.2, 3.0.2, 3.5.2, 3.9.1",
        "By hand: transactions of which each fifth is aborted first, two copiers in one group (offsets in transactions), an idempotent producer, while nodes are killed with -9: 3,000 of 3,000 records once and in order in each topic.",
    ),
    (
        "Bytewax 0.21 (librdkafka), rsyslog 8.2302 (omkafka, imkafka)",
        "By hand, while nodes are killed with -9. Bytewax copies 6,000 records, killed three times and started again from its recovery store; each record arrives once and in order. rsyslog sends 8,000 lines of a file, each once and in order, and reads 8,000 lines in a group (their content was not compared).",
    ),
    (
        "Kafka Streams 4.4.0",
        "`exactly_once_v2` with a repartition topic, changelogs (compacted; compacted and deleted), standby replicas, static and dynamic members. Every count is there once, in order, for a read_committed reader, while the changelog's leader, the group's coordinator and each instance are killed with -9, an instance is stopped until its transaction is aborted, and both instances restart without their state, from changelogs that the cleaner has compacted. Repartition topics are purged (DeleteRecords).",
    ),
    (
        "Kafka Streams 4.4.0, streams groups",
        "`group.protocol=streams`, `exactly_once_v2`, a repartition topic, two stores with changelogs, one standby task each, two instances. One instance is killed with -9 and started again, the group's coordinator is killed, the other instance is stopped until its session expires: every count is there once and in order. The Admin of 4.4.0 lists, describes and deletes such groups.",
    ),
    (
        "Kafka Connect 4.4.0",
        "Distributed, two workers, `exactly.once.source.support=enabled`, topics created by Connect (`topic.creation.default.*`). Two file sources and a sink (connect-file 4.3.1); a worker is killed with -9, then a broker: each line is in the topic once and in order, and the sink has all of them. Sinks are at least once, as with Kafka.",
    ),
    (
        "MirrorMaker 2: its connectors of 4.3.1 in Connect 4.4.0",
        "Both ways between an Apache Kafka 4.4.0 node and kafkalite, `exactly.once.source.support=enabled`. Topics with partitions and settings, changes of settings, records with keys and headers, once through a kill -9 of MirrorMaker; a group that has read everything in one cluster continues at the same record in the other. For a group that is further behind, MirrorMaker has only an earlier position. Synchronising ACLs (`sync.topic.acls.enabled`) was not tested.",
    ),
    (
        "Kafka's own system tests",
        'Their programs, of 4.3.1, against three nodes. TransactionalMessageCopier (transactions of 750 records, some aborted at random) while each node, or each copier three times, is killed with -9, also with one partition, where the order counts, and as members of one group: a reader beside it and one afterwards have each record once, with `group.protocol` classic and consumer. StreamsSmokeTest and RelationalSmokeTest (`exactly_once_v2`, classic and streams groups) while two instances and each node are killed: "SUCCESS", "passed".',
    ),
    (
        "Apache Flink 2.2.1, connector 5.0.0",
        "A bounded source and the exactly-once sink with both ways to name transactions (INCREMENTING; POOLING, which asks ListTransactions); the job fails and goes on from a checkpoint several times, each node is killed with -9: 60,000 of 60,000 records once, no transaction stays open. By hand, INCREMENTING: the job's process is killed with -9 too, and goes on from its newest checkpoint: 30,000 of 30,000 once.",
    ),
    (
        "Spring Kafka 4.0 (Java client 4.1.1)",
        "Listener containers with three threads that copy 20,000 records, a transaction for each batch; `group.protocol` classic and consumer. The listener fails at every thousandth record, so that transactions are aborted and read again; each node is killed with -9. Its `KafkaAdmin` creates the topic. A reader afterwards has each record once.",
    ),
    (
        "Spring Kafka 4.0, more",
        (
            "By hand: `@RetryableTopic` (three attempts, retry and dead letter topics that `KafkaAdmin` makes) and a share listener, while a node is killed with -9: 540 of 600 records"
            " through, the 60 that always fail in the dead letter topic, each of 600 records once with the share listener."
        ),
    ),
    (
        "Parallel consumer 0.5.3 (Java client 3.7), reactor-kafka 1.3.23",
        (
            "By hand: both copy 8,000 records exactly once (`PERIODIC_TRANSACTIONAL_PRODUCER`; `receiveExactlyOnce`) in two processes. One process and two nodes are killed with"
            " -9: each record is there once, in order for its key."
        ),
    ),
    (
        "Apache Camel 4.10, Vert.x Kafka client 4.5",
        (
            "By hand. Camel: manual commits in two processes, one of which and two nodes are killed with -9; 6,000 of 6,000 records, 17 twice (it is at least once). Vert.x: admin,"
            " transactions of which one is aborted, headers, groups."
        ),
    ),
    (
        "Faust 0.15 (aiokafka 0.14)",
        "By hand: `processing_guarantee=exactly_once`, two workers, a table with its changelog; a worker and a node are killed with -9: each of 4,000 counts is there once and in order.",
    ),
    (
        "confluent-kafka 2.16, asyncio",
        "By hand: `AIOProducer` with transactions, of which each fifth is aborted first, and two `AIOConsumer` (`group.protocol=consumer`): 3,000 of 3,000 records once.",
    ),
    (
        "kafka-ts 1.5.0",
        "By hand; its own implementation of the protocol: topics, producer, a group whose member leaves and another comes: 5,000 of 5,000 records once.",
    ),
    (
        "Debezium 3.6.1 (PostgreSQL 15, Connect 4.3.1)",
        "By hand: two workers, `exactly.once.source.support=enabled`; a snapshot of 5,000 rows, then 40,000 updates, while each worker and each node is killed with -9: each change is there once and in order. MySQL, with its schema history, was not tested.",
    ),
    (
        "Apache Pekko Kafka connectors 1.1, Apache Beam 2.73 (KafkaIO)",
        "By hand. Pekko: `Transactional.source` and `flow` in two processes that fail on purpose; one process and each node are killed with -9: 30,000 of 30,000 records once. Beam, direct runner: `withEOS`, nodes killed one after the other: 20,000 of 20,000 once, in two runs.",
    ),
    (
        "Trogdor 4.3.1",
        "By hand: ProduceBench with transactions, ConsumeBench in a group (`group.protocol=consumer`), ConnectionStress, SustainedConnection.",
    ),
)


def _range_text(versions: range | list[int]) -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def kafka_protocol() -> str:
    """The APIs of the Kafka listener, and what differs from Apache Kafka."""
    lines = [
        "# The Kafka protocol",
        "",
        "Written by `make docs` from kafkalite/kafka/apis.py, the schema tables and cli/kafkalite_cli/docs/pages.py; do not edit.",
        "",
        (
            f"The Kafka listener serves {len(OFFERED)} APIs. Any other API, and any version outside the advertised "
            "range, is refused (below). Flexible versions carry tagged fields (KIP-482)."
        ),
        "",
        "| key | API | advertised | served | flexible from |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(OFFERED, key=lambda name: schemas()[name + "Request"].api_key):
        low, high = OFFERED[name]
        request = schemas()[name + "Request"]
        served = [version for version in range(low, high + 1) if is_served(name, version)]
        flexible = next((str(version) for version in range(low, high + 1) if version in request.flexible), "never")
        lines.append(
            f"| {request.api_key} | {name} | {_range_text(range(low, high + 1))} | {_range_text(served)} | {flexible} |"
        )
    lines += ["", "# What differs from Apache Kafka", ""]
    lines += [f"- **{what}.** {text}" for what, text in _KAFKA_DIFFERENCES]
    lines += ["", "# What was seen to run", "", _SEEN_TO_RUN, ""]
    lines += [f"- **{what}.** {text}" for what, text in _SERVICES]
    lines += ["", "# Other people's test suites", "", SUITES_INTRODUCTION, ""]
    lines += ["| suite | passes | what does not, and why |", "|---|---|---|"]
    lines += [f"| {suite} | {passes} | {why} |" for suite, passes, why in SUITES]
    return "\n".join(lines) + "\n"


#: Page (relative to the repository) and the function that writes it.
PAGES: dict[str, Callable[[], str]] = {
    "docs/rpc-api.md": rpc_api,
    "docs/extension-api.md": extension_api,
    "docs/kafka-protocol.md": kafka_protocol,
    "docs/commands.md": commands_page,
    "docs/configuration.md": configuration_page,
    "docs/metrics.md": metrics_page,
    "docs/troubleshooting.md": troubleshooting_page,
    "docs/grafana/kafkalite.json": grafana_dashboard,
    "kafkalite/protocol/wire.pyi": wire_stub,
    **{f"docs/man/{name}": partial(man_page, name) for name in man_names()},
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(page(), encoding="utf-8")
