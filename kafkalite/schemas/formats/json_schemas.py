"""JSON Schema: checked by the package jsonschema; whether one schema accepts all that another accepts is decided here.

The comparison is careful: what it does not understand is compatible only if it has not changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema

from kafkalite.schemas.formats.json_values import Steps, Unclear, Values, check
from kafkalite.schemas.schema import Import, InvalidSchema, ParsedSchema, read_json

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
#: Which may have changed only together with everything below them: the comparison does not look into them.
_OPAQUE = ("not", "if", "then", "else", "contains", "propertyNames", "dependencies", "dependentRequired",
           "dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "pattern", "patternProperties",
           "minContains", "maxContains", "$dynamicRef", "$recursiveRef")  # fmt: skip
#: (keyword, whether a larger value accepts more)
_LIMITS = (("maximum", True), ("exclusiveMaximum", True), ("minimum", False), ("exclusiveMinimum", False),
           ("maxLength", True), ("minLength", False), ("maxItems", True), ("minItems", False),
           ("maxProperties", True), ("minProperties", False))  # fmt: skip
#: Findings of one comparison that are reported.
_MAX_FOUND = 20
_MAX_COMPARISONS = 20_000
#: Characters of the schemas and their parts in one comparison: a second or so.
_MAX_STEPS = 100_000_000


class JsonSchema:
    """A valid JSON Schema."""

    def __init__(self, text: str, value: Any, imports: Mapping[str, Any]) -> None:
        self.text = text
        self.value = value
        self.imports = imports
        #: Document -> its anchors; what was looked up of each document.
        self._anchors: dict[str, dict[str, Any]] = {}
        self._targets: dict[tuple[str, str], tuple[Any, str]] = {}

    def cannot_read(self, writer: ParsedSchema) -> Sequence[str]:
        assert isinstance(writer, JsonSchema)
        comparison = _JsonComparison(writer, self)
        return comparison.differences(writer.value, self.value, "#")

    def normalized(self) -> str:
        return json.dumps(self.value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def resolve(self, value: Any) -> Any:
        """Follow `$ref` to the schema behind it; the value itself if there is none."""
        for _ in range(len(self.imports) + 100):
            if not isinstance(value, dict) or "$ref" not in value:
                return value
            target, _ = self.target(value["$ref"])
            if not isinstance(target, dict | bool):
                raise InvalidSchema(f"$ref {value['$ref']!r} leads to no schema")
            others = {key: each for key, each in value.items() if key not in ("$ref", "description", "title")}
            value = {"allOf": [target, others]} if others else target
            if others:
                return value
        raise InvalidSchema("a $ref refers to itself")

    def target(self, reference: str, document: str = "") -> tuple[Any, str]:
        """What a `$ref` in one of the documents means ("": this one, otherwise an import), and in which document it is. Raises InvalidSchema."""
        found = self._targets.get((reference, document))
        if found is None:
            found = self._targets[reference, document] = self._target(reference, document)
        return found

    def _target(self, reference: str, document: str) -> tuple[Any, str]:
        named, _, fragment = reference.partition("#")
        document = named or document
        root = self.imports.get(document) if document else self.value
        if document and isinstance(self.value, dict) and self.value.get("$id") == document:
            root = self.value
        if root is None:
            raise InvalidSchema(f"$ref {reference!r}: no reference has this name")
        if fragment and not fragment.startswith("/"):
            if document not in self._anchors:
                self._anchors[document] = _anchors(root)
            if fragment not in self._anchors[document]:
                raise InvalidSchema(f"$ref {reference!r} leads nowhere")
            return self._anchors[document][fragment], document
        for part in fragment.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                root = root[int(key)] if isinstance(root, list) else root[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise InvalidSchema(f"$ref {reference!r} leads nowhere") from None
        return root, document


def parse(text: str, imports: Sequence[Import]) -> JsonSchema:
    """Raises InvalidSchema."""
    try:
        value = read_json(text)
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    if not isinstance(value, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    cls = _validator_class(value)
    try:
        check(cls, value)
    except jsonschema.SchemaError as error:
        raise InvalidSchema(f"not a JSON Schema: {error.json_path}: {error.message}") from None
    canonical = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    parsed = JsonSchema(canonical, value, {each.name: json.loads(each.text) for each in imports})
    _check_refs(parsed, value)
    return parsed


def _validator_class(value: Any) -> Any:
    return jsonschema.validators.validator_for(value, default=jsonschema.Draft7Validator)


def _check_refs(schema: JsonSchema, value: Any) -> None:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            reference = each.get("$ref")
            if isinstance(reference, str) and reference.partition("#")[0] not in _METASCHEMAS:
                schema.resolve({"$ref": reference})
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


_METASCHEMAS = frozenset(
    f"http{s}://json-schema.org/{draft}/schema"
    for s in ("", "s")
    for draft in ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")
)


def _anchors(root: Any) -> dict[str, Any]:
    """By name; of several with one name the first that is met from the end."""
    found: dict[str, Any] = {}
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            identifier = each.get("$id")
            names = [
                each.get("$anchor"),
                identifier[1:] if isinstance(identifier, str) and identifier[:1] == "#" else None,
            ]
            for name in names:
                if isinstance(name, str):
                    found.setdefault(name, each)
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


class _JsonComparison:
    """What the reader refuses of what the writer accepts."""

    def __init__(self, writer: JsonSchema, reader: JsonSchema) -> None:
        self._writer = writer
        self._reader = reader
        #: Pairs under comparison: recursive schemas meet themselves again.
        self._open: set[tuple[str, str]] = set()
        self._left = _MAX_COMPARISONS
        self._steps = Steps(_MAX_STEPS)
        self._values = Values(reader, _validator_class(reader.value), Steps())

    def differences(self, writer: Any, reader: Any, path: str) -> list[str]:
        """Raises InvalidSchema: too many steps."""
        self._left -= 1
        if self._left < 0:
            return [f"{path}: the schemas are too large to be compared"]
        if writer is False or reader is True or reader == {}:
            return []
        writer, reader = self._writer.resolve(writer), self._reader.resolve(reader)
        pair = (json.dumps(writer, sort_keys=True), json.dumps(reader, sort_keys=True))
        # Everything below is looked at by its size: a $ref of some bytes may lead to a schema of half a megabyte, again and again.
        self._steps.take(len(pair[0]) + len(pair[1]))
        if (pair[0] == pair[1] and '"$ref"' not in pair[0]) or pair in self._open:
            return []
        self._open.add(pair)
        try:
            return self._schemas(writer, reader, path)[:_MAX_FOUND]
        finally:
            self._open.discard(pair)

    def _schemas(self, writer: Any, reader: Any, path: str) -> list[str]:
        if reader is False:
            return [] if writer is False else [f"{path}: nothing is accepted any longer"]
        if writer is True:
            writer = {}
        if writer is False or reader is True:
            return []
        values = _finite(writer)
        if values is not None:
            refused = [each for each in values if not self._accepts(each, reader)]
            return [f"{path}: the value {json.dumps(each)[:60]} is no longer accepted" for each in refused]
        writer = self._merged(writer)
        if not isinstance(writer, dict):
            return self.differences(writer, reader, path)
        for word in ("anyOf", "oneOf"):
            if word in writer and writer.get(word) != reader.get(word):
                rest = {key: each for key, each in writer.items() if key != word}
                return [
                    found
                    for number, branch in enumerate(writer[word])
                    for found in self.differences(_both(rest, branch), reader, f"{path}/{word}/{number}")
                ]
        found: list[str] = []
        for number, part in enumerate(reader.get("allOf", ())):
            found += self.differences(writer, part, f"{path}/allOf/{number}")
        for word in ("anyOf", "oneOf"):
            if word in reader and writer.get(word) != reader[word]:
                tried = [self.differences(writer, part, f"{path}/{word}/{n}") for n, part in enumerate(reader[word])]
                if all(tried):
                    found.append(f"{path}/{word}: no alternative accepts all that was accepted")
        return found + self._keywords(writer, reader, path)

    def _accepts(self, value: Any, reader: Any) -> bool:
        """Whether the reader is sure to accept it. Raises InvalidSchema: too many steps."""
        try:
            return self._values.accept(value, reader)
        except Unclear:
            return False

    def _merged(self, writer: dict[str, Any]) -> Any:
        """Without allOf: what all of its parts ask for, as far as they can be put into one schema. Raises InvalidSchema."""
        self._left -= 1
        if self._left < 0:  # parts that refer to the same parts double with each level
            raise InvalidSchema("the schemas are too large to be compared")
        parts = [self._writer.resolve(each) for each in writer.get("allOf", ())]
        merged: Any = {key: each for key, each in writer.items() if key != "allOf"}
        for part in parts:
            self._steps.take(len(json.dumps(part)))
            merged = _both(merged, self._merged(part) if isinstance(part, dict) else part)
        return merged

    def _keywords(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[str]:
        found: list[str] = []
        types, accepted = _types(writer), _types(reader)
        if lost := sorted(each for each in types if each not in accepted):
            found.append(f"{path}: the type {', '.join(lost)} is no longer accepted")
        if (values := _finite(reader)) is not None:
            found.append(f"{path}: only {len(values)} values are accepted now")
        found += [
            f"{path}/{word}: has changed" for word in _OPAQUE if word in reader and reader[word] != writer.get(word)
        ]
        for word, is_upper in _LIMITS:
            if word in reader and (
                word not in writer or (writer[word] > reader[word] if is_upper else writer[word] < reader[word])
            ):
                found.append(f"{path}/{word}: the limit is narrower")
        step = reader.get("multipleOf")
        if step is not None and ("multipleOf" not in writer or writer["multipleOf"] % step):
            found.append(f"{path}/multipleOf: the limit is narrower")
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            found.append(f"{path}/uniqueItems: the limit is narrower")
        if "object" in types:
            found += self._objects(writer, reader, path)
        if "array" in types:
            found += self._arrays(writer, reader, path)
        return found

    def _objects(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[str]:
        was_required = frozenset(writer.get("required", ()))
        found = [
            f"{path}/required: {name!r} is required now"
            for name in reader.get("required", ())
            if name not in was_required
        ]
        ours, theirs = writer.get("properties", {}), reader.get("properties", {})
        more, more_accepted = writer.get("additionalProperties", True), reader.get("additionalProperties", True)
        for name in sorted(ours.keys() | theirs.keys()):
            found += self.differences(
                ours.get(name, more), theirs.get(name, more_accepted), f"{path}/properties/{name}"
            )
        return found + self.differences(more, more_accepted, f"{path}/additionalProperties")

    def _arrays(self, writer: dict[str, Any], reader: dict[str, Any], path: str) -> list[str]:
        ours, more = _items(writer)
        theirs, more_accepted = _items(reader)
        found: list[str] = []
        for number in range(max(len(ours), len(theirs))):
            one = ours[number] if number < len(ours) else more
            other = theirs[number] if number < len(theirs) else more_accepted
            found += self.differences(one, other, f"{path}/items/{number}")
        return found + self.differences(more, more_accepted, f"{path}/items")


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """(schemas of the first items, schema of those after them), for all drafts."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return list(schema.get("prefixItems", ())), items


