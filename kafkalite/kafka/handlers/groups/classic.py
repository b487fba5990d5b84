"""Membership of classic groups. Translation only; see `kafkalite.coordinators.groups`."""

from __future__ import annotations

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.classic.events import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import Steps
from kafkalite.protocol import wire
from kafkalite.security.fair_room import user_of

#: Errors of single members that leave; all others are the group's.
_OF_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: This node has not looked at the member: it is not in the answer.
_OF_COORDINATORS = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, _LOADING})


class ClassicGroupHandlers:
    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def table(self) -> dict[str, Handler]:
        return {
            "JoinGroup": self.join,
            "SyncGroup": self.sync,
            "Heartbeat": self.heartbeat,
            "LeaveGroup": self.leave,
        }

    def join(self, request: Request, message: wire.JoinGroupRequest) -> wire.JoinGroupResponse | None:
        def answered(answer: JoinAnswer) -> None:
            if not request.connection.is_closed:
                request.respond(_joined(answer, request.version))

        instance_id = message.group_instance_id
        rebalance_ms = message.rebalance_timeout_ms
        try:
            self._groups.join(
                message.group_id,
                JoinRequest(
                    token=answered,
                    member_id=message.member_id,
                    new_member_id=self._groups.new_member_id(instance_id or request.client_id),
                    instance_id=instance_id,
                    client_id=request.client_id,
                    client_host=f"/{request.client_host}",
                    session_timeout_ms=message.session_timeout_ms,
                    rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else message.session_timeout_ms,
                    protocol_type=message.protocol_type,
                    protocols=tuple((protocol.name, protocol.metadata) for protocol in message.protocols),
                    requires_known_member_id=request.version >= 4 and instance_id is None,
                    supports_skip_assignment=request.version >= 9,
                    user=user_of(request.principal, request.client_host),
                ),
            )
        except ApiError as error:
            if error.code in _OF_COORDINATORS:
                raise
            return _joined(JoinAnswer(answered, error.code, message.member_id), request.version)
        return None

    def sync(self, request: Request, message: wire.SyncGroupRequest) -> None:
        def answered(answer: SyncAnswer) -> None:
            if not request.connection.is_closed:
                request.respond(
                    wire.SyncGroupResponse(
                        0, int(answer.error), answer.protocol_type, answer.protocol, answer.assignment
                    )
                )

        if request.version >= 5 and (message.protocol_type is None or message.protocol_name is None):
            raise api_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            self._groups.sync(
                message.group_id,
                SyncRequest(
                    answered,
                    message.member_id,
                    message.group_instance_id,
                    message.generation_id,
                    message.protocol_type,
                    message.protocol_name,
                    {entry.member_id: entry.assignment for entry in message.assignments},
                ),
            )
        except ApiError as error:
            # This error would end a Java client. The rebalance ended with the earlier coordinator, so the member has to join again.
            if error.code is not _LOADING:
                raise
            raise api_error(ErrorCode.REBALANCE_IN_PROGRESS) from None

    def heartbeat(self, request: Request, message: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        try:
            answer = self._groups.heartbeat(
                message.group_id, message.member_id, message.group_instance_id, message.generation_id
            )
        except ApiError as error:
            if error.code is not _LOADING:
                raise
            # No client expects this error here, and the members are known again when the log is loaded.
            answer = ErrorCode.NONE
        return wire.HeartbeatResponse(0, int(answer))

    def leave(self, request: Request, message: wire.LeaveGroupRequest) -> Steps[wire.LeaveGroupResponse]:
        """A step for each member: the larger its group, the longer it takes to leave it."""
        if not message.group_id:
            raise api_error(ErrorCode.INVALID_GROUP_ID)
        if request.version < 3:
            return wire.LeaveGroupResponse(0, int(self._leave(message.group_id, message.member_id, None)))
        response = wire.LeaveGroupResponse.MemberResponse
        self._groups.find(message.group_id)  # also if nobody leaves
        members = []
        for number, member in enumerate(message.members):
            if number:
                yield
            error = self._leave(message.group_id, member.member_id, member.group_instance_id)
            members.append(response(member.member_id, member.group_instance_id, int(error)))
        return wire.LeaveGroupResponse(0, 0, members)

    def _leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        try:
            return self._groups.leave(group_id, member_id, instance_id)
        except ApiError as error:
            if error.code not in _OF_MEMBERS:
                raise
            return error.code


def _joined(answer: JoinAnswer, version: int) -> wire.JoinGroupResponse:
    response = wire.JoinGroupResponse
    # Before version 7 the protocol's name may not be null.
    protocol = answer.protocol if answer.protocol is not None or version >= 7 else ""
    return response(
        0,
        int(answer.error),
        answer.generation,
        answer.protocol_type,
        protocol,
        answer.leader,
        answer.skip_assignment,
        answer.member_id,
        [response.JoinGroupResponseMember(*member) for member in answer.members],
    )
