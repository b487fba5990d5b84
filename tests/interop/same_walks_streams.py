"""Random sequences of requests about streams groups (KIP-1071; `same_walks` has the others)."""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side
from .same_requests import create_topic, member_uuid, offset_fetch

_BEAT = wire.StreamsGroupHeartbeatRequest
_MISSING_INTERNAL_TOPICS = 3


@dataclass
class _Member:
    number: int
    instance: str | None = None
    epoch: int = 0
    topology: Any = None
    active: dict[str, list[int]] = field(default_factory=dict)
    status: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return member_uuid(self.number)


def _topology(s: Side, kind: str, epoch: int) -> Any:
    """One of a few: with state, with a repartition topic, of two parts, with a source that is not there."""
    source, other, missing = f"t{s.tag}-0", f"t{s.tag}-1", f"t{s.tag}-missing"
    changelog = _BEAT.TopicInfo(f"c{s.tag}-changelog", 0, 1, [_BEAT.KeyValue("cleanup.policy", "compact")])
    repartition = _BEAT.TopicInfo(f"r{s.tag}-repartition", 0 if kind != "fixed" else 5, 1, [])
    first = _BEAT.Subtopology("0", [source], [], [], [], [], [])
    match kind:
        case "plain":
            parts = [first]
        case "state":
            parts = [_BEAT.Subtopology("0", [source], [], [changelog], [], [], [])]
        case "two":
            parts = [first, _BEAT.Subtopology("1", [other], [], [changelog], [], [], [])]
        case "repartition" | "fixed":
            sink = _BEAT.Subtopology("0", [source], [], [], [repartition.name], [], [])
            parts = [sink, _BEAT.Subtopology("1", [], [], [changelog], [], [repartition], [])]
        case "regex":
            parts = [_BEAT.Subtopology("0", [], [f"t{s.tag}-[01]"], [], [], [], [])]
        case "copartition":
            both = _BEAT.CopartitionGroup([0, 1], [], [])
            parts = [_BEAT.Subtopology("0", [source, other], [], [], [], [], [both])]
        case "no partitions":
            lost = _BEAT.TopicInfo(f"l{s.tag}-repartition", 0, 1, [])
            parts = [_BEAT.Subtopology("0", [], [], [], [], [lost], [])]
        case _:
            parts = [_BEAT.Subtopology("0", [source, missing], [], [], [], [], [])]
    return _BEAT.Topology(epoch, parts)


_GOOD = ("plain", "state", "two", "repartition", "fixed", "copartition", "missing")
_KINDS = (*_GOOD, "regex", "no partitions")


