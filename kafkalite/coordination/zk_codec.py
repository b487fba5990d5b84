"""ZooKeeper's frames as bytes. Sans-I/O.

The rare requests are aiozk's; those that a controller sends by the ten thousand (reads, conditional writes, multi)
are packed here with structs compiled once, byte for byte what aiozk.protocol packs (a test compares), at about a
twentieth of the cost. Frames are returned without the length in front.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from aiozk import protocol

from kafkalite.coordination.coordinator import (
    AuthFailedError,
    BadVersionError,
    Check,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SessionExpiredError,
    SetData,
    Stat,
)
from kafkalite.coordination.watches import WatchKind
from kafkalite.coordination.zk_acl_codec import OPEN_ACL, AclOf, open_acl, packed_text
from kafkalite.errors import ProtocolError
from kafkalite.lazy_dataclass import dataclass

# xids of what is not an answer to a numbered request
WATCH_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8

_OP_CREATE = 1
_OP_DELETE = 2
_OP_EXISTS = 3
_OP_GET = 4
_OP_SET = 5
_OP_CHILDREN2 = 12
_OP_CHECK = 13
_OP_MULTI = 14
_OP_CREATE2 = 15
_OP_MULTI_READ = 22
#: in the answer to a multi or multiRead: this operation was not done, and why
_ERROR_RESULT = -1

#: codes in error results of a multi that only say "because of another operation"
_ROLLED_BACK = 0
_RUNTIME_INCONSISTENCY = -2

#: The session goes on with another server: this connection is of no use any more.
SESSION_MOVED = -118


class UnimplementedError(CoordinatorError):
    """The server is older than the request; nothing was done."""


_ERRORS: dict[int, type[CoordinatorError]] = {
    -6: UnimplementedError,
    -101: NoNodeError,
    -102: AuthFailedError,
    -103: BadVersionError,
    -110: NodeExistsError,
    -111: NotEmptyError,
    -112: SessionExpiredError,
    -115: AuthFailedError,
}

_INT = struct.Struct("!i")
_TWO_INTS = struct.Struct("!ii")
_LENGTH_AND_FLAG = struct.Struct("!?")
_REPLY_HEADER = struct.Struct("!iqi")
_MULTI_HEADER = struct.Struct("!i?i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_CONNECT_RESPONSE = struct.Struct("!iiqi")
_EVENT = struct.Struct("!iii")

_MULTI_END = _MULTI_HEADER.pack(-1, 1, -1)
_MULTI_OP = {code: _MULTI_HEADER.pack(code, 0, -1) for code in (_OP_CREATE, _OP_DELETE, _OP_GET, _OP_SET, _OP_CHECK)}
_NO_WATCH = _LENGTH_AND_FLAG.pack(0)

Decoder = Callable[[bytes, int], Any]


def error_of(code: int, what: str = "") -> CoordinatorError:
    """The exception for a server's error code."""
    known = _ERRORS.get(code)
    return (
        CoordinatorError(f"ZooKeeper error {code} {what}".rstrip()) if known is None else known(what or f"code {code}")
    )


# --- the session -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Granted:
    """ConnectResponse; session_id 0 says that the session asked for is gone."""

    timeout_ms: int
    session_id: int
    password: bytes


def connect_request(session_id: int, password: bytes, timeout_ms: int, seen_zxid: int) -> bytes:
    """The first frame of a connection."""
    request = protocol.ConnectRequest(
        protocol_version=0,
        last_seen_zxid=seen_zxid,
        timeout=timeout_ms,
        session_id=session_id,
        password=password or bytes(16),
        read_only=False,
    )
    frame: bytes = request.serialize()
    return frame


def decode_connect_response(frame: bytes) -> Granted:
    """Raises ProtocolError."""
    try:
        _, timeout_ms, session_id, size = _CONNECT_RESPONSE.unpack_from(frame)
    except struct.error:
        raise ProtocolError("short ConnectResponse") from None
    return Granted(timeout_ms, session_id, frame[_CONNECT_RESPONSE.size : _CONNECT_RESPONSE.size + max(size, 0)])


def ping() -> bytes:
    """A heartbeat."""
    frame: bytes = protocol.PingRequest().serialize(PING_XID)
    return frame


def auth(scheme: str, credentials: bytes) -> bytes:
    """Credentials. They belong to the connection, so they are sent on each one."""
    frame: bytes = protocol.AuthRequest(type=0, scheme=scheme, auth=credentials).serialize(AUTH_XID)
    return frame


