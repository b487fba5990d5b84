"""What a connection may cost the server: bad bytes, requests under way, memory, time, and the number of connections."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import msgpack
import pytest
from structlog.testing import capture_logs

from kafkalite.extension.messages.watching import HealthRequest, HealthResponse
from kafkalite.listener_settings import RPC, PerListener
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc import server as rpc_server
from kafkalite.rpc import server_connection
from kafkalite.rpc.answers import RpcDisconnected, RpcNotSent
from kafkalite.rpc.framing import encode_frame
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest
from kafkalite.rpc.messages.replication import ReplicaFetchRequest
from tests.support.waiting import until

from .conftest import PEER
from .stand_ins import closed, healthy, store, stored

if TYPE_CHECKING:
    from tests.unit.rpc.conftest import Rig

_TWO_CONNECTIONS = PerListener(((RPC, "max_connections", 2),))
HELLO = b"".join(encode_frame(0, PEER))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 100,
        struct.pack(">II", 20_000, 20),
        b"".join(encode_frame(1, HealthRequest())),
        HELLO + HELLO,
        HELLO + struct.pack(">II", 200_000_000, 20),
        HELLO + struct.pack(">II", 80_000_000, 70_000_000),
        HELLO + b"".join(encode_frame(1, HealthResponse(BrokerId(1), ()))),
        HELLO + struct.pack(">II", 8, 4) + msgpack.packb([48, 1, 2]),
    ],
)
async def test_bad_bytes_close_that_connection_only(rig: Rig, data: bytes) -> None:
    server, endpoint = await rig.serve({HealthRequest: healthy})
    good = await rig.connect(endpoint)
    reader, writer = await rig.dial(endpoint)
    writer.write(data)
    await reader.read()
    assert (await good.call(HealthRequest(), timeout_s=150))[0] == HealthResponse(BrokerId(7), ())
    assert server.memory.used_bytes == 0
    assert server.memory.incomplete_bytes == 0


async def test_a_peer_does_not_decide_how_often_the_log_says_that_it_sends_nonsense(rig: Rig) -> None:
    _, endpoint = await rig.serve({})
    with capture_logs() as lines:
        for number in range(50):
            reader, writer = await rig.dial(endpoint)
            writer.write(struct.pack(">II", 20_000 + number, 20_000 - number))
            await reader.read()
    assert len([line for line in lines if line["event"] == "rpc.closed"]) == 1


async def test_requests_read_ahead_are_bounded(rig: Rig) -> None:
    waiting: list[asyncio.Future[Reply | None]] = []

    def handler(request: RpcRequest) -> asyncio.Future[Reply | None]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    _, endpoint = await rig.serve(
        {HealthRequest: handler, CommittedOffsetsRequest: stored}, max_inflight_requests_per_connection=3
    )
    connection, other = await rig.connect(endpoint), await rig.connect(endpoint)
    calls = [connection.send_nowait(HealthRequest()) for _ in range(10)]
    await until(lambda: len(waiting) == 3)
    await other.call(store(), timeout_s=150)  # others are served
    assert len(waiting) == 3
    answered = 0
    while answered < 10:
        waiting[answered].set_result(Reply(HealthResponse(BrokerId(answered), ())))
        assert (await calls[answered])[0] == HealthResponse(BrokerId(answered), ())
        answered += 1
        assert len(waiting) <= answered + 3


async def test_fetches_under_way_are_bounded(rig: Rig) -> None:
    waiting: list[asyncio.Future[Reply | None]] = []

    def handler(request: RpcRequest) -> asyncio.Future[Reply | None]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    _, endpoint = await rig.serve({ReplicaFetchRequest: handler, CommittedOffsetsRequest: stored})
    connection, other = await rig.connect(endpoint), await rig.connect(endpoint)
    for _ in range(30):
        connection.send_nowait(ReplicaFetchRequest(BrokerId(3), BrokerEpoch(30), 0, 0, 500, 1, 1 << 20, (), ()))
    await until(lambda: len(waiting) == server_connection.MAX_INFLIGHT_FETCHES)
    await other.call(store(), timeout_s=150)  # others are served
    assert len(waiting) == server_connection.MAX_INFLIGHT_FETCHES


async def test_a_peer_that_does_not_read_stops_being_served(rig: Rig) -> None:
    served = 0
    answer = Reply(HealthResponse(BrokerId(7), ()), [bytes(1 << 20)])

    def handler(request: RpcRequest) -> Reply:
        nonlocal served
        served += 1
        return answer

    server, endpoint = await rig.serve({HealthRequest: handler, CommittedOffsetsRequest: stored})
    _, writer = await rig.dial(endpoint)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(HELLO + b"".join(b"".join(encode_frame(n, HealthRequest())) for n in range(1000)))
    good = await rig.connect(endpoint)
    for _ in range(50):
        await good.call(store(), timeout_s=150)
    assert 0 < served < 300
    loop = asyncio.get_running_loop()
    victim = next(iter(server.connections.values()))
    victim.check_deadlines(loop.time() + server_connection.STALL_TIMEOUT_S + 1)
    for _ in range(3):
        await good.call(store(), timeout_s=150)
    assert len(server.connections) == 1
    assert server.memory.used_bytes == 0


async def test_deadlines(rig: Rig) -> None:
    server, endpoint = await rig.serve({HealthRequest: healthy}, connections_max_idle_ms=60_000)
    silent, _ = await rig.dial(endpoint)
    slow, slow_writer = await rig.dial(endpoint)
    slow_writer.write(HELLO + HELLO[:5])
    await slow.read(10)
    idle = await rig.connect(endpoint)
    now = asyncio.get_running_loop().time()
    victims = list(server.connections.values())
    assert len(victims) == 3

    def sweep(seconds: float) -> None:
        for victim in victims:
            victim.check_deadlines(now + seconds)

    sweep(5)
    assert not idle.closed
    sweep(server_connection.HELLO_TIMEOUT_S + 2)
    assert await silent.read() == b""
    assert len(server.connections) == 2
    sweep(server_connection.STALL_TIMEOUT_S + 2)
    await slow.read()
    assert len(server.connections) == 1
    sweep(62)
    await closed(idle)


async def test_too_many_connections_are_turned_away(rig: Rig) -> None:
    _, endpoint = await rig.serve({HealthRequest: healthy}, per_listener=_TWO_CONNECTIONS)
    first, second = await rig.connect(endpoint), await rig.connect(endpoint)
    with pytest.raises(RpcNotSent):
        await rig.connect(endpoint)
    await first.call(HealthRequest(), timeout_s=150)
    await second.call(HealthRequest(), timeout_s=150)


async def test_a_connection_without_a_hello_makes_room_for_a_node(rig: Rig) -> None:
    server, endpoint = await rig.serve({HealthRequest: healthy}, per_listener=_TWO_CONNECTIONS)
    strangers = [await asyncio.open_connection(endpoint.host, endpoint.port) for _ in range(2)]
    async with asyncio.timeout(150):
        while len(server.connections) < 2:
            await asyncio.sleep(0)
        for reader, writer in strangers:
            node = await rig.connect(endpoint)
            await node.call(HealthRequest(), timeout_s=150)
            assert await reader.read() == b""
            writer.close()
    assert len(server.connections) == 2


async def test_memory_of_all_connections_is_bounded_and_frees_itself(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server, "MEMORY_GRACE_S", 3600.0)  # a loaded machine is slow to send, too
    gate = asyncio.Event()
    handled = 0
    most = 0

    async def handler_later(request: RpcRequest) -> Reply:
        await gate.wait()
        return stored(request)

    def handler(request: RpcRequest) -> object:
        nonlocal handled, most
        handled += 1
        most = max(most, server.memory.used_bytes)
        return handler_later(request)

    server, endpoint = await rig.serve(
        {CommittedOffsetsRequest: handler, HealthRequest: healthy},  # type: ignore[dict-item]
        queued_max_request_bytes=4 << 20,
    )
    connections = [await rig.connect(endpoint) for _ in range(8)]
    calls = [c.send_nowait(store(), [bytes(1 << 20)]) for c in connections for _ in range(4)]
    while server.memory.used_bytes < 4 << 20:
        await asyncio.sleep(0)
    before = handled
    assert before < 32
    gate.set()
    for call in calls:
        await call
    assert handled == 32
    assert most <= (4 << 20) + 8 * server_connection.READ_BYTES + (1 << 20)
    assert server.memory.used_bytes == 0


async def test_half_frames_alone_cannot_block_each_other_for_ever(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_server, "MEMORY_GRACE_S", 3600.0)  # a loaded machine is slow to send, too
    server, endpoint = await rig.serve({CommittedOffsetsRequest: stored}, queued_max_request_bytes=1 << 20)
    frame = b"".join(encode_frame(1, store(), [bytes(1 << 20)]))
    peers = [await rig.dial(endpoint) for _ in range(4)]
    for reader, writer in peers:
        writer.write(HELLO)
        await reader.read(1)  # before its hello is answered a peer may not send this much
        writer.write(frame[: 600 << 10])
    while server.memory.used_bytes < 1 << 20:
        await asyncio.sleep(0)
    for _, writer in peers:
        writer.write(frame[600 << 10 :])
    for reader, _ in peers:
        size = 0
        while size <= 1 << 20:
            data = await reader.read(1 << 20)
            assert data
            size += len(data)
    assert server.memory.used_bytes == 0


async def test_a_connection_that_is_closed_while_it_waits_for_memory_gives_back_what_it_has(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request is answered to nobody; while its bytes counted, half frames were not all that there was, and none of them could go on."""
    monkeypatch.setattr(rpc_server, "MEMORY_GRACE_S", 3600.0)  # a loaded machine is slow to send, too
    answers: list[asyncio.Future[Reply | None]] = []

    def handler(request: RpcRequest) -> asyncio.Future[Reply | None]:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    server, endpoint = await rig.serve(
        {HealthRequest: handler, CommittedOffsetsRequest: stored}, queued_max_request_bytes=1 << 20
    )
    asks = await rig.connect(endpoint)
    call = asks.send_nowait(HealthRequest(), [bytes(600 << 10)])
    await until(lambda: bool(answers))
    (asking,) = server.connections.values()
    slow_reader, slow = await rig.dial(endpoint)
    slow.write(HELLO)
    await slow_reader.read(1)
    frame = b"".join(encode_frame(1, store(), [bytes(600 << 10)]))
    slow.write(frame[:-1])
    await until(lambda: not server.memory.has_room)
    later = asks.send_nowait(HealthRequest())  # it was reading: now it waits
    await until(lambda: len(answers) == 2)
    asking.shut("its session has ended", at_once=True)
    for sent in (call, later):
        with pytest.raises(RpcDisconnected):
            await sent
    slow.write(frame[-1:])
    async with asyncio.timeout(150):
        await slow_reader.readexactly(600 << 10)
    node = await rig.connect(endpoint)
    assert (await node.call(store(), timeout_s=150))[0] is not None
    assert len(server.connections) == 2
    assert server.memory.used_bytes == server.memory.incomplete_bytes == 0
