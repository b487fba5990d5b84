"""When a session's attempts to reach a server are made, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import struct
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from kafkalite.coordination import aiozk_adapter, zk_codec
from kafkalite.coordination.coordinator import NotSentError, OutcomeUnknownError
from kafkalite.coordination.zk_connection import Pending, ZkConnection
from kafkalite.coordination.zk_session import ZkSession
from kafkalite.env.seams import Network
from kafkalite.errors import ProtocolError
from kafkalite.model import Endpoint
from kafkalite.testing.simulated.clock import SimClock
from kafkalite.testing.simulated.loop import SimLoop


class Refusing:
    """A network on which nobody listens; notes when it was asked."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.asked_at: list[float] = []

    async def dial(self, host: str, port: int, tls: object = None) -> object:
        self.asked_at.append(self.loop.time())
        raise ConnectionRefusedError


class Silent(Refusing):
    """... or that takes every connection and never says a word."""

    async def dial(self, host: str, port: int, tls: object = None) -> object:
        self.asked_at.append(self.loop.time())
        return await asyncio.Event().wait()


class Closing(Refusing):
    """... or that takes every connection and closes it, as a server does whose data is older than what the client has seen."""

    async def dial(self, host: str, port: int, tls: object = None) -> object:
        self.asked_at.append(self.loop.time())
        reader = asyncio.StreamReader()
        reader.feed_eof()
        nothing = SimpleNamespace(abort=lambda: None)
        return reader, SimpleNamespace(write=lambda data: None, close=lambda: None, transport=nothing)


@pytest.mark.parametrize(("kind", "is_refused"), [(Refusing, False), (Silent, False), (Closing, True)])
def test_a_server_that_closes_every_connection_is_told_from_one_that_is_away(
    kind: type[Refusing], *, is_refused: bool
) -> None:
    """Nodes that ran while ZooKeeper was put back to an earlier state said for ever that it did not answer."""
    loop = SimLoop()  # type: ignore[abstract]

    async def main() -> bool:
        network = cast(Network, kind(loop))
        session = ZkSession([Endpoint("zk", 2181)], 6_000, clock=SimClock(loop), network=network, rng=Random(1))
        with pytest.raises(NotSentError):
            await session.begin(lambda: asyncio.sleep(0))
        return session.is_refused

    try:
        assert loop.run_until_complete(main()) is is_refused
    finally:
        loop.close()


def attempts(kind: type[Refusing], timeout_ms: int) -> tuple[list[float], float]:
    """(moments of the attempts, when they were given up), seconds."""
    loop = SimLoop()  # type: ignore[abstract]
    network = kind(loop)

    async def main() -> None:
        with pytest.raises(NotSentError):
            await aiozk_adapter.connect(
                "zk:2181", timeout_ms, clock=SimClock(loop), network=cast(Network, network), rng=Random(1)
            )

    try:
        loop.run_until_complete(main())
        return network.asked_at, loop.time()
    finally:
        loop.close()


def test_refused_attempts_back_off_but_never_for_long() -> None:
    moments, given_up_at = attempts(Refusing, 20_000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    bases = [min(0.05 * 2**number, 1.0) for number in range(len(gaps))]
    assert all(0.5 * base <= gap <= 1.5 * base + 1e-6 for base, gap in zip(bases, gaps))
    assert len(gaps) > 15
    assert given_up_at == pytest.approx(20, abs=1e-3)


def test_a_server_that_never_answers_is_given_more_time_at_each_attempt() -> None:
    moments, _ = attempts(Silent, 20_000)
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert gaps[0] < 0.6  # in its boot window a server accepts what it never answers
    assert max(gaps) > 2
    assert max(gaps) < 20 / 3 + 1.5


async def test_a_request_to_a_connection_that_broke_a_moment_ago_was_not_sent() -> None:
    """The transport knows, and its reader has not run yet. uvloop's ended that turn of the loop with a RuntimeError."""
    written: list[bytes] = []
    transport = SimpleNamespace(is_closing=lambda: True, abort=lambda: None)
    writer = SimpleNamespace(transport=transport, write=written.append)
    connection = ZkConnection(
        asyncio.StreamReader(),
        writer,  # type: ignore[arg-type]
        on_reply=lambda zxid: None,
        on_event=lambda kind, path: None,
    )
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    connection.send(b"request", Pending(1, future, lambda frame, at: None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    connection.abort("reset")
    with pytest.raises(NotSentError):
        await future
    assert not written


async def test_a_request_whose_answer_cannot_be_decoded_is_not_waited_for() -> None:
    """The connection ends with it; whether the request was carried out is not known."""
    reader = asyncio.StreamReader()
    transport = SimpleNamespace(is_closing=lambda: False, abort=lambda: None)
    writer = SimpleNamespace(transport=transport, write=lambda data: None)
    connection = ZkConnection(
        reader,
        writer,  # type: ignore[arg-type]
        on_reply=lambda zxid: None,
        on_event=lambda kind, path: None,
    )
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    connection.send(b"request", Pending(1, future, zk_codec.decode_children))
    await asyncio.sleep(0)
    frame = struct.pack("!iqiii", 1, 7, 0, 1, 1) + b"\xff"
    reader.feed_data(struct.pack("!i", len(frame)) + frame)
    with pytest.raises(ProtocolError, match="decoded"):
        await connection.run()
    connection.abort("malformed")
    with pytest.raises(OutcomeUnknownError):
        async with asyncio.timeout(150):
            await future
