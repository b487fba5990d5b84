"""Data files of an Iceberg table (where tasks write them, what manifests say of them), and the transaction that adds them."""

from __future__ import annotations

import functools
import logging
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.typedef import Record

from kafkalite_pipelines.sinks import writing

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kafkalite_pipelines")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OneTry(Transaction):  # type: ignore[misc]
    """A transaction that is not put on top of commits that it has not seen: they could be this batch's."""

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("the table was changed at the same time")


def remove_files(table: Table, files: list[writing.WrittenFile]) -> None:
    """Files that no commit names. A failure leaves them, which costs room only."""
    for file in files:
        try:
            table.io.delete(f"{data_location(table)}/{file.path}")
        except OSError as error:
            log.warning("a file that is not used could not be removed: %s", error)


def data_location(table: Table) -> str:
    location = table.properties.get("write.data.path", f"{table.location()}/data")
    return str(location).rstrip("/")


def target_of(table: Table) -> writing.Target:
    """Where and how tasks write files of this table."""
    location = data_location(table)
    local = location.removeprefix("file://") if location.startswith(("file://", "/")) else None
    return writing.Target(
        location=local or location,
        schema=file_schema(table),
        partitions=tuple(field.name for field in table.spec().fields),
        opener=None if local else functools.partial(_open, dict(table.io.properties)),
        target_bytes=int(table.properties.get("write.target-file-size-bytes", 128 << 20)),
    )


def file_schema(table: Table) -> pa.Schema:
    """With the field ids by which readers find columns."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_small(field) for field in schema_to_pyarrow(table.schema(), include_field_ids=True)])


def _small(field: pa.Field) -> pa.Field:
    """A field with the types that Spark hands over: pyiceberg's have 64-bit lengths, which would be converted."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_large_string(kind):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(kind):
        return field.with_type(pa.binary())
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return field.with_type(pa.list_(_small(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_small(kind.key_field), _small(kind.item_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_small(kind.field(number)) for number in range(kind.num_fields)]))
    return field


def _open(properties: dict[str, str], location: str, path: str) -> Any:
    """In a task, for object stores: with the catalog's credentials."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(properties).new_output(f"{location}/{path}").create(overwrite=True)


def _in_manifest(value: Any) -> Any:
    """A value of a partition: manifests have dates and times as days and microseconds since 1970."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value


def data_file(table: Table, file: writing.WrittenFile) -> DataFile:
    """What the table's manifest says of a file, statistics of its columns included."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import (
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )

    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(pa.BufferReader(file.footer)),
        stats_columns=compute_statistics_plan(table.schema(), table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{data_location(table)}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*map(_in_manifest, file.partition)),
        file_size_in_bytes=file.size,
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
