"""A stream whose options are wrong: the error reaches the user at the first question to the reader.

If a source raises while it makes its streaming reader, Spark up to 4.3 reports an `UnboundLocalError` of its own, because it stops
the reader that there is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_kafkalite.options import OptionError


class RefusedStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Raises the error wherever a query begins: with its first offset, or with the batch that a restart repeats."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error

    def stop(self) -> None:
        """There is nothing to stop."""
