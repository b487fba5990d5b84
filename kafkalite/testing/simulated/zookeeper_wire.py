"""What goes between a simulated coordinator and its server: requests, the connection that they travel on, the session."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.coordination.coordinator import Op
from kafkalite.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kafkalite.testing.simulated.coordinator import SimCoordinator


@dataclass(frozen=True, slots=True)
class Read:
    """A read or a session's own request; `verb` is get, exists, children, sync, ping or close."""

    verb: str
    path: str = "/"
    watch: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A transaction; `single` is answered with (path, Stat) instead of a list of results."""

    ops: tuple[Op, ...]
    single: bool


#: What a fault schedule sees of a request: the verbs of the seam.
Request = Read | Write


@dataclass(eq=False, slots=True)
class Direction:
    """One way of a connection: messages arrive in the order sent."""

    queue: deque[Callable[[], None]] = field(default_factory=deque)
    last_at: float = 0.0
    held: int = 0


@dataclass(eq=False, slots=True)
class Link:
    """A connection between one client and the server."""

    client: SimCoordinator
    context: contextvars.Context
    session: Session | None = None
    closed: bool = False
    up: Direction = field(default_factory=Direction)
    down: Direction = field(default_factory=Direction)


@dataclass(eq=False, slots=True)
class Session:
    session_id: int
    host: str
    timeout_s: float
    expires_at: float
    link: Link | None = None
    timer: asyncio.TimerHandle | None = None
