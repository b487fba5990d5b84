"""The REST API over a log in memory: what is registered, found, deleted; errors with Confluent's codes; rights; lost appends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kafkalite.schemas import rest
from kafkalite.schemas.subjects import Subjects
from kafkalite.security.acl import Operation
from tests.support.schema_api import INT, LONG, STRING, Api, contents_of


async def test_versions_and_ids(api: Api) -> None:
    first = await api("POST", "/subjects/t-value/versions", INT)
    assert (first["id"], first["version"]) == (1, 1)
    assert (await api("POST", "/subjects/t-value/versions", LONG))["id"] == 2
    assert await api("POST", "/subjects/t-value/versions", INT) == first, "registering again changes nothing"
    assert (await api("POST", "/subjects/u-value/versions", LONG))["id"] == 2, "one schema, one id"
    assert await api("GET", "/subjects") == ["t-value", "u-value"]
    assert await api("GET", "/subjects?subjectPrefix=u") == ["u-value"]
    assert await api("GET", "/subjects/t-value/versions") == [1, 2]
    assert (await api("GET", "/subjects/t-value/versions/latest"))["id"] == 2
    text = (await api("GET", "/schemas/ids/1"))["schema"]
    assert json.loads(text) == json.loads(INT["schema"]) and " " not in text
    assert (await api("GET", "/schemas/ids/1/schema")).text == text
    assert await api("GET", "/schemas/ids/2/subjects") == ["t-value", "u-value"]
    assert await api("GET", "/schemas/ids/2/versions") == [
        {"subject": "t-value", "version": 2},
        {"subject": "u-value", "version": 1},
    ]
    assert (await api("POST", "/subjects/t-value", INT))["version"] == 1
    assert [each["id"] for each in await api("GET", "/schemas?latestOnly=true")] == [2, 2]


async def test_a_list_of_schemas_has_a_limited_size(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text counts once in memory, however many subjects have it, and a list has it for each of them."""
    text = {"schema": json.dumps({"type": "enum", "name": "e", "symbols": [f"a{number}" for number in range(50)]})}
    monkeypatch.setattr(rest, "MAX_LISTED_TEXT", 700)
    for number in range(3):
        await api("POST", f"/subjects/t{number}/versions", text)
    assert await api("GET", "/schemas") == 422
    assert len(await api("GET", "/schemas?limit=1")) == 1
    assert len(await api("GET", "/schemas?offset=1&limit=2")) == 2
    assert len(await api("GET", "/schemas?subjectPrefix=t1")) == 1
    monkeypatch.setattr(rest, "MAX_LISTED_TEXT", 100)
    assert len(await api("GET", "/schemas?limit=1")) == 1, "one schema can always be read"


@pytest.mark.parametrize(
    ("method", "target", "body", "code"),
    [
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/t-value/versions/7", None, 40402),
        ("GET", "/subjects/t-value/versions/x", None, 42202),
        ("GET", "/subjects/t-value/versions/0", None, 42202),
        ("GET", "/schemas/ids/9", None, 40403),
        ("POST", "/subjects/t-value", STRING, 40403),
        ("POST", "/subjects/t-value/versions", {"schema": "{"}, 42201),
        ("POST", "/subjects/t-value/versions", {}, 42201),
        ("POST", "/subjects/t-value/versions", {"schema": '"int"', "schemaType": "XML"}, 42201),
        ("POST", "/subjects/t-value/versions", [], 422),
        ("POST", "/subjects/t-value/versions", STRING, 409),
        ("POST", "/subjects/t-value/versions", {"schema": '{"type":"object"}', "schemaType": "JSON"}, 409),
        ("POST", "/subjects/a%0ab/versions", INT, 42208),
        ("POST", "/subjects/t-value/versions", {**INT, "id": 7}, 200),
        ("POST", "/subjects/new/versions", {**INT, "id": 7}, 42205),
        ("PUT", "/config", {"compatibility": "SOMETIMES"}, 42203),
        ("GET", "/config/t-value", None, 40408),
        ("PUT", "/mode", {"mode": "SOMETIMES"}, 42204),
        ("GET", "/mode/t-value", None, 40409),
        ("DELETE", "/subjects/t-value?permanent=true", None, 40405),
        ("DELETE", "/subjects/t-value/versions/1?permanent=true", None, 40407),
        ("PATCH", "/subjects", None, 405),
        ("GET", "/subjects/a/b/c/d/e", None, 404),
    ],
)
async def test_errors(api: Api, method: str, target: str, body: object, code: int) -> None:
    await api("POST", "/subjects/t-value/versions", INT)
    before = list(api.log)
    found = await api(method, target, body)
    if code == 200:
        assert found == 42205, "an id of one's own needs the mode IMPORT, also for what is there"
    else:
        assert found == code
    assert api.log == before


