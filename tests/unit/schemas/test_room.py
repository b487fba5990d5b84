"""The memory that schemas take: topics share it, and what is kept parsed is bounded by its size."""

from __future__ import annotations

import json

import pytest

from kafkalite.schemas import registry, subjects
from kafkalite.schemas.schema import Reference, Schema
from kafkalite.schemas.subjects import Subjects, Version, version_record
from tests.support.schema_api import INT, Api


def documented(character: str) -> dict[str, str]:
    """Another schema for each character, of 1,000 bytes at least."""
    return {"schema": json.dumps({"type": "string", "doc": character * 1_000}, ensure_ascii=False)}


async def test_one_topics_schemas_leave_room_for_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with the right to write to one topic could fill the memory of the node that coordinates the registry, and of its successors."""
    monkeypatch.setattr(subjects, "MAX_BYTES", 10_000)
    await api("PUT", "/config", {"compatibility": "NONE"})
    answers = [await api("POST", "/subjects/t-value/versions", documented(each)) for each in "abcdef"]
    assert [each for each in answers if isinstance(each, int)] == [42205, 42205]
    await api("PUT", "/mode/t-key", {"mode": "IMPORT"})
    assert await api("POST", "/subjects/t-key/versions", documented("i") | {"id": 77}) == 42205
    assert (await api("POST", "/subjects/t-value/versions", documented("a")))["version"] == 1
    assert (await api("POST", "/subjects/u-value/versions", INT))["version"] == 1
    again = Subjects()
    for key, value in api.log:
        again.replay(key, value)
    assert again.room.taken == api.registry.state.room.taken
    assert len(again.room) == 2


async def test_room_is_that_of_texts_and_of_versions(api: Api) -> None:
    room = api.registry.state.room
    await api("PUT", "/config", {"compatibility": "NONE"})
    await api("POST", "/subjects/t-value/versions", documented("a"))
    once = room.taken
    await api("POST", "/subjects/u-value/versions", documented("a"))
    assert 0 < room.taken - once < 1_500  # the text is there once
    await api("POST", "/subjects/t-value/versions", documented("\U0001f600"))
    assert room.taken - once > 5_000  # each character takes four bytes
    before = room.taken
    await api("DELETE", "/subjects/u-value")
    assert room.taken == before
    await api("DELETE", "/subjects/u-value?permanent=true")
    assert room.taken < before


def test_references_take_room() -> None:
    """Each takes 900 bytes of the registry's memory, and one schema may have a hundred. 700 of them stay with the schema, under its id: a client that
    registered schemas and deleted them again took 70 kB with each, which did not count."""

    def taken(references: int) -> tuple[int, int]:
        schema = Schema("AVRO", '"int"', tuple(Reference(f"n{each}", "t", 1) for each in range(references)))
        state, version = Subjects(), Version("u", 1, 1, schema)
        state.replay(*version_record(version))
        state.replay(*version_record(version))  # a record that comes again takes nothing more
        size = state.room.taken
        state.replay(version_record(version)[0], None)
        return size, state.room.taken

    (without, text), (size, kept) = taken(0), taken(20)
    assert text == len('"int"')
    assert size - without >= 20 * 900
    assert kept - text >= 20 * 700


async def test_parsed_schemas_are_kept_by_their_size(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five hundred of the largest ones took gigabytes, from a client that may see one topic."""
    monkeypatch.setattr(registry, "_CACHE_CHARACTERS", 10_000)
    parsed = 0

    async def counted() -> None:
        nonlocal parsed
        parsed += 1

    api.parsing = counted
    for each in "abcdefghijkl":
        await api("POST", "/compatibility/subjects/t/versions", documented(each))
    assert parsed == 12
    await api("POST", "/compatibility/subjects/t/versions", documented("l"))
    assert parsed == 12
    await api("POST", "/compatibility/subjects/t/versions", documented("a"))
    assert parsed == 13
