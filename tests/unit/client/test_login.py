"""Both clients log in on a SASL listener, and log in again before their sessions end (KIP-368)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking_connection import BlockingConnection
from kafkalite.client.connection import Connection
from kafkalite.client.messages import metadata_request
from kafkalite.client.session import RENEWED_AFTER
from kafkalite.errors import ErrorCode
from kafkalite.kafka import authentication
from kafkalite.model import Endpoint
from kafkalite.rpc.answers import RpcError
from kafkalite.security.dialling import ClientSecurity
from kafkalite.security.principal import Principal
from kafkalite.security.sasl import MECHANISMS
from tests.support.failing import fails_with
from tests.support.security import PASSWORDS
from tests.support.waiting import until
from tests.unit.kafka.conftest import Broker, sasl_brokers

ALICE = Principal("User", "alice")


@pytest.fixture
async def make() -> AsyncIterator[Any]:
    async with sasl_brokers() as started:
        yield started


def security(password: str = PASSWORDS["alice"], mechanism: str = "SCRAM-SHA-512") -> ClientSecurity:
    return ClientSecurity("SASL_PLAINTEXT", username="alice", password=password, mechanism=mechanism)


def client_of(broker: Broker, **changes: str) -> AsyncClient:
    host, port = broker.services.kafka_endpoint
    return AsyncClient.connect(f"{host}:{port}", security=security(**changes))


async def connection_of(client: AsyncClient, broker: Broker) -> Connection:
    return await client.connections.at(Endpoint(*broker.services.kafka_endpoint))


def principals(broker: Broker) -> list[Principal]:
    return [connection.principal for connection in broker.side.listener.connections]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_asyncio_client_proves_who_it_is(make: Any, mechanism: str) -> None:
    broker = await make()
    async with client_of(broker, mechanism=mechanism) as client:
        assert (await client.metadata()).brokers
        assert principals(broker) == [ALICE]
    async with client_of(broker, mechanism=mechanism, password="x") as client:
        with fails_with(ErrorCode.SASL_AUTHENTICATION_FAILED):
            await client.metadata()


async def test_without_a_login_the_error_names_the_cause(make: Any) -> None:
    broker = await make()
    host, port = broker.services.kafka_endpoint
    async with AsyncClient.connect(f"{host}:{port}") as client:
        with pytest.raises(RpcError):
            await client.metadata(timeout_s=0.5)


async def test_it_logs_in_again_between_its_requests(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await make(max_reauth_ms=600_000)
    monkeypatch.setattr(authentication, "_REAUTHENTICATION_S", 0.0)  # only the client's clock moves ahead here
    loop = asyncio.get_running_loop()
    real, later_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + later_s)
    async with client_of(broker) as client:
        connection = await connection_of(client, broker)
        for logins in range(2, 5):
            later_s += 600 * RENEWED_AFTER[1] + 1  # it is time to renew, and the session has not ended
            while broker.services.security["PLAINTEXT"].succeeded < logins:
                answers = await asyncio.gather(*(client.metadata(()) for _ in range(5)))
                assert all(answer.brokers for answer in answers)
        assert await connection_of(client, broker) is connection  # never cut


async def test_requests_wait_for_a_login_that_comes_too_late(make: Any) -> None:
    """The process was stopped for longer than its session lasted: nothing goes out before the login."""
    broker = await make(max_reauth_ms=60_000)
    async with client_of(broker) as client:
        connection = await connection_of(client, broker)
        session = connection._session
        assert session is not None
        session.renewed(asyncio.get_running_loop().time() - 100, 60)
        waiting = connection.send_nowait(metadata_request(()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done() and broker.services.security["PLAINTEXT"].succeeded == 1
        keeper = client.supervisor.spawn("late", connection._keep_logged_in(session))
        async with asyncio.timeout(150):
            assert (await waiting).brokers
        assert broker.services.security["PLAINTEXT"].succeeded == 2
        keeper.cancel()


async def test_a_client_whose_password_has_changed_is_cut(make: Any) -> None:
    broker = await make(max_reauth_ms=200)
    async with client_of(broker) as client:
        connection = await connection_of(client, broker)
        assert connection._session is not None
        connection._session._credentials = security(password="another").open().credentials  # type: ignore[assignment]
        await until(lambda: connection.closed)
        with pytest.raises(RpcError):
            connection.send_nowait(metadata_request(()))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_blocking_client_too(make: Any, mechanism: str) -> None:
    broker = await make(max_reauth_ms=60_000)
    endpoint = Endpoint(*broker.services.kafka_endpoint)
    right, wrong = security(mechanism=mechanism).open(), security("x", mechanism).open()

    def work() -> None:
        connection = BlockingConnection(endpoint, "test", 60.0, right)
        assert connection._session is not None
        connection._session.renew_at = 0.0
        connection.renew(time.monotonic() + 60)
        assert connection._session.renew_at > 0
        assert connection.call(metadata_request(()), time.monotonic() + 60).brokers
        connection.close()
        with fails_with(ErrorCode.SASL_AUTHENTICATION_FAILED):
            BlockingConnection(endpoint, "test", 60.0, wrong)

    await in_thread(work)
    assert broker.services.security["PLAINTEXT"].succeeded == 2


async def in_thread(work: Callable[[], None]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, work)
