"""Random sequences of requests about share groups (KIP-932; `same_walks` has the others)."""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from kafkalite.protocol import wire
from kafkalite.record.batch import split_batches

from .same_answers import Side, record_batch
from .same_requests import create_topic, member_uuid, produce, producer
from .same_walks import complete_transaction

_GROUP_RESOURCE = 32
_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = 0, 1, 2, 3, 4
_CONTROL = 0x20
_HEARTBEAT = wire.ShareGroupHeartbeatRequest
_FETCH = wire.ShareFetchRequest
_ACKNOWLEDGE = wire.ShareAcknowledgeRequest


@dataclass
class _Member:
    """What a client knows about itself."""

    number: int
    epoch: int = 0
    #: The next epoch of its share session; 0 if it has none.
    session: int = 0
    acquired: set[tuple[bytes, int, int]] = field(default_factory=set)

    @property
    def name(self) -> str:
        return member_uuid(self.number)

    @property
    def connection(self) -> str:
        return f"c{self.number}"


async def configure(s: Side, group: str, label: str = "", **values: str | None) -> None:
    r = wire.IncrementalAlterConfigsRequest
    changes = [r.AlterableConfig(key.replace("_", "."), 0 if value else 1, value) for key, value in values.items()]
    message = r([r.AlterConfigsResource(_GROUP_RESOURCE, group, changes)], False)
    await s.ask(message, 1, label, traced=bool(label))


async def _assigned(s: Side, group: str, member: _Member, topics: list[str], partitions: int) -> bool:
    """Joins, and waits until all partitions are assigned: the states of them are begun."""
    s.alias(member.name, f"member {member.number}")
    answer = await s.ask(_HEARTBEAT(group, member.name, 0, None, topics), 1, traced=False)
    for _ in range(200):
        if answer is None or answer.error_code:
            return False
        member.epoch = answer.member_epoch
        given = answer.assignment.topic_partitions if answer.assignment is not None else []
        if sum(len(each.partitions) for each in given) >= partitions:
            return True
        await asyncio.sleep(0.03)
        answer = await s.ask(_HEARTBEAT(group, member.name, member.epoch, None, topics), 1, traced=False)
    return False


def fetch(group: str, member: _Member, epoch: int, topics: dict[bytes, dict[int, list[Any]]], **other: Any) -> Any:
    asked = [
        _FETCH.FetchTopic(topic_id, [_FETCH.FetchPartition(partition, acks) for partition, acks in found.items()])
        for topic_id, found in topics.items()
    ]
    forgotten = [_FETCH.ForgottenTopic(topic_id, found) for topic_id, found in other.get("forgotten", {}).items()]
    return _FETCH(
        group, member.name, epoch, other.get("max_wait_ms", 60), 1, other.get("max_bytes", 1_000_000),
        other.get("max_records", 500), other.get("batch_size", 500), other.get("mode", 0), other.get("is_renew", False),
        asked, forgotten,
    )  # fmt: skip


def acknowledge(
    group: str, member: _Member, epoch: int, topics: dict[bytes, dict[int, list[Any]]], *, is_renew: bool = False
) -> Any:
    asked = [
        _ACKNOWLEDGE.AcknowledgeTopic(
            topic_id, [_ACKNOWLEDGE.AcknowledgePartition(partition, acks) for partition, acks in found.items()]
        )
        for topic_id, found in topics.items()
    ]
    return _ACKNOWLEDGE(group, member.name, epoch, is_renew, asked)


