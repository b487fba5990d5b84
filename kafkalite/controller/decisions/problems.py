"""What an operator should know of the cluster, from the controller's state. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple

from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerId, LeaderAndIsr, Replicas, TopicPartition
from kafkalite.wording import number_of

#: (what: a stable word, subject, detail for people)
Problem = tuple[str, str, str]

#: Partitions without a leader that are named one by one; the rest is a number.
MAX_NAMED = 100
#: Partitions looked at between two yields: well below a millisecond.
_STEP = 200


class PartitionCounts(NamedTuple):
    """Partitions that are not being deleted; of them those that nobody leads, and those whose leader is not their preferred replica."""

    partitions: int = 0
    offline: int = 0
    imbalanced: int = 0


def count_partitions(state: ControllerState) -> Generator[None, None, PartitionCounts]:
    """For metrics. In steps."""
    number = offline = imbalanced = 0
    for number, (partition, replicas) in enumerate(state.assigned(), 1):
        known = state.partitions.get(partition)
        if known is not None and known.leader != replicas[0]:
            imbalanced += 1
        if not state.has_leader(partition):
            offline += 1
        if not number % _STEP:
            yield
    return PartitionCounts(number, offline, imbalanced)


def find_problems(
    state: ControllerState, malformed_brokers: Mapping[str, str], wanted_replicas: Mapping[str, int]
) -> Generator[None, None, list[Problem]]:
    """Partitions without a leader, znodes that cannot be used, deletions and removals that wait for dead brokers, internal topics
    that were created when there were fewer brokers. In steps.

    Args:
        wanted_replicas: internal topic -> how many replicas the configuration asks for.
    """
    malformed = sorted({**state.malformed, **malformed_brokers}.items())
    offline = yield from _offline(state)
    return [
        *(("znode.malformed", path, f"{path}: {reason}; left alone") for path, reason in malformed),
        *offline,
        *_elsewhere(state),
        *_earlier_states(state),
        *_deletions(state),
        *_removals(state),
        *_deleted_topics(state),
        *(
            ("broker.drain_waits", str(each), f"{each}: {state.stuck[each]}")
            for each in sorted(state.stuck)[:MAX_NAMED]
        ),
        *_few_replicas(state, wanted_replicas),
    ]


def _offline(state: ControllerState) -> Generator[None, None, list[Problem]]:
    found: list[Problem] = []
    more = 0
    for number, (partition, replicas) in enumerate(state.assigned(), 1):
        known = state.partitions.get(partition)
        if known is None or known.leader not in state.brokers:
            if len(found) < MAX_NAMED:
                found.append(("partition.offline", str(partition), _why_offline(state, partition, replicas, known)))
            else:
                more += 1
        if not number % _STEP:
            yield
    if more:
        found.append(("partition.offline", "", f"{number_of(more, 'more partition')} without a leader"))
    return found


def _why_offline(
    state: ControllerState, partition: TopicPartition, replicas: Replicas, known: LeaderAndIsr | None
) -> str:
    if known is None:
        detail = f"{partition} has no state yet"
        if not any(replica in state.brokers for replica in replicas):
            detail += f"; none of {list(replicas)} is alive"
        return detail
    detail = f"{partition} has no leader; only {[*known.isr, *known.elr]} may lead it"
    if known.last_known_elr:
        detail += f"; {list(known.last_known_elr)} came back, but may lack committed records"
        if away := [each for each in known.last_known_elr if each not in state.brokers]:
            detail += f"; {away} are away again, and waited for if nobody else surely has every record"
    return detail


def _elsewhere(state: ControllerState) -> Iterator[Problem]:
    """Partitions that wait because their records may be on other brokers than their replicas'."""
    for partition, each in sorted(state.elsewhere.items())[:MAX_NAMED]:
        if each.holders and not each.awaited(state.replicas(partition) or ()):
            detail = f"brokers {list(each.holders)}, which are no replicas of {partition} according to ZooKeeper, have more of its records than its replicas"
            yield ("partition.records_elsewhere", str(partition), detail)
        else:
            detail = f"no replica of {partition} that has answered has all of its records; brokers {list(each.silent)} have not said what they have"
            detail += f"; {list(each.holders)} have more of them" if each.holders else ""
            yield ("partition.records_missing", str(partition), detail)


def _earlier_states(state: ControllerState) -> Iterator[Problem]:
    """Partitions whose znodes were put back, and for which too few replicas have said where their logs end."""
    for partition, later in sorted(state.later_epochs.items()):
        known, replicas = state.partitions.get(partition), state.replicas(partition)
        if known is None or replicas is None or known.leader_epoch >= later:
            continue
        live = state.live(partition)
        missing = [replica for replica in replicas if replica not in live]
        detail = f"{partition} has a state of leader epoch {known.leader_epoch}, its replicas know epoch {later}"
        yield ("state.put_back", str(partition), detail + (f"; replicas {missing} are missing" if missing else ""))


def _deletions(state: ControllerState) -> Iterator[Problem]:
    for name in sorted(state.deletions):
        absent = sorted({broker for _, broker in state.deletions[name].waiting if broker not in state.brokers})
        if absent:
            yield ("topic.deletion_waits", name, f"deletion of {name} waits for brokers {absent} to return")


def _removals(state: ControllerState) -> Iterator[Problem]:
    """Of partitions of topics that stay."""
    dead: dict[str, set[BrokerId]] = {}
    offline: dict[str, set[BrokerId]] = {}
    for partition, removal in state.removals.items():
        dead.setdefault(partition.topic, set()).update((removal.waiting or frozenset()) - state.brokers.keys())
        offline.setdefault(partition.topic, set()).update(removal.away & state.brokers.keys())
    for name, brokers in sorted(dead.items()):
        if brokers:
            detail = f"removed partitions of {name} wait for brokers {sorted(brokers)} to return; until then none can be added to it"
            yield ("partition.removal_waits", name, detail)
    for name, brokers in sorted(offline.items()):
        if brokers:
            detail = (
                f"offline disks of brokers {sorted(brokers)} may have removed partitions of {name}; until they are back, or are taken "
                "out of log.dirs, none can be added to it"
            )
            yield ("partition.removal_waits", name, detail)


def _deleted_topics(state: ControllerState) -> Iterator[Problem]:
    """Replicas that brokers or disks still have, and that are removed when these return."""
    left = Counter[BrokerId]()
    for leftover in state.leftovers.values():
        gone = {broker for _, broker in leftover.waiting if broker not in state.brokers}
        left.update(gone | {broker for _, broker in leftover.away})
    for broker, count in sorted(left.items()):
        topics = number_of(count, "deleted topic")
        if broker in state.brokers:
            detail = (
                f"an offline disk of broker {broker} may have replicas of {topics}; they are removed when it returns"
            )
        else:
            detail = f"broker {broker} still has replicas of {topics}; they are removed when it returns"
        yield ("topic.deletion_waits", f"broker-{broker}", detail)


def _few_replicas(state: ControllerState, wanted_replicas: Mapping[str, int]) -> Iterator[Problem]:
    for name, wanted in sorted(wanted_replicas.items()):
        topic = state.topics.get(name)
        if topic is None or topic.moves or name in state.deletions:
            continue
        fewest = min(map(len, topic.assignment.values()), default=wanted)
        if fewest < min(wanted, len(state.brokers)):
            count = number_of(fewest, "replica")
            detail = f"{name} has {count}; configured: {wanted}; live brokers: {len(state.brokers)}"
            yield ("topic.few_replicas", name, detail)
