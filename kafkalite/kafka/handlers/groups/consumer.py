"""The consumer group protocol (KIP-848): heartbeats and descriptions. Translation only."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from kafkalite.coordinators.groups.consumer.groups import HeartbeatAnswer
from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.consumer import heartbeats
from kafkalite.coordinators.groups.decisions.consumer.heartbeats import ConsumerHeartbeat
from kafkalite.coordinators.groups.decisions.members import Assignment, ConsumerMember
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.features import GROUP_FEATURE
from kafkalite.kafka.handlers.groups.descriptions import (
    DESCRIBE_TOPIC,
    check_visible,
    named,
    need_group,
    still_assigned,
)
from kafkalite.kafka.pieces import MOST_UNCUT
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.model import TopicId
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire, to_wire
from kafkalite.security.acl import ResourceType
from kafkalite.security.fair_room import user_of
from kafkalite.security.requirements import REFUSALS

#: From this version on clients make their member ids.
_OWN_IDS_FROM = 1
#: Members that are described in one step: each may have many topics.
_MEMBERS_AT_ONCE = 10
#: What a description says of members, from version 1 on.
_CLASSIC, _CONSUMER = 0, 1


class ConsumerGroupHandlers:
    def __init__(self, services: Services, groups: GroupCoordinator) -> None:
        self._services = services
        self._groups = groups
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {"ConsumerGroupHeartbeat": self.heartbeat, "ConsumerGroupDescribe": self.describe}

    def heartbeat(
        self, request: Request, message: wire.ConsumerGroupHeartbeatRequest
    ) -> Steps[wire.ConsumerGroupHeartbeatResponse | None]:
        def done(error: ApiError | None, answer: HeartbeatAnswer | None) -> None:
            if not request.connection.is_closed:
                request.respond(_refused(error) if error is not None else _answered(answer))

        try:
            if not self._services.feature_level(GROUP_FEATURE):
                raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{GROUP_FEATURE} is 0: consumer groups are off")
            if not message.group_id:
                raise api_error(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
            if request.denied.topics:
                raise api_error(REFUSALS[ResourceType.TOPIC])
            if message.subscribed_topic_names is not None and len(message.subscribed_topic_names) > MOST_UNCUT:
                raise api_error(ErrorCode.INVALID_REQUEST, f"more than {MOST_UNCUT} names of topics: use a pattern")
            owned = yield from _owned(message)
            said = _heartbeat(request, message, message.member_id, owned)
            heartbeats.check(said, needs_member_id=request.version >= _OWN_IDS_FROM)
            if not said.member_id:
                said = _heartbeat(request, message, self._groups.new_member_id(request.client_id), owned)
            is_visible = self._access.visible(request, DESCRIBE_TOPIC)
            self._groups.consumer_heartbeat(message.group_id, said, is_visible, done)
        except ApiError as error:
            return _refused(error)
        return None

    def describe(
        self, request: Request, message: wire.ConsumerGroupDescribeRequest
    ) -> Steps[wire.ConsumerGroupDescribeResponse]:
        groups = []
        for group_id in dict.fromkeys(message.group_ids):  # one that is named twice is described once
            groups.append(
                (yield from self._described(request, group_id, with_operations=message.include_authorized_operations))
            )
        return wire.ConsumerGroupDescribeResponse(groups=groups)

    def _described(
        self, request: Request, group_id: str, *, with_operations: bool
    ) -> Steps[wire.ConsumerGroupDescribeResponse.DescribedGroup]:
        described = wire.ConsumerGroupDescribeResponse.DescribedGroup
        try:
            if group_id in request.denied.keys:
                raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            group = need_group(self._groups, group_id, lambda entry: entry.consumer, "consumer")
            # What is shown is what was checked: there are turns of the loop in between.
            members = [(each, group.target_of(each.member_id)) for each in group.members.values()]
            held = [each for m, target in members for each in (m.assigned, m.revoking, target)]
            subscribed = (group.topics_of(m.topics, m.regex) for m, _ in members)
            topics = chain(subscribed, [still_assigned(held, self._groups.topics)])
            yield from check_visible(self._access, request, topics)
        except ApiError as error:
            return described(int(error.code), str(error) or None, group_id)
        shown: list[wire.ConsumerGroupDescribeResponse.Member] = []
        assignor = group.assignor(self._services.config.group_consumer_assignors)
        answer = described(0, None, group_id, group.state.value, group.epoch, group.target_epoch, assignor, shown)
        for number, (member, target) in enumerate(members, 1):
            if not number % _MEMBERS_AT_ONCE:
                yield
            shown.append(self._member(member, target))
        if with_operations:
            answer.authorized_operations = self._access.authorized_operations(request, ResourceType.GROUP, group_id)
        return answer

    def _member(self, member: ConsumerMember, target: Assignment) -> wire.ConsumerGroupDescribeResponse.Member:
        response = wire.ConsumerGroupDescribeResponse
        assigned = {  # with what it has still to give up, as in Kafka: nobody else has it
            topic_id: frozenset(member.assigned.get(topic_id, {})) | frozenset(member.revoking.get(topic_id, {}))
            for topic_id in {**member.assigned, **member.revoking}
        }
        return response.Member(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            list(member.topics),
            member.regex,
            response.Assignment([response.TopicPartitions(*each) for each in named(assigned, self._groups.topics)]),
            response.TargetAssignment(
                [response.TargetTopicPartitions(*each) for each in named(target, self._groups.topics)]
            ),
            _CONSUMER if member.classic is None else _CLASSIC,
        )


def _owned(message: wire.ConsumerGroupHeartbeatRequest) -> Steps[Mapping[TopicId, frozenset[int]] | None]:
    """The partitions that the member says it has; None: it says nothing of them."""
    if message.topic_partitions is None:
        return None
    owned = {}
    for number, topic in enumerate(message.topic_partitions, 1):
        if not number % STEP:
            yield
        owned[from_wire(topic.topic_id)] = frozenset(topic.partitions)
    return owned


def _heartbeat(
    request: Request,
    message: wire.ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Mapping[TopicId, frozenset[int]] | None,
) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        member_id,
        message.member_epoch,
        message.instance_id,
        message.rack_id,
        message.rebalance_timeout_ms,
        request.client_id,
        f"/{request.client_host}",
        user_of(request.principal, request.client_host),
        None if message.subscribed_topic_names is None else tuple(sorted(set(message.subscribed_topic_names))),
        message.subscribed_topic_regex,
        message.server_assignor,
        owned,
    )


def _refused(error: ApiError) -> wire.ConsumerGroupHeartbeatResponse:
    return wire.ConsumerGroupHeartbeatResponse(0, int(error.code), str(error) or None)


def _answered(answer: HeartbeatAnswer | None) -> wire.ConsumerGroupHeartbeatResponse:
    assert answer is not None
    response = wire.ConsumerGroupHeartbeatResponse
    assignment = None
    if answer.member is not None and answer.shows_assignment:
        assignment = response.Assignment(
            [
                response.TopicPartitions(to_wire(topic_id), sorted(partitions))
                for topic_id, partitions in sorted(answer.member.assigned.items())
                if partitions
            ]
        )
    return response(0, 0, None, answer.member_id, answer.epoch, answer.heartbeat_interval_ms, assignment)
