"""What the real and the simulated Coordinator do in the same way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kafkalite.coordination.coordinator import (
    Check,
    CoordinatorError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
    OpResult,
    SetData,
    Stat,
)

#: ZooKeeper cuts the connection of a client that sends a frame over jute.maxbuffer (1 MiB less one byte), which
#: would fail every other request on it too. So larger ones are refused before they are sent; the rest is head room.
MAX_REQUEST_BYTES = 0xFFFFF - 1024

#: Upper bound of what an operation costs on the wire besides path and data (header, lengths, ACL, flags, version).
_OP_OVERHEAD_BYTES = 64

_Request = TypeVar("_Request")


class _CreateVerb(Protocol):
    async def __call__(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]: ...


async def ensure_path(create: _CreateVerb, path: str) -> None:
    """Create `path` and its parents where they are missing: one request if only it is, or nothing. Safe to repeat."""
    parts = [part for part in path.strip("/").split("/") if part]
    depth = len(parts)  # of the one to make next: up to one whose parent is there, and down again
    while 0 < depth <= len(parts):
        try:
            await create("/" + "/".join(parts[:depth]))
        except NoNodeError:
            if depth == 1:
                raise
            depth -= 1
            continue
        except NodeExistsError:
            pass
        depth += 1


class Chroot:
    """Paths as the server has them, for callers who know them without the chroot. `prefix` is "" for none."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def full(self, path: str) -> str:
        return path if not self.prefix else self.prefix if path == "/" else self.prefix + path

    def full_op(self, op: Op) -> Op:
        if not self.prefix:
            return op
        path = self.full(op.path)
        match op:
            case Check():
                return Check(path, op.version)
            case Create():
                return Create(path, op.data, op.ephemeral, op.sequential)
            case SetData():
                return SetData(path, op.data, op.version)
            case Delete():
                return Delete(path, op.version)

    def bare(self, full: str) -> str:
        """The path as the caller knows it."""
        return full[len(self.prefix) :]

    def bare_results(self, results: list[OpResult]) -> list[OpResult]:
        """A transaction's results; those that are text are paths."""
        if not self.prefix:
            return results
        return [self.bare(each) if isinstance(each, str) else each for each in results]


async def pipelined(
    send: Callable[[_Request], asyncio.Future[Any]], requests: Sequence[_Request], width: int
) -> list[Any]:
    """The results in order, errors as values, at most `width` requests under way."""
    results: list[Any] = []
    window: deque[asyncio.Future[Any] | CoordinatorError] = deque()
    try:
        for request in requests:
            if len(window) == width:
                results.append(await _outcome(window.popleft()))
            try:
                window.append(send(request))
            except CoordinatorError as error:
                window.append(error)
        while window:
            results.append(await _outcome(window.popleft()))
    finally:
        for future in window:
            if isinstance(future, asyncio.Future):
                future.add_done_callback(pass_over)
    return results


async def _outcome(future: asyncio.Future[Any] | CoordinatorError) -> Any:
    if isinstance(future, CoordinatorError):
        return future
    try:
        return await future
    except CoordinatorError as error:
        return error


def pass_over(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this one: its error is not reported."""
    if not future.cancelled():
        future.exception()


def none_where_missing(results: Sequence[Any]) -> list[tuple[bytes, Stat] | None]:
    """What `pipelined` reads found; None for a znode that is not there. Raises any other CoordinatorError of theirs."""
    found: list[tuple[bytes, Stat] | None] = []
    for result in results:
        if isinstance(result, CoordinatorError) and not isinstance(result, NoNodeError):
            raise result
        found.append(None if isinstance(result, NoNodeError) else result)
    return found


def size_of_ops(ops: Sequence[Op]) -> int:
    """Bytes of a transaction on the wire, at most."""
    total = 0
    for op in ops:
        total += len(op.path) * (1 if op.path.isascii() else 4) + _OP_OVERHEAD_BYTES
        if isinstance(op, Create | SetData):
            total += len(op.data)
    return total
