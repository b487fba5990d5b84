"""Random sequences of requests about consumer groups of KIP-848 beside members of the classic protocol, and their offsets."""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side
from .same_requests import create_topic, describe_group, member_uuid, offset_fetch

_BEAT = wire.ConsumerGroupHeartbeatRequest
_JOIN = wire.JoinGroupRequest


def _subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0 (the classic clients' metadata)."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


async def migrated_group(s: Side) -> None:
    """One member of the classic protocol and one of the consumer protocol in a group that is converted to and fro."""
    group = f"m{s.tag}"
    name, topic_id = await create_topic(s, partitions=3)
    classic, generation = "", -1
    is_leader = False
    member, epoch = member_uuid(1), 0
    owned: list[int] = []
    s.alias(member, "consumer member")

    async def beat(at: int, label: str, **other: Any) -> Any:
        nonlocal epoch, owned
        topics = None if at < 0 else [name]
        parts = None if at < 0 else [_BEAT.TopicPartitions(topic_id, owned)] if owned and at else []
        message = _BEAT(
            group,
            other.get("member", member),
            at,
            other.get("instance"),
            None,
            30_000,
            topics,
            None,
            other.get("assignor"),
            parts,
        )
        answer = await s.ask(message, 1, label, traced=False)
        if answer is not None and answer.error_code == 0 and "member" not in other:
            epoch = answer.member_epoch if answer.member_epoch > 0 else 0
            if answer.assignment is not None:
                owned = [number for each in answer.assignment.topic_partitions for number in each.partitions]
        return answer

    async def join(label: str, protocols: tuple[str, ...] = ("range",)) -> None:
        nonlocal classic, generation, is_leader
        found = [_JOIN.JoinGroupRequestProtocol(each, _subscription(name)) for each in protocols]
        for _ in range(3):
            message = _JOIN(group, 10_000, 3_000, classic, None, "consumer", found, None)
            answer = await s.ask(message, 7, label, connection="classic", traced=False)
            if answer is None or answer.error_code != 79:
                break
            classic = answer.member_id
        if answer is not None and answer.error_code == 0:
            classic, generation = answer.member_id, answer.generation_id
            is_leader = answer.leader == classic
            s.alias(classic, "classic member")
        s.note(label, None if answer is None else str((answer.error_code, answer.protocol_name, is_leader)))

    async def sync(label: str) -> None:
        y = wire.SyncGroupRequest
        given = (
            [y.SyncGroupRequestAssignment(classic, struct.pack(">hi", 0, 0) + struct.pack(">i", -1))]
            if is_leader
            else []
        )
        answer = await s.ask(
            y(group, generation, classic, None, "consumer", "range", given),
            5,
            label,
            connection="classic",
            traced=False,
        )
        s.note(label, None if answer is None else str((answer.error_code, answer.protocol_name)))

    async def settle(label: str) -> None:
        """Both do what their protocols want until nothing changes."""
        unchanged, before = 0, ""
        for _ in range(60):
            codes: list[int | None] = [None, None]
            if epoch > 0:
                answer = await beat(epoch, "")
                codes[0] = answer.error_code
            if classic:
                message = wire.HeartbeatRequest(group, generation, classic, None)
                answer = await s.ask(message, 4, connection="classic", traced=False)
                codes[1] = answer.error_code
                if answer.error_code == 27:
                    before_trace = len(s.trace)
                    await join("")
                    await sync("")
                    del s.trace[before_trace:]
            shown = repr((codes, sorted(owned)))
            unchanged = unchanged + 1 if shown == before else 0
            before = shown
            if unchanged == 6:
                break
            await asyncio.sleep(0.05)
        s.note(label + " settled", str((codes, bool(owned) if epoch > 0 else None)))

    steps = s.source
    for step in range(12):
        s.source = random.Random(steps.getrandbits(32))
        what = s.source.choice(("classic joins", "classic joins", "consumer joins", "consumer joins", "settle", "settle", "classic leaves", "consumer leaves", "heartbeat", "heartbeat wrong",
                                "sync", "sync wrong", "beat wrong", "commit classic", "commit consumer", "commit wrong", "fetch", "describe", "describe classic", "list", "delete",
                                "other protocol", "not consumers", "offset delete", "simple commit"))  # fmt: skip
        label = f"{step} {what}"
        if what == "classic joins":
            await join(label)
            await sync(label + " sync")
            await settle(label)
        elif what == "consumer joins":
            answer = await beat(0, label)
            s.note(label, str((answer.error_code, min(answer.member_epoch, 1))))
            await settle(label)
        elif what == "settle":
            await settle(label)
        elif what == "classic leaves" and classic:
            leave = wire.LeaveGroupRequest
            await s.ask(
                leave(group, classic, [leave.MemberIdentity(classic, None, None)]), s.source.choice((2, 4)), label
            )
            classic, generation = "", -1
            await settle(label)
        elif what == "consumer leaves" and epoch > 0:
            answer = await beat(-1, label)
            s.note(label, str((answer.error_code, answer.member_epoch)))
            epoch, owned = 0, []
            await settle(label)
        elif what in ("heartbeat", "heartbeat wrong") and classic:
            await settle(label)
            at = generation + (s.source.choice((-1, 1)) if what == "heartbeat wrong" else 0)
            await s.ask(wire.HeartbeatRequest(group, at, classic, None), 4, label)
        elif what in ("sync", "sync wrong") and classic:
            await settle(label)
            y = wire.SyncGroupRequest
            wrong = s.source.randrange(4) if what == "sync wrong" else 9
            message = y(
                group, generation + (wrong == 0), "nobody" if wrong == 1 else classic, None, "connect" if wrong == 2 else "consumer",
                "roundrobin" if wrong == 3 else "range", [],
            )  # fmt: skip
            answer = await s.ask(message, 5, label, traced=False)
            s.note(label, str((answer.error_code, answer.protocol_type, answer.protocol_name)))
        elif what == "beat wrong" and epoch > 0:
            await settle(label)
            answer = await beat(epoch + s.source.choice((1, 5)), label, member=member)
            s.note(label, answer.error_code)
        elif what.startswith("commit") or what == "simple commit":
            await settle(label)
            c = wire.OffsetCommitRequest
            who, at = {
                "commit classic": (classic, generation),
                "commit consumer": (member, epoch),
                "commit wrong": s.source.choice(
                    (
                        (classic, generation + 1),
                        (member, epoch + 3),
                        (member, -1),
                        ("nobody", 1),
                        (classic, generation - 1),
                    )
                ),
                "simple commit": ("", -1),
            }[what]
            topic = c.OffsetCommitRequestTopic(
                name=name, topic_id=topic_id, partitions=[c.OffsetCommitRequestPartition(0, step, 0, -1, "m")]
            )
            await s.ask(c(group, at, who, None, -1, [topic]), s.source.choice((5, 8, 9, 10)), label)
            await s.ask(*offset_fetch(group), label + " offsets")
        elif what == "fetch":
            await settle(label)
            f = wire.OffsetFetchRequest
            who, at = s.source.choice(
                ((member, epoch), (member, epoch + 2), (classic, generation), ("nobody", 1), (member, 0), ("", -1))
            )
            await s.ask(f(groups=[f.OffsetFetchRequestGroup(group, who, at, None)], require_stable=True), 9, label)
        elif what == "describe":
            await settle(label)
            seen = await s.ask(wire.ConsumerGroupDescribeRequest([group], False), 1, traced=False)
            [g] = seen.groups
            members = sorted(
                (
                    s.names.get(m.member_id, "?"),
                    m.member_type,
                    sorted(m.subscribed_topic_names),
                    m.subscribed_topic_regex or "",
                )
                for m in g.members
            )
            s.note(label, str((g.error_code, g.group_state, g.assignor_name, members)).replace(s.tag, "@"))
        elif what == "describe classic":
            await settle(label)
            seen = await s.ask(*describe_group(group), traced=False)
            [g] = seen.groups
            s.note(
                label,
                str(
                    (
                        g.error_code,
                        g.group_state,
                        g.protocol_type,
                        g.protocol_data,
                        sorted(s.names.get(m.member_id, "?") for m in g.members),
                    )
                ),
            )
        elif what == "list":
            seen = await s.ask(wire.ListGroupsRequest([], []), 5, traced=False)
            s.note(
                label, str([(each.group_type, each.protocol_type) for each in seen.groups if each.group_id == group])
            )
        elif what == "delete":
            await s.ask(wire.DeleteGroupsRequest([group]), 2, label)
        elif what == "other protocol":
            found = [_JOIN.JoinGroupRequestProtocol("odd", b"\x00")]
            await s.ask(_JOIN(group, 10_000, 3_000, "nobody", None, "consumer", found, None), 7, label)
        elif what == "not consumers" and (classic or epoch > 0):
            found = [_JOIN.JoinGroupRequestProtocol("range", b"\x00")]
            await s.ask(_JOIN(group, 10_000, 3_000, "", None, "connect", found, None), 3, label)
        elif what == "offset delete":
            d = wire.OffsetDeleteRequest
            unwanted = d.OffsetDeleteRequestTopic(s.source.choice((name, "nope")), [d.OffsetDeleteRequestPartition(0)])
            await s.ask(d(group, [unwanted]), 0, label)
    await settle("at the end")


async def static_consumers(s: Side) -> None:
    """Static members of a consumer group: they leave for a while, others take their places."""
    group = f"i{s.tag}"
    topics = [await create_topic(s, f"t{s.tag}-{number}", partitions=2) for number in range(2)]
    names = [name for name, _ in topics]
    numbers = {"i1": 1, "i2": 2}
    epochs: dict[int, int] = {}
    owned: dict[int, list[Any]] = {}
    for number in range(1, 8):
        s.alias(member_uuid(number), f"member {number}")

    async def beat(number: int, instance: str | None, at: int, label: str, **other: Any) -> Any:
        is_join = at == 0
        topics_given = other.get("topics", names[:1] if is_join and "regex" not in other else None)
        parts = other.get("owned", [] if is_join else None)
        message = _BEAT(
            group,
            member_uuid(number),
            at,
            instance,
            None,
            30_000 if is_join else -1,
            topics_given,
            other.get("regex"),
            None,
            parts,
        )
        answer = await s.ask(message, 1, label, traced=False)
        if label:
            s.note(label, None if answer is None else str((answer.error_code, max(-2, min(answer.member_epoch, 1)))))
        if answer is not None and answer.error_code == 0 and "wrong" not in other:
            epochs[number] = answer.member_epoch
            if is_join:
                owned[number] = []
            if answer.assignment is not None:
                owned[number] = [
                    _BEAT.TopicPartitions(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions
                ]
        return answer

    async def settle(label: str) -> None:
        unchanged, before = 0, ""
        for _ in range(60):
            for instance, number in numbers.items():
                if epochs.get(number, 0) > 0:
                    answer = await beat(number, instance, epochs[number], "", owned=owned[number])
                    if answer is None or answer.error_code:
                        epochs[number] = 0
                        s.note(label, f"{number}: {answer and answer.error_code}")
            shown = repr([owned.get(number) for number in numbers.values()])
            unchanged = unchanged + 1 if shown == before else 0
            before = shown
            if unchanged == 6:
                break
            await asyncio.sleep(0.05)
        counts = [
            sorted((s.names[bytes(each.topic_id)], len(each.partitions)) for each in owned[number])
            if epochs.get(number, 0) > 0
            else None
            for number in numbers.values()
        ]
        s.note(f"{label} settled", str(sorted(map(repr, counts))))

    steps = s.source
    for step in range(14):
        s.source = random.Random(steps.getrandbits(32))
        what = s.source.choice(("join", "join", "join", "settle", "leave", "leave for a while", "leave for a while", "replace", "replace", "released by other", "old member", "subscribe", "regex", "bad regex",
                                "no subscription", "epoch", "wrong instance", "dynamic", "commit", "commit old", "describe", "leave by admin"))  # fmt: skip
        instance = s.source.choice(("i1", "i2"))
        number = numbers[instance]
        epoch = epochs.get(number, 0)
        label = f"{step} {what} {instance}"
        if what == "join" and epoch <= 0:
            await beat(number, instance, 0, label)
            await settle(label)
        elif what == "settle":
            await settle(label)
        elif what in ("leave", "leave for a while"):
            await settle(label)
            await beat(number, instance, -1 if what == "leave" else -2, label)
            epochs[number] = 0
            await settle(label)
        elif what == "replace":
            # Another process with the same instance id; refused while the first one is there.
            other = number + 2 if number <= 2 else number - 2
            answer = await beat(other, instance, 0, label)
            if answer is not None and answer.error_code == 0:
                numbers[instance] = other
            await settle(label)
        elif what == "released by other":
            await beat(6, instance, s.source.choice((-1, -2)), label, wrong=True)
        elif what == "old member":
            await beat(
                s.source.choice((1, 2, 3, 4)), instance, s.source.choice((1, 1, -1)), label, wrong=True
            ) if epoch <= 0 else None
        elif what == "subscribe" and epoch > 0:
            await beat(
                number, instance, epoch, label, topics=s.source.choice((names, names[1:], ["nope"], [*names, names[0]]))
            )
            await settle(label)
        elif what == "regex" and epoch > 0:
            await beat(number, instance, epoch, label, topics=[], regex=f"t{s.tag}-[01]")
            await settle(label)
        elif what == "bad regex" and epoch > 0:
            await beat(
                number, instance, epoch, label, regex=s.source.choice(("(", "[a", "*", "(?=x)", "a{2000}")), wrong=True
            )
        elif what == "no subscription" and epoch > 0:
            await beat(number, instance, epoch, label, topics=[], regex="")
            await settle(label)
        elif what == "epoch" and epoch > 0:
            await settle(label)
            await beat(number, instance, epochs[number] + s.source.choice((1, 4)), label, wrong=True) if epochs[
                number
            ] > 0 else None
        elif what == "wrong instance" and epoch > 0:
            await beat(number, s.source.choice(("i9", None)), epoch, label, wrong=True)
        elif what == "dynamic":
            await beat(7, None, 0, label)
            await beat(7, None, -1, label + " leaves")
            await settle(label)
        elif what in ("commit", "commit old"):
            await settle(label)
            c = wire.OffsetCommitRequest
            at = epochs.get(number, 0) + (s.source.choice((3, -9)) if what == "commit old" else 0)
            topic = c.OffsetCommitRequestTopic(
                name=names[0], topic_id=topics[0][1], partitions=[c.OffsetCommitRequestPartition(0, step, 0, -1, "m")]
            )
            await s.ask(c(group, at, member_uuid(number), instance, -1, [topic]), s.source.choice((7, 9, 10)), label)
            await s.ask(*offset_fetch(group), label + " offsets")
        elif what == "describe":
            await settle(label)
            seen = await s.ask(wire.ConsumerGroupDescribeRequest([group], False), 1, traced=False)
            [g] = seen.groups
            found = sorted(
                (s.names.get(m.member_id, "?"), m.instance_id or "", sorted(m.subscribed_topic_names), m.subscribed_topic_regex or "",
                 sum(len(t.partitions) for t in m.assignment.topic_partitions))
                for m in g.members
            )  # fmt: skip
            shown = [(*each[:4], "") if len(found) > 1 else each for each in found]
            # A new target is there at once, or a moment later.
            state = "Reconciling" if g.group_state == "Assigning" else g.group_state
            s.note(label, str((g.error_code, state, shown)).replace(s.tag, "@"))
        elif what == "leave by admin":
            await settle(label)
            leave = wire.LeaveGroupRequest
            who = leave.MemberIdentity("", s.source.choice((instance, "i9")), "removed")
            await s.ask(leave(group, "", [who]), s.source.choice((3, 5)), label)
            await settle(label)
    await settle("at the end")
