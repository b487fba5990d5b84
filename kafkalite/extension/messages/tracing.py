"""Requests of clients as a node sees them, with the time of each phase: looked at on demand, never kept."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.base import Message


@dataclass(frozen=True, slots=True)
class TraceRequest(Message):
    """Watch the requests of the Kafka listeners of THIS node for `duration_ms` (at most 60,000), then answer.

    `topic`, `partition` (-1 any), `client_id`, `api` (a Kafka API, such as Produce): only those; empty: any. `min_ms`: only requests
    that took this long. `limit`: that many of the slowest, at most 500.
    """

    duration_ms: int = 5_000
    topic: str = ""
    partition: int = -1
    client_id: str = ""
    api: str = ""
    min_ms: int = 0
    limit: int = 20


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """`at_ms`: wall time at which it began. Times are microseconds.

    `own_us`: our own work until the request waited or was answered. `wait_us`: until its response was there: followers that
    acks=all waits for, records that a fetch waits for, ZooKeeper. `throttle_us`: for which a quota keeps the client away after that.
    `size_bytes`: of the records that it brought. `what`: TOPIC-P of the first partitions that it names.
    """

    at_ms: int
    api: str
    version: int
    client_id: str
    host: str
    principal: str
    listener: str
    what: str
    partitions: int
    size_bytes: int
    own_us: int
    wait_us: int
    throttle_us: int


@dataclass(frozen=True, slots=True)
class TracedGroup:
    """All matching requests of one API from one client id: their number, the sums of their times, and percentiles."""

    api: str
    client_id: str
    count: int
    own_us: int
    wait_us: int
    throttle_us: int
    p50_us: int
    p99_us: int
    max_us: int


@dataclass(frozen=True, slots=True)
class TraceResponse(Message):
    """`slowest`: the slowest first. `omitted`: requests in no group, because there were too many client ids."""

    broker_id: BrokerId
    error: int = 0
    message: str = ""
    slowest: tuple[TracedRequest, ...] = ()
    groups: tuple[TracedGroup, ...] = ()
    omitted: int = 0
