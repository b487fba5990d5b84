"""The message browser: records of a topic from its end, its start, an offset or a time on, with filters.

One answer reads a bounded number of bytes and records; a page that wants more goes on where it ended. What is read is what
a consumer of committed records gets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.consumed import ConsumedRecord
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.seams import Disk
from kafkalite.env.side_by_side import SideBySide
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.cluster import TIMEOUT_S, ClusterAccess
from kafkalite.http.console.rights import UserRights
from kafkalite.http.console.scanning import ScanBudget, Scanned, scan_batches
from kafkalite.http.console.values import FULL_BYTES, PREVIEW_BYTES, shown
from kafkalite.http.values import cut, given, number, whole
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from kafkalite.rpc.answers import RpcError
from kafkalite.security.acl import ResourceType
from kafkalite.wording import number_of

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

MAX_RECORDS = 100
#: Partitions that are read at once; of a topic with more, one has to be chosen.
MAX_PARTITIONS = 64
#: What one answer reads at most, of all partitions together.
_READ_BYTES = 8 * 2**20
_FETCH_BYTES = 2**20
_READ_S = 5.0
_READ_COMMITTED = 1
#: How often a partition is read again nearer to its end, to find its newest records.
_MORE_PASSES = 3
#: How far before the end a filter looks, in records of each partition.
_FILTERED_BACK = 5000
#: Answers that read at the same time, of a node: each may hold ScanBudget.content_bytes.
_AT_ONCE = 2
#: All previews of one answer together, in bytes.
_ANSWER_BYTES = 400_000


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What a record must have. Texts are parts of the UTF-8 bytes; empty: anything."""

    text: str = ""
    key: str = ""
    header: str = ""

    def fits(self, record: ConsumedRecord) -> bool:
        """Whether the record has all of it. `header` is NAME or NAME=PART."""
        if self.key and self.key.encode() not in (record.key or b""):
            return False
        if self.header:
            name, equals, part = self.header.partition("=")
            wanted = part.encode()
            if not any(n == name and (not equals or wanted in (v or b"")) for n, v in record.headers):
                return False
        if not self.text:
            return True
        wanted = self.text.encode()
        values = [record.key, record.value, *(value for _, value in record.headers)]
        return any(wanted in value for value in values if value is not None)


@dataclass(slots=True)
class _Reading:
    """Of one partition, from `begin` on. `end`: the first offset that is not read, as it was when the page asked. `found`: the records that fit."""

    key: TopicPartition
    begin: int
    position: int
    end: int
    scanned: int = 0
    error: str = ""
    found: list[ConsumedRecord] = field(default_factory=list)


