"""Frames, good and bad, and what becomes of the connection that they come over."""

from __future__ import annotations

import asyncio
import struct

from kafkalite.protocol import codec, wire
from kafkalite.testing.kafka_client import frame

_NO_TAGS = b"\0"
_LAST = 1_000
_TWO_STRINGS = b"\x02a\x02b\0"


def _raw(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _request(
    key: int, version: int, body: bytes = b"", client: bytes | None = b"x", tags: bytes = b"", correlation_id: int = 5
) -> bytes:
    length = -1 if client is None else len(client)
    return _raw(struct.pack(">hhih", key, version, correlation_id, length) + (client or b"") + tags + body)


_ALL = wire.MetadataRequest([])
_META = codec.encode(_ALL, 9)
_AV = wire.ApiVersionsRequest
_P, _F = wire.ProduceRequest, wire.FetchRequest


def _good(correlation_id: int, version: int = 1) -> bytes:
    return frame(_ALL, version, correlation_id)


def _produce(acks: int, name: str) -> bytes:
    topic = _P.TopicProduceData(name=name, partition_data=[_P.PartitionProduceData(0, b"")])
    return frame(_P(None, acks, 1_000, [topic] if name else []), 9, 1)


_SLOW = frame(
    _F(
        max_wait_ms=300,
        min_bytes=1,
        topics=[_F.FetchTopic(topic="shared", partitions=[_F.FetchPartition(1, -1, 0, -1, -1, 1000)])],
    ),
    11,
    1,
)

FRAMES: dict[str, list[bytes]] = {
    "unknown API": [_good(1), _request(999, 0), _good(3)],
    "negative API": [_request(-1, 0)],
    "API of controllers": [_request(52, 0, bytes(20), tags=_NO_TAGS)],
    "API of brokers": [_request(4, 0, bytes(20))],
    "API that forwards": [_request(58, 0, b"\x01\x01\x01\0", tags=_NO_TAGS)],
    "API that changes an ISR": [_request(56, 2, bytes(40), tags=_NO_TAGS)],
    "version too new": [_request(3, 99, bytes(4))],
    "version negative": [_request(3, -1, bytes(4))],
    "ApiVersions too new": [_request(18, 99, _TWO_STRINGS, tags=_NO_TAGS), frame(_AV("n", "1"), 3, 6), _good(7, 9)],
    "ApiVersions negative": [_request(18, -1)],
    "ApiVersions without header tags": [_request(18, 3, _TWO_STRINGS)],
    "ApiVersions with more": [_request(18, 0, b"zz")],
    "ApiVersions with a bad name": [frame(_AV("a b!", "1"), 3, 1), _good(2)],
    "ApiVersions without names": [frame(_AV("", ""), 3, 1)],
    "ApiVersions for another cluster": [frame(_AV("a", "1", "other", 1), 5, 1), _good(2)],
    "ApiVersions for another node": [frame(_AV("a", "1", None, 77), 5, 1), _good(2)],
    "ApiVersions for no cluster": [frame(_AV("a", "1", "", 1), 5, 1)],
    "Fetch too new": [_request(1, 99, bytes(20))],
    "Produce too new": [_request(0, 99, bytes(20))],
    "empty frame": [_raw(b"")],
    "one byte": [_raw(b"\0")],
    "seven bytes": [_raw(b"\0\x03\0\x01\0\0\0")],
    "negative size": [struct.pack(">i", -5)],
    "huge size": [struct.pack(">i", 2**31 - 1)],
    "HTTP": [b"GET / HTTP/1.1\r\n\r\n"],
    "no client id": [_request(3, 1, bytes(4), client=None)],
    "empty client id": [_request(3, 1, bytes(4), client=b"")],
    "client id of other bytes": [_request(3, 1, bytes(4), client=b"\xff\xfe")],
    "client id cut": [_raw(struct.pack(">hhih", 3, 1, 5, 100) + b"abc")],
    "client id of negative length": [_raw(struct.pack(">hhih", 3, 1, 5, -7) + bytes(4))],
    "body cut": [_request(3, 1, b"\0\0\0\x05")],
    "body longer": [_request(3, 1, bytes(4) + b"extra"), _good(6)],
    "flexible version without header tags": [_request(3, 9, _META)],
    "unknown tag in the header": [_request(3, 9, _META, tags=b"\x01\x63\x02ab")],
    "tags out of order": [_request(3, 9, _META, tags=b"\x02\x63\x01a\x05\x01b")],
    "unknown tag in the body": [_request(3, 9, _META[:-1] + b"\x01\x63\x02ab", tags=_NO_TAGS)],
    "array of negative length": [_request(3, 1, struct.pack(">i", -5))],
    "array too long": [_request(3, 1, struct.pack(">i", 2**30))],
    "null string": [_request(10, 0, struct.pack(">h", -1))],
    "null compact string": [_request(10, 3, bytes(3), tags=_NO_TAGS)],
    "string cut": [_request(10, 0, struct.pack(">h", 50) + b"abc")],
    "malformed between good ones": [_good(1), _request(3, 1, b"\0\0\0\x05"), _good(3)],
    "ten at once": [_good(number, 1 + number % 3) for number in range(10)],
    "one correlation id twice": [_good(7), _good(7)],
    "negative correlation id": [_request(3, 1, bytes(4), correlation_id=-9)],
    "slow Fetch before Metadata": [_SLOW, _good(2)],
    "acks=0 for no topic": [_produce(0, ""), _good(2)],
    "acks=0 for an unknown topic": [_produce(0, "nope"), _good(2)],
    "SaslHandshake without SASL": [frame(wire.SaslHandshakeRequest("PLAIN"), 1, 1), _good(2)],
    "SaslAuthenticate without SASL": [frame(wire.SaslAuthenticateRequest(b"x"), 2, 1), _good(2)],
    "array of topics cut": [_request(19, 2, b"\0\0\0\x01\0")],
}
#: APIs whose answers begin with an error code here.
_HAS_CODE = {frozenset({17, 18}): 4, frozenset({36}): 5}


async def seen_on(address: str, frames: list[bytes]) -> list[str]:
    """The correlation ids of the answers in their order, with error codes where those come first; then whether it is closed."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    keys = {int.from_bytes(each[8:12], signed=True): int.from_bytes(each[4:6]) for each in frames if len(each) > 11}
    seen: list[str] = []
    try:
        async with asyncio.timeout(60):
            writer.write(b"".join(frames) + frame(wire.ApiVersionsRequest(), 0, _LAST))
            while True:
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                correlation_id = int.from_bytes(answer[:4], signed=True)
                if correlation_id == _LAST:
                    return [*seen, "open"]
                at = next((at for apis, at in _HAS_CODE.items() if keys.get(correlation_id) in apis), None)
                seen.append(f"{correlation_id} {'' if at is None else int.from_bytes(answer[at : at + 2])}".strip())
    except (asyncio.IncompleteReadError, ConnectionError):
        return [*seen, "closed"]
    finally:
        writer.close()
