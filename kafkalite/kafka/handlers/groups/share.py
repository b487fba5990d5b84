"""Share groups (KIP-932): heartbeats, descriptions, start offsets. Translation only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from kafkalite.coordinators.end_offsets import EndOffsets, Leaders
from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.share.group import ShareGroup, ShareMember
from kafkalite.coordinators.groups.decisions.share.heartbeats import ShareHeartbeat, check
from kafkalite.coordinators.groups.decisions.share.states import begun
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.coordinator import ShareSummary
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.persister import ClusterSharePersister
from kafkalite.env.side_by_side import SideBySide
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.features import SHARE_FEATURE
from kafkalite.kafka.handlers.groups.descriptions import (
    DESCRIBE_TOPIC,
    check_visible,
    named,
    need_group,
    still_assigned,
)
from kafkalite.kafka.pieces import MOST_UNCUT
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps, in_slices
from kafkalite.kafka.topic_names import described
from kafkalite.model import Offset, TopicId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.protocol.topic_ids import to_wire
from kafkalite.security.acl import ResourceType
from kafkalite.security.fair_room import user_of
from kafkalite.security.requirements import REFUSALS

#: By topic: its id, None if there is none or the client may not know, and the partitions.
_WantedOffsets = Mapping[str, tuple[TopicId | None, list[int]]]
#: Partitions that share coordinators are asked for at a time.
_SUMMARIES_AT_ONCE = 50
#: Partitions whose leaders are asked for their ends at a time.
_ENDS_AT_ONCE = 500
_ASSIGNOR = "simple"
_NO_SUCH_TOPIC = "This server does not host this topic-partition."


class ShareGroupHandlers:
    def __init__(self, services: Services, groups: GroupCoordinator, persister: ClusterSharePersister) -> None:
        self._services = services
        self._groups = groups
        self._persister = persister
        self._leaders = Leaders(services)
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {
            "ShareGroupHeartbeat": self.heartbeat,
            "ShareGroupDescribe": self.describe,
            "DescribeShareGroupOffsets": self.describe_offsets,
            "AlterShareGroupOffsets": self.alter_offsets,
            "DeleteShareGroupOffsets": self.delete_offsets,
        }

    def _check_feature(self) -> None:
        if not self._services.feature_level(SHARE_FEATURE):
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{SHARE_FEATURE} is 0: share groups are off")

    # --- members ---

    async def heartbeat(
        self, request: Request, message: wire.ShareGroupHeartbeatRequest
    ) -> wire.ShareGroupHeartbeatResponse:
        response = wire.ShareGroupHeartbeatResponse
        self._check_feature()
        if not message.group_id:
            raise api_error(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
        names = message.subscribed_topic_names
        if names is not None and len(names) > MOST_UNCUT:
            raise api_error(ErrorCode.INVALID_REQUEST, f"more than {MOST_UNCUT:,} names of topics")
        said = ShareHeartbeat(
            message.member_id,
            message.member_epoch,
            message.rack_id,
            None if names is None else tuple(sorted(set(names))),
            request.client_id,
            f"/{request.client_host}",
            user_of(request.principal, request.client_host),
        )
        check(said)
        if request.denied.topics:
            raise api_error(REFUSALS[ResourceType.TOPIC])
        answer = await self._groups.share_heartbeat(message.group_id, said)
        assignment = None
        if answer.assigned is not None:
            assignment = response.Assignment(
                [response.TopicPartitions(to_wire(key), sorted(each)) for key, each in sorted(answer.assigned.items())]
            )
        return response(0, 0, None, answer.member_id, answer.epoch, answer.heartbeat_interval_ms, assignment)

    def describe(
        self, request: Request, message: wire.ShareGroupDescribeRequest
    ) -> Steps[wire.ShareGroupDescribeResponse]:
        self._check_feature()
        groups = []
        for group_id in dict.fromkeys(message.group_ids):
            groups.append(
                (yield from self._described(request, group_id, with_operations=message.include_authorized_operations))
            )
        return wire.ShareGroupDescribeResponse(groups=groups)

    def _described(
        self, request: Request, group_id: str, *, with_operations: bool
    ) -> Steps[wire.ShareGroupDescribeResponse.DescribedGroup]:
        described = wire.ShareGroupDescribeResponse.DescribedGroup
        try:
            if group_id in request.denied.keys:
                raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            group = self._share_group(group_id)
            # What is shown is what was checked: there are turns of the loop in between.
            known = list(group.members.values())
            assigned = still_assigned([member.assigned for member in known], self._groups.topics)
            yield from check_visible(self._access, request, [*(member.topics for member in known), assigned])
        except ApiError as error:
            return described(int(error.code), str(error) or None, group_id)
        members = []
        for member in known:
            members.append(self._member(member))
            yield
        answer = described(0, None, group_id, group.state.value, group.epoch, group.target_epoch, _ASSIGNOR, members)
        if with_operations:
            answer.authorized_operations = self._access.authorized_operations(request, ResourceType.GROUP, group_id)
        return answer

    def _share_group(self, group_id: str) -> ShareGroup:
        return need_group(self._groups, group_id, lambda entry: entry.share, "share")

    def _member(self, member: ShareMember) -> wire.ShareGroupDescribeResponse.Member:
        response = wire.ShareGroupDescribeResponse
        return response.Member(
            member.member_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            list(member.topics),
            response.Assignment(
                [response.TopicPartitions(*each) for each in named(member.assigned, self._groups.topics)]
            ),
        )

    # --- start offsets ---

    async def describe_offsets(
        self, request: Request, message: wire.DescribeShareGroupOffsetsRequest
    ) -> wire.DescribeShareGroupOffsetsResponse:
        self._check_feature()
        # A group that is named twice is described once: it may share thousands of partitions.
        once = {group.group_id: group for group in message.groups}
        return wire.DescribeShareGroupOffsetsResponse(
            groups=[await self._offsets_of(request, group) for group in once.values()]
        )

    async def _offsets_of(
        self, request: Request, asked: wire.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    ) -> wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup:
        response = wire.DescribeShareGroupOffsetsResponse
        try:
            if asked.group_id in request.denied.keys:
                raise api_error(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            denied = request.denied.topics
            if not asked.topics or any(each.topic_name not in denied for each in asked.topics):
                group: ShareGroup | None = self._share_group(asked.group_id)
            else:
                group = None
            wanted = await in_slices(request, self._wanted(request, asked, group))
            known = await self._summaries(asked.group_id, wanted)
            ends: EndOffsets = {}
            places = iter(known)
            while some := list(islice(places, _ENDS_AT_ONCE)):
                ends |= await self._leaders.end_offsets(some)
        except ApiError as error:
            return response.DescribeShareGroupOffsetsResponseGroup(
                asked.group_id, [], int(error.code), str(error) or None
            )
        topics = await in_slices(request, _described_offsets(wanted, denied, known, ends))
        return response.DescribeShareGroupOffsetsResponseGroup(asked.group_id, topics)

    def _wanted(
        self,
        request: Request,
        asked: wire.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
        group: ShareGroup | None,
    ) -> Steps[dict[str, tuple[TopicId | None, list[int]]]]:
        """The topics that are asked for, or all that the group shares."""
        wanted: dict[str, tuple[TopicId | None, list[int]]] = {}
        if asked.topics is not None:
            for count, each in enumerate(asked.topics, 1):
                wanted[each.topic_name] = (self._seen_id(request, each.topic_name), list(each.partitions))
                if not count % STEP:
                    yield
            return wanted
        assert group is not None
        is_visible = self._access.visible(request, DESCRIBE_TOPIC)
        shared = sorted(group.shared.initialized.items(), key=lambda item: item[1].name)
        for count, (known_id, topic) in enumerate(shared, 1):
            # What is left of former topics of its name must not stand for the present one.
            is_present = topic.name not in wanted or known_id == self._groups.topics.topic_id(topic.name)
            if is_visible(topic.name) and is_present:
                wanted[topic.name] = (known_id, sorted(topic.partitions))
            if not count % STEP:
                yield
        return wanted

    async def _summaries(self, group_id: str, wanted: _WantedOffsets) -> dict[TopicPartition, ShareSummary | ApiError]:
        """Of the partitions of topics that are there. Some at a time, side by side: those of one coordinator share its requests."""
        found: dict[TopicPartition, ShareSummary | ApiError] = {}
        keys = (
            (TopicPartition(name, number), topic_id)
            for name, (topic_id, numbers) in wanted.items()
            if topic_id is not None
            for number in numbers
        )
        while some := list(islice(keys, _SUMMARIES_AT_ONCE)):
            async with SideBySide() as tasks:
                summaries = [
                    tasks.create_task(self._summary(group_id, topic_id, place.partition)) for place, topic_id in some
                ]
            found |= {place: task.result() for (place, _), task in zip(some, summaries, strict=True)}
        return found

    def _seen_id(self, request: Request, topic: str) -> TopicId | None:
        """None also for a topic that is denied: its id would say that it exists."""
        return None if topic in request.denied.topics else self._groups.topics.topic_id(topic)

    async def _summary(self, group_id: str, topic_id: TopicId, number: int) -> ShareSummary | ApiError:
        try:
            return await self._persister.summary(ShareKey.of(group_id, topic_id, number))
        except ApiError as error:
            return error

    async def alter_offsets(
        self, request: Request, message: wire.AlterShareGroupOffsetsRequest
    ) -> wire.AlterShareGroupOffsetsResponse:
        self._check_feature()
        wanted = await in_slices(request, self._settable(request, message))
        results: Mapping[tuple[TopicId, int], ApiError | None] = {}
        if wanted or (not request.denied.topics and self._groups.find(message.group_id) is not None):
            # A group may be given its offsets before its first member comes.
            entry = self._groups.share_group(message.group_id)
            results = await self._groups.share_states.alter_offsets(entry, wanted)
        return await in_slices(request, self._altered(request, message, results))

    def _settable(
        self, request: Request, message: wire.AlterShareGroupOffsetsRequest
    ) -> Steps[dict[TopicId, tuple[str, Mapping[int, Offset]]]]:
        """The offsets of partitions that are there, and that the client may set."""
        known = yield from described(self._services, [topic.topic_name for topic in message.topics])
        wanted: dict[TopicId, tuple[str, Mapping[int, Offset]]] = {}
        number = 0
        for topic in message.topics:
            number += 1
            if not number % STEP:
                yield
            found = known[topic.topic_name]
            if found.error or topic.topic_name in request.denied.topics:
                continue
            count = len(found.partitions)
            offsets: dict[int, Offset] = {}
            for each in topic.partitions:
                number += 1
                if not number % STEP:
                    yield
                if 0 <= each.partition_index < count:
                    offsets[each.partition_index] = Offset(each.start_offset)
            wanted[found.topic_id] = (topic.topic_name, offsets)
        return wanted

    def _altered(
        self,
        request: Request,
        message: wire.AlterShareGroupOffsetsRequest,
        results: Mapping[tuple[TopicId, int], ApiError | None],
    ) -> Steps[wire.AlterShareGroupOffsetsResponse]:
        response = wire.AlterShareGroupOffsetsResponse
        responses = []
        count = 0
        for topic in message.topics:
            count += 1
            if not count % STEP:
                yield
            topic_id = self._seen_id(request, topic.topic_name)
            errors = {}
            for each in topic.partitions:
                count += 1
                if not count % STEP:
                    yield
                error: ApiError | None = api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_SUCH_TOPIC)
                if topic.topic_name in request.denied.topics:
                    error = api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif topic_id is not None:
                    error = results.get((topic_id, each.partition_index), error)
                errors[each.partition_index] = response.AlterShareGroupOffsetsResponsePartition(
                    each.partition_index, *_code(error)
                )
            raw = ZERO_UUID if topic_id is None else to_wire(topic_id)
            responses.append(response.AlterShareGroupOffsetsResponseTopic(topic.topic_name, raw, list(errors.values())))
        return response(responses=responses)

    async def delete_offsets(
        self, request: Request, message: wire.DeleteShareGroupOffsetsRequest
    ) -> wire.DeleteShareGroupOffsetsResponse:
        self._check_feature()
        #: Of each name the topics, former ones too.
        ids: dict[str, list[TopicId]] = {}
        results: Mapping[TopicId, ApiError | None] = {}
        asked = [topic.topic_name for topic in message.topics if topic.topic_name not in request.denied.topics]
        if asked or not message.topics:
            group = self._share_group(message.group_id)
            if group.members:
                raise api_error(ErrorCode.NON_EMPTY_GROUP, "the group has members")
            entry = self._groups.find(message.group_id)
            assert entry is not None
            denied = request.denied.topics
            for known_id, known in begun(group).items():
                if known.name not in denied:
                    ids.setdefault(known.name, []).append(known_id)
            doomed = [topic_id for name in asked for topic_id in ids.get(name, ())]
            results = await self._groups.share_states.delete_states(entry, doomed)
        return await in_slices(request, self._deleted(request, message, ids, results))

    def _deleted(
        self,
        request: Request,
        message: wire.DeleteShareGroupOffsetsRequest,
        ids: Mapping[str, list[TopicId]],
        results: Mapping[TopicId, ApiError | None],
    ) -> Steps[wire.DeleteShareGroupOffsetsResponse]:
        response = wire.DeleteShareGroupOffsetsResponse
        responses = []
        for count, topic in enumerate(message.topics, 1):
            if not count % STEP:
                yield
            found = ids.get(topic.topic_name, [])
            error: ApiError | None = None
            if topic.topic_name in request.denied.topics:
                error = api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif not found:
                error = api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
            else:
                error = next((each for topic_id in found if (each := results.get(topic_id)) is not None), None)
            present = self._seen_id(request, topic.topic_name)
            shown = present if present in found else next(iter(found), None)
            raw = ZERO_UUID if shown is None else to_wire(shown)
            responses.append(response.DeleteShareGroupOffsetsResponseTopic(topic.topic_name, raw, *_code(error)))
        return response(responses=responses)


def _code(error: ApiError | None) -> tuple[int, str | None]:
    return (0, None) if error is None else (int(error.code), str(error))


def _described_offsets(
    wanted: _WantedOffsets,
    denied: Collection[str],
    known: Mapping[TopicPartition, ShareSummary | ApiError],
    ends: EndOffsets,
) -> Steps[list[wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]]:
    topics = []
    count = 0
    for name, (topic_id, numbers) in wanted.items():
        partitions = []
        for number in numbers:
            count += 1
            if not count % STEP:
                yield
            place = TopicPartition(name, number)
            if name in denied:
                partitions.append(_offset_error(number, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif place not in known:
                partitions.append(_offset_error(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                partitions.append(_offset(number, known[place], ends[place]))
        raw = ZERO_UUID if topic_id is None else to_wire(topic_id)
        topics.append(
            wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic(name, raw, partitions)
        )
    return topics


def _offset_error(
    number: int, code: ErrorCode, text: str | None = None
) -> wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition:
    partition = wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
    return partition(number, -1, 0, -1, int(code), text or code.name)


def _offset(
    number: int, summary: ShareSummary | ApiError, end: Offset | ErrorCode
) -> wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition:
    if isinstance(summary, ApiError):
        return _offset_error(number, summary.code, str(summary))
    partition = wire.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
    lag = -1
    if summary.start_offset >= 0 and not isinstance(end, ErrorCode):
        lag = max(0, end - summary.start_offset - summary.completed)
    return partition(number, summary.start_offset, summary.leader_epoch, lag, 0, None)
