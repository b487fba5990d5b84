"""Streams groups against what members may believe: no task is ever processed by two members, and all are in the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.groups.decisions.members import TargetEpoch, TargetMember
from kafkalite.coordinators.groups.decisions.streams import heartbeats
from kafkalite.coordinators.groups.decisions.streams.assignor import StreamsAssigned, assign
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup, StreamsGroupState
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat, StreamsSettings
from kafkalite.coordinators.groups.decisions.streams.members import (
    NOTHING,
    TaskSets,
)
from kafkalite.coordinators.groups.decisions.streams.topology import (
    ConfiguredSubtopology,
    InternalTopic,
    Subtopology,
    Topology,
)
from kafkalite.coordinators.groups.records import streams as streams_records
from tests.property.group_model import GroupModel, ModelMember
from tests.support.calls import calls
from tests.support.fetching import run_to_end

_TOPOLOGY = Topology(
    1,
    (
        Subtopology("0", ("in",), repartition_sinks=("r",)),
        Subtopology("1", changelogs=(InternalTopic("c"),), repartition_sources=(InternalTopic("r"),)),
    ),
)
_EXISTING = {"in": 3, "r": 3, "c": 3}
_TASKS = {(name, number) for name in ("0", "1") for number in range(3)}


def check_assignment(
    members: list[StreamsAssigned],
    targets: Mapping[str, TaskSets],
    subtopologies: list[ConfiguredSubtopology],
    standbys: int,
) -> None:
    processes = {member.member_id: member.process_id for member in members}
    active = Counter(task for target in targets.values() for task in target.active)
    assert active == Counter((each.subtopology_id, number) for each in subtopologies for number in range(each.tasks))
    sizes = [len(target.active) for target in targets.values()]
    assert max(sizes) - min(sizes) <= 1
    copies = Counter(task for target in targets.values() for task in target.standby)
    wanted = min(standbys, len(set(processes.values())) - 1)
    stateful = {(each.subtopology_id, n) for each in subtopologies if each.is_stateful for n in range(each.tasks)}
    assert copies == Counter({task: wanted for task in stateful if wanted})
    held = [(processes[name], task) for name, target in targets.items() for task in target.active | target.standby]
    assert len(held) == len(set(held))
    assert not any(target.warmup for target in targets.values())


def test_many_members_of_one_process_cost_as_much_as_others() -> None:
    """Each task looked at all members of the process, for each of them: 10,000 members hold the loop for minutes."""

    def cost(processes: int) -> int:
        members = [StreamsAssigned(f"m{number:04}", f"p{number % processes}") for number in range(500)]
        subtopologies = [ConfiguredSubtopology("0", 600, ("in",), (), (), (InternalTopic("c"),))]
        check_assignment(members, run_to_end(assign(members, subtopologies, 1)), subtopologies, 1)
        return calls(lambda: run_to_end(assign(members, subtopologies, 1)))

    assert max(map(cost, (2, 500))) < 60_000


_members = st.lists(st.integers(0, 4), min_size=1, max_size=8).map(
    lambda places: [StreamsAssigned(f"m{number}", f"p{place}") for number, place in enumerate(places)]
)
_subtopologies = st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=4).map(
    lambda sizes: [
        ConfiguredSubtopology(str(number), tasks, ("in",), (), (), (InternalTopic("c"),) if is_stateful else ())
        for number, (tasks, is_stateful) in enumerate(sizes)
    ]
)


@given(_members, _subtopologies, st.integers(0, 3), st.data())
def test_every_task_is_assigned_once_and_stays(
    members: list[StreamsAssigned], subtopologies: list[ConfiguredSubtopology], standbys: int, data: st.DataObject
) -> None:
    targets = run_to_end(assign(members, subtopologies, standbys))
    check_assignment(members, targets, subtopologies, standbys)
    again = [replace(member, before=targets[member.member_id]) for member in members]
    assert {name: target.active for name, target in run_to_end(assign(again, subtopologies, standbys)).items()} == {
        name: target.active for name, target in targets.items()
    }
    gone = data.draw(st.sets(st.sampled_from([member.member_id for member in members]), max_size=len(members) - 1))
    left = [member for member in again if member.member_id not in gone]
    more = [StreamsAssigned("new", data.draw(st.sampled_from(["p0", "p9"])))] if data.draw(st.booleans()) else []
    after = run_to_end(assign([*left, *more], subtopologies, standbys))
    check_assignment([*left, *more], after, subtopologies, standbys)
    if not more:  # Who stays loses nothing: there is only more to do for each.
        assert all(targets[member.member_id].active <= after[member.member_id].active for member in left)


class _Client(ModelMember):
    def __init__(self, name: str, process: str, instance_id: str | None) -> None:
        super().__init__(name, instance_id, NOTHING)
        self.process = process


class _World(GroupModel[_Client]):
    heartbeats = heartbeats
    records = streams_records
    nothing = NOTHING
    kept = (
        "members", "targets", "holders", "epoch", "target_epoch", "static_members", "topology", "validated_epoch",
    )  # fmt: skip
    settings = StreamsSettings(45_000, 5_000, 100, 1, 0, 60_000, 10_000)

    def request(self, client: _Client) -> StreamsHeartbeat:
        joins = not client.is_joined
        return StreamsHeartbeat(
            client.name,
            0 if joins else client.epoch,
            client.instance_id,
            rebalance_timeout_ms=1_000,
            topology=_TOPOLOGY if joins else None,
            owned=NOTHING if joins else client.owned,
            process_id=client.process,
        )

    def answer(self, request: StreamsHeartbeat) -> Any:
        return heartbeats.heartbeat(self.group, request, self.settings, lambda _: (7, _EXISTING), self.now)

    def answered(self, outcome: Any) -> None:
        super().answered(outcome)
        self.group.configured = outcome.configured

    def held(self, member: Any) -> TaskSets:
        assigned: TaskSets = member.assigned
        return assigned

    def assign(self) -> None:
        configured = self.group.configured
        assert configured is not None and configured.is_ready
        members = [
            StreamsAssigned(each.member_id, each.process_id, self.group.target_of(each.member_id))
            for each in self.group.members.values()
        ]
        targets = run_to_end(assign(members, list(configured.subtopologies), self.settings.standby_replicas))
        check_assignment(members, targets, list(configured.subtopologies), self.settings.standby_replicas)
        epoch = self.group.epoch
        self.write([*(TargetMember(*each) for each in targets.items()), TargetEpoch(epoch)])

    def check(self) -> None:
        active = Counter(task for client in self.clients.values() for task in client.owned.active)
        assert all(count == 1 for count in active.values()), active
        held = Counter((client.process, task) for client in self.clients.values() for task in client.owned.all)
        assert all(count == 1 for count in held.values()), held

    def step(self) -> None:
        self.now += 10
        choice = self.source.random()
        if choice < 0.12 and len(self.clients) < 5:
            self.numbers += 1
            instance = self.source.choice([None, None, f"i{self.numbers}"])
            name = f"m{self.numbers}"
            self.clients[name] = _Client(name, f"p{self.source.randrange(3)}", instance)
        elif choice < 0.17 and self.clients:
            self.remove(self.source.choice(list(self.clients.values())))
        elif choice < 0.2:
            self.fail_over()
        elif choice < 0.23:
            self.settings = replace(self.settings, standby_replicas=self.source.randrange(3))
        elif choice < 0.33 and self.group.needs_assignment:
            if self.group.configured is None:
                return
            self.assign()
        elif self.clients:
            client = self.source.choice(list(self.clients.values()))
            self.heartbeat(client, is_lost=self.source.random() < 0.1)
        self.check()


@given(st.integers(0, 2**32))
def test_no_task_is_processed_twice(seed: int) -> None:
    world = _World(random.Random(seed), StreamsGroup("g"))
    for _ in range(150):
        world.step()
    world.settle(20)
    if world.clients:
        assert world.group.state is StreamsGroupState.STABLE
        assert {task for client in world.clients.values() for task in client.owned.active} == _TASKS