class MessageAnswers:
    """Of one node."""

    def __init__(self, node: ObservedNode, cluster: ClusterAccess) -> None:
        self._node = node
        self._cluster = cluster
        self._executor = FairExecutor(node.env.disk.run_blocking, node.env.clock, at_once=_AT_ONCE)

    async def messages(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """Records: `topic`, `partition` (-1 all), `from` and `at`, `limit`; `text`, `key` and `header` filter.

        `from`: end, start, offset or time; next and before go on from `places` (P:OFFSET,…) of the answer before. `full=1`
        with one record shows all of it.
        """
        query = asked.query
        topic = given(query, "topic")
        rights.need("Fetch", {ResourceType.TOPIC: [topic]})
        limit = whole(query, "limit", 25, 1, MAX_RECORDS)
        wanted = MessageFilter(query.get("text", ""), query.get("key", ""), query.get("header", ""))
        client = await self._cluster.client(asked)
        keys, is_cut = self._partitions(topic, whole(query, "partition", -1, -1, 10**6))
        back = limit if wanted == MessageFilter() else min(_FILTERED_BACK, ScanBudget().records // max(1, len(keys)))
        readings = await self._readings(client, keys, query, back)
        is_tail = query.get("from", "end") in ("end", "before")
        # Records are in memory from here on.
        async with self._executor.turn((str(asked.principal), asked.client_host)):
            found = await self._read(client, readings, wanted, limit, is_tail=is_tail)
            return _answer(topic, query, readings, found, limit, is_cut, is_tail=is_tail)

    def _partitions(self, topic: str, partition: int) -> tuple[list[TopicPartition], int]:
        """(those to read, how many were too many). Raises ApiError."""
        states = self._node.metadata.topic(topic)
        if not states:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        if partition >= 0:
            if partition not in states:
                raise api_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {number_of(len(states), 'partition')}"
                )
            return [TopicPartition(topic, partition)], 0
        numbers = sorted(states)
        return [TopicPartition(topic, each) for each in numbers[:MAX_PARTITIONS]], len(numbers[MAX_PARTITIONS:])

    async def _readings(
        self, client: AsyncClient, keys: list[TopicPartition], query: Mapping[str, str], back: int
    ) -> list[_Reading]:
        """Where to begin in each partition. Raises ValueError, ApiError, RpcError."""
        live = self._node.metadata.broker_epochs
        led = [key for key in keys if (s := self._node.metadata.partition(key)) is not None and s.leader in live]
        if not led:
            raise api_error(ErrorCode.LEADER_NOT_AVAILABLE, "no partition of it has a leader")
        starts = await self._offsets(client, led, EARLIEST_TIMESTAMP)
        ends = await self._offsets(client, led, LATEST_TIMESTAMP)
        place = query.get("from", "end")
        at = whole(query, "at", 0, 0, 2**63 - 1)
        begin: dict[TopicPartition, int]
        if place == "end":
            begin = {key: ends[key] - back for key in led}
        elif place == "start":
            begin = starts
        elif place == "offset":
            begin = dict.fromkeys(led, at)
        elif place == "time":
            times = await self._offsets(client, led, at)
            begin = {key: times[key] if times[key] >= 0 else ends[key] for key in led}
        elif place == "next":
            begin = {**ends, **_positions(keys[0].topic, query.get("places", ""))}
        elif place == "before":
            ends = {
                key: min(ends[key], at)
                for key, at in {**ends, **_positions(keys[0].topic, query.get("places", ""))}.items()
                if key in ends
            }
            begin = {key: ends[key] - back for key in led}
        else:
            raise ValueError(f"from: {cut(place)} is not end, start, offset, time, next or before")
        first = {key: min(max(begin[key], starts[key]), ends[key]) for key in led}
        return [_Reading(key, first[key], first[key], ends[key]) for key in led]

    async def _offsets(self, client: AsyncClient, keys: list[TopicPartition], stamp: int) -> dict[TopicPartition, int]:
        found = await client.list_offsets(
            dict.fromkeys(keys, stamp), isolation=_READ_COMMITTED, timeout_s=TIMEOUT_S / 2
        )
        return {key: int(each.offset) for key, each in found.items()}

    async def _read(
        self, client: AsyncClient, readings: list[_Reading], wanted: MessageFilter, limit: int, *, is_tail: bool
    ) -> list[ConsumedRecord]:
        """Records that fit, of all partitions, until there are enough of each, or the bytes or the time are used up."""
        scan = _AnswerReader(client, self._node.env.disk, wanted, _READ_BYTES // max(1, len(readings)))
        async with SideBySide() as group:
            for reading in readings:
                group.create_task(scan.newest(reading) if is_tail else scan.oldest(reading, limit))
        return [record for each in readings for record in each.found]


class _AnswerReader:
    """What one answer reads, within its time and its budget.

    Args:
        share: fetched bytes of each partition.
    """

    def __init__(self, client: AsyncClient, disk: Disk, wanted: MessageFilter, share: int) -> None:
        self._client = client
        self._disk = disk
        self._wanted = wanted
        self._share = share
        self._deadline = client.now() + _READ_S
        self._budget = ScanBudget()
        #: One partition at a time uses the budget.
        self._turn = asyncio.Lock()

    async def newest(self, reading: _Reading) -> None:
        """All that fit, up to the partition's end."""
        await self.oldest(reading, 10**9)
        for _ in range(_MORE_PASSES):
            done = reading.position - reading.begin
            if reading.position >= reading.end or done <= 0 or self._budget.is_spent or self._is_late():
                break
            # The bytes were used up before the end, where the newest records are: half as many from further on.
            reading.begin = reading.position = reading.end - max(1, done // 2)
            reading.scanned = 0
            reading.found.clear()
            await self.oldest(reading, 10**9)
        if reading.position < reading.end and not reading.error:
            reading.error = f"what follows from offset {reading.position} on is more than one answer reads"

    async def oldest(self, reading: _Reading, most: int) -> None:
        """Those that fit from where the reading is, `most` of them at most."""
        share = self._share
        while reading.position < reading.end and len(reading.found) < most and share > 0 and not self._is_late():
            start = reading.position
            try:
                fetched, data = await self._client.fetch_raw(
                    reading.key,
                    start,
                    min(_FETCH_BYTES, share),
                    max_wait_ms=0,
                    isolation=_READ_COMMITTED,
                    timeout_s=max(0.1, self._deadline - self._client.now()),
                )
                async with self._turn:
                    if self._budget.is_spent:
                        return
                    # Off the loop: a batch may be compressed, and many small records take a while.
                    look = partial(
                        scan_batches, reading.key, data, start, reading.end, fetched.aborted,
                        fits=self._wanted.fits, most=most - len(reading.found), budget=self._budget,
                    )  # fmt: skip
                    scanned = cast(Scanned, await self._disk.run_blocking(look))
            except (ApiError, RpcError) as error:
                reading.error = str(error)
                return
            share -= max(len(data), 1)
            reading.found += scanned.records
            reading.scanned += scanned.scanned
            reading.error = scanned.error or reading.error
            if scanned.position <= start:
                return  # nothing more to read now
            reading.position = scanned.position

    def _is_late(self) -> bool:
        return self._client.now() >= self._deadline


def _answer(
    topic: str,
    query: Mapping[str, str],
    readings: list[_Reading],
    found: list[ConsumedRecord],
    limit: int,
    left_out: int,
    *,
    is_tail: bool,
) -> dict[str, Any]:
    """The page's answer. `left_out`: partitions."""
    found.sort(key=lambda record: (record.timestamp, record.partition, record.offset), reverse=is_tail)
    chosen = found[:limit]
    if not is_tail:
        _go_back(readings, found[limit:])
    most = FULL_BYTES if query.get("full") == "1" and len(chosen) == 1 else PREVIEW_BYTES
    most = max(50, min(most, _ANSWER_BYTES // max(1, len(chosen)))) if most == PREVIEW_BYTES else most
    return {
        "topic": topic,
        "records": [_row(record, most) for record in chosen],
        "scanned": sum(reading.scanned for reading in readings),
        "next": _places((each.key, each.position) for each in readings),
        "before": _places((each.key, _first_shown(each, found, chosen)) for each in readings) if is_tail else "",
        "is_end": all(each.position >= each.end for each in readings),
        "errors": {str(each.key): each.error for each in readings if each.error},
        "partitions_left_out": left_out,
    }


def _places(positions: Iterable[tuple[TopicPartition, int]]) -> str:
    return ",".join(f"{key.partition}:{position}" for key, position in positions)


def _first_shown(reading: _Reading, found: list[ConsumedRecord], chosen: list[ConsumedRecord]) -> int:
    """Where older records of this partition end that have not been shown."""
    number = reading.key.partition
    shown_here = [record.offset for record in chosen if record.partition == number]
    if shown_here:
        return min(shown_here)
    return reading.end if any(record.partition == number for record in found) else reading.begin


def _go_back(readings: list[_Reading], left: list[ConsumedRecord]) -> None:
    """The records of `left` were read and are not shown: the next page begins before them."""
    for reading in readings:
        offsets = [record.offset for record in left if record.partition == reading.key.partition]
        reading.position = min([reading.position, *offsets])


def _positions(topic: str, text: str) -> dict[TopicPartition, int]:
    """Of "P:OFFSET,P:OFFSET". Raises ValueError."""
    found: dict[TopicPartition, int] = {}
    for part in filter(None, text.split(",")):
        partition, colon, offset = part.partition(":")
        if not colon:
            raise ValueError(f"places: {cut(part)} is not PARTITION:OFFSET")
        key = TopicPartition(topic, number("places", partition, 0, 10**6))
        found[key] = number("places", offset, 0, 2**63 - 1)
    return found


def _row(record: ConsumedRecord, most: int) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key, most),
        "value": shown(record.value, most),
        "headers": [[name[:200], shown(value, min(most, 1000))] for name, value in record.headers[:50]],
    }
