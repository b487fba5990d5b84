"""The Coordinator seam: what the node needs of ZooKeeper, and no more.

One Coordinator object is ONE session. Expiry is terminal: the node's supervisor opens the next one and
registers again. There are no hidden retries; the three ways to fail are three different errors:

    NotSentError         never left this process: safe to send again
    OutcomeUnknownError  written to a socket, no answer: it may have been applied
    SessionExpiredError  the session is gone, and with it our ephemerals and watches

Implementations: `aiozk_adapter.py` (a real server) and `kafkalite.testing.simulated.coordinator` (in memory); one
contract suite holds both to this text. All paths are absolute, without the chroot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Protocol

from kafkalite.errors import ErrorCode, KafkaliteError
from kafkalite.lazy_dataclass import dataclass


class CoordinatorError(KafkaliteError):
    """Root of what ZooKeeper can answer, or fail to."""


class NotSentError(CoordinatorError):
    """There was no connection; the request was never written. Safe to retry."""


class OutcomeUnknownError(CoordinatorError):
    """The connection went between request and answer; the request may have been applied. Read before you retry."""


class SessionExpiredError(CoordinatorError):
    """The session has expired or was closed. Terminal for this object."""


class TooBigError(CoordinatorError):
    """The request would exceed ZooKeeper's frame limit; it was not sent."""


class NoNodeError(CoordinatorError):
    """The znode (or its parent) is not there."""


class NodeExistsError(CoordinatorError):
    """The znode is already there."""


class BadVersionError(CoordinatorError):
    """The version given is not the znode's."""


class NotEmptyError(CoordinatorError):
    """The znode has children."""


class AuthFailedError(CoordinatorError):
    """ZooKeeper refused the credentials, or the ACL forbids it."""


class MultiFailedError(CoordinatorError):
    """Nothing of the transaction was applied: operation `index` failed with `error`."""

    def __init__(self, index: int, error: CoordinatorError) -> None:
        super().__init__(f"operation {index} failed: {error!r}")
        self.index = index
        self.error = error


def refusal_of(error: CoordinatorError) -> ErrorCode:
    """The code for the client whose request failed by this. Only if ZooKeeper has not answered may the client send it again."""
    if isinstance(error, NotSentError | OutcomeUnknownError | SessionExpiredError):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.INVALID_REQUEST if isinstance(error, TooBigError) else ErrorCode.UNKNOWN_SERVER_ERROR


class SessionState(Enum):
    """CONNECTED and SUSPENDED alternate; EXPIRED is the end."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Stat:
    """Of a znode, the fields that we use."""

    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int
    child_count: int


@dataclass(frozen=True, slots=True)
class Check:
    """The znode must have this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode. `sequential` lets the server append ten digits to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data; version -1 means any."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the znode; version -1 means any."""

    path: str
    version: int = -1


Op = Check | Create | SetData | Delete
#: Of a multi, per operation: Check -> None, Create -> path, SetData -> the new version, Delete -> None.
OpResult = None | str | int

#: Called with nothing, in the loop, when something about the watched znode may have changed: read it again.
#: Level-triggered: also called after a reconnect or when it could have changed unseen. Fires at most once per arming.
Watch = Callable[[], None]


class Coordinator(Protocol):
    """One ZooKeeper session. Every method raises NotSentError, OutcomeUnknownError (reads: retry freely) and SessionExpiredError."""

    @property
    def session_id(self) -> int:
        """What `Stat.ephemeral_owner` of our ephemerals equals."""
        ...

    @property
    def state(self) -> SessionState: ...

    def lease_left(self) -> float:
        """Seconds for which the server surely still holds our session; <= 0 means: act as fenced.

        Counted from the SENDING of a request whose answer proves that the ensemble, not just one server of it, holds the
        session, on a clock that runs while we are stopped (ADR 15).
        """
        ...

    def silent_s(self) -> float:
        """Seconds since the last message of a server; while all is well never more than a sixth of the timeout."""
        ...

    @property
    def is_refused(self) -> bool:
        """Whether every server took our last connection and closed it without an answer."""
        ...

    @property
    def timeout_s(self) -> float:
        """The session's timeout, as the server has granted it."""
        ...

    def on_state(self, callback: Callable[[SessionState], None]) -> None:
        """Call back synchronously at every change of state. EXPIRED is reported exactly once."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data and stat. The watch (data changed or deleted) is armed only if the znode is there. Raises NoNodeError."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Pipelined reads, bounded in flight; None where there is no znode."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Stat or None. The watch fires on creation, deletion, data change."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """Names, sorted, and the stat of the parent. The watch fires when a child comes or goes. Raises NoNodeError."""
        ...

    def forget(self, watches: Collection[Watch]) -> None:
        """What these belong to is over: those that are armed do not fire, unless their event has come already."""
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        """The path made (with its digits if sequential) and its stat. Raises NodeExistsError, NoNodeError (parent)."""
        ...

    async def ensure_path(self, path: str) -> None:
        """Make the path and its parents, persistent and empty, where they are missing."""
        ...

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        """Conditional write. Raises BadVersionError, NoNodeError."""
        ...

    async def delete(self, path: str, version: int = -1) -> None:
        """Raises NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing. Raises MultiFailedError."""
        ...

    async def multi_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[OpResult] | CoordinatorError]:
        """Many transactions, pipelined, bounded in flight, each one all-or-nothing; an error is a value here."""
        ...

    async def sync(self, path: str) -> None:
        """Reads that follow see all that was committed before this call."""
        ...

    async def close(self) -> None:
        """End the session; the server drops our ephemerals at once. Bounded in time; never raises."""
        ...
