"""If a JSON Schema is said to accept all that another accepts, it does: an independent validator says so for any document."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.schemas.formats import parse
from kafkalite.schemas.formats.json_schemas import parse as parse_json
from kafkalite.schemas.formats.json_values import Steps, Values

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 2.0]), st.sampled_from(["", "x", "xyz"])
)
DOCUMENTS = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(NAMES, each, max_size=3), max_leaves=5
)
TYPES = ["array", "boolean", "integer", "null", "number", "object", "string"]


def _keywords(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=json.dumps),
            "maximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "multipleOf": st.sampled_from([1, 2, 3]),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "properties": st.dictionaries(NAMES, below, max_size=2),
            "additionalProperties": below,
            "items": below,
            "anyOf": st.lists(below, min_size=1, max_size=2),
            "allOf": st.lists(below, min_size=1, max_size=2),
            "not": below,
            "oneOf": st.lists(below, min_size=1, max_size=2),
            "const": SCALARS,
            "if": below,
            "then": below,
            "else": below,
            "contains": below,
            "uniqueItems": st.booleans(),
            "pattern": st.sampled_from(["^x", "y", "^$"]),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b|c"]), below, max_size=1),
            "propertyNames": below,
            "prefixItems": st.lists(below, min_size=1, max_size=2),
            "dependencies": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        },
    )


SCHEMAS = st.recursive(st.booleans() | _keywords(st.booleans()), _keywords, max_leaves=4)


@settings(max_examples=400)
@given(SCHEMAS, SCHEMAS, st.lists(DOCUMENTS, min_size=1, max_size=8))
def test_a_compatible_reader_accepts_every_document(writer: Any, reader: Any, documents: list[Any]) -> None:
    found = parse("JSON", json.dumps(reader)).cannot_read(parse("JSON", json.dumps(writer)))
    if not found:
        for document in documents:
            if jsonschema.Draft7Validator(writer).is_valid(document):
                assert jsonschema.Draft7Validator(reader).is_valid(document)


@settings(max_examples=200)
@given(SCHEMAS, st.sampled_from([6, 7, 201909, 202012]), st.lists(DOCUMENTS, min_size=1, max_size=8))
def test_a_document_is_valid_exactly_if_the_package_says_so(schema: Any, draft: int, documents: list[Any]) -> None:
    cls = getattr(jsonschema, f"Draft{draft}Validator")
    values = Values(parse_json(json.dumps(schema), []), cls, Steps())
    for document in documents:
        assert values.accept(document, schema) == cls(schema).is_valid(document)


@settings(max_examples=100)
@given(SCHEMAS)
def test_a_schema_accepts_what_it_accepts(schema: Any) -> None:
    parsed = parse("JSON", json.dumps(schema))
    assert not parsed.cannot_read(parsed)
