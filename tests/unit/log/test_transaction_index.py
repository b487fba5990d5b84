"""Aborted transactions are not forgotten: not by a loss of power, not by a crash within a compaction, not by damage."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from kafkalite.errors import StorageError
from kafkalite.log.cleaner import compact
from kafkalite.log.handles import HandleCache
from kafkalite.log.index import ABORTED_ENTRY, AbortedTxn
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.transaction_index import TransactionIndex, save_from, shorten
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import end_transaction_marker
from tests.support.log_host import manager_on
from tests.support.logs import PATH, TOPIC_ID, TP, batch, config, everything, make_log, reopen
from tests.support.memory_disk import MemoryDisk, MemoryFile

FIRST = f"{PATH}/{0:020d}"


def abort(log: PartitionLog, producer_id: int = 7, sequence: int = 0, value: str = "v") -> None:
    made = batch([value], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(made, 1)
    marker = end_transaction_marker(producer_id, 0, commit=False, coordinator_epoch=0, timestamp_ms=1000)
    log.append_as_leader(marker, 1, origin="coordinator")


def aborted(log: PartitionLog) -> list[tuple[int, int, int]]:
    found = log.aborted_transactions(0, log.log_end_offset)
    return [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found]


def durable(disk: MemoryDisk, path: str) -> bytes:
    """What is surely on the platter, under this name."""
    inode = disk.durable_entries.get(path)
    return inode.durable if inode is not None else b""


async def test_a_flush_makes_the_aborted_transactions_of_the_active_segment_durable() -> None:
    """The segment may roll exactly here, and is never checked again then."""
    disk = MemoryDisk()
    log = make_log(disk)
    for number in range(3):
        abort(log, sequence=number)
        await log.flush()
        assert len(durable(disk, f"{FIRST}.txnindex")) == (number + 1) * ABORTED_ENTRY.size
    calls = len(disk.calls)
    log.append_as_leader(batch(["plain"]), 1)
    await log.flush()
    assert not [path for name, path, _ in disk.calls[calls:] if path.endswith("index")], "and costs nothing else"


async def test_the_indexes_of_a_closed_segment_are_made_durable_once() -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1024, index_interval_bytes=100)
    for number in range(4):
        abort(log, sequence=number, value="x" * 250)
        await log.flush()
    assert log.segment_count > 1
    await log.flush()
    for suffix in ("index", "timeindex", "txnindex"):
        name = f"{FIRST}.{suffix}"
        assert durable(disk, name) == bytes(disk.entries[name].data) != b""
    calls = len(disk.calls)
    log.append_as_leader(batch(["plain"]), 1)
    await log.flush()
    assert not [path for name, path, _ in disk.calls[calls:] if name == "sync" and path.startswith(FIRST)]


@pytest.mark.parametrize("seed", range(12))
async def test_a_segment_that_rolls_where_the_last_flush_ended(seed: int) -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1024)
    abort(log, value="A" * 700)
    await log.flush()
    log.append_as_leader(batch(["n" * 700]), 1)
    if seed % 2:
        await log.flush()
    point = log.recovery_point
    disk.power_loss(random.Random(seed))
    assert aborted(reopen(disk, recovery_point=point, segment_bytes=1024)) == [(7, 0, 1)]


@pytest.mark.parametrize("seed", range(6))
async def test_a_clean_stop_and_then_a_loss_of_power(seed: int) -> None:
    disk = MemoryDisk()
    first = await manager_on(disk, "/d")
    log = first.placing.create(TP, TOPIC_ID, config())
    abort(log)
    await log.flush()
    abort(log, sequence=1)
    await first.close(clean=True)
    disk.power_loss(random.Random(seed))
    second = await manager_on(disk, "/d")
    again = second.get(TP)
    assert again is not None and again.clean_start
    assert aborted(again) == [(7, 0, 1), (7, 2, 3)]
    assert again.active_producers()[7].last_sequence == 1


COMPACTED: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": 1024, "min_cleanable_dirty_ratio": 0.01}


async def compacted_log(disk: MemoryDisk) -> PartitionLog:
    """Two segments become one; the abort of the second one is kept with its marker."""
    log = make_log(disk, **COMPACTED)
    abort(log, 7, value="x" * 200)
    log.roll()
    abort(log, 8, value="x" * 200)
    log.roll()
    log.append_as_leader(batch(["tail"]), 1)
    await log.flush()
    await compact(log, disk, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2000)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    return log


@pytest.mark.parametrize("seed", range(6))
async def test_a_loss_of_power_after_a_compaction(seed: int) -> None:
    disk = MemoryDisk()
    log = await compacted_log(disk)
    before = aborted(log)
    assert before == [(7, 0, 1), (8, 2, 3)]
    disk.sync_dir(PATH)  # the file system wrote its journal; the files' content is not synced for that
    disk.power_loss(random.Random(seed))
    assert aborted(reopen(disk, recovery_point=log.recovery_point, **COMPACTED)) == before


@pytest.mark.parametrize("spoilt", ["gone", "short", "torn", "garbage", "foreign", "backwards"])
@pytest.mark.parametrize("clean", [False, True])
async def test_a_transaction_index_that_cannot_be_is_made_again(spoilt: str, *, clean: bool) -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1024)
    abort(log, 7)
    made = batch(["open"], producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(made, 1)  # a transaction that ends in the next segment
    log.roll()
    abort(log, 7, sequence=1)
    marker = end_transaction_marker(8, 0, commit=False, coordinator_epoch=0, timestamp_ms=1000)
    log.append_as_leader(marker, 1, origin="coordinator")
    log.roll()
    log.append_as_leader(batch(["tail"]), 1)
    before = aborted(log)
    assert before == [(7, 0, 1), (7, 3, 4), (8, 2, 5)]
    await log.close_cleanly()
    point = log.recovery_point
    for base in (0, 3):
        name = f"{PATH}/{base:020d}.txnindex"
        data = bytes(disk.entries[name].data)
        if spoilt == "gone":
            for suffix in ("txnindex", "timeindex", "index"):
                disk.remove(f"{PATH}/{base:020d}.{suffix}")
            continue
        changed = {
            "short": data[:-7],
            "torn": data[:-20] + bytes(20),
            "garbage": b"\xff" * len(data),
            "foreign": AbortedTxn(7, 90, 95, 96).encode(),
            "backwards": data[-ABORTED_ENTRY.size :] + data,
        }[spoilt]
        disk.entries[name].data[:] = changed
    if clean and spoilt == "gone":
        return  # a clean stop vouches for files that are not there
    again = reopen(disk, clean=clean, recovery_point=point, segment_bytes=1024)
    assert aborted(again) == before
    await again.flush()
    again.append_as_leader(batch(["more"]), 1)
    await again.flush()
    assert aborted(reopen(disk, recovery_point=again.recovery_point, segment_bytes=1024)) == before


async def test_a_crash_at_each_step_of_a_swap_keeps_them() -> None:
    class Stopped(BaseException):
        pass

    for step in range(1, 60):
        disk = MemoryDisk()
        calls = 0

        def counting(original, disk=disk, step=step):
            def counted(*arguments, **options):
                nonlocal calls
                calls += disk.armed
                if calls == step:
                    raise Stopped
                return original(*arguments, **options)

            return counted

        disk.armed = False  # type: ignore[attr-defined]
        for name in ("rename", "remove", "write_file_atomic", "sync_dir"):
            setattr(disk, name, counting(getattr(disk, name)))
        log = make_log(disk, **COMPACTED)
        abort(log, 7, value="x" * 200)
        log.roll()
        abort(log, 8, value="x" * 200)
        log.roll()
        log.append_as_leader(batch(["tail"]), 1)
        await log.flush()
        point = log.recovery_point
        disk.armed = True  # type: ignore[attr-defined]
        try:
            await compact(log, disk, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2000)
        except Stopped:
            pass
        else:
            assert step > 6
            return
        for name in ("rename", "remove", "write_file_atomic", "sync_dir"):
            delattr(disk, name)
        disk.process_crash()
        again = reopen(disk, recovery_point=point, **COMPACTED)
        # A transaction of which no record is left needs no entry.
        left = {header.producer_id for _, header in split_batches(everything(again))}
        assert [entry for entry in [(7, 0, 1), (8, 2, 3)] if entry[0] in left] == aborted(again)
    raise AssertionError("the swap never ended")


def test_the_list_covers_what_is_read_and_no_more() -> None:
    log = make_log(MemoryDisk(), segment_bytes=100_000)
    for number in range(600):
        abort(log, number % 3, sequence=number // 3)
    total = log.aborted_transactions(0, log.log_end_offset)
    assert len(total) == 600
    for offset in (0, 1, 2, 501, 800, 1198):
        info = log.read(offset, 500)
        headers = [header for _, header in split_batches(b"".join(info.records))]
        assert info.next_offset == headers[-1].next_offset
        listed = log.aborted_transactions(offset, info.next_offset)
        needed = [one for one in total if one.last_offset >= offset and one.first_offset < info.next_offset]
        assert listed == needed and len(listed) <= 5
    # Readers that take one answer after the other leave out each aborted record.
    assert log.read(0, 1 << 20, verify=False).next_offset == log.log_end_offset


async def test_a_crash_behind_the_repair_of_an_index() -> None:
    """The damaged file was removed, and the next one came with a flush: without it, nothing was doubted after the crash."""
    disk = MemoryDisk()
    log = make_log(disk)
    abort(log)
    await log.flush()
    log.roll()
    del disk.entries[f"{FIRST}.txnindex"].data[20:]
    for _ in range(2):
        disk.process_crash()
        assert aborted(reopen(disk, recovery_point=2)) == [(7, 0, 1)]
    assert len(durable(disk, f"{FIRST}.txnindex")) == ABORTED_ENTRY.size


@pytest.mark.parametrize("seed", range(12))
async def test_what_recovery_finds_as_it_was_stays_durable(seed: int) -> None:
    """Recovery emptied the file, and it was written again without a sync: the segment may roll before the next flush."""
    disk = MemoryDisk()
    log = make_log(disk)
    abort(log)
    await log.flush()
    rng = random.Random(seed)
    for _ in range(3):
        disk.power_loss(rng)
        log = reopen(disk, recovery_point=2)
    log.roll()
    disk.power_loss(rng)
    assert aborted(reopen(disk, recovery_point=2)) == [(7, 0, 1)]


async def test_a_loss_of_power_does_not_bring_back_what_was_truncated() -> None:
    """The producer wrote again where its aborted transaction had been: readers of committed records would not have seen that."""
    disk = MemoryDisk()
    log = make_log(disk)
    abort(log)
    await log.flush()
    log.truncate_to(0)
    log.append_as_leader(batch(["a", "b"], producer_id=7, producer_epoch=1, base_sequence=0), 2)
    await log.flush()
    log.roll()
    assert durable(disk, f"{FIRST}.txnindex") == b""
    disk.power_loss(random.Random(1))
    assert aborted(reopen(disk, recovery_point=2)) == []


# --- the index alone ------------------------------------------------------------------------------

FILE = f"{PATH}/{10:020d}.txnindex"


def entry(first: int, last: int) -> AbortedTxn:
    return AbortedTxn(7, first, last, last + 1)


def index_of(*entries: AbortedTxn) -> tuple[MemoryDisk, TransactionIndex]:
    """The index of a segment that begins at 10, with this file."""
    disk = MemoryDisk()
    disk.makedirs(PATH)
    disk.write_file_atomic(FILE, b"".join(each.encode() for each in entries))
    return disk, TransactionIndex(disk, HandleCache(disk, 4), FILE, 10)


def content(disk: MemoryDisk) -> bytes:
    return bytes(disk.entries[FILE].data)


@pytest.mark.parametrize(
    ("entries", "fits"),
    [
        ([entry(3, 10)], True),  # the segment's first batch is the marker
        ([entry(3, 9)], False),
        ([entry(3, 19)], True),
        ([entry(3, 20)], False),
        ([entry(18, 19)], True),
        ([entry(19, 19)], False),
        ([entry(3, 14), entry(5, 15)], True),  # one marker directly behind the other
        ([entry(3, 14), entry(5, 14)], False),
    ],
)
def test_which_entries_can_be_those_of_a_segment(entries: list[AbortedTxn], *, fits: bool) -> None:
    _, index = index_of(*entries)
    assert index.load(20) is fits
    if fits:
        assert index.entries(20) == entries


def test_what_is_in_the_file_is_neither_written_nor_synced_again() -> None:
    disk, index = index_of(entry(3, 14))
    assert index.to_sync() is None and not index.save()
    found = index.entries(20)
    assert index.to_sync() is None and not index.save()
    found.append(entry(5, 15))
    assert index.to_sync() is None and index.save() and not index.save()
    assert content(disk) == entry(3, 14).encode() + entry(5, 15).encode()
    assert index.to_sync() == 2
    found.append(entry(6, 16))
    assert index.save()
    index.synced(2)  # the fsync began before the third entry was written
    assert index.to_sync() == 3
    index.synced(3)
    assert index.to_sync() is None


def test_a_file_that_was_cut_is_synced_and_no_other() -> None:
    _, index = index_of(entry(3, 14), entry(5, 15))
    assert index.load(20)
    index.truncate(16)
    assert index.to_sync() is None
    index.truncate(15)
    assert index.to_sync() == 1
    index.truncate(15)
    index.synced(None)
    assert index.to_sync() == 1
    index.synced(1)
    assert index.to_sync() is None


def test_an_index_that_is_made_again_replaces_its_file() -> None:
    disk, index = index_of(entry(3, 14), entry(5, 15))
    assert index.load(20)
    index.reset()
    index.entries(20).append(entry(6, 16))
    assert index.to_sync() is None and index.save() and index.to_sync() == 1
    assert content(disk) == entry(6, 16).encode()


@pytest.mark.parametrize("before", [b"", entry(3, 14).encode()[:20], entry(3, 14).encode() * 2])
def test_an_index_that_was_made_again_is_durable_at_once(before: bytes) -> None:
    disk, index = index_of()
    disk.write_file_atomic(FILE, before)
    index.reset()
    index.entries(20).append(entry(3, 14))
    index.settle()
    assert durable(disk, FILE) == content(disk) == entry(3, 14).encode()
    assert index.to_sync() is None and not index.save()


def test_an_index_that_was_made_again_as_it_was_is_not_written() -> None:
    disk, index = index_of(entry(3, 14))
    calls = len(disk.calls)
    index.reset()
    index.entries(20).append(entry(3, 14))
    index.settle()
    assert disk.calls[calls:] == [] and not index.save()
    assert index.to_sync() == 1, "nobody knows whether it is on the disk itself"
    index.reset()
    index.settle()
    assert not disk.exists(FILE)


def test_an_empty_index_makes_no_file_and_a_durable_one_needs_no_sync() -> None:
    disk, index = index_of()
    disk.remove(FILE)
    assert not index.save_durably() and index.entries(20) == [] and not index.save_durably()
    assert not disk.exists(FILE)
    index.entries(20).append(entry(3, 14))
    assert index.save_durably()
    assert durable(disk, FILE) == entry(3, 14).encode()
    assert index.to_sync() is None and not index.save()


@pytest.mark.parametrize(
    ("before", "keep", "data", "after"),
    [
        (None, 0, b"", None),
        (None, 0, b"new", b"new"),
        (b"old", 0, b"", b""),
        (b"old", 0, b"new", b"new"),
        (b"old", 2, b"", b"ol"),
        (b"old", 2, b"new", b"olnew"),
        (b"old", 3, b"new", b"oldnew"),
    ],
)
def test_an_index_file_is_cut_and_extended(before: bytes | None, keep: int, data: bytes, after: bytes | None) -> None:
    disk, _ = index_of()
    disk.remove(FILE)
    if before is not None:
        disk.write_file_atomic(FILE, before)
    assert save_from(disk, HandleCache(disk, 4), FILE, keep, data) is (after is not None)
    assert (content(disk) if disk.exists(FILE) else None) == after
    assert disk.open_files == 0


def test_a_file_that_cannot_be_cut_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _ = index_of(entry(3, 14))

    def refuse(self: MemoryFile, size: int) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(MemoryFile, "truncate", refuse)
    with pytest.raises(OSError, match="injected"):
        shorten(disk, HandleCache(disk, 4), FILE, 0)
    assert disk.open_files == 0


def test_a_marker_is_not_written_when_the_index_cannot_be_read() -> None:
    """It would end the transaction, and readers would take its records for committed ones."""
    disk = MemoryDisk()
    log = make_log(disk)
    log.append_as_leader(batch(["plain"]), 1)
    log.append_as_leader(batch(["v"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), 1)
    log = reopen(disk, recovery_point=2, clean=True)
    disk.broken.add(f"{FIRST}.txnindex")
    marker = end_transaction_marker(7, 0, commit=False, coordinator_epoch=0, timestamp_ms=1000)
    with pytest.raises(StorageError):
        log.append_as_leader(marker, 1, origin="coordinator")
    assert log.is_failed and log.log_end_offset == 2 and log.first_unstable_offset == 1
