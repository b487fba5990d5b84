"""No descriptor is left, because clients have them all, or no thread: what a log does then. Nothing of it is the disk's fault."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalite.config import TopicConfig
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.seams import File
from kafkalite.errors import StorageError
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import TopicPartition
from tests.support.logs import TOPIC_ID, batch, values
from tests.support.threads import no_thread


@contextmanager
def nothing_left() -> Iterator[None]:
    """Nobody in this process gets a descriptor, but for those that somebody gives back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No number above the highest one in use is to be had, and what is free below it is taken.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    taken: list[int] = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    made = RealDisk()
    yield made
    made.close()


def test_what_needs_a_descriptor_for_a_moment_has_one_held_back(disk: RealDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    assert disk.listdir(str(tmp_path)) == []  # the first operation is at a node's start, long before
    with nothing_left():
        with pytest.raises(OSError, match="Too many open files"):
            disk.open(path, create=True)
        for content in (b"one", b"two"):
            disk.write_file_atomic(path, content)
            assert disk.read_file(path) == content
        disk.sync_dir(str(tmp_path))
        assert disk.listdir(str(tmp_path)) == ["file"]
        disk.makedirs(str(tmp_path / "directory"))
        disk.remove_tree(str(tmp_path / "directory"))
        with pytest.raises(FileNotFoundError):
            disk.read_file(path + "-not")


def logs(disk: RealDisk, directory: Path, handles: HandleCache, count: int) -> list[PartitionLog]:
    for number in range(count):
        disk.makedirs(str(directory / f"t-{number}"))
    return [
        new_log(
            TopicPartition("t", number),
            TopicConfig(segment_bytes=2_048),
            TOPIC_ID,
            LogPlace(disk, handles, str(directory), str(directory / f"t-{number}"), lambda: 1),
        )
        for number in range(count)
    ]


def test_logs_go_on_with_the_descriptors_that_they_have(disk: RealDisk, tmp_path: Path) -> None:
    """Appends, new segments, new leader epochs, reads: of more logs than there are descriptors."""
    handles = HandleCache(disk, 64)
    made = logs(disk, tmp_path, handles, 12)
    for log in made[:3]:
        log.append_as_leader(bytearray(batch(["before"])), 1)
    with nothing_left():
        for epoch in range(2, 6):
            for log in made:
                log.append_as_leader(bytearray(batch(["x" * 700])), epoch)
        assert [value for _, value in values(made[0])] == [b"before", *[b"x" * 700] * 4]
    assert 0 < len(handles) <= 64
    assert [log.log_end_offset for log in made] == [5] * 3 + [4] * 9


def test_a_log_that_gets_no_descriptor_at_all_says_so(disk: RealDisk, tmp_path: Path) -> None:
    [log] = logs(disk, tmp_path, HandleCache(disk, 4), 1)
    with nothing_left(), pytest.raises(StorageError, match="Too many open files"):
        log.append_as_leader(bytearray(batch(["x"])), 1)


def test_handles_in_use_off_the_loop_stay_open(disk: RealDisk, tmp_path: Path) -> None:
    handles = HandleCache(disk, 4)
    pinned: File = handles.get(str(tmp_path / "pinned"), create=True)
    handles.pin(pinned)
    with nothing_left(), pytest.raises(OSError, match="Too many open files"):
        handles.get(str(tmp_path / "other"), create=True)
    pinned.append([b"still open"])
    handles.unpin(pinned)


async def test_a_log_whose_flush_gets_no_thread_stays_in_service(disk: RealDisk, tmp_path: Path) -> None:
    """Nothing was tried, so that nothing can have been lost: the next flush does it."""
    disk.separate(str(tmp_path))
    [log] = logs(disk, tmp_path, HandleCache(disk, 4), 1)
    log.append_as_leader(bytearray(batch(["x"])), 1)
    with no_thread(), pytest.raises(StorageError, match="thread"):
        await log.flush()
    assert not log.is_failed and log.synced_offset == 0
    assert await log.flush() == 1
    log.close()
