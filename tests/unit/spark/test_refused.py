"""Wrong options of a stream: the error is ours, not one of Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyspark_kafkalite.columns import spark_schema
from pyspark_kafkalite.options import OptionError
from pyspark_kafkalite.source import KafkaliteDataSource


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.latestOffset({"t": {"0": 1}}, None),
        lambda reader: reader.partitions({"t": {"0": 1}}, {"t": {"0": 2}}),
    ],
)
def test_the_first_question_gets_the_error(ask: Callable[[Any], Any]) -> None:
    """Spark stops a reader whether it has one or not: an error in its making is lost in Spark's own."""
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "maxOffsetsPerTrigger": "few"}
    reader = KafkaliteDataSource(options).streamReader(spark_schema(include_headers=False))
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger is a whole number, not 'few'"):
        ask(reader)
    reader.stop()
