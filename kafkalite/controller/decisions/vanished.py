"""Topics and states whose znodes have vanished without a request. Pure (ADR 19).

The controller has the last states in memory. If a topic comes back without its partitions' states, or if only a state
vanishes, it writes the last known one again, in a new leader epoch. A first state would count every live replica as in
sync, and its epoch would be lower than those in the logs. The controller also stores the last states for its successors.
States that were put back before it has seen them go get a new leader epoch, too. So do those that were put back before this controller
read them first: only their replicas know that they are earlier ones, and say so. If no leader of the later epoch is among them, nobody
knows who was in sync. Then the replicas are asked for their log ends, and the most complete one leads, if those that were not asked are
too few to have a committed record for themselves: it is in min.insync.replicas logs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from kafkalite.controller.decisions import elections
from kafkalite.controller.decisions.effects import Decision, DropVanished, Effect, KeepVanished
from kafkalite.controller.decisions.eligible import (
    NOTHING,
    KnownReplicas,
    LogEnd,
    by_completeness,
    carried,
    without_doubtful,
)
from kafkalite.controller.decisions.events import Claim, StatesRead
from kafkalite.controller.decisions.state import ControllerState, Vanished
from kafkalite.model import (
    NO_LEADER,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderAndIsr,
    LeaderEpoch,
    TopicPartition,
)

#: Topics whose last states are remembered; beyond it the oldest are dropped.
MAX_VANISHED = 1_000


def remember(state: ControllerState, name: str) -> Decision:
    """A topic's znode has vanished: keep its last states, also for the next controller."""
    topic_id, assignment = state.topics[name].topic_id, state.topics[name].assignment
    states = {
        number: known
        for number in assignment
        if (known := state.partitions.get(TopicPartition(name, number))) is not None
    }
    state, effects = forget(state, [name])
    if topic_id == NO_TOPIC_ID:
        return state, effects
    while len(state.vanished) >= MAX_VANISHED:
        state, dropped = forget(state, [next(iter(state.vanished))])
        effects += dropped
    since = max((broker.broker_epoch for broker in state.brokers.values()), default=BrokerEpoch(0))
    state = dataclasses.replace(state, vanished={**state.vanished, name: Vanished(topic_id, states, since)})
    return state, [*effects, KeepVanished(name, state.vanished[name])]


def forget(state: ControllerState, names: Collection[str]) -> Decision:
    """These topics are back, or are deleted for good."""
    doomed: list[Effect] = [DropVanished(state.vanished[name].topic_id) for name in names if name in state.vanished]
    rest = {name: each for name, each in state.vanished.items() if name not in names}
    return (dataclasses.replace(state, vanished=rest), doomed) if doomed else (state, [])


def forget_returned(state: ControllerState) -> Decision:
    """Those that are back with all their states."""
    back = [
        name
        for name, each in state.vanished.items()
        if (topic := state.topics.get(name)) is not None
        and topic.topic_id == each.topic_id
        and all(TopicPartition(name, number) in state.partitions for number in topic.assignment)
    ]
    return forget(state, back)


def last_known(state: ControllerState, partition: TopicPartition) -> LeaderAndIsr | None:
    """The state of a partition that has no state znode; None if it is new, as far as this controller knows."""
    known = state.partitions.get(partition)
    if known is not None:
        return known
    vanished, topic = state.vanished.get(partition.topic), state.topics.get(partition.topic)
    if vanished is None or topic is None or vanished.topic_id != topic.topic_id:
        return None
    return vanished.states.get(partition.partition)


def put_back(known: LeaderAndIsr, found: LeaderAndIsr) -> LeaderAndIsr | None:
    """What to go on with if a state znode was removed and put back unseen; None: it was not.

    A znode's version and its leader epoch never go back. One that is put back begins with version 0: leaders that know the
    earlier version cannot write it. It may be from an earlier backup, or newer than what the controller has heard. So of
    two states of one leader epoch only members of both ISRs surely have what is committed.
    """
    if (found.leader_epoch, found.partition_epoch) >= (known.leader_epoch, known.partition_epoch):
        return None
    if found.leader_epoch < known.leader_epoch:
        return dataclasses.replace(known, partition_epoch=found.partition_epoch)
    isr = tuple(each for each in found.isr if each in known.isr)
    if not isr or found.leader not in (*isr, NO_LEADER):  # by hand
        return found
    elr = tuple(each for each in found.elr if each in known.elr)
    return dataclasses.replace(found, isr=isr, elr=elr)


