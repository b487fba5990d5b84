"""Random sequences of requests whose answers depend on what came before (`same_answers` runs each against both clusters)."""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side, record_batch
from .same_requests import (
    create_topic,
    describe_group,
    describe_transaction,
    member_uuid,
    offset_fetch,
    produce,
    producer,
)

Walk = Callable[[Side], Awaitable[None]]
WALKS: dict[str, Walk] = {}
_CONCURRENT_TRANSACTIONS = 51


def walk(function: Walk) -> Walk:
    WALKS[function.__name__] = function
    return function


async def patient(s: Side, message: Any, version: int, label: str, codes: Callable[[Any], list[int]]) -> Any:
    """As clients do: again while a transaction is being completed."""
    for _ in range(200):
        before = len(s.trace)
        answer = await s.ask(message, version, label)
        if answer is None or _CONCURRENT_TRANSACTIONS not in codes(answer):
            return answer
        del s.trace[before:]
        await asyncio.sleep(0.02)
    s.note(label, "CONCURRENT_TRANSACTIONS for ever")
    return answer


@walk
async def fetch_sessions(s: Side) -> None:
    r = wire.FetchRequest
    names = [await create_topic(s, f"t{s.tag}-{number}", partitions=2, records=number + 1) for number in range(2)]
    session, epoch = 0, 0
    version = s.source.choice((7, 9, 11, 12, 12, 13, 15, 17, 18))
    offsets: dict[tuple[int, int], int] = {}
    for number in range(12):
        what = s.source.choice(
            ("next", "next", "next", "next", "produce", "new", "wrong epoch", "wrong id", "close", "sessionless")
        )
        if what == "produce":
            topic, partition = s.source.randrange(2), s.source.randrange(2)
            await produce(s, names[topic][0], partition, record_batch(b"p%d" % number))
            continue
        partitions: dict[int, list[Any]] = {}
        for topic in (0, 1):
            for partition in (0, 1, 7):
                if s.source.random() < (0.5 if partition < 2 else 0.1):
                    at = s.source.choice((0, 0, 1, 2, 50))
                    offsets[topic, partition] = at
                    epoch_given = s.source.choice((-1, -1, 0, 5))
                    last = s.source.choice((-1, -1, 0, 3)) if version >= 12 else -1
                    size = 100_000
                    partitions.setdefault(topic, []).append(
                        r.FetchPartition(partition, epoch_given, at, last, -1, size)
                    )
        if not partitions:
            # A session of no partitions is none here, and one in Kafka.
            partitions[0] = [r.FetchPartition(0, -1, 0, -1, -1, 100_000)]
        topics = [
            r.FetchTopic(topic=names[each][0], topic_id=names[each][1], partitions=found)
            for each, found in partitions.items()
        ]
        if s.source.random() < 0.15:
            unknown = r.FetchTopic(
                topic="nope", topic_id=bytes(range(16)), partitions=[r.FetchPartition(0, -1, 0, -1, -1, 1000)]
            )
            topics.append(unknown)
        forgotten = []
        if s.source.random() < 0.3:
            each = s.source.randrange(2)
            forgotten = [
                r.ForgottenTopic(topic=names[each][0], topic_id=names[each][1], partitions=[s.source.randrange(2)])
            ]
        given = {"new": (session if s.source.random() < 0.5 else 0, 0), "wrong epoch": (session, epoch + 3), "wrong id": (session + 7, epoch),
                 "close": (session, -1), "sessionless": (0, -1)}.get(what, (session, epoch))  # fmt: skip
        wait = 0 if s.source.random() < 0.9 else 20
        message = r(
            max_wait_ms=wait, min_bytes=s.source.choice((0, 1)), max_bytes=s.source.choice((1_000_000, 1_000_000)),
            isolation_level=s.source.randrange(2), session_id=given[0], session_epoch=given[1], topics=topics,
            forgotten_topics_data=forgotten,
        )  # fmt: skip
        answer = await s.ask(message, version, f"{number} {what} {given[1]}")
        if answer is None:
            return
        if answer.error_code == 0 and what in ("next", "new"):
            if answer.session_id and given[1] == 0:
                session, epoch = answer.session_id, 1
            elif given[1] > 0:
                epoch += 1
            else:
                session = epoch = 0
        elif what == "close":
            session = epoch = 0


