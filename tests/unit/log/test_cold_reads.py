"""Reads of what is not in the page cache: nothing is half done, and what is read in the end is what is there then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.env.real_disk import RealDisk
from kafkalite.env.residency import NotResident, ResidentOnly, is_required
from kafkalite.log.cold_reads import ATTEMPTS
from kafkalite.log.segment import Segment
from tests.support.logs import batch, cold_reads, find_timestamp, make_log, reopen
from tests.support.memory_disk import MemoryDisk


def _chilled(disk: MemoryDisk) -> set[str]:
    disk.cold = {path for path in disk.entries if path.endswith((".log", "index"))}
    return set(disk.cold)


async def test_a_read_that_may_not_wait_says_what_is_missing_and_is_repeated_after_the_load() -> None:
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=2000, index_interval_bytes=100)
    for number in range(50):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=number), 1)
    log.prepare_clean_close()
    log = reopen(disk, segment_bytes=2000, index_interval_bytes=100)
    _chilled(disk)
    with pytest.raises(NotResident):
        log.read(7, 10, may_wait=False)
    cold = cold_reads(log)
    for offset in (7, 33, 49):
        info = await cold.attempt(("reader", 0), log.directory, lambda offset=offset: log.read(offset, 1))  # type: ignore[misc]
        assert bytes(info.records[0]) == bytes(log.read(offset, 1).records[0])
    assert 0 < cold.loads < ATTEMPTS  # no read was let wait on the loop
    assert not is_required()
    _chilled(disk)
    assert await find_timestamp(log, 20) == (20, 20, 1)


@pytest.mark.parametrize("wanted", [20, None])
async def test_a_look_up_by_timestamp_does_not_let_the_loop_wait(
    wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the indexes nor for batches' headers; what a thread of the disk reads may wait."""
    disk = MemoryDisk()
    log = make_log(disk, segment_bytes=2000, index_interval_bytes=100)
    for number in range(50):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=number), 1)
    log.prepare_clean_close()
    log = reopen(disk, segment_bytes=2000, index_interval_bytes=100)
    _chilled(disk)
    waited, in_thread = [], [False]

    def check(path: str, offset: int, size: int) -> None:
        if path in disk.cold and is_required():
            raise NotResident(path, offset, size)
        if path in disk.cold and not in_thread[0]:
            waited.append(path)

    async def run_blocking(function: Callable[[], object], at: str = "") -> object:
        in_thread[0] = True
        try:
            return function()
        finally:
            in_thread[0] = False

    monkeypatch.setattr(disk, "check_resident", check)
    monkeypatch.setattr(disk, "run_blocking", run_blocking)
    cold = cold_reads(log)
    for _ in range(2):
        if wanted is None:
            assert await log.max_timestamp_offset(cold, ("reader", 0)) == (49, 49, 1)
        else:
            assert await log.offset_for_timestamp(wanted, cold, ("reader", 0)) == (20, 20, 1)
        for segment in log.segments:
            segment.close()  # and the second time only the indexes are in memory
        _chilled(disk)
    assert waited == []
    assert cold.loads > 0


async def test_indexes_that_are_made_again_are_whole_or_as_they_were() -> None:
    disk = MemoryDisk()
    log = make_log(disk, index_interval_bytes=100)
    for number in range(3000):
        log.append_as_leader(batch([f"{number}"], timestamp_ms=number), 1)
    log.prepare_clean_close()
    for path in [path for path in disk.entries if path.endswith("index")]:
        disk.entries[path].data[:] = b"damaged"
    log = reopen(disk, clean=True, index_interval_bytes=100)
    segment: Segment = log.segments[0]
    _chilled(disk)
    with pytest.raises(NotResident) as missing, ResidentOnly():
        segment.position_of(1234)
    while missing.value.path != segment.log_path:  # the index files first
        await disk.load(missing.value.path, 0, 1)
        with pytest.raises(NotResident) as missing, ResidentOnly():
            segment.position_of(1234)
    assert missing.value.size == segment.size, "all of the segment, or each attempt begins at its start"
    assert segment._indexes.offsets is None
    await disk.load(segment.log_path, 0, 1)
    with ResidentOnly():
        assert log.read(1234, 1).offset == 1234


async def test_a_file_system_tells_what_is_in_the_page_cache(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "file")
    file = disk.open(path, create=True)
    file.append([os.urandom(1 << 20)])
    await file.sync()
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    expected: bytes | None = None
    with ResidentOnly():
        try:
            expected = bytes(file.read_at(1000, 5000))  # tmpfs and others have everything, or cannot tell
        except NotResident as error:
            assert (error.path, error.offset, error.size) == (path, 1000, 5000)
    await disk.load(path, 0, 1 << 20)
    with ResidentOnly():
        assert bytes(file.read_at(1000, 5000)) == (expected or bytes(file.read_at(1000, 5000)))
        assert bytes(file.read_at((1 << 20) - 10, 100)) == bytes(file.read_at((1 << 20) - 10, 10))
        assert bytes(file.read_at(1 << 20, 10)) == b""
    await disk.load(str(tmp_path / "gone"), 0, 10)
    file.close()
    disk.close()


async def test_a_thread_may_wait_while_the_loop_may_not() -> None:
    with ResidentOnly():
        assert is_required()
        assert not await asyncio.get_running_loop().run_in_executor(None, is_required)
