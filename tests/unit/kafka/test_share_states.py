"""The share coordinator over its log: what is written is there after a reload; who is fenced; how nodes reach it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kafkalite.coordinators import node_connection
from kafkalite.coordinators.internal_log import partition_of
from kafkalite.coordinators.shares import persister
from kafkalite.coordinators.shares.coordinator import coordinator_key, share_key
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.kafka import pieces
from kafkalite.model import SHARE_TOPIC, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.rpc.messages.control import Broker as LiveBroker
from tests.unit.kafka.conftest import Broker
from tests.unit.kafka.coordinator_requests import wire_error

_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
_KEY = ShareKey("g", _ID, 3)
_NONE = Offset(-1)


def batch(first: int, last: int, state: DeliveryState = DeliveryState.ACKNOWLEDGED, count: int = 1) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count)


async def refused(work: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await work
    return caught.value.code


def reload(broker: Broker) -> None:
    for state in list(broker.side.shares.log.states()):
        broker.side.shares.log.reload(state.index)


def test_the_key_is_that_of_kafka() -> None:
    text = coordinator_key(ShareKey("a:b", _ID, 3))
    assert text == "a:b:ABEiM0RVZneImaq7zN3u_w:3"
    assert share_key(text) == ShareKey("a:b", _ID, 3)
    for wrong in ("", "g", "g:x:1", "g:ABEiM0RVZneImaq7zN3u_w:x", ":ABEiM0RVZneImaq7zN3u_w:1"):
        with pytest.raises(ApiError):
            share_key(wrong)


async def test_what_was_written_is_read_after_the_coordinator_was_loaded_again(make_broker: Any) -> None:
    broker = await make_broker(share_coordinator_snapshot_update_records_per_snapshot=2)
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, _NONE)
    assert await shares.read(_KEY, 0) == (4, 0, -1, ())
    for number in range(6):
        await shares.write(_KEY, 4, 1, Offset(10 + number), [batch(20 + 2 * number, 20 + 2 * number)])
    await shares.write(_KEY, 4, 1, _NONE, [batch(16, 19, DeliveryState.AVAILABLE, 2)])
    expected = (4, 1, 15, (batch(16, 19, DeliveryState.AVAILABLE, 2), *(batch(at, at) for at in range(20, 32, 2))))
    assert await shares.read(_KEY, 1) == expected
    reload(broker)
    assert await shares.read(_KEY, 1) == expected
    assert await shares.start_offset(_KEY) == 15
    assert (await shares.summary(_KEY)).completed == 6
    await shares.delete(_KEY)
    await shares.delete(_KEY)
    assert await refused(shares.read(_KEY, 2)) is ErrorCode.GROUP_ID_NOT_FOUND
    reload(broker)
    assert await refused(shares.write(_KEY, 4, 1, _NONE, [])) is ErrorCode.GROUP_ID_NOT_FOUND
    assert await shares.start_offset(_KEY) == -1


async def test_a_leader_that_is_succeeded_is_fenced(broker: Broker) -> None:
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, _NONE)
    await shares.write(_KEY, 4, 5, Offset(7), [])
    await shares.read(_KEY, 6)
    assert await refused(shares.write(_KEY, 4, 5, Offset(8), [])) is ErrorCode.FENCED_LEADER_EPOCH
    assert await refused(shares.read(_KEY, 5)) is ErrorCode.FENCED_LEADER_EPOCH
    reload(broker)
    assert await refused(shares.write(_KEY, 4, 5, Offset(8), [])) is ErrorCode.FENCED_LEADER_EPOCH
    await shares.write(_KEY, 4, 6, Offset(8), [])


async def test_a_write_fences_no_leader(broker: Broker) -> None:
    """A former leader of a partition that was removed wrote for a group that was deleted. The partition was there again, in the leader epoch 0,
    and the group too: nobody could read the state any more. As in Apache Kafka, only a read fences the leaders of before."""
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 2, _NONE)
    await shares.write(_KEY, 4, 9, Offset(7), [])
    assert await shares.read(_KEY, 0) == (2, 0, 7, ())
    reload(broker)
    assert await shares.read(_KEY, 0) == (2, 0, 7, ())


async def test_a_write_that_arrives_after_later_ones_undoes_nothing(broker: Broker) -> None:
    """A leader gives up on a write, its connection ends, and the network delivers the request seconds later."""
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, Offset(0))
    await shares.read(_KEY, 5)
    late = (Offset(1), [batch(5, 8, DeliveryState.AVAILABLE), batch(12, 12, DeliveryState.AVAILABLE)])
    await shares.write(_KEY, 4, 5, *late)
    await shares.write(
        _KEY, 4, 5, Offset(4), [batch(5, 5), batch(6, 6, DeliveryState.ARCHIVED), batch(7, 7, DeliveryState.ARCHIVING)]
    )
    expected = await shares.read(_KEY, 5)
    await shares.write(_KEY, 4, 5, *late)
    assert await shares.read(_KEY, 5) == expected
    reload(broker)
    assert await shares.read(_KEY, 6) == expected._replace(leader_epoch=6)


async def test_a_late_write_brings_no_delivery_and_no_dead_letter_back(broker: Broker) -> None:
    """The record was delivered once more than its limit says; the dead letter was written a second time by the next leader."""
    shares, available = broker.side.share_persister, DeliveryState.AVAILABLE
    await shares.initialize(_KEY, 4, Offset(0))
    await shares.read(_KEY, 5)
    late = (_NONE, [batch(5, 8, available, 1), batch(9, 9, DeliveryState.ARCHIVING, 5)])
    await shares.write(_KEY, 4, 5, *late)
    await shares.write(_KEY, 4, 5, _NONE, [batch(6, 7, available, 2), batch(9, 9, DeliveryState.ARCHIVED, 1)])
    expected = await shares.read(_KEY, 5)
    assert expected.batches == (
        batch(5, 5, available, 1), batch(6, 7, available, 2), batch(8, 8, available, 1), batch(9, 9, DeliveryState.ARCHIVED, 1),
    )  # fmt: skip
    await shares.write(_KEY, 4, 5, *late)
    assert await shares.read(_KEY, 5) == expected
    await shares.write(_KEY, 4, 5, _NONE, [batch(5, 8, available, 3)])
    assert (await shares.read(_KEY, 5)).batches[0] == batch(5, 8, available, 3), "the limit may be higher by now"


@pytest.mark.parametrize("meanwhile", ["refused", "loaded again", "rewritten", "rewritten and loaded again"])
async def test_a_new_leader_may_go_back_whatever_comes_between_its_reading_and_its_write(
    make_broker: Any, meanwhile: str
) -> None:
    """Its first write was refused (replicas were away), and the repeated one could not go back: the group passed over what the log got there.
    So it was if the state moved to another coordinator."""
    broker = await make_broker(share_coordinator_cold_partition_snapshot_interval_ms=0)
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, Offset(9))
    await shares.read(_KEY, 5)
    if meanwhile == "refused":
        broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
        assert await refused(shares.write(_KEY, 4, 5, Offset(6), [])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.services.partitions.fail_appends = None
    if "rewritten" in meanwhile:
        [partition] = [each for each in broker.side.shares.log.states() if _KEY in each.entries]
        broker.side.shares._rewrite(partition, [_KEY], 7)
    if "loaded" in meanwhile:
        reload(broker)
    await shares.write(_KEY, 4, 5, Offset(6), [])
    await shares.write(_KEY, 4, 5, Offset(5), [])
    assert (await shares.read(_KEY, 5)).start_offset == 6
    reload(broker)
    await shares.write(_KEY, 4, 5, Offset(5), [])
    assert (await shares.read(_KEY, 5)).start_offset == 6


async def test_a_new_leader_may_go_back_to_the_end_of_its_log(broker: Broker) -> None:
    """Only with its first write: after an unclean election the log may end below the start offset."""
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, Offset(9))
    await shares.read(_KEY, 5)
    await shares.write(_KEY, 4, 5, Offset(6), [])
    await shares.write(_KEY, 4, 5, Offset(5), [])
    assert (await shares.read(_KEY, 5)).start_offset == 6


async def test_a_state_begins_again_under_a_new_state_epoch(broker: Broker) -> None:
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, _NONE)
    await shares.write(_KEY, 4, 5, Offset(7), [batch(9, 9)])
    await shares.initialize(_KEY, 4, _NONE)  # the same request once more changes nothing
    assert (await shares.read(_KEY, 5)).start_offset == 7
    await shares.initialize(_KEY, 5, Offset(2))
    assert await refused(shares.write(_KEY, 4, 5, Offset(8), [])) is ErrorCode.FENCED_STATE_EPOCH
    assert await refused(shares.initialize(_KEY, 4, Offset(3))) is ErrorCode.FENCED_STATE_EPOCH
    assert await shares.read(_KEY, 5) == (5, 5, 2, ())
    await shares.write(
        _KEY, 6, 5, Offset(3), []
    )  # a later one is taken, and begins nothing: so does Apache Kafka 4.4.0
    assert await shares.read(_KEY, 5) == (5, 5, 3, ())
    await shares.write(_KEY, 5, 5, Offset(4), [])
    reload(broker)
    assert await shares.read(_KEY, 5) == (5, 5, 4, ())


async def test_a_new_leader_that_had_to_read_twice_may_go_back(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first read was written, and not confirmed in time."""
    await broker.side.share_persister.initialize(_KEY, 4, Offset(9))
    partitions, shares = broker.services.partitions, broker.side.shares
    append = partitions.append_internal

    def not_confirmed(timeout_ms: int, wanted: Any, done: Any, **more: Any) -> None:
        append(timeout_ms, wanted, lambda results: None, **more)
        results = tuple(wire_error(key)._replace(error=int(ErrorCode.REQUEST_TIMED_OUT)) for key, _ in wanted)
        asyncio.get_running_loop().call_soon(done, results)

    monkeypatch.setattr(partitions, "append_internal", not_confirmed)
    with pytest.raises(ApiError):
        await shares.read(_KEY, 5)
    monkeypatch.setattr(partitions, "append_internal", append)
    assert (await shares.read(_KEY, 5)).start_offset == 9
    await shares.write(_KEY, 4, 5, Offset(3), [])
    assert (await shares.read(_KEY, 5)).start_offset == 3


