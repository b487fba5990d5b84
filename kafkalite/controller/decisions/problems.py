"""What an operator should know of the cluster, from the controller's state. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.controller.decisions.state import ControllerState
from kafkalite.model import BrokerId
from kafkalite.wording import number_of

#: (what: a stable word, subject, detail for people)
Problem = tuple[str, str, str]

#: Partitions without a leader that are named one by one; the rest is a number.
MAX_NAMED = 100


def find_problems(
    state: ControllerState, malformed_brokers: Mapping[str, str], wanted_replicas: Mapping[str, int]
) -> list[Problem]:
    """Partitions without a leader, znodes that cannot be used, deletions and removals that wait for dead brokers, internal topics
    that were created when there were fewer brokers.

    Args:
        wanted_replicas: internal topic -> how many replicas the configuration asks for.
    """
    problems = [
        ("znode.malformed", path, f"{path}: {reason}; left alone")
        for path, reason in sorted({**state.malformed, **malformed_brokers}.items())
    ]
    offline = []
    for partition, replicas in state.assigned():
        known = state.partitions.get(partition)
        if known is None:
            detail = f"{partition} has no state yet"
            if not any(replica in state.brokers for replica in replicas):
                detail += f"; none of {list(replicas)} is alive"
            offline.append((str(partition), detail))
        elif known.leader not in state.brokers:
            detail = f"{partition} has no leader; only {[*known.isr, *known.elr]} may lead it"
            if known.last_known_elr:
                detail += f"; {list(known.last_known_elr)} came back, but may lack committed records"
            offline.append((str(partition), detail))
    problems += [("partition.offline", subject, detail) for subject, detail in offline[:MAX_NAMED]]
    if len(offline) > MAX_NAMED:
        problems.append(
            ("partition.offline", "", f"{number_of(len(offline) - MAX_NAMED, 'more partition')} without a leader")
        )
    for name in sorted(state.deletions):
        absent = sorted({broker for _, broker in state.deletions[name].waiting if broker not in state.brokers})
        if absent:
            problems.append(("topic.deletion_waits", name, f"deletion of {name} waits for brokers {absent} to return"))
    held: dict[str, set[BrokerId]] = {}
    disks: dict[str, set[BrokerId]] = {}
    for partition, removal in state.removals.items():
        held.setdefault(partition.topic, set()).update((removal.waiting or frozenset()) - state.brokers.keys())
        disks.setdefault(partition.topic, set()).update(removal.away & state.brokers.keys())
    for name, dead in sorted(held.items()):
        if dead:
            detail = f"removed partitions of {name} wait for brokers {sorted(dead)} to return; until then none can be added to it"
            problems.append(("partition.removal_waits", name, detail))
    for name, live in sorted(disks.items()):
        if live:
            detail = (
                f"offline disks of brokers {sorted(live)} may have removed partitions of {name}; until they are back, or are taken "
                "out of log.dirs, none can be added to it"
            )
            problems.append(("partition.removal_waits", name, detail))
    left: dict[BrokerId, int] = {}
    for leftover in state.leftovers.values():
        gone = {broker for _, broker in leftover.waiting if broker not in state.brokers}
        for broker in gone | {broker for _, broker in leftover.away}:
            left[broker] = left.get(broker, 0) + 1
    for broker in sorted(left):
        if broker in state.brokers:
            detail = (
                f"an offline disk of broker {broker} may have replicas of {number_of(left[broker], 'deleted topic')}; "
                "they are removed when it returns"
            )
        else:
            detail = (
                f"broker {broker} still has replicas of {number_of(left[broker], 'deleted topic')}; they are removed when it "
                "returns"
            )
        problems.append(("topic.deletion_waits", f"broker-{broker}", detail))
    problems += [
        ("broker.drain_waits", str(each), f"{each}: {state.stuck[each]}") for each in sorted(state.stuck)[:MAX_NAMED]
    ]
    for name, wanted in sorted(wanted_replicas.items()):
        topic = state.topics.get(name)
        if topic is None or topic.moves or name in state.deletions:
            continue
        fewest = min(map(len, topic.assignment.values()), default=wanted)
        if fewest < min(wanted, len(state.brokers)):
            detail = (
                f"{name} has {number_of(fewest, 'replica')}; configured: {wanted}; live brokers: {len(state.brokers)}"
            )
            problems.append(("topic.few_replicas", name, detail))
    return problems
