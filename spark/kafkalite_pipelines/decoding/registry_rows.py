"""In a task: the values of a batch, read one by one, as a column of structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.decoding.records import BODY, ERROR

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalite_pipelines.decoding.readers import Reader


def rows(batch: pa.RecordBatch, readers: Mapping[str, Reader] | Reader, body: str) -> pa.RecordBatch:
    """The batch with the columns BODY and ERROR. `readers`: by topic, or one for all."""
    import pyarrow as pa

    bodies: list[Any] = []
    errors: list[str | None] = []
    for topic, value in zip(batch.column("_topic").to_pylist(), batch.column("_value").to_pylist(), strict=True):
        try:
            reader = readers.get(topic) if isinstance(readers, Mapping) else readers
            if reader is None and value is not None:
                raise ValueError(f"is of a topic without a schema: the registry has no subject {topic}-value")
            bodies.append(None if value is None or reader is None else reader.read(value))
            errors.append(None)
        except ValueError as error:
            bodies.append(None)
            errors.append(str(error))
    kind = _arrow_type(body)
    try:
        column = pa.array(bodies, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # one value does not fit: find it
        column = _one_by_one(bodies, errors, kind)
    names = [*batch.schema.names, BODY, ERROR]
    return pa.RecordBatch.from_arrays([*batch.columns, column, pa.array(errors, pa.string())], names=names)


def _one_by_one(bodies: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    for number, body in enumerate(bodies):
        try:
            pa.array([body], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            bodies[number], errors[number] = None, f"has a value that does not fit its column: {error}"[:300]
    return pa.array(bodies, kind)


def _arrow_type(ddl: str) -> pa.DataType:
    """Needs no session: the DDL is what `avro.columns` made."""
    from kafkalite_pipelines.decoding.types import arrow_type

    return arrow_type(ddl)
