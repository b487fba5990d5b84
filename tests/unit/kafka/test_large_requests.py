"""Requests with more elements than one turn of the loop bears: the same answers, in order, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kafkalite.coordinators.transactions import state as rules
from kafkalite.env.turns import SLICE_S, Slices, Turns
from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from kafkalite.kafka import pieces
from kafkalite.kafka.apis import OFFERED
from kafkalite.kafka.handlers.topics import TopicHandlers
from kafkalite.kafka.refusals import refuse, refusing
from kafkalite.partition_values import TopicMetadata
from kafkalite.protocol import wire
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE
from kafkalite.protocol.schema import Struct, schemas
from kafkalite.protocol.structs import classes, default_of
from tests.support.waiting import until

from .conftest import Broker, batch, fetch, produce
from .coordinator_requests import TRANSACTIONS, coordinator
from .transactional_producer import Producer

MANY = 3_000


def _names(count: int = MANY) -> list[str]:
    return [f"t{number:05d}" for number in range(count)]


async def test_a_large_request_is_answered_like_many_small_ones_and_those_behind_it_wait(broker: Broker) -> None:
    await broker.create("t00001", 3)
    client, other = await broker.client(), await broker.client()
    topic = wire.MetadataRequest.MetadataRequestTopic
    client.send(wire.MetadataRequest([topic(name=name) for name in _names()], allow_auto_topic_creation=False), 12)
    client.send(wire.ApiVersionsRequest("x", "1"), 3)
    assert (await other.ask(wire.ApiVersionsRequest("x", "1"), 3)).error_code == 0
    _, answer = await client.receive()
    assert [each.name for each in answer.topics] == _names()
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes["t00001"] == 0
    assert set(codes.values()) == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (await client.receive())[1].error_code == 0


async def test_partitions_of_one_topic_are_one_topic_again(broker: Broker) -> None:
    await broker.create("t", 2)
    client = await broker.client()
    request = wire.ListOffsetsRequest
    parts = [request.ListOffsetsPartition(number, -1, -1) for number in range(MANY)]
    asked = request(-1, topics=[request.ListOffsetsTopic("t", parts), request.ListOffsetsTopic("u", parts)])
    answer = await client.ask(asked, 7)
    assert [topic.name for topic in answer.topics] == ["t", "u"]
    for topic in answer.topics:
        assert [part.partition_index for part in topic.partitions] == list(range(MANY))
    assert [part.error_code for part in answer.topics[0].partitions[:3]] == [0, 0, 3]


async def test_what_is_named_twice_in_a_large_request_is_refused_as_a_whole_or_answered_once(broker: Broker) -> None:
    client = await broker.client()
    request = wire.ListOffsetsRequest
    parts = [request.ListOffsetsPartition(number % 1000, -1, -1) for number in range(MANY)]
    answer = await client.ask(request(-1, topics=[request.ListOffsetsTopic("t", parts)]), 7)
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}
    assert len(answer.topics[0].partitions) == MANY
    described = await client.ask(wire.DescribeGroupsRequest(_names(1000) * 3, include_authorized_operations=False), 5)
    assert [group.group_id for group in described.groups] == _names(1000)


#: Topics without partitions are not in an answer to Fetch.
@pytest.mark.parametrize("api", sorted(pieces.CUTS.keys() - {"Fetch"}))
async def test_each_api_that_is_cut_answers_for_each_element(broker: Broker, api: str) -> None:
    client = await broker.client()
    [source, target, *_] = pieces.CUTS[api].lists[0]
    [field] = [each for each in schemas()[api + "Request"].root.fields if each.name == source]
    version = max(set(field.versions) & set(range(OFFERED[api][1] + 1)))
    elements: list[Any] = _names(ELEMENTS_AT_ONCE + 1)
    if field.struct is not None:
        made: Any = classes(api + "Request")[field.struct.name]
        names = [each.name for each in field.struct.fields]
        name = "name" if "name" in names else names[1 if names[0].startswith("resource_type") else 0]
        elements = [made(**{name: each}) for each in elements]
    answer = await client.ask(getattr(wire, api + "Request")(**{source: elements}), version)
    assert len(getattr(answer, target)) == len(elements)


async def test_too_many_new_partitions_are_refused_before_any_is_made(broker: Broker) -> None:
    client = await broker.client()
    topic = wire.CreateTopicsRequest.CreatableTopic
    answer = await client.ask(wire.CreateTopicsRequest([topic(name, 10, 1) for name in _names()], 1000), 7)
    assert {each.error_code for each in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert len(answer.topics) == MANY
    assert not broker.services.partitions.logs


def _added(count: int) -> Any:
    request = wire.AddPartitionsToTxnRequest
    return request(
        v3_and_below_transactional_id="t",
        v3_and_below_topics=[request.AddPartitionsToTxnTopic("t", list(range(count - 1)))],
    )


@pytest.mark.parametrize(
    ("large", "version"), [(lambda count: _added(count), 3), (lambda count: _commit(count - 1, 1), 8)]
)
async def test_an_api_that_cannot_be_cut_takes_only_so_much(broker: Broker, large: Any, version: int) -> None:
    """What is handled in one turn of the loop less than what is handled in steps. Clients hear of it: over a new connection they would ask again."""
    limit = pieces.most_uncut(type(large(1)).__name__.removesuffix("Request"))
    client, other = await broker.client(), await broker.client()
    client.send(large(limit), version)
    await client.receive()
    codes = _codes(await other.ask(large(limit + 1), version))
    assert codes == [ErrorCode.INVALID_REQUEST] * len(codes) and len(codes) >= limit - 1
    assert (await other.ask(wire.ApiVersionsRequest("x", "1"), 3)).error_code == 0


@pytest.mark.parametrize("api", sorted(OFFERED))
def test_a_refusal_in_steps_is_the_same(api: str) -> None:
    low, high = OFFERED[api]
    for version in range(low, high + 1):
        message = _filled(api, schemas()[api + "Request"].root, version, 150)
        steps = refusing(api, message, version, ErrorCode.INVALID_REQUEST, "why")
        answer = None
        while answer is None:
            try:
                next(steps)
            except StopIteration as stop:
                answer = stop.value
        assert answer == refuse(api, message, version, ErrorCode.INVALID_REQUEST, "why")


def _filled(api: str, struct: Struct, version: int, count: int) -> Any:
    """A struct of a request whose lists have so many elements."""
    values = {}
    for field in struct.fields:
        if version in field.versions:
            is_list = field.is_array and field.struct is not None
            inner = [_filled(api, field.struct, version, 3) for _ in range(count)] if is_list and field.struct else []
            values[field.name] = inner if is_list else default_of(field)
    return classes(api + "Request")[struct.name](**values)


async def test_one_that_is_never_cut_says_how_much_it_takes(broker: Broker) -> None:
    client = await broker.client()
    request = wire.AlterPartitionReassignmentsRequest
    parts = [request.ReassignablePartition(number, [1]) for number in range(pieces.MOST_UNCUT)]
    answer = await client.ask(request(1_000, topics=[request.ReassignableTopic("t", parts)]), 0)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "the request has more than 10,000 elements",
    )


#: Topics, partitions of each.
_WIDE = [(12, 1_000), (1_200, 10)]


@pytest.mark.parametrize(("topics", "partitions"), _WIDE)
async def test_a_wide_producer_adds_all_its_partitions(broker: Broker, topics: int, partitions: int) -> None:
    """Its connection was closed each time, until the transaction timed out."""
    named = _names(topics)
    await _make(broker, named, partitions)
    client = await broker.client()
    producer = Producer(client)
    assert await producer.start() == 0
    request = wire.AddPartitionsToTxnRequest
    added = request(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[request.AddPartitionsToTxnTopic(name, list(range(partitions))) for name in named],
    )
    answer = await client.ask(added, 3)
    assert _codes(answer) == [0] * topics * partitions
    described = (await client.ask(wire.DescribeTransactionsRequest([producer.name]), 0)).transaction_states[0]
    found = {topic.topic: topic.partitions for topic in described.topics}
    assert found == {name: list(range(partitions)) for name in named}
    added.v3_and_below_topics[0].partitions = list(range(partitions + 1))
    refused = _codes(await client.ask(added, 3))
    assert refused.count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 1
    assert refused.count(ErrorCode.OPERATION_NOT_ATTEMPTED) == topics * partitions
    assert await producer.end(committed=False) == 0


async def test_a_transaction_whose_record_is_made_in_slices_is_refused_if_its_partition_moves_meanwhile(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", 600)
    client = await broker.client()
    producer = Producer(client)
    await producer.start()
    valuing, log = rules.valuing, broker.side.transactions.log
    request = wire.AddPartitionsToTxnRequest
    added = request(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[request.AddPartitionsToTxnTopic("t", list(range(600)))],
    )

    def moving(transaction: Any) -> Any:
        steps = valuing(transaction)
        next(steps)
        for state in list(log.states()):
            log.reload(state.index)
        yield
        return (yield from steps)

    monkeypatch.setattr(rules, "valuing", moving)
    assert set(_codes(await client.ask(added, 3))) == {ErrorCode.NOT_COORDINATOR}
    monkeypatch.setattr(rules, "valuing", valuing)
    await coordinator(client, producer.name, TRANSACTIONS)
    described = (await client.ask(wire.DescribeTransactionsRequest([producer.name]), 0)).transaction_states[0]
    assert (described.transaction_state, described.topics) == ("Empty", [])
    assert set(_codes(await client.ask(added, 3))) == {0}


async def test_many_topics_are_described_in_pages(broker: Broker) -> None:
    """An administrator's client names all topics in each request: with more than 10,000 its connection was closed."""
    await broker.create("t05000", 2)
    client = await broker.client()
    request = wire.DescribeTopicPartitionsRequest
    answer = await client.ask(request([request.TopicRequest(name) for name in _names(12_000)]), 0)
    assert [topic.name for topic in answer.topics] == _names(12_000)
    assert {topic.error_code for topic in answer.topics} == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(answer.topics[5_000].partitions) == 2
    dirs = wire.DescribeLogDirsRequest
    topics = [dirs.DescribableLogDirTopic(name, [0]) for name in _names(12_000)]
    assert (await client.ask(dirs(topics), 1)).results[0].error_code == 0


