"""Avro: parsed and compared by Apache Avro's own package."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from kafkalite.schemas.schema import Import, InvalidSchema, ParsedSchema, read_json

#: Pairs of types that one comparison may look at: two unions have as many as the product of their branches. Some seconds.
_MAX_PAIRS = 50_000


#: The order in which Avro for Java writes the attributes of a type and of a field; others follow by name.
_OF_TYPES = ("type", "name", "namespace", "doc", "fields", "symbols", "items", "values", "size", "default", "aliases")
_OF_FIELDS = ("name", "type", "doc", "default", "order", "aliases")
_NAMED = ("record", "error", "enum", "fixed")


class _Checker(avro.compatibility.ReaderWriterCompatibilityChecker):
    """The package's, which ends."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._pairs = 0

    def calculate_compatibility(
        self, reader: avro.schema.Schema, writer: avro.schema.Schema, location: list[str]
    ) -> avro.compatibility.SchemaCompatibilityResult:
        """Raises InvalidSchema: it would take too long."""
        self._pairs += 1
        if self._pairs > _MAX_PAIRS:
            raise InvalidSchema(f"more than {_MAX_PAIRS:,} pairs of types would have to be compared")
        return super().calculate_compatibility(reader, writer, location)


class AvroSchema:
    """A valid Avro schema."""

    def __init__(self, text: str, parsed: avro.schema.Schema) -> None:
        self.text = text
        self.parsed = parsed

    def normalized(self) -> str:
        return json.dumps(_normal(json.loads(self.text), ""), separators=(",", ":"), ensure_ascii=False)

    def cannot_read(self, writer: ParsedSchema) -> Sequence[str]:
        assert isinstance(writer, AvroSchema)
        checker = _Checker()
        try:
            found = checker.get_compatibility(self.parsed, writer.parsed)
        except avro.errors.AvroException as error:
            raise InvalidSchema(str(error)) from None
        if found.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return ()
        kinds = [getattr(kind, "value", str(kind)) for kind in found.incompatibilities]
        places = sorted(found.locations)
        messages = sorted(found.messages)
        return [f"{', '.join(map(str, kinds))} at {', '.join(places)}: {'; '.join(messages)}"]


def parse(text: str, imports: Sequence[Import]) -> AvroSchema:
    """Raises InvalidSchema."""
    names = avro.name.Names()
    for each in imports:
        _made(_json(each.text, f"the reference {each.name!r}"), names)
    value = _json(text, "the schema")
    return AvroSchema(
        json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False), _made(value, names)
    )


def _json(text: str, what: str) -> Any:
    try:
        return read_json(text)
    except ValueError as error:
        raise InvalidSchema(f"{what} is not JSON: {error}") from None


def _normal(value: Any, namespace: str) -> Any:
    """Attributes in one order, primitive types by name only, a namespace where it differs from the one around it (Avro, Names)."""
    if isinstance(value, str):
        return value.removeprefix(f"{namespace}.") if value.rpartition(".")[0] == namespace else value
    if isinstance(value, list):
        return [_normal(each, namespace) for each in value]
    kind = value.get("type")
    if len(value) == 1 and isinstance(kind, str):
        return _normal(kind, namespace)
    made = {key: _sorted_keys(each) for key, each in value.items()}
    if kind in _NAMED:
        before = namespace
        dotted, _, name = str(value["name"]).rpartition(".")
        namespace = dotted or str(value.get("namespace", before) or "")
        made |= {"name": name, "namespace": namespace}
        if namespace == before:
            del made["namespace"]
    if not isinstance(kind, str):
        made["type"] = _normal(kind, namespace)
    made |= {key: _normal(value[key], namespace) for key in ("items", "values") if key in value}
    if kind in ("record", "error"):
        fields = [{**_sorted_keys(each), "type": _normal(each["type"], namespace)} for each in value["fields"]]
        made["fields"] = [_in_order(each, _OF_FIELDS) for each in fields]
    return _in_order(made, _OF_TYPES)


def _in_order(attributes: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    place = {name: number for number, name in enumerate(order)}
    return dict(sorted(attributes.items(), key=lambda each: (place.get(each[0], len(place)), each[0])))


def _sorted_keys(value: Any) -> Any:
    """Of defaults and attributes of other programs."""
    if isinstance(value, dict):
        return {key: _sorted_keys(value[key]) for key in sorted(value)}
    return [_sorted_keys(each) for each in value] if isinstance(value, list) else value


def _made(value: Any, names: avro.name.Names) -> avro.schema.Schema:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", avro.errors.IgnoredLogicalType)  # as the specification says
            made = avro.schema.make_avsc_object(value, names, validate_names=True)
            _check_defaults(made, set())
            return made
    except (avro.errors.AvroException, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidSchema(f"not an Avro schema: {error}") from None


def _check_defaults(schema: avro.schema.Schema, seen: set[int]) -> None:
    """The package takes any default; a reader would meet a wrong one with the first record that lacks the field."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    match schema:
        case avro.schema.RecordSchema():
            for field in schema.fields:
                if field.has_default and not _fits(field.type, field.default):
                    raise InvalidSchema(
                        f"the default of {schema.fullname}.{field.name} does not fit its type: {field.default!r}"
                    )
                _check_defaults(field.type, seen)
        case avro.schema.ArraySchema():
            _check_defaults(schema.items, seen)
        case avro.schema.MapSchema():
            _check_defaults(schema.values, seen)
        case avro.schema.UnionSchema():
            for branch in schema.schemas:
                _check_defaults(branch, seen)


def _fits(schema: avro.schema.Schema, default: Any) -> bool:
    """Whether a default in JSON is of this type; a union's is of its first branch (Avro specification, Complex Types)."""
    match schema:
        case avro.schema.UnionSchema():
            return _fits(schema.schemas[0], default)
        case avro.schema.ArraySchema():
            return isinstance(default, list) and all(_fits(schema.items, each) for each in default)
        case avro.schema.MapSchema():
            return isinstance(default, dict) and all(_fits(schema.values, each) for each in default.values())
        case avro.schema.RecordSchema():
            return isinstance(default, dict) and all(
                _fits(field.type, default[field.name]) if field.name in default else field.has_default
                for field in schema.fields
            )
        case avro.schema.EnumSchema():
            return default in schema.symbols
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    match schema.type:
        case "null":
            return default is None
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            return is_number and isinstance(default, int)
        case "float" | "double":
            return is_number or default in ("NaN", "INF", "-INF", "Infinity", "-Infinity")
    return isinstance(default, str)  # string, bytes, fixed
