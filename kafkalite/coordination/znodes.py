"""What znodes hold: Kafka's JSON, decoded strictly, encoded compactly. Pure. (Orders: `admin_znodes`; ACLs: `acl_znodes`.)

A person may write any bytes with a ZooKeeper shell. Every decoder raises ZnodeError for what it cannot use, and
nothing else: the caller reports it and leaves the znode alone. Unknown fields are skipped (newer writers).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from kafkalite.coordination.znode_json import INT32_MAX, INT64_MAX, JsonReader, ZnodeError, integer, parse, read, write
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    ELR_FEATURE,
    NO_TOPIC_ID,
    TRANSACTION_FEATURE,
    BrokerEpoch,
    BrokerId,
    BrokerInfo,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    ListenerAddress,
    PartitionEpoch,
    Replicas,
    TopicId,
    TopicPartition,
)

#: Of the logs that a registration names as missing.
_MISSING_BYTES = 512 * 1024
_CONSOLE = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,255}):[0-9]{1,5}")
#: Of the replicas that a registration names as doubtful. Those beyond it refuse to lead, which is slower.
DOUBTFUL_BYTES = 256 * 1024


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

    def info(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerInfo:
        """The live broker. Raises ZnodeError if it did not tell its RPC endpoint (a Kafka broker, not one of ours)."""
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
        )


@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """A partition's reassignment under way, as durable as its replica list and beside it.

    target: the replicas in the end, in order (FTR). `origin`: those before the first step, to which a cancel goes back.
    step: the replicas (TR) when the step under way is over; empty between steps.
    dropping: replicas that the step under way has taken out, whose files are not known to be gone yet.
    moves_leader: whether the step under way moves leadership (counts against that limit).
    throttle: bytes/s for replicas that are not in sync yet; 0 none.
    """

    target: Replicas
    origin: Replicas
    step: Replicas = ()
    dropping: Replicas = ()
    moves_leader: bool = False
    throttle: int = 0


@dataclass(frozen=True, slots=True)
class TopicZnode:
    """/brokers/topics/T: partition -> assigned replicas (the first is preferred); a reassignment's parts (KIP-455).

    `moves` is ours: what KIP-455's two maps cannot tell (the order of the target, the step of KIP-435 under way).
    """

    topic_id: TopicId
    partitions: Mapping[int, Replicas]
    adding_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    removing_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    moves: Mapping[int, ReassignmentProgress] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the newest block of producer ids; both ends belong to it."""

    broker_id: BrokerId
    first: int
    last: int


# --- the cluster, the controller, the brokers --------------------------------------------------------------------


def encode_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id. Kafka writes the version as text here."""
    return write({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes, path: str = "/cluster/id") -> str:
    """The cluster's id. Raises ZnodeError."""
    reader = read(data, path)
    cluster_id = reader.text("id")
    if not cluster_id:
        raise reader.fail("id", "empty")
    return cluster_id


