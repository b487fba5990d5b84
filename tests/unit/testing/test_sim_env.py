"""A toy program in a simulated world: what survives which end, and that the world runs the same way every time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog

from kafkalite.coordination.coordinator import (
    NodeExistsError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
)
from kafkalite.env.seams import Env
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.testing.simulated.env import SimWorld
from kafkalite.testing.simulated.process import SimProcess

_log = structlog.get_logger(__name__)

SESSION_MS = 2_000


async def toy(env: Env) -> None:
    """Holds an ephemeral znode, answers "count" with the number of lines in its file, and appends a line for any other."""
    disk = env.disk
    disk.makedirs("/data")
    disk.lock("/data/.lock")
    file = disk.open("/data/lines", create=True)
    failed: list[BaseException] = []
    supervisor = Supervisor(failed.append)
    session = await env.connect_coordinator("zookeeper:2181", SESSION_MS)
    _log.info("toy.connected", session=session.session_id)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line == b"count\n":
                writer.write(b"%d\n" % file.read_at(0, file.size()).count(b"\n"))
            elif line == b"die\n":
                supervisor.spawn("dying", _die(), Policy.FATAL)
            else:
                file.append([line])
                await file.sync()
                disk.sync_dir("/data")
                writer.write(b"ok\n")
            await writer.drain()

    await env.network.listen("server", 7, handle)
    while session.state is not SessionState.EXPIRED and not failed:
        with contextlib.suppress(NodeExistsError, NotSentError, OutcomeUnknownError, SessionExpiredError):
            await session.create("/toy", str(env.clock.wall_ms()).encode(), ephemeral=True)
        await asyncio.sleep(0.1 + env.random.random() / 10)
    raise failed[0] if failed else OSError("session lost")


async def _die() -> None:
    raise OSError("told to")


class Toy:
    def __init__(self, seed: int = 1) -> None:
        self.world = SimWorld(seed)
        self.exits: list[tuple[str, str]] = []

    def start(self) -> SimProcess:
        return self.world.start("server", toy, lambda process, error: self.exits.append((str(process), str(error))))

    async def ask(self, line: bytes, patience_s: float = 5.0) -> bytes:
        async with asyncio.timeout(patience_s):
            reader, writer = await self.world.network.of("client").dial("server", 7)
            try:
                writer.write(line + b"\n")
                return (await reader.readline()).strip()
            finally:
                writer.close()

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self.world.run(main())
        finally:
            self.world.close()


async def settle() -> None:
    await asyncio.sleep(1)


def test_a_crash_keeps_the_file_and_the_session_ends_by_itself() -> None:
    toy = Toy()

    async def main() -> None:
        toy.start()
        await settle()
        assert await toy.ask(b"one") == b"ok"
        toy.world.crash("server")
        with pytest.raises(ConnectionRefusedError):
            await toy.ask(b"two")
        assert toy.world.zookeeper.peek("/toy") is not None, "its session is not over yet"
        await asyncio.sleep(SESSION_MS / 1000 + 1)
        assert toy.world.zookeeper.peek("/toy") is None
        toy.start()
        await settle()
        assert await toy.ask(b"count") == b"1"
        assert toy.exits == [], "a crash has no exit"

    toy.run(main)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_after_a_sync_survives_power_loss(seed: int) -> None:
    toy = Toy(seed)

    async def main() -> None:
        toy.start()
        await settle()
        for _ in range(3):
            assert await toy.ask(b"line") == b"ok"
        toy.world.lose_power("server")
        with pytest.raises(TimeoutError):
            await toy.ask(b"two")
        toy.world.power_on("server")
        toy.start()
        await settle()
        assert int(await toy.ask(b"count")) >= 3

    toy.run(main)


def test_a_paused_program_answers_when_it_is_resumed() -> None:
    toy = Toy()

    async def main() -> None:
        toy.start()
        await settle()
        toy.world.pause("server")
        with pytest.raises(TimeoutError):
            await toy.ask(b"count", 0.5)
        toy.world.resume("server")
        await settle()
        assert await toy.ask(b"count") == b"0"
        assert toy.exits == [], "it was back before its session ended"
        toy.world.pause("server")
        await asyncio.sleep(SESSION_MS / 1000 * 2)
        assert toy.world.zookeeper.peek("/toy") is None
        toy.world.resume("server")
        await settle()
        assert toy.exits == [("server#1", "session lost")]

    toy.run(main)


def test_a_program_that_ends_gives_its_port_and_lock_back() -> None:
    toy = Toy()

    async def main() -> None:
        toy.start()
        await settle()
        assert await toy.ask(b"die") == b""
        assert toy.exits == [("server#1", "told to")]
        with pytest.raises(ConnectionRefusedError):
            await toy.ask(b"count")
        await asyncio.sleep(SESSION_MS / 1000 * 2)
        assert str(toy.start()) == "server#2"
        await settle()
        assert await toy.ask(b"count") == b"0"

    toy.run(main)


def test_log_lines_carry_virtual_time_and_process_and_leave_structlog_alone() -> None:
    before = structlog.get_config()
    toy = Toy()

    async def main() -> None:
        toy.start()
        await settle()

    toy.run(main)
    (line,) = [line for line in toy.world.log.lines() if "toy.connected" in line]
    assert line.split()[1] == "server#1"
    assert float(line.split()[0]) < 1
    assert toy.world.log.count("toy.connected") == 1
    assert structlog.get_config() == before
