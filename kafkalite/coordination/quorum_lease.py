"""How long the ensemble surely still holds our session, derived from its answers. Pure (ADR 15).

One server's answer is not enough: a ZooKeeper follower answers pings and reads alone, and continues for
syncLimit x tickTime when it is cut off, while its leader, which no longer hears of our session, expires it. Two facts are
needed: the leader has heard of our session, and it was still the leader afterwards.

- A *confirmation* is a write: only a quorum can answer it. Later leaders give every session its full timeout again.
- Followers report live sessions to their leader when it pings them, every half tick; a session's timeout is at least
  two ticks. All messages arrive in order. Take three confirmations i, j, k, one after the other, with at least a quarter
  of the timeout between i and j. The leader has pinged our server between i and j, the answer to that was sent before k,
  and the leader had it when it took k. So the leader has heard of our session at or after the sending of i.
- Opening a session, or attaching to one again, goes to the leader at once: one confirmation after it is enough. A new
  session is a write itself.
"""

from __future__ import annotations

from collections import deque

from kafkalite.lazy_dataclass import dataclass

#: Of the session timeout: at least half a tick of the server.
_LEADER_PINGS_WITHIN = 1 / 4
#: Confirmations that are remembered; older ones prove nothing.
_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class _Confirmation:
    sent_at: float
    answered_at: float


class QuorumLease:
    """Times are seconds of one clock that runs while this process is stopped."""

    def __init__(self) -> None:
        self.until = float("-inf")
        self._attached: _Confirmation | None = None
        self._confirmed: deque[_Confirmation] = deque(maxlen=_REMEMBERED)

    def opened(self, sent_at: float, timeout_s: float) -> None:
        """A new session was made."""
        self._confirmed.clear()
        self._attached = None
        self.until = sent_at + timeout_s

    def attached(self, sent_at: float, answered_at: float) -> None:
        """A server has accepted our existing session. It may be another server, so only its own answers count from now on."""
        self._confirmed.clear()
        self._attached = _Confirmation(sent_at, answered_at)

    def confirmed(self, sent_at: float, answered_at: float, timeout_s: float) -> None:
        """A write was answered."""
        held_from = float("-inf")
        if self._attached is not None and self._attached.answered_at <= sent_at:
            held_from = self._attached.sent_at
        before = [each for each in self._confirmed if each.answered_at <= sent_at]
        if before:
            gap_s = timeout_s * _LEADER_PINGS_WITHIN
            proven = [each.sent_at for each in before if each.answered_at + gap_s <= before[-1].sent_at]
            held_from = max(held_from, *proven) if proven else held_from
        self._confirmed.append(_Confirmation(sent_at, answered_at))
        self.until = max(self.until, held_from + timeout_s)
