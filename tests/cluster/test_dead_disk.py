"""Disks of real processes die under load (KIP-18): nothing acknowledged is lost, the node stays, all heals by itself.

One node of three loses one of its three disks while numbered records are written with acks=all. In the end every
replica is in sync again, every record is where its acknowledgement said, and the times are printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.disks import (
    DescribeDisksRequest,
    DescribeDisksResponse,
    DiskOnlineRequest,
    DiskOnlineResponse,
)
from kafkalite.extension.messages.topics import NewTopic, RemovePartitionsRequest, RemovePartitionsResponse
from kafkalite.model import BrokerId
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.numbered_records import TOPIC, Tally, census, produce
from kafkalite.testing.processes import ProcessCluster
from tests.support.commands import admin_meanwhile

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

VICTIM = BrokerId(2)
PARTITIONS = 9
REPLICAS = 3
SETTINGS = {
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 10_000,
    "log.dir.probe.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 1_000,
    "http.port": -1,
}

#: Fails operations on files below the path that the control file names, with DEAD_DISK_ERRNO (EIO): all of them, or for
#: ENOSPC and EROFS those that write.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int dead(const char *path) {
    static __thread int inside;
    static ssize_t (*real_read)(int, void *, size_t);
    static int (*real_open)(const char *, int, ...);
    const char *control = getenv("DEAD_DISK");
    if (inside || !control || !path) return 0;
    inside = 1;
    if (!real_open) real_open = dlsym(RTLD_NEXT, "open");
    if (!real_read) real_read = dlsym(RTLD_NEXT, "read");
    char prefix[PATH_MAX] = {0};
    int fd = real_open(control, O_RDONLY), hit = 0;
    if (fd >= 0) {
        ssize_t size = real_read(fd, prefix, sizeof prefix - 1);
        close(fd);
        hit = size > 0 && strncmp(path, prefix, size) == 0;
    }
    inside = 0;
    return hit;
}
static int code(void) {
    const char *number = getenv("DEAD_DISK_ERRNO");
    return number ? atoi(number) : EIO;
}
static int dead_fd(int fd) {
    char link[64], path[PATH_MAX] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && dead(path);
}
#define BY_FD(type, name, args, call) FAILING(type, name, args, call, 1)
#define READING(type, name, args, call) FAILING(type, name, args, call, code() == EIO)
#define FAILING(type, name, args, call, fails) \
    type name args { \
        static type (*real) args; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        if ((fails) && dead_fd(fd)) { errno = code(); return -1; } \
        return real call; \
    }
BY_FD(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
BY_FD(ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off64_t o), (fd, v, n, o))
BY_FD(ssize_t, pwritev64v2, (int fd, const struct iovec *v, int n, off64_t o, int f), (fd, v, n, o, f))
BY_FD(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
BY_FD(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o))
BY_FD(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n))
READING(ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o))
READING(ssize_t, pread64, (int fd, void *b, size_t n, off64_t o), (fd, b, n, o))
BY_FD(int, fsync, (int fd), (fd))
BY_FD(int, fdatasync, (int fd), (fd))
BY_FD(int, ftruncate, (int fd, off_t n), (fd, n))
BY_FD(int, ftruncate64, (int fd, off64_t n), (fd, n))
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        static int (*real)(const char *, int, ...); \
        va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        if ((code() == EIO || (flags & (O_WRONLY | O_RDWR | O_CREAT))) && dead(path)) { errno = code(); return -1; } \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
int rename(const char *path, const char *to) {
    static int (*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "rename");
    if (dead(path)) { errno = code(); return -1; }
    return real(path, to);
}
"""

Fault = Callable[[Path], None]


def removed(disk: Path) -> None:
    """rm -rf: open files go on, nothing new can be made."""
    away = disk.with_name(disk.name + ".away")
    disk.rename(away)  # first, since the node goes on making files in it
    shutil.rmtree(away)


