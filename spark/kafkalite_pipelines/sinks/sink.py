"""What a batch needs of a sink: stage its rows, then commit them once, under the batch's number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch. (query, number) is the same if the batch runs again, and its records are the same."""

    pipeline: str
    #: The id in the checkpoint: a new checkpoint is a new query.
    query: str
    number: int
    #: topic -> partition -> next offset, after this batch.
    offsets: Mapping[str, Mapping[str, int]]

    @property
    def prefix(self) -> str:
        """Of the names of its files."""
        return prefix(self.query, self.number)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a table's own log says of a pipeline: the last batch that it has."""

    query: str
    number: int
    #: Empty: it has batches of the pipeline, and no longer says where they end.
    offsets: Mapping[str, Mapping[str, int]]

    def has(self, batch: Batch) -> bool:
        return self.query == batch.query and self.number >= batch.number

    def is_of_newer_checkpoint(self, batch: Batch) -> bool:
        """Whether the checkpoint has lost batches: it plans this number again with other records, or one before the table's last."""
        if self.query != batch.query or self.number < batch.number:
            return False
        return self.number > batch.number or self.offsets != batch.offsets


class Staged(Protocol):
    """Rows that are written, but not visible yet."""

    def commit(self) -> int:
        """Make them visible, in one step with the batch's number. A batch that is there already adds nothing.

        Returns the number of rows that were added or changed.
        """
        ...

    def discard(self) -> None:
        """The batch fails: they will never be visible."""
        ...


class OpenSink(Protocol):
    """A sink that is connected."""

    @property
    def name(self) -> str: ...

    #: Whether `stage` has read all rows when it returns.
    eager: bool

    def recorded(self) -> Recorded | None:
        """The last batch of this pipeline in the sink; None if there is none, or the sink cannot say."""
        ...

    def stage(self, rows: DataFrame, batch: Batch) -> Staged: ...

    def maintain(self) -> str | None:
        """Compact, expire: if it is due. What was done, in words."""
        ...


def prefix(query: str, number: int) -> str:
    return f"{query[:8]}-{number:08d}"


def merged_json(offsets: Mapping[str, Mapping[str, int]]) -> str:
    """Offsets as text, always the same for the same offsets."""
    import json

    ordered: dict[str, Any] = {
        topic: dict(sorted(offsets[topic].items(), key=lambda each: int(each[0]))) for topic in sorted(offsets)
    }
    return json.dumps(ordered, separators=(",", ":"))
