"""The classic group protocol as a state machine: no I/O, no clock, no tasks.

Every call gets the time (ms) and returns effects: answers to requests that wait (each carries the token that the
request came with) and requests to store the group. Time passes through `tick`; `next_deadline` says when it must be
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

from collections.abc import Sequence

from kafkalite.coordinators.groups.decisions.classic.events import (
    Effect,
    JoinAnswer,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from kafkalite.coordinators.groups.decisions.classic.joining import Joining
from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember, GroupState
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass


@dataclass(slots=True)
class Group(Joining):
    """One group. Public methods are events; they never raise on what a client does."""

    # --- SyncGroup ---

    def sync(self, request: SyncRequest, now: int) -> list[Effect]:
        error = self._sync_error(request)
        if error:
            return [SyncAnswer(request.token, error)]
        member = self.members[request.member_id]
        self._touch(member, now)
        if self.state is GroupState.STABLE:
            return [SyncAnswer(request.token, ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)]
        effects: list[Effect] = []
        if member.sync_token is not None:
            effects.append(SyncAnswer(member.sync_token, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = request.token
        if request.member_id == self.leader and not self.is_storing:
            self.is_storing = True
            whole = {peer: request.assignments.get(peer, b"") for peer in self.members}
            effects.append(StoreGroup(self.generation, whole))
        return effects

    def _sync_error(self, request: SyncRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.check_member(request.member_id, request.instance_id):
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        match self.state:
            case GroupState.EMPTY:
                return ErrorCode.UNKNOWN_MEMBER_ID
            case GroupState.PREPARING_REBALANCE:
                return ErrorCode.REBALANCE_IN_PROGRESS
            case _:
                return ErrorCode.NONE

    def stored(self, effect: StoreGroup, error: ErrorCode, now: int) -> list[Effect]:
        """The outcome of a StoreGroup. On failure the members join again: nobody may act on what is not durable."""
        if effect.replacement is not None:
            return self._replaced(effect, effect.replacement, error, now)
        if self.state is not GroupState.COMPLETING_REBALANCE or effect.generation != self.generation:
            return []
        if not self.is_storing:
            return []
        self.is_storing = False
        if error:
            effects = self._fail_syncs(error, now)
            return [*effects, *self._prepare_rebalance(now), *self._maybe_complete_join(now)]
        self.state = GroupState.STABLE
        answers: list[Effect] = []
        for member in self.members.values():
            member.assignment = effect.assignments.get(member.member_id, b"")
            if member.sync_token is not None:
                answers.append(
                    SyncAnswer(member.sync_token, ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)
                )
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
            del self.pending_members[member_id]
            return ErrorCode.NONE, self._maybe_complete_join(now)
        if error := self.check_member(member_id, instance_id):
            return error, []
        return ErrorCode.NONE, self._remove([self.members[member_id]], now)

    def _remove(self, members: Sequence[ClassicGroupMember], now: int) -> list[Effect]:
        """These members are gone: the others share out their partitions."""
        effects: list[Effect] = []
        for member in members:
            if member.join_token is not None:
                effects.append(JoinAnswer(member.join_token, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
            if member.sync_token is not None:
                effects.append(SyncAnswer(member.sync_token, ErrorCode.UNKNOWN_MEMBER_ID))
        self._forget(members)
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

    def _member_deadline(self, member: ClassicGroupMember) -> int:
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
        # All that are late at once: the sessions of a whole group end in one moment if its network does.
        if late := [each for each in self.members.values() if each.deadline_ms <= now and not each.is_waiting]:
            effects += self._remove(late, now)
        if self.join_deadline_ms and self.join_deadline_ms <= now:
            effects += self._join_time_is_up(now)
        if self.sync_deadline_ms and self.sync_deadline_ms <= now:
            effects += self._sync_time_is_up(now)
        return effects

    def give_time(self, now: int) -> None:
        """No member could be heard: each has its whole time again for what it has to do."""
        for member in self.members.values():
            self._touch(member, now)
        if self.join_deadline_ms and self.initial_delay_left_ms is None:
            self.join_deadline_ms = now + self._rebalance_timeout_ms()
        if self.sync_deadline_ms:
            self.sync_deadline_ms = now + self._rebalance_timeout_ms()

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
        return self._complete_join(now)

    def _sync_time_is_up(self, now: int) -> list[Effect]:
        """Members that did not ask for their assignment in time are out."""
        self.sync_deadline_ms = 0
        effects: list[Effect] = []
        missing = [member for member in self.members.values() if member.sync_token is None]
        if missing and self.state is GroupState.COMPLETING_REBALANCE and not self.is_storing:
            effects += self._remove(missing, now)
        return effects

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
        members: Sequence[ClassicGroupMember],
        stored_ms: int,
        now: int,
    ) -> None:
        """Take what was stored; members get a whole session timeout to show up at their new coordinator."""
        self.protocol_type = protocol_type or None
        self.protocol, self.generation, self.leader = protocol, generation, leader
        self.members = {member.member_id: member for member in members}
        self.supporters.clear()
        self.protocol_bytes = 0
        for member in members:
            self._count_protocols(member, 1)
        self.static_members = {
            member.instance_id: member.member_id for member in members if member.instance_id is not None
        }
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.stored_ms = stored_ms
        for member in members:
            self._touch(member, now)

    def rebalance(self, now: int) -> list[Effect]:
        """Have all members join again (the group was a consumer group until now)."""
        return [*self._prepare_rebalance(now), *self._maybe_complete_join(now)]
