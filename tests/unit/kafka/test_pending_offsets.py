"""What is in the log of the group coordinator, but not replicated yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalite.coordinators.groups import removal
from kafkalite.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from kafkalite.coordinators.transactions.markers import Marker
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ErrorCode
from kafkalite.model import GROUP_TOPIC, NO_OFFSET, Offset, ProducerId, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.protocol import wire

from .conftest import Broker, FrameClient
from .coordinator_requests import commit, coordinator, fetched, join, move, wire_error
from .transactional_producer import Producer

ZERO = TopicPartition("t", 0)


class Held:
    """Appends whose followers are slow: the records are there, the answer is not."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.waiting: list[tuple[Callable[[Any], None], Any]] = []

    def release(self, *, failed: bool = False) -> None:
        self._answer(wire_error if failed else None)

    def time_out(self) -> None:
        """The answers come before the followers have the records."""
        self._answer(_timed_out)

    def _answer(self, error: Callable[[TopicPartition], Any] | None) -> None:
        waiting, self.waiting = self.waiting, []
        for done, results in waiting:
            keys = [TopicPartition(each.topic, each.partition) for each in results]
            done(
                tuple(
                    error(key) if error is not None and key.topic == self.topic else each
                    for key, each in zip(keys, results, strict=True)
                )
            )

    async def some(self, count: int = 1) -> None:
        async with asyncio.timeout(150):
            while len(self.waiting) < count:
                await asyncio.sleep(0)


def _timed_out(key: TopicPartition) -> Any:
    return ProducedPartition(key.topic, key.partition, int(ErrorCode.REQUEST_TIMED_OUT), NO_OFFSET)


@contextmanager
def slow_followers(broker: Broker, topic: str = GROUP_TOPIC) -> Iterator[Held]:
    """Of this topic. What is appended with it in one call has its answer with it."""
    partitions, held = broker.services.partitions, Held(topic)
    real = partitions.append_internal

    def slow(timeout_ms: int, wanted: Sequence[Any], done: Callable[[Any], None], **more: Any) -> None:
        if any(key.topic == topic for key, _ in wanted):
            real(timeout_ms, wanted, lambda results: held.waiting.append((done, results)), **more)
        else:
            real(timeout_ms, wanted, done, **more)

    partitions.append_internal = slow  # type: ignore[assignment]
    yield held
    partitions.append_internal = real  # type: ignore[method-assign]
    held.release()


async def _read(client: FrameClient, *, stable: bool = True) -> tuple[int, int]:
    part = (await fetched(client, "g", ZERO, stable=stable)).topics[0].partitions[0]
    return part.error_code, part.committed_offset


async def _transactional_commit(client: FrameClient, producer: Producer, offset: int) -> int:
    request = wire.TxnOffsetCommitRequest
    topics = [request.TxnOffsetCommitRequestTopic("t", partitions=[request.TxnOffsetCommitRequestPartition(0, offset)])]
    answer = await client.ask(request("x", "g", producer.id, producer.epoch, topics=topics), 3)
    return int(answer.topics[0].partitions[0].error_code)


async def _begun(client: FrameClient) -> Producer:
    """A transaction that is to commit offsets of the group g."""
    await coordinator(client, "g")
    producer = Producer(client)
    await producer.start()
    while (await client.ask(wire.AddOffsetsToTxnRequest("x", producer.id, producer.epoch, "g"), 3)).error_code:
        await asyncio.sleep(0)
    return producer


UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


