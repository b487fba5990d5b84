"""Share sessions (KIP-932): which partitions a member of a share group fetches from this node.

A session belongs to a connection: when that ends, so does the session, and what the member held is free. None is ended
for another one: then the new member is refused. One user's sessions do not keep those of others out (`security.fair_room`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka.connection import KafkaConnection
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicId
from kafkalite.replica.client_fetch import ClientFetch, Steps
from kafkalite.security.fair_room import FairRoom, user_of

#: Partitions in all sessions together, as for fetch sessions: anybody may list what does not exist.
MAX_PARTITIONS = 500_000
#: Of one session: each of its fetches looks all of them up, in one turn of the loop. Those that do not exist have no other limit.
MAX_OF_ONE = 5_000
#: The epochs of the requests that open and close a session.
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_HIGHEST = 2**31 - 1

#: (topic id, partition)
Listed = tuple[TopicId, int]


@dataclass(slots=True, eq=False)
class ShareSession:
    group_id: str
    member: str
    connection: KafkaConnection
    #: Listed partition -> the error it was answered with last. The one that is first is read first.
    partitions: dict[Listed, int]
    #: Who opened it: see `security.fair_room.user_of`.
    user: str
    #: Of the next request.
    epoch: int = 1
    #: Counts requests: an older one than the last gets no records any more.
    requests: int = 0
    #: The long poll that is under way.
    waiting: ClientFetch | None = None

    def next(self) -> None:
        """A request has come."""
        self.epoch = 1 if self.epoch == _HIGHEST else self.epoch + 1
        self.requests += 1
        if self.waiting is not None:
            self.waiting.expire()


class LeftPartition(Protocol):
    def __call__(self, session: ShareSession, listed: Listed, *, is_over: bool) -> None: ...


class ShareSessions:
    """One per node.

    Args:
        slots: how many one user may have (group.share.max.share.sessions).
        on_left: a session does not fetch a partition any more; whether because the session is over. Otherwise its member
            may still acknowledge what it holds there.
    """

    def __init__(self, slots: Callable[[], int], on_left: LeftPartition) -> None:
        self._slots = FairRoom(slots)
        self._listed = FairRoom(lambda: MAX_PARTITIONS)
        self._on_left = on_left
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of: dict[KafkaConnection, dict[ShareSession, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member: str) -> ShareSession | None:
        return self._sessions.get((group_id, member))

    def open(self, group_id: str, member: str, connection: KafkaConnection) -> ShareSession | None:
        """A new one, in place of the member's old one; None if there are too many."""
        old = self.get(group_id, member)
        if old is not None:
            # Over the same connection it has got every answer: as with Kafka it may still acknowledge what it holds.
            self.close(old, is_over=old.connection is not connection)
        user = user_of(connection.principal, connection.peer_host)
        if not self._listed.has_room(user) or not self._slots.take(user):
            return None
        session = ShareSession(group_id, member, connection, {}, user)
        self._sessions[group_id, member] = session
        self._of.setdefault(connection, {})[session] = None
        return session

    def used_by(self, session: ShareSession, connection: KafkaConnection) -> None:
        """The member's requests come over this connection now."""
        if session.connection is not connection:
            self._disconnect(session)
            session.connection = connection
            self._of.setdefault(connection, {})[session] = None

    def list(self, session: ShareSession, listed: Listed) -> None:
        """The member fetches a partition from now on. More than the node can list are passed over.

        Raises ApiError INVALID_REQUEST: the session lists too many.
        """
        if listed in session.partitions:
            return
        if len(session.partitions) >= MAX_OF_ONE:
            raise api_error(
                ErrorCode.INVALID_REQUEST, f"a share session lists {MAX_OF_ONE} partitions of a node at most"
            )
        if self._listed.take(session.user):
            session.partitions[listed] = 0

    def forget(self, session: ShareSession, listed: Listed, *, is_over: bool = False) -> None:
        """It does not any more."""
        if session.partitions.pop(listed, None) is not None:
            self._listed.give(session.user)
            self._on_left(session, listed, is_over=is_over)

    def close(self, session: ShareSession, *, is_over: bool = True) -> None:
        """It ends; `is_over`: its member has gone, too."""
        if self._sessions.get((session.group_id, session.member)) is not session:
            return
        del self._sessions[session.group_id, session.member]
        self._slots.give(session.user)
        self._disconnect(session)
        session.requests += 1
        for listed in list(session.partitions):
            self.forget(session, listed, is_over=is_over)
        if session.waiting is not None:
            session.waiting.expire()

    def connection_closed(self, connection: KafkaConnection) -> Steps[None]:
        """So are its sessions, one in each step, but for those that have gone over to another connection meanwhile."""
        for session in list(self._of.get(connection, ())):
            if session.connection is connection:
                self.close(session)
            yield

    def _disconnect(self, session: ShareSession) -> None:
        sessions = self._of.get(session.connection)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del self._of[session.connection]
