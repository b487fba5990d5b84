"""Partitions of internal topics that this node coordinates: loaded when it becomes their leader, dropped when not.

Shared by the group and the transaction coordinator: which partition owns a key, following leadership (level-triggered:
what is led is compared with what is loaded), replaying the log, and appending records with acks=all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar

from kafkalite.coordination.patience import CREATION_PATIENCE_MS, waiting_at_most
from kafkalite.coordinators.internal_topics import broker_count, internal_topic, with_fewest_replicas
from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.env.turns import Turns
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.extension.messages.topics import CreateTopicsRequest
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.record.batch import BatchHeader, split_batches
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.reader import EndTransactionMarker, Record, end_transaction_marker_of, records_of
from kafkalite.rpc.messages.control import Broker
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

_READ_BYTES = 4 * 2**20
APPEND_TIMEOUT_MS = 5_000
#: The pauses between looks at the high watermark while what was replayed is not committed.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
#: The pause after a partition could not be loaded.
_LOAD_AGAIN_S = 0.2
#: The pause after a load that ended by a bug, which most likely ends the next one, too.
_FAILED_AGAIN_S = 10.0

State = TypeVar("State")
KeyValue = tuple[bytes, bytes | None]


def java_hash(text: str) -> int:
    """Java's String.hashCode: clients' and Kafka's tools' idea of where a key belongs."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8) + data[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(key: str, partitions: int) -> int:
    """Which partition of an internal topic owns a group or a transactional id.

    Not Kafka's if the hash is negative: it takes the absolute value. What is stored here lies where this says.
    """
    return (java_hash(key) & 0x7FFFFFFF) % partitions


@dataclass(slots=True, eq=False)
class _LoadedPartition(Generic[State]):
    """A partition that is loaded in an epoch, or being loaded."""

    epoch: LeaderEpoch
    state: State
    is_ready: bool = False
    #: Clients were sent away since `sends_away` was asked.
    has_sent_away: bool = False


