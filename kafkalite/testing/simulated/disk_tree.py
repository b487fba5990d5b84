"""The files and directories of a simulated disk: what programs see, and what a loss of power leaves."""

from __future__ import annotations

import errno
import os
import random
from functools import lru_cache


class SimInode:
    """A file's content: as seen, as it is on the platter, and the writes between the two."""

    __slots__ = ("cached", "durable", "is_cold", "modified_ms", "pending", "version")

    def __init__(self) -> None:
        #: See File.version.
        self.version = 1
        self.cached = bytearray()
        self.durable = bytearray()
        #: (offset, data) of a write, (size, None) of a truncation; in order.
        self.pending: list[tuple[int, bytes | None]] = []
        self.modified_ms = 0
        #: The page cache does not have it (any more).
        self.is_cold = False

    def copy(self) -> SimInode:
        """Another file with the same content, which is on the platter."""
        twin = SimInode()
        twin.cached, twin.durable, twin.modified_ms = bytearray(self.cached), bytearray(self.cached), self.modified_ms
        return twin

    def write(self, offset: int, data: bytes) -> None:
        _apply(self.cached, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        _apply(self.cached, size, None)
        self.pending.append((size, None))

    def persist(self, count: int) -> None:
        """The first `count` pending writes are on the platter now."""
        for offset, data in self.pending[:count]:
            _apply(self.durable, offset, data)
        del self.pending[:count]

    def lose_power(self, source: random.Random) -> None:
        fate = source.choice(("nothing", "prefix", "zeros", "all"))
        kept = {"nothing": 0, "all": len(self.pending)}.get(fate, source.randint(0, len(self.pending)))
        torn = self.pending[kept] if kept < len(self.pending) else None
        self.persist(kept)
        offset, data = torn or (0, None)
        if data and fate in ("prefix", "zeros"):
            cut = source.randrange(len(data))
            _apply(self.durable, offset, data[:cut] if fate == "prefix" else bytes(cut))
        self.pending.clear()
        self.cached = bytearray(self.durable)


def _enter(directory: Directory, name: str, child: Directory | SimInode | None) -> None:
    if child is None:
        directory.children.pop(name, None)
    else:
        directory.children[name] = child


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


class Directory:
    """Names, as programs see them, and the same directory on the platter."""

    __slots__ = ("children", "durable", "pending")

    def __init__(self, durable: Directory | None = None) -> None:
        self.children: dict[str, Directory | SimInode] = {}
        #: None: this is the one on the platter.
        self.durable = durable
        #: Changes that are not on the platter yet, in order: names, and what they stand for (None: nothing).
        self.pending: list[dict[str, Directory | SimInode | None]] = []

    def change(self, names: dict[str, Directory | SimInode | None]) -> None:
        """As programs see it; at once."""
        for name, child in names.items():
            _enter(self, name, child)
        self.pending.append(names)

    def persist(self, count: int) -> None:
        """The first `count` changes are on the platter now."""
        assert self.durable is not None
        for names in self.pending[:count]:
            for name, child in names.items():
                _enter(self.durable, name, child.durable if isinstance(child, Directory) else child)
        del self.pending[:count]

    def seen(self) -> Directory:
        """The directory on the platter, as programs see it; the files' content is shared."""
        found = Directory(self)
        found.children = {
            name: child.seen() if isinstance(child, Directory) else child for name, child in self.children.items()
        }
        return found

    def deep_copy(self) -> Directory:
        """With files of its own."""
        twin = Directory()
        twin.children = {
            name: child.deep_copy() if isinstance(child, Directory) else child.copy()
            for name, child in self.children.items()
        }
        return twin


@lru_cache(maxsize=4_096)
def _parts(path: str) -> tuple[str, ...]:
    assert path.startswith("/"), f"not absolute: {path}"
    return tuple(part for part in path.split("/") if part)


class Tree:
    """Names, as programs see them."""

    def __init__(self, root: Directory | None = None) -> None:
        self.root = root or Directory(Directory())

    def find(self, path: str) -> Directory | SimInode | None:
        node: Directory | SimInode | None = self.root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.children.get(part)
        return node

    def lookup(self, path: str) -> Directory | SimInode | None:
        """As `find`, but a file in the middle of the path is an error, as in POSIX."""
        node: Directory | SimInode | None = self.root
        for part in _parts(path):
            if isinstance(node, SimInode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            node = node.children.get(part) if node is not None else None
        return node

    def directory(self, path: str) -> Directory:
        found = self.lookup(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(found, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return found

    def parent(self, path: str) -> tuple[Directory, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self.directory(head or "/"), name

    def make(self, path: str) -> None:
        node = self.root
        for part in _parts(path):
            child = node.children.get(part)
            if child is None:
                child = Directory(Directory())
                node.change({part: child})
            if not isinstance(child, Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            node = child

    def enter(self, path: str, node: SimInode) -> None:
        parent, name = self.parent(path)
        parent.change({name: node})

    def remove(self, path: str) -> None:
        parent, name = self.parent(path)
        parent.change({name: None})

    def rename(self, old: str, new: str) -> None:
        source, old_name = self.parent(old)
        target, new_name = self.parent(new)
        moved = source.children.get(old_name)
        if moved is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        there = target.children.get(new_name)
        if isinstance(there, Directory) and (there.children or not isinstance(moved, Directory)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        if there is not None and not isinstance(there, Directory) and isinstance(moved, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), new)
        if source is target:
            source.change({old_name: None, new_name: moved})
        else:
            target.change({new_name: moved})
            source.change({old_name: None})
