"""Fetch: single ones, and those of sessions (KIP-227)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkalite.coordinators.services import Services
from kafkalite.env.loop_times import COUNTED_S
from kafkalite.errors import ErrorCode
from kafkalite.kafka.current_leaders import CurrentLeaders
from kafkalite.kafka.fetch_answer import begin_fetched, encoding_fetched
from kafkalite.kafka.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, ClientSession, FetchSessions
from kafkalite.kafka.kept_fetches import KEPT_FROM, KeptFetches
from kafkalite.kafka.pieces import pieces_of
from kafkalite.kafka.refusals import refuse
from kafkalite.kafka.request import Handler, Request
from kafkalite.model import NO_LEADER_EPOCH, NO_TOPIC_ID, Buffer, LeaderEpoch, TopicId, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.replica.client_fetch import (
    ISOLATION_LEVELS,
    LIGHT_STEP,
    STEP,
    ClientFetch,
    FetchAnswer,
    FetchEntry,
    FetchTerms,
    Steps,
)
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.quotas import Kind

if TYPE_CHECKING:
    from kafkalite.kafka.connection import KafkaConnection

_T = TypeVar("_T")
_BY_ID_FROM = 13
#: Older clients know nothing of reading from followers (KIP-392).
_FOLLOWERS_FROM = 11
_SESSIONS_FROM = 7


class _Fetch:
    """A request that is read when there is memory, and answered when something is new.

    Args:
        session: it belongs to this session; None: to none yet.
        opens_session: the client asks for a session.
        rights: which state of the ACLs its partitions were checked against.
    """

    __slots__ = ("fetch", "number", "opens_session", "request", "rights", "session", "terms")

    def __init__(
        self,
        request: Request,
        terms: FetchTerms,
        fetch: ClientFetch,
        session: ClientSession | None,
        *,
        opens_session: bool,
        rights: int,
    ) -> None:
        self.request = request
        self.terms = terms
        self.fetch = fetch
        self.session = session
        #: Which request of the session it is.
        self.number = session.requests if session is not None else 0
        self.opens_session = opens_session
        self.rights = rights

    @property
    def is_outdated(self) -> bool:
        """Whether the session has had another request since, or is over."""
        session = self.session
        return session is not None and session.requests != self.number

    # --- turns of the loop, and what is held between them ---

    def run(self, steps: Steps[None]) -> None:
        self.run_then(steps, _nothing)

    def run_then(self, steps: Steps[_T], then: Callable[[_T], None]) -> None:
        """`then` gets what the steps return."""
        connection = self.request.connection
        connection.listener.turns.run(connection.owner, steps, then, self._spent)

    def _spent(self, seconds: float) -> None:
        request = self.request
        if request.throttle is not None:
            request.throttle.work_s += seconds
        if seconds > COUNTED_S:
            request.connection.listener.loop_times.held("Fetch", seconds, request.client_id, str(request.principal))
        if request.connection.is_closed and not self.is_outdated:
            self.fetch.interrupt()

    def hold(self, size_bytes: int) -> None:
        self.request.connection.out.hold(size_bytes)


def _nothing(result: None) -> None:
    return


class FetchHandlers:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = services.rights.access
        #: Of sessions that have made room for others: the steps that free their memory.
        self._ended: list[Steps[None]] = []
        #: Of clients without sessions.
        self.kept = KeptFetches(self._rights)
        self.sessions = FetchSessions(
            services.config.max_incremental_fetch_session_cache_slots,
            lambda: int(services.clock.monotonic() * 1000),
            services.random.randint,
            self._ended.append,
        )

    def table(self) -> dict[str, Handler]:
        return {"Fetch": self.fetch}

    def recall(self, connection: KafkaConnection, version: int, body: memoryview) -> wire.FetchRequest | None:
        """See KeptFetches."""
        return self.kept.recall(connection, version, body)

    def fetch(self, request: Request, message: wire.FetchRequest) -> wire.FetchResponse | None:
        waiting = self._begin(request, message)
        if not isinstance(waiting, _Fetch):
            return waiting
        self._list(waiting, request, message)
        self._listed(waiting)
        return None

    def fetch_many(self, request: Request, message: wire.FetchRequest) -> Steps[None]:
        """The same for a request that lists too many partitions for one turn of the loop, in steps. It sends the response."""
        waiting = self._begin(request, message)
        if not isinstance(waiting, _Fetch):
            request.respond(waiting)
            return
        guard = request.connection.listener.guard
        for piece in pieces_of("Fetch", message):
            part = request.part()
            refused = guard.check(part, piece) if guard is not None else None
            if refused is not None:
                request.respond(refused)
                return
            self._list(waiting, part, piece)
            yield
        self._listed(waiting)

    def _begin(self, request: Request, message: wire.FetchRequest) -> _Fetch | wire.FetchResponse:
        """Whether it may go on, in which session. From here on another request of the session makes it an outdated one."""
        if message.isolation_level not in ISOLATION_LEVELS:
            refused: wire.FetchResponse = refuse("Fetch", message, request.version, ErrorCode.UNKNOWN_SERVER_ERROR, "")
            return refused
        owner = (request.principal, request.client_host)
        session = self.sessions.get(message.session_id, owner) if message.session_id else None
        if message.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:  # a request that lists everything ends the session that it names
                self._close(session, request)
            session = None
            fetch = self._kept_or_new(request, message)
        elif session is None:
            return wire.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        elif session.epoch != message.session_epoch:
            return wire.FetchResponse(error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH))
        elif session.uses_ids is not (request.version >= _BY_ID_FROM):
            return wire.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR))
        else:
            fetch = session.fetch
            session.advance()
            fetch.interrupt()
            if fetch.isolation != message.isolation_level:
                fetch.isolation = message.isolation_level
                fetch.ready |= dict.fromkeys(fetch.entries.values())
        fetch.rack, fetch.reads_followers = message.rack_id, request.version >= _FOLLOWERS_FROM
        return _Fetch(
            request,
            FetchTerms(
                max(0, message.max_wait_ms),
                message.min_bytes,
                self._most_bytes(request, message),
                request.connection.owner,
            ),
            fetch,
            session,
            opens_session=message.session_epoch == INITIAL_EPOCH and request.version >= _SESSIONS_FROM,
            rights=self._rights(),
        )

    def _close(self, session: ClientSession, request: Request) -> None:
        connection = request.connection
        connection.listener.turns.run(connection.owner, self.sessions.closing(session), _nothing)

    def _listed(self, waiting: _Fetch) -> None:
        """All that the request lists is known now."""
        request, fetch, session = waiting.request, waiting.fetch, waiting.session
        if session is None:
            if fetch.is_session and fetch.listed != len(fetch.entries):
                waiting.run_then(fetch.forgetting_unlisted(), lambda _: self._taken_up(waiting))
            else:
                self._taken_up(waiting)
            return
        if waiting.is_outdated:
            self._refuse_outdated(waiting)
            return
        if not self.sessions.used(session):
            self._close(session, request)
            request.respond(wire.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)))
            return
        if not fetch.entries:  # the client has removed them all
            self._close(session, request)
            request.respond(wire.FetchResponse())
            return
        if fetch.is_waiting:  # the client does not wait for that answer any more
            fetch.expire()
        waiting.run_then(self._update_refusals(session, request), lambda _: self._await_memory(waiting))

    def _taken_up(self, waiting: _Fetch) -> None:
        """The entries are what the client without a session wants."""
        self.kept.listed(waiting.request.connection, waiting.fetch)
        self._await_memory(waiting)

    def _most_bytes(self, request: Request, message: wire.FetchRequest) -> int:
        most = request.throttle.most_at_once(Kind.FETCH) if request.throttle is not None else None
        size = min(message.max_bytes, self._services.config.fetch_max_bytes)
        return size if most is None else min(size, most)

    # --- what is listed ---

    def _list(self, waiting: _Fetch, request: Request, message: wire.FetchRequest) -> None:
        """A partition that is named twice is returned once, as by Kafka: a small request could ask for gigabytes."""
        fetch = waiting.fetch
        denied = request.denied.topics
        is_stranger = self._is_strange_follower(request, message)
        for topic in message.topics:
            topic_id, name = self._named(topic.topic, topic.topic_id, request.version)
            refusal = ErrorCode.NONE
            if is_stranger:
                refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif name is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_ID
                fetch.has_unknown_topics = True
            elif name in denied:
                refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for partition in topic.partitions:
                entry = fetch.list(
                    TopicPartition(name or "", partition.partition),
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    LeaderEpoch(max(partition.current_leader_epoch, NO_LEADER_EPOCH)),  # FetchRequest.optionalEpoch
                    topic_id,
                    LeaderEpoch(partition.last_fetched_epoch),
                )
                if refusal is not entry.refusal:
                    entry.refusal = refusal
                    entry.key = TopicPartition(name or "", partition.partition)
                    fetch.ready[entry] = None
        if waiting.session is None:
            return
        for forgotten in message.forgotten_topics_data:
            known = forgotten.topic if request.version < _BY_ID_FROM else topic_ids.from_wire(forgotten.topic_id)
            for number in forgotten.partitions:
                fetch.forget(known, number)

    def _is_strange_follower(self, request: Request, message: wire.FetchRequest) -> bool:
        """Whether it fetches as a follower and may not: that is for brokers, whatever else it may read (KafkaApis.handleFetchRequest)."""
        state = message.replica_state
        replica_id = message.replica_id if state is None else max(message.replica_id, state.replica_id)
        return replica_id >= 0 and not self._access.may(request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

    def _named(self, name: str, wire_id: bytes, version: int) -> tuple[TopicId, str | None]:
        """The id in the request, or NO_TOPIC_ID if it has a name; and the topic's name, or None if the id is unknown."""
        if version < _BY_ID_FROM:
            return NO_TOPIC_ID, name
        topic_id = topic_ids.from_wire(wire_id)
        return topic_id, self._services.topic_name(topic_id)

    def _update_refusals(self, session: ClientSession, request: Request) -> Steps[None]:
        """ACLs have changed since its partitions were listed, or an id that nobody knew may be known now."""
        changes, fetch = self._rights(), session.fetch
        refusal_of = self._refusals(request)
        if changes != session.rights_version:
            for number, entry in enumerate(list(fetch.entries.values()), 1):
                if entry.refusal is not ErrorCode.UNKNOWN_TOPIC_ID:
                    refusal = refusal_of(entry.key.topic)
                    if refusal is not entry.refusal:
                        entry.refusal = refusal
                        fetch.ready[entry] = None
                if not number % STEP:
                    yield
            session.rights_version = changes
        if not session.uses_ids:
            return
        # Those are marked as long as nobody knows their ids.
        for number, entry in enumerate(list(fetch.ready), 1):
            if entry.refusal is ErrorCode.UNKNOWN_TOPIC_ID:
                name = self._services.topic_name(entry.topic_id)
                if name is not None:
                    entry.key = TopicPartition(name, entry.key.partition)
                    entry.refusal = refusal_of(name)
            if not number % LIGHT_STEP:
                yield

    def _refusals(self, request: Request) -> Callable[[str], ErrorCode]:
        """Topic -> why the client may not read it now; NONE: it may."""
        known: dict[str, ErrorCode] = {}

        def refusal_of(name: str) -> ErrorCode:
            if name not in known:
                may = self._access.may(request, Operation.READ, ResourceType.TOPIC, name)
                known[name] = ErrorCode.NONE if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return known[name]

        return refusal_of

    def _refuse_again(self, waiting: _Fetch, due: Collection[FetchEntry]) -> Steps[None]:
        """ACLs have changed since the request came, perhaps hours ago: records that the client may not read any more are not sent."""
        refusal_of = self._refusals(waiting.request)
        for number, entry in enumerate(list(due), 1):
            if not entry.refusal and (refusal := refusal_of(entry.key.topic)):
                entry.refusal = refusal
                entry.refuse(int(refusal))
            if not number % STEP:
                yield

    # --- reading and answering ---

    def _await_memory(self, waiting: _Fetch) -> None:
        waiting.request.connection.listener.answers.when_there_is_some(lambda: self._start(waiting))

    def _start(self, waiting: _Fetch) -> None:
        connection = waiting.request.connection
        if connection.out.unread_since:
            connection.out.postpone(lambda: self._await_memory(waiting))
        elif connection.is_closed:
            return
        elif waiting.is_outdated:
            self._refuse_outdated(waiting)
        else:
            waiting.request.abandoned = waiting.fetch.expire
            self._services.partitions.fetch(
                waiting.fetch,
                waiting.terms,
                lambda: self._answering(waiting),
                connection.listener.answers.share,
                waiting,
            )

    def _refuse_outdated(self, waiting: _Fetch) -> None:
        waiting.request.respond(wire.FetchResponse(error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)))

    def _answering(self, waiting: _Fetch) -> Steps[FetchAnswer | None]:
        """Encode what was read; None: it is not in an answer."""
        request, fetch, session = waiting.request, waiting.fetch, waiting.session
        if request.connection.is_closed:
            if session is None:
                yield from fetch.ending()
            return None
        if waiting.is_outdated:
            self._refuse_outdated(waiting)
            return None
        if session is None and not waiting.opens_session and len(fetch.entries) >= KEPT_FROM:
            fetch.lists_all = True
        due = fetch.due()
        if waiting.rights != self._rights():
            yield from self._refuse_again(waiting, due)
        leaders = CurrentLeaders(self._services, request)
        is_withheld = request.throttle is not None and self._is_withheld(
            request, sum(entry.records_size for entry in due)
        )
        if is_withheld:
            if session is not None:
                pieces = yield from encoding_fetched(request.version, (), fetch.isolation, leaders)
                self._send(waiting, pieces, session.session_id)
                return None
            for entry in due:
                entry.drop_records()
        pieces = yield from encoding_fetched(request.version, due, fetch.isolation, leaders)
        if request.connection.is_closed:
            if session is None:
                yield from fetch.ending()
            return None
        if session is None and fetch.lists_all:
            return FetchAnswer(partial(self._send_and_keep, waiting, pieces), opens_session=True)
        if session is not None:
            return FetchAnswer(partial(self._send, waiting, pieces, session.session_id))
        opened = self._open(waiting) if waiting.opens_session and not is_withheld else None
        while self._ended:
            yield from self._ended.pop()
        session_id = opened.session_id if opened is not None else NO_SESSION
        return FetchAnswer(partial(self._send, waiting, pieces, session_id), opened is not None)

    def _send_and_keep(self, waiting: _Fetch, pieces: list[Buffer]) -> None:
        connection, fetch = waiting.request.connection, waiting.fetch
        self._send(waiting, pieces, NO_SESSION)
        if not self.kept.keep(connection, waiting.request.version, fetch):
            waiting.run(fetch.ending())

    def _kept_or_new(self, request: Request, message: wire.FetchRequest) -> ClientFetch:
        """The last fetch of the connection, of which only what has changed needs to be read; or a new one."""
        connection = request.connection
        if self.kept.is_free(connection):
            if message.session_epoch != INITIAL_EPOCH or request.version < _SESSIONS_FROM:
                fetch = self.kept.take(connection, request.version, message)
                if fetch is not None:
                    return fetch
            self.connection_closed(connection)
        return ClientFetch(message.isolation_level)

    def _rights(self) -> int:
        """Grows with every change of the rights."""
        authorizer = self._access.authorizer
        return authorizer.changes if authorizer is not None else 0

    def connection_closed(self, connection: KafkaConnection) -> None:
        """Nobody will use what is kept for it."""
        fetch = self.kept.drop(connection)
        if fetch is not None:
            connection.listener.turns.run(connection.owner, fetch.ending(), _nothing)

    def _send(self, waiting: _Fetch, pieces: list[Buffer], session_id: int) -> None:
        request = waiting.request
        if request.connection.is_closed:
            return
        if waiting.is_outdated:
            self._refuse_outdated(waiting)
            return
        begin_fetched(pieces, request.version, request.settled_throttle_ms(), session_id)
        request.respond_pieces(pieces)

    def _is_withheld(self, request: Request, size: int) -> bool:
        """Nothing now, the same again after the wait (KIP-219): so nothing was used up either. One batch that is more than
        the quota of all windows is given all the same, or it would never be."""
        throttle = request.throttle
        if throttle is None or not size:
            return False
        most = throttle.most_at_once(Kind.FETCH)
        if throttle.count(Kind.FETCH, size) and most is not None and size <= most:
            throttle.take_back(Kind.FETCH, size)
            return True
        return False

    def _open(self, waiting: _Fetch) -> ClientSession | None:
        request = waiting.request
        return self.sessions.open(
            waiting.fetch,
            (request.principal, request.client_host),
            uses_ids=request.version >= _BY_ID_FROM,
            rights_version=waiting.rights,
        )
