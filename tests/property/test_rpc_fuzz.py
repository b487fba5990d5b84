"""Framing and codec under arbitrary bytes, arbitrary splits and every message there is."""

from __future__ import annotations

import dataclasses
import struct
import types
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.errors import ProtocolError
from kafkalite.rpc.codec import from_fields, pack, to_fields, unpack
from kafkalite.rpc.framing import Frame, RpcFrameReader, encode_frame
from kafkalite.rpc.messages.base import Message, by_kind

LIMIT = 1 << 20


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint, derived independently of the codec."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if hint is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    if hint is bool:
        return st.booleans()
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{f.name: values(hints[f.name]) for f in dataclasses.fields(hint)})
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = [arg for arg in args if arg is not type(None)]
        return st.none() | values(inner)
    if get_origin(hint) is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if args[1:] == (Ellipsis,):
        return st.lists(values(args[0]), max_size=3).map(tuple)
    return st.tuples(*map(values, args))


def messages() -> st.SearchStrategy[Message]:
    return st.sampled_from(sorted(by_kind)).flatmap(lambda kind: values(by_kind[kind]))


@given(messages())
@settings(max_examples=150, deadline=None)
def test_every_message_survives_the_round_trip(message: Message) -> None:
    assert unpack(message.kind, pack(message)) == message


@given(messages(), st.integers(0, 3), st.lists(st.integers() | st.text(), max_size=2))
@settings(max_examples=80, deadline=None)
def test_a_longer_array_is_the_same_message(message: Message, _: int, extra: list[Any]) -> None:
    fields = msgpack.unpackb(msgpack.packb(to_fields(message)), strict_map_key=False)
    assert from_fields(type(message), [*fields, 1, *[str(e) for e in extra]]) == message


@given(st.lists(st.tuples(messages(), st.binary(max_size=200)), max_size=6), st.data())
@settings(max_examples=80, deadline=None)
def test_frames_survive_any_split(sent: list[tuple[Message, bytes]], data: st.DataObject) -> None:
    stream = b"".join(b"".join(map(bytes, encode_frame(n, m, [b]))) for n, (m, b) in enumerate(sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = RpcFrameReader(max_frame_bytes=LIMIT)
    frames: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += reader.feed(stream[start:end])
    assert reader.buffered == 0
    assert sum(frame.size for frame in frames) == len(stream)
    assert [f.correlation_id for f in frames] == list(range(len(sent)))
    assert [(from_fields(by_kind[f.kind], f.fields), bytes(f.body)) for f in frames] == sent


def feed_all(stream: bytes, size: int) -> list[tuple[int, int, bytes]]:
    """Frames up to the first refusal."""
    reader = RpcFrameReader(max_frame_bytes=4096, max_header_bytes=1024)
    frames: list[Frame] = []
    for start in range(0, len(stream), size):
        try:
            frames += reader.feed(stream[start : start + size])
        except ProtocolError:
            break
        assert reader.buffered < 4096 + 4
    return [(f.kind, f.correlation_id, bytes(f.body)) for f in frames]


@given(st.binary(max_size=400), st.integers(1, 50))
@settings(max_examples=250, deadline=None)
def test_any_bytes_are_frames_or_a_protocol_error(stream: bytes, size: int) -> None:
    feed_all(stream, size)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.sampled_from(sorted(by_kind)), JUNK)
@settings(max_examples=250, deadline=None)
def test_any_value_is_a_message_or_a_protocol_error(kind: int, junk: Any) -> None:
    try:
        packed = msgpack.packb(junk)
    except (OverflowError, ValueError, UnicodeEncodeError):
        return
    try:
        message = unpack(kind, packed)
    except ProtocolError:
        return
    assert unpack(kind, pack(message)) == message


@given(messages(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_flipped_byte_is_another_message_or_a_protocol_error(message: Message, data: st.DataObject) -> None:
    packed = bytearray(pack(message))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    try:
        other = unpack(message.kind, bytes(packed))
    except ProtocolError:
        return
    assert type(other) is type(message)


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x01"])
def test_deep_nesting_is_refused(depth: int, opening: bytes) -> None:
    header = opening * depth + b"\xc0"
    reader = RpcFrameReader(max_frame_bytes=LIMIT)
    with pytest.raises(ProtocolError):
        reader.feed(struct.pack(">II", 4 + len(header), len(header)) + header)
