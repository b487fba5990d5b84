"""The rows that the sink takes, and where each goes.

Source: Spark's KafkaWriter and KafkaRowWriter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from pyspark_kafkalite.arrow_types import HEADER_ARROW
from pyspark_kafkalite.encode import Rows, lengths
from pyspark_kafkalite.partitioner import Partitioner
from pyspark_kafkalite.row_shape import RowShape


class BadRow(KafkaliteError):
    """A row cannot be written: no topic, no such partition. The message names it."""


@dataclass(slots=True)
class RowRouter:
    """Finds the topic and partition of each row. `partition_count` says how many partitions a topic has.

    Destinations are numbered: `destinations[n]` is (topic, partition).
    """

    shape: RowShape
    topic: str | None
    partition_count: Callable[[str], int]
    sticky_bytes: int
    rng: random.Random
    destinations: list[tuple[str, int]] = field(default_factory=list)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    _partitioners: dict[str, Partitioner] = field(default_factory=dict)

    def route(self, batch: pa.RecordBatch | pa.Table) -> tuple[Rows, npt.NDArray[np.int64]]:
        """The rows, sorted by destination (rows of one destination keep their order), and their destinations.

        Raises:
            BadRow: a topic that is null or does not exist, or a partition that it does not have.
        """
        keys, values = self._bytes(batch, "key"), self._bytes(batch, "value")
        headers = self._column(batch, "headers")
        if headers is not None:
            headers = pc.cast(headers, pa.list_(HEADER_ARROW))
        sizes = lengths(keys) + lengths(values)
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        where = np.empty(len(values), np.int64)
        for topic, at in self._by_topic(batch):
            partitions = self._partitions(topic, batch, keys, has_key[at], sizes, at)
            number_of = np.array([self._number(topic, p) for p in range(self.partition_count(topic))], np.int64)
            where[at] = number_of[partitions]
        if len(where) and (where[1:] < where[:-1]).any():
            order = np.argsort(where, kind="stable")
            index = pa.array(order)
            keys, values = keys.take(index), values.take(index)
            headers = headers.take(index) if headers is not None else None
            where = where[order]
        return Rows(keys, values, headers), where

    def _column(self, batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array | None:
        position = self.shape.positions.get(name)
        if position is None:
            return None
        column = batch.column(position)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def _bytes(self, batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
        column = self._column(batch, name)
        return pa.nulls(batch.num_rows, pa.binary()) if column is None else pc.cast(column, pa.binary())

    def _by_topic(self, batch: pa.RecordBatch | pa.Table) -> list[tuple[str, npt.NDArray[np.int64]]]:
        """Row numbers per topic, ascending."""
        everything = np.arange(batch.num_rows, dtype=np.int64)
        if self.topic is not None:
            return [(self.topic, everything)]
        column = self._column(batch, "topic")
        assert column is not None
        encoded = pc.dictionary_encode(pc.cast(column, pa.string()))
        topics = encoded.dictionary.to_pylist()
        if column.null_count or "" in topics:
            raise BadRow("a row has no topic (null or empty): give every row one, or use the option topic")
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        by_code = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[by_code], np.arange(len(topics) + 1)).tolist()
        return [(topic, by_code[bounds[n] : bounds[n + 1]]) for n, topic in enumerate(topics)]

    def _partitions(
        self,
        topic: str,
        batch: pa.RecordBatch | pa.Table,
        keys: pa.Array,
        has_key: npt.NDArray[np.bool_],
        sizes: npt.NDArray[np.int64],
        at: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int32]:
        """The partition of each of the rows `at`: the column's, else by key (`has_key` is of these rows), else the sticky one."""
        count = self.partition_count(topic)
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = self._partitioners[topic] = Partitioner(count, self.sticky_bytes, self.rng)
        chosen = np.full(len(at), -1, np.int32)
        column = self._column(batch, "partition")
        if column is not None:
            taken = column.take(pa.array(at))
            chosen = pc.fill_null(taken, -1).to_numpy(zero_copy_only=False).astype(np.int32)
            given = taken.is_valid().to_numpy(zero_copy_only=False)
            wrong = given & ((chosen < 0) | (chosen >= count))
            if wrong.any():
                raise BadRow(
                    f"a row has partition {chosen[wrong][0]} of {topic}, which has partitions 0 to {count - 1}"
                )
        keyed, unkeyed = np.flatnonzero((chosen < 0) & has_key), np.flatnonzero((chosen < 0) & ~has_key)
        if len(keyed):
            chosen[keyed] = partitioner.keyed(keys if len(keyed) == len(keys) else keys.take(pa.array(at[keyed])))
        if len(unkeyed):
            chosen[unkeyed] = partitioner.unkeyed(sizes[at[unkeyed]])
        return chosen

    def _number(self, topic: str, partition: int) -> int:
        number = self._numbers.get((topic, partition))
        if number is None:
            number = self._numbers[topic, partition] = len(self.destinations)
            self.destinations.append((topic, partition))
        return number


#: Number of rows, and of bytes, of one Arrow batch, for Spark versions that pass rows to a streaming writer.
_ROWS_TOGETHER, _BYTES_TOGETHER = 10_000, 16 << 20


def batches_of(rows: Iterable[Sequence[Any]], shape: RowShape) -> Iterator[pa.RecordBatch]:
    """Arrow batches of Spark rows: what Spark 4.1 and later do themselves, faster."""
    names = {position: name for name, position in shape.positions.items()}
    for together in _together(rows, [shape.positions[name] for name in ("key", "value") if name in shape.positions]):
        columns = [_column_of(names.get(at), [row[at] for row in together]) for at in range(max(names) + 1)]
        yield pa.RecordBatch.from_arrays(columns, names=[f"_{at}" for at in range(len(columns))])


def _together(rows: Iterable[Sequence[Any]], sized: Sequence[int]) -> Iterator[list[Sequence[Any]]]:
    """Rows in lists; `sized` are the positions of the columns whose bytes count."""
    together: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        together.append(row)
        size += sum(len(row[at]) for at in sized if row[at] is not None)
        if len(together) >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
            yield together
            together, size = [], 0
    if together:
        yield together


def _column_of(name: str | None, values: list[Any]) -> pa.Array:
    match name:
        case None:
            return pa.nulls(len(values))
        case "partition":
            return pa.array(values, pa.int32())
        case "headers":
            plain = [
                None if v is None else [None if h is None else {"key": h[0], "value": h[1]} for h in v] for v in values
            ]
            return pa.array(plain, pa.list_(HEADER_ARROW))
        case _:
            column = pa.array(values)  # text or bytes, as the query has it
            return column if column.type != pa.null() else column.cast(pa.binary())