class InternalLog(Generic[State]):
    """The led partitions of one internal topic, each with what was loaded from it.

    Args:
        make: an empty state for a partition and its leader epoch.
        replay: takes one batch of the partition's past into the state.
        loaded, unloaded: called when a partition is ready, and when it is no longer ours.
        settle: takes, in steps, what `replay` has put aside of records that later ones may replace. It is called after each piece of
            the log.
        when_committed: a partition is not ready before all that was replayed is committed. Otherwise a decision in the end of
            the log would be acted upon, and could be lost with this leader.
    """

    def __init__(
        self,
        services: Services,
        topic: str,
        make: Callable[[int, LeaderEpoch], State],
        replay: Callable[[State, BatchHeader, list[Record], EndTransactionMarker | None], None],
        loaded: Callable[[State], None],
        unloaded: Callable[[State], None],
        *,
        settle: Callable[[State], Iterator[None]] | None = None,
        when_committed: bool = False,
    ) -> None:
        self.topic = topic
        self._services = services
        self._make = make
        self._replay = replay
        self._loaded = loaded
        self._unloaded = unloaded
        self._settle = settle
        self._when_committed = when_committed
        self._repeats = Repeats(services.clock.monotonic)
        #: After a failover one node may load tens of partitions, each of a hundred thousand records.
        self._turns = Turns(services.clock.monotonic)
        self._loads: dict[int, _LoadedPartition[State]] = {}
        #: Partition that is being loaded -> what is to see its state first (`when_loaded`).
        self._visits: dict[int, list[Callable[[State], None]]] = {}

    # --- who coordinates what ---

    def state_for(self, key: str) -> State:
        """The state of the partition that owns `key`. Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        partitions = self.partition_count()
        if not partitions:
            raise api_error(ErrorCode.NOT_COORDINATOR)
        return self.state_of(partition_of(key, partitions))

    def state_of(self, partition: int) -> State:
        """Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.

        A node that may have been replaced sends its clients away: what it would say to a heartbeat, or of committed offsets, needs no
        append, which would be refused.
        """
        target = TopicPartition(self.topic, partition)
        load = self._loads.get(partition)
        led = self._services.partitions.leader_epoch(target)
        if load is not None and load.is_ready and led == load.epoch:
            if self.may_be_replaced(target):
                load.has_sent_away = True
                raise api_error(ErrorCode.NOT_COORDINATOR, "another node may coordinate this by now")
            return load.state
        raise api_error(ErrorCode.NOT_COORDINATOR if led is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def may_be_replaced(self, target: TopicPartition) -> bool:
        """Whether another node may coordinate what this partition owns."""
        return self._services.partitions.may_be_replaced(target)

    def sends_away(self, partition: int) -> bool:
        """Whether clients of a loaded partition are sent away, or were since this was asked last: what they did not say in that time does
        not count against them."""
        load = self._loads[partition]
        was_sent_away, load.has_sent_away = load.has_sent_away, False
        return was_sent_away or self.may_be_replaced(TopicPartition(self.topic, partition))

    def ready_state(self, partition: int) -> State | None:
        """The partition's state if it is loaded."""
        load = self._loads.get(partition)
        return load.state if load is not None and load.is_ready else None

    def states(self) -> Iterator[State]:
        """What is loaded, in partition order."""
        for _, load in sorted(self._loads.items()):
            if load.is_ready:
                yield load.state

    def when_loaded(self, visit: Callable[[State], None]) -> None:
        """Call `visit` with the state of each partition that is being loaded: as soon as it is there, and before anybody uses it.

        Not if this node does not lead the partition any more by then.
        """
        for partition, load in self._loads.items():
            if not load.is_ready:
                self._visits.setdefault(partition, []).append(visit)

    @property
    def is_loading(self) -> bool:
        return not all(load.is_ready for load in self._loads.values())

    def partition_count(self) -> int:
        """0: the topic does not exist, as far as this node knows."""
        topic = self._services.metadata([self.topic]).topics[0]
        return 0 if topic.error else len(topic.partitions)

    def bounds(self, partition: int) -> tuple[Offset, Offset]:
        """(log end, high watermark) of a partition that this node leads. Raises ApiError NOT_COORDINATOR."""
        target = TopicPartition(self.topic, partition)
        serving = self._services.partitions
        try:
            return serving.local_bounds(target)[1], serving.local_high_watermark(target)
        except ApiError:
            raise api_error(ErrorCode.NOT_COORDINATOR) from None

    async def coordinator_of(self, key: str) -> Broker:
        """The node that coordinates `key`; creates the topic when it is first needed.

        Raises ApiError COORDINATOR_NOT_AVAILABLE, CoordinatorError.
        """
        if not self.partition_count():
            await self._create()
        owner = self.owner_of(key)
        if owner is None:
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return owner[0]

    def owner_of(self, key: str) -> tuple[Broker, LeaderEpoch] | None:
        """The node that coordinates `key` and the epoch in which it leads, as far as this node knows."""
        known = self._services.metadata([self.topic])
        topic = known.topics[0]
        if topic.error or not topic.partitions:
            return None
        number = partition_of(key, len(topic.partitions))
        owner = next(each for each in topic.partitions if each.partition == number)
        leader = next((broker for broker in known.brokers if broker.broker_id == owner.leader), None)
        return None if leader is None else (leader, owner.leader_epoch)

    async def _create(self) -> None:
        brokers = broker_count(self._services.metadata(None))
        if not brokers:
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        new_topic = internal_topic(self.topic, self._services.config, brokers)
        with waiting_at_most(CREATION_PATIENCE_MS):
            [result] = (await self._services.create_topics(CreateTopicsRequest((new_topic,)))).topics
            if result.error == ErrorCode.INVALID_REPLICATION_FACTOR:
                await self._services.create_topics(CreateTopicsRequest((with_fewest_replicas(new_topic),)))

    # --- leadership ---

    async def run(self) -> None:
        """Follow leadership until cancelled."""
        while True:
            self._compare()
            await self._services.partitions.leadership_changed()

    def _compare(self) -> None:
        led = self._services.partitions.led_partitions(self.topic)
        for partition, load in sorted(self._loads.items()):
            if led.get(partition) != load.epoch:
                self._drop(partition)
        self._visits = {partition: visits for partition, visits in self._visits.items() if partition in led}
        for partition, epoch in sorted(led.items()):
            if partition not in self._loads:
                load = self._loads[partition] = _LoadedPartition(epoch, self._make(partition, epoch))
                task = self._services.supervisor.spawn(
                    f"load.{self.topic}-{partition}", self._load(partition, load), Policy.ISOLATED
                )
                task.add_done_callback(partial(self._load_ended, partition, load))

    def _drop(self, partition: int) -> None:
        load = self._loads.pop(partition)
        if load.is_ready:
            self._unloaded(load.state)

    def reload(self, partition: int) -> None:
        """Forget what is loaded and read it again: an append has failed, and its records may be in the log nevertheless."""
        if partition in self._loads:
            self._drop(partition)
            self._compare()

    async def _load(self, partition: int, load: _LoadedPartition[State]) -> None:
        """Replay the partition's log from its start to its end; with `when_committed` wait for the high watermark then.

        It ends when another load has taken its place, which may be in the same epoch (a leader that resigned and was confirmed).
        Nothing is awaited between the last check of the log's end and the moment from which on the state gets new records: a
        marker that came in between would never end its transaction here.
        """
        target = TopicPartition(self.topic, partition)
        clock = self._services.clock
        began = clock.monotonic()
        pause_s = _FIRST_PAUSE_S
        serving = self._services.partitions
        try:
            offset = serving.local_bounds(target)[0]
            while self._loads.get(partition) is load:
                if offset < serving.local_bounds(target)[1]:
                    await serving.load_local(target, offset, _READ_BYTES)
                    if self._loads.get(partition) is not load:
                        break
                    offset = await self._replay_piece(load, target, offset)
                    await asyncio.sleep(0)  # a long log must not hold everybody up
                elif self._when_committed and serving.local_high_watermark(target) < offset:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                else:
                    break
        except KafkaliteError as error:
            # The disk, or leadership went: forget the attempt, the next comparison tries again.
            suppressed = self._repeats.admit(partition)
            if suppressed is not None:
                _log.warning("coordinator.load_failed", partition=str(target), error=str(error), suppressed=suppressed)
            await self._load_again(partition, load, _LOAD_AGAIN_S)
            return
        if self._loads.get(partition) is load:
            load.is_ready = True
            self._loaded(load.state)
            for visit in self._visits.pop(partition, ()):
                visit(load.state)
            _log.info(
                "coordinator.loaded",
                partition=str(target),
                end_offset=offset,
                seconds=round(clock.monotonic() - began, 3),
            )

    def _load_ended(self, partition: int, load: _LoadedPartition[State], task: asyncio.Task[None]) -> None:
        """If a bug has ended the load (the supervisor reports it), load again: clients would wait for ever."""
        if not task.cancelled() and task.exception() is not None:
            again = self._load_again(partition, load, _FAILED_AGAIN_S)
            self._services.supervisor.spawn(f"load.{self.topic}-{partition}", again, Policy.ISOLATED)

    async def _load_again(self, partition: int, load: _LoadedPartition[State], pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        if self._loads.get(partition) is load:
            self.reload(partition)

    async def _replay_piece(self, load: _LoadedPartition[State], target: TopicPartition, offset: Offset) -> Offset:
        """Take what is read at `offset`, in slices, as long as this load counts; where the next read begins."""
        pieces = self._services.partitions.read_local(target, offset, _READ_BYTES)
        if not pieces:  # a compaction left a gap before the end
            return self._services.partitions.local_bounds(target)[1]
        began = self._turns.monotonic()
        for reached in self.replaying(load.state, b"".join(pieces), offset):
            offset = reached
            if self._turns.is_over(began):
                await self._turns.take((self.topic, target.partition))
                if self._loads.get(target.partition) is not load:
                    break
                began = self._turns.monotonic()
        return offset

    def replaying(self, state: State, data: bytes, offset: Offset) -> Iterator[Offset]:
        """Take the batches in `data` that reach beyond `offset`, in steps; where the last one that was taken ends."""
        for position, header in split_batches(data):
            if header.next_offset <= offset:
                continue
            yield offset
            if header.is_control:
                self._replay(state, header, [], end_transaction_marker_of(data, position, header))
            else:
                self._replay(state, header, list(records_of(data, position, header)), None)
            offset = Offset(header.next_offset)
        yield offset
        for _ in self._settle(state) if self._settle is not None else ():
            yield offset

    # --- appending ---

    def append(
        self,
        partition: int,
        state: State,
        records: Iterable[KeyValue],
        done: Callable[[ErrorCode, Offset], None],
    ) -> None:
        """Append with acks=all; `done(error, base offset)` is called once. Errors are a coordinator's, not a leader's.

        With an error that comes after the call, COORDINATOR_NOT_AVAILABLE, the records are in the log at this offset, and may be
        replicated yet.

        Args:
            state: on which the records were decided. If it is not loaded any more, nothing is appended (NOT_COORDINATOR):
                another node may have decided something else meanwhile, even if this one leads again.
        """
        builder = self.builder()
        now = self._services.clock.wall_ms()
        for key, value in records:
            builder.append(key, value, (), now)
        self.append_batch(partition, state, builder, done)

    def refusal(self, error: ErrorCode, records: Sequence[KeyValue]) -> ApiError:
        """What a client gets if these were not appended."""
        text = ""
        if error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            size = sum(len(key) + len(value or b"") for key, value in records)
            text = f"{size:,} bytes are too many for one batch: raise max.message.bytes of {self.topic}"
        return api_error(error, text)

    @staticmethod
    def builder(producer: tuple[int, int] | None = None) -> RecordBatchBuilder:
        """For a batch of such a log. `producer`: id and epoch, in whose transaction it is."""
        producer_id, producer_epoch = producer or (-1, -1)
        return RecordBatchBuilder(
            producer_id=producer_id, producer_epoch=producer_epoch, transactional=producer is not None
        )

    def append_batch(
        self,
        partition: int,
        state: State,
        builder: RecordBatchBuilder,
        done: Callable[[ErrorCode, Offset], None],
        *,
        guard: int | None = None,
    ) -> None:
        """As `append`, of records that are encoded. `guard`: with which the producer's transaction was verified; None: it was not."""

        def finished(results: Sequence[ProducedPartition]) -> None:
            result = results[0]
            done(_coordinator_error(ErrorCode(result.error)), base_offset if result.error else result.base_offset)

        target = TopicPartition(self.topic, partition)
        load = self._loads.get(partition)
        led = self._services.partitions.leader_epoch(target)
        if load is None or load.state is not state or not load.is_ready or led != load.epoch:
            done(ErrorCode.NOT_COORDINATOR, NO_OFFSET)
            return
        base_offset = self._services.partitions.local_bounds(target)[1]
        self._services.partitions.append_internal(
            APPEND_TIMEOUT_MS,
            [(target, bytearray(builder.build()))],
            finished,
            guards=None if guard is None else {target: guard},
        )


def _coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a failed append means to the coordinator's client (Kafka's GroupMetadataManager)."""
    match error:
        case ErrorCode.NONE:
            return ErrorCode.NONE
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
            | ErrorCode.THROTTLING_QUOTA_EXCEEDED
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        case _:
            return error
