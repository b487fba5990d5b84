"""A replica moves between disks of one node while it is used: nothing is lost, whatever else happens."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.seams import File
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.log import moving
from kafkalite.log.handles import HandleCache
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.room import MIN_ROOM_BYTES
from kafkalite.model import Offset, TopicId, TopicPartition
from kafkalite.record.reader import read_records
from tests.support.log_host import host_of, hosted
from tests.support.logs import TOPIC_ID, batch, config, make_log
from tests.support.memory_disk import ManualClock, MemoryDisk

T0 = TopicPartition("t", 0)


class Host:
    """A node's storage on two disks."""

    def __init__(self, **settings: Any) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock()
        self.settings = settings
        self.dead: list[str] = []

    async def start(self, overrides: dict[str, str] | None = None) -> LogManager:
        def fatal(error: BaseException) -> None:
            raise error

        self.supervisor = Supervisor(fatal)
        self.manager = hosted(
            LogManager(
                BrokerConfig(log_dirs=("/d1", "/d2"), **self.settings),
                self.disk,
                self.clock,
                supervisor=self.supervisor,
            ),
            on_dir_failed=lambda directory, _: self.dead.append(directory),
        )
        await self.manager.opening.start("cluster", 1, {"t": overrides or {}})
        return self.manager

    async def restart(self, overrides: dict[str, str] | None = None) -> LogManager:
        """As after kill -9."""
        await self.supervisor.stop()
        self.disk.process_crash()
        self.disk.locks.clear()
        return await self.start(overrides)

    def create(self, topic: TopicConfig | None = None) -> PartitionLog:
        return self.manager.placing.create(T0, TOPIC_ID, topic or config(), directory="/d1")

    @property
    def log(self) -> PartitionLog:
        found = self.manager.get(T0)
        assert found is not None
        return found

    def names(self, directory: str) -> list[str]:
        return [name for name in self.disk.listdir(directory) if name.startswith("t-")]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(150):
        while not holds():
            await asyncio.sleep(0.001)


def values(log: PartitionLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = int(log.log_start_offset)
    while offset < log.log_end_offset:
        for data in log.read(offset, 1 << 20).records:
            for record in read_records(data):
                if record.offset >= offset:
                    found.append((record.offset, record.value or b""))
        offset = found[-1][0] + 1
    return found


def fill(log: PartitionLog, count: int, *, epoch: int = 1, size: int = 100, start: int = 0) -> None:
    for number in range(start, start + count):
        log.append_as_leader(batch([b"%d " % number + b"x" * size]), epoch)


async def test_a_replica_moves_while_records_come() -> None:
    host = Host()
    manager = await host.start()
    log = host.create(config(segment_bytes=4_096))
    exchanged: list[tuple[str, str]] = []
    host_of(manager).on_exchanged = lambda old, new: exchanged.append((old.path, new.path))
    fill(log, 100)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 4_000)
    assert 0 < move.lag < 100 and any(name.endswith("-future") for name in host.names("/d2"))
    assert "t-0" in host.names("/d1") and T0 in manager.moves
    move.throttle = 0
    fill(log, 20, start=100)
    await until(lambda: move.state == "done" and host.names("/d1") and "t-0" not in host.names("/d1"))
    assert exchanged == [("/d1/t-0", "/d2/t-0")] and host.log.directory == "/d2"
    assert [value.split()[0] for _, value in values(host.log)] == [b"%d" % number for number in range(120)]
    assert host.names("/d2") == ["t-0"] and host.names("/d1")[0].endswith("-delete")
    assert host.log.synced_offset == 120, "the old one went when the new one was durable"
    fill(host.log, 5, start=120)
    host.log.roll()
    assert [d.log_count for d in manager.pool.dirs.values()] == [0, 1]
    await manager.close()
    again = await host.restart()
    assert len(values(host.log)) == 125 and again.get(T0) is host.log and host.log.directory == "/d2"


async def test_producers_and_epochs_go_along() -> None:
    host = Host()
    manager = await host.start()
    log = host.create()
    log.append_as_leader(batch(["a"], producer_id=7, producer_epoch=0, base_sequence=0), 1)
    log.assign_epoch_start(3, 1)
    manager.moves.start(T0, "/d2")
    await until(lambda: host.log is not log)
    again = host.log.append_as_leader(batch(["a"], producer_id=7, producer_epoch=0, base_sequence=0), 3)
    assert again.duplicate and host.log.latest_epoch == 3
    assert host.log.epoch_and_end_offset_for(1) == (1, 1)


