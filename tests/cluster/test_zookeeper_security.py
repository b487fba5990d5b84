"""ZooKeeper over TLS, and znodes that belong to whoever made them."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kafkalite.coordination import aiozk_adapter
from kafkalite.coordination.aiozk_adapter import ZooKeeperAccess
from kafkalite.coordination.coordinator import AuthFailedError, Coordinator, Create, MultiFailedError, NotSentError
from kafkalite.coordination.scram_users import alter_user, list_users
from kafkalite.env.real import RealClock
from kafkalite.env.real_network import RealNetwork
from kafkalite.security.scram import make_credential
from kafkalite.security.tls import ClientTls, ServerTls, TlsFiles
from kafkalite.testing.certificates import Authority
from tests.zk import ZooKeeperForTests

pytestmark = [pytest.mark.zookeeper, pytest.mark.cluster]

_TIMEOUT_MS = 10_000
MINE = ZooKeeperAccess((("digest", b"me:hush"),), set_acl=True)


async def connect(where: str, access: ZooKeeperAccess = ZooKeeperAccess()) -> Coordinator:  # noqa: B008 - a frozen value
    return await aiozk_adapter.connect(
        where, _TIMEOUT_MS, clock=RealClock(), network=RealNetwork(), rng=random.Random(1), access=access
    )


async def test_what_we_make_is_ours(zookeeper: ZooKeeperForTests) -> None:
    """By create and in transactions; others may read, but not users and broker settings."""
    where = zookeeper.chroot("acl")
    mine, stranger = await connect(where, MINE), await connect(where)
    for path in ("/config/users", "/config/brokers", "/config/changes"):
        await mine.ensure_path(path)
    await mine.create("/open", b"x")
    await mine.multi([Create("/in-multi", b"x"), Create("/config/brokers/1", b"{}")])
    text = make_credential("SCRAM-SHA-512", "hush", b"saltsalt").text()
    await alter_user(mine, "a b/ü~*", {"SCRAM-SHA-512": text})
    assert await list_users(mine, None) == {"a b/ü~*": {"SCRAM-SHA-512": 4096}}
    assert (await mine.children("/config/users"))[0] == ["a%20b%2F%C3%BC%7E%2A"]  # as Kafka's Sanitizer writes it
    for path in ("/open", "/in-multi"):
        assert (await stranger.get(path))[0] == b"x"
        with pytest.raises(AuthFailedError):
            await stranger.set(path, b"y")
        with pytest.raises(AuthFailedError):
            await stranger.create(f"{path}/below")
    for path in ("/config/users", "/config/users/a%20b%2F%C3%BC%7E%2A", "/config/brokers/1"):
        with pytest.raises(AuthFailedError):
            await stranger.get(path)
    with pytest.raises((AuthFailedError, MultiFailedError)):
        await alter_user(stranger, "a b/ü~*", {"SCRAM-SHA-512": None})
    again = await connect(where, MINE)
    await again.set("/open", b"z")
    for each in (mine, stranger, again):
        await each.close()


async def test_over_tls(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    """Through a door that speaks TLS; who does not trust it, or does not speak TLS, gets no session."""
    authority = Authority(tmp_path)
    trusting = ClientTls(TlsFiles(truststore=authority.truststore))
    network = RealNetwork()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await network.dial(zookeeper.host, zookeeper.port)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                sink.write(data)
            sink.close()

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(copy(reader, back))
                tasks.create_task(copy(there, writer))
        finally:  # a session that is reset, and the end of the loop, end no copy
            back.close()

    door = await network.listen("127.0.0.1", 0, forward, ServerTls(TlsFiles(authority.issue("zookeeper"))))
    where = f"127.0.0.1:{door.port}/{zookeeper.chroot('tls').partition('/')[2]}"
    session = await connect(where, ZooKeeperAccess(tls=trusting))
    await session.create("/seen", b"x" * 500_000)
    assert len((await session.get("/seen"))[0]) == 500_000
    await session.close()
    for wrong in (ZooKeeperAccess(), ZooKeeperAccess(tls=ClientTls(TlsFiles()))):
        with pytest.raises(NotSentError):
            await aiozk_adapter.connect(
                where, 1_000, clock=RealClock(), network=network, rng=random.Random(1), access=wrong
            )
    await door.close()
