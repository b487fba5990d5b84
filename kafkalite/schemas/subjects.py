"""What is registered: the state that the records of `_schemas` make up. Pure.

The records have Confluent's keys and values, so that each registry can take over what the other one has written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

from kafkalite.lazy_dataclass import dataclass
from kafkalite.schemas import errors
from kafkalite.schemas.schema import AVRO, Reference, Schema
from kafkalite.security.fair_room import FairRoom

READWRITE = "READWRITE"
READONLY = "READONLY"
IMPORT = "IMPORT"
MODES = (READWRITE, READONLY, IMPORT)
MAX_VERSION = 2**31 - 1

#: The subject of the record with the highest id. Other registries find nothing to delete there.
_LAST_ID = ":.kafkalite.last.id:"

KeyValue = tuple[bytes, bytes | None]

#: What all schemas take in memory on the node that coordinates the registry. Topics share it (`security.fair_room`).
MAX_BYTES = 256 * 2**20
#: What a version takes beside its schema, and what each reference takes with the schema and with the version.
_VERSION_BYTES, _SCHEMA_REFERENCE_BYTES, _VERSION_REFERENCE_BYTES = 1_000, 750, 200


def topic_of(subject: str) -> str:
    """The topic whose rights count for a subject (TopicNameStrategy; other names stand for themselves)."""
    for suffix in ("-key", "-value"):
        if subject.endswith(suffix) and len(subject) > len(suffix):
            return subject.removesuffix(suffix)
    return subject


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject. `is_deleted`: softly, so that readers still find it by its id."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False


@dataclass(slots=True)
class Subjects:
    """Everything in memory, by subject and by id."""

    versions: dict[str, dict[int, Version]] = field(default_factory=dict)
    schemas: dict[int, Schema] = field(default_factory=dict)
    ids: dict[Schema, int] = field(default_factory=dict)
    #: Id -> (subject, version) of those that are this schema.
    holders: dict[int, dict[tuple[str, int], None]] = field(default_factory=dict)
    #: (subject, version) -> the schemas that refer to it -> (subject, version) of those that are this schema; none if they were removed.
    referring: dict[tuple[str, int], dict[Schema, dict[tuple[str, int], None]]] = field(default_factory=dict)
    #: Subject ("": all that have none of their own) -> level, mode.
    levels: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    last_id: int = 0
    #: By topic. Schemas stay after their versions: records have their ids.
    room: FairRoom = field(default_factory=lambda: FairRoom(lambda: MAX_BYTES))

    # --- from the log ---

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record. Raises ValueError if it is none of ours."""
        try:
            described = json.loads(key or b"null")
            kind = described["keytype"]
            subject = _text(described.get("subject") or "")
            content = None if value is None else json.loads(value)
            if kind == "SCHEMA":
                self._replay_version(subject, _number(described["version"], least=1), content)
            elif kind in ("CONFIG", "MODE"):
                table, name = (self.levels, "compatibilityLevel") if kind == "CONFIG" else (self.modes, "mode")
                if content is None:
                    table.pop(subject, None)
                else:
                    table[subject] = _text(content[name])
            elif kind == "DELETE_SUBJECT" and content is not None and "lastId" in content:
                self.last_id = max(self.last_id, _number(content["lastId"]))
            elif kind in ("DELETE_SUBJECT", "CLEAR_SUBJECT") and content is not None:
                for each in list(self.versions.get(subject, {}).values()):
                    if each.version <= content.get("version", MAX_VERSION):
                        self._put(Version(subject, each.version, each.id, each.schema, is_deleted=True))
        except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
            raise ValueError(f"not a record of a schema registry: {error!r}") from None

    def _replay_version(self, subject: str, version: int, content: Any) -> None:
        if content is None:
            self._remove(subject, version)
            return
        references = tuple(
            Reference(_text(each["name"]), _text(each["subject"]), _number(each["version"], least=-1))
            for each in content.get("references") or ()
        )
        schema = Schema(_text(content.get("schemaType") or AVRO), _text(content["schema"]), references)
        self._put(Version(subject, version, _number(content["id"]), schema, bool(content.get("deleted"))))

    def _put(self, version: Version) -> None:
        known = self.versions.setdefault(version.subject, {})
        before = known.get(version.version)
        taken = _version_bytes(version.schema) - (0 if before is None else _version_bytes(before.schema))
        taken += 0 if version.id in self.schemas else _schema_bytes(version.schema)
        self.room.give(topic_of(version.subject), -taken)
        self._unlink(before)
        known[version.version] = version
        place = (version.subject, version.version)
        self.holders.setdefault(version.id, {})[place] = None
        for reference in version.schema.references:
            referring = self.referring.setdefault((reference.subject, reference.version), {})
            referring.setdefault(version.schema, {})[place] = None
        self.schemas.setdefault(version.id, version.schema)
        self.ids.setdefault(version.schema, version.id)
        self.last_id = max(self.last_id, version.id)

    def _remove(self, subject: str, version: int) -> None:
        """The schema itself stays: records that were written with its id can still be read. What refers to it gets another id
        when it is registered again: by then this version may be another schema."""
        for schema in self.referring.get((subject, version), ()):
            self.ids.pop(schema, None)
        known = self.versions.get(subject, {})
        gone = known.pop(version, None)
        if gone is not None:
            self.room.give(topic_of(subject), _version_bytes(gone.schema))
            self._unlink(gone)
        if not known:
            self.versions.pop(subject, None)

    def _unlink(self, version: Version | None) -> None:
        if version is None:
            return
        place = (version.subject, version.version)
        held = self.holders[version.id]
        del held[place]
        if not held:
            del self.holders[version.id]
        for reference in version.schema.references:
            self.referring[reference.subject, reference.version][version.schema].pop(place, None)

    # --- questions ---

    def of(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """The versions of a subject in order; empty if there are none."""
        known = self.versions.get(subject, {})
        return [known[number] for number in sorted(known) if with_deleted or not known[number].is_deleted]

    def existing(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """The same. Raises RegistryError if there are none."""
        found = self.of(subject, with_deleted=with_deleted)
        if not found:
            raise errors.subject_not_found(subject)
        return found

    def version(self, subject: str, number: int, *, with_deleted: bool = False) -> Version:
        """`number` -1: the newest. Raises RegistryError."""
        if (known := self.at((subject, number), with_deleted=with_deleted)) is not None:
            return known
        found = self.existing(subject, with_deleted=with_deleted)
        if number == -1:
            return found[-1]
        raise errors.version_not_found(number)

    def has(self, subject: str, *, with_deleted: bool = False) -> bool:
        """Whether the subject has a version."""
        return any(with_deleted or not each.is_deleted for each in self.versions.get(subject, {}).values())

    def at(self, place: tuple[str, int], *, with_deleted: bool = False) -> Version | None:
        """The version with this (subject, number)."""
        found = self.versions.get(place[0], {}).get(place[1])
        return None if found is None or (found.is_deleted and not with_deleted) else found

    def registered(self, subject: str, schema: Schema, *, with_deleted: bool = False) -> Version | None:
        """The newest version of the subject that is this schema."""
        matching = [each for each in self.of(subject, with_deleted=with_deleted) if each.schema == schema]
        return matching[-1] if matching else None

    def is_referenced(self, subject: str, version: int) -> bool:
        """Whether a version that is not deleted refers to this one."""
        return any(self.at(place) is not None for place in self.referrers(subject, version))

    def referrers(self, subject: str, version: int) -> Iterator[tuple[str, int]]:
        """(subject, version) of those that refer to this one, deleted ones too."""
        return chain.from_iterable(self.referring.get((subject, version), {}).values())

    def has_room(self, subject: str, schema: Schema) -> bool:
        """Whether the subject may have one more version, which is this schema."""
        size = _version_bytes(schema) + (0 if schema in self.ids else _schema_bytes(schema))
        return self.room.has_room(topic_of(subject), size)

    def level(self, subject: str, default: str) -> str:
        return self.levels.get(subject) or self.levels.get("") or default

    def mode(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes.get("") or READWRITE

    def next_version(self, subject: str) -> int:
        return max(self.versions.get(subject, {}), default=0) + 1


def _version_bytes(schema: Schema) -> int:
    return _VERSION_BYTES + _VERSION_REFERENCE_BYTES * len(schema.references)


def _schema_bytes(schema: Schema) -> int:
    text = len(schema.text) if schema.text.isascii() else 4 * len(schema.text)
    return text + _SCHEMA_REFERENCE_BYTES * len(schema.references)


def _text(value: Any) -> str:
    """Raises TypeError, UnicodeEncodeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()  # "\ud800" of JSON is none
    return value


def _number(value: Any, *, least: int = 0) -> int:
    """Raises TypeError, ValueError."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    if not least <= value <= MAX_VERSION:
        raise ValueError(f"{value} is out of range")
    return value


# --- records ---


def version_record(version: Version) -> KeyValue:
    """The record that puts a version there, or marks it as deleted."""
    value: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if version.schema.type != AVRO:
        value["schemaType"] = version.schema.type
    if version.schema.references:
        value["references"] = [reference_value(each) for each in version.schema.references]
    value |= {"schema": version.schema.text, "deleted": version.is_deleted}
    return _version_key(version.subject, version.version), _json(value)


def removal_records(versions: Sequence[Version], last_id: int) -> list[KeyValue]:
    """After a compaction nothing else says that their ids were given out, and records may have them for ever."""
    key, _ = delete_subject_record(_LAST_ID, 1)
    kept = (key, _json({"subject": _LAST_ID, "version": 1, "lastId": last_id}))
    return [kept, *((_version_key(each.subject, each.version), None) for each in versions)]


def delete_subject_record(subject: str, last_version: int) -> KeyValue:
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return _json(key), _json({"subject": subject, "version": last_version})


def level_record(subject: str, level: str | None) -> KeyValue:
    """`level` None: the subject has none of its own any longer."""
    value = None if level is None else _json({"subject": subject or None, "compatibilityLevel": level})
    return _json({"keytype": "CONFIG", "subject": subject or None, "magic": 0}), value


def mode_record(subject: str, mode: str | None) -> KeyValue:
    value = None if mode is None else _json({"subject": subject or None, "mode": mode})
    return _json({"keytype": "MODE", "subject": subject or None, "magic": 0}), value


def reference_value(reference: Reference) -> dict[str, Any]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def _version_key(subject: str, version: int) -> bytes:
    return _json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