async def test_deletion(api: Api) -> None:
    for each in (INT, LONG):
        await api("POST", "/subjects/t-value/versions", each)
    assert await api("DELETE", "/subjects/t-value/versions/1") == 1
    assert await api("DELETE", "/subjects/t-value/versions/1") == 40406
    assert await api("GET", "/subjects/t-value/versions") == [2]
    assert await api("GET", "/subjects/t-value/versions?deleted=true") == [1, 2]
    assert (await api("GET", "/schemas/ids/1"))["schema"], "records with the id can still be read"
    assert await api("DELETE", "/subjects/t-value/versions/1?permanent=true") == 1
    assert await api("GET", "/subjects/t-value/versions?deleted=true") == [2]
    assert await api("DELETE", "/subjects/t-value") == [2]
    assert await api("GET", "/subjects") == [] and await api("GET", "/subjects?deleted=true") == ["t-value"]
    assert await api("DELETE", "/subjects/t-value") == 40404
    assert (await api("POST", "/subjects/t-value/versions", INT))["version"] == 3, "a number is not used again"
    await api("DELETE", "/subjects/t-value")
    assert await api("DELETE", "/subjects/t-value?permanent=true") == [2, 3]
    assert await api("GET", "/subjects?deleted=true") == []


async def test_a_reference_is_to_what_is_there_now(api: Api) -> None:
    """What had been parsed once was taken as it was: also after the subject that it refers to had gone, or was registered again."""

    def base(kind: str) -> dict[str, str]:
        return {"schema": json.dumps({"type": "record", "name": "B", "fields": [{"name": "x", "type": kind}]})}

    async def delete(subject: str) -> None:
        for target in (f"/subjects/{subject}", f"/subjects/{subject}?permanent=true"):
            assert await api("DELETE", target) == [1]

    field = {"name": "b", "type": "B", "default": {"x": 1}}
    refers = {
        "schema": json.dumps({"type": "record", "name": "A", "fields": [field]}),
        "references": [{"name": "B", "subject": "b", "version": 1}],
    }
    await api("POST", "/subjects/b/versions", base("int"))
    assert (await api("POST", "/subjects/a/versions", refers))["id"] == 2
    await delete("a")
    await delete("b")
    assert await api("POST", "/subjects/a/versions", refers) == 42201
    await api("POST", "/subjects/b/versions", base("long"))
    assert (await api("POST", "/subjects/a/versions", refers))["id"] == 4, "records with the id 2 have an int"
    again = Subjects()
    for key, value in api.log:
        again.replay(key, value)
    assert contents_of(again) == contents_of(api.registry.state)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_reference_is_to_what_is_there_when_a_version_is_stored(api: Api, *, is_made_again: bool) -> None:
    """A schema is parsed before its turn comes. What it refers to may be deleted meanwhile, and be another schema then."""

    def base(kind: str) -> dict[str, str]:
        return {"schema": json.dumps({"type": "record", "name": "B", "fields": [{"name": "x", "type": kind}]})}

    parsing, is_over = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        parsing.set()
        await is_over.wait()

    field = {"name": "b", "type": "B", "default": {"x": 1}}
    refers = {
        "schema": json.dumps({"type": "record", "name": "A", "fields": [field]}),
        "references": [{"name": "B", "subject": "b", "version": 1}],
    }
    await api("POST", "/subjects/b/versions", base("int"))
    api.parsing, parse_at_once = held, api.parsing
    registering = asyncio.create_task(api("POST", "/subjects/a/versions", refers))
    await parsing.wait()
    api.parsing = parse_at_once
    for target in ("/subjects/b", "/subjects/b?permanent=true"):
        assert await api("DELETE", target) == [1]
    if is_made_again:
        await api("POST", "/subjects/b/versions", base("string"))
    is_over.set()
    assert await registering == 42201, "its default is no B any more" if is_made_again else "there is no B any more"
    assert await api("GET", "/subjects") == (["b"] if is_made_again else [])


