"""Kafka's broker settings that are no settings here, but have a value that is true: DescribeConfigs shows them, read-only.

The others of Kafka's settings that are not here are listed in docs/kafka-protocol.md, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig, inter_broker_listener
from kafkalite.coordinators.groups.offsets import MAX_METADATA_BYTES
from kafkalite.coordinators.internal_log import APPEND_TIMEOUT_MS
from kafkalite.env.seams import LISTEN_BACKLOG
from kafkalite.kafka.client_metrics import MAX_PUSH_BYTES
from kafkalite.kafka.handlers.cluster import MAX_PARTITIONS_PER_PAGE
from kafkalite.kafka.handlers.configs.entries import ConfigQuery, ConfigSource, ConfigType
from kafkalite.kafka.listener import MAX_STRANGERS_BYTES

if TYPE_CHECKING:
    from kafkalite.kafka.handlers.configs.entries import ConfigEntry

#: Kafka's word for what the operating system chooses.
_SYSTEM = "-1"

TrueValue = tuple[Callable[[BrokerConfig], str], ConfigType, str]


def _constant(value: object) -> Callable[[BrokerConfig], str]:
    return lambda config: str(value)


#: Kafka's name -> its value here, its type, and what it means here.
TRUE_VALUES: Mapping[str, TrueValue] = {
    "broker.id.generation.enable": (_constant("false"), ConfigType.BOOLEAN, "a node gets its id from its configuration"),
    "group.share.assignors": (_constant("simple"), ConfigType.LIST, "assignor of share groups"),
    "group.streams.assignors": (_constant("sticky"), ConfigType.LIST, "assignor of streams groups"),
    "group.streams.rack.aware.assignment.tags": (_constant(""), ConfigType.LIST, "empty: standby tasks are placed without tags"),
    "log.cleaner.enable": (_constant("true"), ConfigType.BOOLEAN, "topics whose cleanup.policy says so are always compacted"),
    "log.cleaner.threads": (_constant(1), ConfigType.INT, "a node compacts one log at a time"),
    "log.flush.start.offset.checkpoint.interval.ms": (
        lambda config: str(config.log_flush_offset_checkpoint_interval_ms), ConfigType.INT,
        "log start offsets are saved with the recovery points: log.flush.offset.checkpoint.interval.ms",
    ),
    "max.request.partition.size.limit": (
        _constant(MAX_PARTITIONS_PER_PAGE), ConfigType.INT, "number of partitions in a response to DescribeTopicPartitions",
    ),
    "node.id": (lambda config: str(config.broker_id), ConfigType.INT, "this node's id, as broker.id"),
    "num.io.threads": (_constant(1), ConfigType.INT, "one event loop serves all requests"),
    "num.network.threads": (_constant(1), ConfigType.INT, "one event loop serves all connections"),
    "offset.metadata.max.bytes": (_constant(MAX_METADATA_BYTES), ConfigType.INT, "size of the metadata of a committed offset"),
    "offsets.commit.timeout.ms": (
        _constant(APPEND_TIMEOUT_MS), ConfigType.INT, "time that a coordinator's record has to be on all replicas in the ISR",
    ),
    "process.roles": (_constant(""), ConfigType.STRING, "empty: the cluster's metadata is in ZooKeeper"),
    "remote.log.storage.system.enable": (_constant("false"), ConfigType.BOOLEAN, "there is no tiered storage"),
    "sasl.oauthbearer.allow.unverified.audience": (
        lambda config: str(not config.sasl_oauthbearer_expected_audience).lower(), ConfigType.BOOLEAN,
        "true while sasl.oauthbearer.expected.audience is empty",
    ),
    "sasl.oauthbearer.allow.unverified.issuer": (
        lambda config: str(not config.sasl_oauthbearer_expected_issuer).lower(), ConfigType.BOOLEAN,
        "true while sasl.oauthbearer.expected.issuer is empty",
    ),
    "sasl.server.max.receive.size": (
        _constant(MAX_STRANGERS_BYTES), ConfigType.INT, "size of the largest request of a client that has not logged in",
    ),
    "security.inter.broker.protocol": (
        lambda config: inter_broker_listener(config).protocol, ConfigType.STRING,
        "security protocol of the Kafka listener to which nodes connect",
    ),
    "share.coordinator.write.timeout.ms": (
        _constant(APPEND_TIMEOUT_MS), ConfigType.INT, "time that a coordinator's record has to be on all replicas in the ISR",
    ),
    "socket.listen.backlog.size": (_constant(LISTEN_BACKLOG), ConfigType.INT, "connections that wait to be accepted, per listener"),
    "socket.receive.buffer.bytes": (_constant(_SYSTEM), ConfigType.INT, "as the operating system chooses"),
    "socket.send.buffer.bytes": (_constant(_SYSTEM), ConfigType.INT, "as the operating system chooses"),
    "ssl.keystore.type": (_constant("PEM"), ConfigType.STRING, "format of ssl.keystore.location"),
    "ssl.truststore.type": (_constant("PEM"), ConfigType.STRING, "format of ssl.truststore.location"),
    "telemetry.max.bytes": (_constant(MAX_PUSH_BYTES), ConfigType.INT, "size of the largest push of a client's metrics"),
    "transaction.two.phase.commit.enable": (_constant("false"), ConfigType.BOOLEAN, "two-phase commit (KIP-939) is not offered"),
    "zookeeper.metadata.migration.enable": (_constant("false"), ConfigType.BOOLEAN, "there is no migration to KRaft"),
}  # fmt: skip


def true_value_entries(config: BrokerConfig, query: ConfigQuery) -> list[ConfigEntry]:
    """Those that are asked for."""
    entries = []
    for name, (value, kind, doc) in TRUE_VALUES.items():
        if query.wants(name):
            text = value(config)
            entries.append(query.entry(name, text, [(ConfigSource.DEFAULT, name, text)], kind, doc, is_read_only=True))
    return entries
