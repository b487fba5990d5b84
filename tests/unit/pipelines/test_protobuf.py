"""Protobuf and JSON Schema as columns; values of one version in the columns of another."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kafkalite_pipelines import PipelineError
from kafkalite_pipelines.decoding import protobuf
from kafkalite_pipelines.decoding.json_schema import columns as json_columns
from kafkalite_pipelines.decoding.protobuf_readers import RegistryReader, registry_reader
from kafkalite_pipelines.decoding.protobuf_schemas import Files, messages, of_file, of_registry
from kafkalite_pipelines.decoding.registry import RegistryClient, RegistrySchema
from kafkalite_pipelines.definition import Decode

COMMON = (
    'syntax = "proto3"; package c; enum Kind { NONE = 0; JET = 1; } message Place { string name = 1; double x = 2; }'
)
FLIGHT = """
syntax = "proto3";
package a;
import "common.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Flight {
  int32 n = 1;
  optional int64 delay = 2;
  uint64 big = 3;
  c.Kind kind = 4;
  c.Place place = 5;
  repeated string tags = 6;
  map<string, c.Place> stops = 7;
  google.protobuf.Timestamp at = 8;
  google.protobuf.Duration took = 9;
  google.protobuf.StringValue note = 10;
  google.protobuf.Struct more = 11;
  oneof who { string person = 12; bytes machine = 13; }
  message Seat { int32 row = 1; }
  repeated Seat seats = 14;
  Nothing nothing = 15;
  message Nothing {}
}
"""
REFERENCES = (("common.proto", COMMON),)


def schema(text: str, number: int = 1, references: tuple[tuple[str, str], ...] = ()) -> RegistrySchema:
    return RegistrySchema(number, "PROTOBUF", text, references)


class Schemas(RegistryClient):
    """A registry without a network."""

    def __init__(self, *schemas: RegistrySchema) -> None:
        self._all = {each.id: each for each in schemas}

    def schema(self, schema_id: int) -> RegistrySchema:
        if schema_id not in self._all:
            raise PipelineError(f"schema registry: there is no schema {schema_id}")
        return self._all[schema_id]


def encoded(given: RegistrySchema, path: bytes = b"\0", name: str | None = None, **fields: Any) -> bytes:
    from google.protobuf.message_factory import GetMessageClass

    found = messages(of_registry(given))
    message = GetMessageClass(found.by_name[name] if name else found.top[0])(**fields)
    body: bytes = message.SerializeToString()
    return b"\0" + given.id.to_bytes(4) + path + body


def test_every_type_of_field() -> None:
    given = schema(FLIGHT, references=REFERENCES)
    columns, reader = registry_reader(Schemas(given), given, Decode("protobuf"))
    assert columns == {
        "n": "int", "delay": "bigint", "big": "decimal(20,0)", "kind": "string", "place": "struct<`name`:string,`x`:double>",
        "tags": "array<string>", "stops": "map<string,struct<`name`:string,`x`:double>>", "at": "timestamp",
        "took": "decimal(21,9)", "note": "string", "more": "string", "person": "string", "machine": "binary",
        "seats": "array<struct<`row`:int>>", "nothing": "boolean",
    }  # fmt: skip
    place = {"name": "JFK", "x": 1.5}
    value = encoded(
        given, n=-7, delay=0, big=2**64 - 1, kind=1, place=place, tags=["a", "b"], stops={"k": place}, at={"seconds": 3, "nanos": 5000},
        took={"seconds": -1, "nanos": -500_000_000}, note={"value": "x"}, more={"a": 1}, machine=b"m",
        seats=[{"row": 3}], nothing={},
    )  # fmt: skip
    assert reader.read(value) == {
        "n": -7, "delay": 0, "big": Decimal(2**64 - 1), "kind": "JET", "place": place, "tags": ["a", "b"], "stops": [("k", place)],
        "at": 3_000_005, "took": Decimal("-1.5"), "note": "x", "more": '{"a": 1.0}', "person": None, "machine": b"m",
        "seats": [{"row": 3}], "nothing": True,
    }  # fmt: skip
    empty = reader.read(encoded(given))
    # what the message can leave out is null, what it cannot has its default
    assert (empty["n"], empty["kind"], empty["tags"], empty["stops"]) == (0, "NONE", [], [])
    assert {empty[name] for name in ("delay", "place", "at", "took", "note", "more", "person", "machine")} == {None}


def test_values_of_other_versions_and_of_other_messages() -> None:
    def version(number: int, fields: str, rest: str = "") -> RegistrySchema:
        return schema(f'syntax = "proto3"; message F {{ {fields} }} {rest}', number)

    newest = version(9, "int32 n = 1; int64 x = 2; repeated string tags = 3;")
    old = version(1, "int64 n = 1; string tags = 3;")
    wrong = version(2, "string n = 1;")
    several = version(3, "int32 n = 1;", "message G { int32 n = 1; message H { int32 n = 1; } }")
    single = version(4, "int32 n = 1; repeated int64 x = 2;")
    registry = Schemas(newest, old, wrong, several, single)
    reader = RegistryReader(registry, newest, "F")
    assert reader.read(encoded(newest, n=1, x=2, tags=["a"])) == {"n": 1, "x": 2, "tags": ["a"]}
    # the writer's number is kept: Arrow finds that it does not fit, and the record goes to the dead letters
    assert reader.read(encoded(old, n=2**40, tags="a")) == {"n": 2**40, "x": None, "tags": ["a"]}
    assert reader.read(encoded(several, n=5)) == {"n": 5, "x": None, "tags": None}
    for value, why in (
        (encoded(wrong, n="1"), "does not fit the columns: the field n is string, and its column has int32"),
        (encoded(single, n=1), "the field x is repeated, and its column has one value"),
        (encoded(several, b"\x02\x02", "G", n=5), "is a G, and the columns are those of F"),
        (encoded(several, b"\x04\x02\x00", n=5), "is a G.H, and the columns are those of F"),
        (encoded(several, b"\x02\x08", n=5), "names the message [4] of its schema, which does not exist"),
        (encoded(newest)[:5], "has no message index after its schema id"),
        (encoded(newest)[:5] + b"\xff\xff\xff\xff\xff\xff", "has no message index after its schema id"),
        (encoded(newest, tags=["abc"])[:-1], "is not a F of schema 9: DecodeError"),
        (b"\0\0\0\0\x63\0", "has a schema that cannot be used: schema registry: there is no schema 99"),
        (b"{}", "has no schema id in front"),
    ):
        for _ in range(2):  # why is remembered
            with pytest.raises(ValueError) as raised:
                reader.read(value)
            assert why in str(raised.value)


def test_a_schema_of_another_kind_and_messages_that_cannot_be_columns() -> None:
    with pytest.raises(PipelineError, match=r"schema 1 is AVRO, not PROTOBUF"):
        of_registry(RegistrySchema(1, "AVRO", "{}"))
    with pytest.raises(PipelineError, match=r"decode.message: there is no message X; there are: F"):
        protobuf.message_of(messages(of_registry(schema('syntax = "proto3"; message F { int32 n = 1; }'))).by_name, "X")
    with pytest.raises(PipelineError, match=r"schema 1: the import 'common.proto' is not among the references"):
        of_registry(schema(FLIGHT))


def test_two_names_of_one_number() -> None:
    """Protobuf's own JSON has the first name; the last one was in the table."""
    text = 'syntax = "proto3"; message F { E e = 1; } enum E { option allow_alias = true; A = 0; B = 1; ALSO_B = 1; }'
    given = schema(text)
    _, reader = registry_reader(Schemas(given), given, Decode("protobuf"))
    assert reader.read(encoded(given, e=1)) == {"e": "B"}


