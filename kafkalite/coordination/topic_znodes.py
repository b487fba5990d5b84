"""/brokers/topics: a topic's assignment and reassignments, its partitions' states, and topics that vanished. Pure.

What the decoders raise, and when: `znode_json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from kafkalite.coordination.paths import decimal
from kafkalite.coordination.znode_json import INT32_MAX, INT64_MAX, JsonReader, parse, read, write
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    Replicas,
    TopicId,
)

#: Bytes of topics' znodes that are read or written as JSON in one turn of the loop.
BYTES_AT_ONCE = 16 * 1024


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

    `moves` is ours: what KIP-455's two maps cannot hold (the order of the target, the step of KIP-435 under way).
    """

    topic_id: TopicId
    partitions: Mapping[int, Replicas]
    adding_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    removing_replicas: Mapping[int, Replicas] = field(default_factory=dict)
    moves: Mapping[int, ReassignmentProgress] = field(default_factory=dict)


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
    """/brokers/topics/T/partitions/P/state. The partition epoch is the znode's version, so it is not in the value.

    The eligible leader replicas carry the version that this write makes, because they hold for this very value. Any other
    write over it (by an older node, or by hand) makes them void (ADR 16). A znode that was created again with this value has version 0.
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
    if reader.fields.get("elr_at") != zk_version and zk_version > 0:
        return (), ()
    found: list[Replicas] = []
    for name in ("elr", "last_known_elr"):
        members = reader.fields.get(name, [])
        if not isinstance(members, list) or any(
            type(each) is not int or not 0 <= each <= INT32_MAX for each in members
        ):
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
    if any(decimal(name) is None for name in values.fields):
        raise reader.fail("states", "not numbers of partitions")
    states = {int(name): decode_partition_state(write(value), 0, path) for name, value in values.fields.items()}
    return reader.text("topic"), states, BrokerEpoch(reader.integer("since", 0, INT64_MAX))
