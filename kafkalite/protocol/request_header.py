"""The header of a request: which API, which version, whose."""

from __future__ import annotations

import struct

from kafkalite.protocol.errors import WireError
from kafkalite.protocol.varints import read_varint

_HEAD = struct.Struct(">hhih").unpack_from
#: API, version, correlation id, and the length of the client id.
HEAD_BYTES = 10
#: Characters of a client id that are used. What is not UTF-8 becomes three bytes for one, and a member's id is a client id with 37 characters
#: more: in a response, or in the log, a string has 32,767 bytes.
MAX_CLIENT_ID = 10_000
#: Kafka knows none; without a bound 16 MB of them hold the loop for seconds.
MAX_TAGS = 100


def parse_header(view: memoryview) -> tuple[int, int, int, str, int]:
    """API key, version, correlation id, client id, and where the header without its tagged fields ends.

    Bytes of the client id that are not UTF-8 become U+FFFD, as with Kafka: they are no reason to refuse a client. A longer one is cut.

    Raises:
        WireError, struct.error: it is malformed.
    """
    api_key, version, correlation_id, id_bytes = _HEAD(view, 0)
    if id_bytes <= 0:
        return api_key, version, correlation_id, "", HEAD_BYTES
    position = HEAD_BYTES + id_bytes
    if position > len(view):
        raise WireError("the client id overruns the frame")
    client_id = str(view[HEAD_BYTES:position], "utf-8", "replace")
    return api_key, version, correlation_id, client_id[:MAX_CLIENT_ID], position


def skip_tags(view: memoryview, position: int) -> int:
    """Past the tagged fields of a request header; we know none. Raises WireError."""
    count, position = read_varint(view, position)
    if count > MAX_TAGS:
        raise WireError(f"{count} tagged fields in the header")
    for _ in range(count):
        _, position = read_varint(view, position)
        size, position = read_varint(view, position)
        position += size
        if position > len(view):
            raise WireError("a tagged field of the header overruns the frame")
    return position
