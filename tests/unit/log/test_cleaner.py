"""Compaction: what stays, what goes, and when; crashes in the middle."""

from __future__ import annotations

import errno
import random
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.supervisor import Supervisor
from kafkalite.log import rewriting
from kafkalite.log.cleaner import build_map, compact, groups_of, plan
from kafkalite.log.kept_producers import KeptBatches
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.rewriting import CleanedTransactions, OffsetMap, Rewriter
from kafkalite.record.batch import parse_header, split_batches
from kafkalite.record.builder import RecordBatchBuilder, encode_batch, encode_record, end_transaction_marker
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import read_records
from tests.support.log_host import host_of, hosted
from tests.support.logs import PATH, TOPIC_ID, TP, config, everything, make_log, reopen
from tests.support.memory_disk import ManualClock, MemoryDisk, MemoryFile

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "min_cleanable_dirty_ratio": 0.01,
    "delete_retention_ms": 1000,
}
Pair = tuple[str, str | None]


def keyed(pairs: list[Pair], *, codec: Codec = Codec.NONE, timestamp_ms: int = 1000, **producer: int) -> bytes:
    builder = RecordBatchBuilder(codec, **producer)  # type: ignore[arg-type]
    for key, value in pairs:
        builder.append(key.encode(), None if value is None else value.encode(), (), timestamp_ms)
    return builder.build()


def fill(log: PartitionLog, rounds: int = 30, keys: int = 4, codec: Codec = Codec.NONE) -> dict[str, str]:
    """Writes each key many times; what compaction must keep."""
    last: dict[str, str] = {}
    for number in range(rounds):
        pairs: list[Pair] = [(f"k{(number + k) % keys}", f"{number}-{k}" + "." * 30) for k in range(3)]
        log.append_as_leader(keyed(pairs, codec=codec), 1)
        last |= {key: value for key, value in pairs if value is not None}
    return last


def state(log: PartitionLog) -> dict[bytes, bytes]:
    """What a reader from the beginning ends up with."""
    found: dict[bytes, bytes] = {}
    for record in read_records(everything(log)):
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found


async def clean(
    log: PartitionLog, disk: MemoryDisk, *, dirty: int = 0, now_ms: int = 2000, map_bytes: int = 1 << 20
) -> int:
    return await compact(
        log, disk, first_dirty_offset=dirty, high_watermark=log.log_end_offset, now_ms=now_ms, map_bytes=map_bytes
    )


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


async def test_a_log_that_changes_under_the_cleaner_is_left_alone() -> None:
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    fill(log)

    async def truncate() -> None:
        disk.during_sync = None
        log.truncate_to(5)

    disk.during_sync = truncate
    assert await clean(log, disk) == 0
    assert log.log_end_offset <= 5 and not [name for name in disk.listdir(PATH) if "cleaned" in name or "swap" in name]


