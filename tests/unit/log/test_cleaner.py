"""Compaction: what stays, what goes, and when; crashes in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from kafkalite.config import TopicConfig
from kafkalite.log.cleaner import compact, groups_of
from kafkalite.model import TopicPartition
from kafkalite.record.batch import parse_header, split_batches
from kafkalite.record.builder import RecordBatchBuilder, encode_batch, encode_record, end_transaction_marker
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from tests.support import moving
from tests.support.compaction import SETTINGS, clean, fill, keyed, state
from tests.support.log_host import host_of, manager_on
from tests.support.logs import TOPIC_ID, TP, config, everything, make_log, reopen
from tests.support.memory_disk import MemoryDisk


@pytest.mark.parametrize("codec", list(Codec))
async def test_the_last_record_of_each_key_stays_at_its_offset(codec: Codec) -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    last = fill(log, codec=codec)
    before = {record.offset: record for record in read_records(everything(log))}
    size, active = log.size_bytes, log.segments[-1].base_offset
    reached = await clean(log, disk)
    assert reached == active
    assert log.size_bytes < size
    after = list(read_records(everything(log)))
    assert all(before[record.offset] == record for record in after)
    assert [record.offset for record in after] == sorted(record.offset for record in after)
    assert state(log) == {key.encode(): value.encode() for key, value in last.items()}
    below = [record.key for record in after if record.offset < active]
    assert len(below) == len(set(below))
    assert log.log_end_offset == 90
    # Every offset can still be asked for, and a restart sees the same, clean or not.
    for offset in range(90):
        header = parse_header(log.read(offset, 1).records[0])
        assert header.last_offset >= offset
    content = everything(log)
    assert everything(reopen(disk, recovery_point=active, **SETTINGS)) == content
    # Another pass finds nothing to do; new records make it due again.
    assert await clean(log, disk, dirty=reached) == reached
    fill(log)
    assert await clean(log, disk, dirty=reached) > reached


async def test_nothing_above_the_high_watermark_the_last_stable_offset_or_the_lag_is_touched() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS, min_compaction_lag_ms=500)
    fill(log)
    content = everything(log)
    assert await compact(log, disk, first_dirty_offset=0, high_watermark=3, now_ms=2000) == 0
    assert await compact(log, disk, first_dirty_offset=0, high_watermark=90, now_ms=1400) == 0
    assert everything(log) == content


@pytest.mark.parametrize(("policy", "segments"), [("compact", 2), ("compact,delete", 2), ("delete", 1)])
def test_what_is_to_be_compacted_after_so_long_does_not_stay_in_the_active_segment(policy: str, segments: int) -> None:
    """KIP-354: a topic that little is written to would otherwise keep what is to be gone until the segment is full."""
    log = make_log(MemoryDisk(), cleanup_policy=policy, max_compaction_lag_ms=500)
    log.append_as_leader(keyed([("a", "1")], timestamp_ms=1_000), 1)
    log.append_as_leader(keyed([("a", "2")], timestamp_ms=1_500), 1)
    assert len(log.segments) == 1
    log.append_as_leader(keyed([("a", "3")], timestamp_ms=1_501), 1)
    assert len(log.segments) == segments


async def test_a_small_map_takes_several_passes_to_the_same_end() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    log, twin = make_log(disk, **SETTINGS), make_log(other, **SETTINGS)
    for one in (log, twin):
        fill(one, rounds=60, keys=20)
    await clean(twin, other)
    dirty, passes = 0, 0
    while (reached := await clean(log, disk, dirty=dirty, map_bytes=600)) != dirty:
        dirty, passes = reached, passes + 1
        assert state(log) == state(twin)
    assert passes > 2


async def test_tombstones_stay_for_their_time_then_go() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    log.append_as_leader(keyed([("a", "1"), ("b", "1")]), 1)
    log.append_as_leader(keyed([("a", None)]), 1)
    log.roll()
    log.append_as_leader(keyed([("c", "1")]), 1)
    await clean(log, disk, now_ms=5000)
    records = [(r.offset, r.key, r.value, r.timestamp) for r in read_records(everything(log))]
    assert records == [(1, b"b", b"1", 1000), (2, b"a", None, 1000), (3, b"c", b"1", 1000)]
    horizons = [h.base_timestamp for _, h in split_batches(everything(log)) if h.has_delete_horizon]
    assert horizons == [6000]
    log.roll()
    log.append_as_leader(keyed([("d", "1")]), 1)
    dirty = 3
    dirty = await clean(log, disk, dirty=dirty, now_ms=5999)
    assert b"a" in [record.key for record in read_records(everything(log))]
    log.roll()
    await clean(log, disk, dirty=dirty, now_ms=6000)
    assert [record.key for record in read_records(everything(log))] == [b"b", b"c", b"d"]


async def test_the_time_of_a_tombstone_begins_when_what_it_deletes_is_gone() -> None:
    """A pass whose memory did not reach the tombstone began its time. A later one then removed both at once: a replica that had copied the
    record before that pass never got the tombstone (ADR 76)."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    pairs = [("gone", "secret"), *((f"k{number}", "v" * 300) for number in range(6)), ("gone", None)]
    for key, value in pairs:
        log.append_as_leader(keyed([(key, value)]), 1)
    log.roll()
    reached, now_ms = 0, 2000
    found: list[tuple[bool, bool]] = []
    for _ in range(6):
        reached = await clean(log, disk, dirty=reached, map_bytes=300, now_ms=now_ms)
        kept = [record.value for record in read_records(everything(log)) if record.key == b"gone"]
        found.append((b"secret" in kept, None in kept))
        log.append_as_leader(keyed([("other", "v" * 1000)]), 1)
        log.roll()
        now_ms += 2000
    states = list(dict.fromkeys(found))
    assert states == [(True, True), (False, True), (False, False)]


