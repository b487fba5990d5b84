"""A log that was not closed: torn anywhere, flipped anywhere, the log ends at a batch before the damage."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kafkalite.errors import StorageError
from kafkalite.log import checkpoints
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import end_transaction_marker
from tests.support.logs import PATH, batch, everything, find_timestamp, make_log, reopen, values
from tests.support.memory_disk import Inode, MemoryDisk

LOG = f"{PATH}/{0:020d}.log"


def small_log(disk: MemoryDisk, **overrides: Any) -> PartitionLog:
    """Eight batches under three leader epochs, of idempotent producers and of others."""
    log = make_log(disk, **overrides)
    log.append_as_leader(batch(["a"], producer_id=4, producer_epoch=0, base_sequence=0), 1)
    log.append_as_leader(batch(["b", "c"]), 1)
    log.append_as_leader(batch(["d"], producer_id=4, producer_epoch=0, base_sequence=1), 3)
    log.append_as_leader(batch(["e"] * 3), 3)
    log.append_as_leader(batch(["f"], producer_id=5, producer_epoch=2, base_sequence=0, transactional=True), 3)
    marker = end_transaction_marker(5, 2, commit=False, coordinator_epoch=1, timestamp_ms=5)
    log.append_as_leader(marker, 4, origin="coordinator")
    log.append_as_leader(batch(["g"], producer_id=4, producer_epoch=0, base_sequence=2), 4)
    log.append_as_leader(batch(["h", "i"]), 4)
    return log


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    twin = MemoryDisk()
    twin.dirs = set(disk.dirs)
    for path, inode in disk.entries.items():
        twin.entries[path] = Inode()
        twin.entries[path].data += inode.data
    return twin


def check_is_prefix(log: PartitionLog, original: bytes, damage_at: int) -> None:
    """Nothing but whole batches of `original`, and every one that ends before the damage."""
    data = everything(log)
    assert original.startswith(data)
    ends = [position + header.size for position, header in split_batches(original)]
    assert len(data) == max((end for end in ends if end <= damage_at), default=0)
    assert log.log_end_offset == max((h.next_offset for _, h in split_batches(data)), default=0)
    assert all(start <= log.log_end_offset for _, start in log.epoch_entries)
    for entry in log.active_producers().values():
        assert all(kept.last_offset < log.log_end_offset for kept in entry.batches)


@pytest.mark.checklist(58)
def test_torn_at_each_byte() -> None:
    disk = MemoryDisk()
    original = everything(small_log(disk))
    for size in range(len(original)):
        twin = copy_of(disk)
        del twin.entries[LOG].data[size:]
        check_is_prefix(reopen(twin), original, size)


@pytest.mark.checklist(58)
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_flipped_at_each_byte(bit: int) -> None:
    disk = MemoryDisk()
    original = everything(small_log(disk))
    for position in range(len(original)):
        twin = copy_of(disk)
        twin.entries[LOG].data[position] ^= 1 << bit
        check_is_prefix(reopen(twin), original, position)


@pytest.mark.checklist(39)
def test_flipped_over_several_segments_drops_the_later_ones() -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1024)
    for number in range(40):
        log.append_as_leader(batch(["x" * 90], producer_id=1, producer_epoch=0, base_sequence=number), 1 + number // 10)
    names = sorted(path for path in disk.entries if path.endswith(".log"))
    original = everything(log)
    before = 0
    for name in names:
        size = len(disk.entries[name].data)
        for position in range(0, size, 7):
            twin = copy_of(disk)
            twin.entries[name].data[position] ^= 0x10
            again = reopen(twin, segment_bytes=1024)
            check_is_prefix(again, original, before + position)
            assert (
                [kept.last_offset for kept in again.active_producers()[1].batches][-1:] == [again.log_end_offset - 1]
                if again.log_end_offset
                else True
            )
            again.append_as_leader(batch(["next"]), 9)
            assert everything(reopen(twin, segment_bytes=1024)) == everything(again)
        before += size


def test_a_whole_segment_missing_in_the_middle_ends_the_log_there() -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1024)
    for _ in range(40):
        log.append_as_leader(batch(["x" * 90]), 1)
    second = log.segments[1]
    third = log.segments[2].base_offset
    disk.remove(second.path(".log"))
    again = reopen(disk, segment_bytes=1024)
    assert again.log_end_offset == second.base_offset < third


def test_without_an_epoch_file_the_batches_tell() -> None:
    disk = MemoryDisk()
    log = small_log(disk)
    expected = log.epoch_entries
    for content in (None, b"", b"0\n1\nnonsense\n", b"\xff\xfe"):
        twin = copy_of(disk)
        twin.remove(f"{PATH}/leader-epoch-checkpoint")
        if content is not None:
            twin.write_file_atomic(f"{PATH}/leader-epoch-checkpoint", content)
        for clean in (False, True):
            assert reopen(copy_of(twin), clean=clean).epoch_entries == expected


def test_a_new_epoch_is_written_in_place_and_each_piece_of_that_is_the_old_file_or_the_new_or_recognised() -> None:
    """A failover writes one such file per partition: a file beside it and a rename would cost twenty times as much."""
    disk = MemoryDisk()
    log = make_log(disk)
    name = f"{PATH}/leader-epoch-checkpoint"
    log.append_as_leader(batch(["a"]), 1)
    for epoch in range(2, 12):
        before = bytes(disk.entries[name].data)
        disk.calls.clear()
        log.append_as_leader(batch(["b"] * epoch), epoch)
        after = bytes(disk.entries[name].data)
        assert checkpoints.decode_epochs(after) == log.epoch_entries
        # With the tenth the line that counts them grows, and everything behind it moves.
        in_place = all(call[0] != "write_file" for call in disk.calls)
        assert in_place == (epoch != 10)
        if not in_place:
            continue
        for cut in range(len(after)):
            for torn in (after[:cut] + before[cut:], bytes(cut) + before[cut:]):
                with suppress(checkpoints.MalformedCheckpoint):
                    assert torn == before or checkpoints.decode_epochs(torn) == log.epoch_entries


def test_what_is_no_longer_true_is_not_written_over_in_place() -> None:
    disk = MemoryDisk()
    log = make_log(disk)
    for epoch in range(1, 5):
        log.append_as_leader(batch(["a"]), epoch)
    disk.calls.clear()
    log.truncate_to(2)
    assert [call[0] for call in disk.calls].count("write_file") == 1
    log.append_as_leader(batch(["a"]), 9)
    assert reopen(disk).epoch_entries == [(1, 0), (2, 1), (9, 2)]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
async def test_damaged_indexes_are_made_anew(suffix: str) -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=200_000, index_interval_bytes=100)
    for number in range(1500):
        log.append_as_leader(batch([f"v{number}" * 8], timestamp_ms=number), 1)
    log.prepare_clean_close()
    name = f"{PATH}/{0:020d}.{suffix}"
    intact = bytes(disk.entries[name].data)
    assert len(intact) > 1000
    rng = random.Random(1)
    spoiled = [b"", intact[:-3], bytes(len(intact)), rng.randbytes(len(intact)), intact[: len(intact) // 2], intact * 2]
    for content in spoiled:
        for clean in (True, False):
            twin = copy_of(disk)
            twin.write_file_atomic(name, content)
            again = reopen(twin, clean=clean, segment_bytes=200_000)
            assert again.log_end_offset == 1500
            for offset in (0, 1, 700, 1499):
                assert everything(again)[:100] == everything(log)[:100]
                assert bytes(again.read(offset, 1).records[0]) == bytes(log.read(offset, 1).records[0])
            assert await find_timestamp(again, 777) == (777, 777, 1)
    # After recovery and a close the files are what they were.
    twin = copy_of(disk)
    twin.write_file_atomic(name, rng.randbytes(64))
    again = reopen(twin, segment_bytes=200_000, index_interval_bytes=100)
    again.prepare_clean_close()
    assert bytes(twin.entries[name].data) == intact


def test_aborted_transactions_come_back_with_recovery() -> None:
    disk = MemoryDisk()
    log = small_log(disk)
    expected = log.aborted_transactions(0, 100)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in expected] == [(5, 7, 8)]
    log.prepare_clean_close()
    assert reopen(copy_of(disk), clean=True).aborted_transactions(0, 100) == expected
    assert reopen(copy_of(disk)).aborted_transactions(0, 100) == expected
    # Cut before the marker: the transaction is open again, and nothing says aborted.
    twin = copy_of(disk)
    del twin.entries[LOG].data[sum(h.size for _, h in list(split_batches(everything(log)))[:5]) :]
    again = reopen(twin)
    assert (again.aborted_transactions(0, 100), again.first_unstable_offset) == ([], 7)
    again.prepare_clean_close()
    assert reopen(twin, clean=True).aborted_transactions(0, 100) == []


def test_leftovers_of_an_earlier_life_are_cleared_away() -> None:
    disk = MemoryDisk()
    log = small_log(disk)
    for name in (f"{7:020d}.log.deleted", f"{9:020d}.log.cleaned", "x.tmp", f"{99:020d}.index"):
        disk.write_file_atomic(f"{PATH}/{name}", b"rubbish")
    again = reopen(disk)
    assert everything(again) == everything(log)
    assert not [name for name in disk.listdir(PATH) if "deleted" in name or "cleaned" in name or "99" in name]


def test_a_log_start_beyond_what_was_recovered_begins_there() -> None:
    disk = MemoryDisk()
    small_log(disk)
    again = reopen(disk, log_start_offset=500)
    assert (again.log_start_offset, again.log_end_offset) == (500, 500)
    again.append_as_leader(batch(["x"]), 5)
    assert reopen(disk, log_start_offset=500).log_end_offset == 501


@pytest.mark.parametrize("seed", range(60))
async def test_power_loss_keeps_all_that_was_flushed(seed: int) -> None:
    rng = random.Random(seed)
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1024)
    epoch, flushed, recovery_point, sequence = 1, b"", 0, 0
    history = {b""}
    for _ in range(rng.randint(1, 60)):
        match rng.randint(0, 9):
            case 0:
                flushed_to = await log.flush()
                flushed, recovery_point = everything(log), log.recovery_point
                assert flushed_to == log.log_end_offset
            case 1:
                await log.flush_rolled()
                recovery_point = log.recovery_point
            case 2:
                epoch += rng.randint(1, 3)
                log.assign_epoch_start(epoch, log.log_end_offset)
            case _:
                log.append_as_leader(
                    batch(["x" * rng.randint(0, 200)], producer_id=1, producer_epoch=0, base_sequence=sequence), epoch
                )
                sequence += 1
                history.add(everything(log))
    disk.power_loss(rng)
    again = reopen(disk, recovery_point=recovery_point, segment_bytes=1024) if disk.exists(PATH) else log
    survived = everything(again)
    assert survived in history, "a prefix of what was written"
    assert survived.startswith(flushed)
    if flushed:
        assert again.topic_id == log.topic_id
    entry = again.active_producers().get(1)
    assert (entry.last_sequence if entry is not None else -1) == again.log_end_offset - 1


@pytest.mark.parametrize("count", [0, 3])
def test_an_append_that_was_refused_is_not_there_after_a_crash(count: int) -> None:
    """All of it was written before the disk reported an error. As the first batch of a segment it was not cut off again."""
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=80)
    for _ in range(count):
        log.append_as_leader(batch(["v"]), 1)
    disk.fail_append_after = 1_000
    with pytest.raises(StorageError):
        log.append_as_leader(batch(["refused"]), 1)
    disk.process_crash()
    assert [value for _, value in values(reopen(disk))] == [b"v"] * count


@pytest.mark.parametrize("first", ["a", ""])
async def test_what_follows_more_than_two_billion_compacted_offsets_is_not_dropped(first: str) -> None:
    """A copy of a compacted log begins a segment behind such a gap, and nothing said that the offsets between the two had not been lost."""
    disk = MemoryDisk()
    log = make_log(disk)
    if first:
        log.append_as_leader(batch([first]), 1)
    gap = 2**31
    for offset in (gap + 1, gap + 4, 2 * gap + 9):
        log.append_as_follower(batch([f"v{offset}"], base_offset=offset, leader_epoch=1))
    await log.flush()
    before = values(log)
    assert len(before) == 3 + bool(first)
    log.close()
    again = reopen(disk)
    assert values(again) == before and again.log_end_offset == 2 * gap + 10