def replaced_by_a_file(disk: Path) -> None:
    disk.rename(disk.with_name(disk.name + ".away"))
    disk.write_bytes(b"not a directory")


def no_answer(disk: Path) -> None:
    """Whoever opens a FIFO for writing waits until somebody reads: the probe hangs, as on a disk that hangs."""
    beside = disk / "fifo"
    os.mkfifo(beside)
    beside.replace(disk / ".kafkalite-probe.tmp")  # a probe may be writing just now


def full(disk: Path) -> None:
    """ENOSPC where the directory's high watermarks are saved, and for the probe."""
    for name in ("replication-offset-checkpoint.next.tmp", ".kafkalite-probe.tmp"):
        beside = disk / "full"
        beside.symlink_to("/dev/full")
        beside.replace(disk / name)  # somebody may be writing it just now


def filled(disk: Path) -> None:
    """What somebody else wrote there has taken all the room: the next byte of anything is refused."""
    with (disk / "something-else").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass


def aborted(disk: Path) -> None:
    """The kernel gives the file system's journal up and makes it read-only, under open files too."""
    subprocess.run(["mount", "-o", "remount,abort", str(disk)], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        (disk / "something-else").touch()


def one_log_gone(disk: Path) -> None:
    """Not the disk: the directory of one partition is another thing now, which its next new file finds."""
    victim = sorted(path for path in disk.iterdir() if path.name.startswith(f"{TOPIC}-"))[0]
    victim.rename(disk.parent / "away")
    victim.write_bytes(b"not a directory")


async def still_there(cluster: ProcessCluster) -> bool:
    async with AsyncClient.connect(cluster.bootstrap) as client:
        answer = await client.describe_cluster()
    return cluster.nodes[VICTIM].running and VICTIM in {broker.broker_id for broker in answer.brokers}


async def directories(cluster: ProcessCluster) -> dict[str, set[str]]:
    """Disk -> partitions in it, of the victim's sound replicas."""
    found: dict[str, set[str]] = {}
    async with AsyncClient.connect(cluster.bootstrap) as client:
        answer = (await client.describe_replicas([TOPIC]))[VICTIM]
    assert not isinstance(answer, KafkaliteError), answer
    for replica in answer.replicas:
        assert replica.error == 0, replica
        found.setdefault(Path(replica.directory).name, set()).add(f"{replica.topic}-{replica.partition}")
    return found


async def under_load(directory: Path, fault: Fault, *, expect_whole_disk: bool = True) -> None:
    tally = Tally()
    with ProcessCluster(directory, nodes=3, settings=SETTINGS | {"segment.bytes": 65_536}, log_dirs=3) as cluster:
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, REPLICAS)
        before = await directories(cluster)
        assert sorted(map(len, before.values())) == [3, 3, 3], before
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=1_500))
            await acked(tally, 3_000)
            disk = directory / f"node-{VICTIM}" / "disk-1"
            began = time.monotonic()
            await asyncio.to_thread(fault, disk)
            async with asyncio.timeout(60):
                while before["disk-1"] <= (after := await offline_or_moved(cluster)).get("disk-1", set()):
                    await asyncio.sleep(0.05)
            moved = time.monotonic() - began
            # Not before each is sound again, elsewhere: until the ISR has shrunk, all of them seem to be in sync.
            everything = set().union(*before.values())
            async with asyncio.timeout(60):
                while set().union(*(await offline_or_moved(cluster)).values()) != everything:
                    await asyncio.sleep(0.05)
            await wait_in_sync(cluster, TOPIC, REPLICAS)
            healed = time.monotonic() - began
            await acked(tally, len(tally.acked) + 3_000)
            enough.set()
        await wait_in_sync(cluster, TOPIC, REPLICAS)
        assert await still_there(cluster)
        after = await directories(cluster)
        lost = before["disk-1"] - after.get("disk-1", set())
        assert len(lost) == (3 if expect_whole_disk else 1)
        assert set().union(*after.values()) == set().union(*before.values())
        found = await census(cluster, tally)
        print(
            f"{fault.__name__}: noticed after {moved:.2f} s, all in sync after {healed:.2f} s, acked {len(tally.acked)}, "
            f"longest silence {tally.longest_silence_s:.2f} s, lost {len(found.lost)}"
        )
        assert not tally.failed
        assert found.clean, found