async def test_a_tombstone_stays_while_a_replica_is_not_in_sync() -> None:
    """That replica had copied the record before its disk was full, and went on behind the tombstone that was gone meanwhile: when it led, the key
    was back."""
    host = moving.Host()
    manager = await host.start()
    double = host_of(manager)
    double.hw_of = lambda tp: 10**9
    double.everywhere = lambda tp: False
    log = host.create(config(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, delete_retention_ms=1000))

    async def clean(key: str) -> list[bytes | None]:
        log.append_as_leader(keyed([(key, "1")]), 1)
        log.roll()
        assert await manager.housekeeping.cleaning_pass() == 1
        host.clock.now_ms += 2_000
        return [record.key for record in read_records(everything(log))]

    log.append_as_leader(keyed([("a", "1")]), 1)
    log.append_as_leader(keyed([("a", None)]), 1)
    assert await clean("b") == [b"a", b"b"]
    assert await clean("c") == [b"a", b"b", b"c"]
    double.everywhere = lambda tp: True
    assert await clean("d") == [b"b", b"c", b"d"]


async def test_tombstones_that_are_kept_for_ever() -> None:
    """Found by setting every number to the largest that there is: the failure of the cleaner ended every node."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS | {"delete_retention_ms": 2**63 - 1, "message_timestamp_after_max_ms": 2**63 - 1})
    log.append_as_leader(keyed([("a", "1"), ("b", "1")], timestamp_ms=2**63 - 1), 1)
    log.append_as_leader(keyed([("a", None)], timestamp_ms=-1), 1)
    log.roll()
    log.append_as_leader(keyed([("c", "1")]), 1)
    for _ in range(2):
        await clean(log, disk, now_ms=2**41)
        records = [(r.offset, r.key, r.value, r.timestamp) for r in read_records(everything(log))]
        assert records == [(1, b"b", b"1", 2**63 - 1), (2, b"a", None, -1), (3, b"c", b"1", 1000)]


async def test_timestamps_beyond_64_bits_and_records_without_a_key() -> None:
    """Both can lie in a log that was not compacted before: what is in a batch is looked at by nobody else."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS | {"cleanup_policy": "delete", "message_timestamp_after_max_ms": 2**63 - 1})
    payload = encode_record(0, 5, b"a", b"old", ()) + encode_record(1, 2**63 - 1, b"a", b"new", ())
    batch = encode_batch(
        payload, record_count=2, last_offset_delta=1, base_timestamp=2**63 - 2, max_timestamp=2**63 - 1
    )
    log.append_as_leader(bytearray(batch), 1)
    nameless = RecordBatchBuilder()
    nameless.append(None, b"without", (), 1)
    log.append_as_leader(bytearray(nameless.build()), 1)
    log.roll()
    log.config = config(**SETTINGS)
    log.append_as_leader(keyed([("b", "1")]), 1)
    await clean(log, disk, now_ms=2**41)
    assert [(r.key, r.value) for r in read_records(everything(log))] == [(b"a", b"new"), (b"b", b"1")]


