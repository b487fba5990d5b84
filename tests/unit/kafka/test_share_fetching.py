"""ShareFetch and ShareAcknowledge through the wire: who gets which record, and what a member hears of it."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalite.coordination.topic_configs import GROUPS
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.errors import ErrorCode, api_error
from kafkalite.features import SHARE_FEATURE
from kafkalite.kafka.shares import sessions
from kafkalite.model import LeaderEpoch, Offset, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.record.builder import end_transaction_marker
from kafkalite.record.reader import read_records
from tests.support.waiting import until

from .conftest import Broker, FrameClient, batch, produce

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Member:
    """A member of a share group, in one session."""

    def __init__(self, broker: Broker, client: FrameClient, name: str, topic: str = "t", group: str = "g") -> None:
        self.broker, self.client, self.name, self.group = broker, client, name, group
        self.topic_id = broker.services.metadata([topic]).topics[0].topic_id
        self.epoch = 0

    def _topics(self, owner: Any, partition: Any, said: dict[int, list[tuple[int, int, list[int]]]]) -> list[Any]:
        made = [
            partition(number, [owner.AcknowledgementBatch(*each) for each in batches])
            for number, batches in said.items()
        ]
        topic = getattr(owner, "FetchTopic", None) or owner.AcknowledgeTopic
        return [topic(topic_ids.to_wire(self.topic_id), made)] if made else []

    async def fetch(
        self, *partitions: int, said: dict[int, list[tuple[int, int, list[int]]]] | None = None, **fields: Any
    ) -> Any:
        request = wire.ShareFetchRequest
        listed: dict[int, list[tuple[int, int, list[int]]]] = {number: [] for number in partitions}
        listed |= said or {}
        wanted = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500} | fields
        epoch = wanted.pop("epoch", self.epoch)
        answer = await self.client.ask(
            request(
                self.group,
                self.name,
                epoch,
                topics=self._topics(request, request.FetchPartition, listed),
                **wanted,
            ),
            2,
        )
        if not answer.error_code:
            self.epoch = epoch + 1
        return answer

    async def acknowledge(self, *said: tuple[int, int, list[int]], partition: int = 0, **fields: Any) -> Any:
        request = wire.ShareAcknowledgeRequest
        epoch = fields.pop("epoch", self.epoch)
        topics = self._topics(request, request.AcknowledgePartition, {partition: list(said)})
        answer = await self.client.ask(request(self.group, self.name, epoch, topics=topics, **fields), 2)
        if not answer.error_code:
            self.epoch = epoch + 1
        return answer

    async def code(self, *said: tuple[int, int, list[int]], **fields: Any) -> int:
        """The error of the one partition of an acknowledgement."""
        answer = await self.acknowledge(*said, **fields)
        assert answer.error_code == 0
        return int(answer.responses[0].partitions[0].error_code)


def got(answer: Any) -> list[tuple[int, int, int]]:
    """What was acquired of all partitions."""
    assert answer.error_code == 0
    parts = [part for topic in answer.responses for part in topic.partitions]
    assert not any(part.error_code for part in parts), parts
    return [(a.first_offset, a.last_offset, a.delivery_count) for part in parts for a in part.acquired_records]


def values(answer: Any) -> list[bytes | None]:
    parts = [part for topic in answer.responses for part in topic.partitions]
    return [record.value for part in parts for record in read_records(part.records)]


async def test_a_fetch_that_waits_does_not_keep_its_message(broker: Broker) -> None:
    """Each member may have one: 2,000 sessions with 10,000 elements each took gigabytes."""
    group = await start(broker)
    member = await group.begin()
    request, client = wire.ShareFetchRequest, member.client

    def parts() -> int:
        gc.collect()
        return sum(type(each) is request.FetchPartition for each in gc.get_objects())

    listed = [
        request.FetchTopic(topic_ids.to_wire(member.topic_id), [request.FetchPartition(0, []) for _ in range(300)])
    ]
    client.send(request("g", "m", member.epoch, 60_000, 1, 1 << 20, 500, 500, topics=listed), 2)
    session = broker.side.share_fetching.sessions.get("g", "m")
    assert session is not None
    while session.waiting is None:
        await asyncio.sleep(0)
    del listed
    assert parts() == 0
    await group.produce([b"a"])
    _, answer = await client.receive()
    assert got(answer) == [(0, 0, 1)]


async def test_a_session_lists_a_limited_number_of_partitions(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with 500,000 partitions of no topic held the loop for seconds with each of its fetches, and at its end."""
    monkeypatch.setattr(sessions, "MAX_OF_ONE", 3)
    group = await start(broker)
    member = await group.begin()
    answer = await member.fetch(0, 1, 2, max_bytes=0)
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == []
    assert (await member.fetch(3, epoch=2)).error_code == ErrorCode.INVALID_REQUEST
    assert got(await member.fetch(0, epoch=0, max_bytes=0)) == [], "a new session begins without them"