def encode_controller(broker_id: BrokerId, timestamp_ms: int) -> bytes:
    """/controller."""
    return write({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes, path: str = "/controller") -> ControllerZnode:
    """Who is the controller. Raises ZnodeError."""
    reader = read(data, path)
    reader.version()
    timestamp = _timestamp(reader)
    return ControllerZnode(BrokerId(reader.integer("brokerid", 0, INT32_MAX)), timestamp)


def _timestamp(reader: JsonReader) -> int | None:
    value = reader.fields.get("timestamp")
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    return integer(value, 0, INT64_MAX, lambda reason: reader.fail("timestamp", reason))


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    """/controller_epoch: a bare integer, not JSON."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes, path: str = "/controller_epoch") -> ControllerEpoch:
    """The controller epoch. Raises ZnodeError."""
    if not data.isdigit() or len(data) > 10 or int(data) > INT32_MAX:
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
        value["missing"] = _by_topic(broker.missing)
    if broker.doubtful:
        value["doubtful"] = _by_topic(broker.doubtful)
    if broker.keeps_elr:
        value["elr"] = True
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


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


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
        timestamp_ms=_timestamp(reader),
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
        http=_console(reader),
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


def _console(reader: JsonReader) -> str:
    """Browsers follow it: what is not the URL of a host and a port is left out. A broker is not refused for it."""
    url = reader.fields.get("http_endpoint")
    return url if isinstance(url, str) and _CONSOLE.fullmatch(url) else ""


# --- topics and partitions ---------------------------------------------------------------------------------------


def _ordered(replicas: Mapping[int, Sequence[BrokerId]]) -> dict[str, list[BrokerId]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


def encode_topic(topic: TopicZnode) -> bytes:
    """/brokers/topics/T: version 3; version 2 for a topic without an id (made by an old tool)."""
    value: dict[str, object] = {"version": 3, "topic_id": topic.topic_id}
    if topic.topic_id == NO_TOPIC_ID:
        value = {"version": 2}
    value["partitions"] = _ordered(topic.partitions)
    value["adding_replicas"] = _ordered(topic.adding_replicas)
    value["removing_replicas"] = _ordered(topic.removing_replicas)
    if topic.moves:
        value["moves"] = {str(partition): _move_value(topic.moves[partition]) for partition in sorted(topic.moves)}
    return write(value)


def _move_value(move: ReassignmentProgress) -> dict[str, object]:
    value: dict[str, object] = {"target": list(move.target), "origin": list(move.origin)}
    if move.step:
        value["step"] = list(move.step)
    if move.dropping:
        value["dropping"] = list(move.dropping)
    if move.moves_leader:
        value["moves_leader"] = True
    if move.throttle:
        value["throttle"] = move.throttle
    return value


def decode_topic(data: bytes, path: str = "") -> TopicZnode:
    """A topic's assignment; versions 1 (no reassignment), 2 (no id) and 3. Raises ZnodeError."""
    reader = read(data, path)
    version = reader.version(1, 2, 3)
    topic_id = reader.optional_text("topic_id") if version >= 3 else None
    partitions = reader.replica_map("partitions", required=True)
    adding = reader.replica_map("adding_replicas", required=False, empty_lists=True)
    removing = reader.replica_map("removing_replicas", required=False, empty_lists=True)
    return TopicZnode(
        topic_id=NO_TOPIC_ID if topic_id is None else TopicId(topic_id),
        partitions=partitions,
        adding_replicas=adding,
        removing_replicas=removing,
        moves=_moves(reader, partitions, adding, removing),
    )


def _moves(
    reader: JsonReader,
    partitions: Mapping[int, Replicas],
    adding: Mapping[int, Replicas],
    removing: Mapping[int, Replicas],
) -> dict[int, ReassignmentProgress]:
    """The moves in our own field, and those that were requested only through KIP-455's maps."""
    value = reader.fields.get("moves", {})
    if not isinstance(value, dict):
        raise reader.fail("moves", "not a JSON object")
    moves: dict[int, ReassignmentProgress] = {}
    names = {str(partition) for partition in partitions} if value else set()
    for key, item in value.items():
        if key not in names:
            raise reader.fail("moves", f"{key!r} is not a partition of the topic")
        entry = JsonReader(reader.path, item, f"moves.{key}.")
        moves_leader = entry.fields.get("moves_leader", False)
        if not isinstance(moves_leader, bool):
            raise entry.fail("moves_leader", "not a boolean")
        moves[int(key)] = ReassignmentProgress(
            target=entry.replicas("target"),
            origin=entry.replicas("origin"),
            step=entry.replicas("step") if "step" in entry.fields else (),
            dropping=entry.replicas("dropping") if "dropping" in entry.fields else (),
            moves_leader=moves_leader,
            throttle=entry.integer("throttle", 0, INT64_MAX, 0),
        )
    for partition in sorted((adding.keys() | removing.keys()) & partitions.keys() - moves.keys()):
        replicas, leaving = partitions[partition], removing.get(partition, ())
        coming = adding.get(partition, ())
        target = tuple(r for r in (*replicas, *(c for c in coming if c not in replicas)) if r not in leaving)
        origin = tuple(replica for replica in replicas if replica not in coming)
        if target and target != replicas:
            moves[partition] = ReassignmentProgress(target, origin or replicas)
    return dict(sorted(moves.items()))


def encode_partition_state(state: LeaderAndIsr) -> bytes:
    """/brokers/topics/T/partitions/P/state. The partition epoch is the znode's version, hence not in the value.

    The eligible leader replicas carry the version that this write makes, because they hold for this very value. Any other
    write over it (by an older node, or by hand) makes them void (ADR 16).
    """
    value: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "controller_epoch": state.controller_epoch,
    }
    if state.elr or state.last_known_elr:
        value["elr"] = list(state.elr)
        value["last_known_elr"] = list(state.last_known_elr)
        value["elr_at"] = state.partition_epoch + 1
    return write(value)


