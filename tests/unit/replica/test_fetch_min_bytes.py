"""A consumer's min_bytes counts what is there for it, as in Kafka, and not what whole batches leave of that."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import Offset, TopicPartition
from kafkalite.replica.client_fetch import AT_ONCE, ClientFetch, FetchTerms
from tests.support.fetching import answered

TPS = [TopicPartition("t", number) for number in range(2)]
FOREVER_MS = 600_000


@pytest.fixture
async def node(make_cluster: Any) -> Any:
    """A leader of two partitions with ten batches each."""
    cluster = await make_cluster(1)
    cluster.create_topic("t", dict.fromkeys(range(2), (1,)))
    for each in TPS:
        await cluster.command(1, cluster.decide(each, leader=1, isr=(1,), epoch=0))
        for _ in range(10):
            await cluster.node(1).produce(each, b"x" * 100, acks=1)
    return cluster.node(1)


def fetched_bytes(node: Any, terms: FetchTerms, *, partition_max_bytes: int, partitions: int = 1) -> list[int]:
    """Bytes of the answer, as a list of one; empty: the fetch waits."""
    fetch = ClientFetch()
    for each in TPS[:partitions]:
        fetch.list(each, Offset(0), partition_max_bytes)
    found: list[int] = []
    done = answered(lambda: found.append(sum(entry.records_size for entry in fetch.due())))
    node.manager.consuming.fetch(fetch, terms, done, None, AT_ONCE)
    return found


@pytest.mark.parametrize("partition_max_bytes", [400, 500, 600])
async def test_a_partition_that_has_more_than_it_may_give_counts_as_full(node: Any, partition_max_bytes: int) -> None:
    terms = FetchTerms(FOREVER_MS, partition_max_bytes, 1 << 20)
    [size] = fetched_bytes(node, terms, partition_max_bytes=partition_max_bytes)
    assert 0 < size < partition_max_bytes, "whole batches do not fill it"


async def test_an_answer_that_is_full_does_not_wait_for_more(node: Any) -> None:
    [size] = fetched_bytes(node, FetchTerms(FOREVER_MS, 1 << 20, 400), partition_max_bytes=1 << 20, partitions=2)
    assert 0 < size < 400


async def test_partitions_count_with_what_they_may_give_at_most(node: Any) -> None:
    terms = FetchTerms(FOREVER_MS, 1_000, 1 << 20)
    assert fetched_bytes(node, terms, partition_max_bytes=500) == []
    assert len(fetched_bytes(node, terms, partition_max_bytes=500, partitions=2)) == 1


async def test_a_partition_counts_no_more_than_it_has(node: Any) -> None:
    assert fetched_bytes(node, FetchTerms(FOREVER_MS, 1 << 19, 1 << 20), partition_max_bytes=1 << 20) == []


async def test_a_size_below_zero_is_an_error_where_something_would_be_read(node: Any) -> None:
    """As Kafka 4.4.0 answers (LogSegment.read)."""
    for offset, of_partition, of_all, error in (
        (0, -1, 1 << 20, ErrorCode.UNKNOWN_SERVER_ERROR),
        (0, 1 << 20, -1, ErrorCode.UNKNOWN_SERVER_ERROR),
        (0, 0, 0, ErrorCode.NONE),
        (10, -1, -1, ErrorCode.NONE),
    ):
        fetch = ClientFetch()
        entry = fetch.list(TPS[0], Offset(offset), of_partition)
        node.manager.consuming.fetch(fetch, FetchTerms(0, 1, of_all), answered(lambda: None), None, AT_ONCE)
        assert entry.error == error