@pytest.mark.parametrize("failed", [False, True])
async def test_a_transactional_commit_is_seen_as_pending_from_its_append(broker: Broker, *, failed: bool) -> None:
    """Another instance that reads the older offset meanwhile would process the same records, and both would commit."""
    await broker.create("t")
    client, other, third = await broker.client(), await broker.client(), await broker.client()
    producer = await _begun(client)
    with slow_followers(broker) as held:
        committing = asyncio.create_task(_transactional_commit(client, producer, 12))
        await held.some()
        reading = asyncio.create_task(_read(third))
        assert await _read(other, stable=False) == (0, -1)
        assert not reading.done()
        held.release(failed=failed)
        error = await committing
    assert (error != 0) == failed
    assert await reading == ((0, -1) if failed else UNSTABLE)
    assert await _read(other) == ((0, -1) if failed else UNSTABLE)


@pytest.mark.parametrize("failed", [False, True])
async def test_readers_of_stable_offsets_wait_for_plain_commits(broker: Broker, *, failed: bool) -> None:
    """As with Kafka since its new coordinator: an error would cost them their retry.backoff.ms."""
    await broker.create("t")
    client, second = await broker.client(), await broker.client()
    other, third = await broker.client(), await broker.client()
    await coordinator(client, "g")
    with slow_followers(broker) as held:
        committing = [
            asyncio.create_task(client.ask(commit("g", 5), 8)),
            asyncio.create_task(second.ask(commit("g", 6), 8)),
        ]
        await held.some(2)
        reading = asyncio.create_task(_read(other))
        assert await _read(third, stable=False) == (0, -1)
        last = held.waiting.pop()
        held.release(failed=failed)
        await committing[0]
        assert await _read(third, stable=False) == ((0, -1) if failed else (0, 5))
        assert not reading.done()  # the second is still under way
        later = asyncio.create_task(client.ask(commit("g", 7), 8))
        await held.some()
        held.waiting.reverse()
        held.waiting.append(last)
        newest = held.waiting.pop(0)
        held.release(failed=failed)
        await committing[1]
        # It has not waited for the third, and hears of it.
        assert await reading == UNSTABLE
        held.waiting.append(newest)
        held.release(failed=failed)
        await later
    assert await _read(other) == ((0, -1) if failed else (0, 7))


@contextmanager
def unreplicated(broker: Broker) -> Iterator[Held]:
    """What is appended to the groups' log from here on is not replicated until the end."""
    partitions = broker.services.partitions
    for where, log in partitions.logs.items():
        if where.topic == GROUP_TOPIC:
            partitions.committed[where] = log.log_end_offset
    with slow_followers(broker) as held:
        yield held
    partitions.committed.clear()


async def test_a_commit_that_timed_out_counts_once_it_is_replicated(broker: Broker) -> None:
    """The log had it, and the offset before it was shown until another node coordinated the group."""
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    with unreplicated(broker) as held:
        committing = asyncio.create_task(client.ask(commit("g", 6), 8))
        await held.some()
        held.time_out()
        [answer] = (await committing).topics[0].partitions
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await _read(other) == UNSTABLE, "it may still be replicated"
        assert await _read(other, stable=False) == (0, 5)
    assert await _read(other, stable=False) == (0, 6)
    assert await _read(other) == (0, 6)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert await _read(other) == (0, 6)