async def test_orders_that_cannot_be_carried_out() -> None:
    host = Host()
    manager = await host.start()

    def refused(directory: str, key: TopicPartition = T0) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            manager.moves.start(key, directory)
        return caught.value.code

    assert refused("/d2") is ErrorCode.REPLICA_NOT_AVAILABLE
    log = host.create()
    assert refused("/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert manager.moves.start(T0, "/d1") is None
    host.disk.free_bytes = lambda path: MIN_ROOM_BYTES - 1  # type: ignore[method-assign]
    assert refused("/d2") is ErrorCode.KAFKA_STORAGE_ERROR
    manager.failures.dir_failed(StorageError("dead", directory="/d2", path="/d2"))
    assert refused("/d2") is ErrorCode.KAFKA_STORAGE_ERROR
    assert host.log is log and manager.moves.all() == []


async def test_another_order_replaces_the_first_and_one_for_home_ends_it() -> None:
    host = Host()
    manager = await host.start()
    fill(host.create(), 50)
    first = manager.moves.start(T0, "/d2", throttle=4_096)
    assert first is not None and manager.moves.start(T0, "/d2") is first
    await until(lambda: first.copied_bytes)
    assert manager.moves.start(T0, "/d1") is None
    assert first.state == "failed" and T0 not in manager.moves
    await until(lambda: not any(name.endswith("-future") for name in host.names("/d2")))
    await manager.removals.run_due()
    assert host.names("/d2") == [] and host.log.directory == "/d1"


@pytest.mark.parametrize("what", ["deleted", "stray", "source dies", "target dies", "no room", "other topic"])
async def test_what_ends_a_move(what: str) -> None:
    host = Host()
    manager = await host.start()
    log = host.create()
    fill(log, 50)
    move = manager.moves.start(T0, "/d2", throttle=4_096)
    assert move is not None
    await until(lambda: move.copied_bytes)
    if what == "deleted":
        manager.delete(T0)
    elif what in ("stray", "other topic"):
        manager.set_stray(T0)
        if what == "other topic":
            host.manager.placing.create(T0, TopicId("BBBBBBBBBBBBBBBBBBBBBQ"), config(), directory="/d1")
    elif what == "source dies":
        manager.failures.dir_failed(StorageError("dead", directory="/d1", path="/d1"))
    elif what == "target dies":
        host.disk.broken = {"/d2"}
        manager.failures.dir_failed(StorageError("dead", directory="/d2", path="/d2"))
    else:
        host.disk.free_bytes = lambda path: MIN_ROOM_BYTES  # type: ignore[method-assign]
    await until(lambda: move.is_over)
    assert move.state == "failed" and move.reason, move
    assert manager.moves.under_way() == []
    if what in ("target dies", "no room"):
        assert host.log is log and len(values(log)) == 50
        assert host.dead == (["/d2"] if what == "target dies" else []), (
            "a copy that finds no room is not the disk's fault"
        )
    if what != "target dies":
        await manager.removals.run_due()
        assert not any(name.endswith("-future") for name in host.names("/d2"))


async def test_truncation_and_log_start_are_followed() -> None:
    host = Host()
    manager = await host.start()
    log = host.create(config(segment_bytes=2_048))
    fill(log, 60)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.future is not None and move.future.log_end_offset > 30)
    log.truncate_to(20)
    fill(log, 60, epoch=2, start=1_000)
    log.advance_log_start_offset(10)
    move.throttle = 0
    await until(lambda: move.state == "done")
    assert [int(value.split()[0]) for _, value in values(host.log)] == [*range(10, 20), *range(1_000, 1_060)]
    assert host.log.epoch_entries == [(1, 10), (2, 20)] and host.log.log_start_offset == 10


