"""Consumer groups on the RPC listener: the coordinator's answers, for whoever asks the node that coordinates.

Native members and those of Kafka clients share groups: subscriptions and assignments travel between them as Kafka's
consumer protocol, under the assignor "range".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.coordinators.groups.coordinator import CommitResults, GroupCoordinator
from kafkalite.coordinators.groups.group import GroupState
from kafkalite.coordinators.groups.group_events import JoinAnswer, JoinRequest, SyncAnswer
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.env.seams import Clock
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.model import TopicPartition
from kafkalite.protocol.consumer_protocol import CONSUMER, assigned_partitions, assignment, subscribed, subscription
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.handling import Handler, Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import PartitionError
from kafkalite.rpc.messages.groups import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DescribeGroupRequest,
    DescribeGroupResponse,
    GroupHeartbeatRequest,
    GroupHeartbeatResponse,
    GroupMember,
    GroupOffset,
    JoinGroupRequest,
    JoinGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    Subscription,
    SyncGroupRequest,
    SyncGroupResponse,
)

ASSIGNOR = "range"


class GroupApi:
    """Handlers. Refusals are in the answers."""

    def __init__(self, kafka: Callable[[], KafkaSide], metadata: MetadataCache, clock: Clock) -> None:
        self._kafka_side = kafka
        self._metadata = metadata
        self._clock = clock

    def handlers(self) -> Mapping[type[Message], Handler]:
        return {
            ListGroupsRequest: self._refusable(self._list, ListGroupsResponse),
            DescribeGroupRequest: self._refusable(self._describe, DescribeGroupResponse),
            DeleteGroupRequest: self._refusable(self._delete, DeleteGroupResponse),
            CommitOffsetsRequest: self._refusable(self._commit, CommitOffsetsResponse),
            JoinGroupRequest: self._refusable(self._join, JoinGroupResponse),
            SyncGroupRequest: self._refusable(self._sync, SyncGroupResponse),
            GroupHeartbeatRequest: self._refusable(self._heartbeat, GroupHeartbeatResponse),
        }

    def _refusable(self, serve: Callable[[Any, Request], Any], answer: Callable[[int, str], Message]) -> Handler:
        async def handle(request: Request) -> Reply:
            try:
                return Reply(await serve(request.message, request))
            except ApiError as error:
                return Reply(answer(error.code, str(error)))

        return handle

    def _coordinator(self) -> GroupCoordinator:
        kafka = self._kafka_side()
        if not kafka.is_coordinating:
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, "this node coordinates no groups: it has no Kafka listener")
        return kafka.groups

    # --- administration --------------------------------------------------------------------------------------

    async def _list(self, message: ListGroupsRequest, request: Request) -> ListGroupsResponse:
        groups = tuple(
            ListedGroup(group.group_id, group.state.value, group.protocol_type or "", len(group.members))
            for group in self._coordinator().groups()
        )
        return ListGroupsResponse(ErrorCode.NONE, groups=groups)

    async def _describe(self, message: DescribeGroupRequest, request: Request) -> DescribeGroupResponse:
        groups = self._coordinator()
        group = groups.describe(message.group)
        if group is None:
            return DescribeGroupResponse(ErrorCode.NONE, state=GroupState.DEAD.value)
        committed = groups.offsets_of(message.group).committed
        return DescribeGroupResponse(
            ErrorCode.NONE,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol=group.protocol or "",
            generation=group.generation,
            members=tuple(
                GroupMember(
                    member.member_id,
                    member.instance_id or "",
                    member.client_id,
                    member.client_host,
                    assigned_partitions(member.assignment) if group.protocol_type == CONSUMER else (),
                )
                for member in group.members.values()
            ),
            offsets=tuple(
                GroupOffset(key.topic, key.partition, each.offset, each.leader_epoch, each.metadata, each.commit_ms)
                for key, each in sorted(committed.items())
            ),
        )

    async def _delete(self, message: DeleteGroupRequest, request: Request) -> DeleteGroupResponse:
        await self._coordinator().delete_group(message.group)
        return DeleteGroupResponse(ErrorCode.NONE)

    async def _commit(self, message: CommitOffsetsRequest, request: Request) -> CommitOffsetsResponse:
        groups = self._coordinator()
        results: CommitResults = {}
        now_ms = self._clock.wall_ms()
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for each in message.offsets:
            key = TopicPartition(each.topic, each.partition)
            if self._metadata.partition(key) is None:
                results[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                offsets[key] = CommittedOffset(each.offset, each.leader_epoch, each.metadata, now_ms)
        if offsets:
            done: asyncio.Future[CommitResults] = asyncio.get_running_loop().create_future()

            def told(outcome: CommitResults) -> None:
                if not done.done():
                    done.set_result(outcome)

            groups.commit(message.group, message.member_id, None, message.generation, offsets, told)
            results |= await done
        if message.deletions:
            wanted = [TopicPartition(topic, partition) for topic, partition in message.deletions]
            results |= await groups.delete_offsets(message.group, wanted)
        refused = tuple(PartitionError(key.topic, key.partition, code) for key, code in results.items() if code)
        return CommitOffsetsResponse(ErrorCode.NONE, partitions=refused)

    # --- membership ------------------------------------------------------------------------------------------

    async def _join(self, message: JoinGroupRequest, request: Request) -> JoinGroupResponse:
        groups = self._coordinator()
        done: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()

        def told(answer: JoinAnswer) -> None:
            if not done.done():  # the caller has gone
                done.set_result(answer)

        client = request.peer.client_id
        host, _, _ = request.peer.address.rpartition(":")
        groups.join(
            message.group,
            JoinRequest(
                token=told,
                member_id=message.member_id,
                new_member_id=groups.new_member_id(client or CONSUMER),
                instance_id=None,
                client_id=client,
                client_host=f"/{host}",
                session_timeout_ms=message.session_timeout_ms,
                rebalance_timeout_ms=message.rebalance_timeout_ms,
                protocol_type=CONSUMER,
                protocols=((ASSIGNOR, subscription(message.topics)),),
            ),
        )
        answer = await done
        members = tuple(Subscription(member, subscribed(data)) for member, _, data in answer.members)
        return JoinGroupResponse(answer.error, "", answer.member_id, answer.generation, answer.leader, members)

    async def _sync(self, message: SyncGroupRequest, request: Request) -> SyncGroupResponse:
        done: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()

        def told(answer: SyncAnswer) -> None:
            if not done.done():
                done.set_result(answer)

        assignments = {each.member_id: assignment(each.partitions) for each in message.assignments}
        self._coordinator().sync(
            message.group, told, message.member_id, None, message.generation, CONSUMER, ASSIGNOR, assignments
        )
        answer = await done
        return SyncGroupResponse(answer.error, "", assigned_partitions(answer.assignment))

    async def _heartbeat(self, message: GroupHeartbeatRequest, request: Request) -> GroupHeartbeatResponse:
        groups = self._coordinator()
        if message.is_leaving:
            return GroupHeartbeatResponse(groups.leave(message.group, message.member_id, None))
        return GroupHeartbeatResponse(groups.heartbeat(message.group, message.member_id, None, message.generation))
