"""JSON Schema as columns: which Spark type each property has. Pure.

What has no single type in a table (several types, an object without properties) is text: the JSON of the value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafkalite_pipelines.decoding.registry import RegistrySchema
from kafkalite_pipelines.decoding.types import quoted
from kafkalite_pipelines.definition import PipelineError

_SIMPLE = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_TEXT = "string"


def columns(schema: RegistrySchema) -> dict[str, str]:
    """Column -> Spark type. Raises PipelineError: it is no JSON Schema of an object with properties."""
    if schema.kind != "JSON":
        raise PipelineError(
            f"schema {schema.id} is {schema.kind}, not JSON: decode.format must be the format of the records"
        )
    try:
        documents = {name: json.loads(text) for name, text in (*schema.references, ("", schema.text))}
    except ValueError as error:
        raise PipelineError(f"schema {schema.id} is not JSON Schema: {error}") from None
    found = _Types(documents).properties(documents[""], "", ())
    if not found:
        raise PipelineError(
            f"schema {schema.id}: a JSON Schema must be an object with properties: they are the columns"
        )
    return found


class _Types:
    """`documents`: the schema ("") and those that it refers to, by the names in $ref."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def properties(self, schema: Any, document: str, outer: tuple[str, ...]) -> dict[str, str]:
        """Of an object, with those of allOf; empty if it has none."""
        schema, document, outer = self._resolved(schema, document, outer)
        if not isinstance(schema, Mapping):
            return {}
        found = {name: self._type(each, document, outer) for name, each in (schema.get("properties") or {}).items()}
        for each in schema.get("allOf") or []:
            found |= self.properties(each, document, outer)
        return found

    def _type(self, schema: Any, document: str, outer: tuple[str, ...]) -> str:
        schema, document, outer = self._resolved(schema, document, outer)
        if not isinstance(schema, Mapping):
            return _TEXT
        for key in ("oneOf", "anyOf"):
            if key in schema:
                left = [each for each in schema[key] if not (isinstance(each, Mapping) and each.get("type") == "null")]
                return self._type(left[0], document, outer) if len(left) == 1 else _TEXT
        kind = schema.get("type", _kind_of_values(schema))
        if isinstance(kind, list):
            left = [each for each in kind if each != "null"]
            if sorted(left) == ["integer", "number"]:
                left = ["number"]
            kind = left[0] if len(left) == 1 else None
        if kind == "string":
            return _FORMATS.get(schema.get("format", ""), _TEXT)
        if kind == "array":
            items = schema.get("items")
            return f"array<{self._type(items, document, outer) if isinstance(items, Mapping) else _TEXT}>"
        if kind == "object" or (kind is None and ("properties" in schema or "allOf" in schema)):
            return self._object(schema, document, outer)
        return _SIMPLE.get(kind or "", _TEXT)

    def _object(self, schema: Mapping[str, Any], document: str, outer: tuple[str, ...]) -> str:
        found = self.properties(schema, document, outer)
        if found:
            return f"struct<{','.join(f'{quoted(name)}:{kind}' for name, kind in found.items())}>"
        values = schema.get("additionalProperties")
        return f"map<string,{self._type(values, document, outer)}>" if isinstance(values, Mapping) and values else _TEXT

    def _resolved(self, schema: Any, document: str, outer: tuple[str, ...]) -> tuple[Any, str, tuple[str, ...]]:
        """What $ref names, the document that it is in, and the references on the way here."""
        while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            reference = schema["$ref"]
            name, _, pointer = reference.partition("#")
            document = name or document
            key = f"{document}#{pointer}"
            if key in outer:
                raise PipelineError(f"{reference} of the JSON Schema contains itself, and a column cannot")
            outer = (*outer, key)
            if document not in self._documents:
                raise PipelineError(f"the JSON Schema refers to {reference}, which is not among its references")
            schema = _at(self._documents[document], pointer, reference)
        return schema, document, outer


def _at(document: Any, pointer: str, shown: str) -> Any:
    """A JSON pointer (RFC 6901)."""
    found = document
    for part in pointer.split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(part)] if isinstance(found, list) else found[part]
        except (KeyError, IndexError, ValueError, TypeError):
            raise PipelineError(f"the JSON Schema refers to {shown}, which does not exist") from None
    return found


def _kind_of_values(schema: Mapping[str, Any]) -> str | None:
    """The type of an enum or const that names none."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) != 1:
        return None
    return {bool: "boolean", int: "integer", float: "number", str: "string"}.get(kinds.pop())