def test_a_message_within_another() -> None:
    inner = "message Inner { int32 n = 1; message G { string s = 1; } }"
    given = schema(
        f'syntax = "proto3"; package a; message F {{ Inner i = 1; map<string, int32> m = 2; {inner} }} message G {{ bool b = 1; }}'
    )
    for message in ("F.Inner", "Inner", "a.F.Inner"):
        columns, reader = registry_reader(Schemas(given), given, Decode("protobuf", message=message))
        assert columns == {"n": "int"}
        for index in (b"\4\0\0", b"\4\0\2"):  # without the map, and with it
            assert reader.read(encoded(given, index, "a.F.Inner", n=5)) == {"n": 5}
        with pytest.raises(ValueError, match=r"names the message \[0, 2\] of its schema, which does not exist"):
            reader.read(encoded(given, b"\4\0\4", "a.F.Inner", n=5))
    # a message at the top comes first
    assert registry_reader(Schemas(given), given, Decode("protobuf", message="G"))[0] == {"b": "boolean"}
    assert registry_reader(Schemas(given), given, Decode("protobuf", message="Inner.G"))[0] == {"s": "string"}
    for message in ("MEntry", "nner", "X"):
        with pytest.raises(
            PipelineError,
            match=f"decode.message: there is no message {message}; there are: a.F, a.F.Inner, a.F.Inner.G, a.G",
        ):
            registry_reader(Schemas(given), given, Decode("protobuf", message=message))
    with pytest.raises(PipelineError, match=r"decode.message is missing: the schema has the messages a.F, a.G$"):
        registry_reader(Schemas(given), given, Decode("protobuf"))


