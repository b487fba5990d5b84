"""What a node measures every few seconds: what clients may make of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from kafkalite.http.sampling import MAX_GROUP_ID, Sampler
from kafkalite.model import TopicPartition


async def test_the_lag_of_groups_with_endless_names_is_counted_as_omitted() -> None:
    """2,000 lines of the metrics with a name of 32 kB each made a page of 64 MB."""
    offsets = [(TopicPartition("t", number), 1) for number in range(5)]

    def committed_by_group() -> Iterator[tuple[str, int, list[tuple[TopicPartition, int]]]]:
        yield "g" * (MAX_GROUP_ID + 1), 1, offsets
        yield "g" * MAX_GROUP_ID, 2, offsets

    partition = SimpleNamespace(leader=object(), high_watermark=3)
    node: Any = SimpleNamespace(
        kafka=SimpleNamespace(groups=SimpleNamespace(committed_by_group=committed_by_group)),
        replicas=SimpleNamespace(hosted=dict.fromkeys(dict(offsets), partition)),
    )
    sampler = Sampler(node)
    await sampler._sample_lag()
    assert sampler.lag == {"g" * MAX_GROUP_ID: dict.fromkeys(dict(offsets), 2)}
    assert sampler.omitted == 5
