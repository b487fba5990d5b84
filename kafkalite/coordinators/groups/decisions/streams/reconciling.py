"""The next step of one member towards its target tasks (KIP-1071). Pure.

An active task goes to its new owner only when the old one has said that it gave it up, has left, or has been removed: no two
members ever process the same task. A process has a task once at most, in whatever role: its state is one directory. A member that
says that it has nothing, and should have something, may be about to begin with what it was assigned last: that gives nothing up
(kafkalite.coordinators.groups.decisions.consumer.reconciling).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafkalite.coordinators.groups.decisions.streams.members import (
    NOTHING,
    StreamsMember,
    StreamsMemberState,
    Task,
    TaskSets,
)
from kafkalite.errors import ErrorCode, api_error

#: Of a task: whether no other member processes it; whether no other member of the same process has it in any role.
IsFree = Callable[[Task], tuple[bool, bool]]


def reconcile(
    member: StreamsMember,
    target_epoch: int,
    target: TaskSets,
    owned: TaskSets | None,
    is_free: IsFree,
    *,
    is_joining: bool = False,
) -> StreamsMember:
    """The member after this step; itself if there is nothing to do.

    Args:
        owned: what the member says that it has; None: it did not say.
        is_joining: it joins, perhaps again: it has given up what it had.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH: its state is not known, it has to join again without tasks.
    """
    match member.state:
        case StreamsMemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _step(member, member.epoch, target_epoch, target, owned, is_free, is_joining=is_joining)
        case StreamsMemberState.UNREVOKED_TASKS:
            # What is wanted elsewhere by now, or was deleted, it need not own before its list counts.
            if _has_any(owned, member.revoking, member.assigned & target, is_joining=is_joining):
                return member
            # The next epoch: what it gave up may be taken, and what it has to give up now has its own time.
            return _step(
                member, min(member.epoch + 1, target_epoch), target_epoch, target, owned, is_free, is_joining=is_joining
            )
        case StreamsMemberState.UNRELEASED_TASKS:
            return _step(member, member.epoch, target_epoch, target, owned, is_free, is_joining=is_joining)
        case _:
            if owned is None or owned:
                raise api_error(ErrorCode.FENCED_MEMBER_EPOCH, "the member's state is not known: it has to join again")
            return _step(member, target_epoch, target_epoch, target, owned, is_free, is_joining=is_joining)


def _has_any(owned: TaskSets | None, given_up: TaskSets, kept: TaskSets, *, is_joining: bool) -> bool:
    """Whether the member still has some of these tasks, as far as we know. `kept`: what it has beside them."""
    if owned is None or (kept and not is_joining and not owned):
        return True
    return bool(owned & given_up)


def _step(
    member: StreamsMember,
    epoch: int,
    target_epoch: int,
    target: TaskSets,
    owned: TaskSets | None,
    is_free: IsFree,
    *,
    is_joining: bool,
) -> StreamsMember:
    kept = member.assigned & target
    revoked = member.assigned - kept
    if revoked and _has_any(owned, revoked, kept, is_joining=is_joining):
        return _moved(member, StreamsMemberState.UNREVOKED_TASKS, epoch, target_epoch, kept, revoked)
    wanted = target - kept
    available = TaskSets(
        frozenset(task for task in wanted.active if all(is_free(task))),
        frozenset(task for task in wanted.standby if is_free(task)[1]),
        frozenset(task for task in wanted.warmup if is_free(task)[1]),
    )
    state = StreamsMemberState.STABLE if available == wanted else StreamsMemberState.UNRELEASED_TASKS
    return _moved(member, state, target_epoch, target_epoch, kept | available, NOTHING)


def _moved(
    member: StreamsMember,
    state: StreamsMemberState,
    epoch: int,
    target_epoch: int,
    assigned: TaskSets,
    revoking: TaskSets,
) -> StreamsMember:
    previous = member.epoch if epoch != member.epoch else member.previous_epoch
    same = state is member.state and assigned == member.assigned and revoking == member.revoking
    if same and epoch == member.epoch:
        return member
    since = {task: member.since.get(task, target_epoch) for task in assigned.active | revoking.active}
    return replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=previous,
        assigned=assigned,
        revoking=revoking,
        since=since,
    )
