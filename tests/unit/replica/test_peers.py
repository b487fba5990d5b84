"""Questions to other nodes over one connection each."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.config import BrokerConfig
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.extension.messages.watching import HealthRequest, HealthResponse
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.peers import Peers
from kafkalite.rpc.answers import RpcTimeout
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.control import Broker, UpdateMetadataRequest
from kafkalite.rpc.server import RpcServer
from tests.support.waiting import until

CLUSTER_ID = "cluster-a"
OTHER = BrokerId(7)


async def test_a_question_without_an_answer_ends_the_connection_for_the_next_ones_only() -> None:
    asked_over: list[int] = []
    slow: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def answer(request: RpcRequest) -> Reply:
        asked_over.append(request.peer.connection)
        if request.peer.connection == asked_over[0]:
            await slow
        return Reply(HealthResponse(OTHER, ()))

    fatal: list[BaseException] = []
    supervisor, network, metadata = Supervisor(fatal.append), RealNetwork(fatal.append), MetadataCache()
    server = RpcServer(
        network=network,
        supervisor=supervisor,
        config=BrokerConfig(),
        identity=lambda: Identity(CLUSTER_ID, OTHER, BrokerEpoch(70)),
        handlers={HealthRequest: answer},
    )
    endpoint = await server.start("127.0.0.1", 0)
    broker = Broker(OTHER, BrokerEpoch(70), "127.0.0.1", 0, endpoint.host, endpoint.port)
    head = (OTHER, ControllerEpoch(1), BrokerEpoch(30))
    metadata.apply(UpdateMetadataRequest(*head, is_full=True, brokers=(broker,), partitions=()))
    peers = Peers(network, supervisor, metadata, lambda: HelloRequest(CLUSTER_ID, BrokerId(3), BrokerEpoch(30)))

    async def ask(timeout_s: float) -> Any:
        return await peers.ask(OTHER, HealthRequest(), timeout_s)

    patient = asyncio.create_task(ask(60))
    await until(lambda: asked_over)
    assert isinstance(await ask(0.05), RpcTimeout)
    assert await ask(60) == HealthResponse(OTHER, ()), "over a new connection"
    assert len(set(asked_over)) == 2
    assert not patient.done()
    slow.set_result(None)
    assert await patient == HealthResponse(OTHER, ())
    await until(lambda: len(server.connections) <= 1)
    await peers.close()
    await server.close()
    await supervisor.stop()
    assert fatal == []