@pytest.mark.parametrize("seed", range(4))
async def test_a_compaction_ends_while_a_flush_is_under_way(seed: int) -> None:
    """With log.flush.before.ack and steady traffic one nearly always is."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS)
    fill(log)
    expected, end = state(log), log.segments[-1].base_offset
    reached: list[int] = []

    async def meanwhile() -> None:
        disk.during_sync = None
        reached.append(await clean(log, disk))

    disk.during_sync = meanwhile
    assert await log.flush() == log.log_end_offset
    assert reached == [end] and state(log) == expected
    await log.flush()
    point = log.recovery_point
    disk.power_loss(random.Random(seed))
    again = reopen(disk, recovery_point=point, **SETTINGS)
    assert state(again) == expected and again.log_end_offset == log.log_end_offset


async def test_a_crash_at_each_step_of_the_swap_loses_nothing() -> None:
    reference = MemoryDisk()
    log = make_log(reference, **SETTINGS)
    fill(log)
    expected, calls = state(log), 0
    await clean(log, reference)
    for step in range(1, 200):
        disk = MemoryDisk()
        log = make_log(disk, **SETTINGS)
        fill(log)
        calls = 0

        class Stopped(BaseException):
            pass

        def count(original, step=step):
            def counted(*arguments):
                nonlocal calls
                calls += 1
                if calls == step:
                    raise Stopped
                return original(*arguments)

            return counted

        disk.rename = count(disk.rename)  # type: ignore[method-assign]
        disk.remove = count(disk.remove)  # type: ignore[method-assign]
        try:
            await clean(log, disk)
        except Stopped:
            del disk.rename, disk.remove
            disk.process_crash()
            again = reopen(disk, recovery_point=log.segments[-1].base_offset, **SETTINGS)
            assert state(again) == expected
            assert again.log_end_offset == 90
            assert not [name for name in disk.listdir(PATH) if name.endswith((".swap", ".cleaned"))]
            offsets = [header.base_offset for _, header in split_batches(everything(again))]
            assert offsets == sorted(set(offsets))
        else:
            assert step > 3
            return
    raise AssertionError("the swap never ended")


async def test_the_manager_cleans_what_is_due_and_remembers_how_far() -> None:
    disk, clock = MemoryDisk(), ManualClock()

    def fatal(error: BaseException) -> None:
        raise error

    manager = hosted(
        LogManager(BrokerConfig(log_dirs=("/d",)), disk, clock, supervisor=Supervisor(fatal)),
        on_dir_failed=lambda *_: None,
    )
    await manager.opening.start("c", 1, {})
    log = manager.placing.create(TP, TOPIC_ID, TopicConfig(cleanup_policy="compact", segment_bytes=1024))
    fill(log)
    host_of(manager).hw_of = lambda _: log.log_end_offset
    assert await manager.housekeeping.cleaning_pass() == 1
    assert await manager.housekeeping.cleaning_pass() == 0
    assert disk.read_file("/d/cleaner-offset-checkpoint").startswith(b"0\n1\nevents 0 ")
    await manager.close()


class Refusing(MemoryDisk):
    """Refuses what has to do with a name, with this error."""

    def __init__(self) -> None:
        super().__init__()
        self.refused, self.code = "", 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if self.refused and path.endswith(self.refused):
            raise OSError(self.code, "injected", path)
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        if self.refused and new.endswith(self.refused):
            raise OSError(self.code, "injected", old)
        super().rename(old, new)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENOMEM])
async def test_a_compaction_that_finds_no_room_leaves_the_log_in_service(code: int) -> None:
    disk, lost = Refusing(), []

    def fatal(error: BaseException) -> None:
        raise error

    manager = hosted(
        LogManager(BrokerConfig(log_dirs=("/d",)), disk, ManualClock(), supervisor=Supervisor(fatal)),
        on_dir_failed=lambda *_: None,
        on_log_failed=lambda tp, error: lost.append(str(error)),
    )
    await manager.opening.start("c", 1, {})
    log = manager.placing.create(TP, TOPIC_ID, TopicConfig(cleanup_policy="compact", segment_bytes=1024))
    last = fill(log)
    host_of(manager).hw_of = lambda _: log.log_end_offset
    disk.refused, disk.code = ".cleaned", code
    assert await manager.housekeeping.cleaning_pass() == 0
    assert manager.get(TP) is log and lost == []
    disk.refused = ".swap"  # the copy was written, and nothing has been replaced yet; what was replaced is not known
    assert await manager.housekeeping.cleaning_pass() == 0
    assert manager.get(TP) is None and len(lost) == 1
    disk.refused = ""
    assert log.is_failed and last
    await manager.close(clean=False)


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


# --- batches that stand for much ------------------------------------------------------------------


def _rewriter(replaced: dict[bytes, int], *, now_ms: int = 5) -> Rewriter:
    offsets = OffsetMap(1 << 20)
    for key, offset in replaced.items():
        offsets.put(key, offset)
    offsets.latest_offset = 1_000_000
    kept = KeptBatches(ProducerStates(), frozenset())
    return Rewriter(offsets, CleanedTransactions([]), kept, now_ms=now_ms, delete_retention_ms=1000)


def _a_batch(codec: Codec, records: list[bytes]) -> bytes:
    return encode_batch(
        compress(codec, b"".join(records)),
        record_count=len(records),
        last_offset_delta=len(records) - 1,
        attributes=int(codec),
        base_timestamp=1_000,
        max_timestamp=2_000,
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("tombstone", [False, True])
def test_a_batch_that_stands_for_much_is_rewritten_in_pieces(
    codec: Codec, monkeypatch: pytest.MonkeyPatch, *, tombstone: bool
) -> None:
    """The same records stay, with their times and headers, as if the batch had been in memory."""
    rng = random.Random(7)
    records = [
        encode_record(number, number % 7 - 3, b"k%d" % (number % 40), rng.randbytes(rng.choice((0, 10, 3_000))), [("h", b"x" * 9)])
        for number in range(200)
    ]  # fmt: skip
    records[-1] = encode_record(199, 1_000, b"gone", None if tombstone else b"v", ())
    batch = _a_batch(codec, records)
    replaced = {b"k%d" % number: 160 + number for number in range(0, 40, 2)} | {
        b"k%d" % number: 500 for number in range(1, 40, 4)
    }
    header = parse_header(batch)
    whole = _rewriter(replaced).keep(header, memoryview(batch))
    monkeypatch.setattr(rewriting, "_WHOLE_RECORDS", 100)
    pieces = _rewriter(replaced).keep(header, memoryview(batch))
    assert whole is not None and pieces is not None
    assert list(read_records(pieces)) == list(read_records(whole))
    found, expected = parse_header(pieces), parse_header(whole)
    assert found.max_timestamp == expected.max_timestamp and found.has_delete_horizon == expected.has_delete_horizon
    assert found.has_delete_horizon == tombstone and found.record_count == expected.record_count < 200
    if tombstone:
        assert found.base_timestamp == expected.base_timestamp == 1_005


@pytest.mark.parametrize(
    ("codec", "big"), [(Codec.GZIP, "value"), (Codec.LZ4, "value"), (Codec.ZSTD, "value"), (Codec.ZSTD, "key")]
)
def test_compaction_takes_little_memory_whatever_a_batch_stands_for(codec: Codec, big: str) -> None:
    """A few kB for a value or a key of 32 MB: two to four times as much was in memory."""
    nothing = bytes(32 << 20)
    pair = (b"k", nothing) if big == "value" else (nothing, b"v")
    batch = _a_batch(codec, [encode_record(0, 0, b"a", b"old", ()), encode_record(1, 0, *pair, ())])
    rewriter = _rewriter({b"a": 500_000})
    tracemalloc.start()
    try:
        found = rewriter.keep(parse_header(batch), memoryview(batch))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None and parse_header(found).record_count == 1
    assert peak < 24 << 20


def test_a_batch_with_more_keys_than_the_map_has_room_for_ends_the_map() -> None:
    """The rest of the batch is for the next pass."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS | {"segment_bytes": 1 << 20})
    log.append_as_leader(keyed([(f"k{number}", "v") for number in range(500)]), 1)
    log.roll()
    work = plan(log, log.config, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2_000)
    assert work is not None
    offsets = build_map(disk, work, [], 100 * 130)
    assert offsets.is_full and 90 < offsets.latest_offset < 120


def test_deltas_that_lie_replace_no_later_record() -> None:
    """Nobody has looked into a batch that was written before the topic was compacted."""
    disk = MemoryDisk()
    log = make_log(disk, **SETTINGS | {"segment_bytes": 1 << 20, "cleanup_policy": "delete"})
    batch = encode_batch(
        encode_record(2**31 - 1, 0, b"k", b"lies", ()),
        record_count=1, last_offset_delta=0, base_timestamp=1_000, max_timestamp=1_000,
    )  # fmt: skip
    log.append_as_leader(batch, 1)
    log.append_as_leader(keyed([("k", "true")]), 1)
    log.roll()
    config = replace(log.config, cleanup_policy="compact")
    work = plan(log, config, first_dirty_offset=0, high_watermark=log.log_end_offset, now_ms=2_000)
    assert work is not None
    offsets = build_map(disk, work, [], 1 << 20)
    assert offsets.replaces(b"k", 0) and not offsets.replaces(b"k", 1)
