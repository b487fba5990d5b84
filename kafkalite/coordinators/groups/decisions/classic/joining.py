"""JoinGroup in a classic group: new, known and static members. Pure; see `group`."""

from __future__ import annotations

from kafkalite.coordinators.groups.decisions.classic.events import (
    Effect,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    StaticReplacement,
    StoreGroup,
    SyncAnswer,
    refuse_join,
)
from kafkalite.coordinators.groups.decisions.classic.members import ClassicGroupMember, GroupState
from kafkalite.coordinators.groups.decisions.classic.rebalance import Rebalancing
from kafkalite.coordinators.groups.decisions.subscription import wants_the_same
from kafkalite.errors import ErrorCode
from kafkalite.lazy_dataclass import dataclass


@dataclass(slots=True)
class Joining(Rebalancing):
    """The events of a group that joins."""

    def join(self, request: JoinRequest, now: int) -> list[Effect]:
        if self.state is GroupState.DEAD:
            return [refuse_join(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
        if not self._supports(request):
            return [refuse_join(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
        if not self._has_room(request):
            return [refuse_join(request, ErrorCode.GROUP_MAX_SIZE_REACHED)]
        if not request.member_id:
            return self._join_unknown(request, now)
        return self._join_known(request, now)

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
        member = ClassicGroupMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            join_token=request.token,
            user=request.user,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.pending_members.pop(member_id, None)
        self.members[member_id] = member
        self._count_protocols(member, 1)
        if request.instance_id is not None:
            self.static_members[request.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self._touch(member, now)
        self._joined_in_delay = True
        return [*self._prepare_rebalance(now), *self._maybe_complete_join(now)]

    def _update_and_rebalance(self, member: ClassicGroupMember, request: JoinRequest, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if member.join_token is not None and member.join_token is not request.token:
            # The client gave up on its earlier request and asks again.
            effects.append(JoinAnswer(member.join_token, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        self._count_protocols(member, -1)
        member.protocols = request.protocols
        self._count_protocols(member, 1)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id, member.client_host, member.user = request.client_id, request.client_host, request.user
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
            if self.select_protocol() == self.protocol and wants_the_same(
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

    def _rename(self, member: ClassicGroupMember, identity: MemberIdentity, now: int) -> None:
        """Give a static member another id."""
        assert member.instance_id is not None
        old_id = member.member_id
        del self.members[old_id]
        self._count_protocols(member, -1)
        member.take(identity)
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.static_members[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id
        self._touch(member, now)

    def _replaced(self, effect: StoreGroup, replacement: StaticReplacement, error: ErrorCode, now: int) -> list[Effect]:
        """The outcome of storing a static member under its new id. If that failed, the member gets its old id back."""
        token, member_id = replacement.token, replacement.member_id
        if self.state is GroupState.DEAD:
            return [JoinAnswer(token, error or ErrorCode.NOT_COORDINATOR, "")]
        is_current = self.static_members.get(replacement.instance_id) == member_id
        if error:
            # A rebalance that began meanwhile stores the group again, as it is then.
            if is_current and self.state is GroupState.STABLE and self.generation == effect.generation:
                self._rename(self.members[member_id], replacement.before, now)
            return [JoinAnswer(token, error, "")]
        if not is_current:
            is_replaced = replacement.instance_id in self.static_members
            refusal = ErrorCode.FENCED_INSTANCE_ID if is_replaced else ErrorCode.UNKNOWN_MEMBER_ID
            return [JoinAnswer(token, refusal, member_id)]
        member = self.members[member_id]
        self._touch(member, now)
        return [self._join_answer(member, token, skip_assignment=replacement.skip_assignment)]


def _identity_of(request: JoinRequest) -> MemberIdentity:
    return MemberIdentity(
        request.new_member_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms,
        request.protocols,
    )
