"""The partitions that a Fetch lists, as bytes: what has changed since the last request is found without decoding the rest. Pure.

A client without fetch sessions (librdkafka) lists all its partitions in each request, begins with another one each time, and one or two have
another offset than before.

Source: FetchRequest.json, versions 13 to 18 (topics by id). A partition of such a request has 33 bytes if it has no tagged fields.
"""

from __future__ import annotations

import re
import struct

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
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class FetchListing:
    """`head`, `tail`: what comes before and after the topics. `topics`: id -> its partitions."""

    version: int
    head: bytes
    tail: bytes
    topics: dict[bytes, set[bytes]]
    count: int

    def changed(self, later: FetchListing) -> dict[bytes, set[bytes]] | None:
        """The partitions of `later` that are not the same here, by topic; None: it lists other ones, or asks for something else."""
        if (self.version, self.head, self.tail, self.count) != (later.version, later.head, later.tail, later.count):
            return None
        if self.topics.keys() != later.topics.keys():
            return None
        found: dict[bytes, set[bytes]] = {}
        for topic_id, partitions in later.topics.items():
            before = self.topics[topic_id]
            if new := partitions - before:
                old = before - partitions
                if len(old) != len(new) or {each[:4] for each in old} != {each[:4] for each in new}:
                    return None
                found[topic_id] = new
        return found

    def request(self, topics: dict[bytes, set[bytes]]) -> wire.FetchRequest:
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
        topics: dict[bytes, set[bytes]] = {}
        total = 0
        for _ in range(topic_count):
            topic_id = data[position : position + _ID_BYTES]
            count, position = _count(body, position + _ID_BYTES)
            end = position + count * _SIZE
            block = data[position:end]
            # The last byte of each partition, and the one behind all of them: no tagged fields.
            if len(block) < end - position or data[end] or block[_SIZE - 1 :: _SIZE].count(0) != count:
                return None
            topics.setdefault(topic_id, set()).update(_EACH.findall(block))
            total += count
            position = end + 1
        tail = data[position:]
        # No topic is forgotten; then the rack, in less than 127 bytes, and no tagged fields.
        if tail[0] != 1 or not 0 < tail[1] < 0x80 or len(tail) != 2 + tail[1] or tail[-1]:
            return None
    except (IndexError, WireError):
        return None
    if sum(map(len, topics.values())) != total:  # one is named twice
        return None
    return FetchListing(version, head, tail, topics, total)


def _count(body: memoryview, position: int) -> tuple[int, int]:
    """The size of a compact array, and where its first element is. Raises WireError, IndexError."""
    value, position = read_varint(body, position)
    return max(value - 1, 0), position
