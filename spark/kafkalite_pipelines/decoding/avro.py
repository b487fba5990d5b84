"""Avro records as rows: which columns a schema has, and values as Arrow takes them. Pure but for fastavro."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping
from datetime import datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

from kafkalite_pipelines.decoding.registry import HEADER_BYTES, RegistryAway, RegistryClient, RegistrySchema, schema_id
from kafkalite_pipelines.definition import PipelineError

#: Schemas that a reader keeps.
_KEPT = 200
#: Spark counts microseconds in 64 bits.
_MOST_MILLIS = (2**63 - 1) // 1000
#: Of a decimal: more a column cannot have.
_MOST_DIGITS = 38
#: More than a decimal of any column has: nothing is rounded here.
_DIGITS = Context(prec=1000)
#: Avro's type -> Spark's. A field that is always null is text, as in JSON.
_PRIMITIVE = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double", "bytes": "binary",
    "string": "string", "enum": "string", "fixed": "binary", "null": "string",
}  # fmt: skip
#: Logical types of the types that can have them -> Spark's. Elsewhere they do not count (Avro specification, Logical Types).
_LOGICAL = {
    ("int", "date"): "date", ("long", "timestamp-millis"): "timestamp", ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz", ("long", "local-timestamp-micros"): "timestamp_ntz",
    ("int", "time-millis"): "string", ("long", "time-micros"): "string", ("string", "uuid"): "string", ("fixed", "uuid"): "string",
}  # fmt: skip


@functools.lru_cache(maxsize=200)
def parsed(schema: RegistrySchema, *, is_plain: bool = False) -> Any:
    """What fastavro reads with; once in each process. `is_plain`: without logical types. Raises PipelineError: it is not Avro."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    if schema.kind != "AVRO":
        raise PipelineError(
            f"schema {schema.id} is {schema.kind}, not AVRO: decode.format must be the format of the records"
        )
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            parse_schema(_plain(json.loads(text)) if is_plain else json.loads(text), named_schemas=named)
        whole = json.loads(schema.text)
        return _with_defaults(parse_schema(_plain(whole) if is_plain else whole, named_schemas=named, expand=True))
    except (SchemaParseException, UnknownType, ValueError) as error:
        raise PipelineError(f"schema {schema.id} is not Avro: {error}") from None


def _plain(schema: Any) -> Any:
    """A schema in JSON without its logical types."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _plain(schema[key]) for key in ("type", "items", "values", "fields") if key in schema}
    return {key: each for key, each in (schema | inner).items() if key != "logicalType"}


def _with_defaults(kind: Any) -> Any:
    """A parsed schema whose defaults are such as fastavro reads values: it takes them as they stand in the schema's JSON. Raises ValueError."""
    if isinstance(kind, list):
        return [_with_defaults(each) for each in kind]
    if not isinstance(kind, Mapping):
        return kind
    inner = {key: _with_defaults(kind[key]) for key in ("type", "items", "values", "fields") if key in kind}
    if "default" in kind and "name" in kind and kind["type"] != "enum":  # an enum's own default is a symbol
        inner["default"] = _default(inner["type"], kind["default"])
    return {**kind, **inner}


def _default(kind: Any, value: Any) -> Any:
    """In JSON bytes are text, and an object may leave out fields that have defaults. Raises ValueError: it is no text of bytes."""
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]  # of more types there is no column
        return _default(kinds[0], value) if value is not None and len(kinds) == 1 else value
    name = kind["type"] if isinstance(kind, Mapping) else kind
    if name in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1")
    if name == "array" and isinstance(value, list):
        return [_default(kind["items"], each) for each in value]
    if name == "map" and isinstance(value, Mapping):
        return {key: _default(kind["values"], each) for key, each in value.items()}
    if name == "record" and isinstance(value, Mapping):
        given = {f["name"]: _default(f["type"], value[f["name"]]) for f in kind["fields"] if f["name"] in value}
        return {f["name"]: f["default"] for f in kind["fields"] if "default" in f} | given
    return value


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
    if _is_decimal(kind):
        if kind["precision"] > _MOST_DIGITS:
            raise PipelineError(
                f"{where} is a decimal of {kind['precision']} digits, and a column has at most {_MOST_DIGITS}"
            )
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if (named := _LOGICAL.get(_logical(kind))) is not None:
        return named
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