async def test_an_id_is_not_given_out_again(api: Api) -> None:
    """Not even when the log was compacted since: records with the id of a deleted schema would be read with the next one."""
    await api("POST", "/subjects/a/versions", INT)
    await api("POST", "/subjects/b/versions", LONG)
    for target in ("/subjects/b", "/subjects/b?permanent=true"):
        assert await api("DELETE", target) == [1]
    await api("POST", "/subjects/a/versions", INT)
    api.registry.state = Subjects()
    for key, value in dict(api.log).items():
        if value is not None:
            api.registry.state.replay(key, value)
    assert await api("GET", "/subjects?deleted=true") == ["a"]
    assert (await api("POST", "/subjects/c/versions", STRING))["id"] == 3
    for target in ("/subjects/c/versions/1", "/subjects/c/versions/1?permanent=true"):
        assert await api("DELETE", target) == 1
    assert json.loads(dict(api.log)[api.log[-2][0]] or b"")["lastId"] == 3


async def test_references(api: Api) -> None:
    other = {"schema": '{"type":"record","name":"B","fields":[]}'}
    await api("POST", "/subjects/b/versions", other)
    refers = {
        "schema": '{"type":"record","name":"A","fields":[{"name":"b","type":"B"}]}',
        "references": [{"name": "B", "subject": "b", "version": 1}],
    }
    assert await api("POST", "/subjects/a/versions", {"schema": refers["schema"]}) == 42201
    assert await api("POST", "/subjects/a/versions", {**refers, "references": [{"name": "B"}]}) == 422
    missing = {**refers, "references": [{"name": "B", "subject": "b", "version": 2}]}
    assert await api("POST", "/subjects/a/versions", missing) == 42201
    made = await api("POST", "/subjects/a/versions", refers)
    assert (await api("GET", "/subjects/a/versions/1"))["references"] == refers["references"]
    assert await api("GET", "/subjects/b/versions/1/referencedby") == [made["id"]]
    assert await api("DELETE", "/subjects/b") == 42206
    assert await api("DELETE", "/subjects/b/versions/1") == 42206
    api.denied.add((Operation.DESCRIBE, "a"))
    assert await api("GET", "/subjects/b/versions/1/referencedby") == [], (
        "a user that may not see a subject may not see its ids"
    )
    assert await api("DELETE", "/subjects/b") == 42206


