"""Consumer groups against what members may believe: no partition ever has two owners, and all have one in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.groups.decisions.assigned_heartbeats import leave_for_a_while
from kafkalite.coordinators.groups.decisions.assignment import (
    AssignedMember,
    AssignedTopic,
    AssignmentInput,
)
from kafkalite.coordinators.groups.decisions.consumer import heartbeats
from kafkalite.coordinators.groups.decisions.consumer.assignors import ASSIGNORS
from kafkalite.coordinators.groups.decisions.consumer.group import ConsumerGroup, ConsumerGroupState
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerHeartbeat, GroupSettings
from kafkalite.coordinators.groups.decisions.members import TargetEpoch, TargetMember
from kafkalite.coordinators.groups.records import consumer as consumer_records
from kafkalite.model import TopicId
from tests.property.group_model import GroupModel, ModelMember
from tests.support.fetching import run_to_end

_SETTINGS = GroupSettings(("uniform", "range"), 45_000, 5_000, 100, 100, can_upgrade=True, can_downgrade=True)
_IDS = {name: TopicId(letter * 21 + "A") for name, letter in (("a", "x"), ("b", "y"), ("c", "z"))}
_COUNTS = {"a": 5, "b": 4, "c": 1}
_TOPICS = {_IDS[name]: AssignedTopic(_IDS[name], name, count) for name, count in _COUNTS.items()}


class _Client(ModelMember):
    """It also knows which topics it wants."""

    def __init__(self, name: str, instance_id: str | None, topics: tuple[str, ...]) -> None:
        super().__init__(name, instance_id, frozenset())
        self.topics = topics


class _World(GroupModel[_Client]):
    heartbeats = heartbeats
    records = consumer_records
    nothing = frozenset()
    kept = ("members", "targets", "owners", "epoch", "target_epoch", "static_members")

    def request(self, client: _Client) -> ConsumerHeartbeat:
        owned = {
            topic_id: frozenset(number for other, number in client.owned if other == topic_id)
            for topic_id in {topic_id for topic_id, _ in client.owned}
        }
        joins = not client.is_joined
        return ConsumerHeartbeat(
            client.name,
            0 if joins else client.epoch,
            client.instance_id,
            None,
            1_000,
            topics=client.topics,
            owned={} if joins else owned,
        )

    def answer(self, request: ConsumerHeartbeat) -> Any:
        return heartbeats.heartbeat(self.group, request, _SETTINGS, self.now)

    def held(self, member: Any) -> frozenset[tuple[TopicId, int]]:
        return frozenset((topic_id, n) for topic_id, held in member.assigned.items() for n in held)

    def assign(self) -> None:
        members = sorted(
            (
                AssignedMember(
                    member.member_id,
                    member.instance_id,
                    None,
                    frozenset(_IDS[topic] for topic in member.topics),
                    self.group.target_of(member.member_id),
                )
                for member in self.group.members.values()
            ),
            key=lambda member: member.rank,
        )
        assignor = ASSIGNORS[self.source.choice(["uniform", "range"])]
        targets = run_to_end(assignor(AssignmentInput(tuple(members), _TOPICS)))
        epoch = self.group.epoch
        self.write([*(TargetMember(name, target) for name, target in targets.items()), TargetEpoch(epoch)])

    def step(self) -> None:
        source = self.source
        kind = source.choice(["heartbeat"] * 6 + ["join", "leave", "topics", "restart", "lost", "fail over", "forget"])
        client = source.choice(list(self.clients.values())) if self.clients else None
        if kind == "join" or client is None:
            self.numbers += 1
            instance = f"i{self.numbers}" if source.random() < 0.4 else None
            new = _Client(f"m{self.numbers}", instance, self.some_topics())
            self.clients[new.name] = new
            self.heartbeat(new)
        elif kind == "leave":
            self.remove(client)
        elif kind == "topics":
            client.topics = self.some_topics()
            self.heartbeat(client)
        elif kind == "restart" and client.instance_id is not None and client.is_joined:
            if client.name in self.group.members:
                self.write([*leave_for_a_while(self.group, self.group.members[client.name])])
            del self.clients[client.name]
            self.numbers += 1
            again = _Client(f"m{self.numbers}", client.instance_id, client.topics)
            self.clients[again.name] = again
            self.heartbeat(again)
        elif kind == "fail over":
            self.fail_over()
        elif kind == "forget":
            # It stops, gives up what it had, and comes back as the same member.
            client.owned, client.is_joined = self.nothing, client.instance_id is not None and client.is_joined
            self.heartbeat(client)
        else:
            self.heartbeat(client, is_lost=kind == "lost")
        self.check()

    def some_topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.source.sample(sorted(_COUNTS), self.source.randint(1, 3))))

    def check(self) -> None:
        owners: dict[tuple[TopicId, int], str] = {}
        for client in self.clients.values():
            for partition in client.owned:
                other = owners.setdefault(partition, client.name)
                assert other == client.name, f"{partition} of {other} and {client.name}"

    def settles(self) -> None:
        self.settle(200)
        assert self.group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
        wanted = {
            (_IDS[topic], number)
            for client in self.clients.values()
            for topic in client.topics
            for number in range(_COUNTS[topic])
        }
        assert {partition for client in self.clients.values() for partition in client.owned} == wanted


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_has_two_owners_and_all_have_one_in_the_end(seed: int) -> None:
    world = _World(random.Random(seed), ConsumerGroup("g"))
    for _ in range(150):
        world.step()
    world.settles()


_RACKS = st.sampled_from([None, "r1", "r2", "r3"])


@st.composite
def _inputs(draw: st.DrawFn) -> AssignmentInput:
    topics = {}
    has_racks = draw(st.booleans())
    for number in range(draw(st.integers(0, 4))):
        count = draw(st.integers(1, 9))
        racks = tuple(
            frozenset(draw(st.lists(st.sampled_from(["r1", "r2", "r3"]), max_size=2)))
            for _ in range(count if has_racks else 0)
        )
        topics[TopicId(f"id{number}")] = AssignedTopic(TopicId(f"id{number}"), f"t{number}", count, racks)
    is_alike = draw(st.booleans())
    members = []
    for number in range(draw(st.integers(1, 6))):
        wanted = (
            frozenset(topics)
            if is_alike
            else frozenset(draw(st.sets(st.sampled_from(sorted(topics) or [TopicId("")]))))
        )
        target = {topic_id: frozenset(draw(st.sets(st.integers(0, 11), max_size=5))) for topic_id in topics}
        members.append(AssignedMember(f"m{number}", None, draw(_RACKS), wanted & topics.keys(), target))
    return AssignmentInput(tuple(members), topics)


@given(_inputs(), st.sampled_from(["uniform", "range"]))
def test_every_partition_goes_to_one_of_its_subscribers_and_shares_are_even(given_: AssignmentInput, name: str) -> None:
    targets = run_to_end(ASSIGNORS[name](given_))
    takers = {topic_id: [m for m in given_.members if topic_id in m.topics] for topic_id in given_.topics}
    for topic_id, topic in given_.topics.items():
        owners = [m for m in given_.members for p in targets[m.member_id].get(topic_id, ()) if p < topic.partitions]
        assert all(topic_id in owner.topics for owner in owners)
        shares = [sorted(targets[m.member_id].get(topic_id, ())) for m in given_.members]
        assert sorted(p for share in shares for p in share) == (
            list(range(topic.partitions)) if takers[topic_id] else []
        )
        if name == "range" and takers[topic_id]:
            sizes = [len(targets[m.member_id].get(topic_id, ())) for m in takers[topic_id]]
            assert max(sizes) - min(sizes) <= 1
    loads = {m.member_id: sum(map(len, targets[m.member_id].values())) for m in given_.members}
    if name == "uniform":
        for topic_id, those in takers.items():
            # Nobody has two more than another subscriber of a topic of which it has a partition.
            for owner in those:
                if targets[owner.member_id].get(topic_id):
                    assert loads[owner.member_id] <= min(loads[m.member_id] for m in those) + 1


@given(_inputs(), st.sampled_from(["uniform", "range"]))
def test_nothing_moves_without_a_reason(given_: AssignmentInput, name: str) -> None:
    """Without racks: the same input gives the same target again."""
    bare = {key: AssignedTopic(key, topic.name, topic.partitions) for key, topic in given_.topics.items()}
    first = run_to_end(ASSIGNORS[name](AssignmentInput(given_.members, bare)))
    members = tuple(AssignedMember(m.member_id, None, None, m.topics, first[m.member_id]) for m in given_.members)
    assert run_to_end(ASSIGNORS[name](AssignmentInput(members, bare))) == first


def test_partitions_go_to_the_racks_of_their_replicas() -> None:
    racks = ("r1", "r2", "r3")
    topic = AssignedTopic(TopicId("id"), "t", 9, tuple(frozenset({racks[n // 3]}) for n in range(9)))
    members = tuple(AssignedMember(f"m{n}", None, racks[n], frozenset({topic.topic_id})) for n in range(3))
    for name in ASSIGNORS:
        targets = run_to_end(ASSIGNORS[name](AssignmentInput(members, {topic.topic_id: topic})))
        assert [sorted(targets[f"m{n}"][topic.topic_id]) for n in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]], name
        # Also if they have to be swapped: each begins with what is near to another one.
        turned = tuple(
            AssignedMember(f"m{n}", None, racks[n], frozenset({topic.topic_id}), targets[f"m{(n + 1) % 3}"])
            for n in range(3)
        )
        assert run_to_end(ASSIGNORS[name](AssignmentInput(turned, {topic.topic_id: topic}))) == targets, name
