"""Elections, reassignments, producers and disks through the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.env.turns import result_of
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
    PartitionResult,
    Reassignment,
    WantedReassignment,
)
from kafkalite.kafka.handlers.cluster import topic_page
from kafkalite.kafka.stepped import STEP
from kafkalite.model import BrokerId, LeaderEpoch, TopicId, TopicPartition
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import codec, wire
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE

from .conftest import Broker, batch, produce
from .rights import counted_turns


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def test_the_bytes_are_kafkas() -> None:
    elect = wire.ElectLeadersRequest
    message = elect(1, [elect.TopicPartitions("t", [0, 2])], 1500)
    assert codec.encode(message, 1).hex() == "01" + "00000001000174" + "000000020000000000000002" + "000005dc"
    assert codec.encode(message, 2).hex() == "01" + "020274" + "030000000000000002" + "00" + "000005dc" + "00"
    assert codec.encode(elect(0, None, 1500), 2).hex() == "0000000005dc00"
    alter = wire.AlterPartitionReassignmentsRequest
    parts = [alter.ReassignablePartition(3, [1, 2]), alter.ReassignablePartition(4, None)]
    assert codec.encode(alter(1500, topics=[alter.ReassignableTopic("t", parts)]), 0).hex() == (
        "000005dc" + "020274" + "03" + "00000003" + "030000000100000002" + "00" + "00000004" + "00" + "00" + "0000"
    )
    move = wire.AlterReplicaLogDirsRequest
    topics = [move.AlterReplicaLogDirTopic("t", [5])]
    moved = move([move.AlterReplicaLogDir("/d", topics)])
    assert codec.encode(moved, 1).hex() == "00000001" + "00022f64" + "00000001" + "000174" + "0000000100000005"
    assert codec.encode(moved, 2).hex() == "02" + "032f64" + "02" + "0274" + "0200000005" + "00" + "00" + "00"


@pytest.mark.parametrize("version", range(3))
async def test_elections(broker: Broker, version: int) -> None:
    client = await broker.client()
    request = wire.ElectLeadersRequest
    results = (
        PartitionResult("a", 0, 0),
        PartitionResult("a", 1, 84, "no election is needed"),
        PartitionResult("b", 0, 3),
    )
    broker.services.answers[ElectLeadersResponse] = ElectLeadersResponse(0, "", results)
    asked = [request.TopicPartitions("a", [0, 1]), request.TopicPartitions("b", [0])]
    answer = await client.ask(request(1, asked, 1500), version)
    wanted = (("a", 0), ("a", 1), ("b", 0))
    assert broker.services.orders == [ElectLeadersRequest(wanted, unclean=version >= 1, timeout_ms=1500)]
    told = {
        (topic.topic, part.partition_id): (part.error_code, part.error_message)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    assert told == {("a", 0): (0, None), ("a", 1): (84, "no election is needed"), ("b", 0): (3, None)}
    broker.services.answers[ElectLeadersResponse] = ElectLeadersResponse(0, "", results[2:])
    asked = [request.TopicPartitions("b", [0, 0]), request.TopicPartitions("c", []), request.TopicPartitions("b", [0])]
    answer = await client.ask(request(1, asked, 1500), version)
    assert [
        (topic.topic, [(part.partition_id, part.error_code) for part in topic.partition_result])
        for topic in answer.replica_election_results
    ] == [("b", [(0, 3), (0, 3)]), ("c", []), ("b", [(0, 3)])]
    broker.services.answers[ElectLeadersResponse] = ElectLeadersResponse(0)
    assert (await client.ask(request(0, None, 1500), version)).replica_election_results == []
    assert broker.services.orders[-1] == ElectLeadersRequest(None, timeout_ms=1500)


@pytest.mark.parametrize("version", range(3))
async def test_an_election_that_is_refused_as_a_whole(broker: Broker, version: int) -> None:
    client = await broker.client()
    request = wire.ElectLeadersRequest
    code = ErrorCode.REQUEST_TIMED_OUT
    broker.services.answers[ElectLeadersResponse] = ElectLeadersResponse(code, "not held yet")
    answer = await client.ask(request(0, [request.TopicPartitions("a", [0])], 1500), version)
    if version >= 1:
        assert answer.error_code == code
        for asked, code, told in (
            (None, ErrorCode.INVALID_REQUEST, []),
            ([], ErrorCode.NONE, []),
            ([request.TopicPartitions("a", [2])], ErrorCode.INVALID_REQUEST, [("a", 2, ErrorCode.INVALID_REQUEST)]),
        ):
            odd = await client.ask(request(7, asked, 1500), version)
            assert odd.error_code == code
            assert told == [
                (topic.topic, part.partition_id, part.error_code)
                for topic in odd.replica_election_results
                for part in topic.partition_result
            ]
    else:
        assert answer.replica_election_results[0].partition_result[0].error_code == code


_MANY = 1_000


@pytest.mark.parametrize(
    ("message", "version", "listed"),
    [
        (
            wire.ElectLeadersRequest(0, None, 1500),
            2,
            lambda answer: answer.replica_election_results[0].partition_result,
        ),
        (wire.ListPartitionReassignmentsRequest(1500, None), 0, lambda answer: answer.topics[0].partitions),
        (wire.DescribeUserScramCredentialsRequest(None), 0, lambda answer: answer.results),
        (wire.ListConfigResourcesRequest([32]), 1, lambda answer: answer.config_resources),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_long_answers_are_made_in_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, message: Any, version: int, listed: Callable[[Any], list[Any]]
) -> None:
    services = broker.services
    elected = tuple(PartitionResult("a", number, 0) for number in range(_MANY))
    moves = tuple(Reassignment("a", number, ids(1), ids(2), ids(1)) for number in range(_MANY))
    services.answers[ElectLeadersResponse] = ElectLeadersResponse(0, "", elected)
    services.answers[ListReassignmentsResponse] = ListReassignmentsResponse(0, "", moves)
    for number in range(_MANY):
        services.users[f"u{number:04}"] = {"SCRAM-SHA-256": "iterations=4096"}
        await services.replace_entity_overrides(
            GROUPS, f"g{number:04}", {}, {"share.isolation.level": "read_committed"}
        )
    client = await broker.client()
    turns = counted_turns(monkeypatch)
    assert len(listed(await client.ask(message, version))) == _MANY
    assert len(turns) >= 100


async def test_reassignments_are_ordered_and_called_off(broker: Broker) -> None:
    client = await broker.client()
    request = wire.AlterPartitionReassignmentsRequest
    results = (PartitionResult("a", 0, 0), PartitionResult("a", 1, 85, "nothing is moving"))
    broker.services.answers[AlterReassignmentsResponse] = AlterReassignmentsResponse(0, "", results)
    parts = [request.ReassignablePartition(0, [3, 1]), request.ReassignablePartition(1, None)]
    answer = await client.ask(request(1500, topics=[request.ReassignableTopic("a", parts)]), 0)
    wanted = (WantedReassignment("a", 0, ids(3, 1)), WantedReassignment("a", 1, None))
    assert broker.services.orders == [AlterReassignmentsRequest(wanted, 1500)]
    [topic] = answer.responses
    assert [(part.error_code, part.error_message) for part in topic.partitions] == [
        (0, None),
        (85, "nothing is moving"),
    ]
    code = ErrorCode.REQUEST_TIMED_OUT
    broker.services.answers[AlterReassignmentsResponse] = AlterReassignmentsResponse(code, "who knows")
    answer = await client.ask(request(1500, topics=[request.ReassignableTopic("a", parts)]), 0)
    assert (answer.error_code, answer.error_message, answer.responses) == (code, "who knows", [])


@pytest.mark.checklist(70)
async def test_the_list_has_the_whole_plan_and_the_current_batch(broker: Broker) -> None:
    client = await broker.client()
    request = wire.ListPartitionReassignmentsRequest
    waiting = Reassignment("a", 0, ids(1, 2), ids(3, 4), ids(1, 2))
    stepping = Reassignment("a", 1, ids(3, 1, 2), ids(3, 4), ids(1, 2), step=ids(3, 4, 2))
    dropping = Reassignment("b", 0, ids(3, 4), ids(3, 4), ids(1, 2), dropping=ids(2))
    broker.services.answers[ListReassignmentsResponse] = ListReassignmentsResponse(0, "", (waiting, stepping, dropping))
    answer = await client.ask(request(1500, None), 0)
    assert broker.services.orders == [ListReassignmentsRequest(None)]
    plan = {
        (topic.name, part.partition_index): (part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    }
    assert plan == {
        ("a", 0): ([3, 4, 1, 2], [3, 4], [1, 2]),
        ("a", 1): ([3, 4, 1, 2], [3, 4], [1, 2]),
        ("b", 0): ([3, 4, 2], [3, 4], [2]),
    }
    batch_now = {
        (topic.name, part.partition_index): (part.current_replicas, part.target_replicas)
        for topic in answer.current_batch
        for part in topic.partitions
    }
    assert batch_now == {("a", 1): ([3, 1, 2], [3, 4, 2]), ("b", 0): ([3, 4], [3, 4])}
    broker.services.answers[ListReassignmentsResponse] = ListReassignmentsResponse(0)
    named = [request.ListPartitionReassignmentsTopics("a", [1])]
    assert (await client.ask(request(1500, named), 0)).topics == []
    assert broker.services.orders[-1] == ListReassignmentsRequest((("a", 1),))
    broker.services.answers[ListReassignmentsResponse] = ListReassignmentsResponse(7, "ZooKeeper has not answered")
    assert (await client.ask(request(1500, None), 0)).error_code == ErrorCode.REQUEST_TIMED_OUT


def test_who_does_not_know_the_current_batch_passes_it_over() -> None:
    response = wire.ListPartitionReassignmentsResponse
    plain = codec.encode(response(error_message=None), 0)
    topic = response.CurrentBatchTopic("t", [response.CurrentBatchPartition(0, [1], [2])])
    tagged = codec.encode(response(error_message=None, current_batch=[topic]), 0)
    # One tag, 435, and its length come where Kafka's own message has an empty tag section.
    assert plain[-1] == 0 and tagged.startswith(plain[:-1] + b"\x01\xb3\x03")
    assert tagged[len(plain) + 2] == len(tagged) - len(plain) - 3


async def test_producers_of_a_partition(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await make_broker(transaction_partition_verification_enable=False)
    await broker.create("t")
    client = await broker.client()
    written = batch(b"x", b"y", producer_id=7, producer_epoch=2, base_sequence=0, transactional=True)
    taken = await client.ask(produce("t", (0, written), transactional_id="txn"), 9)
    assert taken.responses[0].partition_responses[0].error_code == 0
    request = wire.DescribeProducersRequest
    answer = await client.ask(request([request.TopicRequest("t", [0, 9])]), 0)
    good, missing = answer.topics[0].partitions
    [known] = good.active_producers
    assert (known.producer_id, known.producer_epoch, known.last_sequence) == (7, 2, 1)
    assert known.current_txn_start_offset == 0
    assert (missing.error_code, missing.active_producers) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    answer = await client.ask(request([request.TopicRequest(name, [0]) for name in ("", "a b")]), 0)
    codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2  # as Apache Kafka 4.4.0
    for producer_id in range(20, 20 + 2 * STEP):
        await client.ask(produce("t", (0, batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0))), 9)
    turns = counted_turns(monkeypatch)
    answer = await client.ask(request([request.TopicRequest("t", [0])]), 0)
    assert len(answer.topics[0].partitions[0].active_producers) == 2 * STEP + 1
    assert len(turns) >= 2, "a step for each hundred"  # others may take turns, too
    # One of 10,000 producers that was named 500 times took gigabytes.
    answer = await client.ask(request([request.TopicRequest("t", [0, 0]), request.TopicRequest("t", [0])]), 0)
    assert [len(topic.partitions) for topic in answer.topics] == [1, 0]
    many = [request.TopicRequest("t", [0] * (ELEMENTS_AT_ONCE + 1))]
    answer = await client.ask(request(many), 0)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(5))
async def test_disks_are_described(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    request = wire.DescribeLogDirsRequest
    answer = await client.ask(request([request.DescribableLogDirTopic("t", [1])]), version)
    [result] = answer.results
    assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in result.topics] == [
        ("t", [1])
    ]
    assert (result.total_bytes, result.usable_bytes) == ((4000, 3000) if version >= 4 else (-1, -1))
    everything = await client.ask(request(None), version)
    assert len(everything.results[0].topics[0].partitions) == 2


async def test_disks_are_described_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create("t", 1_000)
    client = await broker.client()
    turns = counted_turns(monkeypatch)
    answer = await client.ask(wire.DescribeLogDirsRequest(None), 4)
    assert len(answer.results[0].topics[0].partitions) == 1_000
    assert len(turns) >= 10


@pytest.mark.parametrize("version", range(3))
async def test_replicas_are_sent_to_disks(broker: Broker, version: int) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    request = wire.AlterReplicaLogDirsRequest

    def move(path: str, **topics: list[int]) -> Any:
        wanted = [request.AlterReplicaLogDirTopic(topic, indexes) for topic, indexes in topics.items()]
        return request.AlterReplicaLogDir(path, wanted)

    orders = [move("/memory", t=[0, 1], u=[0]), move("/nowhere", t=[1], v=[0])]
    answer = await client.ask(request(orders), version)
    told = {
        TopicPartition(topic.topic_name, part.partition_index): part.error_code
        for topic in answer.results
        for part in topic.partitions
    }
    assert told == {
        ("t", 0): 0,
        ("t", 1): ErrorCode.INVALID_REQUEST,
        ("u", 0): ErrorCode.REPLICA_NOT_AVAILABLE,
        ("v", 0): ErrorCode.LOG_DIR_NOT_FOUND,
    }


async def test_topics_are_described_in_pages(broker: Broker) -> None:
    for topic, partitions in (("a", 3), ("b", 2), ("c", 1)):
        await broker.create(topic, partitions)
    client = await broker.client()
    request = wire.DescribeTopicPartitionsRequest

    async def pages(limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
        found = []
        cursor = None
        while True:
            topics = [request.TopicRequest(name) for name in names]
            answer = await client.ask(request(topics, limit, cursor), 0)
            found.append([(topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics])
            if answer.next_cursor is None:
                return found
            cursor = request.Cursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)

    assert await pages(2000) == [[("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]]
    assert await pages(2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1]), ("c", [0])]]
    assert await pages(3, "b", "a") == [[("a", [0, 1, 2])], [("b", [0, 1])]]
    assert await pages(0, "c", "b") == [[("b", [0])], [("b", [1])], [("c", [0])]]
    answer = await client.ask(request([request.TopicRequest("nowhere"), request.TopicRequest("no name")], 10), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("no name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for topic, partition in (("a", -1), ("b", 0), ("", 0)):  # negative, or not among the topics
        refused = await client.ask(request([request.TopicRequest("a")], 10, request.Cursor(topic, partition)), 0)
        assert refused.topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_described_partition_tells_who_is_eligible() -> None:
    """KIP-966: what `kafka-topics --describe` shows as Elr and LastKnownElr."""
    one, two, three, four = map(BrokerId, (1, 2, 3, 4))
    replicas = (one, two, three, four)
    partition = PartitionMetadata(0, 0, three, LeaderEpoch(7), replicas, (three,), (one, two), (four,))
    topic = TopicMetadata("t", 0, TopicId("6tHHHpZDRVKlYZMrGIiuuQ"), (partition,))
    told = asyncio.run(result_of(topic_page(topic, topic.partitions, {three, four}))).partitions[0]
    assert (told.leader_id, told.leader_epoch, told.isr_nodes, told.offline_replicas) == (3, 7, (three,), [1, 2])
    assert (told.eligible_leader_replicas, told.last_known_elr) == ((one, two), (four,))