@walk
async def sequences(s: Side) -> None:
    """An idempotent producer: repeated, skipped and old sequences and epochs."""
    name, topic_id = await create_topic(s, partitions=1)
    number, epoch = (await producer(s))[0], 3
    other, _ = await producer(s)
    at = 0
    r = wire.ProduceRequest
    for step in range(14):
        what = s.source.choice(
            (
                "next",
                "next",
                "next",
                "again",
                "skip",
                "old epoch",
                "new epoch",
                "new epoch 0",
                "older",
                "other",
                "plain",
                "wrap",
                "delete",
            )
        )
        count = s.source.choice((1, 2, 3))
        who, its_epoch, sequence = number, epoch, at
        if what == "again":
            sequence = max(0, at - count)
        elif what == "older":
            sequence = max(0, at - count * s.source.choice((2, 3, 8)))
        elif what == "skip":
            sequence = at + s.source.choice((1, 5))
        elif what == "old epoch":
            its_epoch = epoch - 1
        elif what == "new epoch":
            its_epoch = epoch + 1
        elif what == "new epoch 0":
            its_epoch, sequence = epoch + 1, 0
        elif what == "other":
            who, sequence = other, s.source.choice((0, 4))
        elif what == "plain":
            who, its_epoch, sequence = -1, -1, -1
        elif what == "wrap":
            sequence = 2**31 - 1
        elif what == "delete":
            d = wire.DeleteRecordsRequest
            await s.ask(d([d.DeleteRecordsTopic(name, [d.DeleteRecordsPartition(0, -1)])], 5_000), 1, f"{step} delete")
            continue
        batch = record_batch(
            *[b"x%d" % step] * count, producer_id=who, producer_epoch=its_epoch, base_sequence=sequence
        )
        data = r.TopicProduceData(name=name, topic_id=topic_id, partition_data=[r.PartitionProduceData(0, batch)])
        version = s.source.choice((3, 5, 7, 8, 9, 11, 12, 13))
        answer = await s.ask(r(None, s.source.choice((-1, 1)), 5_000, [data]), version, f"{step} {what} {count}")
        if answer is None:
            return
        code = answer.responses[0].partition_responses[0].error_code
        if code == 0 and who == number and what in ("next", "skip", "new epoch", "new epoch 0", "wrap"):
            at, epoch = (sequence + count) % 2**31, its_epoch
    k = wire.DescribeProducersRequest
    await s.ask(k([k.TopicRequest(name, [0])]), 0, "producers")
    f = wire.FetchRequest
    whole = f.FetchTopic(topic=name, topic_id=topic_id, partitions=[f.FetchPartition(0, -1, 0, -1, -1, 1_000_000)])
    await s.ask(f(max_wait_ms=0, min_bytes=0, topics=[whole]), 11, "fetch")


def _codes(answer: Any) -> list[int]:
    found = [answer.error_code] if hasattr(answer, "error_code") else []
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        found += [each.partition_error_code for each in topic.results_by_partition]
    for transaction in getattr(answer, "results_by_transaction", None) or ():
        found += [
            each.partition_error_code for topic in transaction.topic_results for each in topic.results_by_partition
        ]
    for topic in getattr(answer, "topics", None) or ():
        found += [each.error_code for each in topic.partitions]
    for topic in getattr(answer, "responses", None) or ():
        found += [each.error_code for each in topic.partition_responses]
    return found


