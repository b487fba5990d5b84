"""The struct fast path packs what aiozk packs, and reads what a server writes."""

from __future__ import annotations

import struct

import pytest
from aiozk import protocol
from aiozk.protocol.acl import UNRESTRICTED_ACCESS
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordination import zk_codec as codec
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Check,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NoNodeError,
    SetData,
    Stat,
)
from kafkalite.coordination.watches import EventType, WatchKind, WatchTable
from kafkalite.errors import ProtocolError

paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).map(lambda name: "/" + name)
versions = st.integers(-1, 2**31 - 1)
data = st.binary(max_size=100)
operations = st.one_of(
    st.builds(Check, paths, versions),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Create, paths, data, st.booleans(), st.booleans()),
)


def aiozk_request(op: Check | SetData | Delete | Create, create: type = protocol.CreateRequest) -> object:
    match op:
        case Check(path, version):
            return protocol.CheckVersionRequest(path=path, version=version)
        case SetData(path, value, version):
            return protocol.SetDataRequest(path=path, data=value, version=version)
        case Delete(path, version):
            return protocol.DeleteRequest(path=path, version=version)
        case Create(path, value, ephemeral, sequential):
            request = create(path=path, data=value, acl=[UNRESTRICTED_ACCESS])
            request.set_flags(ephemeral, sequential)
            return request


@given(st.lists(operations, max_size=8), st.integers(1, 2**31 - 1))
def test_transactions_are_packed_as_aiozk_packs_them(ops: list[Check | SetData | Delete | Create], xid: int) -> None:
    theirs = protocol.TransactionRequest()
    for op in ops:
        theirs.add(aiozk_request(op))
    assert codec.multi(xid, ops) == theirs.serialize(xid)


@given(path=paths, value=data, version=versions, flag=st.booleans(), xid=st.integers(1, 2**31 - 1))
def test_single_requests_are_packed_as_aiozk_packs_them(
    path: str, value: bytes, version: int, *, flag: bool, xid: int
) -> None:
    assert codec.get(xid, path, watch=flag) == protocol.GetDataRequest(path=path, watch=flag).serialize(xid)
    assert codec.exists(xid, path, watch=flag) == protocol.ExistsRequest(path=path, watch=flag).serialize(xid)
    assert codec.children(xid, path, watch=flag) == protocol.GetChildren2Request(path=path, watch=flag).serialize(xid)
    write = SetData(path, value, version)
    assert codec.set_data(xid, write) == aiozk_request(write).serialize(xid)  # type: ignore[attr-defined]
    delete = Delete(path, version)
    assert codec.delete(xid, delete) == aiozk_request(delete).serialize(xid)  # type: ignore[attr-defined]
    create = Create(path, value, flag, not flag)
    theirs = aiozk_request(create, protocol.Create2Request)
    assert codec.create(xid, create) == theirs.serialize(xid)  # type: ignore[attr-defined]


STAT = struct.pack("!qqqqiiiqiiq", 11, 12, 13, 14, 5, 6, 7, -8, 9, 10, 15)
READ = Stat(version=5, czxid=11, mzxid=12, ctime_ms=13, mtime_ms=14, ephemeral_owner=-8, child_count=10)


def sized(raw: bytes) -> bytes:
    return struct.pack("!i", len(raw)) + raw


def test_answers_are_read() -> None:
    assert codec.decode_get(sized(b"abc") + STAT, 0) == (b"abc", READ)
    assert codec.decode_get(struct.pack("!i", -1) + STAT, 0) == (b"", READ)
    assert codec.decode_stat(STAT, 0) == READ
    assert codec.decode_create(sized(b"/a") + STAT, 0) == ("/a", READ)
    names = struct.pack("!i", 2) + sized(b"b") + sized("ä".encode())
    assert codec.decode_children(names + STAT, 0) == (["b", "ä"], READ)
    header, at = codec.decode_header(struct.pack("!iqi", 7, 99, -101))
    assert (header, at) == (codec.ReplyHeader(7, 99, -101), 16)
    assert codec.decode_event(struct.pack("!ii", 3, 3) + sized(b"/p"), 0) == (3, "/p")


def multi_answer(*results: tuple[int, bytes]) -> bytes:
    body = b"".join(struct.pack("!i?i", opcode, 0, 0) + rest for opcode, rest in results)
    return body + struct.pack("!i?i", -1, 1, -1)


