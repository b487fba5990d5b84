"""A disk in memory whose power can fail: what was not synced may be gone, in part, or back to what it was."""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Awaitable, Callable, Sequence

from kafkalite.env import residency
from kafkalite.env.seams import DiskOutcome

Buffer = bytes | bytearray | memoryview
_SECTOR_BYTES = 512


class Inode:
    """A file's bytes: as a running process sees them, and as they are on the platter."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self._disk, self.path, self._inode = disk, path, inode
        self.closed = False
        disk.open_files += 1

    def size(self) -> int:
        return len(self._inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        assert not self.closed
        data = b"".join(buffers)
        self._disk.calls.append(("append", self.path, len(data)))
        room = self._disk.fail_append_after
        if room is not None:
            self._inode.data += data[:room]
            self._disk.fail_append_after = None
            raise OSError(errno.EIO, "injected")
        self._inode.data += data
        return len(data)

    def read_at(self, offset: int, size: int) -> bytes:
        assert not self.closed
        self._disk.calls.append(("read", self.path, size))
        self._disk.check_resident(self.path, offset, size)
        return bytes(self._inode.data[offset : offset + size])

    def version(self) -> int:
        self._disk.versions += 1  # tests change bytes behind the file's back
        return self._disk.versions

    def write_at(self, offset: int, data: Buffer) -> None:
        self._inode.data[offset : offset + len(data)] = data

    def reserve(self, size: int) -> bool:
        self._disk.calls.append(("reserve", self.path, size))
        return True

    def truncate(self, size: int) -> None:
        assert not self.closed
        if size < len(self._inode.data):
            del self._inode.data[size:]
        else:
            self._inode.data += bytes(size - len(self._inode.data))

    async def sync(self) -> None:
        self._disk.calls.append(("sync", self.path, 0))
        image, hook = bytes(self._inode.data), self._disk.during_sync
        if hook is not None:
            await hook()
        if self._disk.fail_sync:
            raise OSError(errno.EIO, "injected")
        assert not self.closed, "closed while it was being synced"
        self._inode.durable = image

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        self._disk.open_files -= 1


class MemoryDisk:
    """Implements kafkalite.env.seams.Disk."""

    def __init__(self) -> None:
        self.cold: set[str] = set()
        self.entries: dict[str, Inode] = {}
        self.durable_entries: dict[str, Inode] = {}
        self.dirs: set[str] = {"/"}
        self.locks: set[str] = set()
        self.calls: list[tuple[str, str, int]] = []
        self.open_files = 0
        self.versions = 0
        self.fail_append_after: int | None = None
        self.fail_sync = False
        self.during_sync: Callable[[], Awaitable[object]] | None = None
        self.broken: set[str] = set()
        #: When every file was last written to (wall ms).
        self.modified = 0
        self.boot = "boot-0"

    def _check(self, path: str) -> None:
        if any(path.startswith(prefix) for prefix in sorted(self.broken)):
            raise OSError(errno.EIO, "injected", path)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._check(path)
        if path not in self.entries:
            if not create or posixpath.dirname(path) not in self.dirs:
                raise FileNotFoundError(path)
            self.entries[path] = Inode()
        return MemoryFile(self, path, self.entries[path])

    def exists(self, path: str) -> bool:
        self._check(path)
        return path in self.entries or path in self.dirs

    def read_file(self, path: str) -> bytes:
        self._check(path)
        if path not in self.entries:
            raise FileNotFoundError(path)
        self.check_resident(path, 0, len(self.entries[path].data))
        return bytes(self.entries[path].data)

    def check_resident(self, path: str, offset: int, size: int) -> None:
        """Files in `cold` are not in the page cache before they have been loaded."""
        if path in self.cold and residency.is_required():
            raise residency.NotResident(path, offset, size)

    async def load(self, path: str, offset: int, size: int, ahead: int = 0) -> None:
        self.calls.append(("load", path, size))
        self.cold.discard(path)

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self._check(path)
        self.calls.append(("write_file", path, len(data)))
        if posixpath.dirname(path) not in self.dirs:
            raise FileNotFoundError(path)
        inode = Inode()
        inode.data += data
        self.entries[path] = inode
        if durable:
            inode.durable = bytes(data)
            self.durable_entries[path] = inode

    def listdir(self, path: str) -> list[str]:
        self._check(path)
        prefix = path + "/"
        names = {
            other[len(prefix) :].split("/")[0] for other in (*self.entries, *self.dirs) if other.startswith(prefix)
        }
        return sorted(names)

    def makedirs(self, path: str) -> None:
        self._check(path)
        while path not in self.dirs:
            self.dirs.add(path)
            path = posixpath.dirname(path)

    def make_dir(self, path: str) -> bool:
        self._check(path)
        if path in self.dirs or path in self.entries:
            return False
        self.makedirs(path)
        return True

    def rename(self, old: str, new: str) -> None:
        self._check(old)
        if old in self.dirs:
            for path in [path for path in self.entries if path.startswith(old + "/")]:
                self.entries[new + path[len(old) :]] = self.entries.pop(path)
            for path in [path for path in self.durable_entries if path.startswith(old + "/")]:
                self.durable_entries[new + path[len(old) :]] = self.durable_entries.pop(path)
            self.dirs.discard(old)
            self.dirs.add(new)
        else:
            if old not in self.entries:
                raise FileNotFoundError(old)
            self.entries[new] = self.entries.pop(old)

    def remove(self, path: str) -> None:
        self._check(path)
        self.entries.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self._check(path)
        for known in (self.entries, self.durable_entries):
            for other in [other for other in known if other.startswith(path + "/")]:
                del known[other]
        self.dirs = {other for other in self.dirs if other != path and not other.startswith(path + "/")}

    def sync_dir(self, path: str) -> None:
        self._check(path)
        self.calls.append(("sync_dir", path, 0))
        for known in [*self.durable_entries, *self.entries]:
            if posixpath.dirname(known) == path:
                if known in self.entries:
                    self.durable_entries[known] = self.entries[known]
                else:
                    self.durable_entries.pop(known, None)

    def page_cache_id(self, path: str) -> str:
        return self.boot

    def directory_id(self, path: str) -> str:
        return path

    def total_bytes(self, path: str) -> int:
        return 1 << 41

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def modified_ms(self, path: str) -> int:
        return self.modified

    def lock(self, path: str) -> Callable[[], None]:
        self._check(path)
        if path in self.locks:
            raise BlockingIOError(path)
        self.entries.setdefault(path, Inode())
        self.locks.add(path)
        return lambda: self.locks.discard(path)

    def separate(self, path: str) -> None:
        """Nothing blocks here."""

    def completed(self, path: str) -> int | None:
        """Nobody counts here."""
        return None

    def abandon(self, path: str) -> None:
        """Nothing blocks here."""

    def outcome(self, path: str) -> DiskOutcome | None:
        """Nothing is ever under way here."""
        return DiskOutcome(failed=False)

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        return function()

    # --- faults -----------------------------------------------------------------------------------

    def process_crash(self) -> None:
        """The process is gone; the page cache is not."""
        self.locks.clear()
        self.open_files = 0

    def power_loss(self, rng: random.Random) -> None:
        """Each entry and each byte that was not synced may have made it or not.

        A directory's journal has its creations in their order: if one is lost, those after it are. Renames and removals are not
        kept in order here.
        """
        self.process_crash()
        self.boot += "+"
        survivors: dict[str, Inode] = {}
        created = [path for path in self.entries if path not in self.durable_entries and path.endswith(".log")]
        lost: set[str] = set()
        for directory in sorted({path.rpartition("/")[0] for path in created}):
            here = [path for path in created if path.rpartition("/")[0] == directory]
            lost.update(here[rng.randint(0, len(here)) :])
        for path in sorted({*self.entries, *self.durable_entries}):
            now, then = self.entries.get(path), self.durable_entries.get(path)
            inode = now if now is then or rng.random() < 0.5 else then
            if path in created:
                inode = None if path in lost else now
            if inode is None:
                continue
            data, durable = bytes(inode.data), inode.durable
            if data.startswith(durable):
                kept = data[: rng.randint(len(durable), len(data))]
                torn = rng.randint(0, len(kept) - len(durable))
                if rng.random() < 0.3:
                    kept = kept[: len(kept) - torn] + bytes(torn)
            else:
                kept = _torn(data, durable, rng)
            fresh = Inode()
            fresh.data += kept
            fresh.durable = kept
            survivors[path] = fresh
        self.entries = survivors
        self.durable_entries = dict(survivors)


def _torn(data: bytes, durable: bytes, rng: random.Random) -> bytes:
    """What a loss of power leaves of a file whose synced bytes were overwritten: any of its sectors as they were; holes are zeros."""
    if rng.random() < 0.5:
        return rng.choice([data, durable])
    size = max(len(data), len(durable))
    both = data.ljust(size, b"\0"), durable.ljust(size, b"\0")
    kept = b"".join(rng.choice(both)[at : at + _SECTOR_BYTES] for at in range(0, size, _SECTOR_BYTES))
    return kept[: rng.choice([len(data), len(durable)])]


class ManualClock:
    """Implements kafkalite.env.seams.Clock; moves only when a test moves it."""

    def __init__(self, wall_ms: int = 1_000_000) -> None:
        self.now_ms = wall_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def processor(self) -> float:
        return 0.0

    def boottime(self) -> float:
        return self.now_ms / 1000
