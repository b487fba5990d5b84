"""What a compaction keeps for idempotent producers: the batches that their sequences are known by."""

from __future__ import annotations

import pytest

from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.builder import end_transaction_marker
from kafkalite.record.reader import read_records
from tests.support.compaction import SETTINGS, clean, keyed
from tests.support.logs import PATH, everything, make_log, reopen
from tests.support.memory_disk import MemoryDisk


@pytest.mark.checklist("F25")
async def test_a_producers_last_batch_stays_for_its_sequence() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    for number in range(10):
        log.append_as_leader(keyed([("k", str(number))], producer_id=9, producer_epoch=1, base_sequence=number), 1)
    log.append_as_leader(keyed([("k", "someone else")]), 1)
    log.roll()
    log.append_as_leader(keyed([("other", "1")]), 1)
    await clean(log, disk)
    assert [record.offset for record in read_records(everything(log))] == [10, 11]
    disk.write_file_atomic(f"{PATH}/nothing", b"")
    for name in disk.listdir(PATH):
        if name.endswith(".snapshot"):
            disk.remove(f"{PATH}/{name}")
    again = reopen(disk, **SETTINGS)
    retry = keyed([("k", "9")], producer_id=9, producer_epoch=1, base_sequence=9)
    assert again.append_as_leader(retry, 1).duplicate


def _copied(leader: PartitionLog, follower: PartitionLog) -> None:
    while follower.log_end_offset < leader.log_end_offset:
        follower.append_as_follower(b"".join(leader.read(follower.log_end_offset, 300).records))


@pytest.mark.checklist("F25")
@pytest.mark.parametrize("epochs", [(0, 0, 0), (0, 1, 1)])
async def test_a_replica_that_copied_a_compacted_part_knows_the_sequence_if_the_newest_batch_is_truncated(
    epochs: tuple[int, int, int],
) -> None:
    """The newest batch was not replicated when its leader compacted what was before it."""

    def batch(number: int) -> bytes:
        sequence = number - epochs.index(epochs[number])
        return keyed([("k", str(number))], producer_id=9, producer_epoch=epochs[number], base_sequence=sequence)

    disk, other = MemoryDisk(), MemoryDisk()
    leader, follower = make_log(disk, **SETTINGS), make_log(other, **SETTINGS)
    leader.append_as_leader(batch(0), 1)
    _copied(leader, follower)  # ... and it falls behind
    leader.append_as_leader(batch(1), 1)
    leader.append_as_leader(keyed([("k", "someone else")]), 1)
    leader.roll()
    replicated = leader.log_end_offset
    leader.append_as_leader(batch(2), 1)
    await compact(leader, disk, first_dirty_offset=0, high_watermark=replicated, now_ms=2000)
    _copied(leader, follower)
    for log in (leader, follower):  # under another leader, which has not got the newest batch
        log.truncate_to(replicated)
        info = log.append_as_leader(batch(2), 2)
        assert (info.first_offset, info.duplicate) == (replicated, False)


@pytest.mark.checklist("F25")
async def test_the_five_batches_that_a_producer_may_repeat_outlive_compaction() -> None:
    """A replica that was away copies a compacted log, and leads before the producer has its answers."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    batches = [keyed([("k", str(n))], producer_id=9, producer_epoch=0, base_sequence=n) for n in range(8)]
    for batch in batches:
        log.append_as_leader(batch, 1)
    log.append_as_leader(keyed([("k", "someone else")]), 1)
    log.roll()
    log.append_as_leader(keyed([("other", "1")]), 1)
    await clean(log, disk)
    assert [record.offset for record in read_records(everything(log))] == [8, 9]
    follower = make_log(MemoryDisk(), **SETTINGS)
    _copied(log, follower)
    for number in (3, 4, 5, 6, 7):
        assert follower.append_as_leader(batches[number], 2).first_offset == number
    assert follower.active_producers()[9].batches == log.active_producers()[9].batches


async def test_a_marker_that_fences_outlives_its_transaction_while_the_producer_wrote_nothing_else() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    log.append_as_leader(keyed([("k", "1")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True), 1)
    marker = end_transaction_marker(5, 1, commit=False, coordinator_epoch=0, timestamp_ms=1000)
    log.append_as_leader(marker, 1, origin="coordinator")
    dirty = 0
    for now_ms in (2000, 4000, 6000):
        log.append_as_leader(keyed([("x", str(now_ms))]), 1)
        log.roll()
        log.append_as_leader(keyed([("x", "2")]), 1)
        dirty = await clean(log, disk, dirty=dirty, now_ms=now_ms)
    follower = make_log(MemoryDisk(), **SETTINGS)
    _copied(log, follower)
    assert follower.active_producers()[5].producer_epoch == 1