async def _transactions(s: Side, *, is_new: bool) -> None:
    """A transactional producer that is now and then wrong about its state; of the old protocol or of KIP-890."""
    name, topic_id = await create_topic(s, partitions=2)
    transaction, group = f"x{s.tag}", f"g{s.tag}"
    who = await producer(s, transaction)
    sequences = {0: 0, 1: 0}
    p, a, t = wire.ProduceRequest, wire.AddPartitionsToTxnRequest, wire.TxnOffsetCommitRequest
    for step in range(14):
        what = s.source.choice(("add", "produce", "produce", "commit", "abort", "offsets", "txn offsets", "init", "init mine", "describe",
                                "read", "other", "add unknown"))  # fmt: skip
        number, epoch = who
        wrong = s.source.random()
        if wrong < 0.06:
            epoch -= 1
        elif wrong < 0.1:
            epoch += 1
        elif wrong < 0.14:
            number += 1_000
        label = f"{step} {what}" + (" wrong" if wrong < 0.14 else "")
        if what in ("add", "add unknown"):
            partitions = [s.source.choice((0, 1))] if what == "add" else [0, 9]
            message = a(v3_and_below_transactional_id=transaction, v3_and_below_producer_id=number, v3_and_below_producer_epoch=epoch,
                        v3_and_below_topics=[a.AddPartitionsToTxnTopic(name, partitions)])  # fmt: skip
            await patient(s, message, s.source.choice((0, 2, 3)), label, _codes)
        elif what == "produce":
            partition = s.source.choice((0, 1))
            batch = record_batch(
                b"s%d" % step,
                producer_id=number,
                producer_epoch=epoch,
                base_sequence=sequences[partition],
                transactional=True,
            )
            data = p.TopicProduceData(
                name=name, topic_id=topic_id, partition_data=[p.PartitionProduceData(partition, batch)]
            )
            version = s.source.choice((12, 13) if is_new else (3, 7, 9, 11))
            answer = await patient(s, p(transaction, -1, 5_000, [data]), version, label, _codes)
            if answer is None:
                return
            if answer.responses[0].partition_responses[0].error_code == 0:
                sequences[partition] += 1
        elif what in ("commit", "abort"):
            version = 5 if is_new else s.source.choice((1, 3, 4))
            answer = await patient(
                s, wire.EndTxnRequest(transaction, number, epoch, what == "commit"), version, label, _codes
            )
            if answer is None:
                return
            if version == 5 and answer.error_code == 0 and answer.producer_epoch >= 0:
                who = answer.producer_id, answer.producer_epoch
                sequences = {0: 0, 1: 0}
            s.note("epoch", who[1])
            if s.source.random() < 0.3:
                await patient(
                    s,
                    wire.EndTxnRequest(transaction, number, epoch, s.source.random() < 0.5),
                    version,
                    label + " again",
                    _codes,
                )
        elif what == "offsets":
            await patient(
                s,
                wire.AddOffsetsToTxnRequest(transaction, number, epoch, group),
                s.source.choice((0, 3, 4)),
                label,
                _codes,
            )
        elif what == "txn offsets":
            version = s.source.choice((5, 6) if is_new else (0, 2, 3, 4))
            topic = t.TxnOffsetCommitRequestTopic(
                name=name, topic_id=topic_id, partitions=[t.TxnOffsetCommitRequestPartition(0, step, 0, "m")]
            )
            generation = s.source.choice((-1, -1, -1, 3))
            await patient(
                s, t(transaction, group, number, epoch, generation, "", None, [topic]), version, label, _codes
            )
            await s.ask(*offset_fetch(group), f"{step} fetch offsets")
        elif what in ("init", "init mine"):
            if wrong < 0.14 and what == "init mine":
                continue  # tests/interop/test_init_producer_id.py has these
            if what == "init mine":
                # One that aborts leaves CompleteAbort here, and Empty in Kafka: no client can tell them apart.
                who = await _ended(s, transaction, who, is_new=is_new)
            given = who if what == "init mine" else (-1, -1)
            answer = await patient(
                s, wire.InitProducerIdRequest(transaction, 60_000, *given), s.source.choice((3, 4, 5)), label, _codes
            )
            if answer is None:
                return
            if answer.error_code == 0:
                who = answer.producer_id, answer.producer_epoch
                sequences = {0: 0, 1: 0}
            s.note("epoch", who[1])
        elif what == "other":
            await patient(
                s, wire.EndTxnRequest("nobody" + s.tag, number, epoch, True), 5 if is_new else 3, label, _codes
            )
        elif what == "describe":
            await complete_transaction(s, transaction)
            await s.ask(*describe_transaction(transaction), label)
        else:
            await complete_transaction(s, transaction)
            await _read(s, name, topic_id, label)
    await patient(s, wire.EndTxnRequest(transaction, *who, True), 5 if is_new else 3, "end", _codes)
    await complete_transaction(s, transaction)
    await _read(s, name, topic_id, "at the end")
    await s.ask(*offset_fetch(group), "offsets at the end")


