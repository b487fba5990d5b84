"""Which frames of a client are taken, by their beginnings."""

from __future__ import annotations

from kafkalite.protocol.request_header import HEAD_BYTES

#: Only Produce carries records; no other request has a reason to be larger.
MAX_OTHER_REQUEST_BYTES = 16 * 2**20
#: A request's header, at least; its length of the client id was added in version 1.
LEAST_BYTES = HEAD_BYTES - 2
#: With SaslHandshake version 0 the tokens that follow have no header.
LEAST_TOKEN_BYTES = 1


def why_refused(view: memoryview, size: int, least: int, most: int) -> str:
    """Why a frame is not taken; empty if it is. It has from `least` to `most` bytes.

    Args:
        view: the frame behind its length, as far as it has arrived.
        size: what its length says.
    """
    if not least <= size <= most:
        return f"a frame of {size} bytes"
    if size > MAX_OTHER_REQUEST_BYTES and len(view) >= 2 and (view[0] or view[1]):
        return f"{size} bytes in a request that carries no records"
    return ""
