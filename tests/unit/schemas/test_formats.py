"""Which texts are schemas, and which versions can read what others have written."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafkalite.schemas.compatibility import BACKWARD, FORWARD, FULL, differences
from kafkalite.schemas.formats import parse
from kafkalite.schemas.formats.protobuf_schemas import ProtobufSchema
from kafkalite.schemas.schema import Import, InvalidSchema


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "A", "fields": list(fields)})


X_INT, X_LONG = {"name": "x", "type": "int"}, {"name": "x", "type": "long"}
Y_REQUIRED = {"name": "y", "type": "string"}
Y_OPTIONAL = {"name": "y", "type": ["null", "string"], "default": None}


@pytest.mark.parametrize(
    ("writer", "reader", "reads"),
    [
        (record(X_INT), record(X_LONG), True),
        (record(X_LONG), record(X_INT), False),
        (record(X_INT), record(X_INT, Y_REQUIRED), False),
        (record(X_INT), record(X_INT, Y_OPTIONAL), True),
        (record(X_INT, Y_REQUIRED), record(X_INT), True),
        ('{"type":"enum","name":"E","symbols":["a","b"]}', '{"type":"enum","name":"E","symbols":["a"]}', False),
        ('"string"', '["null","string"]', True),
        ('["null","string"]', '"string"', False),
        (record({"name": "a", "type": ["null", "A"]}), record({"name": "a", "type": ["null", "A"]}), True),
    ],
)
def test_avro_readers(writer: str, reader: str, *, reads: bool) -> None:
    assert (not parse("AVRO", reader).cannot_read(parse("AVRO", writer))) == reads


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('"strin"', "not an Avro schema"),
        ('{"type":"record","name":"1a","fields":[]}', "not a valid Avro name"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate symbol"),
        (record({"name": "x", "type": "int", "default": "q"}), "default of A.x"),
        (record({"name": "x", "type": ["null", "int"], "default": 1}), "default of A.x"),
        (record({"name": "x", "type": "Unknown"}), "Unknown"),
        ("[" * 200 + "]" * 200, "deep"),
        ('{"type":"array","items":' * 150 + '"int"' + "}" * 150, "deep"),
    ],
)
def test_what_is_no_avro_schema(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse("AVRO", text)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_are_no_json(number: str) -> None:
    """Python reads them, and would write them into the text that other languages' clients read."""
    for type_, text in (("AVRO", record({"name": "x", "type": "double", "default": 0})), ("JSON", '{"maximum": 0}')):
        with pytest.raises(InvalidSchema, match="JSON"):
            parse(type_, text.replace(" 0", f" {number}"))


def test_avro_references() -> None:
    text = record({"name": "b", "type": "com.example.B"})
    with pytest.raises(InvalidSchema):
        parse("AVRO", text)
    other = Import("com.example.B", '{"type":"record","namespace":"com.example","name":"B","fields":[]}')
    assert parse("AVRO", text, [other]).text == text.replace(": ", ":").replace(", ", ",")


CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"b": {"type": "string"}}


@pytest.mark.parametrize(
    ("writer", "reader", "reads"),
    [
        (OPEN, {**OPEN, "properties": {**OPEN["properties"], **B}}, False),  # type: ignore[dict-item]
        (CLOSED, {**CLOSED, "properties": {**CLOSED["properties"], **B}}, True),  # type: ignore[dict-item]
        (CLOSED, {"type": "object", "additionalProperties": False}, False),
        (OPEN, {"type": "object"}, True),
        (OPEN, CLOSED, False),
        (CLOSED, {**CLOSED, "properties": {"a": {"type": "number"}}}, True),
        (CLOSED, {**CLOSED, "required": ["a"]}, False),
        ({**CLOSED, "required": ["a"]}, CLOSED, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, True),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, False),
        ({"enum": ["a", "b"]}, {"type": "string"}, True),
        ({"const": 3}, {"type": "integer", "maximum": 2}, False),
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}, False),
        ({"type": "integer", "maximum": 5}, {"type": "integer", "maximum": 6}, True),
        ({"type": "integer"}, {"type": "integer", "maximum": 6}, False),
        ({"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "number"}}, True),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}, False),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, False),
        ({"type": "string"}, {"type": "string", "pattern": "^a"}, False),
        ({"allOf": [{"type": "object", "required": ["a"]}, OPEN]}, {"type": "object", "required": ["a"]}, True),
        (True, False, False),
        (False, {"type": "null"}, True),
    ],
)
def test_json_schema_readers(writer: Any, reader: Any, *, reads: bool) -> None:
    found = parse("JSON", json.dumps(reader)).cannot_read(parse("JSON", json.dumps(writer)))
    assert (not found) == reads, found


