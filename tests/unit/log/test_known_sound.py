"""What a read has found sound is not checked again, unless something else than our appends may have changed it (ADR 47)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.config import TopicConfig
from kafkalite.env import real_file
from kafkalite.env.real_disk import RealDisk
from kafkalite.env.residency import NotResident
from kafkalite.errors import ErrorCode
from kafkalite.log import reading
from kafkalite.log.handles import HandleCache
from kafkalite.log.loader import new_log
from kafkalite.log.local_log import LogPlace
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import crc_of
from tests.support.failing import fails_with
from tests.support.logs import TOPIC_ID, TP, batch

COUNT = 20


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    disk = RealDisk()
    path = str(tmp_path / "t-0")
    disk.makedirs(path)
    log = new_log(TP, TopicConfig(), TOPIC_ID, LogPlace(disk, HandleCache(disk, 10), str(tmp_path), path, lambda: 1))
    fill(log)
    yield log
    log.close()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of the batches whose CRC was computed by reads."""
    found: list[int] = []

    def counting(data: bytes, position: int, size: int) -> int:
        found.append(position)
        return crc_of(data, position, size)

    monkeypatch.setattr(reading, "crc_of", counting)
    return found


def fill(log: PartitionLog) -> None:
    for _ in range(COUNT):
        log.append_as_leader(batch(["x" * 1000]), 1)


def read(log: PartitionLog, offset: int = 0, *, max_offset: int | None = None) -> tuple[bytes, int]:
    info = log.read(offset, 1 << 20, max_offset=max_offset, may_wait=False)
    return bytes(info.records[0]), info.next_offset


def test_a_second_read_of_the_same_bytes_checks_nothing(log: PartitionLog, checks: list[int]) -> None:
    first = read(log)
    assert len(checks) == COUNT
    assert read(log) == first and first[1] == COUNT
    assert read(log, 5, max_offset=15)[1] == 15
    assert len(checks) == COUNT


def test_what_is_appended_behind_a_checked_read_needs_no_check(log: PartitionLog, checks: list[int]) -> None:
    read(log)
    fill(log)
    assert read(log, COUNT)[1] == 2 * COUNT
    assert len(checks) == COUNT


def test_what_was_appended_without_any_read_is_checked_once(log: PartitionLog, checks: list[int]) -> None:
    read(log, COUNT // 2)
    assert len(checks) == COUNT // 2
    read(log)
    assert len(checks) == COUNT // 2 + COUNT
    read(log)
    assert len(checks) == COUNT // 2 + COUNT


@pytest.mark.checklist(58)
@pytest.mark.parametrize("then_appends", [False, True])
def test_bytes_that_another_program_changed_are_noticed(log: PartitionLog, *, then_appends: bool) -> None:
    read(log)
    path = log.segments[0].log_path
    before = os.stat(path).st_mtime_ns
    while os.stat(path).st_mtime_ns == before:  # the file system's clock has ticks of some milliseconds
        with open(path, "r+b") as file:
            file.seek(3_000)
            file.write(b"?")
    if then_appends:
        fill(log)
    data, end = read(log)
    assert len(data) < 3_000 and end == 2
    with fails_with(ErrorCode.CORRUPT_MESSAGE):
        read(log, end)


@pytest.mark.checklist(58)
def test_bytes_that_come_from_the_disk_again_are_checked_again(
    log: PartitionLog, checks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read(log)
    checks.clear()

    def missing(descriptor: int, path: str, offset: int, size: int, end: int) -> bytes:
        raise NotResident(path, offset, size)

    with monkeypatch.context() as context:
        context.setattr(real_file, "read_resident", missing)
        with pytest.raises(NotResident):
            read(log)
    read(log)
    assert len(checks) == COUNT


def test_a_truncation_ends_what_is_known(log: PartitionLog, checks: list[int]) -> None:
    read(log)
    checks.clear()
    log.truncate_to(10)
    fill(log)
    assert read(log)[1] == 10 + COUNT
    assert len(checks) == 10 + COUNT


def test_a_small_read_is_simply_checked(log: PartitionLog, checks: list[int]) -> None:
    read(log)
    checks.clear()
    info = log.read(3, 1_500, may_wait=False)
    assert (info.next_offset, len(checks)) == (4, 1)
