"""The way from a node to the controller."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.controller.controller import Controller
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import BrokerEpoch, BrokerId, ControllerEpoch
from kafkalite.node.controller_rpc import ControllerRpc
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.rpc.answers import RpcTimeout
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.control import Broker, IsrChangedRequest, IsrChangedResponse, UpdateMetadataRequest
from kafkalite.rpc.server import RpcServer

CLUSTER_ID = "cluster-a"
CONTROLLER, NODE = BrokerId(7), BrokerId(3)


async def test_there_is_one_connection_and_one_that_does_not_answer_is_given_up() -> None:
    """After a partition of the network, what was sent over it may arrive minutes later."""
    asked_over: list[int] = []
    silent: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def answer(request: RpcRequest) -> Any:
        asked_over.append(request.peer.connection)
        return silent if request.peer.connection == asked_over[0] else Reply(IsrChangedResponse(0))

    fatal: list[BaseException] = []
    supervisor, network = Supervisor(fatal.append), RealNetwork(fatal.append)
    server = RpcServer(
        network=network,
        supervisor=supervisor,
        config=BrokerConfig(),
        identity=lambda: Identity(CLUSTER_ID, CONTROLLER, BrokerEpoch(70)),
        handlers={IsrChangedRequest: answer},
    )
    endpoint = await server.start("127.0.0.1", 0)
    local, metadata = LocalBroker(NODE), MetadataCache()
    local.cluster_id, local.broker_epoch = CLUSTER_ID, BrokerEpoch(30)
    controller = Broker(CONTROLLER, BrokerEpoch(70), "127.0.0.1", 0, endpoint.host, endpoint.port)
    metadata.apply(
        UpdateMetadataRequest(
            CONTROLLER, ControllerEpoch(1), BrokerEpoch(30), is_full=True, brokers=(controller,), partitions=()
        )
    )
    rpc = ControllerRpc(network, supervisor, local, metadata, cast(Controller, None), max_frame_bytes=1 << 20)
    notice = IsrChangedRequest(NODE, BrokerEpoch(30), ())
    with pytest.raises(RpcTimeout):
        await rpc.call(notice, 0.05)
    assert await rpc.call(notice, 60) == IsrChangedResponse(0)
    first, second = asked_over
    assert second > first
    await rpc.close()
    answers = list(await asyncio.gather(rpc.call(notice, 60), rpc.call(notice, 60)))
    assert answers == [IsrChangedResponse(0), IsrChangedResponse(0)]
    assert len(set(asked_over[2:])) == 1, "two first questions at once open one connection"
    await rpc.close()
    await server.close()
    await supervisor.stop()
    assert fatal == []
