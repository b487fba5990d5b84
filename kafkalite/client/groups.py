"""Consumer groups for the native client: administration, and membership with the assignor "range"."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.cluster_requests import of_kind
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.model import BrokerId, Offset, TopicPartition
from kafkalite.rpc.client import RpcError
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.groups import (
    Assignment,
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DescribeGroupRequest,
    DescribeGroupResponse,
    GroupHeartbeatRequest,
    GroupHeartbeatResponse,
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
from kafkalite.rpc.messages.transactions import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

M = TypeVar("M", bound=Message)

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_S = 1.0
#: Join again, from the beginning: the coordinator does not know us any more.
_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})
#: What coordinators send without more than the code.
_MEANINGS = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.INVALID_GROUP_ID: "this is not a valid group name",
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}
_FIND_AGAIN = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def range_assignment(
    members: Sequence[Subscription], partition_counts: Mapping[str, int]
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Kafka's range assignor: of each topic, consecutive partitions to its subscribers in the order of their ids. Pure."""
    shares: dict[str, list[tuple[str, int]]] = {member.member_id: [] for member in members}
    for topic in sorted({topic for member in members for topic in member.topics}):
        takers = sorted(member.member_id for member in members if topic in member.topics)
        each, more = divmod(partition_counts.get(topic, 0), len(takers))
        first = 0
        for position, taker in enumerate(takers):
            count = each + (position < more)
            shares[taker] += [(topic, number) for number in range(first, first + count)]
            first += count
    return {member: tuple(share) for member, share in shares.items()}


class Groups:
    """Administration of groups; follows coordinators. Every method raises ApiError and RpcError."""

    def __init__(self, client: AsyncClient, *, timeout_s: float = 30.0) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def list(self) -> list[tuple[BrokerId, ListedGroup]]:
        """(coordinator, group), by name."""
        answers = await self._client.every_node(ListGroupsRequest(), timeout_s=self._timeout_s)
        found: list[tuple[BrokerId, ListedGroup]] = []
        for node, answer in answers.items():
            if isinstance(answer, KafkaliteError):
                raise answer
            told = of_kind(answer, ListGroupsResponse)
            if told.error:
                raise api_error(error_code(told.error), told.message)
            found += [(node, group) for group in told.groups]
        return sorted(found, key=lambda row: row[1].group)

    async def describe(self, group: str) -> tuple[BrokerId, DescribeGroupResponse]:
        """(coordinator, group). A group that there is not has the state Dead."""
        return await self.ask(group, DescribeGroupRequest(group), DescribeGroupResponse)

    async def delete(self, group: str) -> None:
        await self.ask(group, DeleteGroupRequest(group), DeleteGroupResponse)

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        deletions: Iterable[TopicPartition] = (),
        member_id: str = "",
        generation: int = -1,
    ) -> None:
        """Set offsets and forget others; all of them, else it raises."""
        wanted = tuple(GroupOffset(*key, Offset(offset)) for key, offset in sorted(offsets.items()))
        gone = tuple((key.topic, key.partition) for key in sorted(deletions))
        request = CommitOffsetsRequest(group, wanted, member_id, generation, gone)
        _, answer = await self.ask(group, request, CommitOffsetsResponse)
        for refused in answer.partitions:
            code = error_code(refused.error)
            raise api_error(code, f"{refused.topic}-{refused.partition}: {_MEANINGS.get(code, code.name)}")

    async def ask(
        self, group: str, request: Message, answer: type[M], *, timeout_s: float | None = None
    ) -> tuple[BrokerId, M]:
        """Ask the coordinator, wherever it is by now: (coordinator, its answer without an error)."""
        client = self._client
        patience = self._timeout_s if timeout_s is None else timeout_s
        deadline = client.now() + patience
        attempts = 0
        while True:
            error: KafkaliteError
            try:
                node = await self._find(group, max(0.1, deadline - client.now()))
                found, _ = await client.call_node(node, request, timeout_s=max(0.1, deadline - client.now()))
                told = of_kind(found, answer)
                code = error_code(told.error)  # type: ignore[attr-defined]
                if code is ErrorCode.NONE:
                    return node, told
                text = told.message  # type: ignore[attr-defined]
                meaning = text if text not in ("", code.name) else _MEANINGS.get(code, code.name)
                error = api_error(code, f"group {group!r}: {meaning}")
                if not (is_retriable(code) or code in _FIND_AGAIN) or code is ErrorCode.REBALANCE_IN_PROGRESS:
                    raise error
            except RpcError as failure:
                error = failure
            attempts += 1
            pause = client.backoff.pause_s(attempts)
            if client.now() + pause > deadline:
                raise error
            await asyncio.sleep(pause)

    async def _find(self, group: str, timeout_s: float) -> BrokerId:
        answer = await self._client.order(
            FindCoordinatorRequest(group, is_consumer_group=True), FindCoordinatorResponse, timeout_s=timeout_s
        )
        if answer.error:
            raise api_error(error_code(answer.error), answer.message)
        if self._client.view.endpoint(answer.node_id) is None:
            await self._client.metadata((), timeout_s=timeout_s)
        return answer.node_id


