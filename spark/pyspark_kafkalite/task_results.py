"""What a task reports to the commit of its write."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote."""

    rows: int
    bytes: int
    #: (topic, partition, first offset, end offset); others may have written in between.
    offsets: tuple[tuple[str, int, int, int], ...] = ()