def test_a_message_index_with_two_meanings() -> None:
    """Serializers count maps among the messages within a message, or do not."""
    given = schema(
        'syntax = "proto3"; message F { map<string, int32> m = 1; message A { int32 n = 1; } message B { int32 n = 1; } }'
    )
    _, reader = registry_reader(Schemas(given), given, Decode("protobuf", message="B"))
    assert reader.read(encoded(given, b"\4\0\4", "F.B", n=5)) == {"n": 5}
    with pytest.raises(ValueError, match=r"names the message \[0, 1\] of its schema, which is F.A or F.B"):
        reader.read(encoded(given, b"\4\0\2", "F.B", n=5))


def test_files_with_imports_and_descriptor_sets(tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    (tmp_path / "schemas").mkdir()
    (tmp_path / "common.proto").write_text(COMMON)
    (tmp_path / "schemas" / "flight.proto").write_text(FLIGHT)
    text = of_file(tmp_path / "schemas" / "flight.proto", tmp_path)
    whole = FileDescriptorSet(file=[FileDescriptorProto.FromString(each) for each in text.serialized])
    (tmp_path / "flight.desc").write_bytes(whole.SerializeToString())
    binary = of_file(tmp_path / "flight.desc", tmp_path)
    assert isinstance(binary, Files) and protobuf.columns(messages(binary).top[0]) == protobuf.columns(
        messages(text).top[0]
    )


def test_the_columns_of_a_json_schema() -> None:
    place = {"type": "object", "properties": {"name": {"type": "string"}}}
    given = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "yes": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}}, "place": {"$ref": "#/definitions/place"},
            "far": {"$ref": "place.json"}, "maybe": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/place"}]},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]}, "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any": {"type": "object"}, "kind": {"enum": ["a", "b"]}, "all": {},
        },
        "allOf": [{"properties": {"more": {"type": ["integer", "number"]}}}],
        "definitions": {"place": place},
    }  # fmt: skip
    schema = RegistrySchema(1, "JSON", json.dumps(given), (("place.json", json.dumps(place)),))
    assert json_columns(schema) == {
        "n": "bigint", "x": "double", "yes": "boolean", "at": "timestamp", "day": "date", "tags": "array<string>",
        "place": "struct<`name`:string>", "far": "struct<`name`:string>", "maybe": "struct<`name`:string>", "either": "string",
        "counts": "map<string,bigint>", "any": "string", "kind": "string", "all": "string", "more": "double",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"type": "string"}, "must be an object with properties"),
        ({"properties": {"a": {"$ref": "#"}}}, "# of the JSON Schema contains itself"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "refers to #/nowhere, which does not exist"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "which is not among its references"),
    ],
)
def test_json_schemas_that_are_no_table(given: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        json_columns(RegistrySchema(1, "JSON", json.dumps(given)))
