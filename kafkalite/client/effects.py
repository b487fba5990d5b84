"""What a flow of `routing` asks its client to do. A flow is a generator that yields these and is sent what came of them.

An effect that fails raises RpcError or ApiError at the yield.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from kafkalite.client.exchange import Request
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, Endpoint, TopicPartition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ToNode:
    """Ask this node, once: the response."""

    node: BrokerId | Endpoint
    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ToAny:
    """Ask nodes until one answers: the response. For requests that do no harm twice."""

    request: Request
    timeout_s: float


@dataclass(frozen=True, slots=True)
class LeaderRequest:
    """`keys`: given up as soon as another node leads one of them. Empty: waited for, whoever leads. `about`: all of them."""

    node: BrokerId
    request: Request
    keys: tuple[TopicPartition, ...]
    has_response: bool = True
    about: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """Ask these leaders, all at once, each once: a list of responses or errors in the same order.

    `wait_s`: how long a leader that is well may take.
    """

    requests: tuple[LeaderRequest, ...]
    timeout_s: float
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """Ask for these topics' metadata: None, or the error."""

    topics: frozenset[str]
    timeout_s: float


Effect = ToNode | ToAny | ToLeaders | Pause | Refresh
Flow = Generator[Effect, Any, T]
