"""Membership in a consumer group with the classic protocol, as a client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalite.client.admin.groups import Groups, own_error
from kafkalite.client.async_client import AsyncClient
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.consumer_protocol import CONSUMER, assigned_partitions, assignment, subscribed, subscription
from kafkalite.rpc.answers import RpcError
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_S = 1.0
#: The group's leader checks after this time (seconds) whether topics have got more partitions (Kafka: metadata.max.age.ms).
PARTITIONS_CHECKED_S = 30.0
#: Patience of that check, which must not keep a heartbeat back for long.
CHECK_TIMEOUT_S = 2.0
#: Join again, from the beginning: the coordinator does not know us any more.
_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})
ASSIGNOR = "range"


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    member_id: str
    topics: tuple[str, ...]


def range_assignment(
    members: Sequence[MemberSubscription], partition_counts: Mapping[str, int]
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
        #: Of the group's leader: the partitions that it has assigned, by topic.
        self._counts: dict[str, int] = {}
        self._checked_at = 0.0
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.partitions: tuple[TopicPartition, ...] = ()
        #: The group rebalances, or has removed this member.
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
        joined = await self._joined(patience)
        self.generation = joined.generation_id
        self._counts = {}
        shares: list[Any] = []
        sync = wire.SyncGroupRequest
        if joined.leader == self.member_id:
            members = [MemberSubscription(each.member_id, subscribed(bytes(each.metadata))) for each in joined.members]
            topics = sorted({topic for member in members for topic in member.topics})
            known = {topic: self._client.view.partition_count(topic) for topic in topics}
            found = await self._partition_counts(topics, patience)
            # A node that has not heard of a new topic yet does not take it away from the group.
            self._counts = {topic: max(count, found.get(topic, 0)) for topic, count in known.items()}
            self._checked_at = self._client.now()
            assigned = range_assignment(members, self._counts)
            shares = [sync.SyncGroupRequestAssignment(name, assignment(assigned[name])) for name in sorted(assigned)]
        request = sync(
            self.group, self.generation, self.member_id, None, CONSUMER, joined.protocol_name or ASSIGNOR, shares
        )
        _, synced = await self._groups.ask(self.group, request, own_error, timeout_s=patience)
        self.partitions = tuple(TopicPartition(*each) for each in assigned_partitions(bytes(synced.assignment)))
        _log.info("group.joined", group=self.group, generation=self.generation, partitions=len(self.partitions))

    async def _partition_counts(self, topics: Sequence[str], timeout_s: float) -> dict[str, int]:
        """Of those that exist; other members may subscribe to topics that do not."""
        answer = await self._client.metadata(topics, timeout_s=timeout_s)
        return {topic.topic: len(topic.partitions) for topic in answer.topics if not topic.error}

    async def _joined(self, patience_s: float) -> Any:
        """The round's result. A new member is given its id first, and joins with it (KIP-394)."""
        join = wire.JoinGroupRequest
        protocol = join.JoinGroupRequestProtocol(ASSIGNOR, subscription(self._topics))

        def error_of(response: Any) -> int:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                return 0
            return int(response.error_code)

        while True:
            request = join(
                self.group, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS, self.member_id, None, CONSUMER, [protocol]
            )
            _, joined = await self._groups.ask(self.group, request, error_of, timeout_s=patience_s)
            self.member_id = joined.member_id
            if not joined.error_code:
                return joined

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
        _, described = await self._groups.describe(self.group)
        return {TopicPartition(each.topic, each.partition): each.offset for each in described.offsets}

    async def leave(self) -> None:
        """Go; the others need not wait for the session to end. No error if the coordinator cannot be reached."""
        self._stop_beating()
        if self.member_id:
            leave = wire.LeaveGroupRequest
            request = leave(self.group, self.member_id, [leave.MemberIdentity(self.member_id)])
            try:
                await self._groups.ask(self.group, request, own_error, timeout_s=3)
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
            request = wire.HeartbeatRequest(self.group, self.generation, self.member_id)
            try:
                await self._groups.ask(self.group, request, own_error, timeout_s=SESSION_TIMEOUT_MS / 1000)
            except (ApiError, RpcError) as error:
                _log.info("group.stale", group=self.group, error=str(error))
                self.is_stale.set()
                return
            if await self._has_new_partitions():
                _log.info("group.new_partitions", group=self.group)
                self.is_stale.set()
                return

    async def _has_new_partitions(self) -> bool:
        """Whether the group's leader has partitions to assign that nobody reads."""
        if not self._counts or self._client.now() - self._checked_at < PARTITIONS_CHECKED_S:
            return False
        self._checked_at = self._client.now()
        try:
            now = await self._partition_counts(sorted(self._counts), CHECK_TIMEOUT_S)
        except (ApiError, RpcError):
            return False
        return any(count > self._counts[topic] for topic, count in now.items())
