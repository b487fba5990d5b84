"""The state of a consumer group (KIP-848). It changes by records only, live as on loading, and by the time. Pure.

EMPTY         no members
ASSIGNING     the target assignment is older than the group epoch
RECONCILING   some member is not where its target is
STABLE        all are
DEAD          deleted, or unloaded
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Sequence
from dataclasses import field, replace
from enum import Enum

from kafkalite.coordinators.groups.decisions.assigned_group import AssignedGroup
from kafkalite.coordinators.groups.decisions.members import (
    Assignment,
    ConsumerMember,
    CurrentAssignment,
    GroupEpoch,
    Held,
    MemberMetadata,
    MemberState,
    OldMetadataTombstone,
    Record,
    RegexTopics,
    ResolvedRegex,
    TargetEpoch,
    TargetMember,
    members_gone,
)
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
class ConsumerGroup(AssignedGroup[ConsumerMember, Assignment]):
    """See the module."""

    #: Topic -> partition -> the member that has it, or has not given it up yet.
    owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    classic_members: int = 0

    # --- records ---

    def apply(self, record: Record) -> None:
        """Take what a record says. Records of a log that was compacted come without those that they replaced."""
        match record:
            case MemberMetadata(member_id, None):
                self.forget(member_id)
            case MemberMetadata(member_id, member) if member is not None:
                self._set_metadata(member_id, member)
            case GroupEpoch(epoch, metadata_hash):
                self.apply_epoch(epoch, metadata_hash)
            case TargetMember() | TargetEpoch():
                self.apply_target(record)
            case CurrentAssignment(member_id, current):
                self._set_current(member_id, current)
            case RegexTopics(regex, None):
                self.regexes.pop(regex, None)
            case RegexTopics(regex, resolved) if resolved is not None:
                self.regexes[regex] = resolved
            case _:
                pass

    def _set_metadata(self, member_id: str, new: ConsumerMember) -> None:
        known = self.members.get(member_id)
        if known is None:
            self.members[member_id] = replace(new, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, revoking={})  # fmt: skip
        else:
            self.classic_members -= known.classic is not None
            if known.instance_id is not None and known.instance_id != new.instance_id:
                self.free_instance(known)
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

    def _set_current(self, member_id: str, current: ConsumerMember | None) -> None:
        known = self.members.get(member_id) or (ConsumerMember(member_id) if current is not None else None)
        if known is None:
            return
        self.release(known)
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

    def release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def forget(self, member_id: str) -> ConsumerMember | None:
        member = AssignedGroup.forget(self, member_id)
        self.classic_members -= member is not None and member.classic is not None
        return member

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

    def is_free(self, topic_id: TopicId, partition: int, mine: str) -> bool:
        """Whether nobody but `mine` (a member id) has this partition."""
        owner = self.owners.get(topic_id, {}).get(partition)
        return owner is None or owner == mine

    def subscribed_topics(self) -> Generator[None, None, set[str]]:
        """The names of all topics that members subscribe to, by name or by a regular expression, in steps."""
        topics: set[str] = set()
        seen: set[tuple[Sequence[str], str]] = set()
        for member in list(self.members.values()):
            said = member.topics, member.regex
            if said not in seen:
                seen.add(said)
                topics.update(self.topics_of(*said))
            yield
        return topics

    def topics_of(self, topics: Sequence[str], regex: str) -> Collection[str]:
        """What one member subscribes to."""
        resolved = self.regexes.get(regex) if regex else None
        return topics if resolved is None else {*topics, *resolved.topics}

    def used_regexes(self) -> set[str]:
        return {member.regex for member in self.members.values() if member.regex}

    def assignor(self, supported: Sequence[str], updated: ConsumerMember | None = None) -> str:
        """The assignor that most members want; without any wish the first of those that the broker has.

        Args:
            updated: a member as it will be, in the place of the one with its member id or its instance id.
        """
        members = list(self.members.values())
        if updated is not None:
            gone = (updated.member_id, self.static_members.get(updated.instance_id or ""))
            members = [updated, *(each for each in members if each.member_id not in gone)]
        votes = Counter(member.assignor for member in members if member.assignor in supported)
        best = max(votes.values(), default=0)
        return next((name for name in supported if best and votes[name] == best), supported[0])


def held(target: Assignment, epoch: int) -> Held:
    """`target` as it is held from `epoch` on."""
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in target.items()}


def tombstones(group: ConsumerGroup) -> list[Record]:
    """The records after which the group does not exist any more."""
    regexes = [RegexTopics(regex, None) for regex in group.regexes]
    return [*members_gone(group.members, group.targets), *regexes, OldMetadataTombstone(), GroupEpoch(None)]
