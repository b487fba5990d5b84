"""The kafkalite sink with accidents, for `bench.spark_exactly_once`: each planned one happens once, over restarts too.

Accidents are named `<what>-<batch>` in the option `accidents`; a file in the directory `flags` remembers those that were.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_kafkalite.clients import shared
from pyspark_kafkalite.options import write_options
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.source import KafkaliteDataSource
from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter

_OURS = ("accidents", "flags", "jvm", "nodes")


class FailingDataSource(KafkaliteDataSource):
    @classmethod
    def name(cls) -> str:
        return "failing_kafkalite"

    def streamWriter(self, schema: Any, overwrite: bool) -> FailingWriter:
        options = write_options({k: v for k, v in self.options.items() if k not in _OURS}, streaming=True)
        return FailingWriter(options, row_shape(schema, options.topic), {k: self.options[k] for k in _OURS})


class FailingWriter(KafkaliteStreamWriter):
    def __init__(self, options: Any, shape: Any, plan: dict[str, str]) -> None:
        super().__init__(options, shape)
        self._plan = plan

    def _due(self, what: str, batch: int) -> bool:
        name = f"{what}-{batch}"
        if name not in self._plan["accidents"].split(","):
            return False
        try:
            os.close(os.open(Path(self._plan["flags"]) / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def write(self, iterator: Iterator[Any]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = int(context.getLocalProperty("streaming.sql.batchId"))
        if context.partitionId() != 1:
            return super().write(iterator)
        written = super().write(self._broken(iterator, batch))
        if self._due("exit-at-the-end", batch):
            os._exit(9)
        return written

    def _broken(self, iterator: Iterator[pa.RecordBatch], batch: int) -> Iterator[pa.RecordBatch]:
        """Half of the rows, then the accident."""
        for rows in iterator:
            middle = rows.num_rows // 2
            yield rows.slice(0, middle)
            if middle and self._due("raise", batch):
                raise RuntimeError("an accident, as planned")
            if middle and self._due("exit", batch):
                os._exit(9)
            yield rows.slice(middle)

    def commit(self, messages: list[Any], batchId: int) -> None:
        if self._due("kill-driver-before", batchId):
            self._kill_driver()
        if self._due("kill-coordinator-before", batchId):
            self._kill_coordinator(messages)
        super().commit(messages, batchId)
        if self._due("kill-coordinator-after", batchId):
            self._kill_coordinator(messages)
        if self._due("raise-after", batchId):
            raise RuntimeError("an accident, as planned")
        if self._due("kill-driver-after", batchId):
            self._kill_driver()

    def _kill_driver(self) -> None:
        os.kill(int(self._plan["jvm"]), signal.SIGKILL)
        time.sleep(60)  # until the death of the JVM has reached us

    def _kill_coordinator(self, messages: list[Any]) -> None:
        """kill -9 for the node that decides for this query; any node if there is nothing to decide."""
        nodes = {int(node): pid for node, pid in json.loads(self._plan["nodes"]).items()}
        groups = [decided.group for m in messages if (decided := getattr(m, "decided", None)) is not None]
        client: Any = shared(self._options.client)
        victim = client._find(groups[0], time.monotonic() + 10) if groups else min(nodes)
        os.kill(nodes[victim], signal.SIGKILL)
