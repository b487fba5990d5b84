"""What znodes hold: Kafka's JSON, decoded strictly, encoded compactly. Pure.

A person may write any bytes with a ZooKeeper shell. Every decoder raises ZnodeError for what it cannot use, and
nothing else: the caller reports it and leaves the znode alone. Unknown fields are skipped (newer writers).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafkalite.errors import KafkaliteError
from kafkalite.model import (
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1

Replicas = tuple[BrokerId, ...]


class ZnodeError(KafkaliteError):
    """The znode at `path` does not hold what belongs there; `reason` is one line."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'znode'}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ControllerZnode:
    """/controller: who is the controller. `timestamp_ms` is None if the writer did not tell."""

    broker_id: BrokerId
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerZnode:
    """/brokers/ids/N. What a writer left out stays out when the value is encoded again."""

    host: str
    port: int
    version: int = 5
    jmx_port: int = -1
    timestamp_ms: int | None = None
    endpoints: tuple[str, ...] | None = None
    rpc: Endpoint | None = None
    rack: str | None = None

    def info(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerInfo:
        """The live broker. Raises ZnodeError if it did not tell its RPC endpoint (a Kafka broker, not one of ours)."""
        if self.rpc is None:
            raise ZnodeError(f"/brokers/ids/{broker_id}", "no rpc_endpoint: not a kafkalite node")
        return BrokerInfo(broker_id, broker_epoch, Endpoint(self.host, self.port), self.rpc, self.rack)


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """/brokers/topics/T: partition -> assigned replicas (the first is preferred); a reassignment's parts (KIP-455)."""

    topic_id: TopicId
    partitions: Mapping[int, Replicas]
    adding_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    removing_replicas: Mapping[int, Replicas] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """/restart_partitions/req-N: a broker asks to restart its replicas of these partitions (KIP-18).

    `online`: they are sound again (ours; absent in KIP-18): the controller may let them lead.
    """

    broker_id: BrokerId
    partitions: tuple[TopicPartition, ...]
    online: bool = False


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the newest block of producer ids; both ends belong to it."""

    broker_id: BrokerId
    first: int
    last: int


# --- reading -----------------------------------------------------------------------------------------------------


class _Reader:
    """One JSON object of a znode: typed access that raises ZnodeError."""

    def __init__(self, path: str, value: object, where: str = "") -> None:
        if not isinstance(value, dict):
            raise ZnodeError(path, f"{where or 'value'}: not a JSON object")
        self.path = path
        self.where = where
        self.fields: dict[str, object] = value

    def fail(self, name: str, reason: str) -> ZnodeError:
        return ZnodeError(self.path, f"{self.where}{name}: {reason}")

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self.fields.get(name, default)
        return _integer(value, low, high, lambda reason: self.fail(name, reason))

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self.fail(name, "not a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.fields.get(name) is None else self.text(name)

    def items(self, name: str) -> list[object]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self.fail(name, "not a list")
        return value

    def integers(self, name: str) -> list[int]:
        return [_integer(each, 0, _INT32_MAX, lambda reason: self.fail(name, reason)) for each in self.items(name)]

    def version(self, *known: int) -> int:
        version = self.integer("version", 1, _INT32_MAX)
        if known and version not in known:
            raise self.fail("version", f"{version} is none of {', '.join(map(str, known))}")
        return version

    def replicas(self, name: str) -> Replicas:
        return _replicas(self.fields.get(name), lambda reason: self.fail(name, reason))

    def replica_map(self, name: str, *, required: bool, empty_lists: bool = False) -> dict[int, Replicas]:
        value = self.fields.get(name, None if required else {})
        if not isinstance(value, dict):
            raise self.fail(name, "not a JSON object")
        result: dict[int, Replicas] = {}
        for key, replicas in value.items():
            if (
                not (key.isascii() and key.isdigit() and len(key) <= 10)
                or str(int(key)) != key
                or int(key) > _INT32_MAX
            ):
                raise self.fail(name, f"{key!r} is not a partition")
            if empty_lists and replicas == []:
                continue
            result[int(key)] = _replicas(replicas, lambda reason, key=key: self.fail(f"{name}.{key}", reason))  # type: ignore[misc]
        return dict(sorted(result.items()))

    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic_name(), self.integer("partition", 0, _INT32_MAX))

    def topic_name(self) -> str:
        name = self.text("topic")
        if not name:
            raise self.fail("topic", "empty")
        return name


def _integer(value: object, low: int, high: int, fail: Callable[[str], ZnodeError]) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise fail("not an integer")
    if not low <= value <= high:
        raise fail(f"not within {low}..{high}")
    return value


def _replicas(value: object, fail: Callable[[str], ZnodeError]) -> Replicas:
    if not isinstance(value, list) or not value:
        raise fail("not a list of brokers")
    brokers = tuple(BrokerId(_integer(broker, 0, _INT32_MAX, fail)) for broker in value)
    if len(set(brokers)) != len(brokers):
        raise fail("a broker is there twice")
    return brokers


def _parse(data: bytes, path: str) -> object:
    try:
        value: object = json.loads(data.decode())
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text: no path could hold it
        return value
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a number of absurd length, nested too deep
        raise ZnodeError(path, f"not JSON: {str(error)[:80]}") from None


def _read(data: bytes, path: str) -> _Reader:
    return _Reader(path, _parse(data, path))


def _write(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _ordered(replicas: Mapping[int, Sequence[BrokerId]]) -> dict[str, list[BrokerId]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


# --- the cluster, the controller, the brokers --------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id. Kafka writes the version as text here."""
    return _write({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes, path: str = "/cluster/id") -> str:
    """The cluster's id. Raises ZnodeError."""
    reader = _read(data, path)
    cluster_id = reader.text("id")
    if not cluster_id:
        raise reader.fail("id", "empty")
    return cluster_id


def encode_controller(broker_id: BrokerId, timestamp_ms: int) -> bytes:
    """/controller."""
    return _write({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes, path: str = "/controller") -> ControllerZnode:
    """Who is the controller. Raises ZnodeError."""
    reader = _read(data, path)
    reader.version()
    timestamp = _timestamp(reader)
    return ControllerZnode(BrokerId(reader.integer("brokerid", 0, _INT32_MAX)), timestamp)


def _timestamp(reader: _Reader) -> int | None:
    value = reader.fields.get("timestamp")
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return _integer(value, 0, _INT64_MAX, lambda reason: reader.fail("timestamp", reason))


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    """/controller_epoch: a bare integer, not JSON."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes, path: str = "/controller_epoch") -> ControllerEpoch:
    """The controller epoch. Raises ZnodeError."""
    if not data.isdigit() or len(data) > 10 or int(data) > _INT32_MAX:
        raise ZnodeError(path, "not an integer")
    return ControllerEpoch(int(data))


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
    if broker.rpc is not None:
        value["rpc_endpoint"] = str(broker.rpc)
    if broker.version >= 3:
        value["rack"] = broker.rack
    return _write(value)


def decode_broker(data: bytes, path: str = "") -> BrokerZnode:
    """A broker's registration, ours or Kafka's of any version. Raises ZnodeError."""
    reader = _read(data, path)
    endpoints: tuple[str, ...] | None = None
    if "endpoints" in reader.fields:
        endpoints = tuple(str(each) for each in reader.items("endpoints"))
    return BrokerZnode(
        host=reader.optional_text("host") or "",
        port=reader.integer("port", -1, 65535),
        version=reader.version(),
        jmx_port=reader.integer("jmx_port", -1, 65535, -1),
        timestamp_ms=_timestamp(reader),
        endpoints=endpoints,
        rpc=_endpoint(reader),
        rack=reader.optional_text("rack"),
    )


def _endpoint(reader: _Reader) -> Endpoint | None:
    text = reader.optional_text("rpc_endpoint")
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) <= 65535:
        raise reader.fail("rpc_endpoint", "not host:port")
    return Endpoint(host, int(port))


# --- topics and partitions ---------------------------------------------------------------------------------------


def encode_topic(topic: TopicZnode) -> bytes:
    """/brokers/topics/T: version 3; version 2 for a topic without an id (made by an old tool)."""
    value: dict[str, object] = {"version": 3, "topic_id": topic.topic_id}
    if topic.topic_id == NO_TOPIC_ID:
        value = {"version": 2}
    value["partitions"] = _ordered(topic.partitions)
    value["adding_replicas"] = _ordered(topic.adding_replicas)
    value["removing_replicas"] = _ordered(topic.removing_replicas)
    return _write(value)


def decode_topic(data: bytes, path: str = "") -> TopicZnode:
    """A topic's assignment; versions 1 (no reassignment), 2 (no id) and 3. Raises ZnodeError."""
    reader = _read(data, path)
    version = reader.version(1, 2, 3)
    topic_id = reader.optional_text("topic_id") if version >= 3 else None
    return TopicZnode(
        topic_id=NO_TOPIC_ID if topic_id is None else TopicId(topic_id),
        partitions=reader.replica_map("partitions", required=True),
        adding_replicas=reader.replica_map("adding_replicas", required=False, empty_lists=True),
        removing_replicas=reader.replica_map("removing_replicas", required=False, empty_lists=True),
    )


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """/brokers/topics/T/partitions/P/state. The partition epoch is the znode's version, hence not in the value."""
    return _write(
        {
            "version": 1,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "controller_epoch": state.controller_epoch,
        }
    )


def decode_partition_state(data: bytes, zk_version: int, path: str = "") -> LeaderAndIsr:
    """Leader and ISR; `zk_version` is the znode's version. Raises ZnodeError, also if LeaderAndIsr's invariants break."""
    reader = _read(data, path)
    reader.version()
    isr = reader.replicas("isr")
    leader = BrokerId(reader.integer("leader", -1, _INT32_MAX))
    if leader != -1 and leader not in isr:
        raise reader.fail("leader", f"{leader} is not in the ISR")
    return LeaderAndIsr(
        leader=leader,
        leader_epoch=LeaderEpoch(reader.integer("leader_epoch", 0, _INT32_MAX)),
        isr=isr,
        controller_epoch=ControllerEpoch(reader.integer("controller_epoch", 0, _INT32_MAX)),
        partition_epoch=PartitionEpoch(zk_version),
    )


# --- orders of the administrator ---------------------------------------------------------------------------------


def encode_reassignment(targets: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    """/admin/reassign_partitions."""
    return _write(
        {
            "version": 1,
            "partitions": [
                {"topic": each.topic, "partition": each.partition, "replicas": list(targets[each])}
                for each in sorted(targets)
            ],
        }
    )


def decode_reassignment(data: bytes, path: str = "/admin/reassign_partitions") -> dict[TopicPartition, Replicas]:
    """Partition -> target replicas, in the order given. Raises ZnodeError, also if a partition is there twice."""
    reader = _read(data, path)
    reader.version()
    targets: dict[TopicPartition, Replicas] = {}
    for index, item in enumerate(reader.items("partitions")):
        entry = _Reader(path, item, f"partitions[{index}].")
        partition = entry.topic_partition()
        if partition in targets:
            raise entry.fail("partition", f"{partition} is there twice")
        targets[partition] = entry.replicas("replicas")
    return targets


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """/admin/preferred_replica_election."""
    items = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return _write({"version": 1, "partitions": items})


def decode_preferred_election(
    data: bytes, path: str = "/admin/preferred_replica_election"
) -> tuple[TopicPartition, ...]:
    """The partitions, each once, in the order given. Raises ZnodeError."""
    reader = _read(data, path)
    reader.version()
    partitions = [
        _Reader(path, item, f"partitions[{index}].").topic_partition()
        for index, item in enumerate(reader.items("partitions"))
    ]
    return tuple(dict.fromkeys(partitions))


def encode_delete_topics(topics: Iterable[str]) -> bytes:
    """/admin/delete_topics."""
    return _write({"version": 1, "topics": list(topics)})


def decode_delete_topics(data: bytes, path: str = "/admin/delete_topics") -> tuple[str, ...]:
    """The topics, each once, in the order given. Raises ZnodeError."""
    reader = _read(data, path)
    reader.version()
    topics: list[str] = []
    for name in reader.items("topics"):
        if not isinstance(name, str) or not name:
            raise reader.fail("topics", "not a list of names")
        topics.append(name)
    return tuple(dict.fromkeys(topics))


def encode_partition_add(replicas: Sequence[BrokerId]) -> bytes:
    """/admin/partitions_add/T/P: the replica list."""
    return _write(list(replicas))


def decode_partition_add(data: bytes, path: str = "") -> Replicas:
    """The new partition's replicas. Raises ZnodeError."""
    return _replicas(_parse(data, path), lambda reason: ZnodeError(path, reason))


def encode_partition_remove(*, drain: bool = False) -> bytes:
    """/admin/partitions_remove/T/P: empty, unless the partition is to be drained first."""
    return _write({"version": 1, "drain": True}) if drain else b""


def decode_partition_remove(data: bytes, path: str = "") -> bool:
    """Whether to drain first. Raises ZnodeError."""
    if not data:
        return False
    reader = _read(data, path)
    drain = reader.fields.get("drain", False)
    if not isinstance(drain, bool):
        raise reader.fail("drain", "not a boolean")
    return drain


def encode_restart_request(request: RestartRequest) -> bytes:
    """/restart_partitions/req-N."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in request.partitions:
        by_topic.setdefault(topic, []).append(partition)
    items = [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic.items()]
    value: dict[str, object] = {"version": 1, "broker": request.broker_id, "partitions": items}
    if request.online:
        value["online"] = True
    return _write(value)


def decode_restart_request(data: bytes, path: str = "") -> RestartRequest:
    """A broker's request. Raises ZnodeError."""
    reader = _read(data, path)
    reader.version()
    broker = BrokerId(reader.integer("broker", 0, _INT32_MAX))
    partitions: list[TopicPartition] = []
    for index, item in enumerate(reader.items("partitions")):
        entry = _Reader(path, item, f"partitions[{index}].")
        topic = entry.topic_name()
        partitions += [TopicPartition(topic, number) for number in entry.integers("partitions")]
    online = reader.fields.get("online", False)
    if not isinstance(online, bool):
        raise reader.fail("online", "not a boolean")
    return RestartRequest(broker, tuple(dict.fromkeys(partitions)), online)


# --- settings, producer ids --------------------------------------------------------------------------------------


def encode_config(settings: Mapping[str, str]) -> bytes:
    """/config/<type>/<name>."""
    return _write({"version": 1, "config": dict(sorted(settings.items()))})


def decode_config(data: bytes, path: str = "") -> dict[str, str]:
    """An entity's settings, sorted by key; an empty znode has none. Raises ZnodeError."""
    if not data:
        return {}
    reader = _read(data, path)
    config = reader.fields.get("config")
    if not isinstance(config, dict):
        raise reader.fail("config", "not a JSON object")
    for key, value in config.items():
        if not isinstance(value, str):
            raise reader.fail(f"config.{key}", "not a string")
    return dict(sorted(config.items()))


def encode_config_change(entity_type: str, entity_name: str) -> bytes:
    """/config/changes/config_change_N: which entity to read again."""
    return _write({"version": 2, "entity_path": f"{entity_type}/{entity_name}"})


def decode_config_change(data: bytes, path: str = "") -> tuple[str, str]:
    """(entity type, entity name); versions 1 and 2. Raises ZnodeError."""
    reader = _read(data, path)
    if reader.version(1, 2) == 1:
        return reader.text("entity_type"), reader.text("entity_name")
    entity_type, separator, entity_name = reader.text("entity_path").partition("/")
    if not separator or not entity_type or not entity_name or "/" in entity_name:
        raise reader.fail("entity_path", "not <type>/<name>")
    return entity_type, entity_name


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """/latest_producer_id_block. Kafka writes the ends as text."""
    return _write(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes, path: str = "/latest_producer_id_block") -> ProducerIdBlock:
    """The newest block. Raises ZnodeError."""
    reader = _read(data, path)
    reader.version()
    ends: list[int] = []
    for name in ("block_start", "block_end"):
        text = reader.text(name)
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _INT64_MAX:
            raise reader.fail(name, "not an integer")
        ends.append(int(text))
    if ends[1] < ends[0]:
        raise reader.fail("block_end", "before block_start")
    return ProducerIdBlock(BrokerId(reader.integer("broker", -1, _INT32_MAX)), ends[0], ends[1])
