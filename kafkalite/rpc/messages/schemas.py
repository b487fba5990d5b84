"""A request of the schema registry's REST API, from the node that got it to the node that coordinates the registry."""

from __future__ import annotations

from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message, kind


@kind(88)
@dataclass(frozen=True, slots=True)
class SchemaRegistryRequest(Message):
    """`principal` and `client_host`: of the client; the coordinator checks the rights. `path`: as sent."""

    method: str
    path: str
    query: dict[str, str]
    body: str
    principal: str
    client_host: str


@kind(89)
@dataclass(frozen=True, slots=True)
class SchemaRegistryResponse(Message):
    """`error`: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; otherwise an HTTP status and a body."""

    error: int
    status: int = 200
    content_type: str = ""
    body: str = field(default="", repr=False)
