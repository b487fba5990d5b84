"""What goes between a simulated coordinator and its server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

from kafkalite.coordination.coordinator import Op
from kafkalite.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Read:
    """A read or a session's own request; `verb` is get, exists, children, sync, ping or close."""

    verb: str
    path: str = "/"
    watch: bool = False


@dataclass(frozen=True, slots=True)
class ZooKeeperWrite:
    """A transaction; `single` is answered with (path, Stat) instead of a list of results."""

    ops: tuple[Op, ...]
    single: bool


#: What a fault schedule sees of a request: the verbs of the seam.
Request = Read | ZooKeeperWrite


@dataclass(eq=False, slots=True)
class Direction:
    """One way of a connection: messages arrive in the order sent."""

    queue: deque[Callable[[], None]] = field(default_factory=deque)
    last_at: float = 0.0
    held: int = 0
