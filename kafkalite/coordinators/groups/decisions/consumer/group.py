"""The state of a consumer group (KIP-848). It changes by records only, live as on loading, and by the time. Pure.

EMPTY         no members
ASSIGNING     the target assignment is older than the group epoch
RECONCILING   some member is not where its target is
STABLE        all are
DEAD          deleted, or unloaded
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from enum import Enum

from kafkalite.coordinators.groups.decisions.members import (
    Assignment,
    CurrentAssignment,
    GroupEpoch,
    Held,
    Member,
    MemberMetadata,
    MemberState,
    OldMetadataTombstone,
    Record,
    RegexTopics,
    ResolvedRegex,
    TargetEpoch,
    TargetMember,
)
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId


class ConsumerGroupState(Enum):
    """Values are Kafka's names on the wire."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


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


@dataclass(slots=True)
class ConsumerGroup:
    """See the module. Times are not stored: a new coordinator gives each member a whole session."""

    group_id: str
    members: dict[str, Member] = field(default_factory=dict)
    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_at_ms: int = 0
    targets: dict[str, Assignment] = field(default_factory=dict)
    #: Topic -> partition -> the member that has it, or has not given it up yet.
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    times: dict[str, MemberTimes] = field(default_factory=dict)
    classic_members: int = 0
    is_dead: bool = False

    # --- records ---

    def apply(self, record: Record) -> None:
        """Take what a record says. Records of a log that was compacted come without those that they replaced."""
        match record:
            case MemberMetadata(member_id, None):
                self._remove(member_id)
            case MemberMetadata(member_id, member) if member is not None:
                self._set_metadata(member_id, member)
            case GroupEpoch(epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch or 0, metadata_hash
            case TargetMember(member_id, None):
                self.targets.pop(member_id, None)
            case TargetMember(member_id, target) if target is not None:
                self.targets[member_id] = target
            case TargetEpoch(epoch, at_ms):
                self.target_epoch, self.target_at_ms = epoch or 0, at_ms
            case CurrentAssignment(member_id, current):
                self._set_current(member_id, current)
            case RegexTopics(regex, None):
                self.regexes.pop(regex, None)
            case RegexTopics(regex, resolved) if resolved is not None:
                self.regexes[regex] = resolved
            case _:
                pass

    def _set_metadata(self, member_id: str, new: Member) -> None:
        known = self.members.get(member_id)
        if known is None:
            self.members[member_id] = replace(new, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, revoking={})  # fmt: skip
        else:
            self.classic_members -= known.classic is not None
            if known.instance_id is not None and known.instance_id != new.instance_id:
                self._free_instance(known)
            self.members[member_id] = replace(
                new,
                epoch=known.epoch,
                previous_epoch=known.previous_epoch,
                state=known.state,
                assigned=known.assigned,
                revoking=known.revoking,
            )
        self.classic_members += new.classic is not None
        if new.instance_id is not None:
            self.static_members[new.instance_id] = member_id

    def _set_current(self, member_id: str, current: Member | None) -> None:
        known = self.members.get(member_id) or (Member(member_id) if current is not None else None)
        if known is None:
            return
        self._release(known)
        if current is None:
            self.members[member_id] = replace(known, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, revoking={})  # fmt: skip
            return
        self.members[member_id] = replace(
            known,
            epoch=current.epoch,
            previous_epoch=current.previous_epoch,
            state=current.state,
            assigned=current.assigned,
            revoking=current.revoking,
        )
        for held in (current.assigned, current.revoking):
            for topic_id, partitions in held.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member: Member) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def _free_instance(self, member: Member) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.times.pop(member_id, None)
        self.targets.pop(member_id, None)
        if member is not None:
            self._release(member)
            self._free_instance(member)
            self.classic_members -= member.classic is not None

    # --- what it is ---

    @property
    def state(self) -> ConsumerGroupState:
        if self.is_dead:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def needs_assignment(self) -> bool:
        return bool(self.members) and self.epoch > self.target_epoch

    def member(self, member_id: str) -> Member:
        """Raises ApiError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise api_error(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {self.group_id!r}")
        return found

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, {})

    def is_free(self, topic_id: TopicId, partition: int, mine: str) -> bool:
        """Whether nobody but `mine` (a member id) has this partition."""
        owner = self.owners.get(topic_id, {}).get(partition)
        return owner is None or owner == mine

    def subscribed_topics(self) -> set[str]:
        """The names of all topics that members subscribe to, by name or by a regular expression."""
        topics: set[str] = set()
        for each in {(member.topics, member.regex) for member in self.members.values()}:
            topics.update(self.topics_of(*each))
        return topics

    def topics_of(self, topics: Sequence[str], regex: str) -> Iterable[str]:
        """What one member subscribes to."""
        resolved = self.regexes.get(regex) if regex else None
        return topics if resolved is None else {*topics, *resolved.topics}

    def used_regexes(self) -> set[str]:
        return {member.regex for member in self.members.values() if member.regex}

    def assignor(self, supported: Sequence[str]) -> str:
        """The assignor that most members want; without any wish the first of those that the broker has."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor in supported)
        best = max(votes.values(), default=0)
        return next((name for name in supported if best and votes[name] == best), supported[0])

    # --- time ---

    def expect(self, member_id: str) -> MemberTimes:
        """The times of a member, to be set."""
        return self.times.setdefault(member_id, MemberTimes())

    def next_deadline(self) -> int | None:
        """When the group must be asked for `overdue` at the latest; None: never."""
        return min((times.next() for times in self.times.values() if times.is_any), default=None)

    def overdue(self, now: int) -> Iterator[tuple[Member, str]]:
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
                yield member, "it has not given up its partitions in time"
            elif times.join and times.join <= now:
                yield member, "it has not joined again in time"
            elif times.sync and times.sync <= now:
                yield member, "it has not asked for its assignment in time"


def held(target: Assignment, epoch: int) -> Held:
    """`target` as it is held from `epoch` on."""
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in target.items()}


def tombstones(group: ConsumerGroup) -> list[Record]:
    """The records after which the group does not exist any more."""
    records: list[Record] = [CurrentAssignment(member_id, None) for member_id in group.members]
    records += [TargetMember(member_id, None) for member_id in {**group.targets, **group.members}]
    records.append(TargetEpoch(None))
    records += [MemberMetadata(member_id, None) for member_id in group.members]
    records += [RegexTopics(regex, None) for regex in group.regexes]
    return [*records, OldMetadataTombstone(), GroupEpoch(None)]
