"""Eligible leader replicas (KIP-966, ADR 16): those that have left the ISR since it fell below min.insync.replicas. Pure.

While the ISR is below min.insync.replicas, or a replica is eligible, the leader does not move the high watermark. So a
replica that left the ISR meanwhile still has every committed record, until it restarts with less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER, BrokerId, LeaderAndIsr, LeaderEpoch, Offset

#: How far the log of a replica goes: the leader epoch of its last record, then its end. The larger one is more complete.
LogEnd = tuple[LeaderEpoch, Offset]
#: Of a log without a record, or of one that is gone.
NOTHING: LogEnd = (LeaderEpoch(-1), Offset(0))


@dataclass(frozen=True, slots=True)
class KnownReplicas:
    """What a decision about one partition knows beyond its state and the live brokers.

    min_insync: min.insync.replicas of the topic.
    keeps_elr: brokers whose code knows eligible leader replicas.
    is_unclean: a leader may lack committed records, by the topic's configuration or by order.
    """

    min_insync: int = 1
    keeps_elr: Collection[BrokerId] = ()
    is_unclean: bool = False


def members(state: LeaderAndIsr) -> tuple[BrokerId, ...]:
    """The replicas that may lead without any loss, according to the state."""
    return (*state.isr, *state.elr)


def without_doubtful(state: LeaderAndIsr, doubtful: Collection[BrokerId]) -> LeaderAndIsr:
    """The state as if brokers that may lack committed records had left the ISR and the ELR before they came back; the same
    if there are none, or no other replica is in sync or eligible.

    If no member of the ISR is left, the eligible replicas become the ISR, without a leader: each of them may lead. (Older
    nodes could not read a state with an ELR and an empty ISR.)
    """
    isr = tuple(each for each in state.isr if each not in doubtful)
    elr = tuple(each for each in state.elr if each not in doubtful)
    if (isr, elr) == (state.isr, state.elr) or not (isr or elr):
        return state
    gone = [each for each in members(state) if each in doubtful]
    if not isr:
        isr, elr = elr, ()
    leader = state.leader if state.leader in isr else NO_LEADER
    last_known_elr = tuple(dict.fromkeys([*state.last_known_elr, *gone]))
    return dataclasses.replace(state, leader=leader, isr=isr, elr=elr, last_known_elr=last_known_elr)


def carried(
    found: LeaderAndIsr,
    wanted: LeaderAndIsr,
    replicas: Sequence[BrokerId],
    known: KnownReplicas,
    gone: Collection[BrokerId] = (),
) -> LeaderAndIsr:
    """`wanted` with the ELR that follows from what it replaces (Kafka's PartitionChangeBuilder.maybePopulateTargetElr).

    Args:
        found: the state that `wanted` is to replace.
        gone: replicas that have lost what they had, or may have.
    """
    before = members(found)
    is_outside = wanted.leader not in (NO_LEADER, *before) and found.partition_epoch >= 0
    if wanted.leader != NO_LEADER:
        # One that had everything once leads for want of a better one: should its log be lost, too, the others have the most that is left.
        is_unclean = is_outside and (known.is_unclean or wanted.leader not in found.last_known_elr)
        enough = len(wanted.isr) >= min(known.min_insync, len(replicas))
        if is_unclean or enough or wanted.leader not in known.keeps_elr:
            return dataclasses.replace(wanted, elr=(), last_known_elr=())
    rest = [each for each in replicas if each not in wanted.isr]
    elr = tuple(each for each in rest if each in before and each not in gone and not is_outside)
    last = {*before, *found.last_known_elr}
    last_known_elr = tuple(each for each in rest if each in last and each not in elr)
    return dataclasses.replace(wanted, elr=elr, last_known_elr=last_known_elr)


def by_completeness(candidates: Sequence[BrokerId], log_ends: Mapping[BrokerId, LogEnd] | None) -> list[BrokerId]:
    """The candidates, the most complete first. Those without a reported log end come last, in the given order."""
    ends = log_ends or {}

    def rank(replica: BrokerId) -> tuple[bool, int, int]:
        epoch, end = ends.get(replica, (LeaderEpoch(0), Offset(0)))
        return replica not in ends, -epoch, -end

    return sorted(candidates, key=rank)
