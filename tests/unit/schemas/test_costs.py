"""What a hostile schema costs: as much as its size, and no more than the limits."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafkalite.schemas.formats import parse
from kafkalite.schemas.schema import Import, InvalidSchema, Reference, Schema
from kafkalite.schemas.subjects import Subjects, Version, version_record
from kafkalite.security.acl import Operation
from tests.support.calls import calls
from tests.support.schema_api import Api


def parsing(value: Any) -> int:
    text = json.dumps(value)
    return calls(lambda: parse("JSON", text))


@pytest.mark.parametrize("values", [[1] * 50_000, [[]] * 50_000, {f"k{number}": "" for number in range(50_000)}])
async def test_values_are_counted_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch, values: Any) -> None:
    """The parser of JSON keeps the interpreter until it is done, in a thread, too."""
    assert await Api()("POST", "/subjects/t/versions", {"schema": '"int"', "metadata": values}) == 422
    loads, parsed = json.loads, []

    def counted(text: str, **options: Any) -> Any:
        parsed.append(text)
        return loads(text, **options)

    monkeypatch.setattr(json, "loads", counted)
    text = json.dumps(values)
    for kind in ("AVRO", "JSON"):
        with pytest.raises(InvalidSchema, match="more than 20,000 values"):
            parse(kind, text)
    assert text not in parsed


def test_as_many_values_as_are_allowed_are_parsed() -> None:
    """Whatever is in their strings."""
    parse("JSON", json.dumps({"enum": ['[1,2,"\\"]', *({f"{number}": '{,["\\'} for number in range(9_990))]}))


def test_anchors_are_looked_for_once() -> None:
    """For each reference the whole schema was searched, and for each step of a chain of them."""

    def schema(count: int) -> dict[str, Any]:
        chain = {f"x{each}": {"$anchor": f"c{each}", "$ref": f"#c{each - 1}"} for each in range(1, 90)}
        return {
            "first": {"$anchor": "c0", "type": "string"},
            **chain,
            "properties": {f"p{each}": {"$ref": "#c89"} for each in range(count)},
            "others": [{} for _ in range(count)],
        }

    parsing(schema(10))
    assert parsing(schema(1_000)) < 12 * parsing(schema(100))


def test_a_comparison_counts_what_references_lead_to() -> None:
    """Each property compared half a megabyte, and both lists of names with each other: hours of a thread for two schemas."""
    names = [f"n{number}" for number in range(5_000)]

    def schema(required: list[str]) -> str:
        properties = {f"p{number}": {"$ref": "#/definitions/b"} for number in range(5_000)}
        return json.dumps({"definitions": {"b": {"required": required}}, "properties": properties})

    writer, reader = parse("JSON", schema(names[::-1])), parse("JSON", schema(names))
    with pytest.raises(InvalidSchema, match="too large to be compared"):
        reader.cannot_read(writer)


def test_a_comparison_counts_what_properties_have_in_common() -> None:
    writer = parse("JSON", json.dumps({"additionalProperties": {"description": "x" * 800_000, "minimum": 1}}))
    reader = parse("JSON", json.dumps({"properties": {f"p{number}": {"minimum": 0} for number in range(5_000)}}))
    with pytest.raises(InvalidSchema, match="too large to be compared"):
        reader.cannot_read(writer)


def test_a_comparison_counts_what_is_put_together() -> None:
    definitions = {"p": {"properties": {f"p{number}": {"minimum": number} for number in range(3_000)}}}
    parts = [{"$ref": "#/definitions/p"}] * 4_000
    writer = parse("JSON", json.dumps({"definitions": definitions, "allOf": parts}))
    reader = parse("JSON", json.dumps({"properties": {"a": {"minimum": 0}}}))
    with pytest.raises(InvalidSchema, match="too large to be compared"):
        reader.cannot_read(writer)


@pytest.mark.parametrize("type_", ["AVRO", "JSON", "PROTOBUF"])
def test_what_a_schema_refers_to_has_a_limit_of_its_own(type_: str) -> None:
    """A hundred references to the largest schemas were parsed with each request: minutes of a thread."""
    text = {"AVRO": '"int"', "JSON": "{}", "PROTOBUF": 'syntax = "proto3"; message A {}'}[type_]
    with pytest.raises(InvalidSchema, match="together"):
        parse(type_, text, [Import(f"r{number}", " " * 90_000) for number in range(11)])


def descriptor(count: int) -> FileDescriptorProto:
    """Each field is in a oneof of its own, and no reserved range or name is that of a field."""
    file = FileDescriptorProto(name="a", syntax="proto3")
    message = file.message_type.add(name="A")
    for number in range(count):
        message.reserved_range.add(start=100_000 + number, end=100_001 + number)
        message.reserved_name.append(f"r{number}")
        message.oneof_decl.add(name=f"o{number}")
        message.field.add(name=f"f{number}", number=number + 1, type=5, label=1, oneof_index=number)
    return file


def test_a_descriptor_costs_as_much_as_its_parts() -> None:
    def cost(count: int) -> int:
        text = base64.b64encode(descriptor(count).SerializeToString()).decode()
        parsed = parse("PROTOBUF", text)
        assert not parsed.cannot_read(parsed)
        return calls(lambda: parse("PROTOBUF", text).cannot_read(parsed))

    cost(1)
    assert cost(500) < 12 * cost(50)


def test_a_descriptor_is_as_large_as_a_file_at_most() -> None:
    """What is kept is its text: it could not be read again, and its subject took no further version."""
    for count in (3_000, 1_500):
        text = base64.b64encode(descriptor(count).SerializeToString()).decode()
        with pytest.raises(InvalidSchema, match="more than 100,000 bytes"):
            parse("PROTOBUF", text)


@pytest.mark.parametrize(
    ("ranges", "number", "is_reserved"),
    [(((5, 9), (2, 30)), 10, True), (((5, 9), (2, 30)), 30, False), (((5, 9),), 4, False), (((5, 9),), 5, True), (((5, 9),), 9, False)],
)  # fmt: skip
def test_reserved_ranges_may_overlap(ranges: tuple[tuple[int, int], ...], number: int, *, is_reserved: bool) -> None:
    file = FileDescriptorProto(name="a", syntax="proto3")
    message = file.message_type.add(name="A")
    for start, end in ranges:
        message.reserved_range.add(start=start, end=end)
    message.field.add(name="f", number=number, type=5, label=1)
    text = base64.b64encode(file.SerializeToString()).decode()
    if is_reserved:
        with pytest.raises(InvalidSchema, match="reserved"):
            parse("PROTOBUF", text)
    else:
        parse("PROTOBUF", text)


def test_patterns_are_checked_as_long_as_that_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes 4 ms to compile some classes of characters: a schema of 900 kB kept the thread for eight minutes, and its patterns in memory."""
    compiled: list[str] = []
    real = re.compile

    def compile_(pattern: Any, flags: Any = 0) -> Any:
        if isinstance(pattern, str) and "\uffff" in pattern:
            compiled.append(pattern)
            return real(".")
        return real(pattern, flags)

    monkeypatch.setattr(re, "compile", compile_)
    parse("JSON", json.dumps({"pattern": "[!-\uffff]" * 100_000}, ensure_ascii=False))
    assert not compiled
    parse("JSON", json.dumps({"properties": {f"p{each}": {"pattern": "[!-\uffff]"} for each in range(5_000)}}))
    assert 100 < len(compiled) < 500
    with pytest.raises(InvalidSchema, match="'regex'"):
        parse("JSON", json.dumps({"patternProperties": {"(": {}}}))


