"""The fetch sessions of clients (KIP-227): which there are, whose they are, and which one makes room for another.

A client that lists all its partitions once gets a session; later it lists only what it wants to change, and gets only
what is new. A session that is gone costs a client one full request: so a node may end any of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from kafkalite.lazy_dataclass import dataclass
from kafkalite.replica.client_fetch import AT_ONCE, ClientFetch, Steps
from kafkalite.security.fair_room import FairRoom, user_of
from kafkalite.security.principal import Principal

#: Time in ms for which a session may be unused, and after which a larger one may take its place (Kafka's value).
EVICTION_MS = 120_000
#: Partitions in all sessions together, but for the reserve of `fair_room`: a partition is some hundred bytes, and anybody may list
#: names of no topic.
MAX_PARTITIONS = 500_000
NO_SESSION = 0
#: The epochs of requests that list all partitions: the second one asks for no session.
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_HIGHEST = 2**31 - 1


def _no_steps() -> Steps[None]:
    yield from ()


@dataclass(slots=True, eq=False)
class ClientSession:
    session_id: int
    #: Who may use it: another principal, or another host, may have other rights.
    owner: tuple[Principal, str]
    fetch: ClientFetch
    #: Its topics are listed by their ids.
    uses_ids: bool
    created_ms: int
    #: Which state of the ACLs its entries were checked against.
    rights_version: int
    #: Of the next request.
    epoch: int = 1
    used_ms: int = 0
    #: Its partitions when it was used last.
    size: int = 0
    is_evictable: bool = False
    #: Counts requests: only the answer to the last one is used.
    requests: int = 0

    def advance(self) -> None:
        """A request has come for it."""
        self.requests += 1
        self.epoch = 1 if self.epoch == _HIGHEST else self.epoch + 1


class FetchSessions:
    """One per node.

    Args:
        slots: how many there may be (max.incremental.fetch.session.cache.slots).
        draw: a random integer from the first to the second argument.
        release: runs steps that free memory.
    """

    def __init__(
        self,
        slots: int,
        now_ms: Callable[[], int],
        draw: Callable[[int, int], int],
        release: Callable[[Steps[None]], None] = AT_ONCE.run,
    ) -> None:
        self._slots = slots
        self._now_ms = now_ms
        self._draw = draw
        self._release = release
        #: The one that has not been used for the longest time is first.
        self._sessions: dict[int, ClientSession] = {}
        #: (partitions, id) of those that are no longer new, sorted.
        self._evictable: list[tuple[int, int]] = []
        self._listed = FairRoom(lambda: MAX_PARTITIONS)
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """In all sessions."""
        return self._listed.taken

    def get(self, session_id: int, owner: tuple[Principal, str]) -> ClientSession | None:
        """None: there is no such session of theirs."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def open(
        self, fetch: ClientFetch, owner: tuple[Principal, str], *, uses_ids: bool, rights_version: int
    ) -> ClientSession | None:
        """A new one; None if there is no room and none may be ended for it."""
        size = len(fetch.entries)
        if not size or not self._listed.has_room(user_of(*owner), size):
            return None
        if len(self._sessions) >= self._slots and not self._make_room(size):
            return None
        session_id = self._draw(1, _HIGHEST)
        while session_id in self._sessions:
            session_id = self._draw(1, _HIGHEST)
        now_ms = self._now_ms()
        session = ClientSession(session_id, owner, fetch, uses_ids, now_ms, rights_version)
        self._sessions[session_id] = session
        self._note(session, now_ms)
        return session

    def used(self, session: ClientSession) -> bool:
        """A request may have changed its partitions. False: they are too many, or it is over."""
        if self._sessions.pop(session.session_id, None) is None:
            return False
        self._sessions[session.session_id] = session
        more = len(session.fetch.entries) - session.size
        is_room = more <= 0 or self._listed.has_room(user_of(*session.owner), more)
        self._note(session, self._now_ms())
        return is_room

    def closing(self, session: ClientSession) -> Steps[None]:
        """It is over with this call; the steps free its memory."""
        if self._sessions.pop(session.session_id, None) is None:
            return _no_steps()
        self._forget_size(session)
        self._listed.give(user_of(*session.owner), session.size)
        return session.fetch.ending()

    def close(self, session: ClientSession) -> None:
        """It is over."""
        self._release(self.closing(session))

    def _note(self, session: ClientSession, now_ms: int) -> None:
        size = len(session.fetch.entries)
        self._listed.give(user_of(*session.owner), session.size - size)
        is_evictable = now_ms - session.created_ms > EVICTION_MS
        if size != session.size or is_evictable != session.is_evictable:
            self._forget_size(session)
            session.size, session.is_evictable = size, is_evictable
            if is_evictable:
                insort(self._evictable, (size, session.session_id))
        session.used_ms = now_ms

    def _forget_size(self, session: ClientSession) -> None:
        if session.is_evictable:
            del self._evictable[bisect_left(self._evictable, (session.size, session.session_id))]
            session.is_evictable = False

    def _make_room(self, size: int) -> bool:
        """End one that is unused, or one that is no longer new and not larger than the one to come.

        Source: Kafka's FetchSessionCache.tryEvict.
        """
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if self._now_ms() - oldest.used_ms > EVICTION_MS:
            victim = oldest
        elif self._evictable and self._evictable[0] <= (size, 0):
            victim = self._sessions[self._evictable[0][1]]
        else:
            return False
        self.evictions += 1
        self.close(victim)
        return True