async def test_a_read_waits_for_what_it_shows(broker: Broker) -> None:
    shares = broker.side.share_persister
    await shares.initialize(_KEY, 4, Offset(1))
    where = TopicPartition(SHARE_TOPIC, partition_of(coordinator_key(_KEY), 50))
    broker.services.partitions.committed[where] = 0
    assert await refused(broker.side.shares.read(_KEY, 0)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(broker.side.shares.summary(_KEY)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    del broker.services.partitions.committed[where]
    assert (await broker.side.shares.read(_KEY, 0)).start_offset == 1


async def test_what_could_not_be_appended_has_not_happened(broker: Broker) -> None:
    shares = broker.side.shares
    await broker.side.share_persister.initialize(_KEY, 4, Offset(1))
    broker.services.partitions.fail_appends = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await refused(shares.write(_KEY, 4, 1, Offset(8), [])) is ErrorCode.NOT_COORDINATOR
    assert await refused(shares.delete(_KEY)) is ErrorCode.NOT_COORDINATOR
    broker.services.partitions.fail_appends = None
    assert (await shares.read(_KEY, 0)).start_offset == 1


async def test_records_before_the_oldest_snapshot_are_deleted(make_broker: Any) -> None:
    broker = await make_broker(
        share_coordinator_state_topic_num_partitions=1,
        share_coordinator_snapshot_update_records_per_snapshot=10,
        share_coordinator_cold_partition_snapshot_interval_ms=1,
    )
    shares, other = broker.side.shares, _KEY._replace(partition=4)
    persister = broker.side.share_persister
    await persister.initialize(other, 1, Offset(5))
    await persister.initialize(_KEY, 1, _NONE)
    for offset in range(1_200):
        await shares.write(_KEY, 1, 1, Offset(offset), [])
    log = broker.services.partitions.logs[TopicPartition(SHARE_TOPIC, 0)]
    await shares.prune()
    assert log.log_start_offset > 1_100  # the idle key was written once more
    reload(broker)
    assert (await persister.read(other, 1)).start_offset == 5
    assert (await persister.read(_KEY, 1)).start_offset == 1_199
    await persister.delete(_KEY)
    await persister.delete(other)
    await shares.prune()
    assert log.log_start_offset == log.log_end_offset


async def test_idle_states_that_are_large_are_written_in_several_appends(make_broker: Any) -> None:
    """Fifty together were more than a batch may have: nothing of their partition's log could be deleted any more."""
    broker = await make_broker(
        share_coordinator_state_topic_num_partitions=1,
        share_coordinator_snapshot_update_records_per_snapshot=10,
        share_coordinator_cold_partition_snapshot_interval_ms=1,
    )
    shares, persister = broker.side.shares, broker.side.share_persister
    gaps = [batch(offset, offset) for offset in range(10, 4_000, 2)]
    idle = [_KEY._replace(partition=number) for number in range(10, 60)]
    for key in idle:
        await persister.initialize(key, 1, Offset(5))
        await persister.write(key, 1, 1, Offset(5), gaps)
    await persister.initialize(_KEY, 1, _NONE)
    for offset in range(1_200):
        await shares.write(_KEY, 1, 1, Offset(offset), [])
    log = broker.services.partitions.logs[TopicPartition(SHARE_TOPIC, 0)]
    await shares.prune()
    assert log.log_start_offset > 1_100
    reload(broker)
    for key in idle:
        assert len((await persister.read(key, 1)).batches) == len(gaps)


async def test_nothing_is_deleted_for_a_snapshot_that_is_not_replicated(make_broker: Any) -> None:
    """An idle key is written again, and this leader dies before anybody has copied that."""
    broker = await make_broker(
        share_coordinator_state_topic_num_partitions=1,
        share_coordinator_snapshot_update_records_per_snapshot=10,
        share_coordinator_cold_partition_snapshot_interval_ms=1,
    )
    shares, persister, other = broker.side.shares, broker.side.share_persister, _KEY._replace(partition=4)
    await persister.initialize(other, 1, Offset(5))
    await persister.initialize(_KEY, 1, _NONE)
    for offset in range(1_200):
        await shares.write(_KEY, 1, 1, Offset(offset), [])
    where = TopicPartition(SHARE_TOPIC, 0)
    partitions = broker.services.partitions
    log, end = partitions.logs[where], partitions.logs[where].log_end_offset
    partitions.committed[where] = end
    await shares.prune()
    assert log.log_end_offset > end  # the idle key
    log.batches = [each for each in log.batches if each[0].next_offset <= end]
    log.log_end_offset = end
    reload(broker)
    assert (await persister.read(other, 1)).start_offset == 5
    assert (await persister.read(_KEY, 1)).start_offset == 1_199


async def test_a_state_from_the_future_holds_back_no_other(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was ahead, by years perhaps, has been set right since."""
    broker = await make_broker(
        share_coordinator_state_topic_num_partitions=1, share_coordinator_snapshot_update_records_per_snapshot=10
    )
    shares, persister, clock = broker.side.shares, broker.side.share_persister, type(broker.services.clock)
    now_ms = broker.services.clock.wall_ms()
    with monkeypatch.context() as ahead:
        ahead.setattr(clock, "wall_ms", lambda self: now_ms + 315_360_000_000)
        await persister.initialize(_KEY._replace(partition=4), 1, Offset(5))
    await persister.initialize(_KEY, 1, _NONE)
    for offset in range(1_200):
        await shares.write(_KEY, 1, 1, Offset(offset), [])
    await shares.prune()
    assert broker.services.partitions.logs[TopicPartition(SHARE_TOPIC, 0)].log_start_offset > 1_100


async def test_a_replica_that_is_away_holds_back_no_other_partition(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are gone for good when all who may lead have deleted them: one that is down may not for days."""
    monkeypatch.setattr("kafkalite.coordinators.shares.coordinator._PRUNED_WITHIN_S", 0.01)
    broker = await make_broker(
        share_coordinator_state_topic_num_partitions=2, share_coordinator_snapshot_update_records_per_snapshot=1
    )
    partitions, asked = broker.services.partitions, set()

    def delete_records(partition: TopicPartition, before: Offset) -> asyncio.Future[Offset]:
        asked.add(partition.partition)
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(partitions, "delete_records", delete_records)
    for number in range(8):  # on both partitions
        key = _KEY._replace(partition=number)
        await broker.side.share_persister.initialize(key, 1, Offset(0))
        for offset in range(1, 6):
            await broker.side.shares.write(key, 1, 1, Offset(offset), [])
    async with asyncio.timeout(150):
        await broker.side.shares.prune()
    assert asked == {0, 1}


async def test_requests_of_nodes(broker: Broker) -> None:
    client = await broker.client()
    await broker.side.share_persister.initialize(_KEY, 4, Offset(1))
    request = wire.WriteShareGroupStateRequest
    raw = _ID.bytes
    parts = [
        request.PartitionData(3, 4, 1, 8, -1, [request.StateBatch(9, 12, 2, 1)]),
        request.PartitionData(4, 4, 1, 8, -1),
        request.PartitionData(-1, 4, 1, 8, -1),
        request.PartitionData(3, 4, 1, 8, -1, [request.StateBatch(9, 12, 1, 1)]),
    ]
    answer = await client.ask(request("g", [request.WriteStateData(raw, parts)]), 1)
    codes = [each.error_code for each in answer.results[0].partitions]
    assert codes == [0, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    read = wire.ReadShareGroupStateRequest
    answer = await client.ask(read("g", [read.ReadStateData(raw, [read.PartitionData(3, 1)])]), 0)
    found = answer.results[0].partitions[0]
    assert (found.state_epoch, found.start_offset) == (4, 8)
    stored = [(each.first_offset, each.last_offset, each.delivery_state) for each in found.state_batches]
    assert stored == [(9, 12, 2)]
    summary = wire.ReadShareGroupStateSummaryRequest
    answer = await client.ask(summary("g", [summary.ReadStateSummaryData(raw, [summary.PartitionData(3, 1)])]), 1)
    found = answer.results[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.start_offset, found.delivery_complete_count) == (0, 1, 8, 4)
    find = wire.FindCoordinatorRequest(key_type=2, coordinator_keys=[coordinator_key(_KEY), "nonsense"])
    found = (await client.ask(find, 6)).coordinators
    assert [(each.error_code, each.port) for each in found] == [
        (0, broker.services.kafka_endpoint[1]),
        (ErrorCode.INVALID_REQUEST, -1),
    ]


async def test_the_coordinator_is_another_node(make_broker: Any) -> None:
    here, there = await make_broker(), await make_broker(share_coordinator_state_topic_num_partitions=1)
    await there.side.share_persister.initialize(_KEY, 1, _NONE)
    elsewhere(here, there)
    shares = here.side.share_persister
    keys = [ShareKey(group, _ID, number) for group in ("g", "h") for number in range(3)]
    await asyncio.gather(*(shares.initialize(key, 2, Offset(5)) for key in keys))
    await asyncio.gather(
        *(shares.write(key, 2, 1, Offset(6 + key.partition), [batch(9, 9)]) for key in keys for _ in "ab")
    )
    states = await asyncio.gather(*(shares.read(key, 1) for key in keys))
    assert [state.start_offset for state in states] == [6, 7, 8] * 2
    assert all(state == (2, 1, 6 + key.partition, (batch(9, 9),)) for state, key in zip(states, keys, strict=True))
    assert await shares.summary(keys[0]) == (2, 1, 6, 1)
    assert await refused(shares.write(keys[0], 1, 1, _NONE, [])) is ErrorCode.FENCED_STATE_EPOCH
    await shares.delete(keys[0])
    assert await refused(shares.read(keys[0], 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not any(partition.entries for partition in here.side.shares.log.states())


async def test_states_that_do_not_fit_into_one_response_are_read_in_several(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover, a node that led many partitions with large states got none of them: each repetition asked for all of them again."""
    here, there = await make_broker(), await make_broker(share_coordinator_state_topic_num_partitions=1)
    elsewhere(here, there)
    shares, keys = here.side.share_persister, [ShareKey("g", _ID, number) for number in range(40)]
    said = [batch(at, at) for at in range(1, 41, 2)]
    for key in keys:
        await there.side.share_persister.initialize(key, 1, Offset(0))
        await there.side.share_persister.write(key, 1, 1, _NONE, said)
    monkeypatch.setattr(node_connection, "_MAX_RESPONSE_BYTES", 4_096)
    states = await asyncio.gather(*(shares.read(key, 1) for key in keys))
    assert all(state.batches == tuple(said) for state in states)


async def test_a_state_with_many_batches_is_written_to_another_node(make_broker: Any) -> None:
    """Each is an element of the request, and with more than 10,000 it was refused: the leader repeated it for ever."""
    here, there = await make_broker(), await make_broker(share_coordinator_state_topic_num_partitions=1)
    await there.side.share_persister.initialize(_KEY, 1, Offset(0))
    elsewhere(here, there)
    shares = here.side.share_persister
    said = [batch(at, at) for at in range(1, 24_001, 2)]
    await shares.write(_KEY, 1, 1, _NONE, said)
    assert (await shares.read(_KEY, 1)).batches == tuple(said)


async def test_states_of_many_partitions_are_written_in_requests_that_any_node_takes(
    make_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of up to 500 shared a request, whatever they had."""
    here, there = await make_broker(), await make_broker(share_coordinator_state_topic_num_partitions=1)
    keys = [ShareKey("g", _ID, number) for number in range(200)]
    for key in keys:
        await there.side.share_persister.initialize(key, 1, Offset(0))
    elsewhere(here, there)
    shares = here.side.share_persister
    monkeypatch.setattr(pieces, "MOST_IN_STEPS", 10_000)
    monkeypatch.setattr(persister, "_AGAIN", frozenset())
    said = [batch(at, at) for at in range(1, 121, 2)]
    await asyncio.gather(*(shares.write(key, 1, 1, _NONE, said) for key in keys))
    assert (await shares.read(keys[-1], 1)).batches == tuple(said)


def elsewhere(here: Broker, there: Broker) -> None:
    """`here` believes that `there` leads the only partition of the share coordinator's topic."""
    metadata, host, port = here.services.metadata, *there.services.kafka_endpoint
    other = LiveBroker(BrokerId(2), BrokerEpoch(2), host, port, host, 1, None, 2)
    mine = (BrokerId(2),)

    def answer(topics: Any) -> Any:
        known = metadata(topics)
        part = PartitionMetadata(0, 0, BrokerId(2), LeaderEpoch(0), mine, mine)
        named = tuple(
            TopicMetadata(each.topic, 0, each.topic_id, (part,)) if each.topic == SHARE_TOPIC else each
            for each in known.topics
        )
        return replace(known, brokers=(*known.brokers, other), topics=named)

    here.services.metadata = answer  # type: ignore[method-assign]
