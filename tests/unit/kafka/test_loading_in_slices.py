"""A coordinator that loads a long log takes a turn of the loop for each slice: clients and heartbeats wait for one slice only."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.coordinators.internal_log import partition_of
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, TopicPartition

from .conftest import Broker, FrameClient
from .coordinator_requests import commit, coordinator, fetched
from .rights import counted_turns

T0 = TopicPartition("t", 0)
_COMMITS = 100


async def _committed(client: FrameClient) -> int:
    """The offset of the group, as soon as its coordinator answers."""
    async with asyncio.timeout(150):
        while (answer := await fetched(client, "g", T0)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
    return int(answer.topics[0].partitions[0].committed_offset)


async def _loading(broker: Broker, monkeypatch: Any) -> tuple[FrameClient, int, list[Any]]:
    """A client, the partition of its group, which is being loaded, and the turns that this takes."""
    client = await broker.client()
    await coordinator(client, "g")
    await broker.create("t")
    for offset in range(_COMMITS):
        await client.ask(commit("g", offset), 8)
    turns = counted_turns(monkeypatch)
    own = partition_of("g", broker.side.groups.log.partition_count())
    broker.side.groups.log.reload(own)
    return client, own, turns


async def test_a_long_log_is_loaded_in_slices(broker: Broker, monkeypatch: Any) -> None:
    client, own, turns = await _loading(broker, monkeypatch)
    assert await _committed(client) == _COMMITS - 1
    assert turns.count((GROUP_TOPIC, own)) >= _COMMITS - 1, "a turn for each batch behind the first"


async def test_a_load_that_is_given_up_between_two_slices_leaves_nothing(broker: Broker, monkeypatch: Any) -> None:
    client, own, turns = await _loading(broker, monkeypatch)
    log = broker.side.groups.log
    while turns.count((GROUP_TOPIC, own)) < _COMMITS // 2:
        await asyncio.sleep(0)
    given_up = log._loads[own].state
    log.reload(own)
    assert await _committed(client) == _COMMITS - 1
    loaded = log.state_of(own)
    [(_, last)] = given_up.unsettled.values()
    assert not given_up.entries and last < loaded.entries["g"].offsets.committed[T0].record_offset, (
        "it went on beside the other load"
    )
    assert log.state_of(own) is not given_up
