"""Group and transaction coordinators through the wire: what clients see, what is stored, what survives a move."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalite.coordinators.groups import member_memory
from kafkalite.coordinators.groups.offsets import CommittedOffset
from kafkalite.coordinators.internal_log import java_hash, partition_of
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import Offset, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from kafkalite.record.reader import read_records

from .conftest import Broker, FrameClient, batch, fetch, produce

GROUPS, TRANSACTIONS = 0, 1


async def coordinator(client: FrameClient, key: str, kind: int = GROUPS, version: int = 4) -> None:
    """Wait until `key` has a coordinator that has loaded."""
    request = wire.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
    async with asyncio.timeout(150):
        while True:
            answer = await client.ask(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            if found.error_code == 0:
                assert found.node_id == 1
                break
        if kind == GROUPS:
            while (await fetched(client, key)).error_code:
                await asyncio.sleep(0)
        else:
            described = wire.DescribeTransactionsRequest([key])
            not_ready = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            while (await client.ask(described, 0)).transaction_states[0].error_code in not_ready:
                await asyncio.sleep(0)


async def fetched(client: FrameClient, group: str, *partitions: TopicPartition, stable: bool = False) -> Any:
    request = wire.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopics(key.topic, partition_indexes=[key.partition]) for key in partitions]
    asked = request.OffsetFetchRequestGroup(group, topics=topics or None)
    return (await client.ask(request(groups=[asked], require_stable=stable), 8)).groups[0]


def commit(group: str, offset: int, topic: str = "t", metadata: str = "", **fields: Any) -> Any:
    request = wire.OffsetCommitRequest
    part = request.OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    return request(group, topics=[request.OffsetCommitRequestTopic(topic, partitions=[part])], **fields)


def join(group: str, member_id: str = "", **fields: Any) -> Any:
    request = wire.JoinGroupRequest
    subscription = (1).to_bytes(2) + encode(wire.ConsumerProtocolSubscription(["t"]), 1)
    values: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [request.JoinGroupRequestProtocol("range", subscription)],
    }
    return request(group, member_id=member_id, **(values | fields))


async def move(broker: Broker, *topics: str) -> None:
    """Leadership of internal topics goes away, and comes back: everything is loaded from the log."""
    away = set(topics)
    broker.services.partitions.led = lambda key: key.topic not in away
    broker.services.partitions.tell_change()
    while any(
        next(log.states(), None) is not None
        for log in (broker.side.groups.log, broker.side.transactions.log)
        if log.topic in away
    ):
        await asyncio.sleep(0)
    broker.services.partitions.led = lambda key: True
    broker.services.partitions.tell_change()


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator_creates_the_topic(broker: Broker, version: int) -> None:
    client = await broker.client()
    await coordinator(client, "g", GROUPS, version)
    assert broker.services.overrides["__consumer_offsets"]["cleanup.policy"] == "compact"


async def test_offsets_survive_a_move(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    for offset in (5, 6):
        answer = await client.ask(commit("g", offset, metadata="m"), 8)
        assert answer.topics[0].partitions[0].error_code == 0
    await move(broker, "__consumer_offsets")
    away = await fetched(client, "g", TopicPartition("t", 0))
    assert away.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await coordinator(client, "g")
    known = (await fetched(client, "g")).topics[0].partitions[0]
    assert (known.committed_offset, known.metadata) == (6, "m")
    unknown = (await fetched(client, "g", TopicPartition("t", 7))).topics[0].partitions[0]
    assert (unknown.committed_offset, unknown.error_code) == (-1, 0)


async def test_not_the_coordinator(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    broker.services.partitions.led = lambda key: key.topic != "__consumer_offsets"
    broker.services.partitions.tell_change()
    assert (await client.ask(join("g"), 5)).error_code == ErrorCode.NOT_COORDINATOR
    answer = await client.ask(commit("g", 1), 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert (await client.ask(wire.HeartbeatRequest("g", 1, "m"), 4)).error_code == ErrorCode.NOT_COORDINATOR
    described = await client.ask(wire.DescribeGroupsRequest(["g"]), 5)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(10))
async def test_commits_in_every_version(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    answer = await client.ask(commit("g", 3, retention_time_ms=60_000 if 2 <= version <= 4 else -1), version)
    assert answer.topics[0].partitions[0].error_code == 0
    request = wire.OffsetFetchRequest
    topics = [request.OffsetFetchRequestTopic("t", [0])]
    groups = [
        request.OffsetFetchRequestGroup("g", topics=[request.OffsetFetchRequestTopics("t", partition_indexes=[0])])
    ]
    answer = await client.ask(request(group_id="g", topics=topics, groups=groups), version)
    holder = answer.groups[0] if version >= 8 else answer
    assert holder.topics[0].partitions[0].committed_offset == 3


async def test_an_offset_that_is_kept_for_ever(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    answer = await client.ask(commit("g", 3, retention_time_ms=2**63 - 1), 3)
    assert answer.topics[0].partitions[0].error_code == 0


async def test_commit_errors(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")

    async def code(request: Any) -> int:
        return int((await client.ask(request, 8)).topics[0].partitions[0].error_code)

    assert await code(commit("g", 1, topic="nowhere")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await code(commit("", 1)) == ErrorCode.INVALID_GROUP_ID
    assert await code(commit("g", 1, metadata="x" * 5000)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    generation: dict[str, Any] = {"generation_id_or_member_epoch": 4, "member_id": "m"}
    assert await code(commit("unheard-of", 1, **generation)) == ErrorCode.ILLEGAL_GENERATION
    newer = await client.ask(commit("unheard-of", 1, **generation), 9)
    assert newer.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    offset = {TopicPartition("t", 0): CommittedOffset(Offset(1), -1, "", 0)}
    offsets = broker.side.groups.offsets
    with pytest.raises(ApiError, match="ILLEGAL_GENERATION"):
        list(offsets.committing("unheard-of", "m", None, 4, offset, lambda _: None, producer=(ProducerId(1), 0)))
    assert broker.side.groups.find("unheard-of")[1] is None
    # The latter: too many requests of others wait here. A Java consumer or producer knows it of no coordinator, and gives up.
    for refused in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        broker.services.partitions.fail_appends = refused
        assert await code(commit("g", 9)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.services.partitions.fail_appends = None
    assert (await fetched(client, "g", TopicPartition("t", 0))).topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("version", range(2, 10))
async def test_a_member_in_every_version_survives_a_move(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    joined = await client.ask(join("g"), version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await client.ask(join("g", joined.member_id), version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    assignment = wire.SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, b"mine")
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    request = wire.SyncGroupRequest("g", 1, joined.member_id, assignments=[assignment], **named)
    assert (await client.ask(request, min(version, 5))).assignment == b"mine"
    await move(broker, "__consumer_offsets")
    await coordinator(client, "g")
    beat = await client.ask(wire.HeartbeatRequest("g", 1, joined.member_id), min(version, 4))
    assert beat.error_code == 0
    [described] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 5)).groups
    assert (described.group_state, described.members[0].member_assignment) == ("Stable", b"mine")
    left = wire.LeaveGroupRequest("g", joined.member_id, [wire.LeaveGroupRequest.MemberIdentity(joined.member_id)])
    assert (await client.ask(left, min(version, 5))).error_code == 0
    assert (await client.ask(wire.HeartbeatRequest("g", 1, joined.member_id), 0)).error_code != 0


@pytest.mark.parametrize("version", range(6))
async def test_a_group_without_a_name_cannot_be_left(broker: Broker, version: int) -> None:
    """It is the request that is wrong, not its members (Kafka's GroupCoordinatorService.leaveGroup)."""
    client = await broker.client()
    await coordinator(client, "g")
    leave = wire.LeaveGroupRequest
    for members in ([], [leave.MemberIdentity("m")]):
        answer = await client.ask(leave("", "m", members), version)
        assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [] if version >= 3 else ())