def claimed(claim: Claim | None, found: LeaderAndIsr) -> LeaderAndIsr | None:
    """What to go on with if the leader knows a later state than the znode, which was put back before this controller read it first, or
    has resigned though the znode names it; None: neither is so. (Of who was in sync an epoch alone says nothing.)"""
    if claim is None:
        return None
    is_same = (found.leader, found.leader_epoch) == (claim.state.leader, claim.state.leader_epoch)
    later = None if claim.is_epoch_only else put_back(claim.state, found)
    return later or (found if claim.has_resigned and is_same else None)


def later_epochs(
    state: ControllerState, written: Mapping[TopicPartition, LeaderAndIsr]
) -> Mapping[TopicPartition, LeaderEpoch]:
    """What the replicas know after these writes: a partition that was put back, and that nobody leads yet, has still an earlier state."""
    later = {
        partition: LeaderEpoch(now.leader_epoch + 1)
        for partition, now in written.items()
        if now.leader == NO_LEADER
        and (known := state.partitions.get(partition)) is not None
        and state.is_put_back(partition, known)
        and not state.is_put_back(partition, now)
    }
    return {**state.later_epochs, **later} if later else state.later_epochs


def known_by_logs(state: ControllerState, event: StatesRead) -> Mapping[TopicPartition, LeaderEpoch]:
    """The same, after replicas have reported their log ends: a log of a later epoch than the state's, or of that in which nobody leads, was
    written before the state was put back."""
    known = dict(state.later_epochs)
    for partition, ends in (event.log_ends or {}).items():
        found = event.states.get(partition)
        if found is None or all(end <= NOTHING for end in ends.values()):
            continue
        latest = max(epoch for epoch, _ in (*ends.values(), *event.elsewhere.get(partition, {}).values()))
        if latest == found.leader_epoch and found.leader == NO_LEADER:
            latest = LeaderEpoch(latest + 1)
        if latest > found.leader_epoch:
            known[partition] = max(latest, known.get(partition, latest))
    return known


def most_complete(
    replicas: Sequence[BrokerId],
    state: LeaderAndIsr,
    epoch: ControllerEpoch,
    log_ends: Mapping[BrokerId, LogEnd],
    *,
    doubtful: Collection[BrokerId],
    min_insync: int,
    unclean: bool,
) -> tuple[LeaderAndIsr | None, bool]:
    """The state with the most complete replica as its leader, alone in the ISR, and whether it may lack committed records.

    A committed record is in `min_insync` logs. If fewer logs than that are unknown, a known one has it; and of two logs the one with the
    later last epoch, or with more records of the same last epoch, has what the other one has of what is committed (as in Raft's elections).

    Args:
        state: from the earlier time, with the latest leader epoch that a replica knows.
        doubtful: replicas that may have lost records: they do not count as known.
        unclean: whether a leader may lack committed records.
    Returns:
        (None, False) as long as too many logs are unknown.
    """
    known = [replica for replica in replicas if replica in log_ends]
    unknown = len(replicas) - sum(replica not in doubtful for replica in known)
    is_lossy = unknown >= min(min_insync, len(replicas))
    if not known or (is_lossy and not unclean):
        return None, False
    leader = by_completeness(known, log_ends)[0]
    state = dataclasses.replace(state, elr=(), last_known_elr=())
    return elections.with_epoch(state, leader, (leader,), epoch), is_lossy


def again(state: ControllerState, partition: TopicPartition, known: LeaderAndIsr, *, min_insync: int) -> LeaderAndIsr:
    """The state to write in the place of `known`. Brokers that have died or restarted since then have left the ISR; eligible
    replicas are still eligible."""
    live = state.live(partition)
    replicas = state.replicas(partition) or known.isr
    vanished = state.vanished.get(partition.topic)
    restarted: set[BrokerId] = set()
    if partition not in state.partitions and vanished is not None:
        restarted = {each for each in live if state.brokers[each].broker_epoch > vanished.since}
    keeps_elr = {id_ for id_, broker in state.registered() if broker.keeps_elr}
    silent = {id_ for id_ in known.elr if id_ in state.brokers and id_ not in keeps_elr}  # about what it may have lost
    kept = without_doubtful(known, silent)
    repaired = elections.repair(
        replicas,
        kept,
        live,
        state.shutting_down,
        state.epoch,
        restarted=restarted,
        unclean=False,
    )
    made = repaired or elections.with_epoch(kept, kept.leader, kept.isr, state.epoch)
    gone = silent | (restarted - keeps_elr) | state.offline_replicas.get(partition, frozenset())
    made = carried(known, made, replicas, KnownReplicas(min_insync, keeps_elr), gone)
    return dataclasses.replace(made, partition_epoch=elections.NOT_CREATED)
