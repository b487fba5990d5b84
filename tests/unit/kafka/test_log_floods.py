"""Lines that clients and retries decide how often are written: one once in a while, with a count of those between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafkalite.coordinators.groups.decisions.classic.events import StoreGroup
from kafkalite.coordinators.transactions.state import TransactionState, key_of, value_of
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import TRANSACTION_TOPIC
from kafkalite.protocol import wire
from kafkalite.telemetry import repeats
from tests.support.waiting import until

from .conftest import Broker
from .coordinator_requests import TRANSACTIONS, commit, coordinator, wire_error
from .transactional_producer import Producer


async def test_groups_that_cannot_be_stored(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """While fewer replicas are in sync than needed, every rebalance of every group fails."""
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 1), 8)
    groups = broker.side.groups
    entry = groups.log.state_for("g").entries["g"]
    later = 0.0
    monkeypatch.setattr(groups, "_repeats", repeats.Repeats(lambda: later))
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    with capture_logs() as lines:
        for _ in range(200):
            groups._store(entry, StoreGroup(entry.group.generation, {}))
        later = repeats.INTERVAL_S + 1
        groups._store(entry, StoreGroup(entry.group.generation, {}))
    told = [line for line in lines if line["event"] == "group.store_failed"]
    assert [(line["error"], line["suppressed"]) for line in told] == [
        ("COORDINATOR_NOT_AVAILABLE", 0),
        ("COORDINATOR_NOT_AVAILABLE", 199),
    ]


async def test_internal_topics_that_cannot_be_created(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member with a topology of thousands of names that are none had megabytes logged with each second's heartbeat, and in each answer."""
    await broker.create("in")
    client = await broker.client()
    await coordinator(client, "g")
    beat = wire.StreamsGroupHeartbeatRequest
    topics = [beat.TopicInfo(f"{number}-" + "x" * 90, 0, 1, []) for number in range(500)]
    topology = beat.Topology(1, [beat.Subtopology("0", ["in"], [], topics, [], [], [])])
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    said = beat("g", "m", 0, rebalance_timeout_ms=9_000, process_id="m", topology=topology, **nothing)
    internal = broker.side.groups.streams._internal_topics

    async def refuse(*asked: object) -> None:
        raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION)

    monkeypatch.setattr(broker.services, "create_topics", refuse)
    with capture_logs() as lines:
        for _ in range(20):
            internal._until.clear()  # the second is over
            answer = await client.ask(said, 1)
            assert not answer.error_code
            await until(lambda: inf not in internal._until.values())
    failed = [line for line in lines if line["event"] == "group.topics_not_created"]
    assert len(failed) == 1 and "and 480 more" in failed[0]["failed"]
    assert max(len(each.status_detail) for each in answer.status) < 10_000


async def test_transactions_that_cannot_be_completed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create("t")
    client = await broker.client()
    producers = [Producer(client, f"x{number}") for number in range(8)]
    for producer in producers:
        await coordinator(client, producer.name, TRANSACTIONS)
        await producer.start()
        assert await producer.add() == 0
    partitions = broker.services.partitions
    real, refused, markers = partitions.append_internal, 0, 0

    def append(timeout_ms: int, wanted: Any, done: Any, **more: Any) -> None:
        nonlocal refused, markers
        if markers and wanted[0][0].topic == TRANSACTION_TOPIC:
            refused += 1
            done(tuple(wire_error(key) for key, _ in wanted))
        else:
            markers += wanted[0][0].topic == "t"
            real(timeout_ms, wanted, done, **more)

    # All are decided at once: the first marker finds the decisions in the log.
    for partition in broker.side.transactions.log.states():
        for slot in partition.slots.values():
            assert slot.transaction is not None
            prepared = replace(slot.transaction, state=TransactionState.PREPARE_COMMIT)
            await broker.side.transactions.write(partition, [(key_of(prepared.transactional_id), value_of(prepared))])
            slot.transaction = prepared
    monkeypatch.setattr(partitions, "append_internal", append)
    monkeypatch.setattr("kafkalite.coordinators.transactions.coordinator._RETRY_S", 0.001)
    with capture_logs() as lines:
        for partition in broker.side.transactions.log.states():
            for slot in partition.slots.values():
                broker.side.transactions.finish(partition, slot)
        await until(lambda: refused >= 80)
    told = [line for line in lines if line["event"] == "transaction.complete_delayed"]
    assert [(line["error"], line["suppressed"]) for line in told] == [("NOT_COORDINATOR", 0)]


async def test_connections_that_are_refused(make_broker: Any) -> None:
    broker = await make_broker(max_connections=1)
    await broker.client()
    with capture_logs() as lines:
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*broker.services.kafka_endpoint)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
    told = [line for line in lines if line["event"] == "kafka.connection_refused"]
    assert len(told) == 1 and told[0]["reason"] == "max.connections"
