"""Parquet files of a table, written by Spark's tasks: pyarrow only. The driver gets paths and footers, and commits them.

A file that no commit names is not part of the table: a task that fails or runs twice does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.decoding.times import DAYS, MICROS
from kafkalite_pipelines.definition import OWN_PREFIX, PipelineError
from kafkalite_pipelines.sinks.partitions import directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: A task has at most this number of files open; the largest is closed for the next.
_OPEN_FILES = 32
#: A row group ends at this number of bytes in memory.
_ROW_GROUP_BYTES = 64 << 20
#: And at this number in all open files of a task, the largest first: else 32 row groups could be in memory at once.
_WAITING_BYTES = 256 << 20
#: Names of the partition values' columns in what a task gets.
PARTITION = OWN_PREFIX
#: What a task returns of each file.
RESULT = "path string, partition binary, rows long, bytes long, footer binary"


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go and what they look like. Travels to tasks."""

    #: The directory, as a path or URI.
    location: str
    #: Of the files; field ids in the metadata if the format has them.
    schema: pa.Schema
    #: Names of the partition fields, in their order.
    partitions: tuple[str, ...]
    #: Opens a file by its path for writing: (location, path) -> a file object. None: pyarrow.fs.
    opener: Callable[[str, str], Any] | None = None
    target_bytes: int = 128 << 20


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file below the target's location."""

    path: str
    #: Values of the partition fields.
    partition: tuple[Any, ...]
    rows: int
    size: int
    #: The Parquet footer, as a metadata file has it.
    footer: bytes


def write(rows: DataFrame, target: Target, prefix: str) -> list[WrittenFile]:
    """Write all rows; one Spark job. `rows` has the schema's columns by name, and one column for each partition field
    (PARTITION and its number)."""
    import pickle

    names = rows.columns

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _returned(files((batch.rename_columns(names) for batch in batches), target, prefix))

    # mapInArrow resolves names as a query does: a dot or a backtick in one would be syntax
    numbered = rows.toDF(*(f"_{number}" for number in range(len(names))))
    found = numbered.mapInArrow(tasks, RESULT).collect()
    return [WrittenFile(r.path, pickle.loads(bytes(r.partition)), r.rows, r.bytes, bytes(r.footer)) for r in found]


