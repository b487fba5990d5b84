"""Groups of every protocol are listed and deleted here; classic ones are described here."""

from __future__ import annotations

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.classic.group import Group
from kafkalite.coordinators.groups.decisions.classic.members import GroupState
from kafkalite.coordinators.groups.decisions.subscription import CONSUMER
from kafkalite.coordinators.groups.partition import GroupEntry
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.protocol import wire
from kafkalite.security.acl import ResourceType
from kafkalite.security.requirements import KAFKA

_NOT_FOUND_FROM = 6
[_LIST_GROUP] = KAFKA["ListGroups"]


class GroupAdminHandlers:
    def __init__(self, services: Services, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {
            "ListGroups": self.list_groups,
            "DescribeGroups": self.describe_groups,
            "DeleteGroups": self.delete_groups,
        }

    def list_groups(self, request: Request, message: wire.ListGroupsRequest) -> Steps[wire.ListGroupsResponse]:
        states = {state.lower() for state in message.states_filter}
        types = {kind.lower() for kind in message.types_filter}
        is_visible = self._access.visible(request, _LIST_GROUP)
        groups = []
        for number, entry in enumerate(self._groups.groups(), 1):
            if not number % STEP:
                yield
            group = _listed(entry)
            if (
                (not states or group.group_state.lower() in states)
                and (not types or group.group_type in types)
                and is_visible(group.group_id)
            ):
                groups.append(group)
        return wire.ListGroupsResponse(groups=groups)

    def describe_groups(
        self, request: Request, message: wire.DescribeGroupsRequest
    ) -> Steps[wire.DescribeGroupsResponse]:
        response = wire.DescribeGroupsResponse.DescribedGroup
        groups = []
        for group_id in dict.fromkeys(message.groups):  # one that is named twice is described once
            if group_id in request.denied.keys:
                groups.append(response(int(ErrorCode.GROUP_AUTHORIZATION_FAILED), None, group_id))
                continue
            try:
                entry = self._groups.describe(group_id) if group_id else None
                is_classic = entry is not None and not (entry.consumer or entry.share or entry.streams)
                group = entry.group if entry is not None and is_classic else None
            except ApiError as error:
                groups.append(response(int(error.code), str(error), group_id))
                continue
            if group is None and request.version >= _NOT_FOUND_FROM:
                text = f"Group {group_id} not found."
                groups.append(response(int(ErrorCode.GROUP_ID_NOT_FOUND), text, group_id, GroupState.DEAD.value))
                continue
            described = yield from _described(group, group_id)
            if request.version >= 3 and message.include_authorized_operations:
                described.authorized_operations = self._access.authorized_operations(
                    request, ResourceType.GROUP, group_id
                )
            groups.append(described)
        return wire.DescribeGroupsResponse(groups=groups)

    async def delete_groups(self, request: Request, message: wire.DeleteGroupsRequest) -> wire.DeleteGroupsResponse:
        result = wire.DeleteGroupsResponse.DeletableGroupResult
        results = []
        for group_id in dict.fromkeys(message.groups_names):  # each once, as in Kafka
            code, text = ErrorCode.NONE, None
            try:
                if group_id in request.denied.keys:
                    raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
                await self._groups.removal.delete_group(group_id)
            except ApiError as error:
                code, text = error.code, str(error)
            results.append(result(group_id, int(code), text))
        return wire.DeleteGroupsResponse(results=results)


def _listed(entry: GroupEntry) -> wire.ListGroupsResponse.ListedGroup:
    listed, group = wire.ListGroupsResponse.ListedGroup, entry.group
    if entry.streams is not None:
        return listed(group.group_id, "streams", entry.streams.state.value, "streams")
    if entry.share is not None:
        return listed(group.group_id, "share", entry.share.state.value, "share")
    if entry.consumer is not None:
        return listed(group.group_id, CONSUMER, entry.consumer.state.value, "consumer")
    return listed(group.group_id, group.protocol_type or "", group.state.value, "classic")


def _described(group: Group | None, group_id: str) -> Steps[wire.DescribeGroupsResponse.DescribedGroup]:
    response = wire.DescribeGroupsResponse
    if group is None:
        return response.DescribedGroup(0, None, group_id, GroupState.DEAD.value)
    is_stable = group.state is GroupState.STABLE  # in all other states Kafka names no protocol
    members: list[wire.DescribeGroupsResponse.DescribedGroupMember] = []
    answer = response.DescribedGroup(
        0,
        None,
        group_id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol or "") if is_stable else "",
        members,
    )
    protocol = group.protocol
    for number, member in enumerate(list(group.members.values()), 1):
        if not number % STEP:
            yield
        members.append(
            response.DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if is_stable else b"",
                member.assignment,
            )
        )
    return answer