async def test_levels_and_modes(api: Api) -> None:
    await api("POST", "/subjects/t-value/versions", INT)
    asked = "/compatibility/subjects/t-value/versions/latest"
    assert await api("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await api("POST", asked, LONG) == {"is_compatible": True}
    verbose = await api("POST", asked + "?verbose=true", STRING)
    assert not verbose["is_compatible"] and "cannot read version 1" in verbose["messages"][0]
    assert await api("PUT", "/config/t-value", {"compatibility": "FORWARD"}) == {"compatibility": "FORWARD"}
    assert await api("POST", asked, LONG) == {"is_compatible": False}
    assert await api("DELETE", "/config/t-value") == {"compatibilityLevel": "FORWARD"}
    assert await api("GET", "/config/t-value?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    await api("PUT", "/config", {"compatibility": "NONE"})
    assert (await api("POST", "/subjects/t-value/versions", STRING))["version"] == 2
    assert await api("PUT", "/mode/t-value", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await api("POST", "/subjects/t-value/versions", LONG) == 42205
    assert await api("PUT", "/mode/t-value", {"mode": "IMPORT"}) == 42205, "there are versions"
    assert await api("PUT", "/mode/new", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    moved = await api("POST", "/subjects/new/versions", {"schema": '"long"', "id": 70, "version": 5})
    assert (moved["id"], moved["version"]) == (70, 5)
    assert await api("POST", "/subjects/new/versions", {"schema": '"int"', "id": 70}) == 42205
    assert await api("DELETE", "/mode/new") == {"mode": "IMPORT"}
    assert (await api("POST", "/subjects/newer/versions", {"schema": '"double"'}))["id"] == 71


async def test_what_differs_in_order_only_is_one_schema_when_normalized(api: Api) -> None:
    wide = {"schema": '{"type": "record", "fields": [{"type": {"type": "int"}, "name": "x"}], "name": "A"}'}
    made = await api("POST", "/subjects/t-value/versions?normalize=true", wide)
    assert json.loads(made["schema"]) == json.loads(INT["schema"]), "the normal text is what is registered"
    assert await api("POST", "/subjects/t-value/versions", INT) == made
    assert (await api("POST", "/subjects/t-value?normalize=true", wide))["version"] == 1
    assert await api("POST", "/subjects/t-value", wide) == 40403
    assert (await api("POST", "/subjects/u-value/versions", wide))["id"] == 2
    assert (await api("POST", "/subjects/u-value/versions?normalize=true", wide))["id"] == 2, "registered as it was"
    assert await api("GET", "/subjects/u-value/versions") == [1]


async def test_every_schema_fits_to_a_subject_that_does_not_exist(api: Api) -> None:
    """A build asks before the first registration."""
    for versions in ("versions", "versions/latest"):
        assert await api("POST", f"/compatibility/subjects/new/{versions}", INT) == {"is_compatible": True}
    assert await api("POST", "/compatibility/subjects/new/versions/1", INT) == 40401
    await api("POST", "/subjects/t-value/versions", INT)
    assert await api("POST", "/compatibility/subjects/t-value/versions/2", INT) == 40402


async def test_prefixes_that_name_a_context(api: Api) -> None:
    for subject in ("t-value", "u-value"):
        await api("POST", f"/subjects/{subject}/versions", INT)
    for prefix in ("", ":*:", ":.:"):
        assert await api("GET", f"/subjects?subjectPrefix={prefix}") == ["t-value", "u-value"]
        assert await api("GET", f"/subjects?subjectPrefix={prefix}u") == ["u-value"]
        assert [each["subject"] for each in await api("GET", f"/schemas?subjectPrefix={prefix}u")] == ["u-value"]


async def test_settings_of_data_contracts_are_refused(api: Api) -> None:
    assert await api("PUT", "/config/t-value", {"compatibility": "FULL", "alias": "u-value"}) == 422
    assert await api("PUT", "/config/t-value", {"compatibility": "FULL", "alias": None}) == {"compatibility": "FULL"}


async def test_protobuf_as_a_descriptor(api: Api) -> None:
    text = 'syntax = "proto3"; message A { int32 x = 1; }'
    await api("POST", "/subjects/p/versions", {"schema": text, "schemaType": "PROTOBUF"})
    described = await api("GET", "/schemas/ids/1?format=serialized")
    assert described["schemaType"] == "PROTOBUF" and "message" not in described["schema"]
    assert (await api("POST", "/compatibility/subjects/p/versions", described))["is_compatible"]


async def test_rights_are_those_of_the_topic(api: Api) -> None:
    await api("POST", "/subjects/t-value/versions", INT)
    await api("POST", "/subjects/u-key/versions", LONG)
    api.denied = {
        (Operation.DESCRIBE, "t"),
        (Operation.WRITE, "t"),
        (Operation.DELETE, "u"),
        (Operation.ALTER_CONFIGS, ""),
    }
    assert await api("GET", "/subjects") == ["u-key"]
    assert [each["subject"] for each in await api("GET", "/schemas")] == ["u-key"]
    assert await api("GET", "/schemas/ids/1") == 40403, "as if it did not exist"
    assert await api("GET", "/subjects/t-value/versions") == 40301
    assert await api("POST", "/subjects/t-key/versions", LONG) == 40301
    assert await api("DELETE", "/subjects/u-key") == 40301
    assert await api("PUT", "/config", {"compatibility": "NONE"}) == 40301


async def test_a_schema_refers_only_to_what_its_user_may_see(api: Api) -> None:
    """Or the errors of a comparison would show its fields, and its owner could not delete it any more."""
    secret = {"schema": '{"type":"record","name":"B","fields":[{"name":"salary","type":"int"}]}'}
    await api("POST", "/subjects/secret-value/versions", secret)
    api.denied = {(Operation.DESCRIBE, "secret"), (Operation.DESCRIBE, "nothing")}
    for version in (1, -1):
        missing, hidden = (
            {
                "schema": '{"type":"record","name":"A","fields":[{"name":"b","type":"B"}]}',
                "references": [{"name": "B", "subject": subject, "version": version}],
            }
            for subject in ("nothing", "secret-value")
        )
        for target in ("/subjects/mine/versions", "/subjects/mine", "/compatibility/subjects/mine/versions/latest"):
            answer = await api("POST", target, hidden)
            assert answer == await api("POST", target, missing)
            assert answer == 42201
    api.denied = set()
    assert (await api("POST", "/subjects/mine/versions", hidden))["id"] == 2


async def test_who_brings_ids_needs_a_right_on_the_cluster(api: Api) -> None:
    """Ids are of all subjects: with the highest one, nobody could register anything any more."""
    api.denied = {(Operation.ALTER_CONFIGS, "")}
    assert await api("PUT", "/mode/t-value", {"mode": "IMPORT"}) == 40301
    assert await api("PUT", "/mode/t-value", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert await api("DELETE", "/mode/t-value") == {"mode": "READONLY"}
    api.denied = {(Operation.ALTER_CONFIGS, "t")}
    assert await api("PUT", "/mode/t-value", {"mode": "IMPORT"}) == 40301
    api.denied = set()
    assert await api("PUT", "/mode/t-value", {"mode": "IMPORT"}) == {"mode": "IMPORT"}


async def test_the_log_makes_up_the_same_state(api: Api) -> None:
    await test_levels_and_modes(api)
    await api("PUT", "/mode/t-value", {"mode": "READWRITE"})
    await api("DELETE", "/subjects/t-value/versions/1")
    await api("DELETE", "/subjects/newer")
    again = Subjects()
    for key, value in api.log:
        again.replay(key, value)
    assert contents_of(again) == contents_of(api.registry.state)


async def test_a_change_that_may_be_lost_changes_nothing_here(api: Api) -> None:
    await api("POST", "/subjects/t-value/versions", INT)
    api.fails = True
    assert await api("POST", "/subjects/t-value/versions", LONG) == 50001
    assert await api("GET", "/subjects/t-value/versions") == [1]


async def test_simultaneous_registrations_get_one_id(api: Api) -> None:
    made = await asyncio.gather(*(api("POST", f"/subjects/s{number % 3}/versions", INT) for number in range(12)))
    assert {each["id"] for each in made} == {1}
    assert len(api.log) == 3


@pytest.mark.parametrize("key", [None, b"", b"{", b"[]", b'{"keytype":"SCHEMA","subject":"s"}', b"\xff"])
def test_records_of_others_are_refused(key: bytes | None) -> None:
    with pytest.raises(ValueError):
        Subjects().replay(key, b"{}")
    Subjects().replay(b'{"keytype":"NOOP","magic":0}', None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ({"version": 1e400}, {}),
        ({"version": True}, {}),
        ({"version": 0}, {}),
        ({"version": 2**31}, {}),
        ({"version": "1"}, {}),
        ({"subject": 5}, {}),
        ({"subject": "\ud800"}, {}),
        ({}, {"id": 1e400}),
        ({}, {"id": -1}),
        ({}, {"id": 2**31}),
        ({}, {"schema": 5}),
        ({}, {"schema": '{"type":"\ud800"}'}),
        ({}, {"schemaType": ["AVRO"]}),
        ({}, {"references": [{"name": 5, "subject": "s", "version": 1}]}),
        ({}, {"references": [{"name": "n", "subject": "s", "version": 1e400}]}),
        ({"keytype": "CONFIG", "subject": 5}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "MODE"}, {"mode": ["READONLY"]}),
    ],
)
def test_malformed_records_are_left_out(key: dict[str, Any], value: dict[str, Any]) -> None:
    """Written by hand or by another registry. One such record was in the way of all: the log could not be loaded, or no list be made of it."""
    state = Subjects()
    good = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    content = {"subject": "s", "version": 1, "id": 7, "schema": '"int"', "deleted": False}
    with pytest.raises(ValueError, match="not a record of a schema registry"):
        state.replay(json.dumps(good | key).encode(), json.dumps(content | value).encode())
    assert contents_of(state) == contents_of(Subjects())
    state.replay(json.dumps(good).encode(), json.dumps(content).encode())
    assert [each.id for each in state.of("s")] == [7]


async def test_ids_and_versions_end(api: Api) -> None:
    """A serializer writes an id into four bytes, and clients read both as an int."""
    await api("PUT", "/mode", {"mode": "IMPORT"})
    last = {**INT, "id": 2**31 - 1, "version": 2**31 - 1}
    assert (await api("POST", "/subjects/s/versions", last))["id"] == 2**31 - 1
    await api("PUT", "/mode", {"mode": "READWRITE"})
    await api("PUT", "/config", {"compatibility": "NONE"})
    before = list(api.log)
    for subject in ("s", "new"):
        assert await api("POST", f"/subjects/{subject}/versions", STRING) == 42205
    assert api.log == before
    assert (await api("POST", "/subjects/new/versions", INT))["version"] == 1, "that schema has its id"


DRAFT_3 = {"$schema": "http://json-schema.org/draft-03/schema#", "required": True, "properties": {"a": {"type": [{}]}}}


async def test_what_cannot_be_compared_or_ordered_is_refused(api: Api) -> None:
    for subject, schema_type, one, other in (
        ("draft", "JSON", DRAFT_3, {"properties": {"a": {"type": "string"}}}),
        ("large", "JSON", {"multipleOf": 10**400}, {"multipleOf": 1.5}),
    ):
        first, second = ({"schemaType": schema_type, "schema": json.dumps(each)} for each in (one, other))
        assert (await api("POST", f"/subjects/{subject}/versions", first))["version"] == 1
        assert await api("POST", f"/subjects/{subject}/versions", second) in (42201, 409)
    odd = {"schema": json.dumps({"type": "bytes", "items": None})}
    assert await api("POST", "/subjects/odd/versions?normalize=true", odd) == 42201


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**INT, "references": [{"name": "\ud800", "subject": "a-value", "version": 1}]}, 400),
        ({**INT, "references": [{"name": "a", "subject": "a-value", "version": True}]}, 422),
        ({**INT, "references": [{"name": "a", "subject": "a-value", "version": 0}]}, 422),
        ({**INT, "references": [{"name": "a", "subject": "a-value", "version": 2**31}]}, 422),
        ({**INT, "references": [{"name": "a", "subject": "none", "version": -1}]}, 42201),
        ({"schema": '"int"', "unknown": [[]] * 50_000}, 422),
        ({"schema": '"int"', "references": [{"name": "a", "subject": "a-value", "version": 1}] * 101}, 42201),
    ],
)
async def test_references_that_lead_nowhere(api: Api, body: object, code: int) -> None:
    await api("POST", "/subjects/a-value/versions", LONG)
    assert await api("POST", "/subjects/t-value/versions", body) == code


