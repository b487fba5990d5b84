"""What a partition of an internal topic costs: compaction while offsets are committed, and loading after a failover.

    python -m bench.coordinator_loading [--segment-mb 100 10 1] [--mb 200] [--offsets 5000]

Offsets are committed in a log on a real disk, one in each batch, and the cleaner has its turn after each 10 MB, or when a segment is full.
Seconds are CPU of this process. `load` is of the log as a coordinator would find it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from types import SimpleNamespace
from typing import Any, cast

from bench.log_append import ID, WallClock
from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.coordinators.groups.loading import GroupReplay
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.groups.partition import GroupPartition
from kafkalite.coordinators.groups.records import common as records
from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.seams import LEAST_LOG_FILES
from kafkalite.log.cleaner import compact
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import GROUP_TOPIC, LeaderEpoch, Offset, TopicPartition
from kafkalite.record.builder import RecordBatchBuilder

_READ_BYTES = 4 * 2**20
_PASS_BYTES = 10_000_000


def commit(number: int, offsets: int) -> bytes:
    """A batch with one committed offset."""
    which = random.randrange(offsets)
    builder = RecordBatchBuilder()
    partition = TopicPartition("orders-and-payments", which % 100)
    value = records.offset_value(CommittedOffset(Offset(number), 3, "", 1_764_000_000_000 + number, topic_id=ID))
    builder.append(records.offset_key(f"service-{which // 100}", partition), value, (), 1_764_000_000_000 + number)
    return builder.build()


def load(log: PartitionLog) -> tuple[float, int]:
    """(seconds, offsets that are known then)."""
    services = cast(Any, SimpleNamespace(clock=WallClock(), config=BrokerConfig()))
    replay = GroupReplay(services)
    internal: InternalLog[GroupPartition] = InternalLog(
        services, GROUP_TOPIC, GroupPartition, replay.replay, _ignore, _ignore, settle=replay.settle
    )
    partition = GroupPartition(0, LeaderEpoch(0))
    began, offset = time.process_time(), Offset(0)
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, _READ_BYTES).records)
        *_, offset = internal.replaying(partition, data, offset)
    return time.process_time() - began, sum(len(entry.offsets.committed) for entry in partition.entries.values())


def _ignore(_: GroupPartition) -> None:
    return


async def measure(directory: str, segment_bytes: int, total_bytes: int, offsets: int) -> None:
    """One line."""
    disk = RealDisk()
    path = f"{directory}/{GROUP_TOPIC}-0"
    disk.makedirs(path)
    config = TopicConfig(cleanup_policy="compact", segment_bytes=segment_bytes)
    place = LogPlace(disk, HandleCache(disk, LEAST_LOG_FILES), directory, path, WallClock().wall_ms)
    log = new_log(TopicPartition(GROUP_TOPIC, 0), config, ID, place)
    spent, passes, written, before, dirty = 0.0, 0, 0, 0, 0
    number = 0
    while written < total_bytes:
        batch = commit(number, offsets)
        log.append_as_leader(bytearray(batch), 1)
        number += 1
        written += len(batch)
        if written - before >= _PASS_BYTES:
            before = written
            began = time.process_time()
            reached = await compact(
                log, disk, first_dirty_offset=dirty, high_watermark=log.log_end_offset, now_ms=WallClock().wall_ms()
            )
            spent += time.process_time() - began
            passes += reached != dirty
            dirty = reached
    size = log.size_bytes
    seconds, known = load(log)
    print(
        f"segments of {segment_bytes / 1e6:6.1f} MB: {passes:3} passes, {spent / written * 1e9:5.1f} s per GB committed;"
        f" left {size / 1e6:6.1f} MB, loaded in {seconds:6.2f} s ({size / max(seconds, 1e-9) / 1e6:.1f} MB/s, {known} offsets)",
        flush=True,
    )
    log.close()
    shutil.rmtree(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segment-mb", type=float, nargs="+", default=[100, 10, 1])
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--offsets", type=int, default=5_000)
    arguments = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as directory:
        for megabytes in arguments.segment_mb:
            asyncio.run(measure(directory, int(megabytes * 2**20), arguments.mb * 1_000_000, arguments.offsets))


if __name__ == "__main__":
    main()
