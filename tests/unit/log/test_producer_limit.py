"""A partition remembers `max.producer.ids` idempotent producers: a client that invents ids fills no memory, and no snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.log import snapshots
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.producer_state import largest_share
from kafkalite.model import TopicPartition
from kafkalite.record.builder import end_transaction_marker
from tests.support.failing import fails_with
from tests.support.log_host import manager_on
from tests.support.logs import PATH, TOPIC_ID, batch, config, everything, make_log, reopen
from tests.support.memory_disk import MemoryDisk

LIMIT: dict[str, Any] = {"max_producer_ids": 3}


def write(log: PartitionLog, producer_id: int, sequence: int = 0, *, transactional: bool = False) -> int:
    made = batch(["v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=transactional)
    return log.append_as_leader(made, 1).first_offset


def end(log: PartitionLog, producer_id: int) -> None:
    marker = end_transaction_marker(producer_id, 0, commit=True, coordinator_epoch=0, timestamp_ms=1)
    log.append_as_leader(marker, 1, origin="coordinator")


def known(log: PartitionLog) -> list[int]:
    """The one to be dropped next first."""
    return list(log.active_producers())


@pytest.mark.checklist("F25")
def test_the_one_that_has_not_written_for_longest_is_dropped_on_every_replica() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    leader, follower = make_log(disk, **LIMIT), make_log(other, **LIMIT)
    for sequence in range(2):
        for producer_id in (1, 2):
            write(leader, producer_id, sequence)
    for producer_id in range(10, 40):
        write(leader, producer_id)
        if not producer_id % 2:
            write(leader, 1, producer_id // 2 - 3)  # it works all the time
        if not producer_id % 10:
            leader.roll()
    follower.append_as_follower(everything(leader))
    leader.prepare_clean_close()
    again = [
        reopen(disk, clean=True, **LIMIT),
        reopen(disk, recovery_point=leader.segments[-1].base_offset, **LIMIT),
        reopen(other, **LIMIT),
    ]
    for log in (leader, follower, *again):
        assert known(log) == [38, 1, 39]
        assert log.active_producers()[1].last_sequence == 16
    cut = leader.segments[1].base_offset + 3
    for log in (leader, again[2]):
        log.truncate_to(cut)
    assert known(leader) == known(again[2])
    assert len(known(leader)) == 3


def test_a_dropped_id_is_that_of_a_producer_that_has_expired() -> None:
    """Kafka takes any sequence of a producer that it does not know (KIP-360)."""
    log = make_log(MemoryDisk(), **LIMIT)
    expiring = make_log(MemoryDisk())
    for each in (log, expiring):
        write(each, 1, 0)
        write(each, 1, 1)
    for producer_id in range(10, 13):
        write(log, producer_id)
    for now_s in (0.0, 5_000.0):
        expiring.expire_producers(10**9, 100, now_s)
    for each in (log, expiring):
        assert 1 not in known(each)
        end_offset = each.log_end_offset
        assert write(each, 1, 1) == end_offset, "a repeated batch is not known any more"
        assert write(each, 1, 2) == end_offset + 1
        with fails_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            write(each, 1, 9)


def test_an_open_transaction_is_never_dropped() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **LIMIT)
    for producer_id in range(1, 6):
        write(log, producer_id, transactional=True)
    for producer_id in range(10, 50):
        write(log, producer_id)
    assert sorted(known(log)) == [1, 2, 3, 4, 5, 47, 48, 49]
    assert sorted(known(reopen(disk, **LIMIT))) == [1, 2, 3, 4, 5, 47, 48, 49]
    assert write(log, 2, 1, transactional=True) == log.log_end_offset - 1
    end(log, 2)
    assert sorted(known(log)) == [1, 2, 3, 4, 5, 48, 49], "now it is one of three"
    for producer_id in range(60, 63):
        write(log, producer_id)
    assert sorted(known(log)) == [1, 3, 4, 5, 60, 61, 62]
    assert log.first_unstable_offset == 0


def test_invented_ids_do_not_fill_the_snapshots() -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=10_000, **LIMIT)
    for producer_id in range(2_000):
        write(log, 2**62 + producer_id)
    sizes = [len(disk.read_file(f"{PATH}/{name}")) for name in disk.listdir(PATH) if name.endswith(".snapshot")]
    assert len(sizes) > 10 and max(sizes) <= 10 + 4 * 50


async def test_snapshots_of_many_are_encoded_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 producers with five batches each took 17 ms of the turn of the append that rolled a segment."""
    monkeypatch.setattr(snapshots, "AT_ONCE", 2)
    disk = MemoryDisk()
    log = make_log(disk)

    def files() -> list[str]:
        return sorted(name for name in disk.listdir(PATH) if name.endswith(".snapshot"))

    for producer_id in range(6):
        write(log, producer_id)
        log.roll()
    assert files() == [f"{offset:020d}.snapshot" for offset in (1, 2)]
    write(log, 6)
    await log.flush_rolled()
    assert files()[2:] == [f"{offset:020d}.snapshot" for offset in (3, 4, 5, 6)]
    again = reopen(disk, recovery_point=log.recovery_point)
    assert (again.recovery_point, known(again)) == (6, list(range(7)))
    log.roll()
    log.truncate_to(5)
    write(log, 8)
    await log.flush()
    assert files()[2:] == [f"{offset:020d}.snapshot" for offset in (3, 4, 5)]
    assert known(log) == known(reopen(disk, recovery_point=log.recovery_point)) == [0, 1, 2, 3, 4, 8]
    await log.close_cleanly()
    assert files()[-1] == f"{6:020d}.snapshot"


