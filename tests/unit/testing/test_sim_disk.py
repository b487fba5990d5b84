"""What the simulated disk keeps through a crash and what it may lose with the power."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.env.real_disk import RealDisk
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulated.loop import SimLoop


def make(seed: int = 1) -> tuple[SimLoop, SimDisk]:
    loop = SimLoop()  # type: ignore[abstract]
    return loop, SimDisk(loop, SimClock(loop), random.Random(seed))


def outcomes(act: Callable[[SimDisk], Awaitable[None]]) -> set[bytes | None]:
    """The content of /d/f after a loss of power, over many seeds."""
    loop = SimLoop()  # type: ignore[abstract]

    async def main() -> set[bytes | None]:
        seen: set[bytes | None] = set()
        for seed in range(120):
            disk = SimDisk(loop, SimClock(loop), random.Random(seed))
            await act(disk)
            disk.lose_power()
            seen.add(disk.read_file("/d/f") if disk.exists("/d/f") else None)
        return seen

    seen: set[bytes | None] = loop.run_until_complete(main())
    loop.close()
    return seen


async def _durable_file(disk: SimDisk, content: bytes) -> None:
    disk.makedirs("/d")
    file = disk.open("/d/f", create=True)
    file.append([content])
    await file.sync()
    disk.sync_dir("/d")


def test_what_is_synced_survives_with_its_name() -> None:
    async def act(disk: SimDisk) -> None:
        await _durable_file(disk, b"safe")

    assert outcomes(act) == {b"safe"}


def test_a_synced_file_whose_directory_was_not_may_be_gone() -> None:
    async def act(disk: SimDisk) -> None:
        disk.makedirs("/d")
        disk.sync_dir("/")
        file = disk.open("/d/f", create=True)
        file.append([b"safe"])
        await file.sync()

    assert outcomes(act) == {None, b"safe"}


def test_what_is_not_synced_is_lost_torn_zeroed_or_kept() -> None:
    async def act(disk: SimDisk) -> None:
        await _durable_file(disk, b"safe")
        file = disk.open("/d/f")
        file.append([b"AB", b"C"])
        file.append([b"DE"])

    seen = outcomes(act)
    assert all(content is not None and content.startswith(b"safe") for content in seen)
    tails = {content[4:] for content in seen if content is not None}
    assert {b"", b"ABC", b"ABCDE", b"A", b"\0\0", b"ABC\0"} <= tails
    assert tails <= {b"ABCDE"[:n] for n in range(6)} | {b"\0", b"\0\0", b"ABC\0"}


def test_a_truncation_may_be_undone() -> None:
    async def act(disk: SimDisk) -> None:
        await _durable_file(disk, b"0123456789")
        disk.open("/d/f").truncate(3)

    assert outcomes(act) == {b"0123456789", b"012"}


def test_an_atomic_write_is_the_old_or_the_new() -> None:
    async def durable(disk: SimDisk) -> None:
        await _durable_file(disk, b"old")
        disk.write_file_atomic("/d/f", b"new")

    async def careless(disk: SimDisk) -> None:
        await _durable_file(disk, b"old")
        disk.write_file_atomic("/d/f", b"new", durable=False)

    assert outcomes(durable) == {b"new"}
    assert outcomes(careless) >= {b"old", b"new", b""}


def test_a_rename_that_is_not_synced_may_be_undone() -> None:
    async def act(disk: SimDisk) -> None:
        await _durable_file(disk, b"x")
        disk.rename("/d/f", "/d/g")

    assert outcomes(act) == {b"x", None}


def test_a_synced_directory_says_nothing_about_another() -> None:
    async def act(disk: SimDisk) -> None:
        disk.makedirs("/d")
        disk.makedirs("/other")
        file = disk.open("/d/f", create=True)
        file.append([b"x"])
        await file.sync()
        disk.sync_dir("/other")

    assert outcomes(act) == {b"x", None}


def test_the_names_in_a_renamed_directory_stay_synced() -> None:
    for seed in range(40):
        loop, disk = make(seed)
        disk.makedirs("/m/d")
        disk.write_file_atomic("/m/d/f", b"x")
        disk.sync_dir("/m")
        disk.rename("/m/d", "/m/e")
        disk.lose_power()
        assert [disk.read_file(f"/m/{name}/f") for name in disk.listdir("/m")] == [b"x"]
        loop.close()


def test_names_survive_as_a_prefix_of_their_order() -> None:
    for seed in range(100):
        loop, disk = make(seed)
        disk.makedirs("/d")
        for number in range(5):
            disk.open(f"/d/{number}", create=True)
        disk.lose_power()
        names = disk.listdir("/d") if disk.exists("/d") else []
        assert names == [str(number) for number in range(len(names))]
        loop.close()


def test_what_was_appended_during_a_sync_is_not_covered_by_it() -> None:
    loop, disk = make()

    async def main() -> None:
        await _durable_file(disk, b"")
        file = disk.open("/d/f")
        file.append([b"before"])
        async with asyncio.TaskGroup() as group:
            group.create_task(file.sync())
            group.create_task(file.sync())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            file.append([b"during"])
        assert disk.unsynced_bytes("/d/f") == 6
        assert loop.now_ns > 100_000

    loop.run_until_complete(main())
    loop.close()


def test_a_crash_of_the_process_loses_no_bytes_but_its_locks() -> None:
    loop, disk = make()
    process = loop.process("host")

    async def program() -> None:
        disk.makedirs("/d")
        disk.lock("/d/.lock")
        disk.open("/d/f", create=True).append([b"cached"])
        with pytest.raises(BlockingIOError):
            disk.lock("/d/.lock")
        await asyncio.Event().wait()

    async def main() -> None:
        loop.start(process, program(), "program")
        await asyncio.sleep(1)
        loop.kill_process(process)
        disk.process_died(process)
        assert disk.read_file("/d/f") == b"cached"
        disk.lock("/d/.lock")()

    loop.run_until_complete(main())
    loop.close()


def test_a_dead_process_has_no_system_calls() -> None:
    loop, disk = make()
    process = loop.process("host")
    disk.makedirs("/d")
    loop.kill_process(process)
    with pytest.raises(OSError, match="dead"):
        process.context.run(disk.open, "/d/f", create=True)
    loop.close()


def test_a_failing_disk_and_a_full_one() -> None:
    loop, disk = make()
    disk.makedirs("/a")
    disk.makedirs("/ab")
    file = disk.open("/a/f", create=True)
    disk.fail("/a")
    for act in (lambda: file.append([b"x"]), lambda: disk.listdir("/a"), lambda: disk.sync_dir("/a")):
        with pytest.raises(OSError) as broken:
            act()
        assert broken.value.errno == errno.EIO
    assert disk.listdir("/ab") == []
    disk.repair("/a")
    disk.capacity_bytes = 10
    file.append([b"12345678"])
    with pytest.raises(OSError) as full:
        file.append([b"9ab"])
    assert full.value.errno == errno.ENOSPC
    assert (file.size(), disk.free_bytes("/a")) == (8, 2)
    disk.flip_bit("/a/f", 0)
    assert disk.read_file("/a/f") == b"02345678"
    loop.close()


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EMFILE, errno.ENOMEM])
def test_an_operation_answers_only_what_a_kernel_does(error: int) -> None:
    """Found by simulation (harsh seed 70021): fsync answered ENOENT, and the only log in sync waited for an operator."""
    loop, disk = make()
    file = disk.open("/f", create=True)
    disk.fail("/f", error)
    with pytest.raises(OSError) as refused:
        disk.open("/f")
    assert refused.value.errno == error
    if error != errno.ENOMEM:
        file.append([b"x"])
        assert file.read_at(0, 1) == b"x"
    loop.run_until_complete(file.sync())
    disk.fail("/f", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        loop.run_until_complete(file.sync())
    loop.close()


def test_run_blocking_runs_in_virtual_time() -> None:
    loop, disk = make()
    assert loop.run_until_complete(disk.run_blocking(lambda: 42)) == 42
    assert loop.now_ns > 0
    loop.close()


#: What both disks must answer alike: operations on a few names.
_NAMES = st.sampled_from(["a", "b", "d", "d/x", "d/y", "e", "e/x"])
_OPERATIONS = st.one_of(
    st.tuples(st.just("write"), _NAMES, st.binary(max_size=6)),
    st.tuples(st.just("overwrite"), _NAMES, st.integers(0, 8)),
    st.tuples(st.just("truncate"), _NAMES, st.integers(0, 8)),
    st.tuples(st.just("atomic"), _NAMES, st.binary(max_size=6)),
    st.tuples(st.just("rename"), _NAMES, _NAMES),
    st.tuples(st.sampled_from(["makedirs", "remove", "remove_tree", "listdir", "read", "exists", "sync_dir"]), _NAMES),
)


def _perform(disk: RealDisk | SimDisk, base: str, operation: tuple[object, ...]) -> object:
    what, name, *rest = operation
    path = f"{base}/{name}"
    try:
        if what in ("write", "overwrite", "truncate"):
            file = disk.open(path, create=what == "write")
            try:
                if what == "write":
                    file.append([rest[0]])  # type: ignore[list-item]
                elif what == "overwrite":
                    file.write_at(rest[0], b"##")  # type: ignore[arg-type]
                else:
                    file.truncate(rest[0])  # type: ignore[arg-type]
                return file.size()
            finally:
                file.close()
        if what == "atomic":
            return disk.write_file_atomic(path, rest[0])  # type: ignore[arg-type]
        if what == "rename":
            return disk.rename(path, f"{base}/{rest[0]}")
        method = {"read": "read_file"}.get(str(what), str(what))
        return getattr(disk, method)(path)
    except OSError as error:
        return type(error).__name__ if isinstance(error, FileNotFoundError) else "OSError"


@settings(max_examples=60, deadline=None)
@given(operations=st.lists(_OPERATIONS, max_size=25))
def test_agrees_with_the_real_disk(
    operations: list[tuple[object, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    real, (loop, simulated) = RealDisk(), make()
    base: Path = tmp_path_factory.mktemp("disk")
    simulated.makedirs("/base")
    try:
        for operation in operations:
            if operation[0] == "rename" and str(operation[2]).startswith(str(operation[1])):
                continue  # into itself
            if operation[0] in ("remove_tree", "rename") and os.path.isfile(base / str(operation[1])):
                continue
            assert _perform(real, str(base), operation) == _perform(simulated, "/base", operation), operation
    finally:
        real.close()
        loop.close()
