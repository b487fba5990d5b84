"""The partitions that a Fetch lists, as bytes: what has changed since the last request is found without decoding the rest. Pure.

A client without fetch sessions (librdkafka) lists all its partitions in each request, begins with another one each time, and one or two have
another offset than before. So a request is compared with the last one, turned to begin with the same partition; only if it has another order,
partition by partition.

Source: FetchRequest.json, versions 13 to 18 (topics by id). A partition of such a request has 33 bytes if it has no tagged fields.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from itertools import islice

from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.varints import read_varint

#: Topics have ids, and partitions a fixed size.
FROM = 13
#: Up to the topics: longest wait, bytes, isolation, session; before that the replica's id, up to this version.
_HEAD, _REPLICA_UP_TO = 21, 14
_SIZE = 33
#: Partition, leader's epoch, offset, last fetched epoch, log start, bytes, tagged fields.
_PARTITION = struct.Struct(">iiqiqiB")
_EACH = re.compile(rb"(?s).{33}")
_NUMBER_BYTES = 4
#: From this number of changes on, looking for them by halves costs more than looking at all.
_MANY = 20
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class FetchListing:
    """`head`, `tail`: what comes before and after the topics. `topics`: id -> its partitions, one after the other, in the client's order.

    That no partition is named twice holds for one that was compared with an earlier one, or has as many as there are entries.
    """

    version: int
    head: bytes
    tail: bytes
    topics: dict[bytes, bytes]
    count: int

    def changed(self, later: FetchListing) -> dict[bytes, Collection[bytes]] | None:
        """The partitions of `later` that are not the same here, by topic; None: it lists other ones, or asks for something else."""
        if (self.version, self.head, self.tail, self.count) != (later.version, later.head, later.tail, later.count):
            return None
        if self.topics.keys() != later.topics.keys():
            return None
        found: dict[bytes, Collection[bytes]] = {}
        for topic_id, block in later.topics.items():
            new = _changed(self.topics[topic_id], block)
            if new is None:
                return None
            if new:
                found[topic_id] = new
        return found

    def request(self, topics: dict[bytes, Collection[bytes]]) -> wire.FetchRequest:
        """The request as if it listed nothing but these partitions."""
        request = wire.FetchRequest
        max_wait_ms, min_bytes, max_bytes, isolation = struct.unpack_from(">iiib", self.head, len(self.head) - _HEAD)
        listed = []
        for topic_id, partitions in topics.items():
            unpacked = map(_PARTITION.unpack, partitions)
            listed.append(
                request.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        request.FetchPartition(number, epoch, offset, fetched, partition_max_bytes=most)
                        for number, epoch, offset, fetched, _, most, _ in unpacked
                    ],
                )
            )
        return request(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=listed,
            rack_id=self.tail[2 : 1 + self.tail[1]].decode(),
        )


def listing(version: int, body: memoryview) -> FetchListing | None:
    """None: it is of another form, and has to be decoded."""
    if version < FROM:
        return None
    data = bytes(body)
    position = _HEAD + 4 * (version <= _REPLICA_UP_TO)
    head = data[:position]
    try:
        topic_count, position = _count(body, position)
        topics: dict[bytes, bytes] = {}
        total = 0
        for _ in range(topic_count):
            topic_id = data[position : position + _ID_BYTES]
            count, position = _count(body, position + _ID_BYTES)
            end = position + count * _SIZE
            block = data[position:end]
            # The last byte of each partition, and the one behind all of them: no tagged fields.
            if len(block) < end - position or data[end] or block[_SIZE - 1 :: _SIZE].count(0) != count:
                return None
            topics[topic_id] = topics[topic_id] + block if topic_id in topics else block
            total += count
            position = end + 1
        tail = data[position:]
        # No topic is forgotten; then the rack, in less than 127 bytes, and no tagged fields.
        if tail[0] != 1 or not 0 < tail[1] < 0x80 or len(tail) != 2 + tail[1] or tail[-1]:
            return None
    except (IndexError, WireError):
        return None
    return FetchListing(version, head, tail, topics, total)


def _changed(before: bytes, after: bytes) -> Collection[bytes] | None:
    """The partitions of a topic that `before` has not in the same way; None: they are other partitions."""
    if len(before) != len(after):
        return None
    if not after:
        return ()
    start = _place(before, after[:_NUMBER_BYTES])
    if start:
        before = before[start:] + before[:start]
    new = list(islice(_differing(before, after, 0, len(after)), _MANY))
    if len(new) < _MANY and all(before[at : at + _NUMBER_BYTES] == after[at : at + _NUMBER_BYTES] for at in new):
        return [after[at : at + _SIZE] for at in new]
    return _changed_in_any_order(before, after)


def _place(block: bytes, number: bytes) -> int:
    """Where the partition with this number begins; 0: it is not there."""
    last_bytes = block[_NUMBER_BYTES - 1 :: _SIZE]
    index = last_bytes.find(number[-1])
    while index >= 0:
        if block.startswith(number, index * _SIZE):
            return index * _SIZE
        index = last_bytes.find(number[-1], index + 1)
    return 0


def _differing(before: bytes, after: bytes, begin: int, end: int) -> Iterator[int]:
    """Where partitions begin that are not the same in both, from `begin` to `end`: by halves, as few differ."""
    if before[begin:end] == after[begin:end]:
        return
    if end - begin == _SIZE:
        yield begin
        return
    middle = begin + (end - begin) // _SIZE // 2 * _SIZE
    yield from _differing(before, after, begin, middle)
    yield from _differing(before, after, middle, end)


def _changed_in_any_order(before: bytes, after: bytes) -> Collection[bytes] | None:
    old, new = set(_EACH.findall(before)), set(_EACH.findall(after))
    is_named_twice = len(new) * _SIZE != len(after)
    if is_named_twice or {each[:_NUMBER_BYTES] for each in old - new} != {each[:_NUMBER_BYTES] for each in new - old}:
        return None
    return new - old


def _count(body: memoryview, position: int) -> tuple[int, int]:
    """The size of a compact array, and where its first element is. Raises WireError, IndexError."""
    value, position = read_varint(body, position)
    return max(value - 1, 0), position
