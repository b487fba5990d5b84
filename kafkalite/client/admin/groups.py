"""Groups of all four types for our client: lists, descriptions, offsets, deletion. Membership: `kafkalite.client.membership`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kafkalite.client import messages
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.exchange import Request
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Offset, TopicPartition, numbers_by_topic
from kafkalite.protocol import wire
from kafkalite.protocol.consumer_protocol import CONSUMER, assigned_partitions

#: What coordinators send without more than the code.
MEANINGS = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.INVALID_GROUP_ID: "this is not a valid group name",
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}
#: Types of ListGroups.
CLASSIC, _MODERN, SHARE, _STREAMS = "classic", "consumer", "share", "streams"
#: The state of a group that does not exist.
_DEAD = "Dead"
#: Group type -> what its groups are described by; classic ones by DescribeGroups.
_DESCRIBED_BY = {
    _MODERN: "ConsumerGroupDescribeRequest",
    SHARE: "ShareGroupDescribeRequest",
    _STREAMS: "StreamsGroupDescribeRequest",
}
#: What classic groups say of themselves, and the others by their type.
_PROTOCOL_TYPES = {_MODERN: CONSUMER, SHARE: SHARE, _STREAMS: _STREAMS}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """`group_type`: classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071)."""

    group: str
    state: str
    protocol_type: str
    members: int
    group_type: str = CLASSIC


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`assigned`: reads what it is assigned, if the group's protocol is that of consumers. There may be a million partitions."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    assigned: Callable[[], Iterable[tuple[str, int]]] = tuple

    @property
    def partitions(self) -> tuple[tuple[str, int], ...]:
        """(topic, number) of what it is assigned; decoded each time."""
        return tuple(self.assigned())


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`offset`: the next record to read; of a share group the first one that is not done, -1 if it has not begun there.
    `lag`: of a share group, the records that are not done, -1 if that is not known."""

    topic: str
    partition: int
    offset: Offset
    leader_epoch: int = -1
    metadata: str = ""
    lag: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`state` Dead: there is no such group. `protocol`: the assignor.

    `group_type`: classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071).
    """

    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] = ()
    group_type: str = CLASSIC


class Groups:
    """Administration of groups; follows coordinators. Every method raises ApiError and RpcError."""

    def __init__(self, client: AsyncClient, *, timeout_s: float | None = None) -> None:
        self._client = client
        self._timeout_s = client.patience_s(timeout_s)

    async def list(self) -> list[tuple[BrokerId, ListedGroup]]:
        """(coordinator, group), by name."""
        found: list[tuple[BrokerId, ListedGroup]] = []
        answers = await self._client.every_node(wire.ListGroupsRequest(), timeout_s=self._timeout_s)
        for node, answer in answers.items():
            if isinstance(answer, KafkaliteError):
                raise answer
            _refuse(answer.error_code, "")
            by_type: dict[str, list[str]] = {}
            for each in answer.groups:
                by_type.setdefault(each.group_type if each.group_type in _DESCRIBED_BY else CLASSIC, []).append(
                    each.group_id
                )
            # What a list does not say: how many members, and before Kafka 2.6 the state.
            for group_type, names in by_type.items():
                described = await self._client.call_node(node, _describe(group_type, names), timeout_s=self._timeout_s)
                own_type = _PROTOCOL_TYPES.get(group_type)
                found += [
                    (
                        node,
                        ListedGroup(
                            each.group_id,
                            each.group_state,
                            own_type or each.protocol_type,
                            len(each.members),
                            group_type,
                        ),
                    )
                    for each in described.groups
                    if not each.error_code
                ]
        return sorted(found, key=lambda row: row[1].group)

    async def describe(self, group: str) -> tuple[BrokerId, GroupDescription]:
        """(coordinator, group). If there is no such group, its state is Dead."""
        node, answered = await self._classic(group)
        if answered.state == _DEAD:
            node, answered = await self._modern(group, node)
        if answered.state == _DEAD:
            node, answered = await self._shared(group, node)
        if answered.group_type == SHARE:
            return node, answered
        if answered.state == _DEAD:
            node, answered = await self._streams(group, node)
        offsets = tuple(
            GroupOffset(topic.name, each.partition_index, Offset(each.committed_offset), each.committed_leader_epoch,
                        each.metadata or "")
            for topic in messages.fetched_topics(await self._committed(group))
            for each in topic.partitions
            if not each.error_code
        )  # fmt: skip
        ordered = tuple(sorted(offsets, key=lambda each: (each.topic, each.partition)))
        return node, replace(answered, offsets=ordered)

    async def _classic(self, group: str) -> tuple[BrokerId, GroupDescription]:
        """State Dead: there is no such group, or it is not one of the classic protocol."""
        request = wire.DescribeGroupsRequest([group])
        node, answer = await self.ask(group, request, _described_error)
        answered = answer.groups[0]
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id or "",
                member.client_id,
                member.client_host,
                partial(assigned_partitions, bytes(member.member_assignment))
                if answered.protocol_type == CONSUMER
                else tuple,
            )
            for member in answered.members
        )
        return node, GroupDescription(
            answered.group_state or _DEAD, answered.protocol_type, answered.protocol_data, members
        )

    async def _described(self, group_type: str, group: str, node: BrokerId) -> tuple[BrokerId, Any]:
        """(coordinator, its description); None: there is no such group, or the coordinator knows no groups of this type."""
        try:
            node, answer = await self.ask(group, _describe(group_type, [group]), _described_error)
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return node, None
        return node, None if answer.groups[0].error_code else answer.groups[0]

    async def _modern(self, group: str, node: BrokerId) -> tuple[BrokerId, GroupDescription]:
        """A consumer group (KIP-848); state Dead: there is none, or the coordinator knows no such groups."""
        node, answered = await self._described(_MODERN, group, node)
        if answered is None:
            return node, GroupDescription(_DEAD)
        members = _members(answered, _assigned)
        return node, GroupDescription(
            answered.group_state, CONSUMER, answered.assignor_name, members, group_type=_MODERN
        )

    async def _shared(self, group: str, node: BrokerId) -> tuple[BrokerId, GroupDescription]:
        """A share group (KIP-932); state Dead: there is none, or the coordinator knows no such groups."""
        node, answered = await self._described(SHARE, group, node)
        if answered is None:
            return node, GroupDescription(_DEAD)
        members = _members(answered, _assigned)
        request = wire.DescribeShareGroupOffsetsRequest
        asked = request([request.DescribeShareGroupOffsetsRequestGroup(group, None)])
        _, answer = await self.ask(group, asked, lambda response: response.groups[0].error_code)
        offsets = tuple(
            GroupOffset(topic.topic_name, each.partition_index, Offset(each.start_offset), lag=each.lag)
            for topic in answer.groups[0].topics
            for each in topic.partitions
            if not each.error_code
        )
        ordered = tuple(sorted(offsets, key=lambda each: (each.topic, each.partition)))
        return node, GroupDescription(answered.group_state, SHARE, answered.assignor_name, members, ordered, SHARE)

    async def _streams(self, group: str, node: BrokerId) -> tuple[BrokerId, GroupDescription]:
        """A streams group (KIP-1071); state Dead: there is none, or the coordinator knows no such groups.

        A member has the partitions that its active tasks read.
        """
        node, answered = await self._described(_STREAMS, group, node)
        if answered is None:
            return node, GroupDescription(_DEAD)
        subtopologies = (answered.topology.subtopologies if answered.topology is not None else None) or ()
        inputs = {
            each.subtopology_id: sorted(
                [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
            )
            for each in subtopologies
        }
        members = _members(
            answered,
            lambda each: (
                (topic, number)
                for task in each.assignment.active_tasks
                for topic in inputs.get(task.subtopology_id, ())
                for number in task.partitions
            ),
        )
        assignor = answered.assignor_name or ""
        return node, GroupDescription(answered.group_state, _STREAMS, assignor, members, group_type=_STREAMS)

    async def _committed(self, group: str) -> Any:
        _, answer = await self.ask(group, messages.fetch_offsets_request(group), messages.fetched_error)
        return answer

    async def delete(self, group: str) -> None:
        request = wire.DeleteGroupsRequest([group])
        await self._ask(
            group, request, lambda response: (response.results[0].error_code, ""), done=ErrorCode.GROUP_ID_NOT_FOUND
        )

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        deletions: Iterable[TopicPartition] = (),
        member_id: str = "",
        generation: int = -1,
    ) -> None:
        """Set offsets and forget others; each of the two sets as a whole, else it raises."""
        if offsets:
            request = messages.commit_offsets_request(group, offsets, member_id=member_id, generation=generation)
            await self._ask(group, request, commit_error)
        if gone := numbers_by_topic(sorted(deletions)):
            delete = wire.OffsetDeleteRequest
            topics = [
                delete.OffsetDeleteRequestTopic(name, [delete.OffsetDeleteRequestPartition(n) for n in numbers])
                for name, numbers in gone.items()
            ]
            await self._ask(group, delete(group, topics), commit_error)

    async def ask(
        self, group: str, request: Request, error_of: Callable[[Any], int], *, timeout_s: float | None = None
    ) -> tuple[BrokerId, Any]:
        """Ask the coordinator, wherever it is by now: (coordinator, its response, which has no error)."""
        return await self._ask(group, request, lambda response: (error_of(response), ""), timeout_s)

    async def _ask(
        self,
        group: str,
        request: Request,
        error_of: Callable[[Any], tuple[int, str]],
        timeout_s: float | None = None,
        done: ErrorCode | None = None,
    ) -> tuple[BrokerId, Any]:
        def meaning(response: Any) -> tuple[int, str]:
            number, text = error_of(response)
            code = error_code(number)
            return number, text or f"group {group!r}: {MEANINGS.get(code, code.name)}"

        patience = self._timeout_s if timeout_s is None else timeout_s
        return await self._client.call_coordinator(
            messages.GROUP, group, request, meaning, timeout_s=patience, done=done
        )


def _described_error(response: Any) -> int:
    """That there is no such group is no error here."""
    code = int(response.groups[0].error_code)
    return 0 if code == ErrorCode.GROUP_ID_NOT_FOUND else code


def _refuse(number: int, text: str) -> None:
    if number:
        raise api_error(error_code(number), text)


def own_error(response: Any) -> int:
    return int(response.error_code)


def commit_error(response: Any) -> tuple[int, str]:
    number, where = messages.first_commit_error(response)
    code = error_code(number)
    return number, f"{where}: {MEANINGS.get(code, code.name)}" if where else ""


def _describe(group_type: str, groups: Sequence[str]) -> Any:
    """The request that describes groups of a type."""
    return getattr(wire, _DESCRIBED_BY.get(group_type, "DescribeGroupsRequest"))(list(groups))


def _assigned(member: Any) -> Iterable[tuple[str, int]]:
    """What a member of a consumer or share group is assigned."""
    return ((topic.topic_name, number) for topic in member.assignment.topic_partitions for number in topic.partitions)


def _members(answered: Any, partitions: Callable[[Any], Iterable[tuple[str, int]]]) -> tuple[GroupMember, ...]:
    """The members of a described group, with the `partitions` of each; members of share groups are never static."""
    return tuple(
        GroupMember(
            member.member_id,
            getattr(member, "instance_id", None) or "",
            member.client_id,
            member.client_host,
            partial(partitions, member),
        )
        for member in answered.members
    )
