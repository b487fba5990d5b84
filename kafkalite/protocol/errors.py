"""What is wrong with bytes that claim to be a message."""

from __future__ import annotations

from kafkalite.errors import ProtocolError


class WireError(ProtocolError):
    """The bytes are no message of that version."""


class TooManyAtOnce(WireError):
    """There are more elements than may be decoded or encoded in one go."""
