"""Moves and compactions of the same log."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.log.partition_log import PartitionLog
from tests.support.log_host import host_of
from tests.support.logs import batch, config
from tests.support.moving import T0, Host, fill, values
from tests.support.waiting import until


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
