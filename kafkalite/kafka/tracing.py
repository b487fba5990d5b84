"""Watches requests for clients that ask where their time goes. While nobody asks, it costs one look at an empty list per request."""

from __future__ import annotations

import asyncio
import heapq
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.tracing import (
    TracedGroup,
    TracedRequest,
    TraceRequest,
    TraceResponse,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.protocol import topic_ids
from kafkalite.protocol.structs import ZERO_UUID

if TYPE_CHECKING:
    from kafkalite.coordinators.services import Services
    from kafkalite.kafka.request import Request

MAX_WATCHERS = 4
MAX_DURATION_MS = 60_000
MAX_LIMIT = 500
#: Requests that are under way and watched.
_MAX_UNDER_WAY = 10_000
#: Groups (API, client id) of one watcher, and durations of one group that percentiles are made of.
_MAX_GROUPS = 200
_MAX_DURATIONS = 10_000
_SHOWN_PARTITIONS = 3


@dataclass(slots=True)
class _Begun:
    """A request that is under way."""

    request: Request
    at_ms: int
    touched: list[tuple[str, int]]
    size_bytes: int


class _Group:
    def __init__(self) -> None:
        self.count = self.own = self.wait = self.throttle = self.longest = 0
        self.durations = array("q")

    def add(self, traced: TracedRequest) -> None:
        total = traced.own_us + traced.wait_us
        self.count += 1
        self.own += traced.own_us
        self.wait += traced.wait_us
        self.throttle += traced.throttle_us
        self.longest = max(self.longest, total)
        if len(self.durations) < _MAX_DURATIONS:
            self.durations.append(total)

    def value(self, api: str, client_id: str) -> TracedGroup:
        ordered = sorted(self.durations)
        p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return TracedGroup(api, client_id, self.count, self.own, self.wait, self.throttle, p50, p99, self.longest)


class _Watcher:
    """What one question gathers."""

    def __init__(self, wanted: TraceRequest) -> None:
        self.wanted = wanted
        self.limit = max(0, min(wanted.limit, MAX_LIMIT))
        self._slowest: list[tuple[int, int, TracedRequest]] = []
        self._groups: dict[tuple[str, str], _Group] = {}
        self._number = 0
        self.omitted = 0

    def take(self, traced: TracedRequest, touched: list[tuple[str, int]]) -> None:
        wanted = self.wanted
        total = traced.own_us + traced.wait_us
        if total < wanted.min_ms * 1000 or (wanted.api and wanted.api != traced.api):
            return
        if wanted.client_id and wanted.client_id != traced.client_id:
            return
        if wanted.topic and not any(
            topic == wanted.topic and wanted.partition in (-1, number) for topic, number in touched
        ):
            return
        self._number += 1
        heapq.heappush(self._slowest, (total, self._number, traced))
        if len(self._slowest) > self.limit:
            heapq.heappop(self._slowest)
        key = traced.api, traced.client_id
        if key not in self._groups and len(self._groups) >= _MAX_GROUPS:
            self.omitted += 1
            return
        self._groups.setdefault(key, _Group()).add(traced)

    def answer(self, broker_id: BrokerId) -> TraceResponse:
        slowest = tuple(traced for _, _, traced in sorted(self._slowest, reverse=True))
        groups = tuple(group.value(*key) for key, group in sorted(self._groups.items()))
        return TraceResponse(broker_id, slowest=slowest, groups=groups, omitted=self.omitted)


class Tracer:
    """One per node.

    Attributes:
        watchers: those that watch now; the listener calls `began` and `ended` only if there is any.
    """

    def __init__(self, services: Services) -> None:
        self.watchers: list[_Watcher] = []
        self._services = services
        self._begun: dict[int, _Begun] = {}

    async def watch(self, wanted: TraceRequest) -> TraceResponse:
        """Watch for as long as is wanted. An error in the response: too many watch already."""
        broker = self._services.broker_id
        if len(self.watchers) >= MAX_WATCHERS:
            return TraceResponse(broker, int(ErrorCode.POLICY_VIOLATION), f"{MAX_WATCHERS} watch already")
        watcher = _Watcher(wanted)
        self.watchers.append(watcher)
        try:
            await asyncio.sleep(max(0, min(wanted.duration_ms, MAX_DURATION_MS)) / 1000)
        finally:
            self.watchers.remove(watcher)
            if not self.watchers:
                self._begun.clear()
        return watcher.answer(broker)

    def began(self, request: Request, message: Any) -> None:
        """A request is about to be served."""
        if len(self._begun) < _MAX_UNDER_WAY:
            found = list(_touched(message, self._topic_name))
            touched = [(topic, number) for topic, number, _ in found]
            size = sum(size for _, _, size in found)
            self._begun[id(request)] = _Begun(request, self._services.clock.wall_ms(), touched, size)

    def ended(self, request: Request, now: float) -> None:
        """It has its response. `now`: monotonic seconds."""
        begun = self._begun.pop(id(request), None)
        if begun is None or begun.request is not request or request.api is None:
            return
        returned = request.returned or now
        shown = " ".join(f"{topic}-{number}" for topic, number in begun.touched[:_SHOWN_PARTITIONS])
        throttle = request.throttle.throttle_ms if request.throttle is not None else 0
        traced = TracedRequest(
            begun.at_ms,
            request.api.name,
            request.version,
            request.client_id[:200],
            request.client_host,
            str(request.principal)[:200],
            request.listener_name,
            shown,
            len(begun.touched),
            begun.size_bytes,
            int((returned - request.began) * 1e6),
            int((now - returned) * 1e6),
            int(throttle * 1000),
        )
        for watcher in self.watchers:
            watcher.take(traced, begun.touched)

    def _topic_name(self, topic_id: Any) -> str:
        return self._services.topic_name(topic_ids.from_wire(topic_id)) or ""


def _touched(message: Any, name_of: Callable[[Any], str]) -> Iterator[tuple[str, int, int]]:
    """(topic, partition, bytes of records) that a request names; a fetch session names only what has changed."""
    topics = getattr(message, "topic_data", None) or getattr(message, "topics", None) or ()
    for topic in topics if isinstance(topics, list) else ():
        name = getattr(topic, "name", None) or getattr(topic, "topic", None) or ""
        identity = getattr(topic, "topic_id", ZERO_UUID)
        if not name and identity != ZERO_UUID:
            name = name_of(identity)
        partitions = getattr(topic, "partition_data", None) or getattr(topic, "partitions", None) or ()
        for partition in partitions if isinstance(partitions, list) else ():
            number = next(
                (
                    v
                    for a in ("index", "partition", "partition_index")
                    if (v := getattr(partition, a, None)) is not None
                ),
                -1,
            )
            yield str(name), int(number), len(getattr(partition, "records", None) or b"")
