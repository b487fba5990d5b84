"""ACLs of znodes: as bytes on the wire, and which znodes they leave open. Sans-I/O.

With `zookeeper.set.acl` only the identity that creates a znode may change it. Others may read it, but not the znodes
with credentials and settings (Kafka's sensitive paths, ZkData).
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Collection, Sequence

from kafkalite.errors import ProtocolError
from kafkalite.lazy_dataclass import dataclass

_OP_GET_ACL = 6
_OP_SET_ACL = 7
#: ZooKeeper's permissions: read 1, write 2, create 4, delete 8, admin 16.
READ = 1
CHANGE = 2 | 4 | 8 | 16
_ADMIN = 16
#: Hashes that servers may be configured with (zookeeper.DigestAuthenticationProvider.digestAlg); the first one is the default.
_DIGESTS = ("sha1", "sha256", "sha3_256")

_INT = struct.Struct("!i")
_TWO_INTS = struct.Struct("!ii")

#: world:anyone may do everything (Kafka's default), as the wire has it: a vector of one ACL.
OPEN_ACL = struct.pack("!iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
#: What only the identity of the connection may change, and anybody may read; and what nobody else may read either.
_READABLE_ACL = struct.pack("!iii4si", 2, 31, 4, b"auth", 0) + struct.pack("!ii5si6s", 1, 5, b"world", 6, b"anyone")
_PRIVATE_ACL = struct.pack("!iii4si", 1, 31, 4, b"auth", 0)
_PRIVATE_PATHS = ("/config/users", "/config/brokers", "/cluster/decoy_key", "/delegation_token/tokens")

#: The ACL of a znode to be created, from its path without the chroot.
AclOf = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class ZnodeAclEntry:
    """One entry of a znode's ACL."""

    permissions: int
    scheme: str
    identity: str


def is_private(path: str) -> bool:
    """Whether only nodes may read the znode: it has credentials, or settings that may hold secrets."""
    return any(path == each or path.startswith(each + "/") for each in _PRIVATE_PATHS)


def open_acl(_path: str) -> bytes:
    """Everybody may do everything (Kafka without zookeeper.set.acl)."""
    return OPEN_ACL


def creators_acl(path: str) -> bytes:
    """Only the identity that creates the znode may change it (zookeeper.set.acl)."""
    return _PRIVATE_ACL if is_private(path) else _READABLE_ACL


def digest_identities(credentials: bytes) -> frozenset[tuple[str, str]]:
    """How ACLs may name the identity of `USER:PASSWORD`: (scheme, identity)."""
    user = credentials.partition(b":")[0].decode()
    digests = (hashlib.new(name, credentials).digest() for name in _DIGESTS)
    return frozenset(("digest", f"{user}:{base64.b64encode(digest).decode()}") for digest in digests)


def exposure(path: str, entries: Sequence[ZnodeAclEntry], own: Collection[tuple[str, str]] = ()) -> str:
    """What others may do with this znode and should not be able to.

    "change", "read": anybody may. "other": an identity that is not in `own` may change it, or read it though it is private; who
    wrote to an open tree may have left that. Without `own` it is not known who the others are. "": nothing.
    """
    anybody = others = 0
    is_ours = any((entry.scheme, entry.identity) in own and entry.permissions & _ADMIN for entry in entries)
    for entry in entries:
        if entry.scheme == "world":
            anybody |= entry.permissions
        elif (entry.scheme, entry.identity) in own:
            continue
        elif not (
            is_ours and (entry.scheme == "x509" or path == "/")
        ):  # a node's certificate; who made the chroot for us
            others |= entry.permissions
    if anybody & CHANGE:
        return "change"
    if anybody & READ and is_private(path):
        return "read"
    return "other" if own and (others & CHANGE or (others & READ and is_private(path))) else ""


def get_acl(xid: int, path: str) -> bytes:
    """getACL."""
    return _TWO_INTS.pack(xid, _OP_GET_ACL) + packed_text(path)


def set_acl(xid: int, path: str, acl: bytes) -> bytes:
    """setACL, whatever the version of the present one."""
    return _TWO_INTS.pack(xid, _OP_SET_ACL) + packed_text(path) + acl + _INT.pack(-1)


def decode_acl(frame: bytes, at: int) -> tuple[ZnodeAclEntry, ...]:
    """The entries of an answer to getACL. Raises ProtocolError."""
    found: list[ZnodeAclEntry] = []
    (count,) = _INT.unpack_from(frame, at)
    at += _INT.size
    for _ in range(count):
        (permissions,) = _INT.unpack_from(frame, at)
        scheme, at = _read_text(frame, at + _INT.size)
        identity, at = _read_text(frame, at)
        found.append(ZnodeAclEntry(permissions, scheme, identity))
    return tuple(found)


def packed_text(value: str) -> bytes:
    """A string as ZooKeeper's protocol has it."""
    raw = value.encode()
    return _INT.pack(len(raw)) + raw


def _read_text(frame: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT.unpack_from(frame, at)
    start = at + _INT.size
    end = start + max(size, 0)  # -1 is null
    if end > len(frame):
        raise ProtocolError("a length exceeds the frame")
    return frame[start:end].decode(), end
