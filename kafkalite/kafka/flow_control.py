"""Why a connection reads nothing for now, or starts nothing of what it has read. Pure: the connection has the effects."""

from __future__ import annotations

#: The client does not read its responses.
UNREAD = 1
#: The listener has no memory left for half received frames.
STARVED = 2
#: The client exceeds a quota, as its last response says (KIP-219).
MUTED = 4
#: A request is not started as a whole yet, and those behind it must wait.
HELD = 8
#: The connection's requests have taken a slice of the loop's time. It is the turn of others.
YIELDING = 16
#: Nothing more is taken; what was asked is answered.
RETIRING = 32
#: Without memory for more, what has arrived is started all the same: that gives memory back.
_STARTS_NOTHING = UNREAD | MUTED | HELD | YIELDING | RETIRING


class FlowControl:
    """The flow control of one connection.

    Args:
        max_in_flight: requests under way at most.
    """

    __slots__ = ("_holds", "_max_in_flight", "_reasons", "unmute_at")

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._reasons = 0
        self._holds = 0
        #: Monotonic seconds: until when it is muted.
        self.unmute_at = 0.0

    def may_start(self, in_flight: int) -> bool:
        """Whether the next request may be started while this number is under way."""
        return in_flight < self._max_in_flight and not self._reasons & _STARTS_NOTHING

    def may_read(self, in_flight: int) -> bool:
        """Whether more may be read."""
        return not self._reasons and in_flight < self._max_in_flight

    def forbids_for(self, reason: int) -> bool:
        return bool(self._reasons & reason)

    def forbid(self, reason: int) -> None:
        self._reasons |= reason

    def allow(self, reason: int) -> None:
        """This reason, at least, is gone."""
        self._reasons &= ~reason

    def hold(self) -> None:
        """Calls are counted: all who hold must release."""
        self._holds += 1
        self._reasons |= HELD

    def release(self) -> bool:
        """Whether nobody holds any more."""
        self._holds -= 1
        if not self._holds:
            self._reasons &= ~HELD
        return not self._holds

    def left_s(self, now: float) -> float:
        """Seconds until a muted connection is not muted any more; with 0 it is not from here on."""
        left = max(0.0, self.unmute_at - now)
        if not left:
            self._reasons &= ~MUTED
        return left
