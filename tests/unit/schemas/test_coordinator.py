"""The registry's coordinator over partitions in memory: what a change leaves behind that was not waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.env.real import RealClock
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import Buffer, TopicPartition
from kafkalite.replica.purgatory import ProduceDone
from kafkalite.rpc.messages.schemas import SchemaRegistryRequest, SchemaRegistryResponse
from kafkalite.schemas.coordinator import SchemaRegistry
from tests.support.memory_partitions import MemoryPartitions
from tests.support.memory_services import MemoryServices


class Slow(MemoryPartitions):
    """Records are in the log at once; that they are committed is reported when `may_commit` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.appended = asyncio.Event()

    def append_internal(
        self,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        results: list[Any] = []
        super().append_internal(timeout_ms, partitions, results.append, guards=guards)
        self.appended.set()

        async def report() -> None:
            await self.may_commit.wait()
            done(*results)

        self._tasks.add(asyncio.get_running_loop().create_task(report()))


@pytest.fixture
async def registry() -> AsyncIterator[tuple[SchemaRegistry, Slow]]:
    fatal: list[BaseException] = []
    supervisor = Supervisor(fatal.append)
    services = MemoryServices(BrokerConfig(), RealClock(), RealNetwork(fatal.append), supervisor)
    partitions = services.partitions = Slow()

    async def ask(*_: object) -> Any:
        raise AssertionError("there is no other node")

    found = SchemaRegistry(services, ask, services.run_blocking)
    found.start()
    yield found, partitions
    await supervisor.stop()
    assert not fatal


def registration(subject: str, type_: str) -> SchemaRegistryRequest:
    body = json.dumps({"schema": json.dumps({"type": type_})})
    return SchemaRegistryRequest("POST", f"/subjects/{subject}/versions", {}, body, "User:ann", "127.0.0.1")


def value(response: SchemaRegistryResponse) -> Any:
    assert response.status == 200, response
    return json.loads(response.body)


async def test_a_registration_that_nobody_waited_for_keeps_its_id(registry: tuple[SchemaRegistry, Slow]) -> None:
    schemas, partitions = registry
    assert value(await schemas.serve(registration("a-value", "int")))["id"] == 1
    partitions.may_commit.clear()
    partitions.appended.clear()
    waiting = asyncio.ensure_future(schemas.serve(registration("b-value", "long")))
    await partitions.appended.wait()
    waiting.cancel()  # the request's time was up; its record is in the log
    with pytest.raises(asyncio.CancelledError):
        await waiting
    partitions.may_commit.set()
    assert value(await schemas.serve(registration("c-value", "string")))["id"] == 3, "2 belongs to the long"
    assert value(await schemas.serve(registration("b-value", "long")))["id"] == 2


async def test_one_user_does_not_take_all_places(
    registry: tuple[SchemaRegistry, Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas, partitions = registry
    assert value(await schemas.serve(registration("a-value", "int")))["id"] == 1
    partitions.may_commit.clear()
    waiting = [asyncio.ensure_future(schemas.serve(registration(f"b{number}", "long"))) for number in range(100)]
    await asyncio.sleep(0)
    listing = SchemaRegistryRequest("GET", "/subjects", {}, "", "User:bob", "127.0.0.1")
    assert value(await schemas.serve(listing)) == ["a-value"]
    assert (await schemas.serve(registration("c-value", "int"))).status == 503, "it is the same user's"
    partitions.may_commit.set()
    outcomes = [(await each).status for each in waiting]
    assert sorted(set(outcomes)) == [200, 503] and outcomes.count(200) == 48
    assert (await schemas.serve(registration("c-value", "int"))).status == 200