def close(xid: int) -> bytes:
    """End the session."""
    frame: bytes = protocol.CloseRequest().serialize(xid)
    return frame


def set_watches(seen_zxid: int, watches: Iterable[tuple[WatchKind, str]], chunk_bytes: int) -> Iterator[bytes]:
    """SetWatches in frames of about `chunk_bytes`: one big frame would cut the connection."""
    lists: dict[WatchKind, list[str]] = {kind: [] for kind in WatchKind}
    size = 0
    for kind, path in watches:
        lists[kind].append(path)
        size += len(path) * (1 if path.isascii() else 4) + _INT.size
        if size >= chunk_bytes:
            yield _set_watches_frame(seen_zxid, lists)
            lists = {each: [] for each in WatchKind}
            size = 0
    if size:
        yield _set_watches_frame(seen_zxid, lists)


def _set_watches_frame(seen_zxid: int, lists: dict[WatchKind, list[str]]) -> bytes:
    request = protocol.SetWatchesRequest(
        relative_zxid=seen_zxid,
        data_watches=lists[WatchKind.DATA],
        exist_watches=lists[WatchKind.EXIST],
        child_watches=lists[WatchKind.CHILD],
    )
    frame: bytes = request.serialize(SET_WATCHES_XID)
    return frame


# --- requests ----------------------------------------------------------------------------------------------------


def _with_flag(opcode: int, xid: int, path: str, *, flag: bool) -> bytes:
    return _TWO_INTS.pack(xid, opcode) + packed_text(path) + _LENGTH_AND_FLAG.pack(flag)


def get(xid: int, path: str, *, watch: bool) -> bytes:
    """getData."""
    return _with_flag(_OP_GET, xid, path, flag=watch)


def exists(xid: int, path: str, *, watch: bool) -> bytes:
    """exists."""
    return _with_flag(_OP_EXISTS, xid, path, flag=watch)


def children(xid: int, path: str, *, watch: bool) -> bytes:
    """getChildren2."""
    return _with_flag(_OP_CHILDREN2, xid, path, flag=watch)


def create(xid: int, op: Create, acl: bytes = OPEN_ACL) -> bytes:
    """create2 (answered with a stat)."""
    return _TWO_INTS.pack(xid, _OP_CREATE2) + _create_body(op, acl)


def set_data(xid: int, op: SetData) -> bytes:
    """setData."""
    return _TWO_INTS.pack(xid, _OP_SET) + _set_body(op)


def delete(xid: int, op: Delete) -> bytes:
    """delete."""
    return _TWO_INTS.pack(xid, _OP_DELETE) + packed_text(op.path) + _INT.pack(op.version)


def sync(xid: int, path: str) -> bytes:
    """sync."""
    frame: bytes = protocol.SyncRequest(path=path).serialize(xid)
    return frame


def multi(xid: int, ops: Sequence[Op], acl_of: AclOf = open_acl) -> bytes:
    """A transaction."""
    parts = [_TWO_INTS.pack(xid, _OP_MULTI)]
    append = parts.append
    for op in ops:
        match op:
            case SetData():
                append(_MULTI_OP[_OP_SET])
                append(_set_body(op))
            case Check(path, version):
                append(_MULTI_OP[_OP_CHECK])
                append(packed_text(path))
                append(_INT.pack(version))
            case Create():
                append(_MULTI_OP[_OP_CREATE])
                append(_create_body(op, acl_of(op.path)))
            case Delete(path, version):
                append(_MULTI_OP[_OP_DELETE])
                append(packed_text(path))
                append(_INT.pack(version))
    append(_MULTI_END)
    return b"".join(parts)


def multi_read(xid: int, paths: Iterable[str]) -> bytes:
    """getData of many znodes in one request; servers since 3.6 know it (ZOOKEEPER-1407)."""
    parts = [_TWO_INTS.pack(xid, _OP_MULTI_READ)]
    for path in paths:
        parts += (_MULTI_OP[_OP_GET], packed_text(path), _NO_WATCH)
    parts.append(_MULTI_END)
    return b"".join(parts)


def _create_body(op: Create, acl: bytes) -> bytes:
    flags = (1 if op.ephemeral else 0) | (2 if op.sequential else 0)
    return b"".join((packed_text(op.path), _INT.pack(len(op.data)), op.data, acl, _INT.pack(flags)))


