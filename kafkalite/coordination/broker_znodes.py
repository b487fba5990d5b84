"""/brokers/ids: what a broker says of itself, ours or Kafka's of any version. Pure. What it raises, and when: `znode_json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from kafkalite.coordination.znode_json import JsonReader, ZnodeError, read, timestamp, write
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    ELR_FEATURE,
    TRANSACTION_FEATURE,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    Endpoint,
    ListenerAddress,
    TopicPartition,
    numbers_by_topic,
)

#: Of the logs that a registration names as missing.
_MISSING_BYTES = 512 * 1024
_RELEASE = re.compile(r"[A-Za-z0-9.+!_-]{1,64}")
_CONSOLE = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,255}):[0-9]{1,5}")
#: Of the replicas that a registration names as doubtful. Those beyond it refuse to lead, which is slower.
DOUBTFUL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """/brokers/ids/N. What a writer left out stays out when the value is encoded again."""

    host: str
    port: int
    version: int = 5
    jmx_port: int = -1
    timestamp_ms: int | None = None
    #: NAME://host:port of each Kafka listener that it advertises. `host` and `port` are those of one of them.
    endpoints: tuple[str, ...] | None = None
    rpc: Endpoint | None = None
    rack: str | None = None
    #: Ours: it has no log at all. What it had it has lost.
    is_empty: bool = False
    #: Ours: logs that are not there, of partitions that count it as in sync.
    missing: frozenset[TopicPartition] = frozenset()
    #: Ours: partitions whose logs may lack committed records.
    doubtful: frozenset[TopicPartition] = frozenset()
    #: Ours: whether it knows eligible leader replicas (ADR 16).
    keeps_elr: bool = False
    #: The highest transaction.version that it knows (KIP-890), among the features that Kafka's registrations name.
    transaction_version: int = 0
    #: Security protocol by the name of the listener (since version 4).
    protocols: Mapping[str, str] = field(default_factory=dict)
    #: Other features: name -> the highest level that it knows.
    features: tuple[tuple[str, int], ...] = ()
    #: Ours: the URL of its console, http://host:port or https://host:port; empty: none.
    http: str = ""
    #: Ours: all its log directories are cordoned.
    is_cordoned: bool = False
    #: Ours: the version of kafkalite that it runs.
    release: str = ""

    def info(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerInfo:
        """The live broker. Raises ZnodeError if it has no RPC endpoint (a Kafka broker, not one of ours)."""
        if self.rpc is None:
            raise ZnodeError(f"/brokers/ids/{broker_id}", "no rpc_endpoint: not a kafkalite node")
        kafka = Endpoint(self.host, self.port)
        return BrokerInfo(
            broker_id,
            broker_epoch,
            kafka,
            self.rpc,
            self.rack,
            self.is_empty,
            self.missing,
            self.doubtful,
            self.keeps_elr,
            self.transaction_version,
            tuple(filter(None, map(_listener, self.endpoints or ()))),
            self.features,
            self.http,
            self.is_cordoned,
            self.release,
        )


def encode_broker(broker: BrokerZnode) -> bytes:
    """/brokers/ids/N. Version 1 has only the four fields of the first schema."""
    value: dict[str, object] = {
        "version": broker.version,
        "host": broker.host,
        "port": broker.port,
        "jmx_port": broker.jmx_port,
    }
    if broker.timestamp_ms is not None:
        value["timestamp"] = str(broker.timestamp_ms)
    if broker.endpoints is not None:
        value["endpoints"] = list(broker.endpoints)
    if broker.protocols and broker.version >= 4:
        value["listener_security_protocol_map"] = dict(broker.protocols)
    if broker.rpc is not None:
        value["rpc_endpoint"] = str(broker.rpc)
    if broker.http:
        value["http_endpoint"] = broker.http
    if broker.version >= 3:
        value["rack"] = broker.rack
    if broker.is_empty:
        value["empty"] = True
    if broker.missing:
        value["missing"] = numbers_by_topic(sorted(broker.missing))
    if broker.doubtful:
        value["doubtful"] = numbers_by_topic(sorted(broker.doubtful))
    if broker.keeps_elr:
        value["elr"] = True
    if broker.is_cordoned:
        value["cordoned"] = True
    if broker.release:
        value["release"] = broker.release
    features = {
        **dict(broker.features),
        ELR_FEATURE: int(broker.keeps_elr),
        TRANSACTION_FEATURE: broker.transaction_version,
    }
    if any(features.values()):
        value["features"] = {
            name: {"min_version": 0, "max_version": level} for name, level in features.items() if level
        }
    return write(value)


def decode_broker(data: bytes, path: str = "") -> BrokerZnode:
    """A broker's registration, ours or Kafka's of any version. Raises ZnodeError."""
    reader = read(data, path)
    is_empty = reader.fields.get("empty", False)
    if not isinstance(is_empty, bool):
        raise reader.fail("empty", "not a boolean")
    endpoints: tuple[str, ...] | None = None
    if "endpoints" in reader.fields:
        endpoints = tuple(str(each) for each in reader.items("endpoints"))
    features = _features(reader)
    return BrokerZnode(
        host=reader.optional_text("host") or "",
        port=reader.integer("port", -1, 65535),
        version=reader.version(),
        jmx_port=reader.integer("jmx_port", -1, 65535, -1),
        timestamp_ms=timestamp(reader),
        endpoints=endpoints,
        rpc=_endpoint(reader),
        rack=reader.optional_text("rack"),
        is_empty=is_empty,
        missing=_partitions(reader, "missing"),
        doubtful=_partitions(reader, "doubtful"),
        keeps_elr=reader.fields.get("elr") is True,
        transaction_version=features.get(TRANSACTION_FEATURE, 0),
        protocols=_protocols(reader),
        features=tuple((name, level) for name, level in sorted(features.items()) if name not in _NAMED_FEATURES),
        http=_matching(reader, "http_endpoint", _CONSOLE),
        is_cordoned=reader.fields.get("cordoned") is True,
        release=_matching(reader, "release", _RELEASE),
    )


def with_room(partitions: Iterable[TopicPartition], max_bytes: int = _MISSING_BYTES) -> frozenset[TopicPartition]:
    """As many of them as a registration has room for (ZooKeeper takes a megabyte)."""
    left = max_bytes
    reported = []
    topic = ""
    for partition in sorted(partitions):
        left -= len(str(partition.partition)) + 1 + (len(partition.topic) + 6 if partition.topic != topic else 0)
        if left < 0:
            break
        topic = partition.topic
        reported.append(partition)
    return frozenset(reported)


def _partitions(reader: JsonReader, field_name: str) -> frozenset[TopicPartition]:
    if field_name not in reader.fields:
        return frozenset()
    topics = JsonReader(reader.path, reader.fields[field_name], f"{field_name}.")
    return frozenset(TopicPartition(topic, number) for topic in topics.fields for number in topics.integers(topic))


#: Those with fields of their own.
_NAMED_FEATURES = (ELR_FEATURE, TRANSACTION_FEATURE)


def _features(reader: JsonReader) -> dict[str, int]:
    """Feature -> highest level, as far as the writer states them. A broker is not refused for malformed ones."""
    found = reader.fields.get("features")
    levels: dict[str, int] = {}
    for name, level in found.items() if isinstance(found, dict) else ():
        highest = level.get("max_version") if isinstance(level, dict) else None
        if isinstance(highest, int) and not isinstance(highest, bool) and 0 <= highest < 2**15:
            levels[str(name)] = highest
    return levels


def _listener(text: str) -> ListenerAddress | None:
    """None: not NAME://host:port. (Older nodes have written IPv6 addresses without brackets.)"""
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    if not (name and host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        return None
    return ListenerAddress(name, host.removeprefix("[").removesuffix("]"), int(port))


def _protocols(reader: JsonReader) -> dict[str, str]:
    value = reader.fields.get("listener_security_protocol_map", {})
    if not isinstance(value, dict) or not all(isinstance(protocol, str) for protocol in value.values()):
        raise reader.fail("listener_security_protocol_map", "not names and protocols")
    return {str(name): str(protocol) for name, protocol in value.items()}


def _endpoint(reader: JsonReader) -> Endpoint | None:
    text = reader.optional_text("rpc_endpoint")
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) <= 65535:
        raise reader.fail("rpc_endpoint", "not host:port")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))


def _matching(reader: JsonReader, field_name: str, pattern: re.Pattern[str]) -> str:
    """What people see and browsers follow: anything else is left out. A broker is not refused for it."""
    text = reader.fields.get(field_name)
    return text if isinstance(text, str) and pattern.fullmatch(text) else ""
