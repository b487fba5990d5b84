"""A replica moves from one disk of this node to another, while it is in use (Kafka's AlterReplicaLogDirs, KIP-113).

A future log, `<topic>-<partition>.<32 hex digits>-future` on the other disk, takes the batches of the current one. When it
has nearly all of them and they are on the disk, the rest follows within one turn of the loop, the directory gets the
replica's name, and the replica goes on with it. The old directory is removed only when the new one is durable: after a
loss of power in between, the log that got further stays (kafkalite.log.opening).

What a move does when something else happens, decided here:

| what | the move |
|---|---|
| either disk goes offline | ends; the current log is what counts (self-healing recreates a lost one) |
| no room on the other disk | ends before the disk is full; the disk is not suspected |
| the replica is deleted, becomes a stray, or is recreated | ends, its files are removed |
| another request for the replica | the first one ends; a request for the disk where it is only ends it |
| the current log is truncated | the future one is, too, before it takes more |
| retention, DeleteRecords | the future log's start follows |
| compaction | waits until the move is over: it could remove a tombstone whose record was copied before |
| restart, or the other disk comes back | goes on with what was copied; of a log that was ever compacted from the beginning |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from kafkalite.config import BrokerConfig
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.dir_failures import DirFailures
from kafkalite.log.exchange import LogExchange
from kafkalite.log.failures import FaultScope, fault_scope
from kafkalite.log.future_cuts import agree, costly_cut, follow, follow_costly_cuts
from kafkalite.log.loader import load_apart, new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.log_dir import FUTURE_SUFFIX, STRAY_SUFFIX, LogDir, set_aside_name
from kafkalite.log.offset_checkpoints import OffsetCheckpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.pool import LogPool
from kafkalite.log.removals import Removals
from kafkalite.log.room import MIN_ROOM_BYTES
from kafkalite.model import TopicPartition
from kafkalite.record.batch import parse_header
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Read and written at once; also what may be missing when the logs are exchanged.
CHUNK_BYTES = 1024 * 1024
#: Number of copied bytes after which they are synced, so that the last fsync is short.
_FLUSH_BYTES = 64 * 1024 * 1024
#: Interval at which an idle source is checked while the exchange waits.
_LOOK_S = 0.05
#: The longest time until a change of the throttle counts.
_THROTTLE_LOOK_S = 1.0
#: The pause before the last flush is tried again when descriptors or memory were short.
SHORTAGE_PAUSE_S = 0.5
#: Moves that are over, kept for clients that ask.
_REMEMBERED = 200
_FUTURE = rf"-(\d{{1,9}})\.([0-9a-f]{{32}}){FUTURE_SUFFIX}$"


@dataclass(slots=True, eq=False)
class LogDirMove:
    """One replica on its way. `state`: waiting, copying, done, failed; `reason` says why it failed."""

    topic_partition: TopicPartition
    source: PartitionLog
    target: str
    path: str
    #: Bytes per second; 0: no limit. Whether it was asked for with the move, or is the node's.
    throttle: int
    has_own_throttle: bool = False
    future: PartitionLog | None = None
    state: str = "waiting"
    reason: str = ""
    copied_bytes: int = 0
    #: Of the replica when the move ended; 0 before.
    ended_bytes: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")

    @property
    def lag(self) -> int:
        """Offsets that the future log is behind the current one."""
        end = self.source.log_start_offset if self.future is None else self.future.log_end_offset
        return max(0, self.source.log_end_offset - end)


class DiskMoves:
    """All moves of a node; at most as many copy at once as there are disks."""

    def __init__(
        self,
        pool: LogPool,
        config: BrokerConfig,
        cold: ColdReads,
        removals: Removals,
        failures: DirFailures,
        offsets: OffsetCheckpoints,
    ) -> None:
        self._pool = pool
        self._removals = removals
        self._failures = failures
        self._offsets = offsets
        self._turn = pool.compaction
        self._logs = LogExchange(pool, failures, offsets)
        self._cold = cold
        self._disk = pool.disk
        self._clock = pool.clock
        self._supervisor = pool.supervisor
        self._moves: dict[TopicPartition, LogDirMove] = {}
        #: Replaced logs whose successors are not durable yet.
        self._leaving: dict[TopicPartition, PartitionLog] = {}
        self._over: list[LogDirMove] = []
        self._slots = asyncio.Semaphore(max(1, len(config.log_dirs)))
        #: Bytes per second of moves without a throttle of their own; 0: no limit.
        self._rate = config.replica_alter_log_dirs_io_max_bytes_per_second

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._moves

    def all(self) -> list[LogDirMove]:
        """Those under way, sorted, then those that are over, oldest first."""
        return [*(self._moves[key] for key in sorted(self._moves)), *self._over]

    def under_way(self) -> list[LogDirMove]:
        """Sorted by partition."""
        return [self._moves[key] for key in sorted(self._moves)]

    # --- requests -----------------------------------------------------------------------------------

    def start(self, topic_partition: TopicPartition, directory: str, throttle: int = 0) -> LogDirMove | None:
        """Begin to move a replica; None if it is there already (which ends a move under way).

        Raises:
            ApiError: LOG_DIR_NOT_FOUND; REPLICA_NOT_AVAILABLE, no such replica here; KAFKA_STORAGE_ERROR, the replica
                or the directory is offline, or there is no room.
        """
        log_dir = self._pool.named(directory)
        directory = log_dir.path
        source = self._pool.logs.get(topic_partition)
        if source is None:
            raise api_error(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} has no replica on this broker")
        if not log_dir.online:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} is offline: {log_dir.offline_reason}")
        known = self._moves.get(topic_partition)
        if known is not None and known.target == directory:
            if throttle:
                known.throttle, known.has_own_throttle = throttle, True
            return known
        if topic_partition in self._leaving:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} has just moved: retry soon")
        if known is not None:
            self._end(known, "failed", f"a later request moves it to {directory}")
        if source.directory == directory:
            return None
        self._check_room(log_dir, source.size_bytes)
        path = self._removals.name_aside(directory, topic_partition, FUTURE_SUFFIX)
        move = LogDirMove(
            topic_partition, source, directory, path, throttle or self._rate, has_own_throttle=throttle > 0
        )
        self._begin(move)
        return move

    def change_rate(self, rate: int) -> None:
        """`rate` (bytes per second; 0: no limit) is that of moves without a throttle of their own, also of those under way."""
        self._rate = rate
        for move in self._moves.values():
            if not move.has_own_throttle:
                move.throttle = rate

    def _check_room(self, log_dir: LogDir, size: int) -> None:
        """Raises ApiError."""
        try:
            free = self._disk.free_bytes(log_dir.path)
        except OSError as error:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path}: {error}") from error
        if free < size + MIN_ROOM_BYTES:
            text = f"{log_dir.path} has {free:,} bytes left, {size + MIN_ROOM_BYTES:,} are needed"
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, text)

    def resume(self, log_dir: LogDir, names: Iterable[str], logs: Iterable[TopicPartition]) -> None:
        """Go on with the futures that were found in a directory; those that stand for nothing (any more) are removed."""
        hosted = sorted(logs)
        for name in names:
            path = f"{log_dir.path}/{name}"
            found = re.search(_FUTURE, name)
            tp = None
            if found is not None:
                tp = next(
                    (
                        each
                        for each in hosted
                        if each.partition == int(found[1]) and set_aside_name(each, found[2], FUTURE_SUFFIX) == name
                    ),
                    None,
                )
            source = None if tp is None else self._pool.logs.get(tp)
            if tp is None or source is None or source.directory == log_dir.path or tp in self._moves:
                self._removals.discard_path(path)
                continue
            self._begin(LogDirMove(tp, source, log_dir.path, path, self._rate))

    def _begin(self, move: LogDirMove) -> None:
        tp = move.topic_partition
        self._moves[tp] = move
        _log.info("disk_move.begun", partition=str(tp), source=move.source.directory, target=move.target)
        move.task = self._supervisor.spawn(f"disk move {tp}", self._run(move), Policy.ISOLATED)

    # --- the end of moves -------------------------------------------------------------------------

    def forget(self, topic_partition: TopicPartition, reason: str) -> None:
        """The replica's log is not in service any more (deleted, set aside)."""
        leaving = self._let_go(topic_partition, reason)
        if leaving is not None:
            self._removals.discard(leaving, 0)

    def lost(self, topic_partition: TopicPartition, reason: str) -> None:
        """The replica's log went offline. What it has replaced, and was not durable yet, may be the better copy."""
        leaving = self._let_go(topic_partition, reason)
        if leaving is not None:
            self._removals.discard(leaving, 0, STRAY_SUFFIX)

    def _let_go(self, topic_partition: TopicPartition, reason: str) -> PartitionLog | None:
        move = self._moves.get(topic_partition)
        if move is not None:
            self._end(move, "failed", reason)
        return self._leaving.pop(topic_partition, None)

    def dir_failed(self, directory: str) -> None:
        """Nothing more on this disk."""
        for move in self.under_way():
            if move.target == directory:
                self._end(move, "failed", f"{directory} is offline")

    def close(self) -> None:
        """The node stops; the futures stay and are found at the next start."""
        for move in self.under_way():
            assert move.task is not None
            move.task.cancel()
            if move.future is not None:
                move.future.close()
        self._moves.clear()

    def settle(self) -> None:
        """All logs have been flushed: replaced ones have nothing left to keep."""
        for tp in sorted(self._leaving):
            self._removals.discard(self._leaving.pop(tp), 0)

    def _end(self, move: LogDirMove, state: str, reason: str = "") -> None:
        del self._moves[move.topic_partition]
        move.state, move.reason, move.ended_bytes = state, reason, move.source.size_bytes
        self._over.append(move)
        del self._over[:-_REMEMBERED]
        if state == "failed":
            _log.warning("disk_move.ended", partition=str(move.topic_partition), target=move.target, reason=reason)
            assert move.task is not None
            if move.task is not asyncio.current_task():
                move.task.cancel()
            if move.future is not None:
                self._removals.discard(move.future, 0)
            else:
                self._removals.discard_path(move.path)

    # --- copying ----------------------------------------------------------------------------------

    async def _run(self, move: LogDirMove) -> None:
        tp = move.topic_partition
        try:
            async with self._slots:
                await self._turn.over(tp)
                move.state = "copying"
                future = move.future = await self._open(move)
                await self._copy(move, future)
        except StorageError as error:
            self._failed(move, error)
        except (ApiError, OSError) as error:
            if self._moves.get(tp) is move:
                self._end(move, "failed", str(error))

    def _failed(self, move: LogDirMove, error: StorageError) -> None:
        if self._moves.get(move.topic_partition) is move:
            self._end(move, "failed", str(error))
        # A copy that finds no room, or no descriptor, is not the disk's fault.
        if fault_scope(error) is FaultScope.SHORTAGE or (
            error.path == move.path and fault_scope(error) is FaultScope.ROOM
        ):
            return
        self._failures.log_failed(error)

    async def _open(self, move: LogDirMove) -> PartitionLog:
        """The future log: what an earlier process has copied, or a new one. Raises StorageError, OSError."""
        source, tp = move.source, move.topic_partition
        config = source.config
        log_dir = self._pool.dirs.get(move.target)
        assert log_dir is not None
        place = LogPlace(self._disk, log_dir.handles, move.target, move.path, self._clock.wall_ms)
        found: list[PartitionLog] = []

        def load() -> None:
            if self._disk.exists(move.path):
                found.append(load_apart(tp, config, place))

        await log_dir.unless_gone(self._disk.run_blocking(load, move.target))
        # Whatever the policy is today: a compaction since the copy may have removed a tombstone of a copied record.
        may_be_compacted = source.is_compacted or "compact" in source.config.cleanup_policy
        if found and found[0].topic_id == source.topic_id and not may_be_compacted:
            try:
                await agree(found[0], source, self._cold.executor(move.target))
            except BaseException:
                found[0].close()
                raise
            return found[0]
        if found:
            found[0].close()
            await log_dir.unless_gone(self._disk.run_blocking(lambda: self._disk.remove_tree(move.path), move.target))
        self._disk.makedirs(move.path)
        return new_log(tp, config, source.topic_id, place)

    async def _copy(self, move: LogDirMove, future: PartitionLog) -> None:
        """Until the future log has taken the place of the current one. Raises StorageError, ApiError, OSError."""
        source = move.source
        unflushed = 0
        while True:
            began = self._clock.monotonic()
            await self._load(move, future)
            await follow_costly_cuts(future, source, self._cold.executor(move.target))
            copied = self._copy_some(move, future)
            unflushed += copied
            if future.log_end_offset >= source.log_end_offset or unflushed >= _FLUSH_BYTES:
                await future.flush()
                unflushed = 0
                if self._exchange(move, future):
                    break
                if not copied:
                    await asyncio.sleep(_LOOK_S)
            # Half of the loop's time at most, and not more than the throttle.
            await self._pause(move, copied, self._clock.monotonic() - began)
        tp = move.topic_partition
        _log.info("disk_move.done", partition=str(tp), source=source.directory, target=move.target)
        self._end(move, "done")
        await _make_durable(future)
        await self._offsets.save_offsets()
        leaving = self._leaving.pop(tp, None)
        if leaving is not None:
            self._removals.discard(leaving, source.config.file_delete_delay_ms)

    async def _pause(self, move: LogDirMove, copied: int, least_s: float) -> None:
        """After this many bytes, for `least_s` or what the throttle asks for; it may be changed meanwhile."""
        slept_s = 0.0
        while True:
            left_s = max(least_s, copied / move.throttle if move.throttle else 0.0) - slept_s
            step_s = min(max(left_s, 0.0), _THROTTLE_LOOK_S)
            await asyncio.sleep(step_s)
            slept_s += step_s
            if left_s <= step_s:
                return

    async def _load(self, move: LogDirMove, future: PartitionLog) -> None:
        """Have the source's next batches in the page cache. Raises StorageError, ApiError."""
        source = move.source

        def read() -> None:
            if source.log_start_offset <= future.log_end_offset < source.log_end_offset and not source.is_closed:
                source.read(future.log_end_offset, CHUNK_BYTES)

        await self._cold.attempt(("move", move.topic_partition), source.directory, read)

    def _copy_some(self, move: LogDirMove, future: PartitionLog, max_bytes: int = CHUNK_BYTES) -> int:
        """Follow the current log's cuts, then take its next batches; how many bytes. Raises StorageError, ApiError."""
        source = move.source
        follow(future, source)
        if future.log_end_offset >= source.log_end_offset:
            return 0
        if move.throttle:
            max_bytes = min(max_bytes, max(move.throttle // 20, 4096))
        log_dir = self._pool.dirs.get(move.target)
        assert log_dir is not None
        if self._disk.free_bytes(move.target) < MIN_ROOM_BYTES + max_bytes:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{move.target}: no room is left")
        read = source.read(future.log_end_offset, max_bytes)
        copied = 0
        for records in read.records:
            if not future.size_bytes:
                first = parse_header(memoryview(records), 0).base_offset
                if first < future.log_end_offset:  # the log's start lies within a batch
                    future.truncate_fully_and_start_at(first)
            future.append_as_follower(records)
            copied += len(records)
        future.advance_log_start_offset(min(source.log_start_offset, future.log_end_offset))
        future.forget_ended(future.log_end_offset)  # nobody reads there, and it takes over what the current log knows
        move.copied_bytes += copied
        return copied

    def _exchange(self, move: LogDirMove, future: PartitionLog) -> bool:
        """Within one turn of the loop: the rest, then the name. False: too much has come meanwhile."""
        source = move.source
        if costly_cut(future, source) is not None:
            return False
        for _ in range(4):
            if not self._copy_some(move, future):
                break
        if future.log_end_offset != source.log_end_offset or source.is_failed:
            return False
        # Before the exchange: from then on the old one is kept until the new one is durable.
        self._leaving[move.topic_partition] = source
        try:
            self._logs.exchange(source, future)
        except StorageError:
            del self._leaving[move.topic_partition]
            raise
        return True


async def _make_durable(log: PartitionLog) -> None:
    """Raises StorageError, but not for want of descriptors or memory."""
    while True:
        try:
            await log.flush()
        except StorageError as error:
            if fault_scope(error) is not FaultScope.SHORTAGE:
                raise
            await asyncio.sleep(SHORTAGE_PAUSE_S)
        else:
            return
