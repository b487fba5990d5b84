"""Framing without a loop: bytes in, frames out."""

from __future__ import annotations

import itertools
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.errors import ProtocolError
from kafkalite.extension.messages.watching import HistoryRequest
from kafkalite.frames import ROOM_BYTES
from kafkalite.large_buffer import LARGE_BYTES
from kafkalite.rpc.codec import from_fields
from kafkalite.rpc.framing import Frame, RpcFrameReader, encode_frame
from kafkalite.rpc.messages.groups import CommittedOffsetsRequest


def reader() -> RpcFrameReader:
    return RpcFrameReader(max_frame_bytes=100_000, max_header_bytes=10_000)


def raw(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def sample() -> bytes:
    first = encode_frame(1, CommittedOffsetsRequest((("t", 5),)), [b"ab", memoryview(b"cde")])
    second = encode_frame(2, HistoryRequest(()))
    return b"".join([*first, *second, *encode_frame(3, HistoryRequest(("t",)))])


def told(frames: list[Frame]) -> list[tuple[int, int, bytes]]:
    return [(frame.kind, frame.correlation_id, bytes(frame.body)) for frame in frames]


EXPECTED = [(86, 1, b"abcde"), (120, 2, b""), (120, 3, b"")]


def test_frames_in_one_piece() -> None:
    frames = reader().feed(sample())
    assert told(frames) == EXPECTED
    assert from_fields(HistoryRequest, frames[2].fields) == HistoryRequest(("t",))
    assert sum(frame.size for frame in frames) == len(sample())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 30, 50])
def test_frames_in_pieces_of(size: int) -> None:
    frames: list[Frame] = []
    under_test = reader()
    for start in range(0, len(sample()), size):
        frames += under_test.feed(sample()[start : start + size])
        assert under_test.missing > 0
    assert told(frames) == EXPECTED
    assert under_test.buffered == 0


def test_the_body_of_a_frame_in_one_piece_is_not_copied() -> None:
    data = sample()
    assert reader().feed(data)[0].body.obj is data


def long_frame(number: int, size: int = 3 * ROOM_BYTES) -> bytes:
    body = bytes([number]) * size
    return b"".join(encode_frame(number, CommittedOffsetsRequest((("t", size),)), [body]))


def read_all(under_test: RpcFrameReader, data: bytes, pieces: list[int]) -> list[Frame]:
    """As a connection reads: into the frame's room where there is one, in pieces of these sizes, over and over."""
    frames: list[Frame] = []
    sizes = itertools.cycle(pieces)
    position = 0
    while position < len(data):
        room = under_test.room()
        piece = data[position : position + min(next(sizes), len(data) if room is None else len(room))]
        position += len(piece)
        if room is None:
            frames += under_test.feed(piece)
        else:
            room[: len(piece)] = piece
            frames += under_test.received(len(piece))
    return frames


@given(st.lists(st.sampled_from([1, 7, 30, 5_000, ROOM_BYTES, 2 * ROOM_BYTES, 4 * ROOM_BYTES]), min_size=1, max_size=5))
def test_frames_received_in_place_are_those_that_are_fed(pieces: list[int]) -> None:
    if max(pieces) < 5_000:
        pieces.append(ROOM_BYTES)  # or it takes a million steps
    under_test = RpcFrameReader(max_frame_bytes=1 << 23)
    data = b"".join([sample(), long_frame(4), long_frame(5), sample(), long_frame(6, 10)])
    assert told(read_all(under_test, data, pieces)) == told(RpcFrameReader(max_frame_bytes=1 << 23).feed(data))
    assert under_test.buffered == 0


@pytest.mark.parametrize("piece", [100_000, LARGE_BYTES - 1, LARGE_BYTES + 100_000])
def test_large_frames_are_those_that_are_fed_at_once(piece: int) -> None:
    data = b"".join([sample(), long_frame(4, 2 * LARGE_BYTES), long_frame(5, LARGE_BYTES), sample()])
    under_test = RpcFrameReader(max_frame_bytes=1 << 24)
    frames = [each for at in range(0, len(data), piece) for each in under_test.feed(data[at : at + piece])]
    assert told(frames) == told(RpcFrameReader(max_frame_bytes=1 << 24).feed(data))
    assert under_test.buffered == 0


def test_a_large_frame_is_copied_as_it_comes() -> None:
    """Its pieces were joined when the last one was there: 25 ms for 50 MB, in which the loop did nothing else."""
    data = long_frame(7, 2 * LARGE_BYTES)
    under_test = RpcFrameReader(max_frame_bytes=1 << 24)
    assert not under_test.feed(data[:1000])
    piece = bytearray(data[1000:2000])
    assert not under_test.feed(piece)  # type: ignore[arg-type]
    piece[:] = bytes(1000)
    (frame,) = under_test.feed(data[2000:])
    assert told([frame]) == told(RpcFrameReader(max_frame_bytes=1 << 24).feed(data))


def test_a_buffer_is_used_again_once_nobody_sees_its_frame() -> None:
    under_test = RpcFrameReader(max_frame_bytes=1 << 23)
    buffers = []
    kept = None
    for number in range(1, 7):
        (frame,) = read_all(under_test, long_frame(number), [10_000])
        buffers.append(id(frame.body.obj))
        if number == 2:
            kept = frame.body[5:]  # any view will do
        del frame
    assert len(set(buffers)) == 2 and buffers[0] == buffers[1] and len(set(buffers[2:])) == 1
    assert kept is not None and set(kept) == {2}


def test_encoding_passes_the_bodys_buffers_through() -> None:
    body = memoryview(b"records")
    assert encode_frame(1, HistoryRequest(()), [body])[1] is body


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 100_001, 4),
        struct.pack(">II", 50_000, 10_001),
        struct.pack(">II", 10, 7),
        struct.pack(">II", 0, 0),
        struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF),
        b"GET / HTTP/1.1\r\n\r\n",
        raw(b""),
        raw(b"\xc1"),
        raw(msgpack.packb([1, 2])),
        raw(msgpack.packb({1: 2})),
        raw(msgpack.packb([1, 2, 3])),
        raw(msgpack.packb(["1", 2, []])),
        raw(msgpack.packb([1, None, []])),
        raw(msgpack.packb([True, 1, []])),
        raw(msgpack.packb([-2, 1, []])),
        raw(msgpack.packb([2, -1, []])),
        raw(msgpack.packb([2, 2**64 - 1, []])),
        raw(msgpack.packb([2, 1, []]) + b"\x00"),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        reader().feed(data)


def test_a_giant_length_is_refused_before_its_bytes_come() -> None:
    under_test = reader()
    assert under_test.feed(b"\x7f\xff\xff\xff\x00\x00\x00") == []
    with pytest.raises(ProtocolError, match="limit"):
        under_test.feed(b"\x10")


def test_no_buffer_of_a_frame_is_empty() -> None:
    request = CommittedOffsetsRequest((("t", 3),))
    head, *rest = encode_frame(1, request, [b"", b"ab", memoryview(b""), memoryview(b"c"), b""])
    assert rest == [b"ab", b"c"]
    assert len(encode_frame(1, request, [b""])) == 1
    assert len(head) > 0
