"""Open file handles, few of them: the least recently used is closed, and opened again when it is needed.

10,000 partitions on a node would otherwise hold 10,000 descriptors, most of them idle.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from kafkalite.env.open_files import SHORTAGE
from kafkalite.env.seams import Disk, File


class Unloadable(Protocol):
    """Called when its handle is closed: drop what can be read again."""

    def unload(self) -> None: ...


class HandleCache:
    """Handles by path. A pinned handle stays open until it is unpinned, also when it is forgotten meanwhile."""

    def __init__(self, disk: Disk, capacity: int) -> None:
        assert capacity >= 1
        self._disk = disk
        self.capacity = capacity
        self._open: OrderedDict[str, tuple[File, Unloadable | None]] = OrderedDict()
        self._pins: dict[File, int] = {}
        self._close_when_unpinned: set[File] = set()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, path: str, owner: Unloadable | None = None, *, create: bool = False) -> File:
        """The handle for `path`. Raises OSError."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found[0]
        file = self.open_apart(path, create=create)
        self._open[path] = (file, owner)
        if len(self._open) > self.capacity:
            self._close_oldest()
        return file

    def open_apart(self, path: str, *, create: bool = False) -> File:
        """A handle that is the caller's to close. Raises OSError.

        Where there is no descriptor left (clients have the others), the one of ours that has rested longest makes room.
        """
        while True:
            try:
                return self._disk.open(path, create=create)
            except OSError as error:
                if error.errno not in SHORTAGE or not self._open:
                    raise
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, (oldest, owner) = self._open.popitem(last=False)
        self._close(oldest)
        if owner is not None:
            owner.unload()

    def forget(self, path: str) -> None:
        """Close the handle, if there is one: the file is about to be renamed, removed or left alone for good."""
        found = self._open.pop(path, None)
        if found is not None:
            self._close(found[0])

    def forget_below(self, directory: str) -> None:
        """Close all handles of files in a directory."""
        for path in [path for path in self._open if path.startswith(f"{directory}/")]:
            self.forget(path)

    def pin(self, file: File) -> None:
        """Keep the handle open while something off the loop uses it."""
        self._pins[file] = self._pins.get(file, 0) + 1

    def unpin(self, file: File) -> None:
        left = self._pins.pop(file) - 1
        if left:
            self._pins[file] = left
        elif file in self._close_when_unpinned:
            self._close_when_unpinned.discard(file)
            file.close()

    def _close(self, file: File) -> None:
        if file in self._pins:
            self._close_when_unpinned.add(file)
        else:
            file.close()

    def close(self) -> None:
        """Close everything."""
        while self._open:
            _, (file, _owner) = self._open.popitem()
            self._close(file)