def test_a_lower_limit_holds_with_the_next_batch() -> None:
    log = make_log(MemoryDisk())
    for producer_id in range(20):
        write(log, producer_id)
    log.config = config(**LIMIT)
    info = log.append_as_leader(batch(["v"], producer_id=90, producer_epoch=0, base_sequence=0), 1)
    assert (info.new_producers, info.dropped_producers) == (1, 18)
    assert known(log) == [18, 19, 90]


@pytest.mark.parametrize(
    ("counts", "most", "share"),
    [
        ([5, 5, 5], 9, 3),
        ([1, 2, 100], 10, 7),
        ([1, 50, 100], 10, 4),
        ([3, 3], 1, 0),
        ([0, 0, 12], 12, 12),
    ],
)
def test_logs_with_few_producers_keep_them(counts: list[int], most: int, share: int) -> None:
    assert largest_share(counts, most) == share
    assert sum(min(count, share) for count in counts) <= most


async def test_all_logs_of_a_broker_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = await manager_on(MemoryDisk())
    dropped: dict[TopicPartition, int] = {}
    monkeypatch.setattr(manager.pool.host, "producers_dropped", dropped.__setitem__)
    logs = [manager.placing.create(TopicPartition("t", number), TOPIC_ID, config()) for number in range(3)]
    for log, producers in zip(logs, (2, 30, 40)):
        for producer_id in range(producers):
            write(log, producer_id)
    housekeeping = manager.housekeeping
    for most, kept in ((72, [2, 30, 40]), (52, [2, 25, 25]), (51, [2, 24, 24]), (1, [0, 0, 0])):
        housekeeping.max_producer_ids = most
        housekeeping.limit_producers()
        assert [len(known(log)) for log in logs] == kept
    assert dropped == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 24, TopicPartition("t", 2): 24}
    write(logs[1], 1, transactional=True)
    housekeeping.limit_producers()
    assert known(logs[1]) == [1], "its transaction is open"
    logs[0].config = config(**LIMIT)
    housekeeping.max_producer_ids = 100
    for producer_id in range(2):
        write(logs[0], producer_id)
    logs[0].config = config(max_producer_ids=1)
    await housekeeping.retention_pass()
    assert (known(logs[0]), dropped[TopicPartition("t", 0)]) == ([1], 1), "its limit was lowered"
