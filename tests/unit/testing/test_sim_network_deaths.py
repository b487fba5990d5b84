"""What a peer sees over the simulated network when a process or its host dies, stops, or fails an assertion."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulated.process import SimProcess
from tests.support.simulated_streams import World, echo, in_world


@in_world
async def test_a_crash_ends_connections_at_the_peer(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"written before the crash")
        await asyncio.Event().wait()

    port = await world.serve(handler)
    reader, _ = await world.dial(port)
    await asyncio.sleep(0.001)
    world.loop.kill_process(world.server)
    world.network.process_died(world.server)
    assert await reader.read() == b"written before the crash"
    with pytest.raises(ConnectionRefusedError):
        await world.dial(port)
    again = world.loop.process("s")
    assert await world.serve(echo, again) != port
    await world.dial(port + 1)


@in_world
async def test_a_crash_with_unread_data_resets(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    reader, writer = await world.dial(await world.serve(handler))
    world.loop.stop_process(world.server)
    writer.write(b"x")
    await asyncio.sleep(1)
    world.loop.kill_process(world.server)
    world.network.process_died(world.server)
    with pytest.raises(ConnectionResetError):
        await reader.read()


@in_world
async def test_power_loss_is_silence_until_the_host_is_back(world: World) -> None:
    port = await world.serve(echo)
    reader, writer = await world.dial(port)
    world.loop.kill_process(world.server)
    world.network.power_lost("s")
    writer.write(b"anybody?")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20):
            await reader.read()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await world.dial(port)
    world.network.power_on("s")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    with pytest.raises(ConnectionRefusedError):
        await world.dial(port)


@in_world
async def test_a_stopped_process_is_connected_to_but_does_not_answer(world: World) -> None:
    port = await world.serve(echo)
    world.loop.stop_process(world.server)
    reader, writer = await world.dial(port)
    writer.write(b"hello")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await reader.read(1)
    world.loop.resume_process(world.server)
    assert await reader.readexactly(5) == b"hello"


@in_world
async def test_dying_while_dialling_closes_the_other_end(world: World) -> None:
    ends: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(await reader.read())

    port = await world.serve(handler)
    world.network.set_link("s", "c", Link(latency_min_ns=10**9, latency_max_ns=10**9))
    world.loop.start(world.client, world.network.of("c").dial("s", port), "dial")
    await asyncio.sleep(0.5)
    world.loop.kill_process(world.client)
    world.network.process_died(world.client)
    await asyncio.sleep(5)
    assert ends == [b""]


def test_an_assertion_in_a_handler_names_its_process() -> None:
    died: list[tuple[SimProcess | None, BaseException]] = []
    world = World(on_fatal=lambda process, error: died.append((process, error)))

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("a bug")

    async def main() -> None:
        reader, _ = await world.dial(await world.serve(handler))
        assert await reader.read() == b""

    world.run(main())
    assert [(repr(process), str(error)) for process, error in died] == [("s#1", "a bug")]