async def acked(tally: Tally, count: int) -> None:
    """Return when so many records are acknowledged."""
    while len(tally.acked) < count:
        await asyncio.sleep(0.05)


async def offline_or_moved(cluster: ProcessCluster) -> dict[str, set[str]]:
    """Disk -> partitions whose replicas are sound there now."""
    found: dict[str, set[str]] = {}
    async with AsyncClient.connect(cluster.bootstrap) as client:
        answer = (await client.describe_replicas([TOPIC]))[VICTIM]
    assert not isinstance(answer, KafkaliteError), answer
    for replica in answer.replicas:
        if not replica.error:
            found.setdefault(Path(replica.directory).name, set()).add(f"{replica.topic}-{replica.partition}")
    return found


@pytest.mark.checklist(81)
@pytest.mark.checklist(89)
@pytest.mark.checklist(90)
@pytest.mark.parametrize("fault", [removed, replaced_by_a_file, no_answer, full])
async def test_a_dead_disk(tmp_path: Path, fault: Fault) -> None:
    await under_load(tmp_path, fault)


@pytest.mark.checklist(82)
async def test_one_dead_log(tmp_path: Path) -> None:
    await under_load(tmp_path, one_log_gone, expect_whole_disk=False)


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Fault | None]:
    """errno -> the fault that makes operations on a disk fail with it; None where there is no compiler."""

    def built(number: int) -> Fault | None:
        if shutil.which("gcc") is None:
            return None
        source, library, control = tmp_path / "shim.c", tmp_path / "shim.so", tmp_path / "control"
        source.write_text(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
        monkeypatch.setenv("LD_PRELOAD", str(library))
        monkeypatch.setenv("DEAD_DISK", str(control))
        monkeypatch.setenv("DEAD_DISK_ERRNO", str(number))

        def failing(disk: Path) -> None:
            control.write_bytes(os.fsencode(disk))

        failing.__name__ = errno.errorcode[number]
        return failing

    return built


@pytest.mark.checklist(80)
async def test_input_output_errors(tmp_path: Path, shim: Callable[[int], Fault | None]) -> None:
    """EIO from every system call on the disk, where there is a compiler for the shim; else the nearest to it."""
    await under_load(tmp_path / "cluster", shim(errno.EIO) or replaced_by_a_file)


@pytest.mark.checklist(80)
async def test_a_disk_that_becomes_read_only(tmp_path: Path, shim: Callable[[int], Fault | None]) -> None:
    """A real ext4 that its kernel makes read-only, as after an error of its journal (a remount by hand is refused while
    files are open for writing); where that is not allowed, EROFS from whatever writes."""
    disks = [tmp_path / "cluster" / f"node-{VICTIM}" / f"disk-{number}" for number in range(3)]
    with contextlib.ExitStack() as mounts:
        mounted = [await asyncio.to_thread(mount_ext4, disk, mounts) for disk in disks]
        await under_load(tmp_path / "cluster", aborted if all(mounted) else shim(errno.EROFS) or replaced_by_a_file)


@pytest.mark.checklist(80)
async def test_a_file_system_that_fills_up(tmp_path: Path, shim: Callable[[int], Fault | None]) -> None:
    """A small file system of its own, filled to the last byte; where mounting is refused, ENOSPC from whatever writes."""
    # All three alike, or the small one would be given no replica.
    disks = [tmp_path / "cluster" / f"node-{VICTIM}" / f"disk-{number}" for number in range(3)]
    with contextlib.ExitStack() as mounts:
        mounted = [await asyncio.to_thread(mount_small, disk, mounts) for disk in disks]
        await under_load(tmp_path / "cluster", filled if all(mounted) else shim(errno.ENOSPC) or full)


def mount_ext4(disk: Path, mounts: contextlib.ExitStack) -> bool:
    """An ext4 of 64 MB in a file, until `mounts` ends; False where that is not allowed."""
    disk.mkdir(parents=True)
    if shutil.which("mount") is None or shutil.which("mkfs.ext4") is None:
        return False
    image = disk.with_suffix(".img")
    image.touch()
    os.truncate(image, 64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(disk)], capture_output=True).returncode:
        return False
    mounts.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
    (disk / "lost+found").rmdir()
    return True


