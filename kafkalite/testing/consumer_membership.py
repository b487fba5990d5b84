"""A member of a consumer group that speaks the consumer protocol (KIP-848): the coordinator assigns, heartbeats say all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kafkalite.client.admin.groups import Groups, own_error
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.membership import REBALANCE_TIMEOUT_MS, Membership
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import TopicPartition, numbers_by_topic
from kafkalite.protocol import wire
from kafkalite.protocol.topic_ids import from_wire, to_wire
from kafkalite.rpc.answers import RpcError
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_JOIN, _LEAVE = 0, -1
_FIRST_INTERVAL_S = 1.0
#: Of a request: well below a session, so that the next one can still be in time.
_PATIENCE_S = 10.0
#: The coordinator does not know this member, or not this epoch: it has nothing any more, and joins from the beginning.
_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
_STALE = frozenset({*_FORGOTTEN, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})


class ConsumerMembership(Membership):
    """As `Membership`. `is_stale`: the assignment has changed, or the group has removed this member (then `generation` is 0).

    `join` also says that what is not in `partitions` any more has been given up, so that another member may have it. A task
    sends heartbeats between `join` and `leave`.
    """

    def __init__(self, client: AsyncClient, groups: Groups, group: str, topics: Sequence[str]) -> None:
        super().__init__(client, groups, group, sorted(set(topics)))
        self._interval_s = _FIRST_INTERVAL_S
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}
        #: What the coordinator has assigned last; `partitions` follows with the next `join`.
        self._assigned: tuple[TopicPartition, ...] = ()
        #: The last assignment as it came, while `_assigned` lacks a part of it (a topic whose name is not known yet).
        self._given: Sequence[Any] | None = None
        self.member_id = from_wire(client.random.getrandbits(128).to_bytes(16))
        #: The member epoch; 0: no member.
        self.generation = 0
        #: When the last heartbeat was sent that was answered (the client's `now`): the session ends no earlier than from then on.
        self.heard_at_s = 0.0

    async def join(self) -> None:
        """Become a member, or take the assignment of the last heartbeat. Raises ApiError, RpcError."""
        self._stop_beating()
        self.is_stale.clear()
        while True:
            self.partitions = self._assigned
            try:
                await self._heartbeat(self.generation)
                break
            except ApiError as error:
                if error.code not in _FORGOTTEN:
                    raise
                self._forget()
        self.partitions = self._assigned
        self._beating = self._client.supervisor.spawn("group.heartbeat", self._beat(), Policy.ISOLATED)

    def _forget(self) -> None:
        self.generation, self._assigned, self._given = _JOIN, (), None

    async def _heartbeat(self, epoch: int) -> None:
        """Say what it has, and take what it is assigned. Raises ApiError, RpcError.

        Each heartbeat is a full one, so each answer is, too: the content of a lost answer would not come again.
        """
        request = wire.ConsumerGroupHeartbeatRequest
        owned = [
            request.TopicPartitions(self._ids[topic], numbers)
            for topic, numbers in numbers_by_topic(self.partitions).items()
        ]
        message = request(
            self.group,
            self.member_id,
            epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=list(self._topics),
            topic_partitions=owned,
        )
        sent_s = self._client.now()
        _, answer = await self._groups.ask(self.group, message, own_error, timeout_s=_PATIENCE_S)
        self.heard_at_s = sent_s
        self.generation = answer.member_epoch
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._given = answer.assignment.topic_partitions
        if self._given is not None:
            await self._take(self._given)

    async def _take(self, given: Sequence[Any]) -> None:
        """Find the names of the topics. Those that no node has named yet are looked for again after the next heartbeat."""
        if any(each.topic_id not in self._names for each in given):
            for topic in (await self._client.metadata(set(self._topics))).topics:
                topic_id = to_wire(topic.topic_id)
                self._names[topic_id], self._ids[topic.topic] = topic.topic, topic_id
        unknown = [from_wire(each.topic_id) for each in given if each.topic_id not in self._names]
        if unknown:
            _log.info("group.topics_unknown", group=self.group, topics=unknown)
        else:
            self._given = None
        self._assigned = tuple(
            sorted(
                TopicPartition(self._names[each.topic_id], number)
                for each in given
                if each.topic_id in self._names
                for number in each.partitions
            )
        )

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit as this member; False if the group has moved on, and the offsets are for others to say."""
        epoch = self.generation
        while True:
            try:
                await self._groups.commit(self.group, offsets, member_id=self.member_id, generation=epoch)
                return True
            except ApiError as error:
                if error.code not in _STALE:
                    raise
                if error.code is ErrorCode.STALE_MEMBER_EPOCH and self.generation > epoch:
                    epoch = self.generation  # a heartbeat has brought a new one meanwhile
                    continue
                return False

    async def leave(self) -> None:
        """Go; the others need not wait for the session to end. No error if the coordinator cannot be reached."""
        self._stop_beating()
        if self.generation:
            request = wire.ConsumerGroupHeartbeatRequest(self.group, self.member_id, _LEAVE)
            try:
                await self._groups.ask(self.group, request, own_error, timeout_s=3)
            except (ApiError, RpcError) as error:
                _log.info("group.not_left", group=self.group, error=str(error))
        self._forget()
        self.partitions = ()

    def abandon(self) -> None:
        """Stop without a word, as a process that is killed does."""
        self._stop_beating()
        self._forget()
        self.partitions = ()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._heartbeat(self.generation)
            except (ApiError, RpcError) as error:
                _log.info("group.stale", group=self.group, error=str(error))
                if isinstance(error, ApiError) and error.code in _FORGOTTEN:
                    self._forget()
                    self.is_stale.set()
                    return
            if self._assigned != self.partitions:
                self.is_stale.set()
