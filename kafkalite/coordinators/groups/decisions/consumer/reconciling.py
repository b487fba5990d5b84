"""The next step of one member towards its target assignment (KIP-848). Pure.

A partition goes to its new owner only when the old one has said that it gave it up, has left, or has been removed: no two
members ever have the same partition. Java's clients also say that they own nothing while they still take in what they were assigned
last. Kafka 4.4 takes that for "given up", and for a moment two members have the partition. Here it counts only if the member has
nothing left to own; otherwise it is asked to give up, and its next list counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.members import Assignment, ConsumerMember, Held, MemberState
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TopicId

_NONE: frozenset[int] = frozenset()


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicId, int], bool],
    *,
    is_joining: bool = False,
) -> ConsumerMember:
    """The member after this step; itself if there is nothing to do.

    Args:
        owned: what the member says that it has; None: it did not say.
        is_joining: it joins, perhaps again: it has given up what it had.
        is_free: whether no other member has a partition.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH: its state is not known, it has to join again without partitions.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _step(member, member.epoch, target_epoch, target, owned, is_free, is_joining=is_joining)
        case MemberState.UNREVOKED_PARTITIONS:
            # What is wanted elsewhere by now, or was deleted, it need not own before its list counts.
            kept = {key: held for key, held in member.assigned.items() if not target.get(key, _NONE).isdisjoint(held)}
            if _has_any(owned, member.revoking, kept, is_joining=is_joining):
                return member
            # The next epoch: what it gave up may be taken, and what it has to give up now has its own time.
            return _step(
                member, min(member.epoch + 1, target_epoch), target_epoch, target, owned, is_free, is_joining=is_joining
            )
        case MemberState.UNRELEASED_PARTITIONS:
            return _step(member, member.epoch, target_epoch, target, owned, is_free, is_joining=is_joining)
        case _:
            if owned is None or any(owned.values()):
                raise api_error(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known: it has to join again")
            return _step(member, target_epoch, target_epoch, target, owned, is_free, is_joining=is_joining)


def _has_any(owned: Assignment | None, given_up: Held, kept: Held, *, is_joining: bool) -> bool:
    """Whether the member still has some of these partitions, as far as we know. `kept`: what it has beside them."""
    if owned is None or (kept and not is_joining and not any(owned.values())):
        return True
    return any(
        not partitions.isdisjoint(given_up[topic_id]) for topic_id, partitions in owned.items() if topic_id in given_up
    )


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicId, int], bool],
    *,
    is_joining: bool,
) -> ConsumerMember:
    kept: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, _NONE)
        for partition, since in partitions.items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = since
    if revoked and _has_any(owned, revoked, kept, is_joining=is_joining):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, epoch, kept, revoked)
    is_waiting = False
    for topic_id, wanted in target.items():
        mine = kept.get(topic_id, {})
        for partition in sorted(wanted):
            if partition in mine:
                continue
            if is_free(topic_id, partition):
                kept.setdefault(topic_id, {})[partition] = target_epoch
            else:
                is_waiting = True
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(member, state, target_epoch, kept, {})


def _moved(member: ConsumerMember, state: MemberState, epoch: int, assigned: Held, revoking: Held) -> ConsumerMember:
    previous = member.epoch if epoch != member.epoch else member.previous_epoch
    same = state is member.state and assigned == member.assigned and revoking == member.revoking
    if same and epoch == member.epoch:
        return member
    return replace(member, state=state, epoch=epoch, previous_epoch=previous, assigned=assigned, revoking=revoking)
