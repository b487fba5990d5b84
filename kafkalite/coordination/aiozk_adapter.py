"""The Coordinator on a real ZooKeeper: the seam's verbs on a session of ours (zk_session), in aiozk's codec.

Built on aiozk's codec only. Its Session and Connection lose elections and fences (noticed dead connections late,
replayed writes in a later session, replaced sessions silently; docs/adr/0002), so connection and session are ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkalite.config import BrokerConfig
from kafkalite.coordination import zk_acl_codec as acl_codec
from kafkalite.coordination import zk_codec as codec
from kafkalite.coordination.coordinator import (
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    NoNodeError,
    Op,
    OpResult,
    SetData,
    Stat,
    Watch,
)
from kafkalite.coordination.paths import split_connect_string
from kafkalite.coordination.retry import retrying
from kafkalite.coordination.verbs import (
    MAX_REQUEST_BYTES,
    Chroot,
    ensure_path,
    none_where_missing,
    pipelined,
)
from kafkalite.coordination.watches import WatchKind
from kafkalite.coordination.zk_session import ZkSession
from kafkalite.env.seams import Clock, Network
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Endpoint

if TYPE_CHECKING:
    from kafkalite.security.tls import ClientTls

#: How many requests are under way at once: reads of one znode, reads of many, transactions.
_READ_WINDOW = 512
_MULTI_READ_WINDOW = 16
_MULTI_WINDOW = 16
#: Of one multiRead. If each znode were as large as a server takes (1 MiB), the answer would just be one that a connection
#: takes; a hundred times as many znodes in a request are not faster.
_MULTI_READ_PATHS = 60
_MULTI_READ_BYTES = MAX_REQUEST_BYTES // 4


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """What ZooKeeper is shown, and asked for.

    Args:
        auth: (scheme, credentials), for example ("digest", b"user:password"); sent on every connection.
        set_acl: what is created may be changed by that identity only.
        tls: the server's port speaks TLS.
    """

    auth: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    set_acl: bool = False
    tls: ClientTls | None = None


_ANYBODY = ZooKeeperAccess()


def access_of(config: BrokerConfig) -> ZooKeeperAccess:
    """As configured (`zookeeper.auth` and the like). Raises ConfigError."""
    auth: tuple[tuple[str, bytes], ...] = ()
    tls = None
    if config.zookeeper_auth:
        from kafkalite.security.files import reveal  # loaded only where it is used

        credentials = reveal("zookeeper.auth", config.zookeeper_auth)
        user, _, password = credentials.partition(":")
        if not user or not password:
            raise ConfigError("zookeeper.auth: not USER:PASSWORD")
        auth = (("digest", credentials.encode()),)
    if config.zookeeper_ssl_client_enable:
        from kafkalite.security.tls import ClientTls, TlsFiles

        files = TlsFiles(config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_truststore_location)
        tls = ClientTls(files, check_hostname=bool(config.ssl_endpoint_identification_algorithm))
        tls.context()
    return ZooKeeperAccess(auth, config.zookeeper_set_acl, tls)


async def connect(
    connect_string: str,
    session_timeout_ms: int,
    *,
    clock: Clock,
    network: Network,
    rng: Random,
    access: ZooKeeperAccess = _ANYBODY,
    makes_chroot: bool = True,
) -> Coordinator:
    """Open a new session, and make the chroot if it is not there.

    Args:
        connect_string: "host:port,host:port/chroot".
        access: identity, ACLs and TLS.
        makes_chroot: False for a caller that is about a cluster that exists: a chroot that is not there is an error.
    Raises:
        NotSentError: nobody answered within the session timeout.
        AuthFailedError: the credentials were refused.
        ConfigError: the connect string is none, or its chroot is not there.
    """
    servers, chroot = split_connect_string(connect_string)
    session = ZkCoordinator(servers, chroot, session_timeout_ms, clock=clock, network=network, rng=rng, access=access)
    await session.open(makes_chroot=makes_chroot)
    return session


def connector(clock: Clock, network: Network, rng: Random) -> Callable[[str, int], Awaitable[Coordinator]]:
    """Env.connect_coordinator on real servers."""

    async def connect_real(connect_string: str, session_timeout_ms: int) -> Coordinator:
        return await connect(connect_string, session_timeout_ms, clock=clock, network=network, rng=rng)

    return connect_real


class ZkCoordinator(ZkSession):
    """See the seam for what every method promises."""

    def __init__(
        self,
        servers: Sequence[Endpoint],
        chroot: str,
        timeout_ms: int,
        *,
        clock: Clock,
        network: Network,
        rng: Random,
        access: ZooKeeperAccess = _ANYBODY,
    ) -> None:
        super().__init__(servers, timeout_ms, clock=clock, network=network, rng=rng, auth=access.auth, tls=access.tls)
        self._root = Chroot(chroot)
        #: Until a server says that it does not.
        self._knows_multi_read = True
        self._sets_acl = access.set_acl
        self.identities = frozenset(
            each for scheme, text in access.auth if scheme == "digest" for each in acl_codec.digest_identities(text)
        )
        #: On paths with the chroot.
        self._acl_of: acl_codec.AclOf = self._creators_acl if access.set_acl else acl_codec.open_acl

    async def open(self, *, makes_chroot: bool = True) -> None:
        """Connect; see `connect`."""
        await self.begin(self._make_chroot if makes_chroot else self._find_chroot)

    async def _find_chroot(self) -> None:
        """Raises ConfigError."""
        if await retrying(lambda: self.exists("/")) is None:
            raise ConfigError(f"there is no cluster: ZooKeeper has no {self._root.prefix}")

    async def _make_chroot(self) -> None:
        root, self._root = self._root, Chroot("")
        # ZooKeeper refuses to create in a directory that we may not change, even what is there: an operator may have made it for us.
        if root.prefix and await retrying(lambda: self.exists(root.prefix)) is None:
            await retrying(lambda: self.ensure_path(root.prefix))
        self._root = root
        if self._sets_acl and not root.prefix:
            await retrying(self._close_new_root)

    async def _close_new_root(self) -> None:
        """Without a chroot: "/" of a server that nobody uses yet gets the ACL that a chroot would be created with.

        Otherwise others could delete what is directly below it, such as /controller. If there is more in it, it may be somebody
        else's, or have nodes without this identity: then the check of the tree reports it.
        """
        if not set((await self.children("/"))[0]) - {"zookeeper"}:
            await self.set_acls(["/"], is_open=False)

    def _creators_acl(self, path: str) -> bytes:
        return acl_codec.creators_acl(self._root.bare(path))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        full = self._root.full(path)
        found: tuple[bytes, Stat] = await self._request(
            lambda xid: codec.get(xid, full, watch=watch is not None),
            codec.decode_get,
            self._arming(WatchKind.DATA, full, watch),
        )
        return found

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        full = [self._root.full(path) for path in paths]
        if self._knows_multi_read and len(full) > 1:
            try:
                return await self._multi_read(full)
            except codec.UnimplementedError:
                self._knows_multi_read = False
                # With that answer the server ended the connection; a caller who only reads shall not be the one to hear it.
                return await retrying(lambda: self._read_each(full))
        return await self._read_each(full)

    async def _read_each(self, full: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        send = partial(self._send, decode=codec.decode_get)
        return none_where_missing(
            await pipelined(send, [partial(codec.get, path=path, watch=False) for path in full], _READ_WINDOW)
        )

    async def _multi_read(self, full: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """A twentieth of what single reads cost the server, a fifth here. Raises UnimplementedError."""
        encoders = [partial(codec.multi_read, paths=chunk) for chunk in _chunks(full)]
        send = partial(self._send, decode=codec.decode_multi_read)
        results: list[tuple[bytes, Stat] | CoordinatorError] = []
        for answer in await pipelined(send, encoders, _MULTI_READ_WINDOW):
            if isinstance(answer, CoordinatorError):
                raise answer
            results += answer
        return none_where_missing(results)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        full = self._root.full(path)
        try:
            stat: Stat = await self._request(
                lambda xid: codec.exists(xid, full, watch=watch is not None),
                codec.decode_stat,
                self._arming(WatchKind.EXIST, full, watch),
            )
        except NoNodeError:
            return None
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        full = self._root.full(path)
        found: tuple[list[str], Stat] = await self._request(
            lambda xid: codec.children(xid, full, watch=watch is not None),
            codec.decode_children,
            self._arming(WatchKind.CHILD, full, watch),
        )
        return found

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        op = Create(self._root.full(path), data, ephemeral, sequential)
        acl = self._acl_of(op.path)
        made, stat = await self._request(lambda xid: codec.create(xid, op, acl), codec.decode_create)
        return self._root.bare(made), stat

    async def ensure_path(self, path: str) -> None:
        await ensure_path(self.create, path)

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        op = SetData(self._root.full(path), data, version)
        stat: Stat = await self._request(lambda xid: codec.set_data(xid, op), codec.decode_stat)
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        op = Delete(self._root.full(path), version)
        await self._request(lambda xid: codec.delete(xid, op), codec.decode_nothing)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        full = [self._root.full_op(op) for op in ops]
        results: list[OpResult] = await self._request(
            lambda xid: codec.multi(xid, full, self._acl_of), codec.decode_multi
        )
        return self._root.bare_results(results)

    async def multi_many(self, transactions: Sequence[Sequence[Op]]) -> list[list[OpResult] | CoordinatorError]:
        encoders = [
            partial(codec.multi, ops=[self._root.full_op(op) for op in ops], acl_of=self._acl_of)
            for ops in transactions
        ]
        results = await pipelined(partial(self._send, decode=codec.decode_multi), encoders, _MULTI_WINDOW)
        return [
            result if isinstance(result, CoordinatorError) else self._root.bare_results(result) for result in results
        ]

    # --- ACLs (coordination.znode_acls) --------------------------------------------------------------------------

    async def acls(self, paths: Sequence[str]) -> list[tuple[acl_codec.ZnodeAclEntry, ...] | CoordinatorError]:
        encoders = [partial(acl_codec.get_acl, path=self._root.full(path)) for path in paths]
        return await pipelined(partial(self._send, decode=acl_codec.decode_acl), encoders, _READ_WINDOW)

    async def set_acls(self, paths: Sequence[str], *, is_open: bool) -> list[CoordinatorError | None]:
        acl_of = acl_codec.open_acl if is_open else acl_codec.creators_acl
        encoders = [partial(acl_codec.set_acl, path=self._root.full(path), acl=acl_of(path)) for path in paths]
        return await pipelined(partial(self._send, decode=codec.decode_nothing), encoders, _READ_WINDOW)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | CoordinatorError]:
        encoders = [partial(codec.children, path=self._root.full(path), watch=False) for path in paths]
        results = await pipelined(partial(self._send, decode=codec.decode_children), encoders, _READ_WINDOW)
        return [result if isinstance(result, CoordinatorError) else result[0] for result in results]

    async def sync(self, path: str) -> None:
        full = self._root.full(path)
        await self._request(lambda xid: codec.sync(xid, full), codec.decode_nothing)


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many as a multiRead takes; a path too long for that is alone, and is refused as a single read would be."""
    first = size = 0
    for at, path in enumerate(paths):
        cost = len(path) * (1 if path.isascii() else 4)
        if at > first and (at - first == _MULTI_READ_PATHS or size + cost > _MULTI_READ_BYTES):
            yield paths[first:at]
            first, size = at, 0
        size += cost
    if first < len(paths):
        yield paths[first:]