def mount_small(disk: Path, mounts: contextlib.ExitStack) -> bool:
    """A file system of 64 MB there, until `mounts` ends; False where that is not allowed."""
    disk.mkdir(parents=True)
    if shutil.which("mount") is None:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        return False
    mounts.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
    return True


@pytest.mark.checklist(93)
@pytest.mark.checklist(87)
async def test_a_swapped_disk_is_taken_into_service_without_a_restart(tmp_path: Path) -> None:
    """The only disk in sync dies, comes back with its data, and then dies for good and is replaced by an empty one."""
    settings = SETTINGS | {"replica.lag.time.max.ms": 7_000}
    with ProcessCluster(tmp_path, nodes=1, settings=settings, log_dirs=2) as cluster:
        disk = tmp_path / "node-1" / "disk-0"
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, 4, 1)])
            await wait_in_sync(cluster, TOPIC, 1)
            tally = Tally()
            enough = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce(cluster, tally, enough, rate=500))
                await acked(tally, 300)
                enough.set()
            disk.rename(tmp_path / "pulled")
            states = await until(client, lambda each: "offline" in each)
            assert sorted(states) == ["offline", "online"], states
            await health_tells(client, "disk.offline", str(disk))
            await health_tells(client, "replica.last_copy", "only in-sync replica")
            refused = await client.ask_node(BrokerId(1), DiskOnlineRequest(str(disk)))
            assert isinstance(refused, DiskOnlineResponse)
            assert refused.error == 0, "an empty directory is a disk that was swapped"
            assert refused.logs == 0
            assert await leaders(client) == [-1, -1, 1, 1], "what an empty disk cannot know of is not invented"
            disk.rename(tmp_path / "swapped")  # at once: the node writes its checkpoints there
            await until(client, lambda each: "offline" in each)
            (tmp_path / "pulled").rename(disk)
            back = await client.ask_node(BrokerId(1), DiskOnlineRequest(str(disk)))
            assert isinstance(back, DiskOnlineResponse) and (back.error, back.logs) == (0, 2)
            await wait_in_sync(cluster, TOPIC, 1)
            assert (await census(cluster, tally)).clean and len(tally.acked) >= 300
        disks = (await admin_meanwhile(cluster.bootstrap, "disk", "list"))["disks"]
        assert [(each["state"], each["partitions"]) for each in disks] == [("online", 2), ("online", 2)]
        assert all(each["free_bytes"] > 0 and each["total_bytes"] > each["free_bytes"] for each in disks)


async def until(client: AsyncClient, holds: Callable[[list[str]], bool]) -> list[str]:
    """The states of node 1's disks once `holds` is true of them."""
    async with asyncio.timeout(150):
        while True:
            answer = await client.ask_node(BrokerId(1), DescribeDisksRequest())
            assert isinstance(answer, DescribeDisksResponse), answer
            states = [each.state for each in answer.disks]
            if holds(states):
                return states
            await asyncio.sleep(0.05)


