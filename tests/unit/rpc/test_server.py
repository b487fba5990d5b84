"""The server and the client connection over real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.disks import DescribeDisksRequest
from kafkalite.extension.messages.watching import (
    HealthProblem,
    HealthRequest,
    HealthResponse,
    HistoryRequest,
    HistoryResponse,
)
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint
from kafkalite.rpc.answers import RpcDisconnected, RpcNotSent, RpcTimeout
from kafkalite.rpc.framing import RpcFrameReader, encode_frame
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import ErrorResponse, HelloRequest
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest, CommittedOffsetsResponse
from kafkalite.rpc.messages.replication import ReplicaFetchWake
from tests.support.failing import fails_with

from .conftest import PEER
from .stand_ins import healthy, store, stored

if TYPE_CHECKING:
    from tests.unit.rpc.conftest import Rig

NODE_OF_OTHER = HelloRequest("cluster-b", BrokerId(1), BrokerEpoch(1))


async def test_a_call_and_its_body(rig: Rig) -> None:
    _, endpoint = await rig.serve({CommittedOffsetsRequest: stored})
    connection = await rig.connect(endpoint)
    assert (connection.peer.node_id, connection.peer.cluster_id) == (7, "cluster-a")
    message, body = await connection.call(store(), [b"abc", memoryview(b"def")], timeout_s=150)
    assert cast(CommittedOffsetsResponse, message).coordinated == (6,)
    assert bytes(body) == b"abcdef"


async def test_large_bodies_both_ways(rig: Rig) -> None:
    _, endpoint = await rig.serve({CommittedOffsetsRequest: stored})
    connection = await rig.connect(endpoint)
    large = bytes(range(256)) * 40_000
    calls = [connection.send_nowait(store(), [large]) for _ in range(4)]
    for call in calls:
        assert (await call)[1] == large


async def test_handlers_run_in_arrival_order_and_answers_keep_it(rig: Rig) -> None:
    seen: list[int] = []
    gates: dict[int, asyncio.Future[None]] = {}
    arrived = asyncio.Event()

    async def slowly(number: int) -> Reply:
        await gates[number]
        return Reply(HistoryResponse(BrokerId(number), 0, ()))

    def handler(request: RpcRequest) -> object:
        number = int(cast(HistoryRequest, request.message).subjects[0])
        seen.append(number)
        gates[number] = asyncio.get_running_loop().create_future()
        if len(seen) == 20:
            arrived.set()
        return slowly(number)

    _, endpoint = await rig.serve({HistoryRequest: handler})  # type: ignore[dict-item]
    connection = await rig.connect(endpoint)
    order: list[int] = []
    calls = []
    for number in range(20):
        call = connection.send_nowait(HistoryRequest((str(number),)))
        call.add_done_callback(lambda f: order.append(cast(HistoryResponse, f.result()[0]).broker_id))
        calls.append(call)
    await arrived.wait()
    assert seen == list(range(20))
    for number in reversed(range(20)):
        gates[number].set_result(None)
    while len(order) < 20:
        await asyncio.sleep(0)
    assert order == list(range(20))


async def test_refusals_cross_as_their_code(rig: Rig) -> None:
    def refuse(request: RpcRequest) -> Reply:
        raise api_error(ErrorCode.NOT_CONTROLLER, "ask another")

    async def refuse_late(request: RpcRequest) -> Reply:
        raise api_error(ErrorCode.STALE_BROKER_EPOCH)

    _, endpoint = await rig.serve({HealthRequest: refuse, DescribeDisksRequest: refuse_late})
    connection = await rig.connect(endpoint)
    with pytest.raises(ApiError, match="ask another") as early:
        await connection.call(HealthRequest(), timeout_s=150)
    assert early.value.code is ErrorCode.NOT_CONTROLLER
    with fails_with(ErrorCode.STALE_BROKER_EPOCH):
        await connection.call(DescribeDisksRequest(), timeout_s=150)


@pytest.mark.checklist(13)
async def test_an_unknown_api_is_refused_and_the_connection_stays(rig: Rig) -> None:
    _, endpoint = await rig.serve({HealthRequest: healthy})
    connection = await rig.connect(endpoint)
    with fails_with(ErrorCode.UNSUPPORTED_VERSION):
        await connection.call(DescribeDisksRequest(), timeout_s=150)
    assert (await connection.call(HealthRequest(), timeout_s=150))[0] == HealthResponse(BrokerId(7), ())


async def test_a_bug_in_a_coroutine_is_answered_and_told(rig: Rig) -> None:
    async def broken(request: RpcRequest) -> Reply:
        raise KeyError("bug")

    _, endpoint = await rig.serve({HealthRequest: broken, CommittedOffsetsRequest: stored})
    connection = await rig.connect(endpoint)
    with fails_with(ErrorCode.UNKNOWN_SERVER_ERROR):
        await connection.call(HealthRequest(), timeout_s=150)
    await connection.call(store(), timeout_s=150)


async def test_a_bug_in_a_handler_costs_its_connection_only(rig: Rig) -> None:
    def broken(request: RpcRequest) -> Reply:
        raise KeyError("bug")

    server, endpoint = await rig.serve({HealthRequest: broken, CommittedOffsetsRequest: stored})
    connection, other = await rig.connect(endpoint), await rig.connect(endpoint)
    with pytest.raises(RpcDisconnected):
        await connection.call(HealthRequest(), timeout_s=150)
    await other.call(store(), timeout_s=150)
    assert len(server.connections) == 1
    assert server.memory.used_bytes == 0


async def test_no_answer_to_what_is_one_way(rig: Rig) -> None:
    woken: list[Message] = []
    _, endpoint = await rig.serve(
        {ReplicaFetchWake: lambda request: woken.append(request.message), CommittedOffsetsRequest: stored}
    )
    connection = await rig.connect(endpoint)
    connection.oneway(ReplicaFetchWake(1))
    message, _ = await connection.call(store(), [b"abcd"], timeout_s=150)
    assert cast(CommittedOffsetsResponse, message).coordinated == (4,)
    assert woken == [ReplicaFetchWake(1)]


async def test_a_refusal_of_what_has_no_answer_is_not_sent(rig: Rig) -> None:
    message = ReplicaFetchWake(1)
    refused: list[Message] = []

    def handler(request: RpcRequest) -> Reply:
        refused.append(request.message)
        raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")

    _, endpoint = await rig.serve({type(message): handler, HealthRequest: healthy})
    reader, writer = await rig.dial(endpoint)
    for number, each in enumerate((PEER, message, HealthRequest())):
        writer.writelines(encode_frame(number, each))
    frames = RpcFrameReader(max_frame_bytes=1 << 20)
    heard: list[int] = []
    async with asyncio.timeout(150):
        while 2 not in heard:
            heard += [frame.correlation_id for frame in frames.feed(await reader.read(1 << 16))]
    assert heard == [0, 2]
    assert refused == [message]


async def test_timeouts_leave_the_connection_usable(rig: Rig) -> None:
    gate: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    _, endpoint = await rig.serve({HealthRequest: lambda _: gate, CommittedOffsetsRequest: stored})
    connection = await rig.connect(endpoint)
    with pytest.raises(RpcTimeout):
        await connection.call(HealthRequest(), timeout_s=0.01)
    late = connection.send_nowait(store())
    gate.set_result(Reply(HealthResponse(BrokerId(7), ())))
    await late


async def test_a_closed_connection_cancels_waiting_futures(rig: Rig) -> None:
    arrived = asyncio.get_running_loop().create_future()
    waiting: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    cancelled = asyncio.Event()
    waiting.add_done_callback(lambda f: cancelled.set() if f.cancelled() else None)

    def handler(request: RpcRequest) -> asyncio.Future[Reply | None]:
        arrived.set_result(None)
        return waiting

    server, endpoint = await rig.serve({HealthRequest: handler})
    connection = await rig.connect(endpoint)
    call = connection.send_nowait(HealthRequest())
    await arrived
    await connection.close()
    with pytest.raises(RpcDisconnected):
        await call
    await cancelled.wait()
    with pytest.raises(RpcNotSent):
        connection.send_nowait(HealthRequest())
    assert server.memory.used_bytes == 0


# --- hello -----------------------------------------------------------------------------------


@pytest.mark.checklist(13)
@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (NODE_OF_OTHER, ErrorCode.INCONSISTENT_CLUSTER_ID),
        (HelloRequest("", BrokerId(1), BrokerEpoch(1)), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (HelloRequest("cluster-a", BrokerId(-1), BrokerEpoch(-1)), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (HelloRequest("cluster-a", BrokerId(1), BrokerEpoch(1), 5, 9), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_strangers_are_refused(rig: Rig, hello: HelloRequest, code: ErrorCode) -> None:
    _, endpoint = await rig.serve({HealthRequest: healthy})
    with fails_with(code):
        await rig.connect(endpoint, hello)


async def test_a_client_hears_where_clients_are_served(rig: Rig) -> None:
    _, endpoint = await rig.serve({HealthRequest: healthy})
    with pytest.raises(ApiError, match="for nodes only; clients connect to the Kafka listener"):
        await rig.connect(endpoint, HelloRequest("", BrokerId(-1), BrokerEpoch(-1), client_id="kafkalite"))


async def test_nodes_of_older_versions_say_no_id_on_some_connections(rig: Rig) -> None:
    _, endpoint = await rig.serve({HealthRequest: healthy})
    for purpose in ("controller-watch", "draining"):
        connection = await rig.connect(
            endpoint, HelloRequest("cluster-a", BrokerId(-1), BrokerEpoch(-1), client_id=purpose)
        )
        await connection.call(HealthRequest(), timeout_s=150)


async def test_a_node_that_does_not_know_its_cluster_puts_peers_off(rig: Rig) -> None:
    rig.identity = Identity("", BrokerId(7), BrokerEpoch(-1))
    _, endpoint = await rig.serve({HealthRequest: healthy})
    with fails_with(ErrorCode.BROKER_NOT_AVAILABLE):
        await rig.connect(endpoint)


async def test_nobody_there_is_certainly_not_sent(rig: Rig) -> None:
    server, endpoint = await rig.serve({})
    await server.close()
    with pytest.raises(RpcNotSent):
        await rig.connect(Endpoint(endpoint.host, endpoint.port))


# --- bounds ----------------------------------------------------------------------------------


async def test_a_server_that_closes_fails_its_callers(rig: Rig) -> None:
    waiting: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
    arrived = asyncio.Event()

    def handler(request: RpcRequest) -> asyncio.Future[Reply | None]:
        arrived.set()
        return waiting

    server, endpoint = await rig.serve({HealthRequest: handler})
    connection = await rig.connect(endpoint)
    call = connection.send_nowait(HealthRequest())
    await arrived.wait()
    await server.close()
    with pytest.raises(RpcDisconnected):
        await call
    assert connection.closed


async def test_a_connection_that_is_cancelled_before_its_first_step_is_closed(rig: Rig) -> None:
    server, endpoint = await rig.serve({})
    reader, _ = await rig.dial(endpoint)
    while not server.connections:
        await asyncio.sleep(0)
    await rig.supervisor.stop()
    assert await reader.read(1) == b""
    assert not server.connections


def test_problem_and_error_messages_are_plain_values() -> None:
    assert HealthProblem("w", 1, "d") == HealthProblem("w", 1, "d", "")
    assert ErrorResponse(3).message == ""