async def test_aborted_records_go_and_their_marker_later() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)

    def transaction(key: str, sequence: int, *, commit: bool) -> None:
        log.append_as_leader(
            keyed([(key, "v")], producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True), 1
        )
        marker = end_transaction_marker(5, 0, commit=commit, coordinator_epoch=0, timestamp_ms=1000)
        log.append_as_leader(marker, 1, origin="coordinator")

    transaction("kept", 0, commit=True)
    transaction("aborted", 1, commit=False)
    transaction("kept2", 2, commit=True)
    log.roll()
    log.append_as_leader(keyed([("x", "1")]), 1)
    dirty = await clean(log, disk, now_ms=2000)
    assert [record.key for record in read_records(everything(log))] == [b"kept", b"kept2", b"x"]
    assert [(entry.first_offset, entry.last_offset) for entry in log.aborted_transactions(0, 100)] == [(2, 3)]
    control = [header.base_offset for _, header in split_batches(everything(log)) if header.is_control]
    assert control == [1, 3, 5], "a marker outlives its records by one pass and the delete horizon"
    for number, now_ms in enumerate((3000, 5000)):
        log.roll()
        log.append_as_leader(keyed([("x", str(number))]), 1)
        dirty = await clean(log, disk, dirty=dirty, now_ms=now_ms)
    control = [header.base_offset for _, header in split_batches(everything(log)) if header.is_control]
    assert control == [1, 5]
    assert log.aborted_transactions(0, 100) == [], "no reader may wait for a marker that is gone"
    assert reopen(disk, **SETTINGS).active_producers()[5].last_sequence == 2


async def test_a_follower_copies_a_compacted_log() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    log, follower = make_log(disk, **SETTINGS), make_log(other, **SETTINGS)
    fill(log)
    await clean(log, disk)
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(log.read(follower.log_end_offset, 700).records[0])
    assert everything(follower) == everything(log)
    assert everything(reopen(other, **SETTINGS)) == everything(log)


async def test_small_neighbours_become_one_segment() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    fill(log, rounds=60)
    count = log.segment_count
    dirty = await clean(log, disk)
    assert log.segment_count == count, "grouped by what they were before the pass, as Kafka does"
    fill(log, rounds=10)
    await clean(log, disk, dirty=dirty)
    assert log.segment_count < count // 2
    assert groups_of([], log.config) == []


async def test_passes_over_many_logs_let_others_run() -> None:
    """A pass in which nothing is due, or everything is in the page cache, has nothing to wait for."""
    disk = MemoryDisk()
    manager = await manager_on(disk, "/d")
    for number in range(200):
        placed = TopicPartition("t", number)
        log = manager.placing.create(placed, TOPIC_ID, TopicConfig(cleanup_policy="compact"))
        log.append_as_leader(keyed([("k", "v")]), 1)
        log.segments[0].max_timestamp = None  # as after a start

    async def turns(work: Awaitable[object]) -> int:
        count, ended = 0, asyncio.ensure_future(work)
        while not ended.done():
            await asyncio.sleep(0)
            count += 1
        return count

    assert await turns(manager.housekeeping.retention_pass()) > 6, "the timestamps of all logs were read at once"
    assert await turns(manager.housekeeping.cleaning_pass()) > 3


async def test_what_a_pass_needs_on_the_loop_is_loaded_first(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk, "/d")
    settings = TopicConfig(cleanup_policy="compact", segment_bytes=1024, min_cleanable_dirty_ratio=0.01)
    log = manager.placing.create(TP, TOPIC_ID, settings)
    opened = keyed([("aborted", "v")], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_as_leader(opened, 1)
    marker = end_transaction_marker(5, 0, commit=False, coordinator_epoch=0, timestamp_ms=1000)
    log.append_as_leader(marker, 1, origin="coordinator")
    fill(log)
    await log.flush()
    host_of(manager).hw_of = lambda _: log.log_end_offset
    for segment in log.segments:
        segment.transactions._entries = None  # as after a start
    disk.cold = {path for path in disk.entries if path.endswith(".txnindex")}
    assert disk.cold
    waited, check = [], disk.check_resident

    def noting(path: str, offset: int, size: int) -> None:
        check(path, offset, size)
        if path in disk.cold:
            waited.append(path)

    monkeypatch.setattr(disk, "check_resident", noting)
    assert await manager.housekeeping.cleaning_pass() == 1
    assert (waited, disk.cold) == ([], set())


async def test_the_manager_cleans_what_is_due_and_remembers_how_far() -> None:
    disk = MemoryDisk()
    manager = await manager_on(disk, "/d")
    log = manager.placing.create(TP, TOPIC_ID, TopicConfig(cleanup_policy="compact", segment_bytes=1024))
    fill(log)
    host_of(manager).hw_of = lambda _: log.log_end_offset
    assert await manager.housekeeping.cleaning_pass() == 1
    assert await manager.housekeeping.cleaning_pass() == 0
    assert disk.read_file("/d/cleaner-offset-checkpoint").startswith(b"0\n1\nevents 0 ")
    await manager.close()
