"""The transaction index of one segment: the aborted transactions whose markers lie in it, and how far they are saved."""

from __future__ import annotations

from kafkalite.env.seams import Disk
from kafkalite.errors import ErrorCode, api_error
from kafkalite.log.handles import HandleCache
from kafkalite.log.index import ABORTED_ENTRY, AbortedTxn, decode_aborted


class TransactionIndex:
    """Entries in the markers' order; those from number `saved` on are not in the file yet. Loaded when it is needed first."""

    __slots__ = ("_base_offset", "_disk", "_entries", "_handles", "_is_cut", "_synced", "path", "saved")

    def __init__(self, disk: Disk, handles: HandleCache, path: str, base_offset: int) -> None:
        self._disk = disk
        self._handles = handles
        self.path = path
        self._base_offset = base_offset
        #: None: not loaded from the file yet.
        self._entries: list[AbortedTxn] | None = None
        self.saved = 0
        #: Entries that are on the disk itself.
        self._synced = 0
        #: The file was cut: a loss of power may bring back what is gone.
        self._is_cut = False

    @property
    def is_loaded(self) -> bool:
        """Whether `entries` has them without a look at the file."""
        return self._entries is not None

    def entries(self, next_offset: int) -> list[AbortedTxn]:
        """All of them. Raises ApiError CORRUPT_MESSAGE, OSError.

        Args:
            next_offset: where the segment ends; entries beyond it are damage.
        """
        if self._entries is None and not self.load(next_offset):
            raise api_error(ErrorCode.CORRUPT_MESSAGE, f"{self.path} is damaged")
        assert self._entries is not None
        return self._entries

    def load(self, next_offset: int) -> bool:
        """Read the file; False if it is not one of this segment. Raises OSError."""
        entries = decode_aborted(self._read())
        lowest = self._base_offset
        for entry in entries or ():
            if not lowest <= entry.last_offset < next_offset or entry.first_offset >= entry.last_offset:
                return False
            lowest = entry.last_offset + 1
        if entries is None:
            return False
        self._entries = entries
        self.saved = self._synced = len(entries)
        return True

    def settle(self) -> None:
        """The entries were rebuilt from the batches: the file has the same ones when this returns. Raises OSError.

        It is written at once and durably, or stays as it is: a start that does not check the segment again trusts it.
        """
        assert self._entries is not None
        data = b"".join(entry.encode() for entry in self._entries)
        if self._read() != data and not self.save_durably():
            self._disk.remove(self.path)
        self.saved = len(self._entries)

    def _read(self) -> bytes:
        try:
            return self._disk.read_file(self.path)
        except FileNotFoundError:
            return b""

    def reset(self) -> None:
        """The index is to be rebuilt from the batches; the file stays until it is saved."""
        self._entries, self.saved, self._synced = [], 0, 0

    def truncate(self, next_offset: int) -> None:
        """Forget the entries whose markers are cut off. They have been loaded."""
        entries = self._entries
        assert entries is not None
        before = len(entries)
        entries[:] = [entry for entry in entries if entry.last_offset < next_offset]
        self._is_cut = self._is_cut or len(entries) < before
        self.saved = min(self.saved, len(entries))
        self._synced = min(self._synced, len(entries))

    def save(self) -> bool:
        """Bring the file up to date; whether it was written. Raises OSError."""
        if self._entries is None or self.saved == len(self._entries):
            return False
        data = b"".join(entry.encode() for entry in self._entries[self.saved :])
        save_from(self._disk, self._handles, self.path, self.saved * ABORTED_ENTRY.size, data)
        self.saved = len(self._entries)
        return True

    def save_durably(self) -> bool:
        """Write the whole file and sync it here and now; False if the index is empty. Raises OSError."""
        if not self._entries:
            return False
        self._disk.write_file_atomic(self.path, b"".join(entry.encode() for entry in self._entries))
        self.saved = self._synced = len(self._entries)
        return True

    def to_sync(self) -> int | None:
        """How many entries are in the file; None if those, and no others, are on the disk itself."""
        return self.saved if self._is_cut or self.saved > self._synced else None

    def synced(self, count: int | None) -> None:
        """This number of entries, as `to_sync` returned it, is on the disk itself."""
        if count is not None:
            self._synced = max(self._synced, min(count, self.saved))
            self._is_cut = False

    def relocate(self, path: str) -> None:
        """The segment's directory has another name."""
        self.path = path

    def use_handles(self, handles: HandleCache) -> None:
        """Open the file through this cache from now on."""
        self._handles = handles


def save_from(disk: Disk, handles: HandleCache, path: str, keep: int, data: bytes) -> bool:
    """Cut an index file to `keep` bytes and append `data`; False if there is nothing to write. Raises OSError."""
    if not data and not keep and not disk.exists(path):
        return False
    file = handles.open_apart(path, create=True)
    try:
        if file.size() != keep:
            file.truncate(keep)
        if data:
            file.append([data])
    finally:
        file.close()
    return True


def shorten(disk: Disk, handles: HandleCache, path: str, size: int) -> None:
    """Cut an index file to at most `size` bytes. Raises OSError."""
    if disk.exists(path):
        file = handles.open_apart(path)
        try:
            if file.size() > size:
                file.truncate(size)
        finally:
            file.close()