async def test_a_reference_to_the_newest_version_stays_with_that_version(api: Api) -> None:
    base = {"schema": json.dumps({"type": "record", "name": "B", "fields": []})}
    await api("POST", "/subjects/base/versions", base)
    user = {"schema": json.dumps({"type": "array", "items": "B"}), "references": [{"name": "B", "subject": "base", "version": -1}]}  # fmt: skip
    assert (await api("POST", "/subjects/t-value/versions", user))["references"][0]["version"] == 1
    assert await api("GET", "/subjects/base/versions/1/referencedby") == [2]
    assert await api("DELETE", "/subjects/base/versions/1") == 42206


async def test_a_version_of_thousands_of_digits(api: Api) -> None:
    await api("POST", "/subjects/t-value/versions", INT)
    assert await api("GET", f"/subjects/t-value/versions/{'0' * 10}1{'0' * 5000}") == 42202


async def test_what_others_refer_to_is_not_deleted_for_good(api: Api) -> None:
    base = {"schema": json.dumps({"type": "record", "name": "B", "fields": []})}
    user = {"schema": json.dumps({"type": "array", "items": "B"}), "references": [{"name": "B", "subject": "base", "version": 1}]}  # fmt: skip
    await api("POST", "/subjects/base/versions", base)
    assert await api("DELETE", "/subjects/base") == [1]
    assert (await api("POST", "/subjects/t-value/versions", user))["version"] == 1, "it can still be found"
    assert await api("DELETE", "/subjects/base?permanent=true") == 42206
    assert await api("DELETE", "/subjects/base/versions/1?permanent=true") == 42206
    await api("DELETE", "/subjects/t-value")
    assert await api("DELETE", "/subjects/base?permanent=true") == [1]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe{}", b'{"schema": "\xe9"}', json.dumps(INT).encode("utf-16")])
async def test_a_body_that_is_no_json_in_utf_8_is_refused(api: Api, body: bytes) -> None:
    assert await api("POST", "/subjects/a-value/versions", body) == 400