class Membership:
    """One member of a group. `await join()`, read `partitions`, commit; join again when `is_stale` is set.

    A task sends heartbeats between `join` and `leave`. Each member needs a client of its own: a node answers the requests
    of one connection in their order, and a join waits for the other members.
    """

    def __init__(self, client: AsyncClient, groups: Groups, group: str, topics: Sequence[str]) -> None:
        self._client = client
        self._groups = groups
        self._topics = tuple(topics)
        self._beating: asyncio.Task[None] | None = None
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.partitions: tuple[TopicPartition, ...] = ()
        #: The group shares its partitions out anew, or has forgotten us.
        self.is_stale = asyncio.Event()

    async def join(self) -> None:
        """Become a member, or stay one in the next round; returns with `partitions`. Raises ApiError, RpcError."""
        self._stop_beating()
        while True:
            try:
                await self._round()
                break
            except ApiError as error:
                if error.code in _FORGOTTEN:
                    self.member_id = ""
                elif error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
        self.is_stale.clear()
        self._beating = self._client.supervisor.spawn("group.heartbeat", self._beat(), Policy.ISOLATED)

    async def _round(self) -> None:
        patience = REBALANCE_TIMEOUT_MS / 1000 + 30
        request = JoinGroupRequest(self.group, self.member_id, self._topics, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        _, joined = await self._groups.ask(self.group, request, JoinGroupResponse, timeout_s=patience)
        self.member_id, self.generation = joined.member_id, joined.generation
        shares: tuple[Assignment, ...] = ()
        if joined.leader == self.member_id:
            counts = {topic: await self._client.known_topic(topic) for topic in self._all_topics(joined)}
            assigned = range_assignment(joined.members, counts)
            shares = tuple(Assignment(member, assigned[member]) for member in sorted(assigned))
        sync = SyncGroupRequest(self.group, self.member_id, self.generation, shares)
        _, synced = await self._groups.ask(self.group, sync, SyncGroupResponse, timeout_s=patience)
        self.partitions = tuple(TopicPartition(*partition) for partition in synced.partitions)
        _log.info("group.joined", group=self.group, generation=self.generation, partitions=len(self.partitions))

    @staticmethod
    def _all_topics(joined: JoinGroupResponse) -> list[str]:
        return sorted({topic for member in joined.members for topic in member.topics})

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit as this member; False if the group has moved on, and the offsets are for others to say."""
        try:
            await self._groups.commit(self.group, offsets, member_id=self.member_id, generation=self.generation)
        except ApiError as error:
            if error.code in _FORGOTTEN or error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.is_stale.set()
                return False
            raise
        return True

    async def committed(self) -> dict[TopicPartition, int]:
        """What the group has committed."""
        _, told = await self._groups.describe(self.group)
        return {TopicPartition(each.topic, each.partition): each.offset for each in told.offsets}

    async def leave(self) -> None:
        """Go; the others need not wait for the session to end. Quietly, if the coordinator cannot be told."""
        self._stop_beating()
        if self.member_id:
            request = GroupHeartbeatRequest(self.group, self.member_id, self.generation, is_leaving=True)
            try:
                await self._groups.ask(self.group, request, GroupHeartbeatResponse, timeout_s=3)
            except (ApiError, RpcError) as error:
                _log.info("group.not_left", group=self.group, error=str(error))
        self.member_id = ""

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            request = GroupHeartbeatRequest(self.group, self.member_id, self.generation)
            try:
                await self._groups.ask(self.group, request, GroupHeartbeatResponse, timeout_s=SESSION_TIMEOUT_MS / 1000)
            except (ApiError, RpcError) as error:
                _log.info("group.stale", group=self.group, error=str(error))
                self.is_stale.set()
                return
