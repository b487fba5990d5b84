"""Are the tables of `bench.pipeline_run` equal to the topic: row by row, nothing twice, nothing missing?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.pipeline_run_data import FLIGHTS, LAST_YEAR, PARTITIONS, Data
from kafkalite.client.blocking import BlockingClient
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from kafkalite.record.reader import read_records

COLUMNS = (
    "n", "serial", "at", "carrier", "flight", "tailnum", "origin", "dest", "distance", "delay", "_partition", "_offset",
)  # fmt: skip
_TEXTS = ("carrier", "tailnum", "origin", "dest")
#: Stands for a null among numbers.
_NULL = -(2**31)


class CheckedTopic:
    """The topic as a reader without Spark sees it: which flight is at which offset. Raises AssertionError: other bytes."""

    def __init__(self, bootstrap: Sequence[str], data: Data) -> None:
        self.numbers: list[np.ndarray] = []
        with BlockingClient(",".join(bootstrap)) as client:
            for partition in range(PARTITIONS[FLIGHTS]):
                key = TopicPartition(FLIGHTS, partition)
                begin = client.list_offsets({key: EARLIEST_TIMESTAMP})[key].offset
                end = client.list_offsets({key: LATEST_TIMESTAMP})[key].offset
                assert begin == 0, f"{key} begins at {begin}"
                numbers, at = np.full(end, _NULL, np.int64), 0
                while at < end:
                    for record in read_records(client.fetch_raw(key, at, 4 << 20, 500).records, check_crc=False):
                        if record.offset < at or record.value is None:
                            continue
                        n = int(record.value[5 : record.value.index(b",")])
                        assert n < 0 or record.value == data.value(n), record
                        numbers[record.offset], at = n, record.offset + 1
                assert _NULL not in numbers, f"{key} has holes"
                self.numbers.append(numbers)
        self.records = sum(map(len, self.numbers))


class Expected:
    """What each column must be, by the flight's number."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._size = len(data.fields)
        years = range(data.repetitions)
        self._times = [
            np.array([f"{year + more}{rest[:-1]}" for year, rest in data.times], "datetime64[ms]").astype(np.int64)
            for more in years
        ]
        names = ("carrier", "flight", "tailnum", "origin", "dest", "distance")
        self._fields = {
            name: np.array(values, object) for name, values in zip(names, zip(*data.fields, strict=True), strict=True)
        }
        self._delays = np.array([_NULL if delay is None else delay for delay in data.delays], np.int64)

    def column(self, name: str, n: np.ndarray) -> np.ndarray:
        repetition, i = np.divmod(n, self._size)
        match name:
            case "n":
                return n
            case "serial":
                return np.where(n < self._data.half, n, n + 10**10)
            case "at":
                found = np.empty(len(n), np.int64)
                for each in np.unique(repetition):
                    here = repetition == each
                    found[here] = self._times[each][i[here]]
                return found
            case "delay":
                return np.where(n < self._data.half, _NULL, self._delays[i])
            case _:
                return self._fields[name][i]


def _numbers(column: Any, name: str) -> np.ndarray:
    if name == "at":
        column = pc.cast(column, pa.timestamp("ms", "UTC"), safe=True).cast(pa.int64())
    found: np.ndarray = pc.fill_null(pc.cast(column, pa.int64()), _NULL).to_numpy(zero_copy_only=False)
    return found


def compared(batches: Iterable[pa.RecordBatch], topic: CheckedTopic, expected: Expected) -> dict[str, int]:
    """Rows, and of them: twice, of no record, different; and records that are missing."""
    seen = [np.zeros(len(numbers), np.int32) for numbers in topic.numbers]
    found = {"rows": 0, "different": 0}
    for batch in batches:
        if not batch.num_rows:
            continue
        found["rows"] += batch.num_rows
        columns = {name: batch.column(batch.schema.get_field_index(name)) for name in COLUMNS}
        partitions, offsets = (_numbers(columns[name], name) for name in ("_partition", "_offset"))
        n = np.empty(batch.num_rows, np.int64)
        for partition, numbers in enumerate(topic.numbers):
            here = partitions == partition
            np.add.at(seen[partition], offsets[here], 1)
            n[here] = numbers[offsets[here]]
        different = _numbers(columns["n"], "n") != n
        flights = n >= 0  # the others are the records of the end
        for name in COLUMNS[1:-2]:
            wanted = expected.column(name, n[flights])
            column = columns[name]
            have = column.to_numpy(zero_copy_only=False) if name in _TEXTS else _numbers(column, name)
            different[flights] |= have[flights] != wanted
        found["different"] += int(different.sum())
    times = np.concatenate(seen)
    return found | {"missing": int((times == 0).sum()), "twice": int((times > 1).sum())}


def iceberg(directory: Path, name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", type="sql", uri=f"sqlite:///{directory}/tables/catalog.db").load_table(
        f"default.{name}"
    )


def iceberg_batches(directory: Path, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield from iceberg(directory, name).scan(selected_fields=tuple(columns)).to_arrow_batch_reader()


def delta_batches(directory: Path, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import deltalake

    yield from deltalake.DeltaTable(str(directory / name)).to_pyarrow_dataset().to_batches(columns=list(columns))


def windows_compared(batches: Iterable[pa.RecordBatch], data: Data) -> dict[str, int]:
    """Windows that are in the table, and of them: twice, different; and those that are missing."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    wanted = data.windows
    have: dict[tuple[str, str], tuple[int, int, int]] = {}
    twice = 0
    for row in rows:
        key = (row["day"], row["origin"])
        twice += key in have
        have[key] = (row["flights"], row["delay"], row["temp"])
    assert not any(day >= str(LAST_YEAR) for day, _ in have)
    different = sum(1 for key, found in have.items() if wanted.get(key) != found)
    return {"rows": len(rows), "different": different, "missing": len(wanted.keys() - have.keys()), "twice": twice}
