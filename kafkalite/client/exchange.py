"""One connection to a broker's Kafka listener, without I/O: requests to bytes, frames to responses, the first exchanges.

The asyncio connection and the blocking one are shells around it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Generator
from typing import Any

from kafkalite import __version__
from kafkalite.errors import ErrorCode, KafkaliteError, ProtocolError, api_error, error_code
from kafkalite.extension import MAX_BODY_BYTES
from kafkalite.frames import FrameReader
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer, Endpoint
from kafkalite.protocol import wire
from kafkalite.protocol.codec import Decoder, Encoder, decoder, encoder
from kafkalite.protocol.schema import schemas
from kafkalite.protocol.structs import WireStruct
from kafkalite.protocol.varints import read_varint
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.base import Message

#: A request: a message of Kafka's protocol, or one of kafkalite's own (which travels in the extension API).
Request = WireStruct | Message

MAX_FRAME_BYTES = 134_217_728
_LENGTH_BYTES = 4
_API_VERSIONS = 18
_LENGTH = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")
#: Length, API key, version, correlation id, length of the client id.
_HEAD = struct.Struct(">ihhih")
_CORRELATION_ID_AT = 8
#: Higher versions are not for us: they name topics by their ids (Fetch), take part in transactions without an explicit request
#: (Produce, EndTxn) or are for brokers (AddPartitionsToTxn).
_HIGHEST = {
    "Fetch": 12, "Produce": 11, "EndTxn": 4, "AddPartitionsToTxn": 3, "OffsetCommit": 9, "OffsetFetch": 9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Api:
    """One API in the version that this connection uses. `head`: a frame's beginning, without length and correlation id."""

    key: int
    version: int
    head: bytes
    encode: Encoder
    decode: Decoder
    has_tags: bool


class _Frames(FrameReader[memoryview]):
    """Frames as they are after their length."""

    def __init__(self, peer: Endpoint) -> None:
        super().__init__(_LENGTH_BYTES)
        self._peer = peer

    def _length(self, data: bytes, position: int) -> int:
        (length,) = _LENGTH.unpack_from(data, position)
        if not _CORRELATION_ID.size <= length <= MAX_FRAME_BYTES:
            raise ProtocolError(f"{self._peer}: {_what_begins(data[position : position + 4], length)}")
        return _LENGTH_BYTES + int(length)

    def _frame(self, view: memoryview) -> memoryview:
        return view[_LENGTH_BYTES:]


def _what_begins(start: bytes, length: int) -> str:
    if start == b"HTTP":
        return "answers in HTTP: this is not a Kafka listener"
    if start[:2] == b"\x15\x03":
        return "answers in TLS: set security.protocol to SSL or SASL_SSL"
    return f"a response of {length} bytes: this is not a Kafka listener"