@pytest.mark.parametrize(("topics", "partitions"), _WIDE)
async def test_offsets_of_a_wide_group_are_deleted(broker: Broker, topics: int, partitions: int) -> None:
    named = _names(topics)
    await _make(broker, named, partitions)
    client = await broker.client()
    await coordinator(client, "g")
    commit = wire.OffsetCommitRequest
    parts = [commit.OffsetCommitRequestPartition(number, 1) for number in range(partitions)]
    committed = commit("g", topics=[commit.OffsetCommitRequestTopic(name, partitions=parts) for name in named])
    assert _codes(await client.ask(committed, 8)) == [0] * topics * partitions
    delete = wire.OffsetDeleteRequest
    gone = [delete.OffsetDeleteRequestPartition(number) for number in range(partitions + 1)]
    asked = delete("g", [delete.OffsetDeleteRequestTopic(name, gone) for name in named])
    codes = _codes(await client.ask(asked, 0))
    assert codes == [*[0] * partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * topics
    fetch_all = wire.OffsetFetchRequest
    left = (await client.ask(fetch_all(groups=[fetch_all.OffsetFetchRequestGroup("g", topics=None)]), 8)).groups[0]
    assert left.topics == []


@pytest.mark.parametrize(("topics", "partitions"), _WIDE)
async def test_offsets_of_a_wide_share_group_are_set_described_and_deleted(
    broker: Broker, topics: int, partitions: int
) -> None:
    named = _names(topics)
    await _make(broker, named, partitions)
    client = await broker.client()
    await coordinator(client, "s")
    alter = wire.AlterShareGroupOffsetsRequest
    parts = [alter.AlterShareGroupOffsetsRequestPartition(number, 7) for number in range(partitions)]
    altered = await client.ask(alter("s", [alter.AlterShareGroupOffsetsRequestTopic(name, parts) for name in named]), 0)
    assert _codes(altered) == [0] * topics * partitions
    describe = wire.DescribeShareGroupOffsetsRequest
    asked = [describe.DescribeShareGroupOffsetsRequestTopic(name, list(range(partitions))) for name in named]
    answer = await client.ask(describe([describe.DescribeShareGroupOffsetsRequestGroup("s", asked)]), 1)
    starts = [part.start_offset for topic in answer.groups[0].topics for part in topic.partitions]
    assert starts == [7] * topics * partitions
    delete = wire.DeleteShareGroupOffsetsRequest
    deleted = await client.ask(delete("s", [delete.DeleteShareGroupOffsetsRequestTopic(name) for name in named]), 0)
    assert [topic.error_code for topic in deleted.responses] == [0] * topics


async def _make(broker: Broker, names: list[str], partitions: int) -> None:
    """Topics whose metadata does not have to be looked up among all partitions each time."""
    services, client, create = broker.services, await broker.client(), wire.CreateTopicsRequest
    for some in (names[::2], names[1::2]):
        answer = await client.ask(create([create.CreatableTopic(name, partitions, 1) for name in some], 60_000), 7)
        assert {topic.error_code for topic in answer.topics} == {0}
    first = services.metadata(names[:1]).topics[0]
    known = {name: replace(first, topic=name, topic_id=services._ids[name]) for name in names}
    topic = services._topic

    def described(name: str) -> TopicMetadata:
        if name not in known:
            found = topic(name)
            if found.error:
                return found
            known[name] = found
        return known[name]

    services._topic = described  # type: ignore[method-assign]


def _codes(answer: Any) -> list[int]:
    """The error code of each partition of an answer."""
    topics = (
        getattr(answer, "results_by_topic_v3_and_below", None) or getattr(answer, "topics", None) or answer.responses
    )
    found = []
    for topic in topics:
        for part in getattr(topic, "results_by_partition", None) or topic.partitions:
            code = getattr(part, "partition_error_code", None)
            found.append(part.error_code if code is None else code)
    return found


async def test_a_member_may_hold_more_partitions_than_one_turn_bears(broker: Broker) -> None:
    """librdkafka lists all that it has in its first heartbeat after a rebalance, and commits all of it."""
    await broker.create("t")
    client = await broker.client()
    request = wire.ConsumerGroupHeartbeatRequest
    count = 3 * pieces.MOST_UNCUT
    ids = [number.to_bytes(16) for number in range(1, count // 100 + 1)]
    held = [request.TopicPartitions(topic_id, list(range(100))) for topic_id in ids]
    await _until_coordinated(client)
    client.send(request("other", "a member", 7, topic_partitions=held), 1)
    client.send(_commit(count, 1), 8)
    answers = [(await client.receive())[1] for _ in range(2)]
    assert answers[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(answers[1].topics[0].partitions) == count
    names = [f"t{number}" for number in range(pieces.MOST_UNCUT + 1)]
    refused = await client.ask(request("other", "a member", 0, rebalance_timeout_ms=1, subscribed_topic_names=names), 1)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "more than 10000 names of topics: use a pattern",
    )


async def test_one_that_cannot_be_cut_is_answered_in_its_turn(broker: Broker) -> None:
    await broker.create("t", 3)
    client = await broker.client()
    request = wire.OffsetCommitRequest
    parts = [request.OffsetCommitRequestPartition(number, 1) for number in range(MANY)]
    client.send(request("g", topics=[request.OffsetCommitRequestTopic("t", partitions=parts)]), 8)
    client.send(wire.ApiVersionsRequest("x", "1"), 3)
    _, answer = await client.receive()
    assert [part.partition_index for part in answer.topics[0].partitions] == list(range(MANY))
    assert (await client.receive())[1].error_code == 0


def _commit(count: int, offset: int) -> Any:
    request = wire.OffsetCommitRequest
    parts = [request.OffsetCommitRequestPartition(number, offset) for number in range(count)]
    return request("g", topics=[request.OffsetCommitRequestTopic("t", partitions=parts)])


def _produce(count: int, value: bytes) -> Any:
    return produce("t", *((number, batch(value)) for number in range(count)))


async def _until_coordinated(client: Any) -> None:
    await client.ask(wire.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 5)
    while (await client.ask(_commit(1, 1), 8)).topics[0].partitions[0].error_code:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("large", "version"), [(_commit(MANY, 7), 8), (_produce(MANY, b"x"), 9)])
async def test_one_that_cannot_be_cut_leaves_turns_to_others(broker: Broker, large: Any, version: int) -> None:
    await broker.create("t", MANY)
    client, other = await broker.client(), await broker.client()
    await _until_coordinated(client)
    ticks = itertools.count()
    broker.side.listener.turns.monotonic = lambda: float(next(ticks))  # each step is a slice
    client.send(large, version)
    answers = asyncio.create_task(client.receive())
    while not broker.side.listener.turns._waiting:  # it has begun
        await asyncio.sleep(0)
    await other.ask(wire.ApiVersionsRequest("x", "1"), 3)
    assert not answers.done()
    _, answer = await answers
    [topic] = answer.topics if version == 8 else answer.responses
    codes = [each.error_code for each in (topic.partitions if version == 8 else topic.partition_responses)]
    assert codes == [0] * MANY


async def test_new_partitions_of_many_topics_are_counted_in_steps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """190,000 names kept everybody else waiting for 0.3 s (bench.beside_kafka)."""
    loop, turn, asked, is_over = asyncio.get_running_loop(), itertools.count(), Counter[int](), False
    now = next(turn)
    known = TopicHandlers._partitions

    def next_turn() -> None:
        nonlocal now
        now = next(turn)
        if not is_over:
            loop.call_soon(next_turn)

    def counted(self: TopicHandlers, topic: str) -> int:
        asked[now] += 1
        return known(self, topic)

    monkeypatch.setattr(TopicHandlers, "_partitions", counted)
    client = await broker.client()
    next_turn()
    request = wire.CreatePartitionsRequest
    names = [f"t{number}" for number in range(1000)]
    answer = await client.ask(
        request([request.CreatePartitionsTopic(name, 2) for name in names], 1000, validate_only=True), 3
    )
    is_over = True
    assert {each.error_code for each in answer.results} == {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert (asked.total(), max(asked.values()) <= 100) == (len(names), True)


async def test_those_behind_one_that_cannot_be_cut_come_after_it(broker: Broker) -> None:
    await broker.create("t", MANY)
    client = await broker.client()
    await _until_coordinated(client)
    for message, version in (
        (_commit(MANY, 7), 8),
        (_commit(1, 8), 8),
        (_produce(MANY, b"first"), 9),
        (_produce(1, b"second"), 9),
    ):
        client.send(message, version)
    for _ in range(4):
        await client.receive()
    request = wire.OffsetFetchRequest
    fetched = await client.ask(request("g", [request.OffsetFetchRequestTopic("t", [0, 1])]), 7)
    assert [each.committed_offset for each in fetched.topics[0].partitions] == [8, 7]
    records = bytes((await client.ask(fetch("t"), 11)).responses[0].partitions[0].records)
    assert 0 < records.index(b"first") < records.index(b"second")


async def test_a_client_that_goes_away_leaves_nothing_behind(broker: Broker) -> None:
    client = await broker.client()
    topic = wire.MetadataRequest.MetadataRequestTopic
    client.send(wire.MetadataRequest([topic(name=name) for name in _names()], allow_auto_topic_creation=False), 12)
    await client.writer.drain()
    client.close()
    listener = broker.side.listener
    await until(lambda: not listener.connections)
    assert (listener.answers.bytes, listener.large.waiting) == (0, 0)


async def test_one_slice_runs_per_turn_of_the_loop_and_owners_take_turns() -> None:
    turns = Turns(time.monotonic)
    ran: list[str] = []

    async def compute(owner: str, name: str) -> None:
        await Slices(turns, (owner, 0)).next()
        ran.append(name)

    tasks = [asyncio.create_task(compute("greedy", f"g{number}")) for number in range(3)]
    tasks.append(asyncio.create_task(compute("modest", "m")))
    await asyncio.gather(*tasks)
    assert ran == ["g0", "m", "g1", "g2"]


async def test_a_computation_that_fails_does_not_keep_the_others_waiting() -> None:
    turns = Turns(time.monotonic)
    failed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(str(context["exception"])))

    def failing() -> Any:
        yield
        raise ValueError("malformed")

    turns.run(("one", 0), failing(), lambda _: None)
    async with asyncio.timeout(150):
        await turns.take(("another", 0))
    assert failed == ["malformed"]


async def test_a_generator_gives_way_when_its_slice_is_over() -> None:
    now = [0.0]
    slices = Slices(Turns(lambda: now[0]), ("owner", 0))
    others = 0

    def steps() -> Any:
        for _ in range(10):
            now[0] += SLICE_S / 2
            yield
        return "done"

    async def other() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    task = asyncio.create_task(other())
    assert await slices.run(steps()) == "done"
    slices.end()
    task.cancel()
    assert others >= 4
    assert slices.spent == pytest.approx(10 * SLICE_S / 2)


async def test_pipelined_requests_that_take_long_leave_turns_to_others(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    greedy, other = await broker.client(), await broker.client()
    served: list[str] = []
    known = broker.services.metadata

    def slow(topics: Any) -> Any:
        until = time.monotonic() + 2 * SLICE_S
        while time.monotonic() < until:
            pass
        served.append("slow")
        return known(topics)

    monkeypatch.setattr(broker.services, "metadata", slow)
    frames = b"".join(greedy.frame(wire.MetadataRequest(None, allow_auto_topic_creation=False), 12) for _ in range(30))
    greedy.writer.write(frames)
    while not served:
        await asyncio.sleep(0)
    monkeypatch.setattr(broker.services, "metadata", lambda topics: slow(topics))
    begun = len(served)
    await other.ask(wire.ListGroupsRequest(), 4)
    assert begun < len(served) < 30, "it had its turn before the others' were over"
    for _ in range(30):
        assert (await greedy.receive())[1].topics[0].name == "t"


@pytest.mark.parametrize("place", ["header", "body"])
async def test_floods_of_tagged_fields_are_refused(make_broker: Any, place: str) -> None:
    """A field that nobody knows has two bytes: 16 MB of them would hold the loop for seconds."""
    client = await (await make_broker()).client()
    plain = client.frame(wire.ApiVersionsRequest("a", "1"), 3)[4:]
    tags = b"\x80\x89\x7a" + b"\x05\x00" * 2_000_000  # as many as the varint says
    at = 10 + len("test") if place == "header" else len(plain) - 1
    assert plain[at] == 0
    whole = plain[:at] + tags + plain[at + 1 :]
    client.writer.write(len(whole).to_bytes(4) + whole)
    assert await client.is_closed()


def test_names_that_were_compared_are_freed_in_steps() -> None:
    """All at once took tens of milliseconds for 190,000 of them."""
    topic = wire.MetadataRequest.MetadataRequestTopic
    names = _names(10_000)
    message = wire.MetadataRequest([topic(name=name) for name in names])
    steps = sum(1 for _ in pieces.repeated("Metadata", message))
    assert [each.name for each in message.topics or ()] == names
    assert steps >= 2 * len(names) // pieces.PIECE_ELEMENTS


async def test_a_resource_with_very_many_configurations_is_refused_and_not_compared_by_its_text(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """190,000 of them held the loop for 0.3 s: to find out whether the resource is named twice, and then all of them were set."""
    await broker.create("u")
    request = wire.IncrementalAlterConfigsRequest

    def text(config: Any) -> str:
        raise AssertionError("the text of each is made")

    monkeypatch.setattr(request.AlterableConfig, "__repr__", text)
    configs = [request.AlterableConfig(f"k{number}", 1, None) for number in range(MANY)]
    resources = [request.AlterConfigsResource(2, "t", configs), request.AlterConfigsResource(2, "u", [])]
    answer = await (await broker.client()).ask(request(resources, validate_only=True), 1)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST, 0]


async def test_all_pieces_share_the_requests_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece's own would be many times as long as the client waits."""
    create, left_ms = broker.services.create_topics, []

    async def slow(request: CreateTopicsRequest) -> CreateTopicsResponse:
        left_ms.append(request.timeout_ms)
        await asyncio.sleep(0.01)
        return await create(request)

    monkeypatch.setattr(broker.services, "create_topics", slow)
    client = await broker.client()
    request = wire.CreateTopicsRequest
    answer = await client.ask(request([request.CreatableTopic(name, 1, 1) for name in _names(600)], 60_000), 7)
    assert not any(each.error_code for each in answer.topics)
    assert len(left_ms) == 6
    assert all(later < earlier for earlier, later in itertools.pairwise(left_ms))