class Group:
    """A topic t with a share group g that begins at its start."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def member(self, name: str = "m") -> Member:
        return Member(self.broker, await self.broker.client(), name)

    async def begin(self, name: str = "m", *partitions: int) -> Member:
        """A member with a session, which has got nothing yet."""
        member = await self.member(name)
        assert got(await member.fetch(*(partitions or (0,)), max_bytes=0)) == []
        return member

    async def produce(self, *batches: list[bytes], partition: int = 0) -> None:
        client = await self.broker.client()
        for each in batches:
            answer = await client.ask(produce("t", (partition, batch(*each))), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def key(self, partition: int = 0) -> ShareKey:
        topic_id = self.broker.services.metadata(["t"]).topics[0].topic_id
        return ShareKey("g", UUID(bytes=topic_ids.to_wire(topic_id)), partition)

    async def stored(self) -> tuple[int, list[tuple[int, int, int, int]]]:
        state = await self.broker.side.share_persister.read(self.key(), 0)
        return state.start_offset, [(*each[:2], int(each[2]), each[3]) for each in state.batches]


async def start(broker: Broker, partitions: int = 1, /, **settings: str) -> Group:
    broker.services.settings[GROUPS]["g"] = {"share.auto.offset.reset": "earliest"} | settings
    broker.services.feature_level = lambda name: 1 if name == SHARE_FEATURE else 0  # type: ignore[method-assign]
    await broker.create("t", partitions)
    group = Group(broker)
    for number in range(partitions):
        await broker.side.share_persister.initialize(group.key(number), 0, Offset(-1))
    return group


async def fetched(member: Member, *partitions: int, **fields: Any) -> Any:
    """The first answer with records."""
    async with asyncio.timeout(150):
        while True:
            answer = await member.fetch(*partitions, **({"max_wait_ms": 200} | fields))
            assert answer.error_code == 0, answer
            if got(answer):
                return answer
            partitions = ()


@pytest.mark.parametrize("start_offset", [0, 3])
async def test_what_was_done_of_records_that_are_lost_does_not_count_for_the_next_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, start_offset: int
) -> None:
    """A leader without all committed records was elected: its log gets other records at offsets that were acknowledged."""
    group = await start(broker)
    epoch_of = broker.services.partitions.leader_epoch
    monkeypatch.setattr(
        broker.services.partitions, "leader_epoch", lambda key: LeaderEpoch(1) if key.topic == "t" else epoch_of(key)
    )
    await group.produce([b"a", b"b"])
    done = [StateBatch(Offset(offset), Offset(offset + 1), DeliveryState.ACKNOWLEDGED, 1) for offset in (1, 4)]
    await broker.side.share_persister.write(group.key(), 0, 0, Offset(start_offset), done)
    member = await group.member()
    assert got(await member.fetch(0, max_wait_ms=100)) == ([] if start_offset else [(0, 0, 1)])
    member.client.close()
    await until(lambda: not len(broker.side.shared_partitions))
    await group.produce([b"c", b"d", b"e", b"f"])
    expected = [(2, 5, 1)] if start_offset else [(0, 0, 2), (2, 5, 1)]
    assert got(await fetched(await group.member("n"), 0)) == expected


async def test_records_are_given_once_and_acknowledged(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a", b"b"], [b"c"])
    first, second = await group.member("m1"), await group.member("m2")
    answer = await fetched(first, 0)
    assert (got(answer), values(answer), answer.acquisition_lock_timeout_ms) == (
        [(0, 2, 1)],
        [b"a", b"b", b"c"],
        30_000,
    )
    assert got(await second.fetch(0)) == []
    assert await second.code((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await first.code((0, 1, [ACCEPT])) == 0
    assert await first.code((0, 0, [ACCEPT])) == 0  # below the start offset: it is done
    assert await first.code((2, 2, [RELEASE])) == 0
    assert await group.stored() == (2, [(2, 2, 0, 1)])
    again = await fetched(second)
    assert (got(again), values(again)) == ([(2, 2, 2)], [b"c"])
    piggybacked = await second.fetch(said={0: [(2, 2, [REJECT])]})
    assert [(p.error_code, p.acknowledge_error_code) for p in piggybacked.responses[0].partitions] == [(0, 0)]
    assert (await group.stored())[0] == 3


async def test_a_member_that_begins_its_session_again_keeps_its_records(broker: Broker) -> None:
    """Clients do so after an error. Their acknowledgements were refused, and the records delivered a second time."""
    group = await start(broker)
    await group.produce([b"a", b"b"])
    member = await group.member()
    assert got(await fetched(member, 0)) == [(0, 1, 1)]
    assert got(await member.fetch(0, epoch=0)) == []
    assert await member.code((0, 0, [ACCEPT])) == 0
    other = await group.member()
    assert got(await fetched(other, 0, epoch=0)) == [(1, 1, 2)], "over another connection nobody knows what it has got"


async def test_a_batch_is_given_in_parts_if_the_number_is_exact(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a", b"b", b"c", b"d"])
    member = await group.member()
    assert got(await fetched(member, 0, max_records=1, share_acquire_mode=1)) == [(0, 0, 1)]
    assert got(await fetched(member, max_records=2, share_acquire_mode=1)) == [(1, 2, 1)]
    assert await member.code((0, 2, [ACCEPT, RELEASE, ACCEPT])) == 0
    assert got(await fetched(member, max_records=5)) == [(1, 1, 2), (3, 3, 1)]
    other = await group.member("whole")
    await group.produce([b"e", b"f", b"g"], [b"h"])
    assert got(await fetched(other, 0, max_records=1)) == [(4, 6, 1)]
    assert got(await fetched(other, max_records=1)) == [(7, 7, 1)]


async def test_a_lock_that_ends_gives_the_record_to_another_member(make_broker: Any) -> None:
    broker = await make_broker(group_share_min_record_lock_duration_ms=1_000)
    group = await start(broker, **{"share.record.lock.duration.ms": "1000", "share.delivery.count.limit": "2"})
    await group.produce([b"a"])
    first, second = await group.member("m1"), await group.member("m2")
    assert got(await fetched(first, 0)) == [(0, 0, 1)]
    assert got(await fetched(second, 0, max_wait_ms=20_000)) == [(0, 0, 2)]
    assert await first.code((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    # Nobody says anything: it was delivered too often.
    async with asyncio.timeout(150):
        while (await group.stored())[0] != 1:
            await asyncio.sleep(0.02)


async def test_renewing_keeps_the_record(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    led = broker.side.shared_partitions.known("g", member.topic_id, 0)
    assert led is not None
    assert led.state is not None
    before, began = led.state.next_deadline(), broker.side.shared_partitions.now_ms()
    while broker.side.shared_partitions.now_ms() == began:
        await asyncio.sleep(0)
    assert await member.code((0, 0, [RENEW]), is_renew_ack=True) == 0
    after = led.state.next_deadline()
    assert before is not None
    assert after is not None
    assert after > before
    assert await member.code((0, 0, [RENEW])) == ErrorCode.INVALID_REQUEST
    asked = await member.fetch(said={0: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert asked.error_code == ErrorCode.INVALID_REQUEST
    nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    asked = await member.fetch(said={0: [(0, 0, [RENEW])]}, is_renew_ack=True, **nothing)
    assert asked.responses[0].partitions[0].acknowledge_error_code == 0
    broker.services.settings[GROUPS]["g"]["share.renew.acknowledge.enable"] = "false"
    assert await member.code((0, 0, [RENEW]), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE  # as Kafka


async def test_a_record_that_ends_its_consumers_comes_no_more_often_than_the_limit(broker: Broker) -> None:
    """A member that crashes over a record loses its connection: that is a delivery like any other (Kafka, KIP-932)."""
    group = await start(broker, **{"share.delivery.count.limit": "2"})
    await group.produce([b"bad"])
    for delivery in (1, 2):
        member = await group.member(f"m{delivery}")
        assert got(await fetched(member, 0, max_wait_ms=20_000)) == [(0, 0, delivery)]
        member.client.close()
    await group.produce([b"good"])
    last = await group.member("m3")
    assert got(await fetched(last, 0, max_wait_ms=20_000)) == [(1, 1, 1)]


async def test_the_end_of_a_session_gives_back_what_it_held(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a"], [b"b"])
    first, second = await group.member("m1"), await group.member("m2")
    assert got(await fetched(first, 0)) == [(0, 1, 1)]
    ended = await first.acknowledge((0, 0, [ACCEPT]), epoch=-1)
    assert (ended.error_code, ended.responses[0].partitions[0].error_code) == (0, 0)
    assert got(await fetched(second, 0)) == [(1, 1, 2)]
    second.client.close()
    third = await group.member("m3")
    assert got(await fetched(third, 0, max_wait_ms=20_000)) == [(1, 1, 3)]
    assert await third.code((1, 1, [ACCEPT])) == 0
    assert (await third.fetch(epoch=-1)).error_code == 0
    await until(lambda: not len(broker.side.shared_partitions) and not len(broker.side.share_fetching.sessions))
    assert (await third.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_sessions(make_broker: Any) -> None:
    broker = await make_broker(group_share_max_share_sessions=1)
    group = await start(broker)
    member = await group.begin("m1")
    assert (await member.fetch(epoch=5)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await member.acknowledge((0, 0, [ACCEPT]), epoch=0)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (await member.fetch(said={0: [(0, 0, [ACCEPT])]}, epoch=0)).error_code == ErrorCode.INVALID_REQUEST
    other = await group.member("m2")
    assert (await other.fetch(0)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    refused = await other.fetch(0, epoch=1)
    assert (refused.error_code, refused.acquisition_lock_timeout_ms) == (ErrorCode.SHARE_SESSION_NOT_FOUND, 0)
    refused = await other.acknowledge((0, 0, [ACCEPT]), epoch=1)
    assert (refused.error_code, refused.acquisition_lock_timeout_ms) == (ErrorCode.SHARE_SESSION_NOT_FOUND, 0)
    other.name = ""
    assert (await other.fetch(0)).error_code == ErrorCode.INVALID_REQUEST
    member.epoch = 0
    assert got(await member.fetch(0)) == []  # a new session in place of the old one
    wrong: list[list[tuple[int, int, list[int]]]] = [
        [(1, 0, [1])],
        [(0, 1, [1, 1, 1])],
        [(0, 0, [9])],
        [(0, 0, [])],
        [(1, 1, [1]), (0, 0, [1])],
    ]
    for said in wrong:
        assert await member.code(*said) == ErrorCode.INVALID_REQUEST
    broker.services.feature_level = lambda name: 0
    assert (await member.fetch()).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await member.acknowledge()).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_long_poll_ends_when_records_come(broker: Broker) -> None:
    group = await start(broker)
    member = await group.begin()
    poll = asyncio.ensure_future(member.fetch(max_wait_ms=30_000))
    await until(lambda: any(session.waiting for session in broker.side.share_fetching.sessions._sessions.values()))
    await group.produce([b"a"])
    assert got(await poll) == [(0, 0, 1)]
    # A newer request of the session ends it, too.
    poll = asyncio.ensure_future(member.fetch(max_wait_ms=30_000))
    await until(lambda: any(session.waiting for session in broker.side.share_fetching.sessions._sessions.values()))
    member.epoch += 1
    member.client = await broker.client()
    assert await member.code((0, 0, [ACCEPT])) == 0
    assert got(await poll) == []


async def test_the_first_answer_of_a_session_lists_all_its_partitions(broker: Broker) -> None:
    def listed(answer: Any) -> list[int]:
        return [part.partition_index for topic in answer.responses for part in topic.partitions]

    group = await start(broker, 2)
    member = await group.member()
    assert listed(await member.fetch(0, 1)) == [0, 1]
    assert listed(await member.fetch()) == []
    await group.produce([b"a"], partition=1)
    assert listed(await fetched(member)) == [1]


async def test_a_fetch_that_needs_no_bytes_does_not_wait(broker: Broker) -> None:
    group = await start(broker)
    member = await group.member()
    assert got(await member.fetch(0, min_bytes=0, max_wait_ms=2**31 - 1)) == []
    await group.produce([b"a"])
    assert got(await member.fetch(min_bytes=0, max_wait_ms=2**31 - 1)) == [(0, 0, 1)]
    assert got(await member.fetch(min_bytes=0, max_wait_ms=2**31 - 1)) == []


async def test_an_acknowledgement_that_is_not_stored_is_refused_and_can_be_said_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await start(broker)
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    persister = broker.side.share_persister
    write = persister.write

    async def fail(*arguments: Any) -> None:
        raise api_error(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(persister, "write", fail)
    assert await member.code((0, 0, [ACCEPT])) == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.setattr(persister, "write", write)
    assert await member.code((0, 0, [ACCEPT])) == 0
    assert (await group.stored())[0] == 1


async def test_a_leader_that_is_fenced_gives_up(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    await broker.side.share_persister.read(group.key(), 7)  # a newer leader has read it
    answer = await member.acknowledge((0, 0, [ACCEPT]))
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    assert [node.node_id for node in answer.node_endpoints] == [1]


async def test_who_leads_no_more_forgets_and_says_so(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a"])
    member = await group.member()
    await fetched(member, 0)
    broker.services.partitions.led = lambda partition: partition.topic != "t"
    broker.services.partitions.tell_change()
    await until(lambda: not len(broker.side.shared_partitions))
    assert await member.code((0, 0, [ACCEPT])) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = await member.fetch(max_wait_ms=30_000)
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    broker.services.partitions.led = lambda partition: True
    assert got(await fetched(member)) == [(0, 0, 1)]


async def test_topics_and_partitions_that_are_not_there(broker: Broker) -> None:
    group = await start(broker)
    member = await group.member()
    answer = await member.fetch(3, max_wait_ms=30_000)
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stranger = await group.member("m2")
    stranger.topic_id = topic_ids.from_wire(bytes(15) + b"\7")
    answer = await stranger.fetch(0, max_wait_ms=30_000)
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    unknown = await group.member("m3")
    unknown.group = "nobody"  # its state was never initialised
    answer = await unknown.fetch(0, max_wait_ms=30_000)
    # Java's consumer fails for good with an error of the coordinator, GROUP_ID_NOT_FOUND; this one it repeats.
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_coordinator_that_is_away_for_long_is_an_error_that_clients_repeat(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = await start(broker)
    monkeypatch.setattr("kafkalite.coordinators.shares.leading.PATIENCE_S", 0)

    async def away(*_: Any) -> None:
        raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    monkeypatch.setattr(broker.side.shared_partitions.persister, "write", away)
    member = await group.member()
    answer = await member.fetch(0, max_wait_ms=30_000)
    assert [p.error_code for p in answer.responses[0].partitions] == [ErrorCode.OFFSET_NOT_AVAILABLE]


async def test_a_group_may_begin_before_1970(broker: Broker) -> None:
    group = await start(broker, **{"share.auto.offset.reset": "by_duration:P30000D"})
    await group.produce([b"a"])
    assert got(await fetched(await group.member(), 0)) == [(0, 0, 1)]


async def test_a_new_group_begins_at_the_end_and_that_is_kept(broker: Broker) -> None:
    group = await start(broker, **{"share.auto.offset.reset": "latest"})
    await group.produce([b"a"])
    member = await group.begin()
    await member.fetch(max_wait_ms=0)
    async with asyncio.timeout(150):
        while (await group.stored())[0] != 1:
            await asyncio.sleep(0.01)
    await group.produce([b"b"])
    assert got(await fetched(member)) == [(1, 1, 1)]


@pytest.mark.parametrize(
    ("level", "expected"),
    [("read_committed", [b"committed", b"end"]), ("read_uncommitted", [b"aborted", b"committed", b"end"])],
)
async def test_transactions(broker: Broker, level: str, expected: list[bytes]) -> None:
    group = await start(broker, **{"share.isolation.level": level})
    log = broker.services.partitions.logs[TopicPartition("t", 0)]
    for number, (value, is_committed) in enumerate([(b"aborted", False), (b"committed", True)]):
        data = batch(value, producer_id=7, producer_epoch=0, base_sequence=number, transactional=True)
        log.append(data, from_client=True)
        log.append(
            end_transaction_marker(7, 0, commit=is_committed, coordinator_epoch=0, timestamp_ms=1), from_client=False
        )
    await group.produce([b"end"])
    member = await group.member()
    seen: list[bytes | None] = []
    listed: tuple[int, ...] = (0,)
    while len(seen) < len(expected):
        answer = await fetched(member, *listed)
        listed = ()
        for first, last, _ in got(answer):
            seen += [
                r.value
                for p in answer.responses[0].partitions
                for r in read_records(p.records)
                if first <= r.offset <= last
            ]
            assert await member.code((first, last, [ACCEPT])) == 0
    assert seen == expected
    async with asyncio.timeout(150):
        while (await group.stored())[0] != 5:
            await asyncio.sleep(0.01)


async def test_deleted_records_are_passed_over(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"a"], [b"b"], [b"c"])
    member = await group.member()
    assert got(await fetched(member, 0, max_records=1)) == [(0, 0, 1)]
    log = broker.services.partitions.logs[TopicPartition("t", 0)]
    log.log_start_offset = 2
    log.batches = log.batches[2:]
    assert got(await fetched(member)) == [(2, 2, 1)]
    assert await member.code((0, 0, [ACCEPT])) == 0
    assert (await group.stored())[0] == 2


async def test_too_many_open_records_hold_up_new_ones(broker: Broker) -> None:
    group = await start(broker, **{"share.partition.max.record.locks": "100"})
    await group.produce(*[[b"x"] * 60 for _ in range(3)])
    member = await group.member()
    assert got(await fetched(member, 0, max_records=60)) == [(0, 59, 1)]
    assert got(await fetched(member, max_records=60)) == [(60, 119, 1)]
    poll = asyncio.ensure_future(member.fetch(max_wait_ms=30_000))
    await until(lambda: any(session.waiting for session in broker.side.share_fetching.sessions._sessions.values()))
    other = await group.member("m2")
    assert got(await other.fetch(0)) == []
    poll.cancel()
    member.epoch += 1
    member.client.close()
    assert got(await fetched(other, max_wait_ms=20_000)) == [(0, 119, 2)]


async def test_many_records_are_acknowledged_in_one_request(broker: Broker) -> None:
    """Each of them is an element: with more than 10,000 the connection was closed, and its session with it. The client got them again."""
    group = await start(broker, **{"share.partition.max.record.locks": "4000"})
    await group.produce([b"x"] * 12_000, [b"y"] * 12_000)
    member = await group.member()
    assert got(await fetched(member, 0)) == [(0, 11_999, 1)]
    assert await member.code((0, 11_999, [ACCEPT] * 8_000 + [RELEASE, ACCEPT] * 2_000)) == 0
    assert (await group.stored())[0] == 8_000
    answer = await member.fetch(said={0: [(8_000, 11_998, [ACCEPT])]})
    assert answer.responses[0].partitions[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    listed = [member.fetch(*range(12_000), max_bytes=0)]
    assert (await listed[0]).error_code == ErrorCode.INVALID_REQUEST, "a limit of sessions, which the client hears of"


async def test_a_session_that_ends_during_its_acknowledgements_lists_nothing(broker: Broker) -> None:
    group = await start(broker)
    await group.produce([b"x"] * 10)
    member = await group.begin()
    handlers = broker.side.share_fetching
    session = handlers.sessions.get("g", "m")
    assert session is not None
    request: Any = SimpleNamespace(
        connection=session.connection, denied=SimpleNamespace(topics=()), throttle=None, principal=None
    )
    topic = wire.ShareFetchRequest.FetchTopic(
        topic_ids.to_wire(member.topic_id),
        [
            wire.ShareFetchRequest.FetchPartition(
                number, [wire.ShareFetchRequest.AcknowledgementBatch(0, 199, [ACCEPT] * 200)]
            )
            for number in range(3)
        ],
    )
    steps = handlers.fetch(
        request, wire.ShareFetchRequest("g", "m", member.epoch, 0, 1, 1 << 20, 500, 500, topics=[topic])
    )
    next(steps)
    handlers.sessions.close(session)
    with pytest.raises(StopIteration) as ended:
        while True:
            next(steps)
    assert ended.value.value.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert not session.partitions