async def test_a_restart_goes_on_with_what_was_copied() -> None:
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=4_096)
    manager = await host.start()
    log = host.create()
    fill(log, 200)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 10_000)
    await log.flush()
    manager = await host.restart()
    (again,) = manager.moves.under_way()
    await until(lambda: again.future is not None)
    assert again.future is not None and again.copied_bytes < again.future.size_bytes < log.size_bytes
    again.throttle = 0
    await until(lambda: again.state == "done")
    assert host.log.directory == "/d2" and len(values(host.log)) == 200


async def test_a_compacted_log_is_not_compacted_meanwhile_and_begun_anew_after_a_restart() -> None:
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=4_096)
    manager = await host.start()
    host_of(manager).hw_of = lambda tp: 10**9
    log = host.create(config(segment_bytes=2_048, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01))
    fill(log, 200)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 10_000)
    assert await manager.housekeeping.cleaning_pass() == 0
    await log.flush()
    overrides = {"cleanup.policy": "compact", "segment.bytes": "2048", "min.cleanable.dirty.ratio": "0.01"}
    manager = await host.restart(overrides)
    (again,) = manager.moves.under_way()
    await until(lambda: again.future is not None)
    assert again.future is not None and again.future.log_end_offset < 50
    again.throttle = 0
    await until(lambda: again.state == "done")
    assert len(values(host.log)) == 200
    host_of(manager).hw_of = lambda tp: 10**9
    assert await manager.housekeeping.cleaning_pass() == 1


async def test_a_move_that_begins_while_timestamps_are_read_keeps_the_log_from_being_compacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host()
    manager = await host.start()
    host_of(manager).hw_of = lambda tp: 10**9
    log = host.create(config(segment_bytes=2_048, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01))
    fill(log, 200)
    log.segments[0].max_timestamp = None  # as after a restart

    async def load(self: PartitionLog, *arguments: object) -> None:
        manager.moves.start(T0, "/d2", throttle=80_000)
        await asyncio.sleep(0)

    monkeypatch.setattr(PartitionLog, "load_timestamps", load)
    assert await manager.housekeeping.cleaning_pass() == 0
    (move,) = manager.moves.under_way()
    assert move.state == "copying" and not log.is_compacted


async def test_a_truncation_while_timestamps_are_read_makes_the_records_behind_it_dirty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What took the place of compacted records counted as compacted: each key's former values stayed, and a tombstone went first."""
    host = Host()
    manager = await host.start()
    host_of(manager).hw_of = lambda tp: 10**9
    log = host.create(config(segment_bytes=2_048, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01))

    def write(count: int, key: bytes = b"k") -> None:
        for number in range(count):
            log.append_as_leader(batch([b"%d" % number + b"x" * 100], key=key), 1)

    write(100)
    assert await manager.housekeeping.cleaning_pass() == 1
    write(20)
    log.segments[-2].max_timestamp = None  # as after a restart

    async def load(self: PartitionLog, *arguments: object) -> None:
        monkeypatch.undo()
        log.truncate_to(log.first_offset)
        write(50, b"other")
        write(100)

    monkeypatch.setattr(PartitionLog, "load_timestamps", load)
    assert await manager.housekeeping.cleaning_pass() == 1
    closed = [record for record in values(log) if record[0] < log.segments[-1].base_offset]
    assert len(closed) == 2


async def test_a_log_that_was_compacted_once_is_copied_anew_whatever_its_policy_is_today() -> None:
    """What a compaction took since it was copied could be the tombstone of what was copied."""
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=4_096)
    manager = await host.start()
    host_of(manager).hw_of = lambda tp: 10**9
    log = host.create(config(segment_bytes=2_048, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01))
    fill(log, 200)
    log.append_as_leader(batch(["last"], key=b"k"), 1)
    log.roll()
    assert await manager.housekeeping.cleaning_pass() == 1
    fill(log, 200)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 10_000)
    await log.flush()
    before = values(log)
    manager = await host.restart({"segment.bytes": "2048"})
    (again,) = manager.moves.under_way()
    await until(lambda: again.future is not None)
    assert again.future is not None and again.copied_bytes == again.future.size_bytes
    again.throttle = 0
    await until(lambda: again.state == "done")
    assert values(host.log) == before


