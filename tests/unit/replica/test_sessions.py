"""Incremental fetch sessions: what a follower listed stays listed, and only news is sent."""

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition
from kafkalite.replica.client_fetch import ClientFetch, FetchTerms
from kafkalite.replica.requests import ListOffsetsPartition, ListOffsetsRequest
from kafkalite.rpc.messages.replication import ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchWake
from tests.support.fetching import answered

TPS = [TopicPartition("t", p) for p in range(5)]


class Follower:
    """Speaks as broker 2, without being one."""

    def __init__(self, node) -> None:
        self.node = node
        self.session_id = 0
        self.epoch = 0
        self.answers: list[Any] = []

    def fetch(self, *listed: tuple[int, int], wait_ms: int = 0, max_bytes: int = 1 << 20, forgotten=(), **changes):
        wanted = tuple(
            ReplicaFetchPartition(
                "t",
                number,
                self.node.partition(TPS[number]).topic_id,
                LeaderEpoch(0),
                Offset(offset),
                LeaderEpoch(0 if offset else -1),
                Offset(0),
                1 << 20,
            )
            for number, offset in listed
        )
        fields = {"session_id": self.session_id, "session_epoch": self.epoch} | changes
        request = ReplicaFetchRequest(
            BrokerId(2), BrokerEpoch(1002), wait_ms, 1, max_bytes, partitions=wanted, forgotten=forgotten, **fields
        )
        before = len(self.answers)

        def done(response, body):
            self.answers.append((response, b"".join(map(bytes, body))))

        self.node.manager.serving.fetch(request, done)
        if len(self.answers) == before:
            self.epoch += 1
            return None
        response = self.answers[-1][0]
        if response.error == 0:
            self.session_id = response.session_id
            self.epoch += 1
        return self.answers[-1]


def told(answer) -> dict[int, tuple[int, int]]:
    """Partition -> (high watermark, whether records came)."""
    return {part.partition: (part.high_watermark, part.records_size > 0) for part in answer[0].partitions}


@pytest.fixture
async def node(make_cluster):
    cluster = await make_cluster(1, **{"replica.lag.time.max.ms": 60_000})
    cluster.create_topic("t", dict.fromkeys(range(5), (1, 2)))
    await cluster.command(1, *[cluster.decide(tp, leader=1, isr=(1, 2), epoch=0) for tp in TPS])
    return cluster.node(1)


@pytest.mark.checklist("F29")
async def test_only_partitions_with_news_are_answered(node):
    follower = Follower(node)
    assert told(follower.fetch(*[(p, 0) for p in range(5)])) == dict.fromkeys(range(5), (0, False))
    assert told(follower.fetch()) == {}
    await node.produce(TPS[3], b"x", acks=1)
    assert told(follower.fetch()) == {3: (0, True)}
    await node.produce(TPS[3], b"y", acks=1)
    assert told(follower.fetch()) == {}  # it has not said yet that it has the first
    assert told(follower.fetch((3, 1))) == {3: (1, True)}
    assert told(follower.fetch((3, 2))) == {3: (2, False)}
    assert told(follower.fetch()) == {}


async def test_a_waiting_fetch_is_answered_by_an_append_and_by_a_wake(node, until):
    follower = Follower(node)
    follower.fetch(*[(p, 0) for p in range(5)])
    assert follower.fetch(wait_ms=60_000) is None
    await node.produce(TPS[1], b"x", acks=1)
    await node.produce(TPS[2], b"x", acks=1)
    await until(lambda: len(follower.answers) == 2)
    assert told(follower.answers[-1]).keys() == {1, 2}
    assert follower.fetch((1, 1), (2, 1), wait_ms=60_000) is None  # the new high watermarks alone answer nothing
    node.manager.serving.wake(ReplicaFetchWake(follower.session_id))
    await until(lambda: len(follower.answers) == 3)
    assert told(follower.answers[-1]) == {1: (1, False), 2: (1, False)}
    assert follower.fetch(wait_ms=5) is None
    await until(lambda: len(follower.answers) == 4)
    assert told(follower.answers[-1]) == {}
    assert len(node.manager.hosted.wheel) == 0


async def test_what_does_not_fit_comes_first_next_time(node):
    follower = Follower(node)
    for tp in TPS:
        await node.produce(tp, b"x" * 500, acks=1)
    follower.fetch(*[(p, 0) for p in range(5)], max_bytes=700)
    first = follower.fetch(max_bytes=700)
    second = follower.fetch(max_bytes=700)
    with_records = [p for answer in follower.answers for p, (_, has) in told(answer).items() if has]
    assert with_records == [0, 1, 2]
    assert told(first).keys() >= {1}
    assert told(second).keys() >= {2}


async def test_a_batch_larger_than_the_limit_still_comes(node):
    follower = Follower(node)
    await node.produce(TPS[0], b"x" * 5_000, acks=1)
    assert told(follower.fetch((0, 0), max_bytes=100)) == {0: (0, True)}


async def test_wrong_sessions_are_refused(node):
    follower = Follower(node)
    follower.fetch((0, 0))
    assert follower.fetch(session_id=999)[0].error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert follower.fetch(session_epoch=17)[0].error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert follower.fetch()[0].error == ErrorCode.NONE