class Exchange:
    """Correlation ids, versions, encoding and decoding of one connection.

    Attributes:
        versions: API key -> (lowest, highest) version that the broker takes; filled by `introduce`.
        frames: cuts what is received.
    """

    def __init__(self, peer: Endpoint, client_id: str) -> None:
        self.peer = peer
        self.frames = _Frames(peer)
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id.encode()[:32_000]
        self._next_id = 0
        self._apis: dict[type[WireStruct], _Api] = {}
        #: Correlation id -> (API, class of the response inside an extension response).
        self._asked: dict[int, tuple[_Api, type[Message] | None]] = {}

    # --- out -------------------------------------------------------------------------------------

    def encode(
        self, request: Request, *, has_response: bool = True, version: int | None = None
    ) -> tuple[int, list[Buffer]]:
        """(correlation id, buffers of the frame). Records are not copied: they must not change until they are sent.

        Raises:
            ApiError: UNSUPPORTED_VERSION, the broker does not know such a request. INVALID_REQUEST: it cannot be encoded.
        """
        inside: type[Message] | None = None
        message: Any = request
        if isinstance(request, Message):
            inside, message = type(request), _wrapped(request)
        kind = type(message)
        api = self._apis.get(kind) if version is None else self._api_at(kind, version)
        if api is None:
            api = self._apis[kind] = self._api_at(kind, self.version_of(_name(kind)))
        number = self._next_id = self._next_id + 1 & 0x7FFFFFFF
        start = bytearray(api.head)
        chunks: list[Buffer] = []
        try:
            chunks.append(api.encode(message, start, chunks))
        except (struct.error, UnicodeEncodeError) as error:
            raise api_error(ErrorCode.INVALID_REQUEST, f"{type(request).__name__}: {error}") from None
        # Of an empty buffer at the end of a writelines() asyncio, since Python 3.12, never gets rid: its loop spins on it.
        chunks = [chunk for chunk in chunks if len(chunk)]
        size = sum(map(len, chunks)) - _LENGTH_BYTES
        if size > MAX_FRAME_BYTES:
            raise api_error(ErrorCode.MESSAGE_TOO_LARGE, f"{type(request).__name__} of {size} bytes")
        _LENGTH.pack_into(start, 0, size)
        _CORRELATION_ID.pack_into(start, _CORRELATION_ID_AT, number)
        if has_response:
            self._asked[number] = (api, inside)
        return number, chunks

    def version_of(self, name: str) -> int:
        """The highest version of an API that both sides know. Raises ApiError: UNSUPPORTED_VERSION."""
        request = schemas()[name + "Request"]
        offered = self.versions.get(request.api_key)
        if offered is None:
            what = "kafkalite's extension API" if name == "Extension" else f"the API {name}"
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{self.peer}: this broker does not offer {what}")
        highest = min(offered[1], request.versions.stop - 1, _HIGHEST.get(name, offered[1]))
        if highest < max(offered[0], request.versions.start):
            text = (
                f"{self.peer}: this broker offers {name} {offered[0]} to {offered[1]}, which this client does not speak"
            )
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, text)
        return highest

    def _api_at(self, kind: type[WireStruct], version: int) -> _Api:
        name = _name(kind)
        request, response = schemas()[name + "Request"], schemas()[name + "Response"]
        head = _HEAD.pack(0, request.api_key, version, 0, len(self._client_id)) + self._client_id
        return _Api(
            request.api_key,
            version,
            head + b"\0" if version in request.flexible else head,
            encoder(request.name, version),
            decoder(response.name, version),
            # KIP-511: a client that does not know the broker yet must be able to read the header.
            name != "ApiVersions" and version in response.flexible,
        )

    # --- in --------------------------------------------------------------------------------------

    def decode(self, frame: memoryview) -> tuple[int, Any]:
        """(correlation id, response); instead of it an ApiError, where an extension response has one.

        Raises ProtocolError: this is no response to what was asked.
        """
        (number,) = _CORRELATION_ID.unpack_from(frame)
        asked = self._asked.pop(number, None)
        if asked is None:
            raise ProtocolError(f"{self.peer}: a response to {number}, which was not requested: not a Kafka listener?")
        api, inside = asked
        position = _CORRELATION_ID.size
        if api.has_tags:
            position = _after_tags(frame, position)
        body = frame[position:]
        if api.key == _API_VERSIONS and api.version and int.from_bytes(body[:2]) == ErrorCode.UNSUPPORTED_VERSION:
            return number, wire.ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION))  # it is in version 0
        response, used = api.decode(body)
        if used != len(body):
            raise ProtocolError(f"{self.peer}: {len(body) - used} bytes too many in {type(response).__name__}")
        return number, response if inside is None else _unwrapped(inside, response)

    def forget(self) -> None:
        """The connection is over: no response comes any more."""
        self._asked.clear()


def _name(kind: type[WireStruct]) -> str:
    return kind.__name__.removesuffix("Request")


def _after_tags(frame: memoryview, position: int) -> int:
    try:
        count, position = read_varint(frame, position)
        for _ in range(count):
            _, position = read_varint(frame, position)
            size, position = read_varint(frame, position)
            position += size
    except IndexError:
        raise ProtocolError("a response's header ends early") from None
    return position


def _wrapped(message: Message) -> Any:
    try:
        body = pack(message)
    except (OverflowError, UnicodeEncodeError) as error:
        raise api_error(ErrorCode.INVALID_REQUEST, f"{type(message).__name__}: {error}") from None
    if len(body) > MAX_BODY_BYTES:
        text = f"{type(message).__name__} has {len(body)} bytes, nodes accept {MAX_BODY_BYTES} of a client"
        raise api_error(ErrorCode.INVALID_REQUEST, text)
    return wire.ExtensionRequest(type(message).__name__, body)


def _unwrapped(request: type[Message], response: Any) -> Message | KafkaliteError:
    if response.error_code:
        code = error_code(response.error_code)
        return api_error(code, response.error_message or code.name)
    return unpack_as(response_class(request), response.body or b"")


def response_class(request: type[Message]) -> type[Message]:
    """Beside its request, and named like it."""
    found = getattr(sys.modules[request.__module__], request.__name__.removesuffix("Request") + "Response")
    assert isinstance(found, type) and issubclass(found, Message)
    return found


def introduce(exchange: Exchange) -> Generator[tuple[Any, int], Any, None]:
    """Learn which versions the broker takes. Raises ApiError."""
    message = wire.ApiVersionsRequest("kafkalite", __version__)
    response = yield message, 3
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:  # a broker before 2.4
        response = yield message, 0
    if response.error_code:
        raise api_error(error_code(response.error_code), f"{exchange.peer}: ApiVersions")
    exchange.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