async def test_a_move_keeps_offsets_that_are_missing_at_the_start_of_the_log() -> None:
    host = Host()
    manager = await host.start()
    host_of(manager).hw_of = lambda tp: 10**9
    log = host.create(config(segment_bytes=2_048, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01))
    for number in range(100):
        log.append_as_leader(batch([f"{number}" + "." * 100], key=b"k%d" % (number % 3)), 1)
    assert await manager.housekeeping.cleaning_pass() == 1
    before = values(log)
    assert before[0][0] > 50 and log.log_start_offset == 0
    move = manager.moves.start(T0, "/d2")
    assert move is not None
    await until(lambda: move.state == "done")
    assert host.log.directory == "/d2"
    assert (values(host.log), host.log.log_start_offset) == (before, 0)


async def test_futures_that_stand_for_nothing_are_removed() -> None:
    host = Host()
    manager = await host.start()
    host.create()
    for name in ("t-0." + "a" * 32 + "-future", "u-0." + "b" * 32 + "-future", "nonsense-future"):
        host.disk.makedirs(f"/d1/{name}")
        host.disk.makedirs(f"/d2/{name}") if name.startswith("u") else None
    manager = await host.restart()
    await manager.removals.run_due()
    assert [n for d in ("/d1", "/d2") for n in host.disk.listdir(d) if n.endswith("-future")] == []


Step = Callable[[Host, list[bytes]], Awaitable[None]]


async def append(host: Host, model: list[bytes]) -> None:
    value = b"%d" % len(host.disk.calls)
    host.log.append_as_leader(batch([value]), 1 + host.lives)  # type: ignore[attr-defined]
    model.append(value)


async def truncate(host: Host, model: list[bytes]) -> None:
    keep = max(int(host.log.log_start_offset), len(model) - 3)
    host.log.truncate_to(keep)
    del model[keep:]
    host.lives += 1  # type: ignore[attr-defined]


async def trim(host: Host, model: list[bytes]) -> None:
    host.log.advance_log_start_offset(min(len(model), int(host.log.log_start_offset) + 2))


async def to_d1(host: Host, model: list[bytes]) -> None:
    await order(host, "/d1")


async def to_d2(host: Host, model: list[bytes]) -> None:
    await order(host, "/d2")


async def order(host: Host, directory: str) -> None:
    try:
        host.manager.moves.start(T0, directory)
    except ApiError as error:
        assert "just moved" in str(error)


