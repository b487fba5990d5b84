"""Speed of one partition's log on a real disk: append, follower append, read, flush; and of many idle partitions.

    python -m bench.log_append [--dir DIR] [--mb 512] [--partitions 2000]

Prints a table and writes JSON (--json FILE). Ratios are against plain pwritev of the same buffers in the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.env.seams import LEAST_LOG_FILES, Disk
from kafkalite.env.supervisor import Supervisor
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import load_log, new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.log_manager import LogManager
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import Offset, TopicId, TopicPartition
from kafkalite.record.builder import RecordBatchBuilder

TP = TopicPartition("bench", 0)
ID = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")


class WallClock:
    """Implements kafkalite.env.seams.Clock."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def processor(self) -> float:
        return time.thread_time()

    def monotonic(self) -> float:
        return time.perf_counter()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def make_batch(size: int, producer_id: int = -1, sequence: int = -1) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence
    )
    value = os.urandom(min(size, 1000))
    while builder.size_bytes + len(value) + 20 < size or not builder.record_count:
        builder.append(None, value, (), 1_700_000_000_000)
    return builder.build()


def timed(what: str, total_bytes: int, operations: int, work: Callable[[], object]) -> dict[str, object]:
    gc.collect()
    started, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    row: dict[str, object] = {
        "what": what,
        "mb_per_s": round(total_bytes / seconds / 1e6),
        "us_per_operation": round(seconds / operations * 1e6, 2),
        "cpu_us_per_operation": round(cpu_seconds / operations * 1e6, 2),
    }
    print(
        f"{what:46} {row['mb_per_s']:>7} MB/s {row['us_per_operation']:>9} us each, CPU {row['cpu_us_per_operation']:>9} us"
    )
    return row


def plain(path: str, batch: bytes, count: int) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    at = 0
    for _ in range(count):
        at += os.pwritev(descriptor, [batch], at)
    os.close(descriptor)


def of_size(disk: Disk, root: str, megabytes: int, size: int) -> list[dict[str, object]]:
    """What batches of the given size cost."""
    rows = []
    batch = make_batch(size)
    count = max(200, min(megabytes * 1_000_000 // len(batch), 100_000))
    total = count * len(batch)
    path = f"{root}/{TP}"

    def place() -> LogPlace:
        return LogPlace(disk, HandleCache(disk, LEAST_LOG_FILES), root, path, WallClock().wall_ms)

    def fresh() -> PartitionLog:
        shutil.rmtree(path, ignore_errors=True)
        disk.makedirs(path)
        return new_log(TP, TopicConfig(), ID, place())

    rows.append(timed(f"{size} B plain pwritev", total, count, lambda: plain(f"{root}/plain", batch, count)))
    log = fresh()
    buffer = memoryview(bytearray(batch))

    def lead(log: PartitionLog) -> None:
        for _ in range(count):
            log.append_as_leader(buffer, 1)

    rows.append(timed(f"{size} B append_as_leader", total, count, lambda: lead(log)))
    log.close()
    log = fresh()

    def idempotent(log: PartitionLog) -> None:
        for made in prepared:
            log.append_as_leader(made, 1)

    prepared: list[memoryview] = []
    sequence = 0
    few = min(count, 5000)
    one = make_batch(size, 7, 0)
    records = int.from_bytes(one[57:61], "big")
    for _ in range(few if size < 100_000 else 0):
        prepared.append(memoryview(bytearray(make_batch(size, 7, sequence) if size < 20_000 else one)))
        sequence += records
    if prepared:
        rows.append(timed(f"{size} B append_as_leader, idempotent", len(one) * few, few, lambda: idempotent(log)))
    log.close()
    log = fresh()
    lead(log)

    def read(log: PartitionLog, *, verify: bool) -> None:
        offset = 0
        while offset < log.log_end_offset:
            data = log.read(offset, 1 << 20, verify=verify).records[0]
            offset += len(data) // len(batch) * records

    reads = max(1, total // (1 << 20))
    rows.append(timed(f"{size} B read of 1 MiB, verified", total, reads, lambda: read(log, verify=True)))
    rows.append(timed(f"{size} B read of 1 MiB, unverified", total, reads, lambda: read(log, verify=False)))
    chunk = b"".join(bytes(log.read(0, 1 << 20).records[0]) for _ in range(1))
    chunks = max(1, min(total // len(chunk), 400))
    log.close()
    log = fresh()

    def follow(log: PartitionLog) -> None:
        for _ in range(chunks):
            log.append_as_follower(chunk)
            log.log_end_offset = Offset(0)  # the same bytes again: only the cost counts here

    rows.append(timed(f"{size} B append_as_follower of 1 MiB", len(chunk) * chunks, chunks, lambda: follow(log)))
    log.close()
    log = fresh()
    lead(log)
    log.close()
    rows.append(
        timed(
            f"{size} B recovery (unclean open)",
            total,
            1,
            lambda: load_log(TP, TopicConfig(), place()),
        )
    )
    return rows


def one_partition(disk: Disk, root: str, megabytes: int) -> list[dict[str, object]]:
    rows = []
    for size in (200, 1024, 16 * 1024, 128 * 1024, 1024 * 1024):
        rows += of_size(disk, root, megabytes, size)
    shutil.rmtree(f"{root}/{TP}", ignore_errors=True)
    return rows


async def many_partitions(disk: Disk, root: str, count: int) -> dict[str, object]:
    def fatal(error: BaseException) -> None:
        raise error

    def manager() -> LogManager:
        return LogManager(
            BrokerConfig(log_dirs=(f"{root}/many",)), disk, WallClock(), supervisor=Supervisor(fatal),
        )  # fmt: skip

    def rss_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

    logs = manager()
    await logs.opening.start("bench", 1, {})
    gc.collect()
    before, started = rss_mb(), time.perf_counter()
    for number in range(count):
        logs.placing.create(TopicPartition("many", number), ID, TopicConfig())
    created = time.perf_counter() - started
    row: dict[str, object] = {"partitions": count, "create_us": round(created / count * 1e6, 1)}
    row["idle_bytes_each"] = round((rss_mb() - before) * 1e6 / count)
    batch = make_batch(300)
    started = time.perf_counter()
    for log in logs.all():
        log.append_as_leader(bytearray(batch), 1)
    row["first_append_us"] = round((time.perf_counter() - started) / count * 1e6, 1)
    row["open_descriptors"] = len(os.listdir("/proc/self/fd"))
    started = time.perf_counter()
    await logs.close()
    row["clean_close_s"] = round(time.perf_counter() - started, 2)
    logs = manager()
    started = time.perf_counter()
    await logs.opening.start("bench", 1, {})
    row["clean_start_s"] = round(time.perf_counter() - started, 2)
    await logs.close(clean=False)
    logs = manager()
    started = time.perf_counter()
    await logs.opening.start("bench", 1, {})
    row["unclean_start_s"] = round(time.perf_counter() - started, 2)
    await logs.close(clean=False)
    print(row)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--json", default=None)
    parser.add_argument("--disk", default="kafkalite.env.real_disk:RealDisk")
    arguments = parser.parse_args()
    module, name = arguments.disk.split(":")
    disk: Disk = getattr(importlib.import_module(module), name)()
    root = tempfile.mkdtemp(prefix="log-append-", dir=arguments.dir)
    try:
        rows = one_partition(disk, root, arguments.mb)
        many = asyncio.run(many_partitions(disk, root, arguments.partitions))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"one_partition": rows, "many_partitions": many}, indent=1))


if __name__ == "__main__":
    main()
