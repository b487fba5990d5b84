"""FetchResponse, encoded straight from what was read: the generic codec would make two objects per partition first.

Source: FetchResponse.json, versions 4 to 18. The result is the same as the generic codec's (a test compares them).
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import cast

from kafkalite.kafka.current_leaders import MOVED, CurrentLeaders
from kafkalite.model import Buffer
from kafkalite.protocol import topic_ids
from kafkalite.protocol.compiling.source import CHUNK_BYTES
from kafkalite.replica.client_fetch import LIGHT_STEP, READ_COMMITTED, STEP, FetchEntry, Steps
from kafkalite.replica.decisions.follower import Divergence

_FLEXIBLE_FROM = 12
_BY_ID_FROM = 13
_WITH_SESSION_FROM = 7
_WITH_REPLICA_FROM = 11
_WITH_LOG_START_FROM = 5
#: A partition up to its log start; then the number of aborted transactions, the replica to prefer, the size of the records.
_HEAD = struct.Struct(">ihqqq")
_OLD_HEAD = struct.Struct(">ihqq")
_INT32 = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")
#: From this version on, an answer says where the leader is (KIP-951): a partition's tagged field 1, and the answer's tagged field 0.
_LEADERS_FROM = 16
_LEADER = struct.Struct(">BBBiiB")
#: A partition's tagged field 0 (KIP-595): the epoch in which the logs part, and where it ends here.
_DIVERGING = struct.Struct(">BBBiqB")
_TOP = struct.Struct(">ihi")
#: The same of a partition without records, which nearly all partitions of a large fetch are: in one step.
_EMPTY = struct.Struct(">ihqqqBiBB")
_EMPTY_WITH_REPLICA = struct.Struct(">ihqqqiii")
#: Partitions in one step.
_AT_ONCE = 4 * STEP


def encoding_fetched(
    version: int, entries: Collection[FetchEntry], isolation: int, leaders: CurrentLeaders
) -> Steps[list[Buffer]]:
    """The body of the answer, in pieces: large record sets are not copied. `begin_fetched` completes it."""
    topics = yield from _by_topic(entries, by_id=version >= _BY_ID_FROM)
    w = bytearray(_TOP.size if version >= _WITH_SESSION_FROM else _INT32.size)
    pieces: list[Buffer] = []
    done = 0
    is_flexible = version >= _FLEXIBLE_FROM
    _put_count(w, len(topics), is_flexible=is_flexible)
    for topic in topics:
        if version >= _BY_ID_FROM:
            w += topic_ids.to_wire(topic[0].topic_id)
        else:
            name = topic[0].key.topic.encode()
            if is_flexible:
                _put_count(w, len(name), is_flexible=True)
            else:
                w += len(name).to_bytes(2)
            w += name
        _put_count(w, len(topic), is_flexible=is_flexible)
        for entry in topic:
            if entry.wire:
                w += entry.wire
            elif entry.error in MOVED and version >= _LEADERS_FROM:
                _put_moved(w, entry, leaders)
            elif entry.divergence is not None:
                _put_diverging(w, entry, entry.divergence)
            else:
                w = _put_partition(w, pieces, entry, version, isolation)
            done += 1
            if not done % _AT_ONCE:
                yield
        if is_flexible:
            w.append(0)
    if is_flexible:
        _put_endpoints(w, leaders.endpoints())
    pieces.append(w)
    return pieces


def begin_fetched(pieces: list[Buffer], version: int, throttle_ms: int, session_id: int) -> None:
    """What is known only when the answer is sent."""
    first = cast(bytearray, pieces[0])
    if version >= _WITH_SESSION_FROM:
        _TOP.pack_into(first, 0, throttle_ms, 0, session_id)
    else:
        _INT32.pack_into(first, 0, throttle_ms)


def _by_topic(entries: Collection[FetchEntry], *, by_id: bool) -> Steps[list[list[FetchEntry]]]:
    """Neighbours of one topic together, in the order of the entries."""
    topics: list[list[FetchEntry]] = []
    last: str | None = None
    for number, entry in enumerate(entries, 1):
        if not number % LIGHT_STEP:
            yield
        name = entry.topic_id if by_id else entry.key.topic
        if name != last:
            topics.append([])
            last = name
        topics[-1].append(entry)
    return topics


def _put_count(w: bytearray, count: int, *, is_flexible: bool) -> None:
    if not is_flexible:
        w += _INT32.pack(count)
        return
    count += 1
    while count > 0x7F:
        w.append(count & 0x7F | 0x80)
        count >>= 7
    w.append(count)


def _put_moved(w: bytearray, entry: FetchEntry, leaders: CurrentLeaders) -> None:
    """Add a partition that has another leader, or another epoch."""
    leader = leaders.of(entry.key)
    marks = (entry.key.partition, entry.error, entry.high_watermark, entry.last_stable_offset, entry.log_start_offset)
    w += _EMPTY.pack(*marks, 0, entry.preferred, 1, 0)
    if leader is not None:
        w[-1:] = _LEADER.pack(1, 1, 9, leader.broker_id, leader.leader_epoch, 0)


def _put_diverging(w: bytearray, entry: FetchEntry, divergence: Divergence) -> None:
    """Add a partition whose client has to truncate its log; only flexible versions ask for that."""
    marks = (entry.key.partition, 0, entry.high_watermark, entry.last_stable_offset, entry.log_start_offset)
    w += _EMPTY.pack(*marks, 0, entry.preferred, 1, 0)
    w[-1:] = _DIVERGING.pack(1, 0, 13, divergence.epoch, divergence.end_offset, 0)


def _put_endpoints(w: bytearray, endpoints: list[tuple[int, str, int, str | None]]) -> None:
    """Add the tagged fields of the whole answer."""
    if not endpoints:
        w.append(0)
        return
    field = bytearray()
    _put_count(field, len(endpoints), is_flexible=True)
    for node_id, host, port, rack in endpoints:
        field += _INT32.pack(node_id)
        _put_string(field, host)
        field += _INT32.pack(port)
        _put_string(field, rack)
        field.append(0)
    w += b"\x01\x00"
    _put_count(w, len(field) - 1, is_flexible=True)  # a plain varint
    w += field


def _put_string(w: bytearray, text: str | None) -> None:
    if text is None:
        w.append(0)
        return
    encoded = text.encode()
    _put_count(w, len(encoded), is_flexible=True)
    w += encoded


def _put_partition(w: bytearray, pieces: list[Buffer], entry: FetchEntry, version: int, isolation: int) -> bytearray:
    """Add one partition to `w`; large records end it, and begin another one."""
    is_flexible = version >= _FLEXIBLE_FROM
    has_aborted = isolation == READ_COMMITTED and not entry.error
    number = entry.key.partition
    marks = (number, entry.error, entry.high_watermark, entry.last_stable_offset, entry.log_start_offset)
    if not entry.records_size:
        packed = b""
        if is_flexible:
            packed = _EMPTY.pack(*marks, has_aborted, entry.preferred, 1, 0)
        elif version >= _WITH_REPLICA_FROM:
            packed = _EMPTY_WITH_REPLICA.pack(*marks, 0 if has_aborted else -1, entry.preferred, 0)
        if packed:
            if entry.fetch.lists_all:
                entry.wire = packed
            w += packed
            return w
    w += _HEAD.pack(*marks) if version >= _WITH_LOG_START_FROM else _OLD_HEAD.pack(*marks[:4])
    if not has_aborted:
        w += b"\0" if is_flexible else b"\xff\xff\xff\xff"
    else:
        _put_count(w, len(entry.aborted), is_flexible=is_flexible)
        for aborted in entry.aborted:
            w += _ABORTED.pack(aborted.producer_id, aborted.first_offset)
            if is_flexible:
                w.append(0)
    if version >= _WITH_REPLICA_FROM:
        w += _INT32.pack(entry.preferred)
    _put_count(w, entry.records_size, is_flexible=is_flexible)
    for records in entry.records:
        if len(records) < CHUNK_BYTES:
            w += records
        else:
            pieces.append(w)
            pieces.append(records)
            w = bytearray()
    if is_flexible:
        w.append(0)
    return w