def _comparable(shown: Any, hidden: Collection[int] = ()) -> None:
    """How the acquired records are cut into ranges is the broker's business: one element for each record.

    Nor is the leader told that is not asked for (no other leader is -1; Kafka writes 0).
    """
    if not isinstance(shown, dict):
        return
    for topic in shown["responses"]:
        if "acquired_records" in str(topic):
            # Whether a partition is listed about which there is nothing to say.
            topic["partitions"] = [
                each
                for each in topic["partitions"]
                if each["error_code"] or each["acknowledge_error_code"] or each["acquired_records"]
            ]
    shown["responses"] = [each for each in shown["responses"] if each["partitions"]]
    for topic in shown["responses"]:
        for partition in topic["partitions"]:
            partition.pop("current_leader", None)
            partition.pop("acknowledge_error_message", None)
            if "acquired_records" in partition:
                partition["acquired_records"] = [
                    f"{offset} for the {each['delivery_count']}. time"
                    for each in sorted(partition["acquired_records"], key=lambda one: one["first_offset"])
                    for offset in range(each["first_offset"], each["last_offset"] + 1)
                    if offset not in hidden
                ]
                partition["records"] = bool(partition["acquired_records"])


def _markers(answer: Any) -> dict[tuple[bytes, int], list[int]]:
    """Offsets of control records that were acquired; they are not handed out here (docs/kafka-protocol.md)."""
    found = {}
    for topic in answer.responses:
        for partition in topic.partitions:
            offsets = {
                header.base_offset
                for _, header in split_batches(bytes(partition.records or b""))
                if header.attributes & _CONTROL
            }
            acquired = [
                offset
                for each in partition.acquired_records
                for offset in range(each.first_offset, each.last_offset + 1)
                if offset in offsets
            ]
            if acquired:
                found[bytes(topic.topic_id), partition.partition_index] = acquired
    return found