def _logical(kind: Mapping[str, Any]) -> tuple[str, str]:
    return str(kind["type"]), str(kind.get("logicalType"))


def _is_decimal(kind: Mapping[str, Any]) -> bool:
    return _logical(kind) in (("bytes", "decimal"), ("fixed", "decimal"))


def _not_null(union: list[Any], where: str) -> Any:
    kinds = [kind for kind in union if kind != "null"]
    if len(kinds) != 1:
        raise PipelineError(f"{where} is a union of {len(kinds)} types, and a column has one")
    return kinds[0]


class _NotPlain(Exception):
    """fastavro has applied a logical type of the writer's schema that the reader's does not have."""


def converter(kind: Any) -> Callable[[Any], Any]:
    """From fastavro's values to what pyarrow takes for the column's type.

    fastavro goes by the logical types of the WRITER's schema. Where only the reader's has one, as after a `long` has become a
    timestamp, the value comes as it is. Raises _NotPlain where only the writer's has one, ValueError for what is no such value.
    """
    if isinstance(kind, list):
        inner = converter(_not_null(kind, ""))
        return lambda value: None if value is None else inner(value)
    if isinstance(kind, str):
        return _PLAIN.get(kind, _same)
    if _is_decimal(kind):
        scale = int(kind.get("scale", 0))
        return lambda value: value if isinstance(value, Decimal) else _decimal(value, scale)
    if (logical := _logical(kind)) in _LOGICAL:
        return _OF_LOGICAL.get(logical[1], _same)
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
        case inner_kind:
            return converter(inner_kind)


def _same(value: Any) -> Any:
    return value


def _is_plain(*kinds: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _NotPlain
        return value

    return checked


def _of_millis(value: Any) -> Any:
    """Raises ValueError: Spark's times have no such."""
    if not isinstance(value, int):
        return value
    if not -_MOST_MILLIS <= value <= _MOST_MILLIS:
        raise ValueError(f"{value} ms is no time")
    return value * 1000


def _time_of_day(factor: int) -> Callable[[Any], str]:
    """From microseconds by `factor`. Raises ValueError."""

    def text(value: Any) -> str:
        if isinstance(value, time):
            return str(value)
        if not 0 <= value * factor < 86_400_000_000:
            raise ValueError(f"{value} is no time of a day")
        return str((datetime.min + timedelta(microseconds=value * factor)).time())

    return text


def _uuid(value: Any) -> str:
    """Of text, or 16 bytes. Raises ValueError."""
    return str(UUID(bytes=value) if isinstance(value, bytes) else value)


def _decimal(value: bytes, scale: int) -> Decimal:
    """Of a writer whose schema says bytes only."""
    return Decimal(int.from_bytes(value, signed=True)).scaleb(-scale, _DIGITS)


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "int": _is_plain(int), "long": _is_plain(int), "string": _is_plain(str), "bytes": _is_plain(bytes), "fixed": _is_plain(bytes),
    "float": _is_plain(int, float), "double": _is_plain(int, float),
}  # fmt: skip
_OF_LOGICAL: dict[str, Callable[[Any], Any]] = {
    "timestamp-millis": _of_millis, "local-timestamp-millis": _of_millis, "time-millis": _time_of_day(1000),
    "time-micros": _time_of_day(1), "uuid": _uuid,
}  # fmt: skip


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
        content = io.BytesIO(memoryview(value)[HEADER_BYTES:])
        try:
            try:
                found = convert(schemaless_reader(content, writer, reader))
            except _NotPlain:
                plain = parsed(self._registry.schema(number), is_plain=True), parsed(self._reader, is_plain=True)
                content.seek(0)
                found = convert(schemaless_reader(content, *plain))
        except SchemaParseException:
            raise
        except (EOFError, IndexError):
            raise ValueError(f"is not Avro of schema {number}: it ends within a value") from None
        except Exception as error:  # noqa: BLE001 - any bytes from outside: fastavro raises what Python raises
            raise ValueError(f"is not Avro of schema {number}: {type(error).__name__} {error}"[:300]) from None
        if behind := len(value) - HEADER_BYTES - content.tell():
            raise ValueError(f"has {behind} more bytes than a value of schema {number}")
        return found

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