def _types(schema: dict[str, Any]) -> set[str]:
    """Which types are accepted, with integer where there is number."""
    stated = schema.get("type", _TYPES)
    found = {stated} if isinstance(stated, str) else set(stated)
    return found | {"integer"} if "number" in found else found


def _finite(schema: Any) -> list[Any] | None:
    """All values that are accepted, if they are listed."""
    if isinstance(schema, dict) and "const" in schema:
        return [schema["const"]]
    if isinstance(schema, dict) and "enum" in schema:
        return list(schema["enum"])
    return None


def _both(one: Any, other: Any) -> Any:
    """A schema that accepts at least what both accept: nothing that they accept together is left out."""
    if one is False or other is False:
        return False
    if one is True or one == {}:
        return other
    if other is True or other == {}:
        return one
    merged = dict(one)
    for key, value in other.items():
        if key not in merged:
            merged[key] = value
        elif key == "required":
            merged[key] = sorted({*merged[key], *value})
        elif key == "properties":
            shared = {
                name: _both(merged[key][name], each) if name in merged[key] else each for name, each in value.items()
            }
            merged[key] = {**merged[key], **shared}
        elif key == "type":
            kept = _types({"type": merged[key]}) & _types({"type": value})
            merged[key] = sorted(kept)
        # Otherwise the first is kept: the result accepts more than both, and the comparison stays careful.
    if "additionalProperties" in merged and ("properties" in one or "properties" in other):
        first, second = one.get("additionalProperties", True), other.get("additionalProperties", True)
        merged["additionalProperties"] = _both(first, second)
    return merged
