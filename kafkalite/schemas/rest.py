"""Confluent's REST API of a schema registry: which operation a request asks for, who may, and what the response says.

Rights are those of topics: the subjects T, T-key and T-value belong to the topic T. What a reader or a writer of the topic
needs is allowed to a client that may describe it; to register a schema is to write to it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote

from kafkalite.lazy_dataclass import dataclass
from kafkalite.schemas import errors
from kafkalite.schemas.errors import RegistryError
from kafkalite.schemas.registry import Registration, SubjectRegistry
from kafkalite.schemas.schema import AVRO, MAX_REFERENCES, PROTOBUF, TYPES, Reference, Schema, has_more_values
from kafkalite.schemas.subjects import IMPORT, MAX_VERSION, Version, reference_value, topic_of
from kafkalite.security.acl import Operation, ResourceType

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_NAME = 500
_MAX_LIST = 10_000
#: Of a body, which has a text and its references, or a setting.
_MAX_VALUES = 2_000
#: Characters of the texts in one list. A text of 900 kB that has been registered for 1,000 subjects takes 2 MB of the registry's memory, and a list
#: of them would take a thousand times as much of its node's.
MAX_LISTED_TEXT = 8 * 2**20
#: What is sorted at a time.
_RUN = 1_000

_T = TypeVar("_T", str, tuple[str, int])
#: Awaited between two elements of something long: others have their turn.
Pause = Callable[[], Awaitable[None]]


class May(Protocol):
    def __call__(self, operation: Operation, resource_type: ResourceType, name: str = ..., /) -> bool: ...


@dataclass(frozen=True, slots=True)
class RestRequest:
    """`path`: as sent, with percent signs."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes


RouteAnswer = Callable[["_Call"], Awaitable[Any]]


async def answer(registry: SubjectRegistry, request: RestRequest, may: May, pause: Pause) -> Any:
    """The value of the response, for JSON; `Raw` if the response is not JSON. Raises RegistryError."""
    segments = [unquote(each) for each in request.path.strip("/").split("/")]
    for method, pattern, operation in _ROUTES:
        if method == request.method and (names := _matched(pattern, segments)) is not None:
            return await operation(_Call(registry, request, names, may, pause))
    if any(_matched(pattern, segments) is not None for _, pattern, _ in _ROUTES):
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    raise RegistryError(404, "HTTP 404 Not Found")


@dataclass(frozen=True, slots=True)
class Raw:
    """A response that is the text of a schema."""

    text: str