async def complete_transaction(s: Side, transaction: str) -> None:
    """Until the markers of the last transaction are written."""
    for _ in range(500):
        seen = await s.ask(*describe_transaction(transaction), traced=False)
        if not seen.transaction_states[0].transaction_state.startswith("Prepare"):
            return
        await asyncio.sleep(0.02)


async def _ended(s: Side, transaction: str, who: tuple[int, int], *, is_new: bool) -> tuple[int, int]:
    """The id and epoch of the producer when no transaction is open any more."""
    await complete_transaction(s, transaction)
    answer = await s.ask(wire.EndTxnRequest(transaction, *who, False), 5 if is_new else 3, traced=False)
    await complete_transaction(s, transaction)
    if is_new and answer.error_code == 0:
        return answer.producer_id, answer.producer_epoch
    return who


async def _read(s: Side, name: str, topic_id: bytes, label: str) -> None:
    f, o = wire.FetchRequest, wire.ListOffsetsRequest
    for isolation in (0, 1):
        partitions = [f.FetchPartition(each, -1, 0, -1, -1, 1_000_000) for each in (0, 1)]
        topic = f.FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
        await s.ask(
            f(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=[topic]),
            s.source.choice((5, 11, 13)),
            f"{label} {isolation}",
        )
        ends = [o.ListOffsetsPartition(partition_index=each, timestamp=-1) for each in (0, 1)]
        await s.ask(o(-1, isolation, [o.ListOffsetsTopic(name, ends)]), 7, f"{label} end {isolation}")


@walk
async def transactions(s: Side) -> None:
    await _transactions(s, is_new=False)


@walk
async def transactions_v2(s: Side) -> None:
    await _transactions(s, is_new=True)


