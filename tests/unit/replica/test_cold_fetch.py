"""Records that are not in the page cache: a consumer and a follower get them all the same, and nobody waits for the disk on the loop."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.env.residency import NotResident, is_required
from kafkalite.log.cold_reads import ATTEMPTS
from kafkalite.log.partition_log import PartitionLog
from kafkalite.log.reading import ReadInfo
from kafkalite.model import Offset, TopicPartition
from kafkalite.replica.client_fetch import ClientFetch, FetchTerms
from tests.support.fetching import answered

TPS = [TopicPartition("t", 0)]


@pytest.fixture
async def node(make_cluster: Any) -> Any:
    """A leader of one partition with no follower."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", {0: (1,)})
    await cluster.command(1, cluster.decide(TPS[0], leader=1, isr=(1,), epoch=0))
    return cluster.node(1)


class ColdLog:
    """The first `misses` reads that may not wait find nothing in the page cache."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, misses: int) -> None:
        self.left = misses
        self.waited = 0
        real = PartitionLog._read

        def read(log: PartitionLog, offset: int, *rest: Any, **options: Any) -> ReadInfo:
            if is_required():
                self.left -= 1
                if self.left >= 0:
                    raise NotResident(log.segments[0].log_path, 0, 10)
            else:
                self.waited += 1
            return real(log, offset, *rest, **options)

        monkeypatch.setattr(PartitionLog, "_read", read)


@pytest.mark.parametrize("terms", [FetchTerms(0, 0, 1 << 20), FetchTerms(0, 1, 1 << 20), FetchTerms(500, 1, 1 << 20)])
@pytest.mark.parametrize("misses", [1, ATTEMPTS - 1])
async def test_a_consumer_gets_records_from_the_disk_also_if_it_would_not_wait(
    node: Any, until: Any, monkeypatch: pytest.MonkeyPatch, terms: FetchTerms, misses: int
) -> None:
    await node.produce(TPS[0], b"x", acks=1)
    cold = ColdLog(monkeypatch, misses)
    answers: list[int] = []
    fetch = ClientFetch()
    entry = fetch.list(TPS[0], Offset(0), 1 << 20)

    done = answered(lambda: answers.append(entry.records_size))
    node.manager.consuming.fetch(fetch, terms, done)
    assert not answers, "an empty answer would say that there is nothing"
    await until(lambda: answers)
    assert answers[0] > 0
    assert not cold.waited and node.manager.cold.loads == misses


async def test_where_pages_go_as_they_come_the_read_waits_in_the_end(
    node: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.produce(TPS[0], b"x", acks=1)
    cold = ColdLog(monkeypatch, 1000)
    answers: list[int] = []
    fetch = ClientFetch()
    entry = fetch.list(TPS[0], Offset(0), 1 << 20)

    done = answered(lambda: answers.append(entry.records_size))
    node.manager.consuming.fetch(fetch, FetchTerms(0, 1, 1 << 20), done)
    await until(lambda: answers)
    assert answers[0] > 0
    assert (cold.waited, node.manager.cold.loads) == (1, ATTEMPTS)
