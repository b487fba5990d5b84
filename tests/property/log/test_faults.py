"""A random fault at a random operation of the disk, then recovery: the log is a prefix of what was written, with all that was synced."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.errors import StorageError
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.batch import assign_in_place, parse_header
from tests.support.logs import batch, everything, make_log, reopen
from tests.support.memory_disk import Buffer, MemoryDisk, MemoryFile

SETTINGS: dict[str, Any] = {"segment_bytes": 1024, "index_interval_bytes": 150}


class FaultyFile(MemoryFile):
    def append(self, buffers: Sequence[Buffer]) -> int:
        disk = self._disk
        assert isinstance(disk, FaultyDisk)
        if disk.strikes():
            data = b"".join(buffers)
            self._inode.data += data[: disk.torn % (len(data) + 1)]  # what a failed write leaves behind
            raise disk.fault(self.path)
        return super().append(buffers)

    def read_at(self, offset: int, size: int) -> bytes:
        self._disk.op(self.path)  # type: ignore[attr-defined]
        return super().read_at(offset, size)

    def truncate(self, size: int) -> None:
        self._disk.op(self.path)  # type: ignore[attr-defined]
        super().truncate(size)

    async def sync(self) -> None:
        self._disk.op(self.path)  # type: ignore[attr-defined]
        await super().sync()


class FaultyDisk(MemoryDisk):
    """Operation number `at` fails, and those after it if it is `lasting`."""

    def __init__(self, at: int, *, lasting: bool, torn: int, code: int) -> None:
        super().__init__()
        self.at, self.lasting, self.torn, self.code = at, lasting, torn, code
        self.count = 0
        self.is_armed = False

    def strikes(self) -> bool:
        if not self.is_armed:
            return False
        self.count += 1
        return self.count == self.at or (self.lasting and self.count > self.at)

    def fault(self, path: str) -> OSError:
        return OSError(self.code, "injected", path)

    def op(self, path: str) -> None:
        if self.strikes():
            raise self.fault(path)

    def _check(self, path: str) -> None:
        self.op(path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        plain = super().open(path, create=create)
        self.open_files -= 1
        return FaultyFile(self, path, plain._inode)


Step = tuple[str, int]


def run(log: PartitionLog, steps: Sequence[Step], written: list[bytes]) -> int:
    """Do the steps until one fails; how much is surely durable. `written` gets every batch that was tried."""
    epoch, durable, end = 1, 0, 0
    actions: dict[str, Callable[[], object]] = {
        "flush": lambda: asyncio.run(log.flush()),
        "flush_rolled": lambda: asyncio.run(log.flush_rolled()),
        "roll": log.roll,
        "read": lambda: log.read(max(0, log.log_end_offset - 3), 500),
        "start": lambda: log.advance_log_start_offset(0),
        "epoch": lambda: log.assign_epoch_start(epoch, log.log_end_offset),
    }
    for name, number in steps:
        if name == "append":
            sent = batch([b"x" * number] * (1 + number % 3))
            made = bytearray(sent)
            assign_in_place(memoryview(made), 0, end, epoch)
            written.append(bytes(made))
            log.append_as_leader(sent, epoch)
            end = parse_header(made).next_offset
        else:
            epoch += name == "epoch"
            actions[name]()
        durable = max(durable, log.synced_offset)
    return durable


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 300)),
        st.tuples(st.sampled_from(["append", "flush", "flush_rolled", "roll", "read", "epoch"]), st.integers(1, 50)),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.checklist(80)
@given(
    steps=steps,
    at=st.integers(1, 120),
    lasting=st.booleans(),
    torn=st.integers(0, 400),
    code=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EROFS]),
    power=st.one_of(st.none(), st.integers(0, 2**32)),
)
@settings(max_examples=400, deadline=None)
def test_a_fault_anywhere_leaves_a_prefix_with_all_that_was_synced(
    steps: list[Step], at: int, *, lasting: bool, torn: int, code: int, power: int | None
) -> None:
    disk = FaultyDisk(at, lasting=lasting, torn=torn, code=code)
    log = make_log(disk, **SETTINGS)
    disk.is_armed = True
    written: list[bytes] = []
    try:
        run(log, steps, written)
    except StorageError as error:
        assert error.directory == "/data" and error.path.startswith("/data/"), "with its place, whatever failed"
        assert isinstance(error.__cause__, OSError) or "earlier" in str(error)
        in_service = log.log_end_offset
        assert in_service <= sum(1 + parse_header(one).last_offset_delta for one in written)
    synced, point = log.synced_offset, log.recovery_point
    disk.is_armed = False
    if power is None:
        disk.process_crash()
    else:
        disk.power_loss(random.Random(power))
    again = reopen(disk, recovery_point=point, **SETTINGS) if disk.exists("/data/events-0") else None
    if again is None:
        assert synced == 0
        return
    found = everything(again)
    start = again.log_start_offset
    # Only a loss of power may take a first segment whose name was not synced, hence nothing in it.
    assert start == 0 or (power is not None and synced == 0)
    whole = b"".join(one for one in written if parse_header(one).base_offset >= start)
    assert whole[: len(found)] == found, "a prefix of what was written"
    assert again.log_end_offset >= synced, f"synced to {synced}, found {again.log_end_offset}"


class ShortDisk(FaultyDisk):
    """Operations whose numbers are in `at_times` find no descriptor."""

    def __init__(self, at_times: set[int]) -> None:
        super().__init__(0, lasting=False, torn=0, code=errno.EMFILE)
        self.at_times = at_times

    def strikes(self) -> bool:
        if not self.is_armed:
            return False
        self.count += 1
        return self.count in self.at_times

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        return MemoryDisk.open(self, path, create=create)


def _sequence(log: PartitionLog) -> int:
    known = log.active_producers().get(7)
    return 0 if known is None else known.last_sequence + 1


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "append",
                    "append",
                    "idempotent",
                    "many",
                    "flush",
                    "flush_rolled",
                    "roll",
                    "read",
                    "epoch",
                    "cut",
                    "start",
                    "retention",
                ]
            ),
            st.integers(1, 300),
        ),
        min_size=1,
        max_size=40,
    ),
    at_times=st.sets(st.integers(1, 300), max_size=20),
    is_clean=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_a_log_that_stays_in_service_without_descriptors_is_what_was_acknowledged(
    steps: list[Step], at_times: set[int], *, is_clean: bool
) -> None:
    disk = ShortDisk(at_times)
    changes: dict[str, Any] = SETTINGS | {"retention_bytes": 2_000}
    log = make_log(disk, **changes)
    disk.is_armed = True
    epoch, end, written = 1, 0, list[bytes]()
    for name, number in steps:
        sent = batch([b"x" * number])
        if name == "idempotent":
            sent = batch([b"y"], producer_id=7, producer_epoch=0, base_sequence=_sequence(log))
        data = sent * (8 if name == "many" else 1)
        actions: dict[str, Callable[[], object]] = {
            "flush": lambda: asyncio.run(log.flush()),
            "flush_rolled": lambda: asyncio.run(log.flush_rolled()),
            "roll": log.roll,
            "read": lambda: log.read(log.log_start_offset, 500),
            "start": lambda: log.advance_log_start_offset(min(log.log_start_offset + 1, log.log_end_offset)),
            "epoch": partial(log.assign_epoch_start, epoch + 1, log.log_end_offset),
            "cut": partial(log.truncate_to, max(log.log_start_offset, end - number % 5)),
            "retention": lambda: log.delete_old_segments(log.log_end_offset, 0),
        }
        try:
            if name in actions:
                epoch += name == "epoch"
                actions[name]()
            else:
                log.append_as_leader(data, epoch)
                for _ in range(len(data) // len(sent)):
                    made = bytearray(sent)
                    assign_in_place(memoryview(made), 0, end, epoch)
                    written.append(bytes(made))
                    end += 1
        except StorageError:
            if log.is_failed:
                break
        if name == "cut" and log.log_end_offset < end:
            end = log.log_end_offset
            del written[end:]
        assert log.log_end_offset == end
    disk.is_armed = False
    start, failed = log.log_start_offset, log.is_failed
    if failed or not is_clean:
        disk.process_crash()
    else:
        assert everything(log) == b"".join(written[start:])
        asyncio.run(log.close_cleanly())
        log.close()
    again = reopen(
        disk, clean=is_clean and not failed, recovery_point=log.recovery_point, log_start_offset=start, **changes
    )
    if not failed:
        assert (again.log_start_offset, again.log_end_offset) == (start, end)
        assert everything(again) == b"".join(written[start:])
        assert {key: entry.last_sequence for key, entry in again.active_producers().items()} == {
            key: entry.last_sequence for key, entry in log.active_producers().items()
        }
