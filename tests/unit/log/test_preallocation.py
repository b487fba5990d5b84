"""`preallocate`: new segments get their room at once; nobody sees it in the file's size."""

from __future__ import annotations

import os
from pathlib import Path

from kafkalite.env.real_disk import RealDisk
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import load_log, new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from tests.support.logs import TOPIC_ID, TP, batch, config, make_log
from tests.support.memory_disk import ManualClock, MemoryDisk

SEGMENT = 1 << 20


def reserved(disk: MemoryDisk) -> list[tuple[str, int]]:
    return [(path.rpartition("/")[2], size) for what, path, size in disk.calls if what == "reserve"]


def append(log: PartitionLog, value: bytes) -> None:
    log.append_as_leader(batch([value]), leader_epoch=0)


def test_each_new_segment_gets_its_room_once() -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=1000, preallocate="true")
    for _ in range(3):
        append(log, b"x" * 600)
        append(log, b"x" * 10)
    names = [f"{segment.base_offset:020d}.log" for segment in log.segments]
    assert len(names) >= 2
    assert reserved(disk) == [(name, 1000) for name in names]


def test_no_room_is_taken_unless_the_topic_says_so() -> None:
    disk = MemoryDisk()
    append(make_log(disk, segment_bytes=1000), b"x" * 600)
    assert reserved(disk) == []


def taken(path: Path) -> int:
    return path.stat().st_blocks * 512


async def test_the_room_is_there_on_a_real_disk_until_a_roll_or_a_clean_stop(tmp_path: Path) -> None:
    disk = RealDisk()
    probe = disk.open(str(tmp_path / "probe"), create=True)
    is_possible = probe.reserve(SEGMENT)
    probe.close()
    path = tmp_path / "events-0"
    settings = config(segment_bytes=SEGMENT, preallocate="true")

    def opened(*, is_new: bool) -> PartitionLog:
        place = LogPlace(disk, HandleCache(disk, 8), str(tmp_path), str(path), ManualClock().wall_ms)
        if is_new:
            os.makedirs(path)
            return new_log(TP, settings, TOPIC_ID, place)
        return load_log(TP, settings, place)

    first, second = path / f"{0:020d}.log", path / f"{1:020d}.log"
    log = opened(is_new=True)
    append(log, b"one")
    assert first.stat().st_size < 1000 and (taken(first) >= SEGMENT) is is_possible
    log.roll()
    assert taken(first) < SEGMENT
    append(log, b"two")
    assert (taken(second) >= SEGMENT) is is_possible  # some file systems cannot give room beforehand

    log = opened(is_new=False)  # as after a kill -9: the room behind the end is not damage
    assert (log.log_end_offset, taken(second) >= SEGMENT) == (2, is_possible)
    append(log, b"three")
    await log.close_cleanly()
    log.close()
    assert taken(second) < SEGMENT
    log = opened(is_new=False)
    assert log.log_end_offset == 3
    log.close()