def test_json_schemas_that_refer_to_themselves() -> None:
    def tree(**more: Any) -> str:
        return json.dumps(
            {"type": "object", "properties": {"next": {"$ref": "#"}, **more}, "additionalProperties": False}
        )

    assert not parse("JSON", tree(v={"type": "integer"})).cannot_read(parse("JSON", tree()))
    assert parse("JSON", tree()).cannot_read(parse("JSON", tree(v={"type": "integer"})))


def test_json_references() -> None:
    with pytest.raises(InvalidSchema, match="no reference has this name"):
        parse("JSON", '{"$ref": "other.json"}')
    number = parse("JSON", '{"$ref": "other.json"}', [Import("other.json", '{"type":"number"}')])
    integer = parse("JSON", '{"$ref": "other.json"}', [Import("other.json", '{"type":"integer"}')])
    assert not number.cannot_read(integer)
    assert integer.cannot_read(number)


@pytest.mark.parametrize(
    "text", ["{", "3", '{"type":"nope"}', '{"properties":{"a":{"$ref":"#/definitions/b"}}}', '{"$ref":"#"}']
)
def test_what_is_no_json_schema(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse("JSON", text)


def message(fields: str) -> str:
    return f'syntax = "proto3"; message A {{ {fields} }}'


@pytest.mark.parametrize(
    ("writer", "reader", "reads"),
    [
        ("int32 a = 1;", "int32 a = 1; string b = 2;", True),
        ("int32 a = 1; string b = 2;", "int32 a = 1;", True),
        ("int32 a = 1;", "int64 a = 1;", True),
        ("string a = 1;", "bytes a = 1;", True),
        ("int32 a = 1;", "sint32 a = 1;", False),
        ("int32 a = 1;", "string a = 1;", False),
        ("int32 a = 1;", "repeated int32 a = 1;", False),
        ("string a = 1;", "repeated string a = 1;", True),
        ("int32 a = 1;", "oneof k { int32 a = 1; }", True),
        ("int32 a = 1; int32 b = 2;", "oneof k { int32 a = 1; int32 b = 2; }", False),
        ("oneof k { int32 a = 1; int32 b = 2; }", "oneof k { int32 a = 1; }", False),
        ("map<string, int32> a = 1;", "map<string, int64> a = 1;", True),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", False),
        ("message N { int32 x = 1; } N n = 1;", "message N { string x = 1; } N n = 1;", False),
    ],
)
def test_protobuf_readers(writer: str, reader: str, *, reads: bool) -> None:
    found = parse("PROTOBUF", message(reader)).cannot_read(parse("PROTOBUF", message(writer)))
    assert (not found) == reads, found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("message A {", "line 1"),
        ('syntax = "proto3";', "no message"),
        ("message A { int32 a = 1; int32 b = 1; }", "same number"),
        ("message A { B b = 1; }", "'B' is not defined"),
        ('import "u.proto"; message A {}', "not among the references"),
        ('syntax = "proto4"; message A {}', "syntax"),
        ('syntax = "proto3"; message A {} enum E { A = 1; }', "must be 0"),
        ("message A { int32 a = 19500; }", "number of a field"),
        ("message A { reserved 3; int32 a = 3; }", "reserved"),
        ("message A {" * 150 + "}" * 150, "deep"),
    ],
)
def test_what_is_no_proto_file(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse("PROTOBUF", text)


WHOLE = """
syntax = "proto3"; package p.q; import "google/protobuf/timestamp.proto"; option java_package = "x";
message M {
  reserved 14, 16 to 18; reserved "z";
  map<string, N> m = 5; oneof k { int32 a = 1; string b = 2 [deprecated = true]; }
  optional .p.q.M.N n = 3; google.protobuf.Timestamp t = 9; E e = 10;
  message N { repeated int64 x = 1 [packed = true]; }
  enum E { A = 0; B = 1; }
}
service S { rpc F (M) returns (stream M); }
"""


def test_a_descriptor_is_complete_and_means_the_same_as_its_text() -> None:
    parsed = parse("PROTOBUF", WHOLE)
    assert isinstance(parsed, ProtobufSchema)
    pool = descriptor_pool.DescriptorPool()
    imported = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    pool.Add(imported)
    pool.Add(parsed.file)
    fields = pool.FindMessageTypeByName("p.q.M").fields_by_name
    assert sorted(fields) == ["a", "b", "e", "m", "n", "t"]
    assert fields["t"].message_type.full_name == "google.protobuf.Timestamp"
    again = parse("PROTOBUF", parsed.serialized())
    assert not again.cannot_read(parsed) and not parsed.cannot_read(again)
    assert parse("PROTOBUF", again.text).text.split() == again.text.split()


def _sent(**fields: Any) -> str:
    """A file as a serializer sends it: a descriptor in base64."""
    return base64.b64encode(FileDescriptorProto(name="default", **fields).SerializeToString()).decode()


@pytest.mark.parametrize("depth", [0, 1])
def test_a_group_in_a_descriptor_is_refused_like_one_in_a_text(depth: int) -> None:
    """It was shown as a message: who reads by that text gets no value, and no error."""
    message: dict[str, Any] = {
        "name": "M",
        "field": [{"name": "g", "number": 3, "label": 1, "type": 10, "type_name": ".M.G"}],
        "nested_type": [{"name": "G", "field": [{"name": "x", "number": 1, "label": 1, "type": 5}]}],
    }
    if depth:
        message = {"name": "Outer", "nested_type": [message]}
    with pytest.raises(InvalidSchema, match="the group 'g': groups are not supported"):
        parse("PROTOBUF", _sent(message_type=[message]))


def test_a_descriptor_of_an_edition_is_refused_like_its_text() -> None:
    """It was taken, and shown as a text that nobody can read."""
    with pytest.raises(InvalidSchema, match="editions"):
        parse("PROTOBUF", _sent(syntax="editions", message_type=[{"name": "M"}]))


def test_a_default_of_bytes_comes_back_as_it_was() -> None:
    """A descriptor has it escaped already."""
    field = {"name": "b", "number": 1, "label": 1, "type": 12, "default_value": r"\001\377"}
    parsed = parse("PROTOBUF", _sent(message_type=[{"name": "M", "field": [field]}]))
    assert r'[default = "\001\377"]' in parsed.text
    assert parse("PROTOBUF", parsed.text).text.split() == parsed.text.split()


def test_a_default_with_escapes_comes_back_as_it_was() -> None:
    """The writer escaped it once more with each version that was read and written."""
    text = r"""syntax = "proto2";
message M {
  optional string s = 1 [default = "a\n\"b\\"];
  optional bytes b = 2 [default = "\x01\377"];
  optional string q = 3 [default = 'c"d'];
}"""
    parsed = parse("PROTOBUF", text)
    assert isinstance(parsed, ProtobufSchema)
    assert parsed.text == text.replace("'c\"d'", r'"c\"d"') and parse("PROTOBUF", parsed.text).text == parsed.text
    assert [field.default_value for field in parsed.file.message_type[0].field] == ['a\n"b\\', r"\001\377", 'c"d']
    again = parse("PROTOBUF", parsed.serialized())
    assert isinstance(again, ProtobufSchema)
    assert again.file.message_type == parsed.file.message_type
    assert parse("PROTOBUF", again.text).text.split() == again.text.split()
    with pytest.raises(InvalidSchema, match="the default"):
        parse("PROTOBUF", r'syntax = "proto2"; message M { optional string s = 1 [default = "\377"]; }')


def test_a_protobuf_file_of_imports_only() -> None:
    """Found by confluent-kafka-python's suite: its serializer sends every file as a descriptor in base64."""
    imports = [Import("a.proto", 'syntax = "proto3"; package p; message A {}')]
    text = 'syntax = "proto3"; package p; import public "a.proto";'
    parsed = parse("PROTOBUF", text, imports)
    assert isinstance(parsed, ProtobufSchema)
    again = parse("PROTOBUF", parsed.serialized(), imports)
    assert isinstance(again, ProtobufSchema) and list(again.file.public_dependency) == [0]
    with pytest.raises(InvalidSchema):
        parse("PROTOBUF", "abcd", ())


def test_protobuf_references() -> None:
    other = Import("o.proto", 'syntax = "proto3"; package o; message B { int32 x = 1; }')
    parsed = parse("PROTOBUF", 'syntax = "proto3"; import "o.proto"; message A { o.B b = 1; }', [other])
    assert isinstance(parsed, ProtobufSchema)
    assert parsed.file.message_type[0].field[0].type_name == ".o.B"


def test_levels() -> None:
    old, new = parse("AVRO", record(X_INT)), parse("AVRO", record(X_LONG))
    newest = parse("AVRO", record(X_LONG, Y_OPTIONAL))
    assert not differences(BACKWARD, new, [(1, old)])
    assert differences(FORWARD, new, [(1, old)]) and differences(FULL, new, [(1, old)])
    assert not differences(FULL, newest, [(1, old), (2, new)]), "only the newest counts"
    assert differences("FULL_TRANSITIVE", newest, [(1, old), (2, new)])


def test_comparisons_that_would_take_minutes_are_refused() -> None:
    def union(kind: str) -> str:
        branches = [{"type": "record", "name": f"U{n}", "fields": [{"name": "a", "type": kind}]} for n in range(300)]
        return json.dumps(branches)

    new, old = parse("AVRO", union("int"), []), parse("AVRO", union("long"), [])
    with pytest.raises(InvalidSchema, match="pairs of types"):
        new.cannot_read(old)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_schemas_with_too_many_values_are_refused(kind: str) -> None:
    fields = [{"name": f"f{n}", "type": ["null", "int"], "default": None} for n in range(4_000)]
    text = json.dumps({"type": "record", "name": "R", "fields": fields} if kind == "AVRO" else {"enum": fields})
    with pytest.raises(InvalidSchema, match="more than 20,000 values"):
        parse(kind, text, [])


def test_json_schemas_whose_parts_double_with_each_level_are_refused() -> None:
    def doubling(kind: str) -> str:
        parts: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(60)}
        definitions = parts | {"d60": {"type": kind}}
        return json.dumps({"definitions": definitions, "properties": {"a": {"$ref": "#/definitions/d0"}}})

    old, new = parse("JSON", doubling("integer"), []), parse("JSON", doubling("number"), [])
    with pytest.raises(InvalidSchema, match="too large to be compared"):
        new.cannot_read(old)


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("values", [{"const": "x"}, {"enum": ["x", "y"]}], ids=["const", "enum"])
def test_values_under_a_schema_that_doubles_with_each_level_are_not_tried_for_ever(
    word: str, values: dict[str, Any]
) -> None:
    parts: dict[str, Any] = {f"d{n}": {word: [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(40)}
    definitions = parts | {"d40": {"type": "integer" if word == "anyOf" else "string"}}
    new = parse("JSON", json.dumps({"definitions": definitions, "allOf": [{"$ref": "#/definitions/d0"}]}), [])
    with pytest.raises(InvalidSchema, match="too large to be compared"):
        new.cannot_read(parse("JSON", json.dumps(values), []))


def test_a_pattern_that_backtracks_holds_nothing() -> None:
    new = parse("JSON", '{"type":"string","pattern":"^(a+)+$"}', [])
    values = json.dumps({"enum": ["a" * 60, "a" * 60 + "!"]})
    assert len(new.cannot_read(parse("JSON", values, []))) == 1


def test_thousands_of_values_against_thousands() -> None:
    old, new = ({"enum": [{"a": number + more} for number in range(5_000)]} for more in (0, 1))
    (found,) = parse("JSON", json.dumps(new), []).cannot_read(parse("JSON", json.dumps(old), []))
    assert '{"a": 0} is no longer accepted' in found


def test_a_draft_that_wants_unique_values_compares_each_once() -> None:
    values: list[Any] = [{"a": number} for number in range(5_000)]
    schema: dict[str, Any] = {"$schema": "http://json-schema.org/draft-04/schema#", "enum": values}
    parse("JSON", json.dumps(schema), [])
    nested = {"$schema": schema["$schema"], "properties": {"a": {"enum": values}}}
    parse("JSON", json.dumps(nested), [])
    values[-1] = {"a": 0.0}
    with pytest.raises(InvalidSchema, match="not unique"):
        parse("JSON", json.dumps(nested), [])


def test_values_under_references_of_an_import() -> None:
    other = '{"definitions":{"name":{"type":"string","maxLength":3}},"properties":{"n":{"$ref":"#/definitions/name"}}}'
    new = parse("JSON", '{"allOf":[{"$ref":"other.json"}]}', [Import("other.json", other)])
    assert not new.cannot_read(parse("JSON", '{"const":{"n":"abc"}}', []))
    assert new.cannot_read(parse("JSON", '{"const":{"n":"abcd"}}', []))


OPTIONS = """syntax = "proto3";
// what it is
package a.b;
option optimize_for = SPEED;
option java_package = "com.x";
option (tags) = { name: "t" };
message M {
  map<string, N> m = 3 [deprecated = true];
  int32 x = 1 [json_name = "X", deprecated = true];
  oneof o {
    int64 t = 7;
    string s = 2;
  }
  message N {
  }
  N n = 4;
}
enum E {
  A = 0 [deprecated = true];
  B = 1;
}
service S {
  rpc R (M) returns (stream M) {
    option idempotency_level = NO_SIDE_EFFECTS;
  }
}"""


def test_a_proto_file_keeps_its_options_and_comments() -> None:
    text = parse("PROTOBUF", OPTIONS).text
    for line in OPTIONS.splitlines():
        assert line.strip() in text.replace('{\n  name: "t"\n}', '{ name: "t" }'), text
    assert parse("PROTOBUF", text).text == text


@pytest.mark.parametrize(
    ("type_", "one", "other"),
    [
        (
            "AVRO",
            """{"type": "record", "namespace": "a.b", "name": "R", "doc": "d", "fields": [
                {"name": "x", "type": {"type": "int"}, "default": 1},
                {"name": "r", "type": ["null", "a.b.R"]},
                {"name": "e", "type": {"type": "enum", "name": "a.b.E", "symbols": ["A"]}},
                {"name": "f", "type": {"type": "fixed", "name": "c.F", "size": 2, "own": {"q": 1, "p": 2}}}]}""",
            """{"fields": [
                {"default": 1, "type": "int", "name": "x"},
                {"type": ["null", "R"], "name": "r"},
                {"type": {"symbols": ["A"], "namespace": "a.b", "name": "E", "type": "enum"}, "name": "e"},
                {"name": "f", "type": {"type": "fixed", "own": {"p": 2, "q": 1}, "size": 2, "namespace": "c", "name": "F"}}],
                "name": "a.b.R", "doc": "d", "type": "record"}""",
        ),
        ("AVRO", '{"type": "map", "values": {"type": "string"}}', '{"values": "string", "type": "map"}'),
        (
            "JSON",
            '{"type": "object", "properties": {"b": {"type": "integer"}, "a": true}}',
            '{"properties": {"a": true, "b": {"type": "integer"}}, "type": "object"}',
        ),
        (
            "PROTOBUF",
            OPTIONS,
            """syntax="proto3"; package a.b; option java_package = "com.x"; option (tags) = { name: "t" }; option optimize_for = SPEED;
            message M { int32 x = 1 [deprecated = true, json_name = "X"]; oneof o { string s = 2; int64 t = 7; }
            map<string, .a.b.M.N> m = 3 [deprecated = true]; message N {} M.N n = 4; }
            enum E { A = 0 [deprecated = true]; B = 1; }
            service S { rpc R (M) returns (stream .a.b.M) { option idempotency_level = NO_SIDE_EFFECTS; } }""",
        ),
    ],
)
def test_what_differs_in_order_only_has_one_normal_text(type_: str, one: str, other: str) -> None:
    normal = parse(type_, one).normalized()
    assert parse(type_, other).normalized() == normal
    again = parse(type_, normal)
    assert again.normalized() == normal
    assert not again.cannot_read(parse(type_, one)) and not parse(type_, one).cannot_read(again)


def test_messages_keep_their_places_in_the_normal_text() -> None:
    """Serializers write a message's index in front of each record."""
    normal = parse("PROTOBUF", 'syntax = "proto3"; message B { message D {} message C {} } message A {}').normalized()
    parsed = parse("PROTOBUF", normal)
    assert isinstance(parsed, ProtobufSchema)
    assert [each.name for each in parsed.file.message_type] == ["B", "A"]
    assert [each.name for each in parsed.file.message_type[0].nested_type] == ["D", "C"]


def test_an_avro_name_outside_the_namespace_around_it() -> None:
    text = """{"type": "record", "name": "a.R", "fields": [{"name": "x", "type":
        {"type": "record", "name": "Q", "namespace": "b", "fields": [{"name": "y", "type": ["null", "Q", "a.R"]}]}}]}"""
    normal = json.loads(parse("AVRO", text).normalized())
    [field] = normal["fields"]
    assert (normal["namespace"], field["type"]["namespace"]) == ("a", "b")
    assert field["type"]["fields"][0]["type"] == ["null", "Q", "a.R"]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("AVRO", record({"name": "x", "type": [], "default": 1})),
        ("AVRO", '{"type":"fixed","name":"F","size":Infinity,"logicalType":"decimal","precision":4}'),
        ("AVRO", r'{"type":"string","doc":"\ud800"}'),
        ("JSON", '{"$schema":5}'),
        ("JSON", '{"$schema":["x"]}'),
        ("JSON", r'{"title":"\ud800"}'),
        ("JSON", '{"$ref":"#/enum/0","enum":[5]}'),
        ("PROTOBUF", "message A { optional int32 x = 99999999999999999999; }"),
        ("PROTOBUF", "enum E { A = 99999999999; }"),
        ("PROTOBUF", "message A { reserved 99999999999 to 5; }"),
    ],
)
def test_what_the_packages_stumble_over_is_no_schema(type_: str, text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(type_, text)


def test_a_canonical_text_that_is_too_long() -> None:
    """1e15 becomes 1000000000000000.0: such a record did not fit into the topic."""
    text = json.dumps({"title": "x" * 700_000, "enum": [0] * 18_000}).replace(" 0", "1e15")
    with pytest.raises(InvalidSchema, match="bytes"):
        parse("JSON", text)


def test_a_type_that_the_package_cannot_compare_is_an_error_in_words() -> None:
    error = parse("AVRO", '{"type":"error","name":"A","fields":[]}')
    with pytest.raises(InvalidSchema, match="error"):
        error.cannot_read(parse("AVRO", '"int"'))


GOOGLE_TYPES = {
    "calendar_period": "CalendarPeriod", "color": "Color", "date": "Date", "datetime": "DateTime", "dayofweek": "DayOfWeek",
    "decimal": "Decimal", "expr": "Expr", "fraction": "Fraction", "interval": "Interval", "latlng": "LatLng", "money": "Money",
    "month": "Month", "phone_number": "PhoneNumber", "postal_address": "PostalAddress", "quaternion": "Quaternion",
    "timeofday": "TimeOfDay",
}  # fmt: skip


def test_googles_common_types_need_no_reference() -> None:
    """Confluent's registry and clients have them built in, as they have google/protobuf: the import was not among the references."""
    lines = [f'import "google/type/{name}.proto";' for name in GOOGLE_TYPES]
    fields = [f"google.type.{name} f{number} = {number};" for number, name in enumerate(GOOGLE_TYPES.values(), 1)]
    parsed = parse("PROTOBUF", f'syntax = "proto3"; {" ".join(lines)} message A {{ {" ".join(fields)} }}')
    assert isinstance(parsed, ProtobufSchema)
    enums = {field.type_name for field in parsed.file.message_type[0].field if field.type == field.TYPE_ENUM}
    assert enums == {".google.type.CalendarPeriod", ".google.type.DayOfWeek", ".google.type.Month"}
    again = parse("PROTOBUF", parsed.serialized())
    assert isinstance(again, ProtobufSchema) and again.file == parsed.file
    for name in ("dates", "../date", "date.proto", ""):
        with pytest.raises(InvalidSchema, match="does not exist"):
            parse("PROTOBUF", f'syntax = "proto3"; import "google/type/{name}.proto"; message A {{}}')


def test_a_reference_of_that_name_is_taken_instead() -> None:
    own = Import("google/type/date.proto", 'syntax = "proto3"; package google.type; message Date { int64 day = 1; }')
    text = 'syntax = "proto3"; import "google/type/date.proto"; message A { google.type.Date d = 1; }'
    before, now = parse("PROTOBUF", text), parse("PROTOBUF", text, [own])
    assert isinstance(now, ProtobufSchema)
    assert [field.name for field in now.messages[".google.type.Date"].field] == ["day"]
    assert now.cannot_read(parse("PROTOBUF", text, [own])) == []
    assert before.text == now.text


def test_a_reference_may_import_what_everybody_has() -> None:
    """The type 'google.protobuf.Timestamp' was not defined."""
    imports = 'import "google/protobuf/timestamp.proto"; import "google/type/money.proto";'
    other = f'syntax = "proto3"; package r; {imports} message R {{ google.protobuf.Timestamp t = 1; google.type.Money m = 2; }}'
    parsed = parse(
        "PROTOBUF", 'syntax = "proto3"; import "r.proto"; message A { r.R d = 1; }', [Import("r.proto", other)]
    )
    assert isinstance(parsed, ProtobufSchema)
    assert parsed.file.message_type[0].field[0].type_name == ".r.R"


EXTENDING = """syntax = "proto2"; package a.b; import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { optional string tag = 50001; repeated M many = 50002; }
message M {
  extensions 100 to 199; optional int32 x = 1;
  extend M { optional string inner = 101 [deprecated = true]; }
  message N { extend M { optional E e = 102 [default = B]; } }
  enum E { A = 0; B = 1; }
}
"""


def test_extensions_of_a_descriptor_are_shown() -> None:
    """The text that was kept for it had none of its `extend` blocks, and neither had the descriptor of a text."""
    parsed = parse("PROTOBUF", EXTENDING)
    assert isinstance(parsed, ProtobufSchema)
    again = parse("PROTOBUF", parsed.serialized())
    assert isinstance(again, ProtobufSchema)
    assert "extend .google.protobuf.FieldOptions" in again.text and again.text.count("extend .a.b.M") == 2
    assert again.file == parsed.file
    from_text = parse("PROTOBUF", again.text)
    assert isinstance(from_text, ProtobufSchema)
    assert from_text.file == parsed.file
    pool = descriptor_pool.DescriptorPool()
    imported = FileDescriptorProto()
    descriptor_pb2.DESCRIPTOR.CopyToProto(imported)
    pool.Add(imported)
    pool.Add(again.file)
    assert pool.FindExtensionByName("a.b.M.N.e").containing_type.full_name == "a.b.M"
    assert pool.FindExtensionByName("a.b.tag").number == 50001


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M {} extend Nobody { optional int32 a = 100; }", "the type 'Nobody' is not defined"),
        ("enum E { A = 0; } extend E { optional int32 a = 100; }", "the enum E cannot be extended"),
        ("message M { extensions 100; } extend M { optional group G = 100 { } }", "groups are not supported"),
    ],
)
def test_what_cannot_be_extended(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse("PROTOBUF", text)
