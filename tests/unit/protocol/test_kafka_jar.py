"""The comparison of our tables with the definitions in a kafka-clients jar."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from kafkalite.testing.kafka_jar import differences, missing, read_definitions

_HEARTBEAT = """// a comment
{ "apiKey": 12, "type": "request", "listeners": ["broker"], "name": "HeartbeatRequest",
  "validVersions": "0-%s", "flexibleVersions": "4+", %s
  "fields": [
    { "name": "GroupId", "type": "%s", "versions": "0+", "about": "not // a comment" },
    { "name": "GenerationId", "type": "int32", "versions": "0+" },
    { "name": "MemberId", "type": "string", "versions": "0+" },
    { "name": "GroupInstanceId", "type": "string", "versions": "3+", "nullableVersions": "3+", "default": "null" }
  ] }"""
_UNKNOWN = """{ "apiKey": 999, "type": "request", "listeners": ["%s"], "name": "TeleportRequest",
  "validVersions": "0-1", "flexibleVersions": "0+", "fields": [] }"""
_REMOVED = '{ "apiKey": 4, "type": "request", "name": "LeaderAndIsrRequest", "validVersions": "none" }'


def jar(tmp_path: Path, *texts: str) -> Path:
    path = tmp_path / "kafka-clients.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("org/apache/kafka/Something.class", b"")
        for number, text in enumerate(texts):
            archive.writestr(f"common/message/{number}Request.json", text)
    return path


def test_what_is_the_same_says_nothing(tmp_path: Path) -> None:
    found = read_definitions(jar(tmp_path, _HEARTBEAT % (4, "", "string"), _REMOVED))
    assert list(missing(found)) == [] and list(differences(found)) == []


def test_newer_versions_and_apis_are_named(tmp_path: Path) -> None:
    found = read_definitions(jar(tmp_path, _HEARTBEAT % (5, "", "string"), _UNKNOWN % "broker"))
    assert list(missing(found)) == [
        "12 Heartbeat: offered to version 4 (there: to 5)",
        "999 Teleport: not offered (there: 0 to 1)",
    ]


def test_unstable_versions_and_other_listeners_are_not(tmp_path: Path) -> None:
    unstable = _HEARTBEAT % (5, '"latestVersionUnstable": true,', "string")
    found = read_definitions(jar(tmp_path, unstable, _UNKNOWN % "controller"))
    assert list(missing(found)) == []


def test_a_field_that_differs_is_named(tmp_path: Path) -> None:
    found = read_definitions(jar(tmp_path, _HEARTBEAT % (0, "", "bytes")))
    assert [line.partition("(")[0] for line in differences(found)] == [
        "HeartbeatRequest 0: there ",
        "HeartbeatRequest 0: here ",
    ]


def test_a_jar_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no message definitions"):
        read_definitions(jar(tmp_path))
