"""What the znodes of requests hold: reassignments, elections, topics and partitions to add and remove, restarts. Pure.

Decoded as `znode_json` says: a request that cannot be used is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkalite.coordination import paths
from kafkalite.coordination.znode_json import (
    INT32_MAX,
    INT64_MAX,
    JsonReader,
    ZnodeError,
    parse,
    read,
    replica_list,
    write,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Replicas, TopicPartition

#: KIP-435's three limits for one request: replicas at once per partition, partitions, leader movements; 0 none.
RequestLimits = tuple[int, int, int]
NO_LIMITS: RequestLimits = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class PartitionRemoval:
    """/admin/partitions_remove/T/P. `replicas`: who had it, written when it has left the topic (invariant C20)."""

    drain: bool = False
    replicas: Replicas = ()


@dataclass(frozen=True, slots=True)
class Election:
    """/admin/preferred_replica_election; `unclean` elects replicas that are not in sync where nobody else is alive."""

    partitions: tuple[TopicPartition, ...]
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """/restart_partitions/req-N: a broker asks to restart its replicas of these partitions (KIP-18).

    `online`: they are sound again (ours; absent in KIP-18): the controller may let them lead.
    """

    broker_id: BrokerId
    partitions: tuple[TopicPartition, ...]
    online: bool = False


def encode_reassignment(
    targets: Mapping[TopicPartition, Sequence[BrokerId]],
    throttles: Mapping[TopicPartition, int] | None = None,
    limits: RequestLimits = NO_LIMITS,
) -> bytes:
    """/admin/reassign_partitions. No replicas: call it off. `throttles` in bytes/s and `limits` are ours, beside Kafka's
    fields; the limits end with the request, when its last entry is taken out."""
    items: list[dict[str, object]] = []
    for each in sorted(targets):
        item: dict[str, object] = {"topic": each.topic, "partition": each.partition, "replicas": list(targets[each])}
        if throttles and throttles.get(each):
            item["throttle"] = throttles[each]
        items.append(item)
    return write({"version": 1, "partitions": items, **({"limits": list(limits)} if any(limits) else {})})


def decode_request_limits(data: bytes) -> RequestLimits:
    """The limits of a request that `decode_reassignment` accepts; a value that cannot be a limit is left out, without an error."""
    found = read(data, "/admin/reassign_partitions").fields.get("limits")
    if not isinstance(found, list) or len(found) != 3:
        return NO_LIMITS
    replicas, partitions, movements = (each if type(each) is int and each > 0 else 0 for each in found)
    return replicas, partitions, movements


def decode_reassignment(data: bytes) -> dict[TopicPartition, Replicas]:
    """Partition -> target replicas, in the order given; () calls a reassignment off (null or an empty list).

    Raises ZnodeError, also if a partition is there twice.
    """
    reader = read(data, paths.REASSIGN_PARTITIONS)
    reader.version()
    targets: dict[TopicPartition, Replicas] = {}
    for index, item in enumerate(reader.items("partitions")):
        entry = JsonReader(paths.REASSIGN_PARTITIONS, item, f"partitions[{index}].")
        partition = entry.topic_partition()
        if partition in targets:
            raise entry.fail("partition", f"{partition} occurs twice")
        is_cancel = "replicas" in entry.fields and entry.fields["replicas"] in (None, [])
        targets[partition] = () if is_cancel else entry.replicas("replicas")
    return targets


def decode_throttles(data: bytes) -> dict[TopicPartition, int]:
    """Bytes/s by partition, of a request that `decode_reassignment` accepts; 0 or absent: none. Never raises for those."""
    reader = read(data, paths.REASSIGN_PARTITIONS)
    throttles: dict[TopicPartition, int] = {}
    for item in reader.items("partitions"):
        entry = JsonReader(reader.path, item)
        value = entry.fields.get("throttle", 0)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            throttles[entry.topic_partition()] = min(value, INT64_MAX)
    return throttles


def encode_preferred_election(partitions: Iterable[TopicPartition], *, unclean: bool = False) -> bytes:
    """/admin/preferred_replica_election."""
    items = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    value: dict[str, object] = {"version": 1, "partitions": items}
    if unclean:
        value["unclean"] = True
    return write(value)


def decode_preferred_election(data: bytes) -> Election:
    """The partitions, each once, in the order given. Raises ZnodeError."""
    reader = read(data, paths.PREFERRED_REPLICA_ELECTION)
    reader.version()
    partitions = [
        JsonReader(paths.PREFERRED_REPLICA_ELECTION, item, f"partitions[{index}].").topic_partition()
        for index, item in enumerate(reader.items("partitions"))
    ]
    unclean = reader.fields.get("unclean", False)
    if not isinstance(unclean, bool):
        raise reader.fail("unclean", "not a boolean")
    return Election(tuple(dict.fromkeys(partitions)), unclean)


def encode_delete_topics(topics: Iterable[str]) -> bytes:
    """/admin/delete_topics."""
    return write({"version": 1, "topics": list(topics)})


def decode_delete_topics(data: bytes) -> tuple[str, ...]:
    """The topics, each once, in the order given; none if it is empty, as Kafka's tools make it (their requests are znodes below
    it). Raises ZnodeError."""
    if not data:
        return ()
    reader = read(data, paths.DELETE_TOPICS)
    reader.version()
    topics: list[str] = []
    for name in reader.items("topics"):
        if not isinstance(name, str) or not name:
            raise reader.fail("topics", "not a list of names")
        topics.append(name)
    return tuple(dict.fromkeys(topics))


def encode_deleted_topic(topic: str, replicas: Iterable[tuple[int, BrokerId]]) -> bytes:
    """/admin/deleted_topics/ID: (partition, broker) of replicas that are still to be removed."""
    by_partition: dict[str, list[BrokerId]] = {}
    for partition, broker in sorted(replicas):
        by_partition.setdefault(str(partition), []).append(broker)
    return write({"version": 1, "topic": topic, "replicas": by_partition})


def decode_deleted_topic(data: bytes, path: str = "") -> tuple[str, frozenset[tuple[int, BrokerId]]]:
    """The topic's name, and what is still to be removed. Raises ZnodeError."""
    reader = read(data, path)
    reader.version()
    replicas = reader.replica_map("replicas", required=True)
    return reader.text("topic"), frozenset((number, broker) for number, each in replicas.items() for broker in each)


