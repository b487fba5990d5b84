"""Any message comes back from its bytes, and any bytes are a message or a WireError."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.protocol import codec
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.schema import Field, Schema, Struct, schemas
from kafkalite.protocol.structs import classes

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def _scalar(kind: str) -> st.SearchStrategy[Any]:
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {
        "bool": st.booleans(),
        "uint16": st.integers(0, 2**16 - 1),
        "float64": st.floats(allow_nan=False),
        "string": st.text(max_size=8),
        "bytes": st.binary(max_size=8),
        "records": st.binary(max_size=8),
        "uuid": st.binary(min_size=16, max_size=16),
    }[kind]


def _value(field: Field, message: str, version: int) -> st.SearchStrategy[Any]:
    one = _struct(field.struct, message, version) if field.struct is not None else _scalar(field.type)
    value = st.lists(one, max_size=3) if field.is_array else one
    is_tagged_struct = field.struct is not None and not field.is_array and field.tag is not None
    if version in field.nullable or is_tagged_struct or (field.type == "records" and not field.is_array):
        return st.none() | value
    return value


def _struct(owner: Struct, message: str, version: int) -> st.SearchStrategy[Any]:
    live = {field.name: _value(field, message, version) for field in owner.fields if version in field.versions}
    return st.builds(classes(message)[owner.name], **live)


_VERSIONS = sorted((schema.name, version) for schema in schemas().values() for version in schema.versions)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Schema, int, Any]:
    name, version = draw(st.sampled_from(_VERSIONS))
    schema = schemas()[name]
    return schema, version, draw(_struct(schema.root, name, version))


@given(messages())
@settings(max_examples=300, deadline=None)
def test_any_message_comes_back_from_its_bytes(drawn: tuple[Schema, int, Any]) -> None:
    schema, version, message = drawn
    data = codec.encode(message, version)
    decoded = codec.decode(schema.name, version, data)
    assert codec.encode(decoded, version) == data
    assert decoded == message


@given(messages(), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_a_message_or_a_wire_error(drawn: tuple[Schema, int, Any], data: st.DataObject) -> None:
    schema, version, message = drawn
    raw = bytearray(codec.encode(message, version))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, max(0, len(raw) - 1)))
        match data.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change" if raw:
                raw[position] = data.draw(st.integers(0, 255))
            case "cut":
                del raw[position:]
            case _:
                raw[position:position] = data.draw(st.binary(min_size=1, max_size=4))
    try:
        codec.decode(schema.name, version, bytes(raw))
    except WireError:
        return


@given(st.sampled_from(_VERSIONS), st.binary(max_size=64))
@settings(max_examples=500, deadline=None)
def test_random_bytes_are_a_message_or_a_wire_error(which: tuple[str, int], raw: bytes) -> None:
    try:
        message = codec.decode(*which, raw)
    except WireError:
        return
    assert codec.encode(message, which[1]) is not None


def test_the_strategies_reach_every_message() -> None:
    assert {name for name, _ in _VERSIONS} == set(schemas())
    with pytest.raises(KeyError):
        classes("Nothing")
