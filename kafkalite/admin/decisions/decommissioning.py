"""Whether a broker can be drained, and which plan puts a new broker in a dead one's place. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Replicas, TopicPartition


def why_not_drained(
    broker: BrokerId,
    assignment: Mapping[TopicPartition, Replicas],
    live: frozenset[BrokerId],
    closed: Mapping[BrokerId, str],
) -> str:
    """Why the replicas of `broker` cannot all move to other brokers; "" if they can.

    Args:
        assignment: of every partition; of one that is being reassigned, what it has in the end.
        closed: brokers that take no new replicas, with their states.
    """
    able = {each for each in live if each != broker and each not in closed}
    for partition, replicas in sorted(assignment.items()):
        if broker not in replicas:
            continue
        free = [each for each in able if each not in replicas]
        if not free:
            others = sorted(each for each in live if each != broker and each not in replicas)
            reason = ", ".join(f"broker {each} is {closed[each]}" for each in others if each in closed)
            if not reason:
                reason = "the other live brokers have one already" if live - {broker} else "no other broker is alive"
            count = f"{len(replicas)} replica{'' if len(replicas) == 1 else 's'}"
            return f"{partition} has {count}, and no broker is left for this one: {reason}"
    return ""


@dataclass(frozen=True, slots=True)
class Replacement:
    """`targets`: partition -> replicas. `kept`: partitions that the new broker has already; they need another broker."""

    targets: Mapping[TopicPartition, Replicas]
    kept: tuple[TopicPartition, ...]


def replace_broker(old: BrokerId, new: BrokerId, assignment: Mapping[TopicPartition, Replicas]) -> Replacement:
    """`new` in the place of `old`, in the same position of each list, so that it also becomes the preferred leader where `old` was."""
    targets: dict[TopicPartition, Replicas] = {}
    kept: list[TopicPartition] = []
    for partition, replicas in sorted(assignment.items()):
        if old not in replicas:
            continue
        if new in replicas:
            kept.append(partition)
        else:
            targets[partition] = tuple(new if each == old else each for each in replicas)
    return Replacement(targets, tuple(kept))


def shares_rack(
    targets: Mapping[TopicPartition, Replicas],
    racks: Mapping[BrokerId, str | None],
    assignment: Mapping[TopicPartition, Replicas],
) -> list[TopicPartition]:
    """The partitions of a plan that would have more replicas on one rack than they have now."""

    def doubled(replicas: Replicas) -> int:
        named = [racks[each] for each in replicas if racks.get(each) is not None]
        return len(named) - len(set(named))

    return [partition for partition, target in targets.items() if doubled(target) > doubled(assignment[partition])]
