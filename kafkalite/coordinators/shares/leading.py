"""The shared partitions that this node leads: loaded from the share coordinator, stored there before a member's answer.

A shared partition is loaded when a member first fetches from it, and forgotten when no member of the group has a
session for it here, or when this node does not lead the partition in that epoch any more. Reading fences every older
leader at the coordinator, so what an old leader says late is refused there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.dead_letters import DeadLetterWriter
from kafkalite.coordinators.shares.decisions.deliveries import Part, StateWrite
from kafkalite.coordinators.shares.decisions.shared_partition import SharedPartition
from kafkalite.coordinators.shares.persistence import ShareKey, SharePersister, ShareState
from kafkalite.coordinators.shares.settings import EARLIEST, ShareSettings, share_settings
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, LeaderEpoch, Offset, TopicId, TopicPartition
from kafkalite.replica.client_fetch import ClientFetch
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest
from kafkalite.resource_configs import duration_ms
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)
_T = TypeVar("_T")

#: Time in seconds for which a write waits for a coordinator that is on its way elsewhere.
PATIENCE_S = 10.0
#: The pauses between attempts, from the first to the longest, in seconds.
_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0
#: The coordinator may answer later, or another one.
_LATER = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
#: Somebody else leads, or has set the group's offsets: what this node knows is over.
_OVER = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_GONE = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Led:
    """One shared partition. `state` is None while it is loaded; `failure` says why it could not be."""

    def __init__(
        self, shares: SharedPartitions, key: ShareKey, partition: TopicPartition, leader_epoch: LeaderEpoch
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state: SharedPartition | None = None
        self.failure = ErrorCode.NONE
        self.is_over = False
        #: The members with a session for it.
        self.members: set[str] = set()
        #: Long polls that wait for a record of it.
        self.waiters: dict[ClientFetch, None] = {}
        self._shares = shares
        self._state_epoch = 0
        #: Acknowledgements that the next write stores.
        self._unanswered: list[asyncio.Future[ErrorCode]] = []
        self._is_writing = False
        self._is_giving_up = False
        self._timer: asyncio.TimerHandle | None = None

    def set_up(self, settings: ShareSettings) -> None:
        """Take the settings of the group, which may have changed: before locks end, and before a member gets or says anything."""
        if self.state is not None:
            self.state.limits = settings.limits
            self.state.has_dead_letters = self._shares.dead_letters.are_kept(settings)

    # --- members ---

    def acknowledge(self, member: str, acknowledged: Sequence[Part], *, may_renew: bool) -> asyncio.Future[ErrorCode]:
        """Done when it is stored."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        if self.state is None:
            done.set_result(ErrorCode.INVALID_RECORD_STATE)
            return done
        self.set_up(self._shares.settings(self.key.group_id))
        try:
            waits = self.state.acknowledge_parts(member, acknowledged, self._shares.now_ms(), may_renew=may_renew)
        except ApiError as error:
            done.set_result(error.code)
            waits = True
        else:
            if waits:
                self._unanswered.append(done)
            else:
                done.set_result(ErrorCode.NONE)
        self.changed()
        return done

    def leave(self, member: str, *, is_over: bool) -> None:
        """The member does not fetch it any more; if its session is over, what it holds is free."""
        self.members.discard(member)
        if is_over and self.state is not None:
            self.set_up(self._shares.settings(self.key.group_id))
            if self.state.release(member):
                self.changed()
        self._forget_if_unused()

    def changed(self) -> None:
        """Locks have begun or ended, or records are free: store what has to be stored, wake who waits."""
        state = self.state
        if state is None or self.is_over:
            return
        self._arm()
        if state.has_news and not self._is_writing:
            self._is_writing = True
            self._shares.spawn("shares.write", self._write(state))
        if self.waiters and state.can_acquire and state.next_offset < self._shares.readable(self.partition):
            self._wake()

    def _wake(self) -> None:
        for fetch in list(self.waiters):
            fetch.schedule()

    # --- locks ---

    def _arm(self) -> None:
        if self._timer is not None or self.state is None or self.is_over:
            return
        deadline_ms = self.state.next_deadline()
        if deadline_ms is not None:
            wait_ms = max(0, deadline_ms - self._shares.now_ms()) + 1
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        if self.state is not None and not self.is_over:
            self.set_up(self._shares.settings(self.key.group_id))
            self.state.expire(self._shares.now_ms())
            self.changed()
            self._forget_if_unused()

    # --- the stored state ---

    async def load(self) -> None:
        """Read the state; a group that begins here gets its start offset, which is stored at once."""
        shares, key, epoch = self._shares, self.key, self.leader_epoch
        try:
            stored: ShareState = await self._patiently(lambda: shares.persister.read(key, epoch), float("inf"))
            start = stored.start_offset
            if start < 0:
                settings = shares.settings(key.group_id)
                start = await self._patiently(lambda: shares.initial_offset(self.partition, settings), PATIENCE_S)
                await self._patiently(
                    lambda: shares.persister.write(key, stored.state_epoch, epoch, start, ()), PATIENCE_S
                )
            log_start, log_end = shares.bounds(self.partition)
        except ApiError as error:
            self._failed_to_load(error.code)
            return
        if self.is_over:
            return
        self._state_epoch = stored.state_epoch
        state = SharedPartition(start, stored.batches)
        state.log_starts_at(log_start)
        self.state = state
        self.set_up(shares.settings(key.group_id))
        if state.log_ends_at(log_end):
            _log.warning("share.log_ends_before", partition=self.partition, group=key.group_id, offset=log_end)
            self.changed()  # stored before the log has other records there
        self._write_dead_letters(state)
        self._wake()
        self._forget_if_unused()

    def _failed_to_load(self, code: ErrorCode) -> None:
        if self.is_over:
            return
        self.failure = _unreadable(code)
        self._shares.forget(self)
        self.end(self.failure)

    async def _patiently(self, call: Callable[[], Awaitable[_T]], patience_s: float) -> _T:
        """What the coordinator answers, even if it is elsewhere in a moment. Raises ApiError."""
        began, pause_s = self._shares.now_ms(), _PAUSE_S
        while True:
            try:
                return await call()
            except ApiError as error:
                has_waited = self._shares.now_ms() - began >= patience_s * 1000
                if error.code not in _LATER or has_waited or self.is_over:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _write(self, state: SharedPartition) -> None:
        """Store changes until there are none. What comes during a write goes into the next one."""
        pause_s = _PAUSE_S
        try:
            while not self.is_over and (write := state.begin_write()) is not None:
                answered, self._unanswered = self._unanswered, []
                code = ErrorCode.UNKNOWN_SERVER_ERROR
                try:
                    code = await self._store(write)
                finally:
                    state.end_write(is_stored=code is ErrorCode.NONE)
                    _answer(answered, code)
                if code in _OVER or code in _GONE:
                    self._shares.forget(self)
                    self.end(_answered(code))
                elif code is not ErrorCode.NONE:
                    _log.warning("share.not_stored", partition=self.partition, group=self.key.group_id, error=code.name)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                self._written(state)
        finally:
            self._is_writing = False
        if not self.is_over:
            self.changed()
            self._forget_if_unused()

    def _written(self, state: SharedPartition) -> None:
        """What was released is free now, and a start offset that moves makes room for new records."""
        self._arm()
        self._write_dead_letters(state)
        if self.waiters and state.can_acquire and state.next_offset < self._shares.readable(self.partition):
            self._wake()

    async def _store(self, write: StateWrite) -> ErrorCode:
        persister, key = self._shares.persister, self.key
        try:
            await self._patiently(
                lambda: persister.write(key, self._state_epoch, self.leader_epoch, write.start_offset, write.batches),
                PATIENCE_S,
            )
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    # --- dead letters (KIP-1191) ---

    def _write_dead_letters(self, state: SharedPartition) -> None:
        if not self._is_giving_up and not self.is_over and state.dead_letters():
            self._is_giving_up = True
            self._shares.spawn("shares.dead_letters", self._give_up(state))

    async def _give_up(self, state: SharedPartition) -> None:
        """Archive what is to be given up once it is in the dead letter topic, or cannot be written there."""
        shares, group_id = self._shares, self.key.group_id
        try:
            while not self.is_over and (letters := state.dead_letters()):
                await shares.dead_letters.write(group_id, shares.settings(group_id), self.partition, letters[0])
                if not self.is_over:
                    state.archived(letters[0].first, letters[0].last)
                    self.changed()
        finally:
            self._is_giving_up = False
        self._forget_if_unused()

    # --- the end ---

    def _forget_if_unused(self) -> None:
        if not self.members and self.state is not None and self.state.is_idle and not self._is_writing:
            self._shares.forget(self)
            self.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end(self, code: ErrorCode) -> None:
        """Nothing more is delivered or acknowledged here."""
        if self.is_over:
            return
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        _answer(self._unanswered, code)
        self._unanswered = []
        self._wake()


