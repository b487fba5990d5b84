"""Three real nodes whose sessions end after two seconds: nodes, clients and a stream of records log in again and again, and
nothing is lost; whose credentials are deleted is sent away at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking import BlockingClient, BlockingClientConfig
from kafkalite.client.connection import Connection
from kafkalite.client.consumer import Consumer
from kafkalite.client.producer import Producer
from kafkalite.errors import ErrorCode, KafkaliteError
from kafkalite.extension.messages.topics import DescribeReplicasResponse
from kafkalite.model import TopicPartition
from tests.cluster.running import PATIENCE_S, wait_until
from tests.support.failing import fails_with
from tests.support.secured import PASSWORDS, SecuredCluster

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

_REAUTH_MS = 2_000
_RENEWALS = 4
_PARTITION = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    settings = {"connections.max.reauth.ms": _REAUTH_MS, "num.partitions": 1}
    with SecuredCluster(tmp_path_factory.mktemp("sessions"), "SASL_PLAINTEXT", settings) as running:
        admin = running.client_config("admin")
        running.command("admin", "create-topic", "t", client_config=admin)
        running.command("admin", "users", "set", "alice", stdin=PASSWORDS["alice"], client_config=admin)
        yield running


def _renewals(client: AsyncClient, seen: dict[Connection, set[float]]) -> int:
    """Sessions that one connection has had, of the connection with the most."""
    for connection in client.connections._connections.values():
        if connection._session is not None:
            seen.setdefault(connection, set()).add(connection._session.renew_at)
    return max(map(len, seen.values()), default=0)


async def test_a_stream_of_records_outlives_its_sessions(cluster: SecuredCluster) -> None:
    """Each record once and in order, on connections that stay; the followers stay in sync, whose connections renew theirs, too."""
    sent = 0
    seen: dict[Connection, set[float]] = {}
    async with AsyncClient.connect(cluster.bootstrap, security=cluster.security("admin")) as client:
        producer = Producer(client)
        async with producer, asyncio.timeout(PATIENCE_S):
            pending = []
            while _renewals(client, seen) < _RENEWALS:
                pending.append(await producer.send("t", None, str(sent).encode(), partition=0))
                sent += 1
                if sent % 50 == 0:
                    await asyncio.sleep(0.02)
            for future in pending:
                await future
        assert not any(connection.closed for connection in seen)
        found: list[bytes | None] = []
        async with Consumer(client) as consumer, asyncio.timeout(PATIENCE_S):
            consumer.assign({_PARTITION: "earliest"})
            while len(found) < sent:
                found += [record.value for record in await consumer.poll(max_records=5_000, timeout_s=5.0)]
        assert found == [str(number).encode() for number in range(sent)]
        described = await client.describe_replicas(["t"], timeout_s=30)
        replicas = [r for each in described.values() for r in _replicas(each)]
        assert [sorted(replica.isr) for replica in replicas if replica.is_leader] == [[1, 2, 3]]
    logs = cluster.logs()
    assert "was not renewed" not in logs
    assert "rpc.not_logged_in_again" not in logs  # the nodes among themselves


def _replicas(answer: DescribeReplicasResponse | KafkaliteError) -> tuple:  # type: ignore[type-arg]
    assert isinstance(answer, DescribeReplicasResponse), answer
    return answer.replicas


def test_the_blocking_client_that_was_idle(cluster: SecuredCluster) -> None:
    """Its session has long ended when it asks again, on the connection that it has."""
    config = BlockingClientConfig(",".join(cluster.bootstrap), security=cluster.security("admin"))
    with BlockingClient(config) as client:
        client.fetch_raw(_PARTITION, 0)
        before = dict(client._connections)
        over_at = (
            max(each._session.renew_at for each in before.values() if each._session is not None) + _REAUTH_MS / 1000
        )
        wait_until(lambda: time.monotonic() > over_at, "the end of the sessions")
        client.fetch_raw(_PARTITION, 0)
        assert any(client._connections[endpoint] is each for endpoint, each in before.items())
    assert "was not renewed" not in cluster.logs()


async def test_whose_credentials_are_deleted_is_sent_away(cluster: SecuredCluster) -> None:
    security = cluster.security("alice")
    async with (
        AsyncClient.connect(cluster.bootstrap, security=security) as alice,
        AsyncClient.connect(cluster.bootstrap, security=cluster.security("admin")) as admin,
    ):
        await alice.metadata(["t"], timeout_s=30)
        await admin.metadata(["t"], timeout_s=30)
        connections = [each for each in alice.connections._connections.values() if not each.closed]
        assert connections
        config = cluster.client_config("admin")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            None, lambda: cluster.command("admin", "users", "delete", "alice", "--yes", client_config=config)
        )
        await loop.run_in_executor(None, wait_until, lambda: all(each.closed for each in connections), "alice is gone")
        with fails_with(ErrorCode.SASL_AUTHENTICATION_FAILED):
            await alice.metadata(["t"], timeout_s=30)
        assert (await admin.metadata(["t"], timeout_s=30)).topics
    assert "the credential of User:alice was changed or deleted" in cluster.logs()
