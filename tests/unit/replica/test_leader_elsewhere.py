"""A leader that is back at another address while its followers still wait for the old one."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, Endpoint, TopicPartition

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("is_dialling", [False, True])
async def test_a_follower_does_not_wait_for_the_address_of_before(make_cluster, until, is_dialling):
    """A host that is gone without a word answers nothing: the connection, or the attempt at one, lasts for the socket's timeout."""
    cluster = await make_cluster(2, **{"replica.socket.timeout.ms": 300_000})
    leader, follower = cluster.node(1), cluster.node(2)
    here = leader.endpoint
    held: list[asyncio.StreamWriter] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes connections, and either says nothing or passes on what a hello says, and nothing later."""
        held.append(writer)
        if is_dialling:
            return
        answers, requests = await asyncio.open_connection(here.host, here.port)
        held.append(requests)
        requests.write(await reader.read(65_536))
        writer.write(await answers.read(65_536))

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    leader.endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    cluster.create_topic("t", {0: (1, 2)})
    state = cluster.decide(TP, leader=1, isr=(1,), epoch=0, replicas=(1, 2))
    await cluster.command_all(state)
    await until(lambda: len(held) >= (1 if is_dialling else 2))
    fetcher = follower.manager.fetchers._of[TP]
    await until(lambda: is_dialling or fetcher.is_connected)
    leader.endpoint = here
    leader.broker_epoch = BrokerEpoch(leader.broker_epoch + 1)
    await cluster.command(2, state)
    assert (await leader.produce(TP, b"x")).error == ErrorCode.NONE
    await until(lambda: cluster.state(TP).isr == (1, 2))
    for writer in held:
        writer.close()
    server.close()
