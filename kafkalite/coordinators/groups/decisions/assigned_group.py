"""What consumer groups and streams groups have in common (KIP-848, KIP-1071): members, epochs, deadlines, who may use offsets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

from kafkalite.coordinators.groups.decisions.members import Committer, EpochMember, TargetEpoch, TargetMember
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass

#: A group begins here, and its empty target too: 0 is for members that join. The first assignment is that of the next epoch (KAFKA-20268).
INITIAL_EPOCH = 1

M = TypeVar("M", bound=EpochMember)
AnyMember = TypeVar("AnyMember")
T = TypeVar("T")


@dataclass(slots=True)
class MemberTimes:
    """Until when something is expected of a member (ms of the monotonic clock); 0: nothing is.

    session: a sign of life. revocation: that it leaves `epoch`, having given up what it should. join, sync: that it joins
    again, or asks for its assignment (members that speak the classic protocol).
    """

    session: int = 0
    revocation: int = 0
    epoch: int = 0
    join: int = 0
    sync: int = 0

    def next(self) -> int:
        return min(each for each in (self.session, self.revocation, self.join, self.sync) if each)

    @property
    def is_any(self) -> bool:
        return bool(self.session or self.revocation or self.join or self.sync)

    def put_off(self, now: int, until: int) -> None:
        """What is overdue is looked at again `until` then."""
        for name in ("session", "revocation", "join", "sync"):
            if 0 < getattr(self, name) <= now:
                setattr(self, name, until)


@dataclass(slots=True)
class TargetedGroup(Generic[AnyMember, T]):
    """A group whose members get a target from the coordinator. `T`: what a member's target is."""

    group_id: str
    members: dict[str, AnyMember] = field(default_factory=dict)
    epoch: int = INITIAL_EPOCH
    metadata_hash: int = 0
    target_epoch: int = INITIAL_EPOCH
    targets: dict[str, T] = field(default_factory=dict)
    is_dead: bool = False

    def member(self, member_id: str) -> AnyMember:
        """Raises ApiError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise api_error(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def empty_target(self, leaving: int) -> list[TargetEpoch]:
        """The record of the next epoch's target if no member stays: nobody has to compute it (KAFKA-20442)."""
        return [TargetEpoch(self.epoch + 1)] if leaving == len(self.members) else []

    def apply_epoch(self, epoch: int | None, metadata_hash: int) -> None:
        """None: the group is gone."""
        self.epoch, self.metadata_hash = epoch or INITIAL_EPOCH, metadata_hash
        if epoch == INITIAL_EPOCH:
            self.target_epoch = 0  # a group that began with 0, in an earlier version: its first target follows

    def apply_target(self, record: TargetMember[T] | TargetEpoch) -> None:
        if isinstance(record, TargetEpoch):
            self.target_epoch = record.epoch or INITIAL_EPOCH
        elif record.target is None:
            self.targets.pop(record.member_id, None)
        else:
            self.targets[record.member_id] = record.target


@dataclass(slots=True)
class AssignedGroup(TargetedGroup[M, T]):
    """One whose members own what they are assigned. Times are not stored: a new coordinator gives each member a whole session."""

    #: What its members hold, in plain words; and what one holds that has nothing.
    HELD: ClassVar = "partitions"
    NOTHING: ClassVar[Any] = {}

    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    times: dict[str, MemberTimes] = field(default_factory=dict)

    # --- records ---

    def apply(self, record: Any) -> None:
        """Take what a record of its protocol says. Records of a log that was compacted come without those that they replaced."""
        raise NotImplementedError

    def release(self, member: M) -> None:
        """The member has nothing any more."""
        raise NotImplementedError

    def forget(self, member_id: str) -> M | None:
        """Remove a member with all that it had; None: there is none."""
        self.times.pop(member_id, None)
        self.targets.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.release(member)
            self.free_instance(member)
        return member

    # --- what it is ---

    @property
    def needs_assignment(self) -> bool:
        return bool(self.members) and self.epoch > self.target_epoch

    def target_of(self, member_id: str) -> T:
        found: T = self.targets.get(member_id, self.NOTHING)
        return found

    def target_for(self, member: M) -> T:
        """The target of a member that may have taken the place of another with its instance id."""
        target = self.target_of(member.member_id)
        replaced = None if target else self.static_member(member.instance_id)
        return target if replaced is None else self.target_of(replaced.member_id)

    def static_member(self, instance_id: str | None) -> M | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def free_instance(self, member: M) -> None:
        """Its instance id is not its own any more."""
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    # --- time ---

    def expect(self, member_id: str) -> MemberTimes:
        """The times of a member, to be set."""
        return self.times.setdefault(member_id, MemberTimes())

    def next_deadline(self) -> int | None:
        """When the group must be asked for `overdue` at the latest; None: never."""
        return min((times.next() for times in self.times.values() if times.is_any), default=None)

    def overdue(self, now: int) -> Iterator[tuple[M, str]]:
        """Members whose time is up, and why. What does not hold any more is forgotten."""
        for member_id, times in list(self.times.items()):
            member = self.members.get(member_id)
            if member is None:
                del self.times[member_id]
                continue
            if times.revocation and times.revocation <= now and times.epoch != member.epoch:
                times.revocation = 0
            if times.session and times.session <= now:
                yield member, "its session expired"
            elif times.revocation and times.revocation <= now:
                yield member, f"it has not given up its {self.HELD} in time"
            elif times.join and times.join <= now:
                yield member, "it has not joined again in time"
            elif times.sync and times.sync <= now:
                yield member, "it has not asked for its assignment in time"


# --- offsets ---


def check_commit(
    group: AssignedGroup[M, Any],
    kind: str,
    committer: Committer,
    partitions: Collection[tuple[str, int]],
    held_since: Callable[[M, str, int], int | None],
    is_classic: Callable[[M], bool],
) -> None:
    """Whether a member may commit offsets of these (topic, partition). Raises ApiError.

    Args:
        kind: of the group, for the text of an error.
        held_since: the epoch since which a member has this partition of a topic; None: it does not have it.
        is_classic: whether a member speaks the classic protocol.

    An older epoch will do for partitions that the member has had since then (KIP-1251).
    """
    epoch, is_transactional = committer.generation, committer.producer is not None
    if epoch < 0 and not group.members:
        return  # a client that assigns partitions itself, or an administrator
    if is_transactional and epoch < 0 and not committer.member_id:
        return  # a producer of before KIP-447, which does not say who it is
    member = group.member(committer.member_id)
    is_new = not is_classic(member)
    if is_new and not is_transactional and not committer.knows_epochs:
        text = f"members of a {kind} group commit with version 9 of OffsetCommit or later"
        raise api_error(ErrorCode.UNSUPPORTED_VERSION, text)
    if epoch == member.epoch:
        return
    since = [held_since(member, *each) for each in partitions] if epoch < member.epoch else [None]
    if all(each is not None and each <= epoch for each in since):
        return
    raise _wrong_epoch(member, epoch, is_new=is_new and committer.knows_epochs)


def check_fetch(
    group: AssignedGroup[M, Any], member_id: str | None, epoch: int, is_classic: Callable[[M], bool]
) -> None:
    """Whether a member may read the group's offsets. Raises ApiError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise _wrong_epoch(member, epoch, is_new=not is_classic(member))


def _wrong_epoch(member: EpochMember, epoch: int, *, is_new: bool) -> Exception:
    text = f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
    return api_error(ErrorCode.STALE_MEMBER_EPOCH if is_new else ErrorCode.ILLEGAL_GENERATION, text)
