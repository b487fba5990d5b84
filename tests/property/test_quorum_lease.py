"""The lease against a model of a ZooKeeper follower and its leader, with any delays: it never outlives the session."""

from __future__ import annotations

import heapq
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.coordination.quorum_lease import QuorumLease

TIMEOUT_S = 8.0
#: Longest interval between the leader's pings: half a tick, and a session is two ticks or more.
PING_S = TIMEOUT_S / 4

delays = st.lists(st.sampled_from((0.0, 0.0, 0.0, 0.3, 1.0, 2.5, 9.0)), min_size=1, max_size=5)
waits = st.lists(st.sampled_from((0.01, 0.4, 4 / 3, 2.0)), min_size=3, max_size=8)


class Ensemble:
    """A leader and one follower, with a client at the follower. Each way between the two is one stream."""

    def __init__(self, delays: list[float], ping_every_s: float) -> None:
        self.now = 0.0
        #: When the leader last heard of the session.
        self.touched_at = 0.0
        self._delays = delays
        self._drawn = count()
        self._ping_every_s = ping_every_s
        self._queue: list[tuple[float, int, object]] = []
        self._order = count()
        self._busy_until = {"up": 0.0, "down": 0.0}
        self._has_heard = False
        self._answered: float | None = None
        self._at(0.0, self._ping)

    def _delay(self) -> float:
        return self._delays[next(self._drawn) % len(self._delays)]

    def _at(self, at: float, what: object) -> None:
        heapq.heappush(self._queue, (at, next(self._order), what))

    def _send(self, way: str, what: object) -> None:
        arrives = max(self._busy_until[way], self.now + self._delay())
        self._busy_until[way] = arrives
        self._at(arrives, what)

    def _ping(self) -> None:
        self._send("down", self._pinged)
        self._at(self.now + self._ping_every_s, self._ping)

    def _pinged(self) -> None:
        heard, self._has_heard = self._has_heard, False
        if heard:
            self._send("up", self._told)

    def _told(self) -> None:
        self.touched_at = self.now

    def _asked(self) -> None:
        self._has_heard = True
        self._send("up", lambda: self._send("down", self._answer))

    def _answer(self) -> None:
        self._answered = self.now

    def confirm(self, after_s: float) -> tuple[float, float]:
        """(sent, answered)."""
        sent_at = self.now + after_s
        self._answered = None
        self._at(sent_at, self._asked)
        while self._answered is None:
            self.now, _, what = heapq.heappop(self._queue)
            what()  # type: ignore[operator]
        return sent_at, self._answered


@settings(max_examples=1_500)
@given(delays, waits, st.sampled_from((0.1, PING_S)))
def test_the_lease_ends_before_the_leader_gives_the_session_away(
    delays: list[float], waits: list[float], ping_s: float
) -> None:
    ensemble, lease = Ensemble(delays, ping_s), QuorumLease()
    lease.opened(0.0, TIMEOUT_S)
    for wait in waits:
        lease.confirmed(*ensemble.confirm(wait), TIMEOUT_S)
        assert lease.until <= ensemble.touched_at + TIMEOUT_S


def test_while_all_is_well_a_third_of_the_timeout_is_always_left() -> None:
    lease = QuorumLease()
    lease.opened(0.0, TIMEOUT_S)
    for beat in range(1, 100):
        now = beat * TIMEOUT_S / 6
        assert lease.until - now >= TIMEOUT_S / 3 - 0.1
        lease.confirmed(now, now + 0.01, TIMEOUT_S)


def test_who_is_taken_in_again_holds_the_session_when_a_write_is_answered() -> None:
    lease = QuorumLease()
    lease.opened(0.0, TIMEOUT_S)
    lease.attached(20.0, 20.1)
    assert lease.until == TIMEOUT_S
    lease.confirmed(20.05, 20.2, TIMEOUT_S)  # sent before it was known that the session lives
    assert lease.until == TIMEOUT_S
    lease.confirmed(20.2, 20.3, TIMEOUT_S)
    assert lease.until == 20.0 + TIMEOUT_S


def test_one_server_says_nothing_of_what_another_one_has_told() -> None:
    lease = QuorumLease()
    lease.opened(0.0, TIMEOUT_S)
    for at in (1.0, 4.0):
        lease.confirmed(at, at + 0.1, TIMEOUT_S)
    lease.attached(5.0, 5.1)
    lease.confirmed(5.2, 5.3, TIMEOUT_S)
    assert lease.until == 5.0 + TIMEOUT_S
