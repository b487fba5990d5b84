"""What a pipeline asks of the Kafka source."""

from __future__ import annotations

import pytest

from kafkalite_pipelines.definition import Pipeline, Source
from kafkalite_pipelines.source import subscription
from pyspark_kafkalite.options import Subscription


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("orders-.*", ["orders-1"], ["my-orders-1", "orders"]),
        ("a|bc", ["a", "bc"], ["ab", "xa", "bcd"]),
        ("(?i)orders", ["Orders", "orders"], ["orders-1", "my-orders"]),
    ],
)
def test_a_pattern_is_the_whole_name(pattern: str, taken: list[str], left: list[str]) -> None:
    """Spark's option of that name is searched in the topic's name."""
    pipeline = Pipeline(name="p", kafka={}, source=Source(pattern=pattern), sinks=())
    found = Subscription(pattern=subscription(pipeline)["subscribePattern"])
    assert [topic for topic in (*taken, *left) if found.matches(topic)] == taken
