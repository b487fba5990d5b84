"""Internal topics that were created when there were fewer brokers get the replicas that they lack, one after the other."""

from __future__ import annotations

import dataclasses

import pytest

from kafkalite.controller.decisions.balance_view import DiskRoom, PartitionLoad
from kafkalite.controller.decisions.effects import Effect, RaiseMinInsync, WriteTopics
from kafkalite.controller.decisions.events import BalancerDue, BalancerSettings, WantedReplication
from kafkalite.controller.decisions.internal_topics import lacks_replicas
from kafkalite.controller.decisions.rebalancing import on_balancer_due
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerId, TopicPartition
from tests.unit.controller.test_rebalancing import closed, state_of, targets

OFF = BalancerSettings("off")
#: offsets.topic.replication.factor=3, transaction.state.log.min.isr=2, created with min.insync.replicas=1.
WANTED = {"t": WantedReplication(3, 2, 1)}
SAFE = {"t": WantedReplication(3, 2, 2)}


def effects(state: ControllerState, event: BalancerDue) -> list[Effect]:
    return on_balancer_due(state, event)[1]


@pytest.mark.parametrize("mode", ["off", "advise", "on"])
def test_in_every_mode_a_replica_is_added(mode: str) -> None:
    lone = state_of({0: (1,), 1: (1,), 2: (1,)}, live=(1, 2, 3))
    found = targets(lone, BalancerDue(BalancerSettings(mode), internal=WANTED))
    assert sorted(found) == [0, 1, 2]
    assert all(len(set(each)) == 2 and 1 in each for each in found.values())
    leaders = sorted(each[0] for each in found.values())
    assert leaders == [1, 2, 3], "they also lead, as if the topic was made now"


def test_only_as_many_as_there_are_brokers_for() -> None:
    lone = state_of({0: (1,)}, live=(1, 2, 3))
    assert not lacks_replicas(state_of({0: (1,)}, live=(1,)), {}, WANTED)
    assert not targets(state_of({0: (1,)}, live=(1,)), BalancerDue(OFF, internal=WANTED))
    cordoned = BalancerDue(OFF, closed(cordoned=2), internal=WANTED)
    assert set(targets(lone, cordoned)[0]) == {1, 3}
    assert not targets(lone, BalancerDue(OFF, internal={"t": WantedReplication(1, 2, 1)}))
    assert not targets(lone, BalancerDue(OFF)), "another topic keeps what its creator chose"
    full = {BrokerId(2): DiskRoom(1000, 10), BrokerId(3): DiskRoom(1000, 900)}
    sized = BalancerDue(OFF, loads={TopicPartition("t", 0): PartitionLoad(500)}, room=full, internal=WANTED)
    assert set(targets(lone, sized)[0]) == {1, 3}


def test_min_insync_replicas_comes_before_the_replica_that_may_be_missing() -> None:
    """With two of three a record of a coordinator is on two nodes; with two of two no node could be stopped."""
    two = state_of({0: (1, 2), 1: (2, 1)}, live=(1, 2, 3))
    assert effects(two, BalancerDue(OFF, internal=WANTED)) == [RaiseMinInsync("t", 2)]
    assert sorted(targets(two, BalancerDue(OFF, internal=SAFE))) == [0, 1]
    chosen = state_of({0: (1, 2, 3)}, live=(1, 2, 3))
    assert not effects(chosen, BalancerDue(OFF, internal=WANTED)), "what somebody chose for it is left alone"


def test_no_commit_waits_for_it() -> None:
    """Until every partition has the two replicas in sync, min.insync.replicas=2 would refuse records."""
    mixed = state_of({0: (1, 2), 1: (2,)}, live=(1, 2, 3))
    assert sorted(targets(mixed, BalancerDue(OFF, internal=WANTED))) == [1]
    two = state_of({0: (1, 2), 1: (2, 1)}, live=(1, 2, 3))
    key = TopicPartition("t", 1)
    alone = dataclasses.replace(two.partitions[key], isr=(BrokerId(2),))
    lagging = dataclasses.replace(two, partitions={**two.partitions, key: alone})
    assert not effects(lagging, BalancerDue(OFF, internal=WANTED))


def test_in_batches_and_not_what_somebody_moves() -> None:
    lone = state_of(dict.fromkeys(range(30), (1,)), live=(1, 2, 3))
    event = BalancerDue(BalancerSettings("off", max_moves=4, throttle=77), internal=WANTED)
    state, found = on_balancer_due(lone, event)
    (written,) = [each for each in found if isinstance(each, WriteTopics)]
    (change,) = written.changes
    assert len(change.topic.moves) == 4 and all(move.throttle == 77 for move in change.topic.moves.values())
    moving = dataclasses.replace(state, topics={"t": change.topic})
    assert not targets(moving, event), "the batch is full"
    asked = dataclasses.replace(lone, requested={TopicPartition("t", number): (BrokerId(1),) for number in range(29)})
    assert list(targets(asked, event)) == [29]