class _Group:
    """Two members of a share group, and what they do."""

    def __init__(self, s: Side, group: str) -> None:
        self.s = s
        self.group = group
        self.members = [_Member(1), _Member(2)]
        #: The highest offset that was delivered, and the lowest that is not deleted.
        self.delivered = 0
        self.start = 0

    async def fetch(self, member: _Member, topics: dict[bytes, dict[int, list[Any]]], label: str, **other: Any) -> Any:
        s = self.s
        epoch = other.pop("epoch", member.session)
        version = other.pop("version", 2)
        is_again = other.pop("is_again", False)
        is_wrong = other.pop("is_wrong", False)
        message = fetch(self.group, member, epoch, topics, **other)
        answer = await s.ask(message, version, label, connection=member.connection)
        markers = {} if answer is None or answer.error_code else _markers(answer)
        _comparable(s.trace[-1].answer, {offset for found in markers.values() for offset in found})
        if answer is None or answer.error_code or is_wrong:
            return answer
        if epoch == -1:
            member.session, member.acquired = 0, set()
            return answer
        if epoch == 0:
            member.acquired = set()
        member.session = epoch + 1
        for topic in answer.responses:
            for partition in topic.partitions:
                for each in partition.acquired_records:
                    for offset in range(each.first_offset, each.last_offset + 1):
                        if offset not in markers.get((bytes(topic.topic_id), partition.partition_index), ()):
                            self.delivered = max(self.delivered, offset)
                        member.acquired.add((bytes(topic.topic_id), partition.partition_index, offset))
        if epoch >= 0 and not is_again and not s.trace[-1].answer["responses"]:
            # Kafka notices only with a fetch that records were deleted, and reads with the next one.
            s.trace.pop()
            return await self.fetch(member, {}, label, **other, version=version, is_again=True)
        if markers:
            gaps: dict[bytes, dict[int, list[Any]]] = {}
            for (topic_id, partition), offsets in markers.items():
                member.acquired -= {(topic_id, partition, offset) for offset in offsets}
                batches = [_ACKNOWLEDGE.AcknowledgementBatch(each, each, [_GAP]) for each in offsets]
                gaps.setdefault(topic_id, {})[partition] = batches
            message = acknowledge(self.group, member, member.session, gaps)
            await s.ask(message, 2, connection=member.connection, traced=False)
            member.session += 1
            if not any(
                partition["acquired_records"]
                for topic in s.trace[-1].answer["responses"]
                for partition in topic["partitions"]
            ):
                s.trace.pop()
                return await self.fetch(member, {}, label, **other, version=version)
        return answer

    async def acknowledge(
        self, member: _Member, topics: dict[bytes, dict[int, list[Any]]], label: str, **other: Any
    ) -> Any:
        epoch = other.get("epoch", member.session)
        message = acknowledge(self.group, member, epoch, topics, is_renew=other.get("is_renew", False))
        answer = await self.s.ask(message, other.get("version", 2), label, connection=member.connection)
        _comparable(self.s.trace[-1].answer)
        if answer is None or answer.error_code:
            return answer
        if epoch == -1:
            member.session, member.acquired = 0, set()
        elif epoch == member.session:
            member.session += 1
        return answer

    async def everything(self, member: _Member, partitions: list[tuple[bytes, int]]) -> None:
        """What a member gets if it fetches until nothing is left. After a release, Kafka may first deliver later records."""
        s = self.s
        topics: dict[bytes, dict[int, list[Any]]] = {}
        for topic_id, partition in partitions:
            topics.setdefault(topic_id, {})[partition] = []
        member.session, empty, before = 0, 0, len(s.trace)
        seen: dict[str, list[str]] = {}
        while empty < 2 and len(s.trace) < before + 60:
            answer = await self.fetch(member, {} if member.session else topics, "", is_again=True)
            if answer is None or answer.error_code:
                break
            found = [each for topic in s.trace[-1].answer["responses"] for each in topic["partitions"]]
            empty = 0 if found else empty + 1
            for topic in s.trace[-1].answer["responses"]:
                for each in topic["partitions"]:
                    at = f"{topic['topic_id']} {each['partition_index']}"
                    seen.setdefault(at, []).extend(each["acquired_records"] or [str(each["error_code"])])
        del s.trace[before:]
        s.note("everything", str(sorted((at, sorted(each)) for at, each in seen.items())))

    async def offsets(self, name: str, partitions: list[int], label: str) -> None:
        d = wire.DescribeShareGroupOffsetsRequest
        asked = d.DescribeShareGroupOffsetsRequestTopic(name, partitions)
        await self.s.ask(d([d.DescribeShareGroupOffsetsRequestGroup(self.group, [asked])]), 1, label)

    async def describe(self, label: str) -> None:
        seen = await self.s.ask(wire.ShareGroupDescribeRequest([self.group], False), 1, traced=False)
        found = [
            (
                each.error_code,
                each.group_state,
                each.assignor_name,
                sorted((self.s.names.get(m.member_id), sorted(m.subscribed_topic_names)) for m in each.members),
            )
            for each in seen.groups
        ]
        self.s.note(label, str(found).replace(self.s.tag, "@"))


def _acknowledgements(s: Side, batch: Any, member: _Member, other: _Member, topic_id: bytes, at: int, g: _Group) -> list[Any]:  # fmt: skip
    """Mostly of what the member has; sometimes wrong. What is good is acquired no longer."""
    mine = sorted(offset for topic, partition, offset in member.acquired if (topic, partition) == (topic_id, at))
    wrong = s.source.random()
    kinds = (_ACCEPT, _ACCEPT, _RELEASE, _REJECT)
    if wrong < 0.25 or not mine:
        # Not of records that were never delivered (docs/kafka-protocol.md, Share groups), nor of offsets below 0,
        # nor of those that were deleted: Kafka says so if it has others of the same batch.
        if g.delivered < g.start:
            return [batch(g.start, g.start, [])]
        first = s.source.randrange(g.start, g.delivered + 1)
        others = sorted(offset for topic, partition, offset in other.acquired if (topic, partition) == (topic_id, at))
        what = s.source.randrange(8)
        if what == 0 and others:
            return [batch(others[0], others[0], [_ACCEPT])]
        if what == 1:
            return [batch(first, first + 1, [_ACCEPT, _ACCEPT, _ACCEPT])]
        if what == 2:
            return [batch(first, first, [])]
        if what == 3:
            return [batch(first + 1, first, [_ACCEPT])]
        if what == 4:
            return [batch(first, first, [s.source.choice((5, -1, 9))])]
        if what == 5:
            return [batch(first + 4, first + 4, [_ACCEPT]), batch(first, first, [_ACCEPT])]
        return [batch(first, min(g.delivered, first + s.source.choice((0, 1, 5))), [_ACCEPT])]
    first = s.source.randrange(len(mine)) if s.source.random() < 0.5 else 0
    last = first
    while last + 1 < len(mine) and mine[last + 1] == mine[last] + 1 and s.source.random() < 0.8:
        last += 1
    count = mine[last] - mine[first] + 1
    if s.source.random() < 0.5:
        types = [s.source.choice(kinds)]
    else:
        types = [s.source.choice(kinds) for _ in range(count)]
    member.acquired -= {(topic_id, at, offset) for offset in range(mine[first], mine[last] + 1)}
    return [batch(mine[first], mine[last], types)]


