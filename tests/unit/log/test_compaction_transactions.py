"""Compaction and transactions over several passes: a committed record never goes for an abort that is not its own."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.record.compression import Codec
from tests.support.committed import committed_state
from tests.support.logs import make_log
from tests.support.memory_disk import MemoryDisk

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "min_cleanable_dirty_ratio": 0.01,
    "delete_retention_ms": 1000,
}


def write(log: PartitionLog, key: str, value: str | None, **producer: int) -> None:
    builder = RecordBatchBuilder(Codec.NONE, **producer)  # type: ignore[arg-type]
    builder.append(key.encode(), None if value is None else value.encode(), (), 1000)
    log.append_as_leader(builder.build(), 1)


def transaction(log: PartitionLog, key: str, value: str | None, sequence: int, *, commit: bool) -> None:
    write(log, key, value, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
    marker = end_transaction_marker(7, 0, commit=commit, coordinator_epoch=0, timestamp_ms=1000)
    log.append_as_leader(marker, 1, origin="coordinator")


async def clean(log: PartitionLog, disk: MemoryDisk, dirty: int, now_ms: int) -> int:
    log.roll()
    write(log, "fill", str(now_ms))
    return await compact(log, disk, first_dirty_offset=dirty, high_watermark=log.log_end_offset, now_ms=now_ms)


@pytest.mark.parametrize("first_commits", [True, False])
async def test_a_committed_delete_stays_whatever_its_producer_did_before(*, first_commits: bool) -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    write(log, "user", "secret")
    transaction(log, "other", "x", 0, commit=first_commits)
    dirty = await clean(log, disk, 0, 2000)
    transaction(log, "user", None, 1, commit=True)
    dirty = await clean(log, disk, dirty, 3000)
    assert b"user" not in committed_state(log)
    await clean(log, disk, dirty, 10_000)
    assert b"user" not in committed_state(log)


async def test_a_commit_after_an_abort_whose_records_are_gone_stays() -> None:
    """The marker outlives its records until the delete horizon: meanwhile it ends a transaction that has no batch left."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    transaction(log, "other", "x", 0, commit=False)
    dirty = await clean(log, disk, 0, 2000)
    transaction(log, "paid", "yes", 1, commit=True)
    dirty = await clean(log, disk, dirty, 2001)
    assert committed_state(log).get(b"paid") == b"yes"
    transaction(log, "paid", "more", 2, commit=True)
    dirty = await clean(log, disk, dirty, 2002)
    dirty = await clean(log, disk, dirty, 9000)
    await clean(log, disk, dirty, 19000)
    assert committed_state(log).get(b"paid") == b"more"