@walk
async def classic_group(s: Side) -> None:
    """Two members, dynamic or static, one request at a time but for joins and syncs that wait for each other."""
    group = f"g{s.tag}"
    j, y, leave, c = wire.JoinGroupRequest, wire.SyncGroupRequest, wire.LeaveGroupRequest, wire.OffsetCommitRequest
    instances = [None, None] if s.source.random() < 0.5 else ["i0", "i1"]
    members = ["", ""]
    generations = [-1, -1]
    leaders = [False, False]
    version = s.source.choice((0, 2, 4, 5, 7, 9)) if instances[0] is None else s.source.choice((5, 7, 9))

    def join(who: int, member: str, protocols: tuple[str, ...], kind: str = "consumer") -> Any:
        found = [j.JoinGroupRequestProtocol(each, b"m%d" % who) for each in protocols]
        return j(group, 10_000, 3_000, member, instances[who], kind, found, None)

    async def joining(who: int, label: str) -> None:
        protocols = ("range", "sticky")
        answer = await s.ask(join(who, members[who], protocols), version, label, connection=f"c{who}", traced=False)
        if answer is not None and answer.error_code == 79:
            members[who] = answer.member_id
            answer = await s.ask(join(who, members[who], protocols), version, label, connection=f"c{who}", traced=False)
        if answer is not None and answer.error_code == 0:
            members[who], generations[who] = answer.member_id, answer.generation_id
            leaders[who] = answer.leader == answer.member_id
            s.alias(answer.member_id, f"member of {who}, {generations[who]}")
        shown = None if answer is None else (answer.error_code, answer.generation_id, answer.protocol_name, len(answer.members), answer.leader != "",
                                             answer.skip_assignment)  # fmt: skip
        s.note(label, str(shown))

    async def syncing(who: int, label: str) -> None:
        found = (
            [y.SyncGroupRequestAssignment(each, b"a%d" % generations[who]) for each in members] if leaders[who] else []
        )
        message = y(group, generations[who], members[who], instances[who], "consumer", "range", found)
        answer = await s.ask(message, 5 if version >= 7 else 3, label, connection=f"c{who}", traced=False)
        s.note(
            label, str(None if answer is None else (answer.error_code, bytes(answer.assignment), answer.protocol_name))
        )

    await joining(0, "first")
    for step in range(10):
        what = s.source.choice(("join both", "join both", "sync both", "sync both", "heartbeat", "heartbeat wrong", "heartbeat other", "leave", "commit",
                                "commit wrong", "describe", "join other type", "join other protocol", "unknown member", "join unknown", "leave unknown", "delete",
                                "list"))  # fmt: skip
        who = s.source.randrange(2)
        label = f"{step} {what} {who}"
        instance = instances[who] if s.source.random() < 0.8 else None
        if what == "join both":
            first = asyncio.create_task(joining(0, label + " a"))
            await asyncio.sleep(0.05)
            before = len(s.trace)
            await asyncio.gather(first, joining(1, label + " b"))
            s.trace[before:] = sorted(s.trace[before:], key=lambda each: each.label)
        elif what == "sync both":
            before = len(s.trace)
            await asyncio.gather(syncing(0, label + " a"), syncing(1, label + " b"))
            s.trace[before:] = sorted(s.trace[before:], key=lambda each: each.label)
        elif what == "heartbeat":
            await s.ask(wire.HeartbeatRequest(group, generations[who], members[who], instance), 4, label)
        elif what == "heartbeat wrong":
            await s.ask(
                wire.HeartbeatRequest(group, generations[who] + s.source.choice((-1, 1)), members[who], instance),
                4,
                label,
            )
        elif what == "heartbeat other":
            await s.ask(wire.HeartbeatRequest(group, generations[who], members[1 - who], instances[who]), 4, label)
        elif what == "unknown member":
            await s.ask(wire.HeartbeatRequest(group, generations[who], "nobody", instance), 4, label)
        elif what == "leave":
            await s.ask(
                leave(group, members[who], [leave.MemberIdentity(members[who], instance, None)]),
                s.source.choice((1, 3, 5)),
                label,
            )
        elif what == "leave unknown":
            both = [
                leave.MemberIdentity("nobody", None, None),
                leave.MemberIdentity("", "nobody", None),
                leave.MemberIdentity(members[who], None, None),
            ]
            await s.ask(leave(group, "nobody", both), 4, label)
        elif what in ("commit", "commit wrong"):
            generation = generations[who] + (what == "commit wrong")
            partitions = [c.OffsetCommitRequestPartition(0, step, 0, -1, "m")]
            message = c(
                group,
                generation,
                members[who],
                instance,
                -1,
                [c.OffsetCommitRequestTopic(name="shared", partitions=partitions)],
            )
            await s.ask(message, s.source.choice((7, 8, 9)), label)
            await s.ask(*offset_fetch(group), label + " offsets")
        elif what == "describe":
            await s.ask(*describe_group(group), label)
        elif what == "join other type":
            await s.ask(join(who, "", ("range",), "connect"), version, label)
        elif what == "join other protocol":
            await s.ask(join(who, members[1 - who], ("nothing in common",)), version, label)
        elif what == "join unknown":
            await s.ask(join(who, "nobody", ("range",)), version, label)
        elif what == "delete":
            await s.ask(wire.DeleteGroupsRequest([group]), 2, label)
        else:
            seen = await s.ask(wire.ListGroupsRequest([], []), 5, label, traced=False)
            s.note(
                label,
                str(
                    [
                        (each.group_state, each.group_type, each.protocol_type)
                        for each in seen.groups
                        if each.group_id == group
                    ]
                ),
            )
    await s.ask(*describe_group(group), "at the end")