async def share_records(s: Side) -> None:
    """Two members fetch and acknowledge the records of one partition."""
    g = _Group(s, f"s{s.tag}")
    name, topic_id = await create_topic(s, partitions=1)
    isolation = s.source.choice(("read_committed", "read_uncommitted"))
    await configure(s, g.group, share_auto_offset_reset="earliest", share_isolation_level=isolation)
    for each in g.members:
        s.note("assigned", await _assigned(s, g.group, each, [name], 1))
    transaction = f"x{s.tag}"
    has_transactions = s.source.random() < 0.5
    who = await producer(s, transaction)
    for each in g.members:
        # The partition is read the first time: nothing is there yet.
        await g.fetch(each, {topic_id: {0: []}}, "first", max_wait_ms=400)
    steps = s.source
    for step in range(16):
        # What one step draws does not move the next ones.
        s.source = random.Random(steps.getrandbits(32))
        what = s.source.choice(("produce", "produce", "transaction", "fetch", "fetch", "fetch", "fetch with acks", "acknowledge", "acknowledge", "acknowledge",
                                "renew", "close", "acknowledge close", "wrong epoch", "delete records", "offsets", "alter", "isolation"))  # fmt: skip
        number = s.source.randrange(2)
        member, other = g.members[number], g.members[1 - number]
        label = f"{step} {what} {member.number}"
        if what == "produce":
            values = [b"p%d" % step] * s.source.choice((1, 2, 5))
            await produce(s, name, 0, record_batch(*values))
        elif what == "transaction" and has_transactions:
            who = await _in_transaction(s, name, transaction, who, b"t%d" % step, is_committed=s.source.random() < 0.5)
        elif what == "fetch":
            limits = {} if has_transactions else _limits(s)
            epoch = 0 if member.session == 0 else member.session
            await g.fetch(member, {topic_id: {0: []}}, f"{label} {limits}", epoch=epoch, **limits)
        elif what == "fetch with acks" and member.session and not has_transactions:
            acks = _acknowledgements(s, _FETCH.AcknowledgementBatch, member, other, topic_id, 0, g)
            await g.fetch(member, {topic_id: {0: acks}}, f"{label} {_shown(acks)}")
        elif what == "acknowledge":
            acks = _acknowledgements(s, _ACKNOWLEDGE.AcknowledgementBatch, member, other, topic_id, 0, g)
            await g.acknowledge(
                member, {topic_id: {0: acks}}, f"{label} {_shown(acks)}", version=s.source.choice((1, 2))
            )
        elif what == "renew":
            mine = sorted(offset for _, _, offset in member.acquired)
            first = mine[0] if mine else g.start
            last = max(first, min(g.delivered, first + s.source.choice((0, 0, 1))))
            acks = [_ACKNOWLEDGE.AcknowledgementBatch(first, last, [_RENEW])]
            is_renew = s.source.random() < 0.8
            await g.acknowledge(member, {topic_id: {0: acks}}, f"{label} {_shown(acks)}", is_renew=is_renew)
        elif what == "close" and member.session:
            acks = (
                _acknowledgements(s, _FETCH.AcknowledgementBatch, member, other, topic_id, 0, g)
                if s.source.random() < 0.5
                else []
            )
            await g.fetch(member, {topic_id: {0: acks}} if acks else {}, f"{label} {_shown(acks)}", epoch=-1)
        elif what == "acknowledge close" and member.session:
            acks = _acknowledgements(s, _ACKNOWLEDGE.AcknowledgementBatch, member, other, topic_id, 0, g)
            await g.acknowledge(member, {topic_id: {0: acks}}, f"{label} {_shown(acks)}", epoch=-1)
        elif what == "wrong epoch":
            at = member.session + s.source.choice((-1, 1, 5))
            if at > 0:
                if s.source.random() < 0.5:
                    await s.ask(fetch(g.group, member, at, {topic_id: {0: []}}), 2, label, connection=member.connection)
                    _comparable(s.trace[-1].answer)
                else:
                    await s.ask(acknowledge(g.group, member, at, {}), 2, label, connection=member.connection)
        elif what == "delete records":
            d = wire.DeleteRecordsRequest
            at = s.source.choice((-1, 1, 3, 6))
            answer = await s.ask(d([d.DeleteRecordsTopic(name, [d.DeleteRecordsPartition(0, at)])], 5_000), 1, label)
            g.start = max(g.start, answer.topics[0].partitions[0].low_watermark)
        elif what == "alter":
            r = wire.AlterShareGroupOffsetsRequest
            topic = r.AlterShareGroupOffsetsRequestTopic(name, [r.AlterShareGroupOffsetsRequestPartition(0, 2)])
            answer = await s.ask(r(g.group, [topic]), 0, traced=False)
            s.note(label, answer.error_code)
        elif what == "isolation" and s.source.random() < 0.3:
            await configure(
                s, g.group, label, share_isolation_level=s.source.choice(("read_committed", "read_uncommitted"))
            )
    for each in g.members:
        if each.session:
            await g.fetch(each, {}, "close", epoch=-1)
    await g.everything(g.members[0], [(topic_id, 0)])


