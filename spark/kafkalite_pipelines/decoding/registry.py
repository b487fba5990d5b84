"""A client of a schema registry with Confluent's REST API: what decoding needs of it, with the standard library.

Source: Schema Registry API Reference; "Wire format" in Confluent's serializer documentation.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.definition import Decode, PipelineError

#: First byte of a value; four bytes follow that are the schema's id.
MAGIC = 0
HEADER_BYTES = 5
NO_ID = "has no schema id in front: it was not written with a schema registry's serializer"
_TIMEOUT_S = 30.0
#: Schemas of this process by registry and id. A task gets a new copy of what it works with, the process stays.
_KNOWN: dict[tuple[str, int], RegistrySchema] = {}
_MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """One schema: its text, and the schemas that it refers to, (name, text), in the order in which they must be read."""

    id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class RegistryAway(PipelineError):
    """The registry does not answer, or not to us: no fault of a record."""


class RegistryClient:
    """Schemas by id are remembered: they never change. Travels to tasks."""

    def __init__(self, url: str, user: str | None = None, password_env: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._user = user
        self._password = os.environ.get(password_env, "") if password_env else ""
        if user is not None and password_env is not None and not self._password:
            raise PipelineError(f"decode.registry_password_env: the environment has no {password_env}")

    @classmethod
    def of(cls, decode: Decode) -> RegistryClient:
        assert decode.registry is not None
        return cls(decode.registry, decode.registry_user, decode.registry_password_env)

    def schema(self, schema_id: int) -> RegistrySchema:
        """Raises PipelineError: the registry has no such schema; RegistryAway: it does not answer."""
        known = _KNOWN.get((self._url, schema_id))
        if known is None:
            known = self._made(schema_id, self._get(f"/schemas/ids/{schema_id}"))
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[self._url, schema_id] = known
        return known

    def latest(self, subject: str) -> RegistrySchema:
        """The newest version of a subject. Raises PipelineError: as `schema`."""
        return self._made(None, self._get(f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def _made(self, schema_id: int | None, found: Any) -> RegistrySchema:
        """`schema_id` None: it is in the response. Raises PipelineError: the response is none of a schema registry's."""
        references: dict[str, str] = {}
        try:
            if schema_id is None:
                schema_id = int(found["id"])
            self._collect(found.get("references") or [], references)
            kind, text = found.get("schemaType", "AVRO"), found["schema"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RegistryAway(f"{self._url} is not a schema registry: its response is not a schema") from None
        return RegistrySchema(schema_id, kind, text, tuple(references.items()))

    def _collect(
        self, references: list[Any], into: dict[str, str], outer: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """`outer`: the references of the schemas that lead here, by name. Theirs count, if others refer to another version."""
        named = {each["name"]: each for each in references} | dict(outer)
        for name in [each["name"] for each in references]:
            if name not in into:
                chosen = named[name]
                found = self._get(f"/subjects/{quote(chosen['subject'], safe='')}/versions/{chosen['version']}")
                self._collect(found.get("references") or [], into, named)
                into[name] = found["schema"]

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(self._url + path, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if self._user is not None:
            token = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")  # not to where the server sends us
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            failed = PipelineError if error.code in (404, 422) else RegistryAway
            raise failed(f"schema registry: {path}: {_message(error)}") from None
        except (OSError, ValueError, HTTPException) as error:
            raise RegistryAway(
                f"schema registry {self._url} does not answer: {getattr(error, 'reason', error)}"
            ) from None


def _message(error: urllib.error.HTTPError) -> str:
    """What the registry says, or the status."""
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {error.code}"


def schema_id(value: bytes) -> int:
    """The id in front of a value. Raises ValueError: there is none."""
    if len(value) < HEADER_BYTES or value[0] != MAGIC:
        raise ValueError(NO_ID)
    return int.from_bytes(value[1:HEADER_BYTES])