async def streams_group(s: Side) -> None:
    """Two members with topologies that change; the steps of epochs, and when tasks are assigned, are each cluster's own."""
    group = f"k{s.tag}"
    for number, partitions in enumerate((2, 3)):
        await create_topic(s, f"t{s.tag}-{number}", partitions=partitions)
    instances = [None, None] if s.source.random() < 0.6 else ["i1", "i2"]
    members = [_Member(number + 1, instances[number]) for number in (0, 1)]
    topology = _topology(s, s.source.choice(_KINDS), 1)
    for each in members:
        s.alias(each.name, f"member {each.number}")

    async def beat(member: _Member, epoch: int, label: str, **other: Any) -> Any:
        given = other.get("topology")
        tasks = other.get("tasks", [] if epoch == 0 else None)
        message = _BEAT(
            group, other.get("name", member.name), epoch, 0, other.get("instance", member.instance), None,
            30_000 if epoch == 0 else -1, given, tasks, [] if tasks is not None else None, [] if tasks is not None else None,
            f"process-{member.number}" if epoch == 0 else None, None, [] if epoch == 0 else None, None, None,
            other.get("shutdown", False),
        )  # fmt: skip
        answer = await s.ask(message, 1, label, traced=False)
        if label:
            shown = None if answer is None else (answer.error_code, min(answer.member_epoch, 1))
            s.note(label, str(shown))
        if answer is not None and answer.error_code == 0 and "name" not in other:
            member.epoch = answer.member_epoch
            member.status = sorted(each.status_code for each in answer.status or ())
            if answer.active_tasks is not None:
                member.active = {each.subtopology_id: sorted(each.partitions) for each in answer.active_tasks}
        return answer

    def owned(member: _Member) -> list[Any]:
        return [_BEAT.TaskIds(part, numbers) for part, numbers in member.active.items()]

    async def settle(label: str) -> None:
        unchanged, before = 0, ""
        for _ in range(80):
            for each in members:
                if each.epoch > 0:
                    answer = await beat(each, each.epoch, "", tasks=owned(each))
                    if answer is None or answer.error_code:
                        each.epoch = 0
            shown = repr([(each.active, each.status) for each in members])
            is_creating = any(_MISSING_INTERNAL_TOPICS in each.status for each in members if each.epoch > 0)
            unchanged = unchanged + 1 if shown == before and not is_creating else 0
            before = shown
            if unchanged == 8:
                break
            await asyncio.sleep(0.05)
        # Which member has the odd one of a part is the assignor's business.
        counts = [(sum(map(len, each.active.values())), each.status) if each.epoch > 0 else None for each in members]
        total = [
            (part, number)
            for each in members
            if each.epoch > 0
            for part, found in each.active.items()
            for number in found
        ]
        s.note(f"{label} settled", f"{sorted(map(repr, counts))} {sorted(total)}")

    steps = s.source
    for step in range(12):
        s.source = random.Random(steps.getrandbits(32))
        what = s.source.choice(("join", "join", "join", "settle", "settle", "beat", "epoch +1", "epoch -2", "leave", "leave static", "topology", "other topology", "old topology",
                                "unknown", "not owned", "shutdown", "describe", "list", "delete", "commit", "commit wrong", "consumer", "classic", "source", "no topology"))  # fmt: skip
        member = members[s.source.randrange(2)]
        label = f"{step} {what} {member.number}"
        if what == "join" and (member.instance is None or member.epoch <= 0):
            await beat(member, 0, label, topology=topology)
            await settle(label)
        elif what == "settle":
            await settle(label)
        elif what == "beat" and member.epoch > 0:
            await beat(member, member.epoch, label)
        elif what.startswith("epoch") and member.epoch > 0:
            await settle(label)
            at = member.epoch + (1 if what == "epoch +1" else -2)
            if at > 0:
                await beat(member, at, label, name=member.name)
        elif what in ("leave", "leave static"):
            answer = await beat(member, -1 if what == "leave" else -2, label)
            if answer is not None and answer.error_code == 0:
                member.active = {}
            member.epoch = 0
            await settle(label)
        elif what == "topology" and not any(each.epoch > 0 for each in members):
            # A group that is only empty takes another topology here (docs/kafka-protocol.md, Streams groups).
            await s.ask(wire.DeleteGroupsRequest([group]), 2, traced=False)
            topology = _topology(s, s.source.choice(_KINDS), topology.epoch + 1)
        elif what in ("other topology", "old topology") and any(each.epoch > 0 for each in members):
            epoch = topology.epoch + (1 if what == "other topology" else s.source.choice((0, -1)))
            extra = _Member(3)
            s.alias(extra.name, "member 3")
            await beat(
                extra, 0, label, topology=_topology(s, s.source.choice(_GOOD), epoch), name=extra.name, instance=None
            )
            await beat(extra, -1, label + " leaves", name=extra.name, instance=None)
            await settle(label)
        elif what == "unknown":
            await beat(_Member(4), s.source.choice((1, 5, -1)), label)
        elif what == "not owned" and member.epoch > 0:
            await beat(
                member,
                member.epoch,
                label,
                tasks=[_BEAT.TaskIds(s.source.choice(("0", "7")), [s.source.choice((0, 9))])],
            )
        elif what == "shutdown" and member.epoch > 0 and s.source.random() < 0.4:
            await beat(member, member.epoch, label, shutdown=True)
            await settle(label)
        elif what == "describe":
            await settle(label)
            await _describe(s, group, label)
        elif what == "list":
            seen = await s.ask(
                wire.ListGroupsRequest([], s.source.choice(([], ["streams"], ["consumer"]))), 5, traced=False
            )
            found = [(each.group_type, each.protocol_type) for each in seen.groups if each.group_id == group]
            s.note(label, str(found))
        elif what == "delete":
            await s.ask(wire.DeleteGroupsRequest([group]), 2, label)
        elif what in ("commit", "commit wrong"):
            c = wire.OffsetCommitRequest
            await settle(label)
            at = member.epoch + (5 if what == "commit wrong" else 0)
            topic = c.OffsetCommitRequestTopic(
                name=f"t{s.tag}-0", partitions=[c.OffsetCommitRequestPartition(0, step, 0, -1, "m")]
            )
            await s.ask(c(group, at, member.name, member.instance, -1, [topic]), s.source.choice((7, 8, 9)), label)
            await s.ask(*offset_fetch(group), label + " offsets")
        elif what == "consumer":
            message = wire.ConsumerGroupHeartbeatRequest(
                group, member_uuid(5), 0, None, None, 30_000, [f"t{s.tag}-0"], None, None, []
            )
            answer = await s.ask(message, 1, label, traced=False)
            s.note(label, answer.error_code)
            if answer.error_code == 0:
                await s.ask(wire.ConsumerGroupHeartbeatRequest(group, member_uuid(5), -1), 1, label, traced=False)
        elif what == "classic" and any(each.epoch > 0 for each in members):
            j = wire.JoinGroupRequest
            joining = j(
                group, 10_000, 3_000, "", None, "consumer", [j.JoinGroupRequestProtocol("range", b"\x00")], None
            )
            await s.ask(joining, 3, label)
        elif what == "source" and s.source.random() < 0.5:
            await create_topic(s, f"t{s.tag}-missing", partitions=2)
            await settle(label)
        elif what == "no topology":
            await beat(_Member(4), 0, label, name=member_uuid(4))
    await settle("at the end")
    await _describe(s, group, "at the end")


async def _describe(s: Side, group: str, label: str) -> None:
    seen = await s.ask(wire.StreamsGroupDescribeRequest([group], False, False), 1, traced=False)
    [g] = seen.groups
    parts = None
    if g.topology is not None:
        parts = (
            g.topology.epoch,
            [
                (
                    each.subtopology_id,
                    sorted(each.source_topics),
                    each.repartition_sink_topics,
                    [
                        (one.name, one.replication_factor, [(c.key, c.value) for c in one.topic_configs])
                        for one in each.state_changelog_topics
                    ],
                    [(one.name, one.replication_factor) for one in each.repartition_source_topics],
                )
                for each in sorted(g.topology.subtopologies or (), key=lambda one: one.subtopology_id)
            ],
        )
    members = sorted(
        (
            s.names.get(m.member_id, "?"),
            m.instance_id or "",
            m.topology_epoch,
            m.process_id,
            m.is_classic,
            len(m.assignment.active_tasks) > 0,
        )
        for m in g.members
    )
    s.note(label, str((g.error_code, g.group_state, parts, members)).replace(s.tag, "@"))
