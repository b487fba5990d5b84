"""The batch reader: planned on the driver, read on executors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafkalite import clients
from pyspark_kafkalite.columns import Column
from pyspark_kafkalite.filters import Narrowing, narrow
from pyspark_kafkalite.offsets import OffsetRange, plan
from pyspark_kafkalite.options import ReadOptions
from pyspark_kafkalite.worker_memory import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyspark_kafkalite")


@dataclass(frozen=True)
class RangePartition(InputPartition):  # type: ignore[misc]
    """One task's work."""

    range: OffsetRange
    #: Of a stream: nothing of this partition comes after it in the batch.
    is_last: bool = False
    #: Of a stream: the name that its position keeps.
    query: str = ""


class KafkaliteReader(DataSourceReader):  # type: ignore[misc]
    """Reads offset ranges that are fixed when the query is planned. Pickled to the executors: holds values only."""

    def __init__(
        self, options: ReadOptions, columns: tuple[Column, ...], connect: clients.Connect = clients.shared
    ) -> None:
        self._options = options
        self._columns = columns
        self._connect = connect
        self._narrowing = Narrowing()
        self.pushFilters = _PushFilters(self)
        for warning in options.warnings:
            log.warning("%s", warning)

    def narrow(self, filters: Iterable[Any], *, keeps_plans_apart: bool) -> None:
        """Plan for these filters only, if the option filterPushdown lets us with such a Spark."""
        pushdown = self._options.filter_pushdown
        if pushdown == "always" or (pushdown == "auto" and keeps_plans_apart):
            self._narrowing = narrow(filters)

    def partitions(self) -> Sequence[RangePartition]:
        """One task per partition, or more where minPartitions or maxRecordsPerPartition say so."""
        from pyspark_kafkalite.cluster import TopicReader

        ranges = TopicReader(self._connect(self._options.client), self._options).ranges(self._narrowing)
        planned = plan(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        keep_modules()
        return [RangePartition(part) for part in planned]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        from pyspark_kafkalite.fetching import RangeReader

        # None is what an empty plan is read with
        if partition is None or getattr(partition, "range", None) is None:
            return
        client = self._connect(self._options.client)
        yield from RangeReader(client, self._options.fetch).read(partition.range, self._columns)
        keep_modules()


class _PushFilters:
    """Takes filters whatever spark.sql.python.filterPushdown.enabled says.

    It is off by default, and Spark then refuses a reader whose class overrides pushFilters: it compares the method's
    `__func__` with the base class's. So ours shows that one, and is called when pushdown is on.

    Up to 4.3 Spark keeps the plan that a filter led to with the DataFrame, for whatever is asked of that next: after
    `df.where("offset < 5").count()` a narrowed `df.count()` is 5, too. The version that has `pushLimit` (SPARK-58551) keeps it
    with the scan; before it nothing is narrowed unless the option filterPushdown is `always`.
    """

    keeps_plans_apart = hasattr(DataSourceReader, "pushLimit")

    __func__ = staticmethod(DataSourceReader.pushFilters) if hasattr(DataSourceReader, "pushFilters") else None

    def __init__(self, reader: KafkaliteReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        self._reader.narrow(filters, keeps_plans_apart=self.keeps_plans_apart)
        return filters
