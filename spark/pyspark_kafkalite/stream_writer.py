"""The streaming writer: each micro-batch's rows, appended at least once, or exactly once (`exactly_once`)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark_kafkalite import clients
from pyspark_kafkalite.options import WriteOptions
from pyspark_kafkalite.task_results import TaskWritten
from pyspark_kafkalite.worker_memory import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalite.row_shape import RowShape

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter

    _GIVES_ROWS = False
except ImportError:  # Spark 4.0
    from pyspark.sql.datasource import DataSourceStreamWriter as StreamWriter

    _GIVES_ROWS = True

log = logging.getLogger("pyspark_kafkalite")


class KafkaliteStreamWriter(StreamWriter):  # type: ignore[misc]
    """At least once: what a task attempt sends is in the log once; a batch that Spark runs again is in it again, as
    with Spark's own Kafka sink. Built again in other processes for each batch: holds values only."""

    def __init__(self, options: WriteOptions, shape: RowShape, connect: clients.Connect = clients.shared) -> None:
        self._options = options
        self._shape = shape
        self._connect = connect
        self._writer = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        from pyspark_kafkalite.rows import batches_of
        from pyspark_kafkalite.sending import RowWriter

        batches: Iterator[pa.RecordBatch] = batches_of(iterator, self._shape) if _GIVES_ROWS else iterator
        client = self._connect(self._options.client)
        if self._options.exactly_once:
            from pyspark import TaskContext

            from pyspark_kafkalite.exactly_once import streaming_attempt, write_prepared

            attempt = streaming_attempt(self._options, TaskContext.get(), self._writer)
            prepared = write_prepared(client, self._options, self._shape, batches, attempt)
            keep_modules()
            return prepared
        written = RowWriter(client, self._options, self._shape).write(batches)
        keep_modules()
        return TaskWritten(written.rows, written.bytes, written.offsets)

    def commit(self, messages: list[Any], batchId: int) -> None:
        if self._options.exactly_once:
            from pyspark_kafkalite import exactly_once

            exactly_once.commit(self._connect(self._options.client), messages)
        keep_modules()
        if batchId == 0:  # a process that commits a batch knows of no other: else each batch would say it
            for warning in self._options.warnings:
                log.warning("%s", warning)
        log.info("batch %d: wrote %d rows", batchId, sum(message.rows for message in messages if message is not None))

    def abort(self, messages: list[Any], batchId: int) -> None:
        if self._options.exactly_once:
            from pyspark_kafkalite import exactly_once

            exactly_once.abort(self._connect(self._options.client), messages)
            return
        log.warning("batch %d failed; what its tasks had written stays in the log (at-least-once)", batchId)