async def health_tells(client: AsyncClient, what: str, text: str) -> None:
    """Return when node 1 says so."""
    async with asyncio.timeout(150):
        while True:
            answer = (await client.health())[BrokerId(1)]
            assert not isinstance(answer, KafkaliteError), answer
            if any(problem.what == what and text in problem.detail for problem in answer.problems):
                return
            await asyncio.sleep(0.05)


async def leaders(client: AsyncClient) -> list[int]:
    """Leaders of the topic's partitions, sorted, once two of them have none."""
    async with asyncio.timeout(150):
        while True:
            found = (await client.metadata([TOPIC])).topics[0].partitions
            each: list[int] = sorted(partition.leader for partition in found)
            if each.count(-1) == 2:
                return each
            await asyncio.sleep(0.05)


@pytest.mark.checklist("F19")
@pytest.mark.checklist(93)
async def test_what_a_disk_brings_back_of_removed_partitions_is_set_aside(tmp_path: Path) -> None:
    settings = SETTINGS | {"replica.lag.time.max.ms": 7_000}
    with ProcessCluster(tmp_path, nodes=1, settings=settings, log_dirs=2) as cluster:
        disk = tmp_path / "node-1" / "disk-0"
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, 6, 1)])
            await wait_in_sync(cluster, TOPIC, 1)
            async with asyncio.timeout(150):
                while sum(len(list(each.glob(f"{TOPIC}-*"))) for each in disk.parent.iterdir()) < 6:
                    await asyncio.sleep(0.05)
            removed = {f"{TOPIC}-{number}" for number in (3, 4, 5)}
            surplus = removed & set(os.listdir(disk))
            kept = {name for name in os.listdir(disk) if name.startswith(f"{TOPIC}-")} - removed
            assert surplus and kept
            disk.rename(tmp_path / "pulled")
            await until(client, lambda each: "offline" in each)
            order = RemovePartitionsRequest(TOPIC, 3, drain=False, timeout_ms=10_000)
            answer = await client.request(order, RemovePartitionsResponse)
            assert answer.error == 0, answer
            async with asyncio.timeout(150):
                while len((await client.metadata([TOPIC])).topics[0].partitions) != 3:
                    await asyncio.sleep(0.05)
            shutil.rmtree(disk, ignore_errors=True)
            (tmp_path / "pulled").rename(disk)
            back = await client.ask_node(BrokerId(1), DiskOnlineRequest(str(disk)))
            assert isinstance(back, DiskOnlineResponse) and back.error == 0
            async with asyncio.timeout(150):
                while surplus & set(os.listdir(disk)):
                    await asyncio.sleep(0.05)
            await wait_in_sync(cluster, TOPIC, 1)
            names = os.listdir(disk)
            assert kept <= set(names)
            assert sum(name.endswith("-stray") for name in names) == len(surplus)


@pytest.mark.checklist(90)
async def test_a_node_starts_although_one_of_its_disks_hangs(tmp_path: Path) -> None:
    """Found by simulation: it waited for that disk for ever. Whoever opens a FIFO for reading waits until somebody writes."""
    with ProcessCluster(tmp_path, nodes=1, settings=SETTINGS, log_dirs=2) as cluster:
        disk = tmp_path / "node-1" / "disk-0"
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, 4, 1)])
            await wait_in_sync(cluster, TOPIC, 1)
        cluster.nodes[1].terminate()
        (disk / "meta.properties").rename(tmp_path / "away")
        os.mkfifo(disk / "meta.properties")
        cluster.restart(1)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await health_tells(client, "disk.offline", str(disk))
            assert await leaders(client) == [-1, -1, 1, 1]
            (disk / "meta.properties").unlink()
            (tmp_path / "away").rename(disk / "meta.properties")
            back = await client.ask_node(BrokerId(1), DiskOnlineRequest(str(disk)), timeout_s=30.0)
            assert isinstance(back, DiskOnlineResponse) and (back.error, back.logs) == (0, 2), back
            await wait_in_sync(cluster, TOPIC, 1)