def _shown(acks: list[Any]) -> str:
    return str([(each.first_offset, each.last_offset, each.acknowledge_types) for each in acks])


def _limits(s: Side) -> dict[str, Any]:
    if s.source.random() < 0.4:
        return {}
    return {
        "max_records": s.source.choice((1, 2, 3, 500)),
        "batch_size": s.source.choice((1, 2, 500)),
        "mode": s.source.choice((0, 0, 1)),
    }


async def _in_transaction(
    s: Side, name: str, transaction: str, who: tuple[int, int], value: bytes, *, is_committed: bool
) -> tuple[int, int]:
    batch = record_batch(value, value, producer_id=who[0], producer_epoch=who[1], base_sequence=0, transactional=True)
    r = wire.ProduceRequest
    data = r.TopicProduceData(name=name, partition_data=[r.PartitionProduceData(0, batch)])
    for _ in range(100):
        answer = await s.ask(r(transaction, -1, 5_000, [data]), 12, traced=False)
        if answer.responses[0].partition_responses[0].error_code == 0:
            break
        await asyncio.sleep(0.02)
    answer = await s.ask(wire.EndTxnRequest(transaction, *who, is_committed), 5, traced=False)
    await complete_transaction(s, transaction)
    return answer.producer_id, answer.producer_epoch