@walk
async def consumer_group(s: Side) -> None:
    """Two members of KIP-848; epochs are each cluster's own."""
    group = f"g{s.tag}"
    topics = [await create_topic(s, f"t{s.tag}-{number}", partitions=2 + number) for number in range(2)]
    names = {topic_id: name for name, topic_id in topics}
    r, c = wire.ConsumerGroupHeartbeatRequest, wire.OffsetCommitRequest
    instances = [None, None] if s.source.random() < 0.5 else ["i0", "i1"]
    members = [member_uuid(1), member_uuid(2)]
    epochs = [0, 0]
    owned: list[dict[bytes, list[int]]] = [{}, {}]
    wanted: list[list[str]] = [[topics[0][0]], [topics[0][0]]]
    version = s.source.randrange(2)

    async def beat(who: int, label: str, epoch: int, **fields: Any) -> Any:
        given = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout_ms": 30_000, **fields}
        message = r(group, fields.pop("member_id", members[who]), epoch, given.get("instance_id", instances[who]), None, given["rebalance_timeout_ms"],
                    given["subscribed_topic_names"], given.get("regex"), given.get("assignor"), given["topic_partitions"])  # fmt: skip
        answer = await s.ask(message, version, label, traced=False)
        if answer is None:
            s.note(label, "closed")
            return None
        assigned = (
            None
            if answer.assignment is None
            else {
                names.get(bytes(t.topic_id), "?").replace(s.tag, "@"): sorted(t.partitions)
                for t in answer.assignment.topic_partitions
            }
        )
        note = (
            answer.error_code,
            None if answer.member_id is None else "id",
            min(answer.member_epoch, 1),
            answer.heartbeat_interval_ms,
        )
        if not fields.get("is_settling"):
            s.note(label, str(note))
        if answer.error_code == 0:
            epochs[who] = answer.member_epoch
            if answer.assignment is not None:
                owned[who] = {bytes(t.topic_id): list(t.partitions) for t in answer.assignment.topic_partitions}
        del assigned
        return answer

    def mine(who: int) -> list[Any]:
        return [r.TopicPartitions(topic_id, found) for topic_id, found in owned[who].items()]

    async def settle(label: str) -> None:
        unchanged, before = 0, ""
        for _ in range(80):
            for who in (0, 1):
                if epochs[who] > 0:
                    await beat(
                        who,
                        label,
                        epochs[who],
                        subscribed_topic_names=wanted[who],
                        topic_partitions=mine(who),
                        is_settling=True,
                    )
            unchanged = unchanged + 1 if repr(owned) == before else 0
            before = repr(owned)
            if unchanged == 8:
                break
            await asyncio.sleep(0.05)
        shown = [
            sorted((names.get(t, "?").replace(s.tag, "@"), len(p)) for t, p in owned[who].items())
            if epochs[who] > 0
            else None
            for who in (0, 1)
        ]
        s.note(label + " settled", str(shown))

    async def start(who: int, label: str) -> None:
        await beat(who, label, 0, subscribed_topic_names=wanted[who], topic_partitions=[])

    await start(0, "first")
    for step in range(10):
        who = s.source.randrange(2)
        what = s.source.choice(("join", "join", "settle", "settle", "beat", "epoch +1", "epoch -1", "epoch old", "leave", "leave static", "subscribe", "nothing",
                                "regex", "assignor", "unknown assignor", "not owned", "commit", "commit wrong", "other instance", "describe", "fetch", "delete", "classic"))  # fmt: skip
        label = f"{step} {what} {who}"
        epoch = epochs[who]
        if what == "join" and (instances[who] is None or epoch <= 0):
            # A static member that has not left: docs/kafka-protocol.md, Groups.
            await start(who, label)
        elif what == "settle":
            await settle(label)
        elif what == "beat":
            await beat(who, label, epoch)
        elif what.startswith("epoch"):
            at = {"epoch +1": epoch + 1, "epoch -1": epoch - 1, "epoch old": epoch - 2}[what]
            if at > 0:
                await settle(label)
                fields = (
                    {}
                    if s.source.random() < 0.5
                    else {"subscribed_topic_names": wanted[who], "topic_partitions": mine(who)}
                )
                at = epochs[who] + {"epoch +1": 1, "epoch -1": -1, "epoch old": -2}[what]
                if at > 0 and what != "epoch -1":
                    await beat(who, label, at, **fields)
        elif what in ("leave", "leave static"):
            await beat(who, label, -1 if what == "leave" else -2)
            if what == "leave":
                epochs[who], owned[who] = 0, {}
        elif what == "subscribe":
            wanted[who] = [name for name, _ in topics][: s.source.choice((1, 2))] + (
                ["nope"] if s.source.random() < 0.3 else []
            )
            if epoch > 0:
                await beat(who, label, epoch, subscribed_topic_names=wanted[who])
        elif what == "nothing" and epoch > 0:
            await beat(who, label, epoch, subscribed_topic_names=[])
        elif what == "regex" and epoch > 0 and version == 1:
            await beat(who, label, epoch, regex=s.source.choice(("[", f"t{s.tag}.*", "")))
        elif what == "assignor" and epoch > 0:
            await beat(who, label, epoch, assignor=s.source.choice(("range", "uniform")))
        elif what == "unknown assignor" and epoch >= 0:
            await beat(who, label, epoch, assignor="nope")
        elif what == "not owned" and epoch > 0:
            await beat(
                who,
                label,
                epoch,
                subscribed_topic_names=wanted[who],
                topic_partitions=[r.TopicPartitions(bytes(range(16)), [0])],
            )
        elif what in ("commit", "commit wrong"):
            generation = epoch + (5 if what == "commit wrong" else 0)
            partitions = [c.OffsetCommitRequestPartition(0, step, 0, -1, "m")]
            topic = c.OffsetCommitRequestTopic(name=topics[0][0], topic_id=topics[0][1], partitions=partitions)
            await s.ask(
                c(group, generation, members[who], instances[who], -1, [topic]), s.source.choice((7, 8, 9, 10)), label
            )
            await s.ask(*offset_fetch(group), label + " offsets")
        elif what == "other instance":
            await beat(who, label, epoch, instance_id="i9")
        elif what == "fetch":
            f = wire.OffsetFetchRequest
            asked = f.OffsetFetchRequestGroup(group, members[who], epoch + s.source.choice((0, 0, 7)), None)
            await s.ask(f(groups=[asked], require_stable=True), 9, label)
        elif what == "describe":
            seen = await s.ask(wire.ConsumerGroupDescribeRequest([group], False), 1, label, traced=False)
            [g] = seen.groups
            s.note(label, str((g.error_code, g.assignor_name, sorted((m.instance_id or "", sorted(m.subscribed_topic_names), m.subscribed_topic_regex, m.member_type) for m in g.members)))
                   .replace(s.tag, "@"))  # fmt: skip
        elif what == "delete":
            await s.ask(wire.DeleteGroupsRequest([group]), 2, label)
        elif what == "classic":
            j = wire.JoinGroupRequest
            message = j(
                group, 10_000, 3_000, "", None, "consumer", [j.JoinGroupRequestProtocol("range", b"\x00")], None
            )
            await s.ask(message, 3, label)
    await settle("at the end")
