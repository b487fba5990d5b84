"""A schema registry over a log in memory, asked by its REST API."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kafkalite.schemas import rest
from kafkalite.schemas.errors import RegistryError
from kafkalite.schemas.registry import SubjectRegistry
from kafkalite.schemas.subjects import KeyValue, Subjects
from kafkalite.security.acl import Operation, ResourceType

INT, LONG, STRING = ({"schema": json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": each}]})}
                     for each in ("int", "long", "string"))  # fmt: skip


class Api:
    """One registry and its log."""

    def __init__(self) -> None:
        self.log: list[KeyValue] = []
        self.denied: set[tuple[Operation, str]] = set()
        self.fails = False
        #: Awaited where a schema is parsed or compared.
        self.parsing: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
        #: How often others had their turn.
        self.pauses = 0

        async def append(records: Sequence[KeyValue]) -> None:
            await asyncio.sleep(0)
            if self.fails:
                raise RegistryError(50001, "the change may not be stored")
            self.log += records

        async def off_loop(work: Any) -> Any:
            await self.parsing()
            return work()

        self.registry = SubjectRegistry(Subjects(), append, off_loop)

    async def __call__(self, method: str, target: str, body: object = None) -> Any:
        """The response's value, or the code of the error."""
        path, _, text = target.partition("?")
        query = dict(each.split("=") for each in text.split("&") if each)
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()

        def may(operation: Operation, resource_type: ResourceType, name: str = "", /) -> bool:
            return (operation, name) not in self.denied

        async def pause() -> None:
            self.pauses += 1

        try:
            return await rest.answer(self.registry, rest.RestRequest(method, path, query, raw), may, pause)
        except RegistryError as error:
            return error.code


def contents_of(state: Subjects) -> dict[str, object]:
    """What is in memory, to be compared."""
    names = [each.name for each in dataclasses.fields(state) if each.name != "room"]
    return {name: getattr(state, name) for name in names} | {"room": state.room.taken}
