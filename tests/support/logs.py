"""Making logs and batches for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafkalite.config import TopicConfig, topic_config
from kafkalite.env.real import RealClock
from kafkalite.env.supervisor import Supervisor
from kafkalite.log.cold_reads import ColdReads
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import load_log, new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import Buffer, TopicId, TopicPartition
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.record.compression import Codec
from kafkalite.record.reader import read_records
from tests.support.memory_disk import ManualClock, MemoryDisk

TP = TopicPartition("events", 0)
TOPIC_ID = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")
DIRECTORY = "/data"
PATH = "/data/events-0"


def build_batch(records: Iterable[tuple[Buffer | None, Buffer | None]], *, timestamp_ms: int = 0) -> bytes:
    """A plain batch of (key, value) pairs."""
    builder = RecordBatchBuilder()
    for key, value in records:
        builder.append(key, value, (), timestamp_ms)
    return builder.build()


def batch(
    values: Sequence[bytes | str],
    *,
    timestamp_ms: int = 1_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    compression: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    key: bytes | None = b"k",
) -> bytes:
    builder = RecordBatchBuilder(
        compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    for value in values:
        builder.append(key, value.encode() if isinstance(value, str) else value, (), timestamp_ms)
    return builder.build()


def config(**overrides: Any) -> TopicConfig:
    return topic_config(TopicConfig(), {key.replace("_", "."): str(value) for key, value in overrides.items()})


def make_log(disk: MemoryDisk, clock: ManualClock | None = None, **overrides: Any) -> PartitionLog:
    disk.makedirs(PATH)
    return new_log(
        TP,
        config(**overrides),
        TOPIC_ID,
        LogPlace(disk, HandleCache(disk, 64), DIRECTORY, PATH, (clock or ManualClock()).wall_ms),
    )


def reopen(
    disk: MemoryDisk,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    handle_capacity: int = 64,
    **overrides: Any,
) -> PartitionLog:
    return load_log(
        TP,
        config(**overrides),
        LogPlace(disk, HandleCache(disk, handle_capacity), DIRECTORY, PATH, ManualClock().wall_ms),
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def everything(log: PartitionLog, *, max_bytes: int = 1 << 30) -> bytes:
    """All batches of the log, read as a client would."""
    parts: list[bytes] = []
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.read(offset, max_bytes)
        if not info.records:
            break
        data = b"".join(info.records)
        parts.append(data)
        *_, (_, last) = split_batches(data)
        offset = last.next_offset
    return b"".join(parts)


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in read_records(everything(log))]


async def find_timestamp(log: PartitionLog, timestamp_ms: int) -> tuple[int, int, int] | None:
    """The first record with such a timestamp."""
    return await log.offset_for_timestamp(timestamp_ms, cold_reads(log), ("test", 0))


def cold_reads(log: PartitionLog) -> ColdReads:
    """Loads for one log."""
    return ColdReads(log.disk, RealClock(), Supervisor(lambda error: None))
