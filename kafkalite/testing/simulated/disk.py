"""A simulated disk of one host: what programs see, and what would survive a loss of power.

A write goes to the page cache: every program on the host sees it at once, and it outlives the program. `sync`
makes a file's content durable; `sync_dir` makes the names in one directory durable (creations, renames, removals). Of the names
in a directory that were not synced, a prefix survives a loss of power, whatever survives in others: each log directory is a file
system of its own, and some file systems (btrfs) sync one directory without the rest. Names in "/" survive: disks are mounted there.
Of file content that was not synced, what survives is drawn from the seed: nothing, some of it in order and then a torn piece, a torn
piece full of zeros (the length made it to the disk, the data did not), or all of it.

Stricter than ext4 in its default mode, on purpose: there syncing a file makes its name durable, and all earlier names of that file system.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from kafkalite.env import residency
from kafkalite.env.seams import DiskOutcome
from kafkalite.model import Buffer
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.disk_tree import Directory, SimInode, Tree
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.path_faults import PathFaults
from kafkalite.testing.simulated.process import SimProcess, current_process
from kafkalite.testing.simulated.threads import SimThreads

_CAPACITY_BYTES = 1 << 34
_COLDNESS = (0.0, 0.02, 0.2, 0.6)
#: Shortest and longest time that a sync takes; one in 200 takes up to 20 times as long.
_SYNC_MS = (0.1, 3.0)


class SimDisk(PathFaults):
    """The Disk seam of one host. See the module's text."""

    def __init__(self, loop: SimLoop, clock: SimClock, source: random.Random) -> None:
        super().__init__()
        self._clock = clock
        self._random = source
        self._tree = Tree()
        self._locks: dict[str, SimProcess | None] = {}
        #: Path of a file that is being replaced -> the numbers of the files beside it.
        self._writing: dict[str, set[int]] = {}
        self._boots = 0
        self._lacks_threads = False
        #: Called with each operation of the seam before it is done: its kind and path. What it raises is the operation's error.
        self.on_operation: Callable[[str, str], None] | None = None
        #: Called before a program removes a tree. Raises nothing.
        self.on_remove_tree: Callable[[str], None] = lambda path: None
        self.capacity_bytes = _CAPACITY_BYTES
        #: The functions of `run_blocking`; they have a random source of their own, which does not change power losses.
        #: How often a read that may not wait finds that the page cache has dropped the file (env.residency): drawn for each disk.
        self._cold_random = random.Random(f"cold {source.getstate()[1][:3]}")
        self.coldness = self._cold_random.choice(_COLDNESS)
        self.cold_reads = 0
        self.threads = SimThreads(loop, random.Random(source.random()), hanging=self.hanging_at)

    # --- what the harness does -------------------------------------------------------------------

    def process_died(self, process: SimProcess) -> None:
        """The kernel releases its locks; the page cache stays."""
        for path in [path for path, owner in self._locks.items() if owner is process]:
            del self._locks[path]
        self.threads.process_died()

    def lose_power(self) -> None:
        """Of what was not synced, the seed decides. Locks are gone. Processes must be dead already."""
        self._tree.root.persist(len(self._tree.root.pending))  # where disks are mounted
        for directory in _directories(self._tree.root):
            count = len(directory.pending)
            directory.persist(self._random.choice((0, count, self._random.randint(0, count))))
        durable = self._tree.root.durable
        assert durable is not None
        self._locks.clear()
        self.threads.process_died()
        self.was_faulty = True
        self._boots += 1
        # A file without a durable name is gone whatever its content.
        for node in self._files(durable):
            node.lose_power(self._random)
        self._tree = Tree(durable.seen())

    def used_bytes(self) -> int:
        return sum(len(node.cached) for node in self._files(self._tree.root))

    def unsynced_bytes(self, path: str) -> int:
        """What a loss of power could take from one file."""
        node = self._tree.find(path)
        assert isinstance(node, SimInode)
        return sum(len(data) for _, data in node.pending if data is not None)

    def peek(self, path: str) -> bytes:
        """A file's content as programs see it, also of a failing disk; empty if there is none. For checkers."""
        return bytes(self.content(path))

    def content(self, path: str) -> bytearray:
        """The same without a copy: the caller must not change or keep it."""
        node = self._tree.find(path)
        return node.cached if isinstance(node, SimInode) else bytearray()

    def peek_names(self, path: str) -> list[str]:
        """The names in a directory, sorted; none if there is none. For checkers."""
        found = self._tree.find(path)
        return sorted(found.children) if isinstance(found, Directory) else []

    def copy_of(self, path: str) -> Directory:
        """A copy of a directory as programs see it, with all that is in it."""
        return self._tree.directory(path).deep_copy()

    def put_back(self, path: str, copy: Directory) -> None:
        """The directory is this copy now, also after a loss of power."""
        self.sync_names()
        parent, name = self._tree.parent(path)
        parent.change({name: copy.deep_copy().seen()})
        parent.persist(1)

    def flip_bit(self, path: str, offset: int) -> None:
        """Rot: on the platter and in the cache, unseen by the programs."""
        node = self._tree.find(path)
        assert isinstance(node, SimInode)
        self.was_faulty = True
        node.persist(len(node.pending))
        node.version += 1
        node.cached[offset] ^= 1
        node.durable[offset] ^= 1

    def shorten(self, path: str, size: int) -> None:
        """The file has this size now, also after a loss of power, whatever was synced."""
        node = self._tree.find(path)
        assert isinstance(node, SimInode)
        self.was_faulty = True
        node.truncate(size)
        node.persist(len(node.pending))

    def fill(self, left_bytes: int) -> None:
        """Somebody else takes all room but this."""
        self.was_faulty = True
        self.capacity_bytes = self.used_bytes() + left_bytes

    def make_room(self) -> None:
        """It is given back."""
        self.capacity_bytes = _CAPACITY_BYTES

    def lack_threads(self) -> None:
        """Its host starts no thread: no sync, no work off the loop."""
        self._lacks_threads = self.was_faulty = True

    def have_threads(self) -> None:
        """It does again."""
        self._lacks_threads = False

    def _files(self, directory: Directory) -> list[SimInode]:
        files: list[SimInode] = []
        for child in directory.children.values():
            files += self._files(child) if isinstance(child, Directory) else [child]
        return files

    # --- the seam --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.operation("open", path)
        node = self._tree.lookup(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = SimInode()
            self.written(node)
            made = node
            self._tree.enter(path, made)
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.operation("exists", path)
        return self._tree.find(path) is not None

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        return file.read_at(0, file.size())

    @contextmanager
    def beside(self, path: str) -> Iterator[str]:
        """A name that no other writer uses at the same time, as on a real disk: a thread may be at it while the loop writes, too."""
        taken = self._writing.setdefault(path, set())
        number = next(each for each in count() if each not in taken)
        taken.add(number)
        try:
            yield f"{path}.{number}.tmp" if number else f"{path}.tmp"
        finally:
            taken.discard(number)

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        with self.beside(path) as beside:
            self.remove(beside)
            file = self.open(beside, create=True)
            file.append([data])
            if durable:
                self.operation("sync", beside)
                file.sync_now()
            self.rename(beside, path)
        if durable:
            self.sync_dir(os.path.dirname(path))

    def listdir(self, path: str) -> list[str]:
        self.operation("listdir", path)
        return sorted(self._tree.directory(path).children)

    def makedirs(self, path: str) -> None:
        self.operation("makedirs", path)
        if not isinstance(self._tree.lookup(path), Directory):
            self._tree.make(path)

    def make_dir(self, path: str) -> bool:
        self.operation("makedirs", path)
        if self._tree.lookup(path) is not None:
            return False
        self._tree.make(path)
        return True

    def rename(self, old: str, new: str) -> None:
        self.operation("rename", old)
        self.check(new, "rename")
        self._tree.rename(old, new)

    def remove(self, path: str) -> None:
        self.operation("remove", path)
        found = self._tree.lookup(path)
        if isinstance(found, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if found is not None:
            self._tree.remove(path)

    def remove_tree(self, path: str) -> None:
        self.operation("remove_tree", path)
        if self._tree.lookup(path) is not None:
            self.on_remove_tree(path)
            self._tree.remove(path)

    def sync_dir(self, path: str) -> None:
        """Its names are on the platter; not its own name, and not those in other directories."""
        self.operation("sync_dir", path)
        directory = self._tree.directory(path)
        directory.persist(len(directory.pending))

    def sync_names(self) -> None:
        """All names are on the platter."""
        for directory in _directories(self._tree.root):
            directory.persist(len(directory.pending))

    def free_bytes(self, path: str) -> int:
        self.operation("free_bytes", path)
        return max(0, self.capacity_bytes - self.used_bytes())

    def page_cache_id(self, path: str) -> str:
        return f"boot-{self._boots}"

    def directory_id(self, path: str) -> str:
        return path  # each host has a disk of its own, and copies are put back to where they were made

    def total_bytes(self, path: str) -> int:
        self.operation("total_bytes", path)
        return self.capacity_bytes

    def modified_ms(self, path: str) -> int:
        self.operation("modified_ms", path)
        found = self._tree.lookup(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found.modified_ms if isinstance(found, SimInode) else 0

    def lock(self, path: str) -> Callable[[], None]:
        self.operation("lock", path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self.open(path, create=True)
        process = current_process()
        self._locks[path] = process
        held = [path]

        def release() -> None:
            while held:
                self._locks.pop(held.pop(), None)

        return release

    async def load(self, path: str, offset: int, size: int, ahead: int = 0) -> None:
        try:
            self.operation("load", path)
            self.check_thread(path)
            await self.pause()
            await self.answers(path)
            self.check(path, "load")
        except OSError:
            return
        node = self._tree.find(path)
        if isinstance(node, SimInode):
            node.is_cold = False

    def separate(self, path: str) -> None:
        self.threads.separate(path)

    def completed(self, path: str) -> int | None:
        """Nobody counts here."""
        return None

    def abandon(self, path: str) -> None:
        """Nothing blocks here."""

    def outcome(self, path: str) -> DiskOutcome | None:
        """A sync that hangs does nothing before the repair, and nothing at all if its waiter has gone."""
        return DiskOutcome(failed=False) if self.threads.is_idle(path) else None

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        self.operation("thread", at)
        self.check_thread(at)
        await self.pause()
        await self.answers(at)
        return await self.threads.run(function, at)

    def check_resident(self, node: SimInode, path: str, offset: int, size: int) -> None:
        """Raises NotResident if the reader may not wait, and the page cache has dropped the file."""
        if not residency.is_required():
            node.is_cold = False
            node.version += 1
            return
        if self.coldness and self._cold_random.random() < self.coldness:
            node.is_cold = True
        if node.is_cold:
            self.cold_reads += 1
            node.version += 1
            raise residency.NotResident(path, offset, size)

    # --- for SimFile -----------------------------------------------------------------------------

    def operation(self, kind: str, path: str) -> None:
        """One operation of the seam begins; in a thread, others may come first. Raises OSError."""
        self.threads.before_operation()
        self.check(path, kind)
        if self.on_operation is not None:
            with self.threads.outside():
                self.on_operation(kind, path)

    def check_thread(self, path: str) -> None:
        """Raises OSError if no thread can be started."""
        if self._lacks_threads:
            raise OSError(errno.EAGAIN, "no thread can be started", path)

    def reserve(self, size: int, path: str) -> None:
        if size > 0 and self.capacity_bytes < _CAPACITY_BYTES and self.used_bytes() + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def written(self, node: SimInode) -> None:
        node.modified_ms = self._clock.wall_ms()

    async def pause(self) -> None:
        """The time that a sync, or a piece of work in a thread, takes."""
        delay_ms = self._random.uniform(*_SYNC_MS)
        if self._random.randrange(200) == 0:
            delay_ms *= 1 + self._random.randrange(20)
        await asyncio.sleep(round(delay_ms * 1e6) / 1e9)


def _directories(directory: Directory) -> list[Directory]:
    found = [directory]
    for child in directory.children.values():
        if isinstance(child, Directory):
            found += _directories(child)
    return found


class SimFile:
    """The File seam."""

    __slots__ = ("_closed", "_disk", "_node", "path")

    def __init__(self, disk: SimDisk, path: str, node: SimInode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._closed = False

    def size(self) -> int:
        return len(self._node.cached)

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        try:
            self._operation("append")
        except OSError:
            if self._closed:
                raise
            # What a failed write leaves behind, where cutting it off fails, too.
            self._node.write(len(self._node.cached), data[: len(data) // 2])
            raise
        self._disk.reserve(len(data), self.path)
        if data:
            self._node.write(len(self._node.cached), data)
            self._disk.written(self._node)
        return len(data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._operation("read_at")
        self._disk.check_resident(self._node, self.path, offset, size)
        return bytes(memoryview(self._node.cached)[offset : offset + size])

    def version(self) -> int:
        return self._node.version

    def write_at(self, offset: int, data: Buffer) -> None:
        self._node.version += 1
        try:
            self._operation("write_at")
        except OSError:
            if self._closed:
                raise
            self._node.write(offset, bytes(data[: len(data) // 2]))
            raise
        self._node.write(offset, bytes(data))
        self._disk.written(self._node)

    def reserve(self, size: int) -> bool:
        return False  # a file system without it; room behind a file's end changes nothing that can be read

    def truncate(self, size: int) -> None:
        self._operation("truncate")
        self._node.version += 1
        self._node.truncate(size)
        self._disk.written(self._node)

    async def sync(self) -> None:
        self._operation("sync")
        self._disk.check_thread(self.path)
        count = len(self._node.pending)
        before = self._node.pending[count - 1] if count else None
        await self._disk.pause()
        await self._disk.answers(self.path)
        self._disk.check(self.path, "sync")
        # Another sync may have persisted some of it already: persist up to our last write, if it still waits.
        for index, entry in enumerate(self._node.pending):
            if entry is before:
                self._node.persist(index + 1)
                return

    def sync_now(self) -> None:
        self._node.persist(len(self._node.pending))

    def close(self) -> None:
        self._closed = True

    def _operation(self, kind: str) -> None:
        self._assert_open()
        self._disk.operation(kind, self.path)
        self._assert_open()  # a thread may have waited, and another may have closed it

    def _assert_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "file is closed", self.path)
