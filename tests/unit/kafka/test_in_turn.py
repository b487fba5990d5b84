"""Answers with offsets are not older than the answers in front of them on their connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import Steps, sliced
from kafkalite.protocol import wire
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE
from kafkalite.protocol.schema import schemas

from .conftest import Broker, batch, fetch, produce
from .coordinator_requests import coordinator

_LATEST = -1
#: A request for this number of partitions is served in slices.
_MANY = 2 * ELEMENTS_AT_ONCE


def end_of(topic: str, *unknown: int) -> Any:
    """Of its first partition, and of others that are not there."""
    question = wire.ListOffsetsRequest
    partitions = [question.ListOffsetsPartition(number, -1, _LATEST) for number in (0, *unknown)]
    return question(-1, 0, [question.ListOffsetsTopic(topic, partitions)])


async def test_an_end_offset_is_not_older_than_the_fetch_in_front(broker: Broker) -> None:
    """Kafka Streams asks for the end offset while its consumer's fetch waits. An older answer behind the fetch tells the consumer that
    its lag is -1, and the task waits for the next record (found by Kafka's RegexSourceIntegrationTest)."""
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    questions = [
        (fetch("t", max_wait_ms=600_000), 11),
        (end_of("t"), 7),
        (wire.ApiVersionsRequest("x", "1"), 3),
        (end_of("t", *range(1, _MANY)), 7),
    ]
    # In one piece: if the first one waits, the others have arrived.
    client.writer.write(b"".join(client.frame(*each) for each in questions))
    while not any(each.is_busy for each in broker.side.listener.connections):
        await asyncio.sleep(0)
    await other.ask(produce("t", (0, batch(b"a"))), 8)
    async with asyncio.timeout(150):
        answers = [await client.receive() for _ in range(4)]
    assert [number for number, _ in answers] == [1, 2, 3, 4]
    assert answers[0][1].responses[0].partitions[0].high_watermark == 1
    for _, answer in (answers[1], answers[3]):
        assert answer.topics[0].partitions[0].offset == 1


async def test_a_committed_offset_is_not_older_than_the_commit_in_front(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    commits, fetches = wire.OffsetCommitRequest, wire.OffsetFetchRequest
    for position in range(1, 20):
        topic = commits.OffsetCommitRequestTopic("t", partitions=[commits.OffsetCommitRequestPartition(0, position)])
        client.send(commits("g", -1, "", None, -1, [topic]), 8)
        client.send(fetches("g", [fetches.OffsetFetchRequestTopic("t", [0])]), 5)
    async with asyncio.timeout(150):
        for position in range(1, 20):
            assert not (await client.receive())[1].topics[0].partitions[0].error_code
            assert (await client.receive())[1].topics[0].partitions[0].committed_offset == position


async def test_a_connection_that_is_lost_forgets_what_waits_for_its_turn(broker: Broker) -> None:
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    client.writer.write(client.frame(fetch("t", max_wait_ms=600_000), 11) + client.frame(end_of("t"), 7))
    while not any(each.is_busy for each in broker.side.listener.connections):
        await asyncio.sleep(0)
    client.close()
    while len(broker.side.listener.connections) > 1:
        await asyncio.sleep(0)
    await other.ask(produce("t", (0, batch(b"a"))), 8)
    assert (await other.ask(end_of("t"), 7)).topics[0].partitions[0].offset == 1


async def test_what_a_client_has_sent_ahead_is_begun_in_turn_and_not_when_it_is_gone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers that wait for something began all at once. Clients that sent 6,400 such requests, without any right, and left, kept everybody
    from being answered for many seconds."""
    services = broker.side.listener.services
    overrides, begun = services.entity_overrides, []

    async def counted(entity_type: str, name: str) -> Mapping[str, str]:
        begun.append(name)
        return await overrides(entity_type, name)

    monkeypatch.setattr(services, "entity_overrides", counted)
    client, other = await broker.client(), await broker.client()
    describe = wire.DescribeConfigsRequest
    question = describe([describe.DescribeConfigsResource(4, str(services.broker_id), None)])
    await other.ask(question, 4)
    of_one, ahead = len(begun), 60
    client.writer.write(client.frame(question, 4) * ahead)
    while not any(each.is_busy for each in broker.side.listener.connections):
        await asyncio.sleep(0)
    client.close()
    while len(broker.side.listener.connections) > 1:
        await asyncio.sleep(0)
    await other.ask(question, 4)
    assert len(begun) < of_one * ahead


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_a_question_that_takes_long_ends_with_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_coroutine: bool
) -> None:
    monkeypatch.setattr("kafkalite.env.turns.SLICE_S", 1e-9)
    taken = 0

    def endless() -> Steps[Any]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield

    async def waiting(request: Request, message: Any) -> Any:
        return await sliced(request, endless())

    listener = broker.side.listener
    key = schemas()["ListGroupsRequest"].api_key
    handler: Handler = waiting if is_coroutine else lambda request, message: endless()
    listener.apis[key] = replace(listener.apis[key], handler=handler)
    client = await broker.client()
    client.send(wire.ListGroupsRequest(), 4)
    while not taken:
        await asyncio.sleep(0)
    client.close()
    while listener.connections:
        await asyncio.sleep(0)
    before = taken
    for _ in range(20):
        await asyncio.sleep(0)
    assert taken <= before + 1


async def test_in_a_rush_clients_are_served_in_turn(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 clients with 64 small requests each kept everybody else waiting for half a second: all of these were served in one turn of the loop."""
    monkeypatch.setattr("kafkalite.env.turns.RUSH_S", 0.0)
    listener, served = broker.side.listener, []
    handle = listener.handle

    def noted(request: Request, message: Any) -> None:
        served.append(request.connection.peer)
        handle(request, message)

    monkeypatch.setattr(listener, "handle", noted)
    clients = [await broker.client() for _ in range(5)]
    question = wire.ApiVersionsRequest("x", "1")
    for client in clients:
        client.writer.write(b"".join(client.frame(question, 3) for _ in range(30)))
    last = await broker.client()
    assert not (await last.ask(question, 3)).error_code
    async with asyncio.timeout(150):
        for client in clients:
            assert [(await client.receive())[0] for _ in range(30)] == list(range(1, 31))
    assert len(served) == 151
    host, port = last.writer.get_extra_info("sockname")[:2]
    assert served.index(f"{host}:{port}") < 100