async def share_sessions(s: Side) -> None:
    """Sessions of two members over four partitions: what they list, forget, and say of others."""
    g = _Group(s, f"s{s.tag}")
    topics = [await create_topic(s, f"t{s.tag}-{number}", partitions=2) for number in range(2)]
    names, ids = [name for name, _ in topics], [topic_id for _, topic_id in topics]
    await configure(s, g.group, share_auto_offset_reset="earliest")
    #: It has all partitions in its session, so that each stays loaded.
    keeper = _Member(3)
    for each in (*g.members, keeper):
        s.note("assigned", await _assigned(s, g.group, each, names, 4 if each.number == 1 else 1))
    is_moved = False
    every: dict[bytes, dict[int, list[Any]]] = {topic_id: {0: [], 1: []} for topic_id in ids}
    await g.fetch(keeper, every, "keeper", max_wait_ms=400)
    steps = s.source
    for step in range(16):
        s.source = random.Random(steps.getrandbits(32))
        what = s.source.choice(("produce", "produce", "open", "next", "next", "next", "forget", "acknowledge", "acknowledge", "acknowledge close", "close",
                                "wrong epoch", "unknown partition", "not listed", "other connection", "drop", "nobody", "no group"))  # fmt: skip
        number = s.source.randrange(2)
        member = g.members[number]
        label = f"{step} {what} {member.number}"
        listed: dict[bytes, dict[int, list[Any]]] = {
            each: {at: [] for at in (0, 1) if s.source.random() < 0.5} for each in ids if s.source.random() < 0.6
        }
        asked: dict[bytes, dict[int, list[Any]]] = {each: found for each, found in listed.items() if found}
        if what == "produce":
            await produce(s, s.source.choice(names), s.source.randrange(2), record_batch(b"p%d" % step, b"q"))
        elif what == "open":
            await g.fetch(member, asked, label, epoch=0)
        elif what == "next" and member.session:
            await g.fetch(member, asked, label)
        elif what == "forget" and member.session:
            await g.fetch(member, {}, label, forgotten={s.source.choice(ids): [s.source.randrange(3)]})
        elif what in ("acknowledge", "acknowledge close", "not listed") and member.session:
            acks: dict[bytes, dict[int, list[Any]]] = {}
            for topic_id, partition, offset in sorted(member.acquired):
                if s.source.random() < 0.5:
                    kind = s.source.choice((_ACCEPT, _RELEASE, _REJECT))
                    batch = _ACKNOWLEDGE.AcknowledgementBatch(offset, offset, [kind])
                    acks.setdefault(topic_id, {}).setdefault(partition, []).append(batch)
                    member.acquired.discard((topic_id, partition, offset))
            if what == "not listed":
                batch = _ACKNOWLEDGE.AcknowledgementBatch(0, 0, [_ACCEPT])
                acks = {ids[0]: {s.source.choice((0, 1, 9)): [batch]}}
            await g.acknowledge(member, acks, label, **({"epoch": -1} if what == "acknowledge close" else {}))
        elif what == "close":
            await g.fetch(member, {} if s.source.random() < 0.7 else asked, label, epoch=-1)
        elif what == "wrong epoch":
            at = member.session + s.source.choice((-1, 1, 7))
            if at > 0:
                await g.fetch(member, asked, label, epoch=at, is_wrong=True)
        elif what == "unknown partition" and member.session:
            await g.fetch(member, {ids[0]: {7: []}}, label)
        elif what == "other connection" and member.session:
            message = fetch(g.group, member, member.session, asked)
            await s.ask(message, 2, label, connection=f"c{3 - member.number}")
            _comparable(s.trace[-1].answer)
            member.session += 1
            is_moved = True
        elif what == "drop" and not is_moved:
            # A session follows its member to another connection here; in Kafka it ends with the first one.
            s.drop(member.connection)
            member.session, member.acquired = 0, set()
            await asyncio.sleep(0.1)
        elif what == "nobody":
            await s.ask(fetch(g.group, _Member(5), s.source.choice((-1, 1, 4)), asked), 2, label)
        elif what == "no group":
            await s.ask(fetch("nope" + s.tag, _Member(5), s.source.choice((-1, 2)), asked), 2, label)
            _comparable(s.trace[-1].answer)
    for each in g.members:
        if each.session:
            await g.fetch(each, {}, f"close {each.number}", epoch=-1)
    await g.everything(g.members[0], [(topic_id, partition) for topic_id in ids for partition in (0, 1)])


