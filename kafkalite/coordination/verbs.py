"""What the real and the simulated Coordinator do in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kafkalite.coordination.coordinator import Create, NodeExistsError, NoNodeError, Op, SetData, Stat
from kafkalite.errors import ConfigError
from kafkalite.model import Endpoint

#: ZooKeeper cuts the connection of a client that sends a frame over jute.maxbuffer (1 MiB less one byte), which
#: would fail every other request on it too. So larger ones are refused before they are sent; the rest is head room.
MAX_REQUEST_BYTES = 0xFFFFF - 1024

#: Upper bound of what an operation costs on the wire besides path and data (header, lengths, ACL, flags, version).
_OP_OVERHEAD_BYTES = 64

_DEFAULT_PORT = 2181


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


def size_of_ops(ops: Sequence[Op]) -> int:
    """Bytes of a transaction on the wire, at most."""
    total = 0
    for op in ops:
        total += len(op.path) * (1 if op.path.isascii() else 4) + _OP_OVERHEAD_BYTES
        if isinstance(op, Create | SetData):
            total += len(op.data)
    return total


def split_connect_string(connect: str) -> tuple[tuple[Endpoint, ...], str]:
    """("h1:2181,h2/kafka") -> (endpoints, "/kafka"); the chroot is "" if there is none. Raises ConfigError."""
    hosts, slash, chroot = connect.strip().partition("/")
    chroot = slash + chroot.rstrip("/") if chroot.strip("/") else ""
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ConfigError(f"zookeeper.connect: {chroot!r} is not a path")
    endpoints: list[Endpoint] = []
    for item in hosts.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon:
            host, port = item.strip(), str(_DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) <= 65535:
            raise ConfigError(f"zookeeper.connect: {item.strip()!r} is not host:port")
        endpoints.append(Endpoint(host, int(port)))
    return tuple(endpoints), chroot
