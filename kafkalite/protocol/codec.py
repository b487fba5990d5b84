"""Encoding and decoding of Kafka's messages: each (message, version) is compiled to a Python function once.

One class per struct, with the fields of all versions, so that handlers do not depend on versions. `records`
are decoded as memoryviews of the frame (valid as long as its buffer is) and encoded without a copy when they
are large: they become chunks of their own. `bytes` are copied: groups keep them.

What a decoder raises for bytes that are no such message: WireError, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache
from typing import Any, TypeVar, cast, overload

from kafkalite.model import Buffer
from kafkalite.protocol.compiling.decoder import DecoderSource
from kafkalite.protocol.compiling.encoder import EncoderSource
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.schema import MessageSchema, schemas
from kafkalite.protocol.structs import WireStruct

#: Elements of all arrays of one request. (A response of ours may list more.)
MAX_REQUEST_ELEMENTS = 200_000
#: Elements that are decoded or encoded in one go; more: in pieces (`decoding`, `encoding`).
ELEMENTS_AT_ONCE = 500

Decoder = Callable[..., "tuple[Any, int]"]
Encoder = Callable[[Any, bytearray, list[Buffer]], bytearray]
_Struct = TypeVar("_Struct", bound=WireStruct)


def _schema(message: str, version: int) -> MessageSchema:
    schema = schemas()[message]
    if version not in schema.versions:
        raise KeyError(f"{message} has no version {version}")
    return schema


def _compiled_decoder(message: str, version: int, *, in_pieces: bool) -> Any:
    schema = _schema(message, version)
    writer = DecoderSource(schema, version, counts=message.endswith("Request"), in_pieces=in_pieces)
    writer.emit(0, f"def f(buf, room={MAX_REQUEST_ELEMENTS}, pos=0, pace=0):")
    if in_pieces:
        writer.emit(1, "yield")
    writer.emit(1, "end = count(buf)")
    writer.struct(1, schema.root, "message")
    writer.emit(1, "return message, pos")
    return writer.function(f"decode {message} v{version}")


@cache
def decoder(message: str, version: int) -> Decoder:
    """decode(view[, room[, position]]) -> (message, position behind it). Raises WireError; KeyError here for a message or version that is not.

    A request with more than `room` elements, MAX_REQUEST_ELEMENTS by default, raises TooManyAtOnce.
    """
    inner = _compiled_decoder(message, version, in_pieces=False)

    def decode(view: memoryview, room: int = MAX_REQUEST_ELEMENTS, position: int = 0) -> tuple[Any, int]:
        try:
            return inner(view, room, position)  # type: ignore[no-any-return]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"{message} v{version}: {error}") from None

    return decode


_compiled_decoding = cache(lambda message, version: _compiled_decoder(message, version, in_pieces=True))


def decoding(
    message: str, version: int, view: memoryview, room: int = MAX_REQUEST_ELEMENTS
) -> Generator[None, None, Any]:
    """As `decoder`, piece by piece; returns the message. Raises WireError."""
    try:
        decoded, _ = yield from _compiled_decoding(message, version)(view, room)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{message} v{version}: {error}") from None
    return decoded


def _compiled_encoder(message: str, version: int, *, counts: bool = False, in_pieces: bool = False) -> Any:
    schema = _schema(message, version)
    writer = EncoderSource(schema, version, counts=counts, in_pieces=in_pieces)
    writer.emit(0, f"def f(message, w, chunks, room={ELEMENTS_AT_ONCE}, pace=0):")
    if in_pieces:
        writer.emit(1, "yield")
    writer.struct(1, schema.root, "message")
    writer.emit(1, "return w")
    return writer.function(f"encode {message} v{version}")


@cache
def encoder(message: str, version: int) -> Encoder:
    """encode(message, w, chunks) -> w: appends to `w`; when large records cut it, finished pieces go to `chunks`."""
    return _compiled_encoder(message, version)  # type: ignore[no-any-return]


@cache
def small_encoder(message: str, version: int) -> Encoder:
    """As `encoder`, but a message with more than ELEMENTS_AT_ONCE elements raises TooManyAtOnce: `encoding` is for those."""
    return _compiled_encoder(message, version, counts=True)  # type: ignore[no-any-return]


_compiled_encoding = cache(lambda message, version: _compiled_encoder(message, version, in_pieces=True))


def encoding(
    name: str, message: Any, version: int, w: bytearray, chunks: list[Buffer]
) -> Generator[None, None, bytearray]:
    """As `encoder`, piece by piece; returns `w`."""
    return cast("Generator[None, None, bytearray]", _compiled_encoding(name, version)(message, w, chunks))


def encode(message: Any, version: int) -> bytes:
    """A whole message as bytes (what is stored, tests; answers use `encoder`)."""
    chunks: list[Buffer] = []
    chunks.append(encoder(type(message).__name__, version)(message, bytearray(), chunks))
    return b"".join(chunks)


@overload
def decode(kind: type[_Struct], version: int, data: Buffer) -> _Struct: ...


@overload
def decode(kind: str, version: int, data: Buffer) -> Any: ...


def decode(kind: type[WireStruct] | str, version: int, data: Buffer) -> Any:
    """A whole message, given by its class or name, from bytes. Raises WireError, also when bytes are left over."""
    name = kind if isinstance(kind, str) else kind.__name__
    message, used = decoder(name, version)(memoryview(data))
    if used != len(data):
        raise WireError(f"{name} v{version}: {len(data) - used} bytes are left over")
    return message
