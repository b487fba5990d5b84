"""The rebalance of a classic group: members join until all are there, then the leader assigns. Pure; see `group`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from kafkalite.coordinators.groups.decisions.classic.events import (
    Effect,
    JoinAnswer,
    JoinRequest,
    StoreGroup,
    SyncAnswer,
    Token,
)
from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember, GroupState
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass

#: What the protocols of all members of a group may take, in bytes. Its leader gets the metadata of all in one response, and they are stored in one
#: record, which is much smaller as a rule (max.message.bytes of __consumer_offsets).
MAX_PROTOCOL_BYTES = 16 * 2**20
#: Protocols that a member may name. Kafka knows no limit; Java's clients name three at most, and each costs the coordinator time.
MAX_PROTOCOLS = 100


@dataclass(slots=True)
class Rebalancing:
    """A group's fields, and what all of its events need."""

    group_id: str
    initial_rebalance_delay_ms: int = 3_000
    state: GroupState = GroupState.EMPTY
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    #: Protocol -> how many members have it. Looked up in the members, one JoinGroup with thousands of names held the loop for seconds.
    supporters: Counter[str] = field(default_factory=Counter)
    #: What the members' protocols take, with their metadata.
    protocol_bytes: int = 0
    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: Ids that were given out (MEMBER_ID_REQUIRED) and have not come back -> until when they may.
    pending_members: dict[str, int] = field(default_factory=dict)
    #: When it was stored last, or made (wall clock).
    stored_ms: int = 0
    #: When the joining phase ends even if members are missing; 0: no joining phase.
    join_deadline_ms: int = 0
    #: While set, the joining phase of a group that was empty lasts at least until `join_deadline_ms`.
    initial_delay_left_ms: int | None = None
    _joined_in_delay: bool = False
    #: When members that have not synced are dropped; 0: not waiting for any.
    sync_deadline_ms: int = 0
    #: The leader's assignment is being stored.
    is_storing: bool = False

    # --- the rebalance ---

    def _prepare_rebalance(self, now: int) -> list[Effect]:
        """Begin a joining phase, unless one is under way."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return []
        effects: list[Effect] = []
        if self.state is GroupState.COMPLETING_REBALANCE:
            effects += self._fail_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now)
        was_empty = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        self.sync_deadline_ms = 0
        self.is_storing = False
        timeout = self._rebalance_timeout_ms()
        if was_empty and self.initial_rebalance_delay_ms:
            delay = min(self.initial_rebalance_delay_ms, timeout)
            self.join_deadline_ms = now + delay
            self.initial_delay_left_ms = max(0, timeout - delay)
            self._joined_in_delay = False
        else:
            self.join_deadline_ms = now + timeout
            self.initial_delay_left_ms = None
        return effects

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _maybe_complete_join(self, now: int) -> list[Effect]:
        """End the joining phase if everybody is here."""
        if self.state is not GroupState.PREPARING_REBALANCE or self.initial_delay_left_ms is not None:
            return []
        if self.pending_members or any(member.join_token is None for member in self.members.values()):
            return []
        return self._complete_join(now)

    def _complete_join(self, now: int) -> list[Effect]:
        """End the joining phase: missing members are removed, except static members (they may be restarting)."""
        self._forget([each for each in self.members.values() if each.join_token is None and each.instance_id is None])
        joined = [member for member in self.members.values() if member.join_token is not None]
        if self.members and not joined:
            # Only static members, all away: wait once more.
            self.join_deadline_ms = now + self._rebalance_timeout_ms()
            return []
        if self.leader not in self.members or self.members[self.leader].join_token is None:
            self.leader = joined[0].member_id if joined else None
        self.join_deadline_ms = 0
        self.initial_delay_left_ms = None
        self.generation += 1
        if not self.members:
            self.protocol = None
            self.state = GroupState.EMPTY
            return [StoreGroup(self.generation, {})]
        self.protocol = self.select_protocol()
        self.state = GroupState.COMPLETING_REBALANCE
        self.sync_deadline_ms = now + self._rebalance_timeout_ms()
        effects: list[Effect] = []
        for member in joined:
            assert member.join_token is not None
            effects.append(self._join_answer(member, member.join_token))
            member.join_token = None
            self._touch(member, now)
        for member in self.members.values():
            member.sync_token = None
        return effects

    def select_protocol(self) -> str | None:
        """The protocol that everybody has, by vote: each member votes for its first common one."""
        if not self.members:
            return None
        # Each member's names are read once: a group of 1,000 held the loop for 0.35 s when each member asked all others.
        offered = [[name for name, _ in member.protocols] for member in self.members.values()]
        common = set(offered[0]).intersection(*offered[1:])
        votes = Counter(next(name for name in names if name in common) for names in offered if common)
        return votes.most_common(1)[0][0] if votes else None

    def _join_answer(self, member: ClassicGroupMember, token: Token, *, skip_assignment: bool = False) -> JoinAnswer:
        is_leader = member.member_id == self.leader
        return JoinAnswer(
            token,
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            tuple((peer.member_id, peer.instance_id, peer.metadata(self.protocol)) for peer in self.members.values())
            if is_leader
            else (),
            skip_assignment and is_leader,
        )

    def _supports(self, request: JoinRequest) -> bool:
        """Whether the member's protocols have one in common with everybody's."""
        if not request.protocol_type or not 0 < len(request.protocols) <= MAX_PROTOCOLS:
            return False
        if not self.members:
            return True
        if request.protocol_type != self.protocol_type:
            return False
        return any(self.supporters[name] == len(self.members) for name, _ in request.protocols)

    def _has_room(self, request: JoinRequest) -> bool:
        """Whether the group may have the member's protocols, in place of those that it has."""
        known = self.members.get(request.member_id)
        before = 0 if known is None else _size(known.protocols)
        return self.protocol_bytes - before + _size(request.protocols) <= MAX_PROTOCOL_BYTES

    def _fail_syncs(self, error: ErrorCode, now: int) -> list[Effect]:
        answers: list[Effect] = []
        for member in self.members.values():
            member.assignment = b""
            if member.sync_token is not None:
                answers.append(SyncAnswer(member.sync_token, error))
                member.sync_token = None
                self._touch(member, now)
        return answers

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member under this instance id."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        """The member comes with its protocols (1), or goes (-1)."""
        self.protocol_bytes += change * _size(member.protocols)
        for name in _names(member):
            self.supporters[name] += change
            if not self.supporters[name]:
                del self.supporters[name]

    def _forget(self, members: Iterable[ClassicGroupMember]) -> None:
        for member in members:
            del self.members[member.member_id]
            self._count_protocols(member, -1)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
                del self.static_members[member.instance_id]
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)

    def _touch(self, member: ClassicGroupMember, now: int) -> None:
        member.deadline_ms = now + member.session_timeout_ms

    def _assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}


def _size(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def _names(member: ClassicGroupMember) -> frozenset[str]:
    """The protocols that it has: one that it names twice counts once."""
    return frozenset(name for name, _ in member.protocols)