async def test_administration_of_groups(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("simple", 1), 8)
    joined = await client.ask(join("g"), 3)
    assert joined.error_code == 0
    listed = await client.ask(wire.ListGroupsRequest(), 5)
    states = {group.group_id: (group.group_state, group.protocol_type) for group in listed.groups}
    assert states == {"g": ("CompletingRebalance", "consumer"), "simple": ("Empty", "")}
    only = await client.ask(wire.ListGroupsRequest(states_filter=["Empty"]), 4)
    assert [group.group_id for group in only.groups] == ["simple"]
    assert (await client.ask(wire.ListGroupsRequest(types_filter=["consumer"]), 5)).groups == []
    deleted = await client.ask(wire.DeleteGroupsRequest(["g", "simple", "nothing"]), 2)
    assert [result.error_code for result in deleted.results] == [
        ErrorCode.NON_EMPTY_GROUP,
        0,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    await move(broker, "__consumer_offsets")
    await coordinator(client, "simple")
    assert not (await fetched(client, "simple")).topics
    [dead] = (await client.ask(wire.DescribeGroupsRequest(["simple"]), 5)).groups
    assert dead.group_state == "Dead"


async def test_offsets_are_deleted_by_admins_with_topics_and_by_age(broker: Broker) -> None:
    for topic in ("t", "u", "v"):
        await broker.create(topic)
    client = await broker.client()
    await coordinator(client, "g")
    for topic in ("t", "u", "v"):
        await client.ask(commit("g", 4, topic=topic), 8)
    request = wire.OffsetDeleteRequest
    doomed = request.OffsetDeleteRequestTopic("t", [request.OffsetDeleteRequestPartition(0)])
    answer = await client.ask(request("g", [doomed]), 0)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    await broker.side.groups.removal.topics_deleted(["u"])
    assert [topic.name for topic in (await fetched(client, "g")).topics] == ["v"]
    await broker.side.groups.removal.expire()
    assert [topic.name for topic in (await fetched(client, "g")).topics] == ["v"]
    object.__setattr__(broker.services.config, "offsets_retention_minutes", -1)
    await broker.side.groups.removal.expire()
    assert not (await fetched(client, "g")).topics
    assert broker.side.groups.describe("g") is None


async def test_a_group_whose_last_offset_was_deleted_is_there_until_it_is_deleted(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 4, topic="t"), 8)
    request = wire.OffsetDeleteRequest
    doomed = request.OffsetDeleteRequestTopic("t", [request.OffsetDeleteRequestPartition(0)])
    assert not (await client.ask(request("g", [doomed]), 0)).error_code
    assert [each.group_id for each in (await client.ask(wire.ListGroupsRequest(), 5)).groups] == ["g"]
    [described] = (await client.ask(wire.DescribeGroupsRequest(["g"]), 6)).groups
    assert (described.error_code, described.group_state) == (0, "Empty")
    [deleted] = (await client.ask(wire.DeleteGroupsRequest(["g"]), 2)).results
    assert not deleted.error_code
    assert not (await client.ask(wire.ListGroupsRequest(), 5)).groups


