"""The streams group protocol (KIP-1071, KIP-1331): heartbeats, descriptions. Translation only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.streams import heartbeats
from kafkalite.coordinators.groups.decisions.streams.assignor import STICKY
from kafkalite.coordinators.groups.decisions.streams.endpoints import EndpointPartitions, Served
from kafkalite.coordinators.groups.decisions.streams.group import StreamsGroup
from kafkalite.coordinators.groups.decisions.streams.heartbeats import StreamsHeartbeat
from kafkalite.coordinators.groups.decisions.streams.members import StreamsMember, Task, TaskSets, by_subtopology
from kafkalite.coordinators.groups.decisions.streams.topology import Configured, InternalTopic, Topology
from kafkalite.coordinators.groups.records.streams import topology_of
from kafkalite.coordinators.groups.streams.descriptions import Description
from kafkalite.coordinators.groups.streams.groups import StreamsAnswer
from kafkalite.coordinators.services import Services
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.features import STREAMS_FEATURE
from kafkalite.kafka.handlers.cluster import is_topic_name
from kafkalite.kafka.handlers.groups.descriptions import check_visible, need_group
from kafkalite.kafka.mutations import EXCEEDED, may_change
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import Steps
from kafkalite.model import INTERNAL_TOPICS
from kafkalite.protocol import wire
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.fair_room import user_of
from kafkalite.security.requirements import REFUSALS, Need, Scope

_CREATE_TOPIC = Need(ResourceType.TOPIC, Operation.CREATE, Scope.EACH, or_cluster=Operation.CREATE)
#: From this version on members can be asked for the description of their topology (KIP-1331).
_DESCRIBES_FROM = 1
#: Whether a description has the topology's: it was not asked for, there is none, it is there.
_NOT_REQUESTED, _NOT_STORED, _AVAILABLE = 0, 1, 3


class StreamsGroupHandlers:
    def __init__(self, services: Services, groups: GroupCoordinator) -> None:
        self._services = services
        self._groups = groups
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {
            "StreamsGroupHeartbeat": self.heartbeat,
            "StreamsGroupDescribe": self.describe,
            "StreamsGroupTopologyDescriptionUpdate": self.update_description,
        }

    def _check_feature(self) -> None:
        if not self._services.feature_level(STREAMS_FEATURE):
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{STREAMS_FEATURE} is 0: streams groups are off")

    # --- heartbeats ---

    def heartbeat(
        self, request: Request, message: wire.StreamsGroupHeartbeatRequest
    ) -> wire.StreamsGroupHeartbeatResponse | None:
        def done(error: ApiError | None, answer: StreamsAnswer | None) -> None:
            if request.connection.is_closed:
                return
            if error is not None or answer is None:
                request.respond(_refused(error or api_error(ErrorCode.UNKNOWN_SERVER_ERROR)))
                return
            response = _answered(answer)
            if request.version >= _DESCRIBES_FROM and answer.member is not None:
                response.topology_description_required = self._groups.descriptions.is_wanted(
                    message.group_id, answer.member
                )
            request.respond(response)

        def may_create(topic: InternalTopic) -> ErrorCode:
            if not self._access.meets(request, _CREATE_TOPIC, topic.name):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return ErrorCode.NONE if may_change(request, topic.partitions) else EXCEEDED[0]

        try:
            self._check_feature()
            if not message.group_id:
                raise api_error(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
            said = _heartbeat(request, message)
            heartbeats.check_request(said)
            if said.topology is not None:
                _check_names(said.topology.named_topics())
            if request.denied.topics:
                raise api_error(REFUSALS[ResourceType.TOPIC])
            self._groups.streams_heartbeat(message.group_id, said, message.endpoint_information_epoch, may_create, done)
        except ApiError as error:
            return _refused(error)
        return None

    # --- descriptions ---

    def update_description(
        self, request: Request, message: wire.StreamsGroupTopologyDescriptionUpdateRequest
    ) -> wire.StreamsGroupTopologyDescriptionUpdateResponse:
        response = wire.StreamsGroupTopologyDescriptionUpdateResponse
        try:
            self._check_feature()
            if not message.group_id or not message.member_id:
                raise api_error(ErrorCode.INVALID_REQUEST, "GroupId and MemberId can't be empty.")
            self._groups.descriptions.store(
                message.group_id, message.member_id, message.topology_epoch, message.topology_description
            )
        except ApiError as error:
            return response(0, int(error.code), str(error) or None)
        return response()

    def describe(
        self, request: Request, message: wire.StreamsGroupDescribeRequest
    ) -> Steps[wire.StreamsGroupDescribeResponse]:
        groups = []
        for group_id in dict.fromkeys(message.group_ids):
            groups.append((yield from self._described(request, group_id, message)))
        return wire.StreamsGroupDescribeResponse(groups=groups)

    def _described(
        self, request: Request, group_id: str, message: wire.StreamsGroupDescribeRequest
    ) -> Steps[wire.StreamsGroupDescribeResponse.DescribedGroup]:
        described = wire.StreamsGroupDescribeResponse.DescribedGroup
        try:
            if group_id in request.denied.keys:
                raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            group = need_group(self._groups, group_id, lambda entry: entry.streams, "streams")
            # What is shown is what was checked: there are turns of the loop in between.
            topology, configured, known = group.topology, group.configured, list(group.members.values())
            named = topology.named_topics() if topology is not None else ()
            yield from check_visible(self._access, request, [named])
        except ApiError as error:
            return described(int(error.code), str(error) or None, group_id)
        shown = yield from _topology(topology, configured)
        members = []
        for member in sorted(known, key=lambda each: each.member_id):
            members.append(_member(group, member))
            yield
        answer = described(0, None, group_id, group.state.value, group.epoch, group.target_epoch, shown, members)
        answer.assignor_name = STICKY
        if message.include_authorized_operations:
            answer.authorized_operations = self._access.authorized_operations(request, ResourceType.GROUP, group_id)
        if message.include_topology_description:
            description = self._groups.descriptions.find(group)
            answer.topology_description = None if description is None else _description(description)
            answer.topology_description_status = _NOT_STORED if description is None else _AVAILABLE
        return answer


def _check_names(topics: Set[str]) -> None:
    """Whether a topology may have topics of these names. Raises ApiError STREAMS_INVALID_TOPOLOGY."""
    if internal := topics & INTERNAL_TOPICS:
        text = f"Use of Kafka internal topics {', '.join(sorted(internal))} in a Kafka Streams topology is prohibited."
        raise api_error(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    if wrong := [name for name in topics if not is_topic_name(name)]:
        text = f"Topic names {', '.join(sorted(wrong))} are not valid topic names."
        raise api_error(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def _heartbeat(request: Request, message: wire.StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    said = (message.active_tasks, message.standby_tasks, message.warmup_tasks)
    if None in said and any(tasks is not None for tasks in said):
        raise api_error(ErrorCode.INVALID_REQUEST, "If one task-type is non-null, all must be non-null.")
    owned = None if None in said else TaskSets(*(_tasks(tasks or ()) for tasks in said))
    endpoint = message.user_endpoint
    tags = message.client_tags
    return StreamsHeartbeat(
        message.member_id,
        message.member_epoch,
        message.instance_id,
        message.rack_id,
        message.rebalance_timeout_ms,
        request.client_id,
        f"/{request.client_host}",
        user_of(request.principal, request.client_host),
        None if message.topology is None else topology_of(message.topology),
        owned,
        message.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        None if tags is None else tuple(sorted((each.key, each.value) for each in tags)),
        _offsets(message.task_offsets),
        _offsets(message.task_end_offsets),
        message.shutdown_application,
    )


def _tasks(tasks: Iterable[wire.StreamsGroupHeartbeatRequest.TaskIds]) -> frozenset[Task]:
    return frozenset((each.subtopology_id, number) for each in tasks for number in each.partitions)


def _offsets(said: Sequence[wire.StreamsGroupHeartbeatRequest.TaskOffset] | None) -> Mapping[Task, int] | None:
    return None if said is None else {(each.subtopology_id, each.partition): each.offset for each in said}


def _refused(error: ApiError) -> wire.StreamsGroupHeartbeatResponse:
    return wire.StreamsGroupHeartbeatResponse(error_code=int(error.code), error_message=str(error) or None)


def _answered(answer: StreamsAnswer) -> wire.StreamsGroupHeartbeatResponse:
    response = wire.StreamsGroupHeartbeatResponse
    settings = answer.settings
    said = response(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms if answer.member is not None else 0,
        acceptable_recovery_lag_legacy=settings.acceptable_lag,
        task_offset_interval_ms=settings.task_offset_interval_ms,
        acceptable_recovery_lag=settings.acceptable_lag,
        status=[response.Status(int(status), text) for status, text in answer.statuses],
        endpoint_information_epoch=answer.endpoint_epoch,
    )
    if answer.member is not None and answer.shows_assignment:
        said.active_tasks, said.standby_tasks, said.warmup_tasks = (
            [response.TaskIds(*each) for each in by_subtopology(tasks).items()] for tasks in answer.member.assigned
        )
    if answer.endpoints is not None:
        said.partitions_by_user_endpoint = [_endpoint(each) for each in answer.endpoints]
    return said


def _endpoint(served: EndpointPartitions) -> wire.StreamsGroupHeartbeatResponse.EndpointToPartitions:
    response = wire.StreamsGroupHeartbeatResponse

    def partitions(topics: Served) -> list[wire.StreamsGroupHeartbeatResponse.TopicPartition]:
        return [response.TopicPartition(*each) for each in topics.items()]

    return response.EndpointToPartitions(
        response.Endpoint(*served.endpoint), partitions(served.active), partitions(served.standby)
    )


def _topology(
    topology: Topology | None, configured: Configured | None
) -> Steps[wire.StreamsGroupDescribeResponse.Topology | None]:
    response = wire.StreamsGroupDescribeResponse
    if topology is None:
        return None

    def infos(topics: Iterable[InternalTopic]) -> list[wire.StreamsGroupDescribeResponse.TopicInfo]:
        return [
            response.TopicInfo(
                topic.name,
                topic.partitions,
                topic.replication_factor,
                [response.KeyValue(*each) for each in topic.configs],
            )
            for topic in sorted(topics, key=lambda topic: topic.name)
        ]

    # As it was sent, until its topics are there: without a list Java's Admin fails.
    subtopologies = []
    for each in (configured.subtopologies if configured is not None else ()) or topology.subtopologies:
        subtopologies.append(
            response.Subtopology(
                each.subtopology_id,
                sorted(each.source_topics),
                sorted(each.repartition_sinks),
                infos(each.changelogs),
                infos(each.repartition_sources),
            )
        )
        yield
    return response.Topology(topology.epoch, subtopologies)


def _member(group: StreamsGroup, member: StreamsMember) -> wire.StreamsGroupDescribeResponse.Member:
    response = wire.StreamsGroupDescribeResponse

    def assignment(tasks: TaskSets) -> wire.StreamsGroupDescribeResponse.Assignment:
        return response.Assignment(
            *([response.TaskIds(*each) for each in by_subtopology(role).items()] for role in tasks)
        )

    def offsets(known: Mapping[Task, int]) -> list[wire.StreamsGroupDescribeResponse.TaskOffset]:
        return [response.TaskOffset(*task, offset) for task, offset in sorted(known.items())]

    has, there_are = group.task_offsets.get(member.member_id, ({}, {}))
    return response.Member(
        member.member_id,
        member.epoch,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.topology_epoch,
        member.process_id,
        None if member.endpoint is None else response.Endpoint(*member.endpoint),
        [response.KeyValue(*each) for each in member.tags],
        offsets(has),
        offsets(there_are),
        assignment(member.assigned),
        assignment(group.target_of(member.member_id)),
        is_classic=False,
    )


def _description(stored: Description) -> wire.StreamsGroupDescribeResponse.TopologyDescription:
    response = wire.StreamsGroupDescribeResponse

    def node(
        each: wire.StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode,
    ) -> wire.StreamsGroupDescribeResponse.TopologyDescriptionNode:
        return response.TopologyDescriptionNode(
            each.name, each.node_type, each.source_topics, each.sink_topic, each.stores, each.successors
        )

    return response.TopologyDescription(
        [
            response.TopologyDescriptionSubtopology(each.subtopology_id, [node(inner) for inner in each.nodes])
            for each in stored.subtopologies
        ],
        [
            response.TopologyDescriptionGlobalStore(node(each.source), node(each.processor))
            for each in stored.global_stores
        ],
    )
