"""Batches that stand for much are rewritten in pieces, in little memory."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest

from kafkalite.log import rewriting
from kafkalite.log.cleaner import build_map, plan
from kafkalite.log.kept_producers import KeptBatches
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.rewriting import CleanedTransactions, OffsetMap, Rewriter
from kafkalite.record.batch import parse_header
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import read_records
from tests.support.compaction import SETTINGS, keyed
from tests.support.logs import make_log
from tests.support.memory_disk import MemoryDisk

# --- batches that stand for much ------------------------------------------------------------------


def _rewriter(replaced: dict[bytes, int]) -> Rewriter:
    offsets = OffsetMap(1 << 20)
    for key, offset in replaced.items():
        offsets.put(key, offset)
    offsets.latest_offset = 1_000_000
    kept = KeptBatches(ProducerStates(), frozenset())
    return Rewriter(offsets, CleanedTransactions([]), kept, now_ms=5, delete_retention_ms=1000)


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
