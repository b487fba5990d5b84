"""Fetch sessions of clients (KIP-227): what is listed once stays listed, and answers contain only what is new."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.kafka.current_leaders import CurrentLeaders
from kafkalite.kafka.fetch_answer import begin_fetched, encoding_fetched
from kafkalite.kafka.fetch_sessions import EVICTION_MS, FetchSessions
from kafkalite.model import BrokerId, LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition
from kafkalite.partition_values import AbortedTransaction, CurrentLeader
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import encode
from kafkalite.replica.client_fetch import READ_COMMITTED, ClientFetch
from kafkalite.replica.decisions.follower import Divergence
from kafkalite.security.principal import ANONYMOUS, Principal
from tests.support.fetching import run_to_end

from .conftest import Broker, batch, produce


class Consumer:
    """Speaks Fetch in one session."""

    def __init__(self, client: Any, version: int = 12) -> None:
        self.client = client
        self.version = version
        self.session_id = 0
        self.epoch = 0

    def request(self, offsets: dict[tuple[Any, int], int], **fields: Any) -> Any:
        request = wire.FetchRequest
        topics: dict[Any, list[Any]] = {}
        for (topic, number), offset in offsets.items():
            part = request.FetchPartition(number, fetch_offset=offset, partition_max_bytes=2**20)
            topics.setdefault(topic, []).append(part)
        by_id = self.version >= 13
        listed = [
            request.FetchTopic("" if by_id else t, t if by_id else bytes(16), parts) for t, parts in topics.items()
        ]
        fields = {"session_id": self.session_id, "session_epoch": self.epoch, "max_wait_ms": 0, "min_bytes": 1} | fields
        return request(topics=listed, **fields)

    async def fetch(self, offsets: dict[tuple[Any, int], int], **fields: Any) -> Any:
        answer = await self.client.ask(self.request(offsets, **fields), self.version)
        if answer.error_code == 0:
            self.session_id = answer.session_id
            self.epoch = self.epoch + 1 if answer.session_id else 0
        return answer


def told(answer: Any) -> dict[int, tuple[int, int, bool]]:
    """Partition -> (error, high watermark, whether records came)."""
    return {
        part.partition_index: (part.error_code, part.high_watermark, bool(part.records))
        for topic in answer.responses
        for part in topic.partitions
    }


@pytest.mark.checklist("F29")
@pytest.mark.parametrize("version", [7, 11, 12, 18])
async def test_only_what_is_new_is_told(broker: Broker, version: int) -> None:
    await broker.create("t", 3)
    client = await broker.client()
    topic: Any = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id) if version >= 13 else "t"
    consumer = Consumer(client, version)
    first = await consumer.fetch({(topic, n): 0 for n in range(3)})
    assert consumer.session_id > 0
    assert told(first) == dict.fromkeys(range(3), (0, 0, False))
    nothing = await consumer.fetch({})
    assert (nothing.session_id, nothing.responses) == (consumer.session_id, [])
    await client.ask(produce("t", (1, batch(b"a"))), 9)
    assert told(await consumer.fetch({})) == {1: (0, 1, True)}
    # As long as the consumer does not say that it has them, it gets the records again.
    assert told(await consumer.fetch({})) == {1: (0, 1, True)}
    assert told(await consumer.fetch({(topic, 1): 1})) == {}
    assert told(await consumer.fetch({(topic, 2): 5})) == {2: (ErrorCode.OFFSET_OUT_OF_RANGE, 0, False)}
    # An error is sent again and again, until it is over; then the partition once more.
    assert told(await consumer.fetch({}))[2][0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert told(await consumer.fetch({(topic, 2): 0})) == {2: (0, 0, False)}
    forgotten = wire.FetchRequest.ForgottenTopic(
        "" if version >= 13 else "t", topic if version >= 13 else bytes(16), [0, 1]
    )
    assert told(await consumer.fetch({}, forgotten_topics_data=[forgotten])) == {}
    await client.ask(produce("t", (1, batch(b"b"))), 9)
    assert told(await consumer.fetch({})) == {}
    forgotten.partitions = [2]
    last = await consumer.fetch({}, forgotten_topics_data=[forgotten])
    assert (last.session_id, len(broker.side.fetching.sessions)) == (0, 0)


async def test_a_long_poll_in_a_session_ends_with_the_first_record(broker: Broker) -> None:
    await broker.create("t", 2)
    consumer = Consumer(await broker.client())
    await consumer.fetch({("t", 0): 0, ("t", 1): 0})
    waiting = asyncio.ensure_future(consumer.fetch({}, max_wait_ms=30_000))
    await asyncio.sleep(0)
    await (await broker.client()).ask(produce("t", (1, batch(b"a"))), 9)
    assert told(await waiting) == {1: (0, 1, True)}


async def test_sessions_that_are_not_there(broker: Broker) -> None:
    await broker.create("t")
    consumer = Consumer(await broker.client())
    await consumer.fetch({("t", 0): 0})
    unknown = await consumer.fetch({}, session_id=consumer.session_id + 1)
    assert (unknown.error_code, unknown.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    early = await consumer.fetch({}, session_epoch=7)
    assert early.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    other = await consumer.client.ask(consumer.request({}), 13)
    assert other.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    # A request that lists everything ends the session that it names.
    before = consumer.session_id
    again = await consumer.fetch({("t", 0): 0}, session_epoch=0)
    assert again.session_id not in (0, before)
    assert len(broker.side.fetching.sessions) == 1
    final = await consumer.fetch({("t", 0): 0}, session_id=again.session_id, session_epoch=-1)
    assert (final.session_id, len(broker.side.fetching.sessions)) == (0, 0)


async def test_unknown_ids_become_known(broker: Broker) -> None:
    await broker.create("t")
    consumer = Consumer(await broker.client(), 16)
    topic_id = broker.services.metadata(["t"]).topics[0].topic_id
    raw = topic_ids.to_wire(topic_id)
    known, broker.services.topic_name = broker.services.topic_name, lambda topic_id: None  # type: ignore[method-assign]
    assert told(await consumer.fetch({(raw, 0): 0}))[0][0] == ErrorCode.UNKNOWN_TOPIC_ID
    assert told(await consumer.fetch({}))[0][0] == ErrorCode.UNKNOWN_TOPIC_ID
    broker.services.topic_name = known  # type: ignore[method-assign]
    assert told(await consumer.fetch({})) == {0: (0, 0, False)}
    assert told(await consumer.fetch({})) == {}


async def test_a_node_without_room_serves_without_sessions(make_broker: Any) -> None:
    broker = await make_broker(max_incremental_fetch_session_cache_slots=1)
    await broker.create("t")
    one, two = Consumer(await broker.client()), Consumer(await broker.client())
    assert (await one.fetch({("t", 0): 0})).session_id > 0
    for _ in range(2):
        answer = await two.fetch({("t", 0): 0})
        assert (answer.session_id, told(answer)) == (0, {0: (0, 0, False)})


@pytest.mark.parametrize("version", [4, 12, 13])
async def test_a_fetch_of_any_number_of_partitions_is_served(broker: Broker, version: int) -> None:
    count = 12_000
    await broker.create("t", 3)
    await (await broker.client()).ask(produce("t", (1, batch(b"a"))), 9)
    topic: Any = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id) if version >= 13 else "t"
    consumer, other = Consumer(await broker.client(), version), await broker.client()
    everything = {(topic, number): 0 for number in range(count)}
    answer = await consumer.fetch(everything)
    expected = {number: (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), -1, False) for number in range(3, count)}
    assert told(answer) == {0: (0, 0, False), 1: (0, 1, True), 2: (0, 0, False)} | expected
    assert (await other.ask(wire.ApiVersionsRequest("x", "1"), 3)).error_code == 0
    if version < 7:
        return
    # The session has them all; what it removes, and more than one turn of the loop bears of that, too.
    assert len(broker.side.fetching.sessions) == 1
    forgotten = wire.FetchRequest.ForgottenTopic(
        "" if version >= 13 else "t", topic if version >= 13 else bytes(16), list(range(3, count))
    )
    assert told(await consumer.fetch({(topic, 1): 1}, forgotten_topics_data=[forgotten])) == {}
    assert broker.side.fetching.sessions.partitions == 3
    await consumer.fetch({(topic, 0): 0}, session_epoch=-1)
    assert broker.side.fetching.sessions.partitions == 0


async def test_a_large_request_of_a_session_that_goes_on_elsewhere_is_outdated(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t", 2)
    consumer = Consumer(await broker.client())
    await consumer.fetch({("t", 0): 0})
    listener = broker.side.listener
    [slow] = listener.connections
    parked: list[tuple[Any, Any]] = []
    call = listener.turns.call
    session = next(iter(broker.side.fetching.sessions._sessions.values()))

    def call_or_park(owner: Any, begin: Any) -> None:
        if owner == slow.owner and session.requests:
            parked.append((owner, begin))
        else:
            call(owner, begin)

    monkeypatch.setattr(listener.turns, "call", call_or_park)
    monkeypatch.setattr("kafkalite.env.turns.SLICE_S", 0.0)  # one step per turn
    asked = asyncio.ensure_future(consumer.client.ask(consumer.request({("t", n): 0 for n in range(5_000)}), 12))
    while not parked:
        await asyncio.sleep(0.001)
    again = Consumer(await broker.client())
    again.session_id, again.epoch = consumer.session_id, consumer.epoch + 1
    assert (await again.fetch({})).error_code == 0
    monkeypatch.undo()
    for each in parked:
        call(*each)
    assert (await asked).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


# --- the cache ---


def fetch_of(partitions: int) -> ClientFetch:
    fetch = ClientFetch()
    for number in range(partitions):
        fetch.list(TopicPartition("t", number), Offset(0), 1)
    return fetch


OWNER = (ANONYMOUS, "here")


def test_who_makes_room_for_whom() -> None:
    now = [0]
    draw = random.Random(1).randint
    sessions = FetchSessions(2, lambda: now[0], draw)

    def open_(size: int) -> Any:
        return sessions.open(fetch_of(size), OWNER, uses_ids=False, rights_version=0)

    small, large = open_(1), open_(10)
    assert open_(100) is None  # both are new
    now[0] = EVICTION_MS + 1
    assert sessions.used(small) and sessions.used(large)
    assert sessions.get(small.session_id, (Principal("User", "other"), "here")) is None
    between = open_(5)  # larger than the smallest that is not new any more
    assert between is not None
    assert sessions.get(small.session_id, OWNER) is None
    assert open_(9) is None
    assert sessions.partitions == 15
    now[0] += EVICTION_MS + 1  # nobody uses them
    assert open_(1) is not None
    assert (len(sessions), sessions.evictions) == (2, 2)
    sessions.close(between)
    assert sessions.get(between.session_id, OWNER) is None


# --- the codec ---


@pytest.mark.parametrize("isolation", [0, READ_COMMITTED])
@pytest.mark.parametrize("version", range(4, 19))
def test_answers_are_encoded_as_by_the_generic_codec(version: int, isolation: int) -> None:
    fetch = ClientFetch(isolation)
    ids = {name: topic_ids.from_wire(bytes([number]) * 16) for number, name in enumerate(("a", "b" * 200), 1)}
    response = wire.FetchResponse
    topics = []
    known = {
        TopicPartition("a", 4): CurrentLeader(BrokerId(7), LeaderEpoch(300), "h" * 130, 9092, "a rack"),
        TopicPartition("b" * 200, 4): CurrentLeader(BrokerId(8), LeaderEpoch(2), "::1", 9093, None),
    }
    services: Any = SimpleNamespace(current_leader=lambda partition, listener: known.get(partition))
    leaders = CurrentLeaders(services, cast(Any, SimpleNamespace(listener_name="PLAINTEXT")))
    for name, topic_id in ids.items():
        partitions = []
        for number, size in enumerate((0, 10, 5000, 0, 0, 0, 0)):
            entry = fetch.list(
                TopicPartition(name, number), Offset(3), 1, topic_id=topic_id if version >= 13 else TopicId("")
            )
            entry.high_watermark, entry.last_stable_offset, entry.log_start_offset = Offset(9), Offset(8), Offset(1)
            entry.records, entry.records_size = [b"r" * size][: bool(size)], size
            if number in (3, 4, 5):
                entry.refuse(3 if number == 3 else int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            if number == 6 and version >= 12:
                entry.divergence = Divergence(LeaderEpoch(300), Offset(2**40))
            leader = known.get(entry.key) if version >= 16 else None
            is_diverging = entry.divergence is not None
            if size and isolation:
                entry.aborted = (AbortedTransaction(ProducerId(5), Offset(6)),)
            aborted = [response.AbortedTransaction(one.producer_id, one.first_offset) for one in entry.aborted]
            partitions.append(
                response.PartitionData(
                    number,
                    entry.error,
                    entry.high_watermark,
                    entry.last_stable_offset,
                    entry.log_start_offset,
                    aborted_transactions=aborted if isolation and not entry.error and not is_diverging else None,
                    records=b"r" * size,
                    diverging_epoch=response.EpochEndOffset(300, 2**40) if is_diverging else None,
                    current_leader=response.LeaderIdAndEpoch(*leader[:2]) if leader is not None else None,
                )
            )
        topics.append(response.FetchableTopicResponse(name, topic_ids.to_wire(topic_id), partitions))
    endpoints = [response.NodeEndpoint(each[0], *each[2:]) for each in known.values()] if version >= 16 else []
    expected = encode(response(7, 0, 99, topics, endpoints), version)
    pieces = run_to_end(encoding_fetched(version, fetch.due(), isolation, leaders))
    begin_fetched(pieces, version, 7, 99)
    assert b"".join(map(bytes, pieces)) == expected
