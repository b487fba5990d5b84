"""All rows of a data file of an Iceberg table, to be written again: columns by their field ids, every value as it is in the file.

pyiceberg's own reader makes empty arrays of arrays of objects that are null (0.12). It reads what this does not: files with deletes,
files without field ids, columns with a default.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import FileScanTask

_ID = b"PARQUET:field_id"


def read(metadata: Any, properties: dict[str, str], location: str, task: FileScanTask) -> pa.Table:
    """All live rows of a data file, with the table's present columns."""
    io, schema = load_file_io(properties, location), metadata.schema()
    if not task.delete_files and not any(getattr(field, "initial_default", None) for field in schema.fields):
        with io.new_input(task.file.file_path).open() as source:
            found = pq.ParquetFile(source).read()
        if all(_ID in (field.metadata or {}) for field in found.schema):
            return _projected_table(found, schema_to_pyarrow(schema, include_field_ids=True))
    return ArrowScan(metadata, io, schema, AlwaysTrue()).to_table([task])


def _projected_table(found: pa.Table, wanted: pa.Schema) -> pa.Table:
    columns = _by_id(found.schema)
    arrays = []
    for field in wanted:
        number = columns.get(_id(field))
        if number is None:
            arrays.append(pa.nulls(found.num_rows, field.type))
            continue
        chunks = [_projected(chunk, found.schema.field(number), field) for chunk in found.column(number).chunks]
        arrays.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(arrays, schema=wanted)


def _projected(array: pa.Array, found: pa.Field, wanted: pa.Field) -> pa.Array:
    """An array of the file as the table's type has it: fields by id, null where the file has none."""
    kind = wanted.type
    if array.offset:  # the parts of a slice are those of the whole
        array = array.take(pa.array(range(len(array))))
    if pa.types.is_struct(kind) and pa.types.is_struct(found.type):
        numbers = _by_id(found.type)
        parts = [
            pa.nulls(len(array), field.type)
            if (number := numbers.get(_id(field))) is None
            else _projected(array.field(number), found.type.field(number), field)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    if _is_list(kind) and _is_list(found.type):
        values = _projected(array.values, found.type.value_field, kind.value_field)
        plain = pa.list_(kind.value_field)
        return pa.ListArray.from_arrays(array.offsets, values, type=plain, mask=array.is_null()).cast(kind)
    if pa.types.is_map(kind) and pa.types.is_map(found.type):
        keys = _projected(array.keys, found.type.key_field, kind.key_field)
        items = _projected(array.items, found.type.item_field, kind.item_field)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=array.is_null())
    return array if array.type == kind else array.cast(kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _by_id(fields: Any) -> dict[bytes, int]:
    return {_id(field): number for number, field in enumerate(fields)}


def _id(field: pa.Field) -> bytes:
    return bytes((field.metadata or {}).get(_ID, b""))