async def test_forgotten_partitions_and_superseded_sessions_leave_no_entry(node):
    old, new = Follower(node), Follower(node)
    old.fetch(*[(p, 0) for p in range(5)])
    old.fetch(forgotten=(("t", 4),))
    assert node.partition(TPS[4]).entries == {}
    new.fetch((0, 0), (1, 0))
    assert node.partition(TPS[0]).entries[2].session.session_id == new.session_id
    await node.produce(TPS[0], b"x", acks=1)
    assert told(old.fetch()) == {}
    assert told(new.fetch()) == {0: (0, True)}


async def test_a_late_request_of_a_former_connection_does_not_silence_the_present_session(node, until):
    """Its packets come through when the network is whole again; by then the follower has opened another session."""
    old, new = Follower(node), Follower(node)
    old.fetch((0, 0))
    new.fetch((0, 0))
    assert new.fetch(wait_ms=60_000) is None
    old.fetch((0, 0))
    await until(lambda: len(new.answers) == 2)
    [part] = new.answers[-1][0].partitions
    assert (part.partition, part.error) == (0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), "to be listed again"
    new.fetch((0, 0))
    await node.produce(TPS[0], b"x", acks=1)
    assert told(new.fetch()) == {0: (0, True)}


async def test_silent_sessions_end(node):
    follower = Follower(node)
    follower.fetch((0, 0))
    serving = node.manager.serving
    serving.expire(60_000)
    assert len(serving) == 1
    serving.expire(-1)
    assert len(serving) == 0
    assert node.partition(TPS[0]).entries == {}
    assert follower.fetch()[0].error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.checklist("F2")
async def test_a_diverging_log_is_told_where_the_logs_part_and_counts_for_nothing(node):
    await node.produce(TPS[0], b"x", acks=1)
    follower = Follower(node)
    answer = follower.fetch((0, 9))
    (part,) = answer[0].partitions
    assert (part.error, part.diverging_epoch, part.diverging_end_offset) == (0, 0, 1)
    assert node.partition(TPS[0]).leader.followers[2].log_end_offset == -1
    assert node.partition(TPS[0]).high_watermark == 0
    assert told(follower.fetch()) == {}
    assert told(follower.fetch((0, 1))) == {0: (1, False)}


async def test_one_partition_refused_does_not_fail_the_others(node):
    follower = Follower(node)
    node.manager.hosted.demote(node.partition(TPS[1]))
    answer = follower.fetch((0, 0), (1, 0), (2, 0))
    assert {part.partition: part.error for part in answer[0].partitions} == {
        0: ErrorCode.NONE,
        1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        2: ErrorCode.NONE,
    }


@pytest.mark.checklist("F29")
async def test_an_append_touches_only_the_sessions_that_follow_it(node):
    follower = Follower(node)
    follower.fetch(*[(p, 0) for p in range(4)])
    session = node.partition(TPS[0]).entries[2].session
    await node.produce(TPS[4], b"x", acks=1)
    assert not session.with_records
    await node.produce(TPS[2], b"x", acks=1)
    assert [entry.partition.topic_partition.partition for entry in session.with_records] == [2]


@pytest.mark.checklist("F3")
async def test_consumers_are_fenced_by_the_leader_epoch_they_know(node):
    async def error(epoch: int) -> int:
        answers: list[int] = []
        fetch = ClientFetch()
        entry = fetch.list(TPS[0], Offset(0), 1 << 20, LeaderEpoch(epoch))

        done = answered(lambda: answers.append(entry.error))
        node.manager.consuming.fetch(fetch, FetchTerms(0, 1, 1 << 20), done)
        listed = await node.manager.consuming.list_offsets(
            ListOffsetsRequest((ListOffsetsPartition("t", 0, -1, LeaderEpoch(epoch)),))
        )
        assert listed.partitions[0].error == answers[0]
        return answers[0]

    assert [await error(epoch) for epoch in (-1, 0, 1)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]
    node.partition(TPS[0]).leader_epoch = LeaderEpoch(2)
    assert await error(1) == ErrorCode.FENCED_LEADER_EPOCH


async def test_list_offsets_by_time_sees_committed_records_only(node):
    from tests.support.logs import build_batch

    follower = Follower(node)
    follower.fetch((0, 0))
    for timestamp in (1_000, 2_000, 3_000):
        await node.produce(TPS[0], acks=1, batch=build_batch([(None, b"x")], timestamp_ms=timestamp))
    follower.fetch((0, 2))

    async def listed(timestamp: int) -> tuple[int, int]:
        answer = await node.manager.consuming.list_offsets(
            ListOffsetsRequest((ListOffsetsPartition("t", 0, timestamp),))
        )
        return answer.partitions[0].timestamp, answer.partitions[0].offset

    assert await listed(-2) == (-1, 0)
    assert await listed(-1) == (-1, 2)
    assert await listed(1_500) == (2_000, 1)
    assert await listed(2_500) == (-1, -1)  # there is one, but it is not committed