def filled(count: int) -> Api:
    """A subject for each of so many schemas, and one that refers to the first."""
    api = Api()
    state = api.registry.state
    for number in range(count):
        state.replay(*version_record(Version(f"t{number}", 1, number + 1, Schema("AVRO", f'"{number}"'))))
    referring = Schema("AVRO", '"int"', (Reference("n", "t0", 1),))
    state.replay(*version_record(Version("z", 1, count + 1, referring)))
    return api


def asked(api: Api, target: str) -> Any:
    """What a request that waits for nothing gets."""
    try:
        api("GET", target).send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/schemas/ids/1", {"schema": '"0"'}),
        ("/schemas/ids/1/subjects", ["t0"]),
        ("/schemas/ids/1/versions", [{"subject": "t0", "version": 1}]),
        ("/subjects/t0/versions/1/referencedby", 1),
    ],
)
def test_a_schema_is_found_without_a_look_at_all_others(target: str, expected: Any) -> None:
    """With 50,000 versions each of them held the coordinator's loop for 50 to 270 ms, and every reader asks for the first."""

    def cost(count: int) -> int:
        api = filled(count)
        found = asked(api, target)
        assert found == ([count + 1] if expected == 1 else expected)
        return calls(lambda: asked(api, target))

    assert cost(300) < cost(3) + 50  # a few calls more or less are of caches


def test_a_version_is_found_without_a_look_at_the_others_of_its_subject() -> None:
    """A registration with a hundred references to a subject with many versions looked at all of them a hundred times."""

    def cost(count: int) -> int:
        state = Subjects()
        for number in range(1, count + 1):
            state.replay(*version_record(Version("s", number, number, Schema("AVRO", f'"{number}"'))))
        return calls(lambda: state.version("s", 2))

    assert cost(300) < cost(3) + 50  # a few calls more or less are of caches


def test_lists_are_made_in_steps() -> None:
    """A list of 200,000 subjects held the coordinator's loop for seconds."""
    api = filled(2_500)
    names = sorted(["z", *(f"t{number}" for number in range(2_500))])
    assert asked(api, "/subjects") == names
    assert api.pauses >= 2_500
    api.denied.add((Operation.DESCRIBE, names[1]))
    assert asked(api, "/subjects?offset=1&limit=2") == names[2:4]
    assert [each["subject"] for each in asked(api, "/schemas?limit=2&subjectPrefix=t2")] == ["t2", "t20"]
