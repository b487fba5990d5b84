"""The batch writer: Arrow rows from Spark, appended by the executors."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter

from pyspark_kafkalite import clients
from pyspark_kafkalite.options import WriteOptions
from pyspark_kafkalite.task_results import TaskWritten
from pyspark_kafkalite.worker_memory import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalite.row_shape import RowShape

log = logging.getLogger("pyspark_kafkalite")

#: Who decides the versions of a batch write's group.
_OWNER = "write"


def _group_of(options: WriteOptions) -> str:
    """The name of a write's group of transactions. A version counts per topic, as Delta's counts per table: a `foreachBatch` that
    writes to two topics gives both the same name and version. Rights are of the prefix txn-group:<txnAppId>: (ADR 73)."""
    if options.txn_app_id is None:
        return str(uuid.uuid4())
    return options.txn_app_id if options.topic is None else f"{options.txn_app_id}:{options.topic}"


class KafkaliteWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Appends each task's rows as they come, or (exactly-once) commits those of all tasks in one step. Pickled, and the
    same for the tasks and the commit: holds values only."""

    def __init__(self, options: WriteOptions, shape: RowShape, connect: clients.Connect = clients.shared) -> None:
        self._options = options
        self._shape = shape
        self._connect = connect
        for warning in options.warnings:
            log.warning("%s", warning)
        #: The name of this write's group of transactions.
        self._group = _group_of(options)
        self._writer = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        from pyspark_kafkalite.sending import RowWriter

        client = self._connect(self._options.client)
        if self._options.exactly_once:
            from pyspark import TaskContext

            from kafkalite.client.transactions import GroupVersion
            from pyspark_kafkalite.exactly_once import batch_attempt, write_prepared

            version = GroupVersion(self._group, _OWNER, self._options.txn_version)
            attempt = batch_attempt(version, TaskContext.get(), self._writer)
            prepared = write_prepared(client, self._options, self._shape, iterator, attempt)
            keep_modules()
            return prepared
        written = RowWriter(client, self._options, self._shape).write(iterator)
        keep_modules()
        return TaskWritten(written.rows, written.bytes, written.offsets)

    def commit(self, messages: list[Any]) -> None:
        if self._options.exactly_once:
            from pyspark_kafkalite import exactly_once

            exactly_once.commit(self._connect(self._options.client), messages)
        keep_modules()
        done = [message for message in messages if message is not None]
        log.info("wrote %d rows in %d tasks", sum(message.rows for message in done), len(done))

    def abort(self, messages: list[Any]) -> None:
        if self._options.exactly_once:
            from pyspark_kafkalite import exactly_once

            exactly_once.abort(self._connect(self._options.client), messages)
            return
        log.warning("the write failed; rows of tasks that had finished stay in the log (at-least-once)")
