"""The kafkalite sink with accidents, for `bench.spark_exactly_once`: each planned one happens once, over restarts too.

Accidents are named `<what>-<batch>` in the option `accidents`; a link in the directory `flags` remembers those that were,
and in which life of the driver. `twins-<batch>` makes Spark double a task, see `bench.twin_sink`.
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

from bench.twin_sink import DOUBLED, Scene
from kafkalite.client import messages as wire_messages
from kafkalite.extension.transaction_groups import transactional_id
from pyspark_kafkalite.clients import shared
from pyspark_kafkalite.option_parsing import write_options
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.source import KafkaliteDataSource
from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter

_OURS = ("accidents", "flags", "jvm", "life", "nodes", "notes")


class FailingDataSource(KafkaliteDataSource):
    @classmethod
    def name(cls) -> str:
        return "failing_kafkalite"

    def streamWriter(self, schema: Any, overwrite: bool) -> FailingWriter:  # noqa: FBT001 - Spark calls it
        options = write_options({k: v for k, v in self.options.items() if k not in _OURS}, streaming=True)
        return FailingWriter(options, row_shape(schema, options.topic), {k: self.options[k] for k in _OURS})


class FailingWriter(KafkaliteStreamWriter):
    def __init__(self, options: Any, shape: Any, plan: dict[str, str]) -> None:
        super().__init__(options, shape)
        self._plan = plan

    def _due(self, what: str, batch: int) -> bool:
        return self._happens_in(what, batch) == "now"

    def _happens_in(self, what: str, batch: int) -> str:
        """The life of the driver in which it has happened; "now" for the one who asks first; "" if it is not planned."""
        name = f"{what}-{batch}"
        if name not in self._plan["accidents"].split(","):
            return ""
        flag = Path(self._plan["flags"]) / name
        try:
            flag.symlink_to(self._plan["life"])  # made by one only, and whole at once
        except FileExistsError:
            return str(flag.readlink())
        return "now"

    def _scene(self, batch: int, attempt: int) -> Scene | None:
        """Both attempts play in it, whichever begins first, in one life of the driver; who comes after them doesn't."""
        life = self._plan["life"]
        if attempt > 1 or self._happens_in("twins", batch) not in ("now", life):
            return None
        return Scene(self._plan["notes"], f"{batch}-{life}", attempt, ends_first="first" if batch % 2 else "twin")

    def write(self, iterator: Iterator[Any]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = int(context.getLocalProperty("streaming.sql.batchId"))
        if context.partitionId() != DOUBLED:
            return super().write(iterator)
        scene = self._scene(batch, context.attemptNumber())
        if scene is not None:
            return scene.play(super().write, iterator)
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
            if middle and self._due("kill-driver-during", batch):
                os.kill(int(self._plan["jvm"]), signal.SIGKILL)  # and this attempt goes on for as long as it can
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
        victim = min(nodes)
        if groups:
            flow = client.routing.coordinator(wire_messages.TRANSACTION, transactional_id(groups[0], ""), 10.0)
            victim = client.run(flow)
        os.kill(nodes[victim], signal.SIGKILL)
