"""Large produce requests are carried out in pieces: in order, with one answer, and nothing of them after the end."""

from __future__ import annotations

import asyncio
import math

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.replica import produce as producing
from tests.support.logs import build_batch

PARTITIONS = [TopicPartition("t", number) for number in range(7)]


class Asked:
    """Requests to one leader, and their answers in the order in which they came."""

    def __init__(self, node) -> None:
        self._node = node
        self.answers: list[tuple[str, tuple[ProducedPartition, ...]]] = []

    def produce(self, name: str, partitions: list[TopicPartition], *, acks: int = 1) -> None:
        records = [(tp, build_batch([(None, name.encode())])) for tp in partitions]
        self._node.manager.producing.produce(acks, 5_000, records, lambda results: self.answers.append((name, results)))

    def ends(self) -> list[int]:
        return [self._node.partition(tp).log.log_end_offset for tp in PARTITIONS]


@pytest.fixture
async def asked(make_cluster, monkeypatch) -> Asked:
    monkeypatch.setattr(producing, "PIECE", 3)
    monkeypatch.setattr(producing, "PIECE_S", math.inf)
    cluster = await make_cluster(1)
    cluster.create_topic("t", {tp.partition: (1,) for tp in PARTITIONS})
    await cluster.command_all(*[cluster.decide(tp, leader=1, isr=(1,), epoch=0) for tp in PARTITIONS])
    return Asked(cluster.node(1))


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_piece_at_a_time_and_one_answer(asked: Asked, until, acks: int) -> None:
    asked.produce("large", PARTITIONS, acks=acks)
    assert asked.ends() == [1, 1, 1, 0, 0, 0, 0]
    assert not asked.answers
    await asyncio.sleep(0)
    assert asked.ends() == [1, 1, 1, 1, 1, 1, 0]
    await until(lambda: asked.answers)
    assert asked.ends() == [1] * 7
    [(_, results)] = asked.answers
    assert [(each.partition, each.error, each.base_offset) for each in results] == [(n, 0, 0) for n in range(7)]


async def test_a_piece_is_also_over_when_it_takes_long(asked: Asked, until, monkeypatch) -> None:
    monkeypatch.setattr(producing, "PIECE_S", 0)
    asked.produce("large", PARTITIONS)
    assert asked.ends() == [1, 0, 0, 0, 0, 0, 0]
    asked.produce("second", PARTITIONS[:1])
    await asyncio.sleep(0)
    assert asked.ends() == [1, 1, 0, 0, 0, 0, 0]
    await until(lambda: len(asked.answers) == 2)
    assert asked.ends() == [2, 1, 1, 1, 1, 1, 1]


async def test_what_comes_later_is_appended_later(asked: Asked, until) -> None:
    asked.produce("large", PARTITIONS)
    asked.produce("second", [PARTITIONS[6], PARTITIONS[0]])
    asked.produce("third", [PARTITIONS[6]])
    await until(lambda: len(asked.answers) == 3)
    assert [name for name, _ in asked.answers] == ["large", "second", "third"]
    offsets = {name: [each.base_offset for each in results] for name, results in asked.answers}
    assert offsets == {"large": [0] * 7, "second": [1, 1], "third": [2]}


async def test_what_waits_is_kept_from_the_buffer_that_it_came_in(asked: Asked, until) -> None:
    """The Kafka listener's connections share one: the next frame is written over the records."""
    node = asked._node
    batches = [build_batch([(None, b"value-%d" % tp.partition)]) for tp in PARTITIONS]
    buffer = bytearray(b"".join(batches))
    view, position, records = memoryview(buffer), 0, []
    for tp, batch in zip(PARTITIONS, batches, strict=True):
        records.append((tp, view[position : position + len(batch)]))
        position += len(batch)
    told: list[tuple[ProducedPartition, ...]] = []
    node.manager.producing.produce(1, 5_000, records, told.append)
    node.manager.producing.produce(1, 5_000, records[:1], told.append)  # behind it
    buffer[:] = bytes(len(buffer))
    await until(lambda: len(told) == 2)
    assert [each.error for results in told for each in results] == [0] * 8
    assert asked.ends() == [2, 1, 1, 1, 1, 1, 1]
    for tp, batch in zip(PARTITIONS, batches, strict=True):
        _, body = await node.fetch(tp, 0)
        assert body[61:].startswith(batch[61:])  # the header has its offset and epoch now


async def test_small_requests_are_carried_out_at_once(asked: Asked) -> None:
    asked.produce("small", PARTITIONS[:3])
    assert [name for name, _ in asked.answers] == ["small"]


async def test_at_the_end_the_rest_is_refused(asked: Asked) -> None:
    asked.produce("large", PARTITIONS)
    asked.produce("second", PARTITIONS[:1])
    asked._node.manager.producing.close()
    (_, first), (_, second) = asked.answers
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.error for each in (*first, *second)] == [0, 0, 0, *[refused] * 5]
    await asyncio.sleep(0)
    assert asked.ends() == [1, 1, 1, 0, 0, 0, 0]