def _matched(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    names: dict[str, str] = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = found
        elif expected != found:
            return None
    return names


class _Call:
    """One request with its parts."""

    def __init__(
        self, registry: SubjectRegistry, request: RestRequest, names: Mapping[str, str], may: May, pause: Pause
    ) -> None:
        self.registry = registry
        self.state = registry.state
        self.request = request
        self.names = names
        self.pause = pause
        self._may = may

    # --- rights ---

    def sees(self, subject: str) -> bool:
        return self._may(Operation.DESCRIBE, ResourceType.TOPIC, topic_of(subject))

    def subject(self, operation: Operation) -> str:
        """The subject of the path, if `operation` is allowed on it. Raises RegistryError 40301, 42208."""
        name = self.names["subject"]
        if not name or len(name) > _MAX_NAME or any(ord(each) < 32 or ord(each) == 127 for each in name):
            raise RegistryError(42208, f"The specified subject '{name[:100]!a}' is not a valid.")
        if not self._may(operation, ResourceType.TOPIC, topic_of(name)):
            raise RegistryError(40301, f"not allowed: {operation.name} on the topic {topic_of(name)!r}")
        return name

    def check_cluster(self, operation: Operation) -> None:
        """Raises RegistryError 40301."""
        if not self._may(operation, ResourceType.CLUSTER):
            raise RegistryError(40301, f"not allowed: {operation.name} on the cluster")

    async def visible(self, places: Iterable[tuple[str, int]], *, with_deleted: bool = True) -> AsyncIterator[Version]:
        """The versions there that the client may see, in order."""
        async for place in self.in_order(places):
            found = self.state.at(place, with_deleted=with_deleted)
            if found is not None and self.sees(found.subject):
                yield found

    async def subjects(self, *, with_deleted: bool) -> AsyncIterator[str]:
        """The subjects that the client asks for by their prefix, and may see, in order."""
        prefix = self.prefix()
        async for name in self.in_order(self.state.versions):
            if name.startswith(prefix) and self.state.has(name, with_deleted=with_deleted) and self.sees(name):
                yield name

    async def in_order(self, values: Iterable[_T]) -> AsyncIterator[_T]:
        """As sorted(), in steps: there may be hundreds of thousands of them."""
        given = list(values)
        runs: list[list[_T]] = []
        for at in range(0, len(given), _RUN):
            await self.pause()
            runs.append(sorted(given[at : at + _RUN]))
        for each in heapq.merge(*runs):
            await self.pause()
            yield each

    # --- parameters ---

    def flag(self, name: str) -> bool:
        return self.request.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.request.query.get(name, "")
        try:
            return int(text) if text else default
        except ValueError:
            raise RegistryError(400, f"{name} is not a number: {text[:50]!r}") from None

    def version(self) -> int:
        """-1: the newest. Raises RegistryError 42202."""
        text = self.names["version"]
        if text in ("latest", "-1"):
            return -1
        if text.isascii() and text.isdigit() and len(text) < 11 and 1 <= int(text) <= MAX_VERSION:
            return int(text)
        raise errors.invalid_version(text[:50])

    def schema_id(self) -> int:
        """Raises RegistryError 40403."""
        text = self.names["id"]
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise RegistryError(404, "HTTP 404 Not Found")
        return int(text)

    def bounds(self) -> slice:
        """`offset` and `limit` of a list."""
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return slice(offset, offset + (limit if limit >= 0 else _MAX_LIST))

    def body(self) -> dict[str, Any]:
        """Raises RegistryError 422."""
        try:
            text = self.request.body.decode()
            if has_more_values(text, _MAX_VALUES):
                raise RegistryError(422, f"the body has more than {_MAX_VALUES:,} values")
            value = json.loads(text)
            if "\\u" in text:
                json.dumps(value, ensure_ascii=False).encode()  # "\ud800" is no text
        except (ValueError, RecursionError):
            raise RegistryError(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise RegistryError(422, "the body is not an object")
        return value

    def registration(self) -> Registration:
        """Raises RegistryError 422."""
        value = self.body()
        text, type_ = value.get("schema"), value.get("schemaType") or AVRO
        if not isinstance(text, str) or not text.strip():
            raise RegistryError(42201, "Empty schema")
        if type_ not in TYPES:
            raise RegistryError(42201, f"Invalid schema type {str(type_)[:50]!r}: there are {', '.join(TYPES)}")
        for unsupported in ("metadata", "ruleSet"):
            if value.get(unsupported):
                raise RegistryError(42201, f"{unsupported} is not supported")
        references = value.get("references") or []
        if not isinstance(references, list):
            raise RegistryError(422, "references is not a list")
        if len(references) > MAX_REFERENCES:  # each is looked up, and kept: a body of a megabyte has 20,000
            raise errors.invalid_schema(f"it has more than {MAX_REFERENCES} references")
        schema = Schema(type_, text, tuple(self._reference(each) for each in references))
        return Registration(schema, _whole(value, "id"), _whole(value, "version"), self.flag("normalize"))

    def _reference(self, value: Any) -> Reference:
        """What the client may not see is not there. Raises RegistryError 422, 42201."""
        match value:
            case {"name": str(name), "subject": str(subject), "version": int(version)} if version is not True and (
                version == -1 or 1 <= version <= MAX_VERSION
            ):
                if not self.sees(subject):
                    raise errors.no_reference(subject, version)
                if version == -1 and (known := self.state.of(subject)):
                    version = known[-1].version
                return Reference(name, subject, version)
        raise RegistryError(422, "a reference has a name, a subject and a version")

    def prefix(self) -> str:
        """Of names of subjects. ":*:" and ":.:" in front mean every context, and the default one, which is the only one."""
        text = self.request.query.get("subjectPrefix", "")
        return text[3:] if text.startswith((":*:", ":.:")) else text


def _whole(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name)
    if found is None:
        return -1
    if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found <= MAX_VERSION:
        raise RegistryError(422, f"{name} is not a number")
    return found or -1


# --- responses ---


def _described(version: Version) -> dict[str, Any]:
    return {"subject": version.subject, "version": version.version, "id": version.id, **_schema_value(version.schema)}


def _schema_value(schema: Schema) -> dict[str, Any]:
    value: dict[str, Any] = {} if schema.type == AVRO else {"schemaType": schema.type}
    if schema.references:
        value["references"] = [reference_value(each) for each in schema.references]
    return {**value, "schema": schema.text}


async def _formatted(call: _Call, schema: Schema) -> Schema:
    """As `format` asks for: a descriptor in base64 instead of a .proto file."""
    if call.request.query.get("format") == "serialized" and schema.type == PROTOBUF:
        parsed = await call.registry.parsed(schema)
        return Schema(schema.type, parsed.serialized(), schema.references)  # type: ignore[attr-defined]
    return schema


# --- operations ---


async def _types(call: _Call) -> Any:
    return list(TYPES)


async def _contexts(call: _Call) -> Any:
    return ["."]


async def _subjects(call: _Call) -> Any:
    only_deleted, bounds = call.flag("deletedOnly"), call.bounds()
    names: list[str] = []
    async for name in call.subjects(with_deleted=only_deleted or call.flag("deleted")):
        if len(names) >= bounds.stop:
            break
        if not (only_deleted and call.state.has(name)):
            names.append(name)
    return names[bounds]


async def _schemas(call: _Call) -> Any:
    with_deleted, bounds = call.flag("deleted"), call.bounds()
    found: list[Version] = []
    async for name in call.subjects(with_deleted=with_deleted):
        if len(found) >= bounds.stop:
            break
        versions = call.state.of(name, with_deleted=with_deleted)
        found += versions[-1:] if call.flag("latestOnly") else versions
    listed = found[bounds]
    size = sum(len(each.schema.text) for each in listed)
    if size > MAX_LISTED_TEXT and len(listed) > 1:
        text = f"{len(listed)} schemas with {size} characters, of {MAX_LISTED_TEXT} that one answer may have: ask for fewer with offset and limit, latestOnly or subjectPrefix"
        raise RegistryError(422, text)
    return [_described(each) for each in listed]


async def _visible(call: _Call, *, with_deleted: bool = True) -> list[Version]:
    """Versions with the id of the path. Raises RegistryError 40403."""
    places = call.state.holders.get(call.schema_id(), ())
    found = [each async for each in call.visible(places, with_deleted=with_deleted)]
    if not found:
        raise errors.schema_not_found()
    return found


async def _schema_of_id(call: _Call) -> Schema:
    """Raises RegistryError 40403."""
    async for each in call.visible(call.state.holders.get(call.schema_id(), ())):
        return await _formatted(call, each.schema)
    raise errors.schema_not_found()


async def _by_id(call: _Call) -> Any:
    value = _schema_value(await _schema_of_id(call))
    if call.flag("fetchMaxId"):
        value["maxId"] = call.state.last_id
    return value


async def _text_by_id(call: _Call) -> Any:
    return Raw((await _schema_of_id(call)).text)


async def _subjects_of_id(call: _Call) -> Any:
    return list(dict.fromkeys([each.subject for each in await _visible(call, with_deleted=call.flag("deleted"))]))


async def _versions_of_id(call: _Call) -> Any:
    found = await _visible(call, with_deleted=call.flag("deleted"))
    return [{"subject": each.subject, "version": each.version} for each in found]


async def _versions(call: _Call) -> Any:
    subject = call.subject(Operation.DESCRIBE)
    only_deleted = call.flag("deletedOnly")
    found = call.state.existing(subject, with_deleted=only_deleted or call.flag("deleted"))
    return [each.version for each in found if each.is_deleted or not only_deleted][call.bounds()]


async def _version(call: _Call) -> Any:
    subject = call.subject(Operation.DESCRIBE)
    found = call.state.version(subject, call.version(), with_deleted=call.flag("deleted"))
    return {**_described(found), **_schema_value(await _formatted(call, found.schema))}


async def _version_text(call: _Call) -> Any:
    subject = call.subject(Operation.DESCRIBE)
    found = call.state.version(subject, call.version(), with_deleted=call.flag("deleted"))
    return Raw((await _formatted(call, found.schema)).text)


async def _referenced_by(call: _Call) -> Any:
    subject = call.subject(Operation.DESCRIBE)
    version = call.state.version(subject, call.version(), with_deleted=True)
    places = call.state.referrers(subject, version.version)
    return sorted({each.id async for each in call.visible(places, with_deleted=False)})


async def _register(call: _Call) -> Any:
    found = await call.registry.register(call.subject(Operation.WRITE), call.registration())
    return {"id": found.id, "version": found.version, **_schema_value(found.schema)}


async def _lookup(call: _Call) -> Any:
    subject = call.subject(Operation.DESCRIBE)
    found = await call.registry.lookup(subject, call.registration(), with_deleted=call.flag("deleted"))
    return _described(found)


async def _delete_subject(call: _Call) -> Any:
    return await call.registry.delete_subject(call.subject(Operation.DELETE), permanent=call.flag("permanent"))


async def _delete_version(call: _Call) -> Any:
    subject = call.subject(Operation.DELETE)
    return await call.registry.delete_version(subject, call.version(), permanent=call.flag("permanent"))


async def _compatibility(call: _Call) -> Any:
    subject = call.subject(Operation.DESCRIBE)
    number = call.version() if "version" in call.names else None
    found = await call.registry.compatibility(subject, call.registration().schema, number)
    value: dict[str, Any] = {"is_compatible": not found}
    if call.flag("verbose"):
        value["messages"] = found
    return value


def _setting(call: _Call, operation: Operation) -> str:
    """The subject whose setting it is; "" for that of all."""
    if "subject" in call.names:
        return call.subject(operation)
    call.check_cluster(operation)
    return ""


async def _level(call: _Call) -> Any:
    subject = _setting(call, Operation.DESCRIBE_CONFIGS)
    return {"compatibilityLevel": call.registry.level(subject, default_to_global=call.flag("defaultToGlobal"))}


async def _set_level(call: _Call) -> Any:
    subject = _setting(call, Operation.ALTER_CONFIGS)
    value = call.body()
    if others := [name for name in value if name != "compatibility" and value[name] is not None]:
        raise RegistryError(422, f"{others[0][:50]!a} is not supported: only the level of compatibility can be set")
    level = str(value.get("compatibility", "")).upper()
    await call.registry.set_level(subject, level)
    return {"compatibility": level}


async def _delete_level(call: _Call) -> Any:
    subject = _setting(call, Operation.ALTER_CONFIGS)
    return {"compatibilityLevel": await call.registry.set_level(subject, None)}


async def _mode(call: _Call) -> Any:
    subject = _setting(call, Operation.DESCRIBE_CONFIGS)
    return {"mode": call.registry.mode(subject, default_to_global=call.flag("defaultToGlobal"))}


async def _set_mode(call: _Call) -> Any:
    subject = _setting(call, Operation.ALTER_CONFIGS)
    mode = str(call.body().get("mode", "")).upper()
    if mode == IMPORT:
        call.check_cluster(Operation.ALTER_CONFIGS)  # ids are of all subjects
    await call.registry.set_mode(subject, mode, force=call.flag("force"))
    return {"mode": mode}


async def _delete_mode(call: _Call) -> Any:
    subject = _setting(call, Operation.ALTER_CONFIGS)
    return {"mode": await call.registry.set_mode(subject, None, force=True)}


_ROUTES: tuple[tuple[str, tuple[str, ...], RouteAnswer], ...] = tuple(
    (method, tuple(path.split("/")), operation)
    for method, path, operation in (
        ("GET", "schemas/types", _types),
        ("GET", "schemas", _schemas),
        ("GET", "schemas/ids/{id}", _by_id),
        ("GET", "schemas/ids/{id}/schema", _text_by_id),
        ("GET", "schemas/ids/{id}/subjects", _subjects_of_id),
        ("GET", "schemas/ids/{id}/versions", _versions_of_id),
        ("GET", "contexts", _contexts),
        ("GET", "subjects", _subjects),
        ("POST", "subjects/{subject}", _lookup),
        ("DELETE", "subjects/{subject}", _delete_subject),
        ("GET", "subjects/{subject}/versions", _versions),
        ("POST", "subjects/{subject}/versions", _register),
        ("GET", "subjects/{subject}/versions/{version}", _version),
        ("DELETE", "subjects/{subject}/versions/{version}", _delete_version),
        ("GET", "subjects/{subject}/versions/{version}/schema", _version_text),
        ("GET", "subjects/{subject}/versions/{version}/referencedby", _referenced_by),
        ("POST", "compatibility/subjects/{subject}/versions", _compatibility),
        ("POST", "compatibility/subjects/{subject}/versions/{version}", _compatibility),
        ("GET", "config", _level),
        ("PUT", "config", _set_level),
        ("DELETE", "config", _delete_level),
        ("GET", "config/{subject}", _level),
        ("PUT", "config/{subject}", _set_level),
        ("DELETE", "config/{subject}", _delete_level),
        ("GET", "mode", _mode),
        ("PUT", "mode", _set_mode),
        ("DELETE", "mode", _delete_mode),
        ("GET", "mode/{subject}", _mode),
        ("PUT", "mode/{subject}", _set_mode),
        ("DELETE", "mode/{subject}", _delete_mode),
    )
)