async def share_offsets(s: Side) -> None:
    """Members come and go; offsets of the group are altered and deleted, settings change, topics go and come back."""
    g = _Group(s, f"s{s.tag}")
    topics = [await create_topic(s, f"t{s.tag}-{number}", partitions=1, records=4) for number in range(2)]
    wanted = [topics[0][0]]
    await configure(s, g.group, share_auto_offset_reset="earliest")
    present = {each.number: False for each in g.members}

    async def beat(member: _Member, epoch: int, label: str, names: list[str] | None = None) -> Any:
        s.alias(member.name, f"member {member.number}")
        answer = await s.ask(_HEARTBEAT(g.group, member.name, epoch, None, names), 1, traced=False)
        s.note(label, None if answer is None else (answer.error_code, min(answer.member_epoch, 1)))
        if answer is not None and answer.error_code == 0 and answer.member_epoch > 0:
            member.epoch = answer.member_epoch
        return answer

    async def settle(member: _Member, label: str) -> None:
        found = await _assigned(s, g.group, member, wanted, len({each for each in wanted if each != "nope"}))
        present[member.number] = found
        s.note(label, found)

    steps = s.source
    for step in range(14):
        s.source = random.Random(steps.getrandbits(32))
        what = s.source.choice(("join", "join", "read", "read", "read", "leave", "leave", "beat", "wrong epoch", "unknown member", "describe", "list", "alter", "alter", "alter",
                                "delete offsets", "delete offsets", "offsets", "delete group", "configure", "bad setting", "subscribe", "again", "classic", "produce"))  # fmt: skip
        member = g.members[s.source.randrange(2)]
        label = f"{step} {what} {member.number}"
        name, topic_id = topics[s.source.randrange(2)]
        if what == "join":
            await settle(member, label)
        elif what == "read" and present[member.number] and name in wanted:
            await _read_all(g, member, topic_id, label)
            await g.offsets(name, [0], label + " offsets")
            for group in s.trace[-1].answer["groups"]:
                for topic in group["topics"]:
                    for partition in topic["partitions"]:
                        # It moves with the acknowledgement; in Kafka a write later.
                        del partition["start_offset"]
        elif what == "leave":
            await beat(member, -1, label)
            present[member.number] = False
        elif what == "beat" and present[member.number]:
            await beat(member, member.epoch, label)
        elif what == "wrong epoch" and present[member.number]:
            await beat(member, member.epoch + s.source.choice((1, 9)), label)
        elif what == "unknown member":
            await beat(_Member(4), s.source.choice((1, 5, -1)), label)
        elif what == "describe":
            await g.describe(label)
        elif what == "list":
            seen = await s.ask(
                wire.ListGroupsRequest([], s.source.choice(([], ["share"], ["consumer"]))), 5, traced=False
            )
            found = [
                (each.group_state, each.group_type, each.protocol_type)
                for each in seen.groups
                if each.group_id == g.group
            ]
            s.note(label, str(found))
        elif what == "alter":
            r = wire.AlterShareGroupOffsetsRequest
            at = s.source.choice((0, 1, 2, 4, 4))
            partitions = [r.AlterShareGroupOffsetsRequestPartition(0, at)]
            if s.source.random() < 0.2:
                partitions.append(r.AlterShareGroupOffsetsRequestPartition(5, 0))
            answer = await s.ask(r(g.group, [r.AlterShareGroupOffsetsRequestTopic(name, partitions)]), 0, label)
            if answer.error_code:
                s.trace[-1].answer = answer.error_code
            elif len(partitions) == 1:
                await g.offsets(name, [0], label + " offsets")
        elif what == "delete offsets":
            k = wire.DeleteShareGroupOffsetsRequest
            gone = [k.DeleteShareGroupOffsetsRequestTopic(name)]
            if s.source.random() < 0.2:
                gone.append(k.DeleteShareGroupOffsetsRequestTopic("nope"))
            await s.ask(k(g.group, gone), 0, label)
        elif what == "delete group":
            await s.ask(wire.DeleteGroupsRequest([g.group]), 2, label)
        elif what == "configure":
            key, value = s.source.choice((
                ("share_record_lock_duration_ms", "20000"), ("share_delivery_count_limit", "3"), ("share_partition_max_record_locks", "300"),
                ("share_isolation_level", "read_committed"), ("share_auto_offset_reset", "earliest"), ("share_heartbeat_interval_ms", "5001"),
                ("share_session_timeout_ms", "46000"), ("share_renew_acknowledge_enable", "false"),
            ))  # fmt: skip
            await configure(s, g.group, label, **{key: value})
        elif what == "bad setting":
            key, value = s.source.choice((
                ("share_record_lock_duration_ms", "1"), ("share_delivery_count_limit", "1"), ("share_delivery_count_limit", "99"),
                ("share_isolation_level", "READ_COMMITTED"), ("share_isolation_level", "none"), ("share_auto_offset_reset", "none"),
                ("share_auto_offset_reset", "by_duration:-PT1H"), ("share_heartbeat_interval_ms", "1"), ("share_session_timeout_ms", "x"),
                ("share_nope", "1"), ("share_record_lock_duration_ms", "90000"), ("share_partition_max_record_locks", "1"),
                ("share_renew_acknowledge_enable", "maybe"), ("share_auto_offset_reset", "by_duration:PT1H"),
            ))  # fmt: skip
            await configure(s, g.group, f"{label} {key} {value}", **{key: value})
            await configure(s, g.group, share_auto_offset_reset="earliest", share_isolation_level=None)
        elif what == "subscribe" and present[member.number]:
            wanted = [name for name, _ in topics][: s.source.choice((1, 2))] + (
                ["nope"] if s.source.random() < 0.3 else []
            )
            for each in g.members:
                if present[each.number]:
                    await settle(each, f"{label}: {each.number}")
        elif what == "again" and not any(present.values()):
            d = wire.DeleteTopicsRequest
            await s.ask(d(topics=[d.DeleteTopicState(name=name)], timeout_ms=30_000), 6, traced=False)
            await asyncio.sleep(0.2)
            made = await create_topic(s, name, partitions=1, records=4)
            s.alias(made[1], "new id of " + name.replace(s.tag, "@"))
            topics = [made if each[0] == name else each for each in topics]
        elif what == "classic":
            j = wire.JoinGroupRequest
            message = j(
                g.group, 10_000, 3_000, "", None, "consumer", [j.JoinGroupRequestProtocol("range", b"\x00")], None
            )
            await s.ask(message, 3, label)
        elif what == "produce":
            await produce(s, name, 0, record_batch(b"p%d" % step))
    await g.describe("at the end")


async def _read_all(g: _Group, member: _Member, topic_id: bytes, label: str) -> None:
    """What is there, accepted."""
    before, seen = len(g.s.trace), []
    empty = 0
    while empty < 2 and len(g.s.trace) < before + 40:
        answer = await g.fetch(member, {topic_id: {0: []}}, label, epoch=member.session, is_again=True)
        if answer is None or answer.error_code:
            seen.append("closed" if answer is None else str(answer.error_code))
            break
        found = sorted(offset for topic, _, offset in member.acquired if topic == topic_id)
        seen += [
            str(each["acquired_records"] or each)
            for topic in g.s.trace[-1].answer["responses"]
            for each in topic["partitions"]
        ]
        empty = 0 if found else empty + 1
        if found:
            batches = [_ACKNOWLEDGE.AcknowledgementBatch(each, each, [_ACCEPT]) for each in found]
            await g.acknowledge(member, {topic_id: {0: batches}}, label)
            member.acquired.clear()
    if member.session:
        await g.fetch(member, {}, label, epoch=-1)
    del g.s.trace[before:]
    g.s.note(label, str(seen))