async def step(host: Host, model: list[bytes]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def crash(host: Host, model: list[bytes]) -> None:
    await host.manager.offsets.save_offsets()
    host.lives += 1  # type: ignore[attr-defined]
    await host.restart({"segment.bytes": "1024"})


STEPS = [append, append, append, truncate, trim, to_d1, to_d2, step, step, crash]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_whatever_happens_the_current_log_is_what_was_written(steps: list[Step]) -> None:
    async def run() -> None:
        host = Host()
        host.lives = 0  # type: ignore[attr-defined]
        model: list[bytes] = []
        await host.start()
        host.create(config(segment_bytes=1024))
        for each in steps:
            await each(host, model)
            log = host.log
            assert log.log_end_offset == len(model)
            assert values(log) == [(n, v) for n, v in enumerate(model) if n >= log.log_start_offset]
        await until(lambda: not host.manager.moves.under_way())
        assert values(host.log)[-3:] == list(enumerate(model))[max(host.log.log_start_offset, len(model) - 3) :]
        await host.supervisor.stop()

    moving_chunk, moving.CHUNK_BYTES = moving.CHUNK_BYTES, 200
    try:
        asyncio.run(run())
    finally:
        moving.CHUNK_BYTES = moving_chunk


async def test_a_target_that_fails_in_the_exchange_changes_nothing() -> None:
    """Found by a fault at every disk operation: the move's task met a KeyError, and the sound old log was removed."""
    host = Host()
    manager = await host.start()
    log = host.create()
    fill(log, 10)
    manager.offsets.save_high_watermarks({T0: 10})
    write = host.disk.write_file_atomic

    def refuse(path: str, data: bytes, *, durable: bool = True) -> None:
        if path.startswith("/d2/replication-offset"):
            raise OSError(errno.EIO, "injected", path)
        write(path, data, durable=durable)

    host.disk.write_file_atomic = refuse  # type: ignore[method-assign]
    move = manager.moves.start(T0, "/d2")
    assert move is not None and move.task is not None
    await move.task
    assert move.state == "failed" and host.dead == ["/d2"]
    assert host.log is log and len(values(log)) == 10 and manager.pool.offline_partitions == {}
    fill(log, 1, start=10)
    await manager.removals.run_due()
    assert host.names("/d1") == ["t-0"]


async def test_a_new_disk_that_dies_before_the_copy_is_durable_leaves_the_old_one_as_a_stray() -> None:
    host = Host()
    manager = await host.start()
    fill(host.create(), 10)
    entered = asyncio.Event()
    run_blocking = host.disk.run_blocking

    async def hang(function: Callable[[], object], at: str = "") -> object:
        if at == "/d2/t-0":  # the flush after the exchange
            entered.set()
            await asyncio.Event().wait()
        return await run_blocking(function, at)

    host.disk.run_blocking = hang  # type: ignore[method-assign]
    manager.moves.start(T0, "/d2")
    async with asyncio.timeout(20):
        await entered.wait()
    assert host.log.directory == "/d2" and "t-0" in host.names("/d1")
    manager.failures.dir_failed(StorageError("dead", directory="/d2", path="/d2"))
    await manager.removals.run_due()
    (kept,) = host.names("/d1")
    assert kept.endswith("-stray") and manager.pool.offline_partitions == {T0: "/d2"}
    await host.supervisor.stop()


async def test_a_thread_that_reads_a_copy_again_leaves_the_handles_of_the_disk_to_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that the thread closes could be the one to which the loop is just appending."""
    host = Host(replica_alter_log_dirs_io_max_bytes_per_second=4_096)
    manager = await host.start()
    log = host.create()
    fill(log, 200)
    move = manager.moves.start(T0, "/d2", throttle=80_000)
    assert move is not None
    await until(lambda: move.copied_bytes > 10_000)
    used: list[HandleCache] = []
    is_off_loop = False
    get, run_blocking = HandleCache.get, host.disk.run_blocking

    def counted(self: HandleCache, *arguments: Any, **options: Any) -> File:
        if is_off_loop:
            used.append(self)
        return get(self, *arguments, **options)

    async def off_loop(function: Callable[[], object], at: str = "") -> object:
        nonlocal is_off_loop
        is_off_loop = "DiskMoves" in getattr(function, "__qualname__", "")
        try:
            return await run_blocking(function, at)
        finally:
            is_off_loop = False

    monkeypatch.setattr(HandleCache, "get", counted)
    monkeypatch.setattr(host.disk, "run_blocking", off_loop)
    manager = await host.restart()
    (again,) = manager.moves.under_way()
    await until(lambda: again.future is not None)
    assert used and manager.pool.dirs["/d2"].handles not in used
    again.throttle = 0
    await until(lambda: again.state == "done")


async def test_a_copy_that_finds_no_descriptor_for_its_last_flush_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old copy kept its place and its name, for the next start to choose between two, and no other move was possible."""
    host = Host()
    manager = await host.start()
    fill(host.create(), 100)
    flush, refused = PartitionLog.flush, 0

    async def short(self: PartitionLog) -> Offset:
        nonlocal refused
        if self.path == "/d2/t-0" and refused < 2:
            refused += 1
            error = StorageError("flush failed", directory=self.directory, path=self.path)
            raise error from OSError(errno.EMFILE, "Too many open files")
        return await flush(self)

    monkeypatch.setattr(PartitionLog, "flush", short)
    monkeypatch.setattr(moving, "SHORTAGE_PAUSE_S", 0.001)
    manager.moves.start(T0, "/d2")
    await until(lambda: manager.moves.all()[0].state == "done" and not manager.moves._leaving)
    assert refused == 2 and "t-0" not in host.names("/d1") and len(values(host.log)) == 100
    assert manager.moves.start(T0, "/d1") is not None


def test_a_copy_whose_epochs_the_log_never_had_is_begun_again() -> None:
    """After unclean elections back and forth: the comparison of the two did not end, on the loop, at each start."""
    source, future = make_log(MemoryDisk()), make_log(MemoryDisk())
    fill(source, 60, epoch=3)
    fill(source, 10, epoch=6)
    source.advance_log_start_offset(20)
    fill(future, 50, epoch=5)
    moving.agree(future, source)
    assert (future.log_start_offset, future.log_end_offset) == (20, 20)
