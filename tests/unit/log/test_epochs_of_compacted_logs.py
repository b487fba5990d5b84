"""Where leader epochs began, in a log whose first batches of an epoch compaction has removed: only the file can say it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable

import pytest

from kafkalite.log import checkpoints
from kafkalite.log.partition_log import PartitionLog
from tests.support.compaction import SETTINGS, clean, keyed
from tests.support.logs import PATH, make_log, reopen
from tests.support.memory_disk import MemoryDisk

NAME = f"{PATH}/leader-epoch-checkpoint"


async def compacted(disk: MemoryDisk, *, epochs: int = 2) -> PartitionLog:
    """Epoch 1 has the offsets 0 and 1; each other one two offsets, of which compaction removes the first batch."""
    log = make_log(disk, **SETTINGS)
    log.append_as_leader(keyed([("a", "1"), ("b", "1")]), 1)
    for epoch in range(2, epochs + 1):
        log.append_as_leader(keyed([("c", "1")]), epoch)
        log.append_as_leader(keyed([("d" if epoch == epochs else f"e{epoch}", "1")]), epoch)
    log.append_as_leader(keyed([("c", "2")]), epochs)
    await log.flush()
    log.roll()
    await clean(log, disk)
    await log.flush()
    return log


def start(log: PartitionLog) -> None:
    assert log.advance_log_start_offset(1)


def cut_and_another_epoch(log: PartitionLog) -> None:
    log.truncate_to(log.log_end_offset - 1)
    log.append_as_leader(keyed([("c", "3")]), 120)


def another_epoch(log: PartitionLog) -> None:
    log.append_as_leader(keyed([("c", "3")]), 120)


@pytest.mark.parametrize("change", [start, cut_and_another_epoch, another_epoch])
@pytest.mark.parametrize("epochs", [2, 9, 90])
async def test_a_loss_of_power_leaves_them_known(change: Callable[[PartitionLog], None], epochs: int) -> None:
    """A loss of power left an empty file. The batches gave a later start for an epoch, so a former leader kept records that only it had."""
    for seed in range(60):
        disk = MemoryDisk()
        log = await compacted(disk, epochs=epochs)
        before = log.epoch_entries
        assert before[1:] == [(epoch, 2 * epoch - 2) for epoch in range(2, epochs + 1)]
        change(log)
        point, first = log.recovery_point, log.log_start_offset
        disk.power_loss(random.Random(seed))
        again = reopen(disk, recovery_point=point, log_start_offset=first, **SETTINGS)
        for (epoch, _), (_, end) in itertools.pairwise(before):
            assert again.epoch_and_end_offset_for(epoch) == (epoch, end)


async def test_the_whole_lines_of_a_torn_file_count() -> None:
    disk = MemoryDisk()
    log = await compacted(disk, epochs=5)
    whole, entries = bytes(disk.entries[NAME].data), log.epoch_entries
    for cut in range(len(whole)):
        for torn in (whole[:cut], whole[:cut] + bytes(len(whole) - cut)):
            found = checkpoints.whole_epochs(torn)
            assert found == entries[: max(torn[:cut].count(b"\n") - 2, 0)]
    disk.write_file_atomic(NAME, whole[:-1])
    assert reopen(disk, clean=True, **SETTINGS).epoch_entries[:4] == entries[:4]


def test_lines_that_cannot_be_are_not_believed() -> None:
    for data in (
        b"",
        b"0",
        b"0\n",
        b"1\n1\n1 0\n",
        b"0\n-1\n1 0\n",
        b"0\n" + b"9" * 5000 + b"\n1 0\n",
        b"\xff\n\xfe\n",
    ):
        assert checkpoints.whole_epochs(data) == []
    assert checkpoints.whole_epochs(b"0\n3\n1 0\n2 5\n2 9\n") == [(1, 0), (2, 5)]
    assert checkpoints.whole_epochs(b"0\n3\n1 0\n2 x\n3 9\n") == [(1, 0)]
    assert checkpoints.whole_epochs(b"0\n1\n1 0\n2 5\n") == [(1, 0)], "what is behind them is older"


async def test_an_epoch_of_a_large_file_replaces_nothing() -> None:
    """A new file of a compacted log is synced, and the loop waited for that in each failover beyond the fortieth."""
    disk = MemoryDisk()
    log = await compacted(disk, epochs=90)
    assert len(disk.entries[NAME].data) > 512
    disk.calls.clear()
    another_epoch(log)
    assert not [call for call in disk.calls if call[0] == "write_file"]
    assert reopen(disk, clean=True, **SETTINGS).epoch_entries == log.epoch_entries


def test_a_start_that_moves_writes_no_file() -> None:
    """The file that is there stays true: whoever loads it forgets what lies before the log's start."""
    disk = MemoryDisk()
    log = asyncio.run(compacted(disk, epochs=4))
    disk.calls.clear()
    assert log.advance_log_start_offset(3)
    assert not [call for call in disk.calls if call[0] == "write_file"]
    assert log.epoch_entries == [(2, 3), (3, 4), (4, 6)]
    assert reopen(disk, clean=True, log_start_offset=3, **SETTINGS).epoch_entries == log.epoch_entries
