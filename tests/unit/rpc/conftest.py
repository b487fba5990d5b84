"""A server on a free port, and connections to it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import BrokerEpoch, BrokerId, Endpoint
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Handler
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.server import RpcServer
from kafkalite.security.listener import ListenerSecurity

CLUSTER = "cluster-a"
#: Of the node that asks.
PEER = HelloRequest(CLUSTER, BrokerId(3), BrokerEpoch(30), client_id="test")


class Rig:
    """Servers and connections that end with the test."""

    def __init__(self) -> None:
        self.fatal: list[BaseException] = []
        self.supervisor = Supervisor(self.fatal.append)
        self.network = RealNetwork(self.fatal.append)
        self.identity = Identity(CLUSTER, BrokerId(7), BrokerEpoch(70))
        self.servers: list[RpcServer] = []
        self.connections: list[RpcConnection] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(
        self, handlers: Mapping[type[Message], Handler], security: ListenerSecurity | None = None, **config: Any
    ) -> tuple[RpcServer, Endpoint]:
        server = RpcServer(
            network=self.network,
            supervisor=self.supervisor,
            config=dataclasses.replace(BrokerConfig(), **config),
            identity=lambda: self.identity,
            handlers=handlers,
            security=security,
        )
        self.servers.append(server)
        return server, await server.start("127.0.0.1", 0)

    async def connect(self, endpoint: Endpoint, hello: HelloRequest = PEER) -> RpcConnection:
        connection = await RpcConnection.open(
            self.network, endpoint, hello, supervisor=self.supervisor, max_frame_bytes=1 << 27, timeout_s=150
        )
        self.connections.append(connection)
        return connection

    async def dial(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.network.dial(endpoint.host, endpoint.port)
        self.writers.append(writer)
        return reader, writer

    async def stop(self) -> None:
        for writer in self.writers:
            writer.close()
        for connection in self.connections:
            await connection.close()
        for server in self.servers:
            await server.close()
        await self.supervisor.stop()
        for _ in range(5):  # transports tell their end one turn of the loop later
            await asyncio.sleep(0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    await rig.stop()
    assert rig.fatal == []