def encode_partition_add(replicas: Sequence[BrokerId]) -> bytes:
    """/admin/partitions_add/T/P: the replica list."""
    return write(list(replicas))


def decode_partition_add(data: bytes, path: str = "") -> Replicas:
    """The new partition's replicas. Raises ZnodeError."""
    return replica_list(parse(data, path), lambda reason: ZnodeError(path, reason))


def encode_partition_remove(removal: PartitionRemoval) -> bytes:
    """/admin/partitions_remove/T/P: empty, unless the partition is to be drained first."""
    if not removal.drain and not removal.replicas:
        return b""
    value: dict[str, object] = {"version": 1, "drain": removal.drain}
    if removal.replicas:
        value["replicas"] = list(removal.replicas)
    return write(value)


def decode_partition_remove(data: bytes, path: str = "") -> PartitionRemoval:
    """The request, and how far it has come. Raises ZnodeError."""
    if not data:
        return PartitionRemoval()
    reader = read(data, path)
    drain = reader.fields.get("drain", False)
    if not isinstance(drain, bool):
        raise reader.fail("drain", "not a boolean")
    return PartitionRemoval(drain, reader.replicas("replicas") if "replicas" in reader.fields else ())


def encode_restart_request(request: RestartRequest) -> bytes:
    """/restart_partitions/req-N."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in request.partitions:
        by_topic.setdefault(topic, []).append(partition)
    items = [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic.items()]
    value: dict[str, object] = {"version": 1, "broker": request.broker_id, "partitions": items}
    if request.online:
        value["online"] = True
    return write(value)


def decode_restart_request(data: bytes, path: str = "") -> RestartRequest:
    """A broker's request. Raises ZnodeError."""
    reader = read(data, path)
    reader.version()
    broker = BrokerId(reader.integer("broker", 0, INT32_MAX))
    partitions: list[TopicPartition] = []
    for index, item in enumerate(reader.items("partitions")):
        entry = JsonReader(path, item, f"partitions[{index}].")
        topic = entry.topic_name()
        partitions += [TopicPartition(topic, number) for number in entry.integers("partitions")]
    online = reader.fields.get("online", False)
    if not isinstance(online, bool):
        raise reader.fail("online", "not a boolean")
    return RestartRequest(broker, tuple(dict.fromkeys(partitions)), online)