def test_answers_of_a_transaction_are_read() -> None:
    answer = multi_answer((13, b""), (5, STAT), (1, sized(b"/s-01")), (2, b""))
    assert codec.decode_multi(answer, 0) == [None, 5, "/s-01", None]
    failed = multi_answer(*((-1, struct.pack("!i", code)) for code in (0, 0, -103, -2)))
    with pytest.raises(MultiFailedError) as error:
        codec.decode_multi(failed, 0)
    assert error.value.index == 2
    assert isinstance(error.value.error, BadVersionError)
    with pytest.raises(ProtocolError):
        codec.decode_multi(multi_answer((77, b"")), 0)


def test_a_read_of_many_is_one_request() -> None:
    """As MultiOperationRecord.serialize writes it: a header, {false, -1}, and the read, per znode; one more at the end."""
    reads = b"".join(struct.pack("!i?i", 4, 0, -1) + sized(path) + b"\0" for path in (b"/a", b"/\xc3\xa4"))
    assert codec.multi_read(7, ["/a", "/ä"]) == struct.pack("!ii", 7, 22) + reads + struct.pack("!i?i", -1, 1, -1)


def test_answers_of_a_read_of_many_are_read() -> None:
    results = codec.decode_multi_read(
        multi_answer((4, sized(b"data") + STAT), (-1, struct.pack("!i", -101)), (4, struct.pack("!i", -1) + STAT)), 0
    )
    assert results[0] == codec.decode_get(sized(b"data") + STAT, 0)
    assert isinstance(results[1], NoNodeError)
    assert results[2] == codec.decode_get(sized(b"") + STAT, 0)
    assert len(results) == 3
    with pytest.raises(ProtocolError):
        codec.decode_multi_read(multi_answer((5, STAT)), 0)


@given(st.binary(max_size=80))
def test_broken_answers_are_refused_not_crashed_on(raw: bytes) -> None:
    for decode in (
        codec.decode_get,
        codec.decode_stat,
        codec.decode_children,
        codec.decode_create,
        codec.decode_multi,
        codec.decode_multi_read,
    ):
        try:
            decode(raw, 0)
        except (struct.error, UnicodeDecodeError, ProtocolError, MultiFailedError):
            continue  # what ZkConnection turns into the end of the connection, or into the caller's error


def test_error_codes_become_the_seams_errors() -> None:
    assert isinstance(codec.error_of(-101), NoNodeError)
    assert type(codec.error_of(-9999)) is CoordinatorError


@given(st.lists(st.tuples(st.sampled_from(list(WatchKind)), paths), max_size=50), st.integers(20, 200))
def test_chunks_of_set_watches_hold_every_watch_once(watches: list[tuple[WatchKind, str]], chunk: int) -> None:
    seen: list[tuple[WatchKind, str]] = []
    for frame in codec.set_watches(77, watches, chunk):
        xid, opcode, zxid = struct.unpack_from("!iiq", frame)
        assert (xid, opcode, zxid) == (codec.SET_WATCHES_XID, 101, 77)
        assert len(frame) < chunk + 16 + 12 + 4 + 80
        at = 16
        for kind in (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD):
            (count,) = struct.unpack_from("!i", frame, at)
            at += 4
            for _ in range(count):
                raw, at = codec._sized(frame, at)
                seen.append((kind, raw.decode()))
        assert at == len(frame)
    assert sorted(seen, key=str) == sorted(watches, key=str)


def test_the_watch_table_hands_out_each_watch_once() -> None:
    table = WatchTable()
    fired: list[str] = []

    def watch() -> None:
        fired.append("x")

    table.arm(WatchKind.DATA, "/a", watch)
    table.arm(WatchKind.DATA, "/a", watch)
    table.arm(WatchKind.CHILD, "/a", watch)
    table.arm(WatchKind.EXIST, "/b", watch)
    assert len(table) == 3
    assert table.take(EventType.CHILDREN_CHANGED, "/x") == []
    assert table.take(EventType.DELETED, "/a") == [watch]  # one event, one call, whatever it was armed for
    assert list(table.armed()) == [(WatchKind.EXIST, "/b")]
    assert table.take(EventType.CREATED, "/b") == [watch]
    assert len(table) == 0