# --- transactions --------------------------------------------------------------------------------


class Producer:
    """A transactional producer, request by request."""

    def __init__(self, client: FrameClient, name: str = "x") -> None:
        self.client = client
        self.name = name
        self.sequence = 0

    async def start(self, version: int = 4, **fields: Any) -> int:
        await coordinator(self.client, self.name, TRANSACTIONS)
        async with asyncio.timeout(150):
            while True:
                answer = await self.client.ask(wire.InitProducerIdRequest(self.name, 60_000, **fields), version)
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(0.01)
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    async def add(self, topic: str = "t", version: int = 3) -> int:
        request = wire.AddPartitionsToTxnRequest
        topics = [request.AddPartitionsToTxnTopic(topic, [0])]
        one = request.AddPartitionsToTxnTransaction(self.name, self.id, self.epoch, verify_only=False, topics=topics)
        message = request(
            transactions=[one],
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        while True:
            answer = await self.client.ask(message, version)
            results = (
                answer.results_by_transaction[0].topic_results if version >= 4 else answer.results_by_topic_v3_and_below
            )
            code = int(results[0].results_by_partition[0].partition_error_code)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return code

    async def send(self, value: bytes) -> int:
        records = batch(
            value, producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True
        )
        self.sequence += 1
        answer = await self.client.ask(produce("t", (0, records), transactional_id=self.name), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, committed: bool, version: int = 3) -> int:
        answer = await self.client.ask(wire.EndTxnRequest(self.name, self.id, self.epoch, committed), version)
        return int(answer.error_code)


async def visible(client: FrameClient) -> tuple[list[bytes | None], list[tuple[int, int]], int]:
    """What a read_committed reader gets: values below the last stable offset, aborted transactions, that offset."""
    answer = await client.ask(fetch("t", isolation_level=1), 11)
    [part] = answer.responses[0].partitions
    values = [record.value for record in read_records(part.records)]
    aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions]
    return values, aborted, part.last_stable_offset


