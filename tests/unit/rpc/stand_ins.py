"""Stand-ins for what a node serves."""

from __future__ import annotations

import asyncio

from kafkalite.extension.messages.watching import HealthResponse
from kafkalite.model import BrokerId
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest, CommittedOffsetsResponse


def healthy(request: RpcRequest) -> Reply:
    return Reply(HealthResponse(BrokerId(7), ()))


def stored(request: RpcRequest) -> Reply:
    """Answers with the size of the request's body, and the body itself."""
    assert isinstance(request.message, CommittedOffsetsRequest)
    return Reply(CommittedOffsetsResponse((len(request.body),), ()), [bytes(request.body)])


def store() -> CommittedOffsetsRequest:
    return CommittedOffsetsRequest((("t", 0),))


async def closed(connection: RpcConnection) -> None:
    """Wait for the connection's end without looking at a clock."""
    over = asyncio.get_running_loop().create_future()
    if not connection.closed:
        connection.on_closed = lambda: over.set_result(None)
        await over