def _set_body(op: SetData) -> bytes:
    path = op.path.encode()
    pack = _INT.pack
    return b"".join((pack(len(path)), path, pack(len(op.data)), op.data, pack(op.version)))


# --- answers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplyHeader:
    """xid, the server's zxid (-1 in events), error code."""

    xid: int
    zxid: int
    error: int


def decode_header(frame: bytes) -> tuple[ReplyHeader, int]:
    """The header and where the body begins. Raises ProtocolError."""
    try:
        return ReplyHeader(*_REPLY_HEADER.unpack_from(frame)), _REPLY_HEADER.size
    except struct.error:
        raise ProtocolError("short reply header") from None


def decode_event(frame: bytes, at: int) -> tuple[int, str]:
    """(event type, path) of a watch event."""
    event, _, size = _EVENT.unpack_from(frame, at)
    return event, frame[at + _EVENT.size : at + _EVENT.size + max(size, 0)].decode()


def _stat(frame: bytes, at: int) -> Stat:
    czxid, mzxid, ctime, mtime, version, _, _, owner, _, children_count, _ = _STAT.unpack_from(frame, at)
    return Stat(version, czxid, mzxid, ctime, mtime, owner, children_count)


def _sized(frame: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _INT.unpack_from(frame, at)
    start = at + _INT.size
    end = start + max(size, 0)  # -1 is null
    if end > len(frame):
        raise ProtocolError("a length exceeds the frame")
    return frame[start:end], end


def decode_get(frame: bytes, at: int) -> tuple[bytes, Stat]:
    """Data and stat."""
    data, end = _sized(frame, at)
    return data, _stat(frame, end)


def decode_stat(frame: bytes, at: int) -> Stat:
    """Of exists and setData."""
    return _stat(frame, at)


def decode_children(frame: bytes, at: int) -> tuple[list[str], Stat]:
    """Names, sorted, and the parent's stat."""
    (count,) = _INT.unpack_from(frame, at)
    at += _INT.size
    names: list[str] = []
    for _ in range(count):
        raw, at = _sized(frame, at)
        names.append(raw.decode())
    names.sort()
    return names, _stat(frame, at)


def decode_create(frame: bytes, at: int) -> tuple[str, Stat]:
    """The path made, and its stat."""
    raw, end = _sized(frame, at)
    return raw.decode(), _stat(frame, end)


def decode_nothing(_frame: bytes, _at: int) -> None:
    """Of delete, sync and close."""


def decode_multi(frame: bytes, at: int) -> list[OpResult]:
    """Per operation its result. Raises MultiFailedError."""
    results: list[OpResult] = []
    failed: tuple[int, int] | None = None
    while True:
        opcode, done, _ = _MULTI_HEADER.unpack_from(frame, at)
        at += _MULTI_HEADER.size
        if done:
            break
        match opcode:
            case 5:  # setData: its stat, of which we want the version
                results.append(_STAT.unpack_from(frame, at)[4])
                at += _STAT.size
            case 2 | 13:
                results.append(None)
            case 1:
                raw, at = _sized(frame, at)
                results.append(raw.decode())
            case -1:
                (code,) = _INT.unpack_from(frame, at)
                at += _INT.size
                if failed is None and code not in (_ROLLED_BACK, _RUNTIME_INCONSISTENCY):
                    failed = (len(results), code)
                results.append(None)
            case _:
                raise ProtocolError(f"multi answered with opcode {opcode}")
    if failed is not None:
        raise MultiFailedError(failed[0], error_of(failed[1]))
    return results


def decode_multi_read(frame: bytes, at: int) -> list[tuple[bytes, Stat] | CoordinatorError]:
    """Data and stat of each znode, or why it could not be read."""
    results: list[tuple[bytes, Stat] | CoordinatorError] = []
    while True:
        opcode, done, _ = _MULTI_HEADER.unpack_from(frame, at)
        at += _MULTI_HEADER.size
        if done:
            return results
        if opcode == _OP_GET:
            data, at = _sized(frame, at)
            results.append((data, _stat(frame, at)))
            at += _STAT.size
        elif opcode == _ERROR_RESULT:
            (code,) = _INT.unpack_from(frame, at)
            at += _INT.size
            results.append(error_of(code))
        else:
            raise ProtocolError(f"multiRead answered with opcode {opcode}")
