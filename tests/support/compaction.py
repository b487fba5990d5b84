"""Logs to be compacted, and one pass over them."""

from __future__ import annotations

from typing import Any

from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from tests.support.logs import everything
from tests.support.memory_disk import MemoryDisk

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