async def test_a_commit_that_timed_out_does_not_hide_a_later_one(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    with unreplicated(broker) as held:
        committing = asyncio.create_task(client.ask(commit("g", 6), 8))
        await held.some()
        held.time_out()
        await committing
        committing = asyncio.create_task(client.ask(commit("g", 4), 8))
        await held.some()
        broker.services.partitions.committed.clear()
        held.release()
        await committing
        assert await _read(client) == (0, 4)
    assert await _read(client) == (0, 4)
    [deleted] = (await client.ask(wire.DeleteGroupsRequest(["g"]), 2)).results
    assert deleted.error_code == 0
    assert await _read(client) == (0, -1)


async def test_a_deletion_that_timed_out_counts_once_it_is_replicated(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    with unreplicated(broker) as held:
        deleting = asyncio.create_task(client.ask(wire.DeleteGroupsRequest(["g"]), 2))
        await held.some()
        held.time_out()
        [answer] = (await deleting).results
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await _read(client, stable=False) == (0, 5)
        assert await _read(client) == UNSTABLE
    assert await _read(client) == (0, -1)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert await _read(client) == (0, -1)


async def test_a_transactional_commit_that_timed_out_ends_with_its_transaction(broker: Broker) -> None:
    """A producer that asks no second time may end its transaction nevertheless: the log has the offset, and the marker."""
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    producer = await _begun(client)
    with unreplicated(broker) as held:
        committing = asyncio.create_task(_transactional_commit(client, producer, 12))
        await held.some()
        held.time_out()
        assert await committing == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await _read(other) == UNSTABLE
        assert await _read(other, stable=False) == (0, -1)
    assert await _read(other) == UNSTABLE
    assert await producer.end(committed=True) == 0
    async with asyncio.timeout(150):
        while (await _read(other))[0]:
            await asyncio.sleep(0)
    assert await _read(other) == (0, 12)


async def test_what_is_committed_while_older_offsets_are_forgotten_stays(broker: Broker) -> None:
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    with slow_followers(broker) as held:
        deleting = asyncio.create_task(client.ask(wire.DeleteGroupsRequest(["g"]), 2))
        await held.some(1)
        committing = asyncio.create_task(other.ask(commit("g", 6), 8))
        await held.some(2)
        held.waiting.reverse()  # the answer of the commit is handled first
        held.release()
        await asyncio.gather(deleting, committing)
    assert await _read(client) == (0, 6)
    assert await _read(other, stable=False) == (0, 6)


async def test_a_commit_under_way_keeps_its_group(broker: Broker) -> None:
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    with slow_followers(broker) as held:
        deleting = asyncio.create_task(client.ask(wire.DeleteGroupsRequest(["g"]), 2))
        await held.some(1)
        committing = asyncio.create_task(other.ask(commit("g", 6), 8))
        await held.some(2)
        held.release()  # in the order of the log
        await asyncio.gather(deleting, committing)
    assert await _read(client) == (0, 6)
    await broker.side.groups.removal.expire()
    assert await _read(client) == (0, 6)


async def _deleted_in_two_appends(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[FrameClient, FrameClient]:
    """Two clients, and the group g with an offset on each of two topics: each offset is deleted by an append of its own."""
    monkeypatch.setattr(removal, "_DELETE_CHUNK", 1)
    for topic in ("s", "t"):
        await broker.create(topic)
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    for topic in ("s", "t"):
        await client.ask(commit("g", 5, topic=topic), 8)
    return client, other


async def test_an_offset_that_is_committed_during_a_purge_is_kept(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expired offsets go in several appends; the group was back before the last one, and lost what it had committed."""
    client, other = await _deleted_in_two_appends(broker, monkeypatch)
    object.__setattr__(broker.services.config, "offsets_retention_minutes", -1)
    with slow_followers(broker) as held:
        expiring = asyncio.create_task(broker.side.groups.removal.expire())
        await held.some(1)
        committing = asyncio.create_task(other.ask(commit("g", 6), 8))
        await held.some(2)
        while not (expiring.done() and committing.done()):
            held.release()
            await asyncio.sleep(0)
    assert await _read(client) == (0, 6)


async def test_a_deletion_that_is_repeated_leaves_the_offsets_of_the_next_group_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that had no answer asked again. The first deletion was done and there was another group, when the second one came to its
    next append: the group lost what it had committed at the next failover."""
    client, other = await _deleted_in_two_appends(broker, monkeypatch)
    delete = broker.side.groups.removal.delete_group
    with slow_followers(broker) as held:
        first = asyncio.create_task(delete("g"))
        await held.some(1)
        repeated = asyncio.create_task(delete("g"))
        await held.some(2)
        late = held.waiting.pop()
        while not first.done():
            held.release()
            await asyncio.sleep(0)
        committing = asyncio.create_task(other.ask(commit("g", 6), 8))
        await held.some(1)
        held.waiting.append(late)
        while not (repeated.done() and committing.done()):
            held.release()
            await asyncio.sleep(0)
        await asyncio.gather(first, repeated, return_exceptions=True)
    for _ in range(2):
        assert await _read(client) == (0, 6)
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")


async def _two_groups(make_broker: Any) -> tuple[Broker, FrameClient]:
    """A broker, and a client that has committed an offset of t in the groups a and g."""
    broker: Broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    for group in ("a", "g"):
        await client.ask(commit(group, 5), 8)
    return broker, client


async def _commit_during_purge(broker: Broker, held: Held) -> tuple[asyncio.Task[None], asyncio.Task[Any]]:
    """The purge of t's offsets is at the first group, and the second one's commit for the new topic is appended."""
    other = await broker.client()
    purging = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
    await held.some(1)
    committing = asyncio.create_task(other.ask(commit("g", 6), 8))
    await held.some(2)
    return purging, committing


async def test_a_topic_that_is_made_again_during_the_purge_of_the_former_one(make_broker: Any) -> None:
    """The purge goes from group to group, and took offsets that were committed for the new topic meanwhile."""
    broker, client = await _two_groups(make_broker)
    with slow_followers(broker) as held:
        purging, committing = await _commit_during_purge(broker, held)
        while not (purging.done() and committing.done()):
            held.release()
            await asyncio.sleep(0)
    assert await _read(client) == (0, 6)


async def test_a_commit_for_the_new_topic_that_is_not_replicated_when_its_group_is_purged(make_broker: Any) -> None:
    """Its record was in the log already, the tombstone came behind it, and the commit was confirmed."""
    broker, client = await _two_groups(make_broker)
    with slow_followers(broker) as held:
        purging, committing = await _commit_during_purge(broker, held)
        under_way = held.waiting.pop()
        held.release()
        while not purging.done() and not held.waiting:
            await asyncio.sleep(0)
        held.waiting.insert(0, under_way)  # in the order of the log
        held.release()
        await asyncio.gather(purging, committing)
    assert await _read(client) == (0, 6)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert await _read(client) == (0, 6)


async def test_a_commit_that_was_under_way_when_the_topic_was_deleted_goes_with_it(make_broker: Any) -> None:
    broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    with slow_followers(broker) as held:
        committing = asyncio.create_task(other.ask(commit("g", 6), 8))
        await held.some(1)
        purging = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
        await held.some(2)
        held.release()
        await asyncio.gather(purging, committing)
    assert await _read(client) == (0, -1)


async def test_a_first_commit_that_was_under_way_when_the_topic_was_deleted_goes_with_it(make_broker: Any) -> None:
    """Nothing was committed yet, so nothing was purged. The same when it came through while another group was purged."""
    broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("a", 5), 8)
    with slow_followers(broker) as held:
        committing = asyncio.create_task(other.ask(commit("g", 6), 8))
        await held.some(1)
        purging = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
        await held.some(2)
        while not purging.done():
            held.release()
            await asyncio.sleep(0)
        assert (await committing).topics[0].partitions[0].error_code == 0
    for _ in range(2):
        assert await _read(client) == (0, -1)
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")


@pytest.mark.parametrize("what", ["topic", "group"])
async def test_an_offset_in_an_open_transaction_goes_with_its_topic_or_group(make_broker: Any, what: str) -> None:
    """The end of the transaction committed it, for the next topic or group of this name."""
    broker = await make_broker(offsets_topic_num_partitions=1)
    await broker.create("t")
    client = await broker.client()
    producer = await _begun(client)
    assert await _transactional_commit(client, producer, 7) == 0
    removing = broker.side.groups.removal
    await (removing.topics_deleted(["t"]) if what == "topic" else removing.delete_group("g"))
    assert (broker.side.groups.describe("g") is None) == (what == "group")
    assert await producer.end(committed=True) == 0
    for _ in range(2):
        assert await _read(client) == (0, -1)
        await move(broker, GROUP_TOPIC)
        await coordinator(client, "g")


async def test_a_purge_that_could_not_be_written_is_repeated(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset stayed for ever, and was that of the next topic of this name: its first records were skipped."""
    monkeypatch.setattr(removal, "_PURGE_AGAIN_S", 0.001)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    partitions = broker.services.partitions
    partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    purging = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
    await asyncio.sleep(0.01)
    assert await _read(client) == (0, 5)
    partitions.fail_appends = None
    async with asyncio.timeout(150):
        await purging
    assert await _read(client) == (0, -1)


async def test_a_purge_ends_when_another_node_coordinates_the_groups(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_PURGE_AGAIN_S", 0.001)
    await broker.create("t")
    client = await broker.client()
    await coordinator(client, "g")
    await client.ask(commit("g", 5), 8)
    broker.services.partitions.fail_appends = ErrorCode.NOT_ENOUGH_REPLICAS
    purging = asyncio.create_task(broker.side.groups.removal.topics_deleted(["t"]))
    await asyncio.sleep(0.01)
    await move(broker, GROUP_TOPIC)
    async with asyncio.timeout(150):
        await purging


def test_a_tombstone_forgets_only_what_was_before_it() -> None:
    offsets = GroupOffsets()
    offsets.commit(ZERO, CommittedOffset(Offset(1), -1, "", 0, record_offset=10))
    offsets.forget(ZERO, 9)
    assert ZERO in offsets.committed
    offsets.forget(ZERO, 11)
    assert offsets.is_empty()


class _Unread(dict[Any, Any]):
    """Its values must not be looked through."""

    def values(self) -> Any:
        raise AssertionError


def test_whether_an_offset_is_stable_does_not_cost_a_look_into_each_transaction() -> None:
    """5,000 open transactions of one group made a request for 500 of its offsets hold the loop for a tenth of a second."""
    offsets = GroupOffsets()
    for producer in (1, 2):
        offsets.commit_in_transaction(ProducerId(producer), ZERO, CommittedOffset(Offset(1), -1, "", 0))
    held, offsets.in_transactions = offsets.in_transactions, _Unread()
    assert offsets.is_unstable(ZERO) and not offsets.is_unstable(TopicPartition("t", 1))
    offsets.in_transactions = held
    offsets.end_transaction(ProducerId(1), is_committed=False)
    assert offsets.is_unstable(ZERO)
    offsets.end_transaction(ProducerId(2), is_committed=True)
    assert not offsets.is_unstable(ZERO) and offsets.committed


def test_a_pending_offset_does_not_expire() -> None:
    offsets = GroupOffsets()
    offsets.commit(ZERO, CommittedOffset(Offset(1), -1, "", 0, record_offset=10))
    assert offsets.expired(100, 10, None) == [ZERO]
    offsets.begin_append([ZERO])
    assert offsets.expired(100, 10, None) == [] and offsets.is_pending
    offsets.end_append([ZERO])
    assert offsets.expired(100, 10, None) == [ZERO] and not offsets.is_pending


async def test_a_static_member_is_given_its_new_id_when_that_is_replicated(broker: Broker) -> None:
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    await coordinator(client, "g")
    first = await client.ask(join("g", group_instance_id="i1"), 5)
    assert first.error_code == 0
    assignments = [wire.SyncGroupRequest.SyncGroupRequestAssignment(first.member_id, b"share")]
    synced = await client.ask(
        wire.SyncGroupRequest("g", 1, first.member_id, group_instance_id="i1", assignments=assignments), 3
    )
    assert synced.error_code == 0
    with slow_followers(broker) as held:
        coming = asyncio.create_task(other.ask(join("g", group_instance_id="i1"), 5))
        await held.some()
        assert not coming.done()
        held.release(failed=True)
        assert (await coming).error_code == ErrorCode.NOT_COORDINATOR
        beat = wire.HeartbeatRequest("g", 1, first.member_id, "i1")
        assert (await client.ask(beat, 3)).error_code == 0
        coming = asyncio.create_task(other.ask(join("g", group_instance_id="i1"), 5))
        await held.some()
        held.release()
        second = await coming
    assert (second.error_code, second.generation_id) == (0, 1) and second.member_id != first.member_id
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    beat = wire.HeartbeatRequest("g", 1, second.member_id, "i1")
    assert (await other.ask(beat, 3)).error_code == 0
    assert (await client.ask(wire.HeartbeatRequest("g", 1, first.member_id, "i1"), 3)).error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )


async def test_a_marker_that_comes_at_the_end_of_loading_ends_its_transaction(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one replica in sync it is acknowledged at once. Stable readers would wait for its transaction for ever."""
    await broker.create("t")
    client = await broker.client()
    producer = await _begun(client)
    assert await _transactional_commit(client, producer, 12) == 0
    groups, partitions = broker.side.groups, broker.services.partitions
    index = groups.log.state_for("g").index
    key = TopicPartition(GROUP_TOPIC, index)
    read = partitions.read_local
    written: list[Marker] = []

    def read_local(partition: TopicPartition, offset: Offset, max_bytes: int) -> Any:
        pieces = read(partition, offset, max_bytes)
        if partition == key and not written:
            marker = Marker(
                ProducerId(producer.id), producer.epoch, is_commit=True, coordinator_epoch=0, partitions=(key,)
            )
            written.append(marker)
            broker.supervisor.spawn("marker", broker.side.markers.write(marker), Policy.ISOLATED)
        return pieces

    monkeypatch.setattr(partitions, "read_local", read_local)
    await move(broker, GROUP_TOPIC)
    await coordinator(client, "g")
    assert written and await _read(client) == (0, 12)


async def test_a_committed_offset_does_not_wait_for_the_markers_of_other_partitions(broker: Broker) -> None:
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    producer = await _begun(client)
    assert await producer.add() == 0 and await producer.send(b"x") == 0
    assert await _transactional_commit(client, producer, 12) == 0
    with slow_followers(broker, "t") as held:
        assert await producer.end(committed=True) == 0
        await held.some()
        async with asyncio.timeout(150):
            while await _read(other) == UNSTABLE:
                await asyncio.sleep(0)
        assert await _read(other) == (0, 12)
        assert held.waiting


async def test_the_late_outcome_of_a_marker_leaves_the_next_transaction_alone(broker: Broker) -> None:
    """Markers for offsets and for t were appended in one call. That of t was not replicated in time: another node led t by then, and
    the transaction's next coordinator had its marker from that one. The answer to the first call committed the offset of the next
    transaction, which was still open: if it was aborted, its consumer went on behind records that nobody had processed."""
    await broker.create("t")
    client, other = await broker.client(), await broker.client()
    producer = await _begun(client)
    assert await _transactional_commit(client, producer, 12) == 0
    offsets = TopicPartition(GROUP_TOPIC, broker.side.groups.log.state_for("g").index)

    def marker(*partitions: TopicPartition) -> Marker:
        return Marker(
            ProducerId(producer.id), producer.epoch, is_commit=True, coordinator_epoch=0, partitions=partitions
        )

    with slow_followers(broker, "t") as held:
        writing = asyncio.create_task(broker.side.markers.write(marker(offsets, ZERO)))
        await held.some()
        await broker.side.markers.write(marker(offsets))
        assert await _read(other) == (0, 12)
        assert await _transactional_commit(client, producer, 20) == 0
        held.release(failed=True)
        assert (await writing)[offsets] == ErrorCode.NONE
        assert await _read(other, stable=False) == (0, 12)
        assert await _read(other) == UNSTABLE