class SharedPartitions:
    """All of this node."""

    def __init__(self, services: Services, persister: SharePersister) -> None:
        self._services = services
        self.persister = persister
        self.dead_letters = DeadLetterWriter(services)
        self._led: dict[ShareKey, Led] = {}

    def __len__(self) -> int:
        return len(self._led)

    def start(self) -> None:
        """Begin to watch which partitions this node leads."""
        self._services.supervisor.spawn("shares.leadership", self._follow_leadership())

    def find(self, group_id: str, topic_id: TopicId, number: int, member: str) -> Led:
        """The shared partition for a member with a session; it is loaded if it was not known.

        Raises:
            ApiError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        partition, epoch = self._leads(topic_id, number)
        led = self.known(group_id, topic_id, number)
        if led is None:
            key = ShareKey.of(group_id, topic_id, number)
            led = self._led[key] = Led(self, key, partition, epoch)
            self.spawn("shares.load", led.load())
        led.members.add(member)
        return led

    def known(self, group_id: str, topic_id: TopicId, number: int) -> Led | None:
        """The same, if it is loaded or being loaded here."""
        led = self._led.get(ShareKey.of(group_id, topic_id, number))
        if led is not None:
            partition, epoch = self._leads(topic_id, number)
            if epoch == led.leader_epoch and partition == led.partition:
                return led
            self.forget(led)
            led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None

    def check(self, topic_id: TopicId, number: int) -> None:
        """Raises ApiError unless this node leads the partition."""
        self._leads(topic_id, number)

    def leave(self, group_id: str, topic_id: TopicId, number: int, member: str, *, is_over: bool) -> None:
        """A member does not fetch the partition any more; `is_over`: it has ended its session."""
        led = self._led.get(ShareKey.of(group_id, topic_id, number))
        if led is not None:
            led.leave(member, is_over=is_over)

    def settings(self, group_id: str) -> ShareSettings:
        """As they are now."""
        return share_settings(self._services.config, self._services.group_settings(group_id))

    def forget(self, led: Led) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]

    def _leads(self, topic_id: TopicId, number: int) -> tuple[TopicPartition, LeaderEpoch]:
        """Raises ApiError."""
        name = self._services.topic_name(topic_id)
        if name is None:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = TopicPartition(name, number)
        epoch = self._services.partitions.leader_epoch(partition)
        if epoch is None:
            topic = self._services.metadata([name]).topics[0]
            is_known = 0 <= number < len(topic.partitions)
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition, epoch

    async def _follow_leadership(self) -> None:
        while True:
            await self._services.partitions.leadership_changed()
            for led in list(self._led.values()):
                if self._services.partitions.leader_epoch(led.partition) != led.leader_epoch:
                    self.forget(led)
                    led.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # --- for its shared partitions ---

    def now_ms(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._services.supervisor.spawn(name, work, Policy.ISOLATED)

    def readable(self, partition: TopicPartition) -> Offset:
        """Up to where members may get records; 0 if this node does not lead any more."""
        try:
            return self._services.partitions.local_high_watermark(partition)
        except ApiError:
            return Offset(0)

    def bounds(self, partition: TopicPartition) -> tuple[Offset, Offset]:
        """(log start offset, log end offset). Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        return self._services.partitions.local_bounds(partition)

    async def initial_offset(self, partition: TopicPartition, settings: ShareSettings) -> Offset:
        """Where a group without a state begins (share.auto.offset.reset). Raises ApiError."""
        back_ms = duration_ms(settings.offset_reset)
        if back_ms is not None:
            since_ms = max(0, self._services.clock.wall_ms() - back_ms)  # below 0 it would be one of the special ones
            offset = await self._offset_at(partition, since_ms, settings.isolation)
            if offset >= 0:
                return offset
        timestamp = EARLIEST_TIMESTAMP if settings.offset_reset == EARLIEST else LATEST_TIMESTAMP
        return await self._offset_at(partition, timestamp, settings.isolation)

    async def _offset_at(self, partition: TopicPartition, timestamp: int, isolation: int) -> Offset:
        """Raises ApiError."""
        wanted = ListOffsetsPartition(partition.topic, partition.partition, timestamp)
        request = ListOffsetsRequest((wanted,), isolation, ("node", "coordinators"))
        found = (await self._services.partitions.list_offsets(request)).partitions[0]
        if found.error:
            raise api_error(ErrorCode(found.error))
        return found.offset


def _unreadable(code: ErrorCode) -> ErrorCode:
    """What a member that fetches hears if the state could not be loaded: an error that clients repeat.

    Java's consumer throws if a fetch has an error of a coordinator (Kafka's brokers return them), also while a topic is deleted.
    """
    if code in _GONE:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if code in _LATER:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return _answered(code)


def _answered(code: ErrorCode) -> ErrorCode:
    """What a member hears if its acknowledgement was not stored (as from Kafka)."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _OVER else code


def _answer(waiting: Sequence[asyncio.Future[ErrorCode]], code: ErrorCode) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(_answered(code))
