"""A new transaction coordinator acts on nothing that its log may still lose.

Found by `make soak`: the last replica in sync led the coordinator's log with an end that nobody had copied. It verified a
transactional offset commit by that end, and then lost its power. The next coordinator did not know of the commit, so
the transaction on `__consumer_offsets` never ended, and the group got UNSTABLE_OFFSET_COMMIT for ever.
"""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.coordinators.internal_log import partition_of
from kafkalite.errors import ErrorCode
from kafkalite.model import TRANSACTION_TOPIC, TopicPartition
from kafkalite.protocol import wire
from kafkalite.testing.simulation.plants import PLANTS

from .conftest import Broker
from .coordinator_requests import TRANSACTIONS, coordinator, move
from .transactional_producer import Producer

NOT_READY = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize("is_planted", [False, True])
async def test_a_coordinator_is_not_ready_before_the_end_of_its_log_is_committed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    if is_planted:
        PLANTS["decided"](monkeypatch.setattr)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "x", TRANSACTIONS)
    producer = Producer(client, "x")
    assert not await producer.start()
    log = broker.side.transactions.log
    owner = TopicPartition(TRANSACTION_TOPIC, partition_of("x", log.partition_count()))
    partitions = broker.services.partitions
    committed = partitions.logs[owner].log_end_offset
    assert not await producer.add("t")
    partitions.committed[owner] = committed
    await move(broker, TRANSACTION_TOPIC)
    describe = wire.DescribeTransactionsRequest(["x"])
    codes: list[int] = []
    while len(codes) < 5 or (is_planted and set(codes) == {NOT_READY}):
        await asyncio.sleep(0.01)
        codes.append((await client.ask(describe, 0)).transaction_states[0].error_code)
    assert (set(codes) == {NOT_READY}) is not is_planted, codes
    del partitions.committed[owner]
    await coordinator(client, "x", TRANSACTIONS)
    answer = (await client.ask(describe, 0)).transaction_states[0]
    assert answer.transaction_state == "Ongoing" and [each.topic for each in answer.topics] == ["t"]
