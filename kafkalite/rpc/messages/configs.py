"""Configuration of topics and brokers."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message, kind


@kind(60)
@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest(Message):
    """The dynamic settings of a topic ("topics", name), a broker ("brokers", id) or the cluster ("brokers", "<default>")."""

    entity_type: str
    entity_name: str


@kind(61)
@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse(Message):
    """`settings` are the entity's own; `effective` all that hold for it, as text."""

    error: int
    message: str = ""
    settings: dict[str, str] | None = None
    effective: dict[str, str] | None = None


@kind(62)
@dataclass(frozen=True, slots=True)
class AlterConfigsRequest(Message):
    entity_type: str
    entity_name: str
    changes: dict[str, str]
    deletions: tuple[str, ...] = ()


@kind(63)
@dataclass(frozen=True, slots=True)
class AlterConfigsResponse(Message):
    """`settings`: the entity's own afterwards."""

    error: int
    message: str = ""
    settings: dict[str, str] | None = None