def decode_partition_state(data: bytes, zk_version: int, path: str = "") -> LeaderAndIsr:
    """Leader and ISR; `zk_version` is the znode's version. Raises ZnodeError, also if LeaderAndIsr's invariants break."""
    reader = read(data, path)
    reader.version()
    isr = reader.replicas("isr")
    leader = BrokerId(reader.integer("leader", -1, INT32_MAX))
    if leader != -1 and leader not in isr:
        raise reader.fail("leader", f"{leader} is not in the ISR")
    elr, last_known_elr = _eligible(reader, isr, zk_version)
    return LeaderAndIsr(
        leader=leader,
        leader_epoch=LeaderEpoch(reader.integer("leader_epoch", 0, INT32_MAX)),
        isr=isr,
        controller_epoch=ControllerEpoch(reader.integer("controller_epoch", 0, INT32_MAX)),
        partition_epoch=PartitionEpoch(zk_version),
        elr=elr,
        last_known_elr=last_known_elr,
    )


def _eligible(reader: JsonReader, isr: Replicas, zk_version: int) -> tuple[Replicas, Replicas]:
    """The eligible leader replicas and the last known ones. A list that cannot be used is void."""
    if reader.fields.get("elr_at") != zk_version:
        return (), ()
    found: list[Replicas] = []
    for name in ("elr", "last_known_elr"):
        members = reader.fields.get(name, [])
        if not isinstance(members, list) or any(type(each) is not int or each < 0 for each in members):
            return (), ()
        found.append(tuple(dict.fromkeys(BrokerId(each) for each in members if each not in isr)))
    return found[0], tuple(each for each in found[1] if each not in found[0])


def encode_vanished_topic(topic: str, states: Mapping[int, LeaderAndIsr], since: BrokerEpoch) -> bytes:
    """/admin/vanished_topics/ID: the states as their znodes had them, and the newest broker epoch of that time."""
    values = {str(number): parse(encode_partition_state(states[number]), "") for number in sorted(states)}
    return write({"version": 1, "topic": topic, "since": since, "states": values})


def decode_vanished_topic(data: bytes, path: str = "") -> tuple[str, dict[int, LeaderAndIsr], BrokerEpoch]:
    """The topic's name, its states, with version 0, and the broker epoch. Raises ZnodeError."""
    reader = read(data, path)
    reader.version()
    values = JsonReader(path, reader.fields.get("states"), "states.")
    if any(not name.isdigit() or len(name) > 9 for name in values.fields):
        raise reader.fail("states", "not numbers of partitions")
    states = {int(name): decode_partition_state(write(value), 0, path) for name, value in values.fields.items()}
    return reader.text("topic"), states, BrokerEpoch(reader.integer("since", 0, INT64_MAX))


# --- settings, producer ids --------------------------------------------------------------------------------------


def encode_config(settings: Mapping[str, str]) -> bytes:
    """/config/<type>/<name>."""
    return write({"version": 1, "config": dict(sorted(settings.items()))})


def decode_config(data: bytes, path: str = "") -> dict[str, str]:
    """An entity's settings, sorted by key; an empty znode has none. Raises ZnodeError."""
    if not data:
        return {}
    reader = read(data, path)
    config = reader.fields.get("config")
    if not isinstance(config, dict):
        raise reader.fail("config", "not a JSON object")
    for key, value in config.items():
        if not isinstance(value, str):
            raise reader.fail(f"config.{key}", "not a string")
    return dict(sorted(config.items()))


def encode_config_change(entity_type: str, entity_name: str) -> bytes:
    """/config/changes/config_change_N: which entity to read again."""
    return write({"version": 2, "entity_path": f"{entity_type}/{entity_name}"})


def decode_config_change(data: bytes, path: str = "") -> tuple[str, str]:
    """(entity type, entity name); versions 1 and 2; users/U/clients/C is (users, U/clients/C). Raises ZnodeError."""
    reader = read(data, path)
    if reader.version(1, 2) == 1:
        return reader.text("entity_type"), reader.text("entity_name")
    entity_type, separator, entity_name = reader.text("entity_path").partition("/")
    user, clients, client = entity_name.partition("/clients/")
    is_nested = entity_type == "users" and bool(clients and user and client) and "/" not in user + client
    if not separator or not entity_type or not entity_name or ("/" in entity_name and not is_nested):
        raise reader.fail("entity_path", "not <type>/<name>")
    return entity_type, entity_name


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """/latest_producer_id_block. Kafka writes the ends as text."""
    return write(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes, path: str = "/latest_producer_id_block") -> ProducerIdBlock:
    """The newest block. Raises ZnodeError."""
    reader = read(data, path)
    reader.version()
    ends: list[int] = []
    for name in ("block_start", "block_end"):
        text = reader.text(name)
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > INT64_MAX:
            raise reader.fail(name, "not an integer")
        ends.append(int(text))
    if ends[1] < ends[0]:
        raise reader.fail("block_end", "before block_start")
    return ProducerIdBlock(BrokerId(reader.integer("broker", -1, INT32_MAX)), ends[0], ends[1])
