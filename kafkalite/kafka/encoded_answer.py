"""An answer that was encoded before its request came."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass


@dataclass(slots=True)
class EncodedAnswer:
    """`body`: a response in the version of the request. `has_throttle_time`: it begins with throttle_time_ms, which is each client's own."""

    body: bytes
    has_throttle_time: bool
    throttle_time_ms: int = 0

    def for_client(self) -> bytes:
        """The body with the client's throttle time."""
        if not (self.has_throttle_time and self.throttle_time_ms):
            return self.body
        return self.throttle_time_ms.to_bytes(4) + self.body[4:]