def _returned(written: Iterator[WrittenFile]) -> Iterator[pa.RecordBatch]:
    import pickle

    import pyarrow as pa

    for file in written:
        partition = pickle.dumps(file.partition)
        values = [[file.path], [partition], [file.rows], [file.size], [file.footer]]
        types = [pa.string(), pa.binary(), pa.int64(), pa.int64(), pa.binary()]
        arrays = [pa.array(value, type_) for value, type_ in zip(values, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["path", "partition", "rows", "bytes", "footer"])


def files(batches: Iterator[pa.RecordBatch], target: Target, prefix: str) -> Iterator[WrittenFile]:
    """Write the batches; yields each file when it is closed. Raises PipelineError: a value or the disk refuses it."""
    opened: dict[tuple[Any, ...], _File] = {}
    try:
        for batch in batches:
            check(batch)
            for partition, part in _split(batch, len(target.partitions)):
                if partition not in opened:
                    if len(opened) >= _OPEN_FILES:
                        largest = max(opened, key=lambda key: opened[key].rows)
                        yield opened.pop(largest).close()
                    opened[partition] = _File(target, partition, prefix)
                opened[partition].write(part)
                if sum(file.waiting_bytes for file in opened.values()) > _WAITING_BYTES:
                    max(opened.values(), key=lambda file: file.waiting_bytes).flush()
                if opened[partition].written_bytes >= target.target_bytes:
                    yield opened.pop(partition).close()
        while opened:
            yield opened.popitem()[1].close()
    except OSError as error:  # that of a full disk does not say of which
        raise PipelineError(f"{target.location} cannot be written to: {error}") from error
    finally:
        for file in opened.values():
            file.abandon()


def files_of(rows: pa.Table, target: Target, prefix: str, partition: tuple[Any, ...]) -> list[WrittenFile]:
    """Rows of one partition as one file."""
    return files_of_all([rows], target, prefix, partition)


def files_of_all(
    tables: Iterable[pa.Table], target: Target, prefix: str, partition: tuple[Any, ...]
) -> list[WrittenFile]:
    """Rows of one partition from several tables as one file."""
    file = _File(target, partition, prefix)
    for rows in tables:
        for batch in rows.to_batches():
            file.write(batch)
    return [file.close()]


def _split(batch: pa.RecordBatch, partitions: int) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows of each combination of partition values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if batch.num_rows == 0:
        return
    if partitions == 0:
        yield (), batch
        return
    names = [f"{PARTITION}{number}" for number in range(partitions)]
    # one number for each combination
    codes: Any = None
    for name in names:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        numbers = encoded.indices.cast(pa.int64())
        width = max(len(encoded.dictionary), 1)
        codes = numbers if codes is None else pc.add(pc.multiply(codes, width), numbers)
    for code in pc.unique(codes).to_pylist():
        part = batch.filter(pc.equal(codes, code))
        yield tuple(part.column(name)[0].as_py() for name in names), part


def check(batch: pa.RecordBatch) -> None:
    """Raises PipelineError: a step has made what readers of tables fail at, text that is not UTF-8 or a time of no year from 1 to
    9999."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _check(name, column)


def _check(name: str, column: Any) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        for part in column.flatten():
            _check(name, part)
    elif pa.types.is_map(kind):
        _check(name, column.keys)
        _check(name, column.items)
    elif pa.types.is_list(kind):
        _check(name, column.flatten())
    elif pa.types.is_string(kind):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise PipelineError(
                f"column {name} has bytes that are not UTF-8 text: in a step, make_valid_utf8(…) replaces them, and "
                "WHERE is_valid_utf8(…) leaves such rows out"
            ) from None
    elif pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        bounds = pc.min_max(column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
        least, most = DAYS if pa.types.is_date32(kind) else MICROS
        if bounds["min"] is not None and (bounds["min"] < least or bounds["max"] > most):
            raise PipelineError(f"column {name} has a time that is not in the years 1 to 9999")


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of `schema`, null where it has none.

    Raises:
        PipelineError: a value does not fit, or one is missing that the schema requires.
    """
    import pyarrow as pa

    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)
        if not field.nullable and column.null_count:
            raise PipelineError(
                f"column {field.name} has no value in a row, and the table requires one: decode.required puts such records aside"
            )
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise PipelineError(
                f"column {field.name} has a value that does not fit the table's type {field.type}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _File:
    """One Parquet file while it is written."""

    def __init__(self, target: Target, partition: tuple[Any, ...], prefix: str) -> None:
        import pyarrow.parquet as pq

        self._target = target
        self._partition = partition
        where = directory(list(target.partitions), list(partition))
        self._path = f"{where}/{prefix}-{uuid.uuid4().hex}.parquet" if where else f"{prefix}-{uuid.uuid4().hex}.parquet"
        self._sink = (target.opener or open_output)(target.location, self._path)
        self._writer = pq.ParquetWriter(self._sink, target.schema, compression="zstd", store_decimal_as_integer=True)
        self._waiting: list[pa.RecordBatch] = []
        #: Bytes in memory of rows that are not written yet.
        self.waiting_bytes = 0
        self.rows = 0
        #: Bytes in memory of what was written: more than the file will have.
        self.written_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        conformed = conform(batch, self._target.schema)
        self._waiting.append(conformed)
        self.waiting_bytes += conformed.nbytes
        self.rows += conformed.num_rows
        if self.waiting_bytes >= _ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """What waits becomes a row group."""
        import pyarrow as pa

        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self.written_bytes = self._sink.tell()
        self._waiting, self.waiting_bytes = [], 0

    def close(self) -> WrittenFile:
        import pyarrow as pa

        self.flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        footer = pa.BufferOutputStream()
        self._writer.writer.metadata.write_metadata_file(footer)
        return WrittenFile(self._path, self._partition, self.rows, size, footer.getvalue().to_pybytes())

    def abandon(self) -> None:
        """The task has failed: the file will not be named by any commit."""
        self._sink.close()


def open_output(location: str, path: str) -> Any:
    """Open location/path for writing, directories included."""
    from pyarrow.fs import FileSystem, LocalFileSystem

    if "://" in location:
        filesystem, base = FileSystem.from_uri(location)
    else:
        filesystem, base = LocalFileSystem(), location
    full = f"{base}/{path}"
    filesystem.create_dir(full.rpartition("/")[0], recursive=True)
    return filesystem.open_output_stream(full)