@pytest.mark.parametrize("version", [0, 3, 5])
async def test_commit_and_abort(broker: Broker, version: int) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    assert await producer.start() == 0
    for value, is_commit in ((b"kept", True), (b"dropped", False)):
        assert await producer.add(version=version) == 0
        assert await producer.send(value) == 0
        assert b"kept" not in (await visible(client))[0] or not is_commit
        assert await producer.end(committed=is_commit, version=min(version, 4)) == 0
        while (await visible(client))[2] != broker.services.partitions.logs[TopicPartition("t", 0)].log_end_offset:
            await asyncio.sleep(0)
    values, aborted, stable = await visible(client)
    assert values == [b"kept", b"dropped"] and aborted == [(producer.id, 2)] and stable == 4


async def test_a_coordinator_that_was_replaced_cannot_confirm_the_end_of_a_transaction(broker: Broker) -> None:
    """The last end it knows is not the one that is asked for: its next transaction began at another node."""
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    assert await producer.start() == 0
    assert await producer.add() == 0
    assert await producer.send(b"first") == 0
    assert await producer.end(committed=True) == 0
    while (await visible(client))[2] != broker.services.partitions.logs[TopicPartition("t", 0)].log_end_offset:
        await asyncio.sleep(0)
    assert await producer.end(committed=True) == 0, "a repetition, as far as it knows"
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS  # what it writes is confirmed by nobody
    assert await producer.end(committed=True) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_prepared_commit_is_completed_after_a_move(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await producer.start()
    await producer.add()
    await producer.send(b"kept")
    # The partition takes no marker yet: the transaction stays prepared.
    real, seen = broker.services.partitions.append_internal, []

    def no_markers(timeout_ms: int, partitions: Any, done: Any, **more: Any) -> None:
        if partitions[0][0].topic == "t":
            seen.append(1)
            done(tuple(wire_error(key) for key, _ in partitions))
        else:
            real(timeout_ms, partitions, done, **more)

    broker.services.partitions.append_internal = no_markers  # type: ignore[method-assign]
    assert await producer.end(committed=True) == 0
    while not seen:
        await asyncio.sleep(0)
    assert (await visible(client))[2] == 0
    await move(broker, "__transaction_state")
    broker.services.partitions.append_internal = real  # type: ignore[method-assign]
    async with asyncio.timeout(150):
        while (await visible(client))[2] != 2:
            await asyncio.sleep(0.01)
    assert (await visible(client))[0] == [b"kept"]


def wire_error(key: TopicPartition) -> Any:
    from kafkalite.partition_values import ProducedPartition

    return ProducedPartition(key.topic, key.partition, int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)  # type: ignore[arg-type]


async def test_a_producer_cannot_add_an_internal_topic(broker: Broker) -> None:
    client = await broker.client()
    producer = Producer(client)
    await producer.start()
    await coordinator(client, "g", GROUPS)
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert await producer.add(topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await producer.add(topic, version=4) == 0  # of a node, for offsets in a transaction


async def test_a_second_incarnation_fences_the_first(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    first, second = Producer(client), Producer(client)
    await first.start()
    await first.add()
    await first.send(b"lost")
    assert await second.start() == 0
    assert (second.id, second.epoch) == (first.id, 2)  # one epoch for the abort, one for the newcomer
    assert await first.end(committed=True) == ErrorCode.PRODUCER_FENCED
    assert await first.end(committed=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH  # what older clients know
    assert await first.add() == ErrorCode.PRODUCER_FENCED
    await second.add()
    await second.send(b"kept")
    await second.end(committed=True)
    async with asyncio.timeout(150):
        while (await visible(client))[2] != 4:
            await asyncio.sleep(0.01)
    values, aborted, _ = await visible(client)
    assert values == [b"lost", b"kept"] and aborted == [(first.id, 0)]


async def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await coordinator(client, "x", TRANSACTIONS)
    answer = await client.ask(wire.InitProducerIdRequest("x", 1), 4)
    producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
    await producer.add()
    await producer.send(b"late")
    async with asyncio.timeout(150):
        while (await visible(client))[2] != 2:
            await broker.side.transactions.abort_overdue()
            await asyncio.sleep(0.005)
    assert (await visible(client))[1] == [(producer.id, 0)]
    assert await producer.end(committed=True) == ErrorCode.PRODUCER_FENCED


async def test_an_open_transaction_outlives_a_wall_clock_that_jumps(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create("t")
    client = await broker.client()
    producer = Producer(client)
    await coordinator(client, "x", TRANSACTIONS)
    answer = await client.ask(wire.InitProducerIdRequest("x", 60_000), 4)
    producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
    await producer.add()
    await producer.send(b"kept")
    clock, real = broker.services.clock, broker.services.clock.wall_ms
    for hours in (2, -2):
        monkeypatch.setattr(clock, "wall_ms", lambda hours=hours: real() + hours * 3_600_000)
        await broker.side.transactions.abort_overdue()
    later = clock.monotonic() + 59
    monkeypatch.setattr(clock, "monotonic", lambda: later)
    await broker.side.transactions.abort_overdue()
    assert await producer.end(committed=True) == ErrorCode.NONE
    await producer.add()
    await broker.side.transactions.abort_overdue()
    later += 61
    await broker.side.transactions.abort_overdue()
    assert await producer.end(committed=True) == ErrorCode.PRODUCER_FENCED


async def test_offsets_in_a_transaction(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    producer = Producer(client)
    await producer.start()
    for offset, is_commit in ((11, False), (12, True)):
        while True:
            added = await client.ask(wire.AddOffsetsToTxnRequest("x", producer.id, producer.epoch, "g"), 3)
            if added.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert added.error_code == 0
        request = wire.TxnOffsetCommitRequest
        part = request.TxnOffsetCommitRequestPartition(0, offset)
        topics = [request.TxnOffsetCommitRequestTopic("t", partitions=[part])]
        answer = await client.ask(request("x", "g", producer.id, producer.epoch, topics=topics), 3)
        assert answer.topics[0].partitions[0].error_code == 0
        waiting = (await fetched(client, "g", TopicPartition("t", 0), stable=True)).topics[0].partitions[0]
        assert waiting.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        before = (await fetched(client, "g", TopicPartition("t", 0))).topics[0].partitions[0]
        assert before.committed_offset == -1
        await move(broker, "__consumer_offsets")  # the open transaction is in the log
        await coordinator(client, "g")
        assert await producer.end(committed=is_commit) == 0
        async with asyncio.timeout(5):
            while broker.side.groups.offsets.offsets_of("g").in_transactions:
                await asyncio.sleep(0.01)
        after = (await fetched(client, "g", TopicPartition("t", 0), stable=True)).topics[0].partitions[0]
        assert (after.error_code, after.committed_offset) == (0, 12 if is_commit else -1)


async def test_init_producer_id_errors(broker: Broker) -> None:
    client = await broker.client()
    ids = [(await client.ask(wire.InitProducerIdRequest(None, 0), version)).producer_id for version in range(6)]
    assert len(set(ids)) == 6
    await coordinator(client, "x", TRANSACTIONS)

    async def code(*fields: Any) -> int:
        return int((await client.ask(wire.InitProducerIdRequest(*fields), 4)).error_code)

    assert await code("", 1000) == ErrorCode.INVALID_REQUEST
    assert await code("x", 0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await code("x", 10**9) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await code("x", 1000, 5, -1) == ErrorCode.INVALID_REQUEST
    producer = Producer(client)
    await producer.start()
    producer.id += 1
    await broker.create("t")
    assert await producer.add() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.add("nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = await client.ask(wire.ListTransactionsRequest(state_filters=["Empty", "Odd"]), 0)
    assert [entry.transactional_id for entry in listed.transaction_states] == ["x"]
    assert listed.unknown_state_filters == ["Odd"]
    for pattern, names in (("x|z", ["x"]), ("y", []), ("", ["x"]), (None, ["x"])):
        listed = await client.ask(wire.ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert [entry.transactional_id for entry in listed.transaction_states] == names
    listed = await client.ask(wire.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert listed.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    missing = await client.ask(wire.DescribeTransactionsRequest(["y"]), 0)
    assert missing.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_idle_transactional_ids_are_forgotten(broker: Broker) -> None:
    client = await broker.client()
    await Producer(client).start()
    object.__setattr__(broker.services.config, "transactional_id_expiration_ms", -10)
    await broker.side.transactions.expire()
    missing = await client.ask(wire.DescribeTransactionsRequest(["x"]), 0)
    assert missing.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("text", "expected"), [("", 0), ("a", 97), ("my-group", -1253282389), ("ünïcode", None), ("😀", 1772899)]
)
def test_keys_hash_as_in_java(text: str, expected: int | None) -> None:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    assert java_hash(text) == (value ^ 1 << 31) - (1 << 31)
    if expected is not None and text != "my-group":
        assert java_hash(text) == expected
    assert 0 <= partition_of(text, 50) < 50


async def test_what_members_say_of_themselves_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no record yet: a user that may read one group could fill the memory, 16 MB with each member."""
    monkeypatch.setattr(member_memory, "MAX_BYTES", 2500)
    monkeypatch.setattr(member_memory, "_COUNT_AGAIN_MS", 0)
    client = await broker.client()
    await coordinator(client, "a")

    async def joined(group: str, size: int, member_id: str = "") -> Any:
        said = [wire.JoinGroupRequest.JoinGroupRequestProtocol("range", bytes(size))]
        return await client.ask(join(group, member_id, protocols=said), 3)

    first = await joined("a", 1000)
    for _ in range(5):  # the same member takes the same memory
        assert (await joined("a", 1000, first.member_id)).error_code == 0
    assert (await joined("b", 1000)).error_code == 0
    assert (await joined("c", 1000)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "c" not in {each.group.group_id for each in broker.side.groups.groups()}
    assert (await joined("d", 100)).error_code == 0
    assert (await client.ask(wire.LeaveGroupRequest("a", first.member_id), 2)).error_code == 0
    assert (await joined("c", 1000)).error_code == 0
