"""The kafkalite sink whose second partition Spark must double: `bench.spark_twins`.

Its attempts wait for each other, by files in the directory `notes`: both have sent half of their rows before either goes
on, and in even batches the twin ends first, in odd ones the attempt that was first. Whatever the other would still do, it
does after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_kafkalite.option_parsing import write_options
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.source import KafkaliteDataSource
from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter
from pyspark_kafkalite.writer import KafkaliteWriter

DOUBLED = 1
#: For Spark to see that a task is slow and for its twin to start, on a busy machine.
PATIENCE_S = 90


class TwinDataSource(KafkaliteDataSource):
    @classmethod
    def name(cls) -> str:
        return "twin_kafkalite"

    def streamWriter(self, schema: Any, overwrite: bool) -> TwinStreamWriter:  # noqa: FBT001 - Spark calls it
        return TwinStreamWriter(self.options["notes"], *_given(self.options, schema, streaming=True))

    def writer(self, schema: Any, overwrite: bool) -> TwinWriter:  # noqa: FBT001 - Spark calls it
        return TwinWriter(self.options["notes"], self.options["batch"], *_given(self.options, schema, streaming=False))


def _given(options: Any, schema: Any, *, streaming: bool) -> tuple[Any, Any]:
    ours = write_options({k: v for k, v in options.items() if k not in ("notes", "batch")}, streaming=streaming)
    return ours, row_shape(schema, ours.topic)


class TwinStreamWriter(KafkaliteStreamWriter):
    def __init__(self, notes: str, *given: Any) -> None:
        super().__init__(*given)
        self._notes = notes

    def write(self, iterator: Iterator[Any]) -> Any:
        from pyspark import TaskContext

        batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        return played(self._notes, batch, super().write, iterator)


class TwinWriter(KafkaliteWriter):
    def __init__(self, notes: str, batch: str, *given: Any) -> None:
        super().__init__(*given)
        self._notes = notes
        self._batch = int(batch)

    def write(self, iterator: Iterator[Any]) -> Any:
        return played(self._notes, self._batch, super().write, iterator)


def played(notes: str, batch: int, write: Callable[[Iterator[Any]], Any], rows: Iterator[Any]) -> Any:
    """What `write` makes of the rows of this task's attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context.partitionId() != DOUBLED:
        return write(rows)
    return Scene(notes, str(batch), context.attemptNumber(), ends_first="first" if batch % 2 else "twin").play(
        write, rows
    )


class Scene:
    """One of two attempts of a task. The other one, in another process, has a scene with the same name."""

    def __init__(self, notes: str, name: str, attempt: int, *, ends_first: str) -> None:
        self._notes = Path(notes)
        self._name = name
        self._role = "twin" if attempt else "first"
        self._other = "first" if attempt else "twin"
        self._ends_first = ends_first

    def play(self, write: Callable[[Iterator[Any]], Any], rows: Iterator[pa.RecordBatch]) -> Any:
        written = write(self._halved(rows))
        self._note("wrote")
        return written

    def _note(self, what: str) -> None:
        self._path(self._role, what).touch()

    def _path(self, who: str, what: str) -> Path:
        return self._notes / f"{self._name}-{who}-{what}"

    def _wait(self, who: str, what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self._path(who, what).exists():
            if time.monotonic() > until:
                raise TimeoutError(f"batch {self._name}: {self._role} waits for {who} to have {what} in vain")
            time.sleep(0.02)

    def _halved(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, with the waits after half of each batch."""
        for rows in batches:
            middle = rows.num_rows // 2
            yield rows.slice(0, middle)
            if middle:  # the sink has sent what it took before it asks for more
                self._note("half")
                self._wait(self._other, "half")
                if self._role != self._ends_first:
                    self._wait(self._ends_first, "wrote")
            yield rows.slice(middle)
