"""Avro records as rows: which columns a schema has, and values as Arrow takes them. Pure but for fastavro."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite_pipelines.decoding.registry import HEADER_BYTES, RegistryAway, RegistryClient, RegistrySchema, schema_id
from kafkalite_pipelines.definition import PipelineError

#: Schemas that a reader keeps.
_KEPT = 200
#: Avro's type (or logical type) -> Spark's.
_PRIMITIVE = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "bytes": "binary",
    "string": "string", "enum": "string", "fixed": "binary", "date": "date", "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp", "local-timestamp-millis": "timestamp_ntz", "local-timestamp-micros": "timestamp_ntz",
    "uuid": "string", "time-millis": "string", "time-micros": "string",
}  # fmt: skip


@functools.lru_cache(maxsize=200)
def parsed(schema: RegistrySchema) -> Any:
    """What fastavro reads with; once in each process. Raises PipelineError: it is not Avro."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    if schema.kind != "AVRO":
        raise PipelineError(
            f"schema {schema.id} is {schema.kind}, not AVRO: decode.format must be the format of the records"
        )
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            parse_schema(json.loads(text), named_schemas=named)
        return parse_schema(json.loads(schema.text), named_schemas=named, expand=True)
    except (SchemaParseException, UnknownType, ValueError) as error:
        raise PipelineError(f"schema {schema.id} is not Avro: {error}") from None


def columns(schema: Any) -> dict[str, str]:
    """Column -> Spark type of a record schema. Raises PipelineError: it has a type that no column can have."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise PipelineError("an Avro schema must be a record: its fields are the columns")
    return {field["name"]: spark_type(field["type"], field["name"], ()) for field in schema["fields"]}


def spark_type(kind: Any, where: str, outer: tuple[str, ...]) -> str:
    """`outer`: names of the records around it, to find one within itself."""
    if isinstance(kind, list):
        return spark_type(_not_null(kind, where), where, outer)
    if isinstance(kind, str):
        if kind not in _PRIMITIVE:
            raise PipelineError(f"{where}: {kind} contains itself, and a column cannot")
        return _PRIMITIVE[kind]
    logical = kind.get("logicalType")
    if logical == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if logical in _PRIMITIVE:
        return _PRIMITIVE[logical]
    match kind["type"]:
        case "record":
            if kind["name"] in outer:
                raise PipelineError(f"{where}: {kind['name']} contains itself, and a column cannot")
            inner = (*outer, kind["name"])
            fields = [f"{f['name']}:{spark_type(f['type'], where + '.' + f['name'], inner)}" for f in kind["fields"]]
            return f"struct<{','.join(fields)}>"
        case "array":
            return f"array<{spark_type(kind['items'], where, outer)}>"
        case "map":
            return f"map<string,{spark_type(kind['values'], where, outer)}>"
        case inner:
            return spark_type(inner, where, outer)


def _not_null(union: list[Any], where: str) -> Any:
    kinds = [kind for kind in union if kind != "null"]
    if len(kinds) != 1:
        raise PipelineError(f"{where} is a union of {len(kinds)} types, and a column has one")
    return kinds[0]


def converter(kind: Any) -> Callable[[Any], Any]:
    """From fastavro's values to what pyarrow takes for the column's type."""
    if isinstance(kind, list):
        inner = converter(_not_null(kind, ""))
        return lambda value: None if value is None else inner(value)
    if isinstance(kind, Mapping):
        logical = kind.get("logicalType")
        if logical in ("uuid", "time-millis", "time-micros"):
            return str
        match kind["type"]:
            case "record" | "error":
                fields = [(field["name"], converter(field["type"])) for field in kind["fields"]]
                return lambda value: {name: convert(value[name]) for name, convert in fields}
            case "array":
                item = converter(kind["items"])
                return lambda value: [item(each) for each in value]
            case "map":
                each = converter(kind["values"])
                return lambda value: [(name, each(inner)) for name, inner in value.items()]
    return lambda value: value


class AvroReader:
    """Values with a schema id in front, read as the reader's schema has it. Travels to tasks."""

    def __init__(self, registry: RegistryClient, reader: RegistrySchema) -> None:
        self._registry = registry
        self._reader = reader
        self._ready: tuple[Any, Callable[[Any], Any]] | None = None
        self._writers: dict[int, Any] = {}

    def read(self, value: bytes) -> Any:
        """One value. Raises ValueError: it cannot be read; the message says why, without a subject."""
        from fastavro import schemaless_reader
        from fastavro.schema import SchemaParseException

        if self._ready is None:
            schema = parsed(self._reader)
            self._ready = (schema, converter(schema))
        reader, convert = self._ready
        number = schema_id(value)
        writer = self._written(number)
        try:
            return convert(schemaless_reader(io.BytesIO(memoryview(value)[HEADER_BYTES:]), writer, reader))
        except SchemaParseException:
            raise
        except Exception as error:  # noqa: BLE001 - any bytes from outside: fastavro raises what Python raises
            raise ValueError(f"is not Avro of schema {number}: {type(error).__name__} {error}"[:300]) from None

    def _written(self, number: int) -> Any:
        """The schema that a value was written with. Raises ValueError: there is none that can be used."""
        found = self._writers.get(number)
        if found is None:
            try:
                found = parsed(self._registry.schema(number))
            except RegistryAway:
                raise
            except PipelineError as error:
                found = ValueError(f"has a schema that cannot be used: {error}")
            if len(self._writers) < _KEPT:
                self._writers[number] = found
        if isinstance(found, ValueError):
            raise ValueError(*found.args)
        return found
