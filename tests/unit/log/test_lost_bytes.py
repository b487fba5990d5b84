"""A disk that has lost what it said it had synced: it shows where a closed segment ends."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kafkalite.log.cleaner import compact
from kafkalite.log.log_manager import LogManager
from kafkalite.record.batch import split_batches
from tests.support.log_host import log_manager
from tests.support.logs import TOPIC_ID, batch, values
from tests.unit.log.failing_logs import CONFIG, T0, Host, filled


def _a_batch(host: Host, path: str) -> None:
    data = host.disk.entries[path].data
    *_, (last, _) = split_batches(bytes(data))
    del data[last:]


def _half_a_batch(host: Host, path: str) -> None:
    del host.disk.entries[path].data[-20:]


def _half_a_head(host: Host, path: str) -> None:
    data = host.disk.entries[path].data
    *_, (last, _) = split_batches(bytes(data))
    del data[last + 30 :]


def _all(host: Host, path: str) -> None:
    host.disk.entries[path].data.clear()


def _the_file(host: Host, path: str) -> None:
    host.disk.remove(path)


async def synced(host: Host, manager: LogManager, **settings: object) -> list[str]:
    """A log of several segments, all on the disk; the paths of those that are closed."""
    log = filled(manager, 40)
    await log.flush()
    await manager.offsets.save_offsets()
    return [segment.log_path for segment in log.segments[:-1]]


@pytest.mark.parametrize("loss", [_a_batch, _half_a_batch, _all, _the_file])
async def test_a_log_that_has_lost_synced_bytes_is_not_opened_until_an_operator_says_so(
    loss: Callable[[Host, str], None],
) -> None:
    """It was opened with the hole, in sync and without a doubt, and could lead."""
    host = Host()
    _, victim, *others = await synced(host, await host.manager())
    host.disk.power_loss(random.Random(1))
    loss(host, victim)
    for is_clean in (False, True, False):  # nor after the next starts, if the replica was not copied again meanwhile
        manager = await host.manager()
        assert manager.get(T0) is None and host.names() == ["t-0"]
        kept = manager.pool.failed(T0)
        assert kept is not None and "bytes are missing that had been synced" in kept.reason
        assert manager.failures.restart_refusal(T0) == "", "where another replica is in sync, it may be recreated"
        assert manager.pool.doubtful() == [T0]
        await manager.offsets.save_offsets()
        await manager.close(clean=is_clean)
        host.disk.process_crash()
        assert all(path in host.disk.entries for path in others), "what is left may be all that there is"
    manager = await host.manager()
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    log = manager.get(T0)
    assert log is not None and log.log_end_offset == 40 and manager.pool.doubtful() == [T0]


@pytest.mark.parametrize("loss", [_a_batch, _half_a_batch, _half_a_head, _all, _the_file])
async def test_a_log_that_is_used_with_its_gap_is_read_and_opened_after_the_next_kill(
    loss: Callable[[Host, str], None],
) -> None:
    """A part of a batch stayed at the end: no reader could pass it, and the log was not opened after the next kill either."""
    host = Host()
    _, victim, *_ = await synced(host, await host.manager())
    host.disk.power_loss(random.Random(1))
    loss(host, victim)
    manager = await host.manager()
    await manager.opening.bring_online("/d1", "cluster", 1, {})
    log = manager.get(T0)
    assert log is not None
    left = values(log)
    assert left[0][0] == 0 and left[-1][0] == 39 and 20 < len(left) < 40
    await manager.offsets.save_offsets()
    host.disk.process_crash()
    log = (await host.manager()).get(T0)
    assert log is not None and values(log) == left


@pytest.mark.parametrize("is_started_again", [False, True])
@pytest.mark.parametrize("loss", [_a_batch, _half_a_batch])
async def test_what_is_behind_lost_bytes_stays_if_the_log_was_set_aside_and_is_restored(
    loss: Callable[[Host, str], None], *, is_started_again: bool
) -> None:
    """The replica was copied again, and that copy is lost, too. All behind the gap was removed."""
    host = Host()
    _, victim, *others = await synced(host, await host.manager())
    host.disk.power_loss(random.Random(1))
    loss(host, victim)
    manager = await host.manager()
    manager.placing.create(T0, TOPIC_ID, CONFIG)
    await manager.offsets.save_offsets()
    if is_started_again:
        await manager.close()
        manager = await host.manager()
    manager.delete(T0)
    [stray] = manager.removals.strays()
    await manager.failures.restore(stray, T0, CONFIG)
    log = manager.get(T0)
    assert log is not None and log.log_end_offset == 40 and manager.pool.doubtful() == [T0]
    assert all(path in host.disk.entries for path in others)


async def test_a_sound_log_is_opened_after_a_loss_of_power() -> None:
    host = Host()
    await synced(host, await host.manager())
    host.disk.power_loss(random.Random(1))
    log = (await host.manager()).get(T0)
    assert log is not None and len(values(log)) == 40


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("loss", [_a_batch, _half_a_batch])
async def test_a_log_that_ends_before_its_recovery_point_is_in_doubt(
    loss: Callable[[Host, str], None], *, is_clean: bool
) -> None:
    """The end of the last segment is missing. A log that is flushed before each acknowledgement was taken for complete."""
    host = Host()
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, CONFIG.__class__(segment_bytes=200, log_flush_before_ack=True))
    for number in range(9):
        log.append_as_leader(batch([f"value {number}"]), 1)
    await log.flush()
    await manager.offsets.save_offsets()
    await manager.close(clean=is_clean)
    host.disk.power_loss(random.Random(1))
    manager = log_manager(host.disk, *host.dirs, clock=host.clock)
    loss(host, log.segments[-1].log_path)
    await manager.opening.start("cluster", 1, {"t": {"log.flush.before.ack": "true"}})
    found = manager.get(T0)
    assert found is not None and found.log_end_offset == 8 and manager.pool.doubtful() == [T0]


async def test_a_damaged_index_costs_no_log() -> None:
    host = Host()
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, CONFIG.__class__(segment_bytes=2_000, index_interval_bytes=1))
    for number in range(60):
        log.append_as_leader(batch([f"value {number}"]), 1)
    await log.flush()
    await manager.offsets.save_offsets()
    host.disk.power_loss(random.Random(1))
    index = host.disk.entries[log.segments[0].log_path.replace(".log", ".index")].data
    index[-8:] = b"\x00\x00\xff\xff\x00\x00\xff\xff"
    found = (await host.manager()).get(T0)
    assert found is not None and len(values(found)) == 60


async def test_what_a_compaction_removed_is_not_missing() -> None:
    host = Host()
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, CONFIG.__class__(segment_bytes=200, cleanup_policy="compact"))
    for number in range(40):
        log.append_as_leader(batch([f"value {number}"]), 1)
    await log.flush()
    await compact(log, host.disk, first_dirty_offset=0, high_watermark=40, now_ms=10**13)
    await log.flush()
    await manager.offsets.save_offsets()
    left = values(log)
    assert len(left) < 10
    host.disk.power_loss(random.Random(1))
    found = (await host.manager()).get(T0)
    assert found is not None and values(found) == left


async def test_offsets_that_are_too_far_apart_for_one_segment_are_not_missing() -> None:
    """The leader's compaction left two records, and a segment's indexes count up to 2^31: the copy's second segment begins far away."""
    host = Host()
    manager = await host.manager()
    log = manager.placing.create(T0, TOPIC_ID, CONFIG)
    far = 2**31 + 5
    for offset in (0, far):
        log.append_as_follower(bytearray(batch([f"value {offset}"], base_offset=offset, leader_epoch=1)))
    await log.flush()
    await manager.offsets.save_offsets()
    assert [segment.base_offset for segment in log.segments] == [0, far]
    host.disk.power_loss(random.Random(1))
    found = (await host.manager()).get(T0)
    assert found is not None and found.log_end_offset == far + 1


async def test_where_compactions_were_not_recorded_a_gap_proves_nothing() -> None:
    """A log of an older version, or of Kafka."""
    host = Host()
    _, victim, *_ = await synced(host, await host.manager())
    host.disk.power_loss(random.Random(1))
    _a_batch(host, victim)
    host.disk.remove("/d1/t-0/partition.metadata")
    assert (await host.manager()).get(T0) is not None
