"""The batch writer: Arrow rows from Spark, appended by the executors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_kafkalite import clients
from pyspark_kafkalite.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalite.rows import RowShape

log = logging.getLogger("pyspark_kafkalite")


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote."""

    rows: int
    bytes: int
    #: (topic, partition, first offset, end offset); others may have written in between.
    offsets: tuple[tuple[str, int, int, int], ...] = ()


class KafkaliteWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Appends each task's rows as they come: there is no transaction over tasks. Pickled: holds values only."""

    def __init__(self, options: WriteOptions, shape: RowShape, connect: clients.Connect = clients.shared) -> None:
        self._options = options
        self._shape = shape
        self._connect = connect
        for warning in options.warnings:
            log.warning("%s", warning)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        from pyspark_kafkalite.sending import RowWriter

        written = RowWriter(self._connect(self._options.client), self._options, self._shape).write(iterator)
        return TaskWritten(written.rows, written.bytes, written.offsets)

    def commit(self, messages: list[Any]) -> None:
        done = [message for message in messages if message is not None]
        log.info("wrote %d rows in %d tasks", sum(message.rows for message in done), len(done))

    def abort(self, messages: list[Any]) -> None:
        log.warning("the write failed; rows of tasks that had finished stay in the log (at-least-once)")
