"""The classic group protocol as a state machine: no I/O, no clock, no tasks.

Every call gets the time (ms) and returns effects: answers to requests that wait (each carries the token that the
request came with) and orders to store the group. Time passes through `tick`; `next_deadline` says when it must be
called again. Assignments are bytes to us: members choose them, the leader member distributes them.

    EMPTY                 no members; offsets may remain
    PREPARING_REBALANCE   members are (re)joining
    COMPLETING_REBALANCE  a generation began; members wait for the leader's assignment
    STABLE                everybody has an assignment
    DEAD                  deleted, or unloaded

Sources: KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static members), KIP-394 (member id required),
KIP-429 (cooperative rebalancing needs nothing of the coordinator), KIP-814 (skip assignment); Kafka 3.9 GroupCoordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum

from kafkalite.coordinators.groups.group_events import (
    Effect,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    StaticReplacement,
    StoreGroup,
    SyncAnswer,
    Token,
    refuse_join,
)
from kafkalite.coordinators.groups.subscription import wants_the_same
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass

#: Time after which a new member that does not return is removed.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class GroupState(Enum):
    """Values are Kafka's names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class Member:
    """`join_token` / `sync_token` is set while the member's request waits."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    #: The member is dropped when nothing was heard of it until then.
    deadline_ms: int = 0
    is_new: bool = False

    def identity(self) -> MemberIdentity:
        return MemberIdentity(
            self.member_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
        )

    def take(self, identity: MemberIdentity) -> None:
        self.member_id = identity.member_id
        self.client_id, self.client_host = identity.client_id, identity.client_host
        self.session_timeout_ms = identity.session_timeout_ms
        self.rebalance_timeout_ms = identity.rebalance_timeout_ms
        self.protocols = identity.protocols

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class Group:
    """One group. Public methods are events; they never raise on what a client does."""

    group_id: str
    initial_rebalance_delay_ms: int = 3_000
    state: GroupState = GroupState.EMPTY
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    #: Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict)
    #: Ids that were given out (MEMBER_ID_REQUIRED) and have not come back -> until when they may.
    pending_members: dict[str, int] = field(default_factory=dict)
    state_since_ms: int = 0
    #: When the joining phase ends even if members are missing; 0: no joining phase.
    join_deadline_ms: int = 0
    #: While set, the joining phase of a group that was empty lasts at least until `join_deadline_ms`.
    initial_delay_left_ms: int | None = None
    _joined_in_delay: bool = False
    #: When members that have not synced are dropped; 0: not waiting for any.
    sync_deadline_ms: int = 0
    #: The leader's assignment is being stored.
    is_storing: bool = False

    # --- JoinGroup ---

    def join(self, request: JoinRequest, now: int) -> list[Effect]:
        if self.state is GroupState.DEAD:
            return [refuse_join(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        if not self._supports(request):
            return [refuse_join(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
        if not request.member_id:
            return self._join_unknown(request, now)
        return self._join_known(request, now)

    def _supports(self, request: JoinRequest) -> bool:
        """Whether the member's protocols have one in common with everybody's."""
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        if request.protocol_type != self.protocol_type:
            return False
        return any(self._is_common(name, request.member_id) for name, _ in request.protocols)

    def _is_common(self, protocol: str, except_member: str = "") -> bool:
        return all(
            any(name == protocol for name, _ in member.protocols)
            for member in self.members.values()
            if member.member_id != except_member
        )

    def _join_unknown(self, request: JoinRequest, now: int) -> list[Effect]:
        if request.instance_id is not None:
            old_id = self.static_members.get(request.instance_id)
            if old_id is not None:
                return self._replace_static(request, old_id, now)
            return self._add_and_rebalance(request, request.new_member_id, now)
        if request.requires_known_member_id:
            self.pending_members[request.new_member_id] = now + request.session_timeout_ms
            return [refuse_join(request, ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)]
        return self._add_and_rebalance(request, request.new_member_id, now)

    def _join_known(self, request: JoinRequest, now: int) -> list[Effect]:
        if request.member_id in self.pending_members:
            if request.instance_id is not None:
                return [refuse_join(request, ErrorCode.UNKNOWN_MEMBER_ID)]
            return self._add_and_rebalance(request, request.member_id, now)
        error = self.check_member(request.member_id, request.instance_id)
        if error:
            return [refuse_join(request, error)]
        member = self.members[request.member_id]
        unchanged = member.protocols == request.protocols
        match self.state:
            case GroupState.PREPARING_REBALANCE:
                return self._update_and_rebalance(member, request, now)
            case GroupState.COMPLETING_REBALANCE if unchanged:
                # Its answer was lost on the way: the same again.
                self._touch(member, now)
                return [self._join_answer(member, request.token)]
            case GroupState.STABLE if unchanged and member.member_id != self.leader:
                self._touch(member, now)
                return [self._join_answer(member, request.token)]
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                # The leader joins again to ask for a new assignment, or what a member wants has changed.
                return self._update_and_rebalance(member, request, now)
            case _:
                return [refuse_join(request, ErrorCode.UNKNOWN_MEMBER_ID)]

    def _add_and_rebalance(self, request: JoinRequest, member_id: str, now: int) -> list[Effect]:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            join_token=request.token,
            deadline_ms=now + NEW_MEMBER_JOIN_TIMEOUT_MS,
            is_new=True,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.pending_members.pop(member_id, None)
        self.members[member_id] = member
        if request.instance_id is not None:
            self.static_members[request.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self._joined_in_delay = True
        return [*self._prepare_rebalance(now), *self._maybe_complete_join(now)]

    def _update_and_rebalance(self, member: Member, request: JoinRequest, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if member.join_token is not None and member.join_token is not request.token:
            # The client gave up on its earlier request and asks again.
            effects.append(JoinAnswer(member.join_token, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.join_token = request.token
        self._touch(member, now)
        return [*effects, *self._prepare_rebalance(now), *self._maybe_complete_join(now)]

    def _replace_static(self, request: JoinRequest, old_id: str, now: int) -> list[Effect]:
        """A static member came back under a new member id; the old one is fenced (KIP-345)."""
        assert request.instance_id is not None
        effects: list[Effect] = []
        member = self.members[old_id]
        before = member.identity()
        if member.join_token is not None:
            effects.append(JoinAnswer(member.join_token, ErrorCode.FENCED_INSTANCE_ID, old_id))
        if member.sync_token is not None:
            effects.append(SyncAnswer(member.sync_token, ErrorCode.FENCED_INSTANCE_ID))
        member.join_token = member.sync_token = None
        self._rename(member, _identity_of(request), now)
        if self.state is GroupState.STABLE:
            old_metadata = dict(before.protocols).get(self.protocol or "")
            if self._select_protocol() == self.protocol and wants_the_same(
                self.protocol_type, old_metadata, member.metadata(self.protocol)
            ):
                # Nothing changed but the id: no rebalance. It is given the id when that is durable: a coordinator that
                # knew only the id before would fence it.
                replacement = StaticReplacement(
                    request.instance_id, member.member_id, before, request.token, request.supports_skip_assignment
                )
                return [*effects, StoreGroup(self.generation, self._assignments(), replacement)]
        elif self.state is GroupState.EMPTY:
            return [*effects, refuse_join(request, ErrorCode.UNKNOWN_MEMBER_ID)]
        member.join_token = request.token
        return [*effects, *self._prepare_rebalance(now), *self._maybe_complete_join(now)]

    def _rename(self, member: Member, identity: MemberIdentity, now: int) -> None:
        """Give a static member another id."""
        assert member.instance_id is not None
        old_id = member.member_id
        del self.members[old_id]
        member.take(identity)
        self.members[member.member_id] = member
        self.static_members[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id
        self._touch(member, now)

    def _replaced(self, order: StoreGroup, replacement: StaticReplacement, error: ErrorCode, now: int) -> list[Effect]:
        """The outcome of storing a static member under its new id. If that failed, the member gets its old id back."""
        token, member_id = replacement.token, replacement.member_id
        if self.state is GroupState.DEAD:
            return [JoinAnswer(token, error or ErrorCode.NOT_COORDINATOR, "")]
        is_current = self.static_members.get(replacement.instance_id) == member_id
        if error:
            # A rebalance that began meanwhile stores the group again, as it is then.
            if is_current and self.state is GroupState.STABLE and self.generation == order.generation:
                self._rename(self.members[member_id], replacement.before, now)
            return [JoinAnswer(token, error, "")]
        if not is_current:
            is_replaced = replacement.instance_id in self.static_members
            refusal = ErrorCode.FENCED_INSTANCE_ID if is_replaced else ErrorCode.UNKNOWN_MEMBER_ID
            return [JoinAnswer(token, refusal, member_id)]
        member = self.members[member_id]
        self._touch(member, now)
        return [self._join_answer(member, token, skip_assignment=replacement.skip_assignment)]

    # --- the rebalance ---

    def _prepare_rebalance(self, now: int) -> list[Effect]:
        """Begin a joining phase, unless one is under way."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return []
        effects: list[Effect] = []
        if self.state is GroupState.COMPLETING_REBALANCE:
            effects += self._fail_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now)
        was_empty = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE, now)
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
        for member in [*self.members.values()]:
            if member.join_token is None and member.instance_id is None:
                self._forget(member)
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
            self._enter(GroupState.EMPTY, now)
            return [StoreGroup(self.generation, {})]
        self.protocol = self._select_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE, now)
        self.sync_deadline_ms = now + self._rebalance_timeout_ms()
        effects: list[Effect] = []
        for member in joined:
            assert member.join_token is not None
            effects.append(self._join_answer(member, member.join_token))
            member.join_token = None
            member.is_new = False
            self._touch(member, now)
        for member in self.members.values():
            member.sync_token = None
        return effects

    def _select_protocol(self) -> str | None:
        """The protocol that everybody has, by vote: each member votes for its first common one."""
        if not self.members:
            return None
        votes: Counter[str] = Counter()
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._is_common(name):
                    votes[name] += 1
                    break
        return votes.most_common(1)[0][0] if votes else None

    def _join_answer(self, member: Member, token: Token, *, skip_assignment: bool = False) -> JoinAnswer:
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

    # --- SyncGroup ---

    def sync(
        self,
        token: Token,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        now: int,
    ) -> list[Effect]:
        error = self._sync_error(member_id, instance_id, generation, protocol_type, protocol)
        if error:
            return [SyncAnswer(token, error)]
        member = self.members[member_id]
        self._touch(member, now)
        if self.state is GroupState.STABLE:
            return [SyncAnswer(token, ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)]
        effects: list[Effect] = []
        if member.sync_token is not None:
            effects.append(SyncAnswer(member.sync_token, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member_id == self.leader and not self.is_storing:
            self.is_storing = True
            whole = {peer: assignments.get(peer, b"") for peer in self.members}
            effects.append(StoreGroup(self.generation, whole))
        return effects

    def _sync_error(
        self, member_id: str, instance_id: str | None, generation: int, protocol_type: str | None, protocol: str | None
    ) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.check_member(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if protocol_type is not None and protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if protocol is not None and protocol != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        match self.state:
            case GroupState.EMPTY:
                return ErrorCode.UNKNOWN_MEMBER_ID
            case GroupState.PREPARING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
            case _:
                return ErrorCode.NONE

    def stored(self, order: StoreGroup, error: ErrorCode, now: int) -> list[Effect]:
        """The outcome of a StoreGroup. On failure the members join again: nobody may act on what is not durable."""
        if order.replacement is not None:
            return self._replaced(order, order.replacement, error, now)
        if self.state is not GroupState.COMPLETING_REBALANCE or order.generation != self.generation:
            return []
        if not self.is_storing:
            return []
        self.is_storing = False
        if error:
            effects = self._fail_syncs(error, now)
            return [*effects, *self._prepare_rebalance(now), *self._maybe_complete_join(now)]
        self._enter(GroupState.STABLE, now)
        answers: list[Effect] = []
        for member in self.members.values():
            member.assignment = order.assignments.get(member.member_id, b"")
            if member.sync_token is not None:
                answers.append(
                    SyncAnswer(member.sync_token, ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)
                )
                member.sync_token = None
                self._touch(member, now)
        return answers

    def _fail_syncs(self, error: ErrorCode, now: int) -> list[Effect]:
        answers: list[Effect] = []
        for member in self.members.values():
            member.assignment = b""
            if member.sync_token is not None:
                answers.append(SyncAnswer(member.sync_token, error))
                member.sync_token = None
                self._touch(member, now)
        return answers

    # --- Heartbeat, LeaveGroup ---

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.check_member(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._touch(self.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now: int) -> tuple[ErrorCode, list[Effect]]:
        """A member leaves, or an admin removes it: a static one by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if instance_id is not None and not member_id:
            member_id = self.static_members.get(instance_id, "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
        if member_id in self.pending_members:
            if instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            del self.pending_members[member_id]
            return ErrorCode.NONE, self._maybe_complete_join(now)
        if error := self.check_member(member_id, instance_id):
            return error, []
        return ErrorCode.NONE, self._remove(self.members[member_id], now)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member under this instance id."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _forget(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _remove(self, member: Member, now: int) -> list[Effect]:
        """A member is gone: the others share out its partitions."""
        effects: list[Effect] = []
        if member.join_token is not None:
            effects.append(JoinAnswer(member.join_token, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        if member.sync_token is not None:
            effects.append(SyncAnswer(member.sync_token, ErrorCode.UNKNOWN_MEMBER_ID))
        self._forget(member)
        match self.state:
            case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
                return [*effects, *self._prepare_rebalance(now), *self._maybe_complete_join(now)]
            case GroupState.PREPARING_REBALANCE:
                return [*effects, *self._maybe_complete_join(now)]
            case _:
                return effects

    # --- offsets ---

    def commit_error(
        self, member_id: str, instance_id: str | None, generation: int, now: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Whether this member may commit offsets now. Generation -1: a client that assigns partitions itself, with an idle group."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if is_transactional and generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE  # a producer of before KIP-447, which does not say who it is
        if error := self.check_member(member_id, instance_id):
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._touch(self.members[member_id], now)
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # --- time ---

    def next_deadline(self) -> int | None:
        """When `tick` must be called at the latest; None: never."""
        deadlines = [self._member_deadline(member) for member in self.members.values()]
        deadlines += [deadline for deadline in (self.join_deadline_ms, self.sync_deadline_ms) if deadline]
        deadlines += self.pending_members.values()
        return min(deadlines, default=None)

    def _member_deadline(self, member: Member) -> int:
        """A waiting request is a sign of life; what bounds it is the phase's own deadline."""
        if member.sync_token is not None:
            return self.sync_deadline_ms or member.deadline_ms
        if member.join_token is not None:
            return self.join_deadline_ms or member.deadline_ms
        return member.deadline_ms

    def tick(self, now: int) -> list[Effect]:
        """Time has passed."""
        effects: list[Effect] = []
        for member_id in [key for key, deadline in self.pending_members.items() if deadline <= now]:
            del self.pending_members[member_id]
            effects += self._maybe_complete_join(now)
        for member in [*self.members.values()]:
            is_waiting = member.join_token is not None or member.sync_token is not None
            if not is_waiting and member.deadline_ms <= now and member.member_id in self.members:
                effects += self._remove(member, now)
        if self.join_deadline_ms and self.join_deadline_ms <= now:
            effects += self._join_time_is_up(now)
        if self.sync_deadline_ms and self.sync_deadline_ms <= now:
            effects += self._sync_time_is_up(now)
        return effects

    def _join_time_is_up(self, now: int) -> list[Effect]:
        if self.initial_delay_left_ms is not None:
            left = self.initial_delay_left_ms
            if self._joined_in_delay and left:
                # More members came: give the next ones a chance too (KIP-134).
                delay = min(self.initial_rebalance_delay_ms, left)
                self.join_deadline_ms = now + delay
                self.initial_delay_left_ms = left - delay
                self._joined_in_delay = False
                return []
            self.initial_delay_left_ms = None
        self.pending_members.clear()
        return self._complete_join(now)

    def _sync_time_is_up(self, now: int) -> list[Effect]:
        """Members that did not ask for their assignment in time are out."""
        self.sync_deadline_ms = 0
        effects: list[Effect] = []
        if self.state is GroupState.COMPLETING_REBALANCE and not self.is_storing:
            missing = [member for member in self.members.values() if member.sync_token is None]
            for member in missing:
                if member.member_id in self.members:
                    effects += self._remove(member, now)
        return effects

    def _touch(self, member: Member, now: int) -> None:
        member.deadline_ms = now + member.session_timeout_ms

    def _enter(self, state: GroupState, now: int) -> None:
        self.state = state
        self.state_since_ms = now

    def _assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    # --- the end, and coming back ---

    def close(self, error: ErrorCode) -> list[Effect]:
        """The group is unloaded or deleted: all waiting requests get an error."""
        effects: list[Effect] = []
        for member in self.members.values():
            if member.join_token is not None:
                effects.append(JoinAnswer(member.join_token, error, member.member_id))
            if member.sync_token is not None:
                effects.append(SyncAnswer(member.sync_token, error))
        self.state = GroupState.DEAD
        return effects

    def restore(
        self,
        protocol_type: str,
        protocol: str | None,
        generation: int,
        leader: str | None,
        members: Sequence[Member],
        since_ms: int,
        now: int,
    ) -> None:
        """Take what was stored; members get a whole session timeout to show up at their new coordinator."""
        self.protocol_type = protocol_type or None
        self.protocol, self.generation, self.leader = protocol, generation, leader
        self.members = {member.member_id: member for member in members}
        self.static_members = {
            member.instance_id: member.member_id for member in members if member.instance_id is not None
        }
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.state_since_ms = since_ms
        for member in members:
            self._touch(member, now)


def _identity_of(request: JoinRequest) -> MemberIdentity:
    return MemberIdentity(
        request.new_member_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
    )
