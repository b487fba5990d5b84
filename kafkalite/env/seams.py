"""The seams as protocols; `real.py` implements them on the operating system, `kafkalite.testing` in a simulation.

Sleeping and deadlines are asyncio's (`asyncio.sleep`, `asyncio.timeout`): the simulated loop has virtual time.
Tasks are started through `kafkalite.env.supervisor.Supervisor` only.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer

if TYPE_CHECKING:
    from kafkalite.coordination.coordinator import Coordinator
    from kafkalite.security.tls import ClientTls, ServerTls


#: Minimum number of log files that a node may keep open, on any system.
LEAST_LOG_FILES = 512
#: Connections that the kernel keeps per listener until the loop accepts them (`net.core.somaxconn` may be less). What comes beyond
#: them is dropped, and the client's kernel tries again after 1 s, then 2, then 4. 100 members of a group open 200 connections to
#: each of three nodes at once, and a node whose processor is busy may not have its turn for some time.
LISTEN_BACKLOG = 512


class Clock(Protocol):
    """Time. `asyncio`'s loop time is for timers only (uvloop's has millisecond grain)."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds; never goes back; for measuring."""
        ...

    def processor(self) -> float:
        """Seconds of processor time that the calling thread has had."""
        ...

    def boottime(self) -> float:
        """Seconds since boot, counting the time this process was stopped or suspended: for leases."""
        ...


ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Listener(Protocol):
    """A bound listening socket."""

    host: str
    port: int

    async def close(self) -> None:
        """Stop accepting. Connections already accepted go on."""
        ...


class Network(Protocol):
    """TCP, and TLS over it where `tls` is given. (A simulation may leave TLS out: nobody listens in.)"""

    async def dial(
        self, host: str, port: int, tls: ClientTls | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and shake hands. Raises OSError (ssl.SSLError is one). The caller sets the deadline."""
        ...

    async def listen(self, host: str, port: int, handler: ConnectionHandler, tls: ServerTls | None = None) -> Listener:
        """Accept connections and run `handler` for each as a task; port 0 picks a free one. Raises OSError."""
        ...

    async def listen_protocol(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None = None
    ) -> Listener:
        """Accept connections, one protocol object each (for the Kafka listener's hot path). Raises OSError."""
        ...


class File(Protocol):
    """An open file. Every method but `sync` is synchronous and raises OSError."""

    path: str

    def size(self) -> int:
        """Bytes."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end with as few system calls as will do; return the bytes written (all of them)."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end of the file. Raises NotResident (env.residency)."""
        ...

    def version(self) -> int:
        """Stays the same as long as only `append` of this handle changes the file, and no read found bytes missing in the page cache.

        What was read and found right at a version is still right at the same version: neither another program nor the disk has
        replaced it. Positive; no other handle has the same one.
        """
        ...

    def write_at(self, offset: int, data: Buffer) -> None:
        """Overwrite in place (index repair, tests)."""
        ...

    def reserve(self, size: int) -> bool:
        """Give the file room on the disk for `size` bytes in all; its size stays as it is. `truncate` gives back what lies behind the end.

        False: the file system cannot do that, or has too little room; nothing has changed. Raises no OSError.
        """
        ...

    def truncate(self, size: int) -> None: ...

    async def sync(self) -> None:
        """fdatasync, off the loop. What was appended before the call is durable when it returns. Raises OSError."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DiskOutcome:
    """All that was begun on a disk has ended."""

    #: A sync failed, also if nobody waited for it any more: what the disk holds is not known.
    failed: bool


class Disk(Protocol):
    """Files and directories. Paths are absolute strings. Raises OSError like the os module."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool:
        """Raises OSError if the disk does not say: a file that cannot be looked at is not a file that is missing."""
        ...

    def read_file(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError; NotResident (env.residency)."""
        ...

    def write_file_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace the file: write beside it, sync (if durable), rename over it, sync the directory (if durable)."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names, sorted (so that nothing depends on the file system's order)."""
        ...

    def makedirs(self, path: str) -> None: ...

    def make_dir(self, path: str) -> bool:
        """Make one directory in one that is there; False if there is something of that name. Raises OSError."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove one file; no error if it is not there."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and what is in it; no error if it is not there."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """What programs may still write there."""
        ...

    def total_bytes(self, path: str) -> int:
        """Used and free bytes of the path's file system, as df counts them: without what it keeps for root."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def page_cache_id(self, path: str) -> str:
        """Changes when what was written to this directory and not synced is lost: with each boot of the host, and with each
        mount of the file system. Empty: unknown."""
        ...

    def directory_id(self, path: str) -> str:
        """Another one for each directory of the host, and for a copy of it; it stays if the directory is renamed. Raises OSError."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on the file, creating it; returns the release.

        Raises BlockingIOError if taken; OSError EBUSY if a write that was begun on this disk before `separate` has not ended.
        """
        ...

    async def run_blocking(self, function: Callable[[], object], at: str = "") -> object:
        """Run a function that does slow file work (recovery, deletion) off the loop; in a simulation, inline.

        Raises what the function raises; OSError, EAGAIN, if no thread can be started for it.

        `at`: a path on the disk that it works on; see `separate`.
        """
        ...

    async def load(self, path: str, offset: int, size: int, ahead: int = 0) -> None:
        """Bring bytes of a file into the page cache, off the loop, and begin to read `ahead` bytes behind them.

        Errors are not raised: the read that needs the bytes meets them. The file may be gone.
        """
        ...

    def separate(self, path: str) -> None:
        """Work below this directory has threads of its own from now on. None of them is busy with work from before the call."""
        ...

    def completed(self, path: str) -> int | None:
        """How many operations the device of this directory has completed; None if nobody counts them.

        Does not touch the disk. The directory is one in which a file was locked.
        """
        ...

    def abandon(self, path: str) -> None:
        """The disk of this directory is given up: files on it are let go without waiting for it."""
        ...

    def outcome(self, path: str) -> DiskOutcome | None:
        """What became of all syncs and work in threads that were begun on this directory's disk; None: something is still under way."""
        ...


@dataclass(frozen=True, slots=True)
class Env:
    """What a node runs in."""

    clock: Clock
    network: Network
    disk: Disk
    random: random.Random
    #: Opens ONE new ZooKeeper session: (connect string with optional chroot, session timeout in ms).
    connect_coordinator: Callable[[str, int], Awaitable[Coordinator]]
    #: N bytes that nobody can foretell (nonces, salts); in a simulation, from its seed.
    entropy: Callable[[int], bytes] = os.urandom
    #: What connects to ZooKeeper's servers, once it has, if they speak TLS.
    zookeeper_tls: Callable[[], ClientTls | None] = lambda: None
    #: How many log files may be kept open.
    log_files: int = LEAST_LOG_FILES
    #: How many file descriptors the process uses, and its limit.
    descriptors: Callable[[], tuple[int, int]] = lambda: (0, LEAST_LOG_FILES)
