"""Fetch: single ones, and those of sessions (KIP-227)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode
from kafkalite.kafka.apis import Handler
from kafkalite.kafka.fetch_answer import encode_fetched
from kafkalite.kafka.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, ClientSession, FetchSessions
from kafkalite.kafka.request import Request
from kafkalite.model import NO_TOPIC_ID, TopicId, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.replica.client_fetch import ClientFetch, FetchEntry, FetchTerms
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.quotas import Kind

_BY_ID_FROM = 13
#: Older clients know nothing of reading from followers (KIP-392).
_FOLLOWERS_FROM = 11


class _Fetch(NamedTuple):
    """A request that is read when there is memory, and answered when something is new."""

    request: Request
    terms: FetchTerms
    fetch: ClientFetch
    #: It belongs to this session; None: to none yet.
    session: ClientSession | None
    #: Which request of the session it is.
    number: int
    #: The client asks for a session.
    opens_session: bool


class FetchHandlers:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = services.rights.access
        self.sessions = FetchSessions(
            services.config.max_incremental_fetch_session_cache_slots,
            lambda: int(services.clock.monotonic() * 1000),
            services.random.randint,
        )

    def table(self) -> dict[str, Handler]:
        return {"Fetch": self.fetch}

    def fetch(self, request: Request, message: wire.FetchRequest) -> wire.FetchResponse | None:
        owner = (request.principal, request.client_host)
        session = self.sessions.get(message.session_id, owner) if message.session_id else None
        if message.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:  # a request that lists everything ends the session that it names
                self.sessions.close(session)
            session = None
            fetch = ClientFetch(message.isolation_level)
        elif session is None:
            return wire.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        elif session.epoch != message.session_epoch:
            return wire.FetchResponse(error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH))
        elif session.uses_ids is not (request.version >= _BY_ID_FROM):
            return wire.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR))
        else:
            fetch = session.fetch
        fetch.rack, fetch.reads_followers = message.rack_id, request.version >= _FOLLOWERS_FROM
        self._list(fetch, request, message)
        if session is not None:
            if not self._goes_on(session, request, message):
                return wire.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
            if not fetch.entries:  # the client has removed them all
                self.sessions.close(session)
                return wire.FetchResponse()
        self._await_memory(
            _Fetch(
                request,
                FetchTerms(
                    max(0, message.max_wait_ms),
                    message.min_bytes,
                    self._most_bytes(request, message),
                    request.connection.owner,
                ),
                fetch,
                session,
                session.requests if session is not None else 0,
                message.session_epoch == INITIAL_EPOCH and request.version >= 7,
            )
        )
        return None

    def _most_bytes(self, request: Request, message: wire.FetchRequest) -> int:
        most = request.throttle.most_at_once(Kind.FETCH) if request.throttle is not None else None
        size = min(message.max_bytes, self._services.config.fetch_max_bytes)
        return size if most is None else min(size, most)

    # --- what is listed ---

    def _list(self, fetch: ClientFetch, request: Request, message: wire.FetchRequest) -> None:
        """Who names a partition twice gets it once, as from Kafka: a small request could ask for gigabytes."""
        denied = request.denied.topics
        for topic in message.topics:
            topic_id, name = self._named(topic.topic, topic.topic_id, request.version)
            refusal = ErrorCode.NONE
            if name is None:
                refusal = ErrorCode.UNKNOWN_TOPIC_ID
            elif name in denied:
                refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for partition in topic.partitions:
                entry = fetch.list(
                    TopicPartition(name or "", partition.partition),
                    partition.fetch_offset,
                    partition.partition_max_bytes,
                    partition.current_leader_epoch,
                    topic_id,
                )
                if refusal is not entry.refusal:
                    entry.refusal = refusal
                    entry.key = TopicPartition(name or "", partition.partition)

    def _named(self, name: str, wire_id: bytes, version: int) -> tuple[TopicId, str | None]:
        """The id by which a topic is asked for, if it is, and its name; None: nobody knows the id."""
        if version < _BY_ID_FROM:
            return NO_TOPIC_ID, name
        topic_id = topic_ids.from_wire(wire_id)
        return topic_id, self._services.topic_name(topic_id)

    def _goes_on(self, session: ClientSession, request: Request, message: wire.FetchRequest) -> bool:
        """The next request of a session: what it removes, and whether the rest may still be read. False: it is over."""
        fetch = session.fetch
        if fetch.isolation != message.isolation_level:
            fetch.isolation = message.isolation_level
            fetch.ready |= dict.fromkeys(fetch.entries.values())
        for topic in message.forgotten_topics_data:
            name = topic.topic if request.version < _BY_ID_FROM else topic_ids.from_wire(topic.topic_id)
            for number in topic.partitions:
                fetch.forget(name, number)
        if not self.sessions.used(session):
            return False
        session.requests += 1
        if fetch.is_waiting:  # the client does not wait for that answer any more
            fetch.expire()
        self._look_again(session, request)
        return True

    def _look_again(self, session: ClientSession, request: Request) -> None:
        """ACLs have changed since its partitions were listed, or an id that nobody knew may be known now."""
        authorizer = self._access.authorizer
        changes = authorizer.changes if authorizer is not None else 0
        if changes != session.rights_version:
            session.rights_version = changes
            allowed: dict[str, bool] = {}
            for entry in session.fetch.entries.values():
                name = entry.key.topic
                if entry.refusal is ErrorCode.UNKNOWN_TOPIC_ID:
                    continue
                if name not in allowed:
                    allowed[name] = self._access.may(request, Operation.READ, ResourceType.TOPIC, name)
                refusal = ErrorCode.NONE if allowed[name] else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if refusal is not entry.refusal:
                    entry.refusal = refusal
                    session.fetch.ready[entry] = None
        for entry in list(session.fetch.ready) if session.uses_ids else ():
            if entry.refusal is ErrorCode.UNKNOWN_TOPIC_ID:
                self._resolve(entry.topic_id, session, request)

    def _resolve(self, topic_id: TopicId, session: ClientSession, request: Request) -> None:
        name = self._services.topic_name(topic_id)
        if name is None:
            return
        is_allowed = self._access.may(request, Operation.READ, ResourceType.TOPIC, name)
        for entry in session.fetch.entries.values():
            if entry.topic_id == topic_id and entry.refusal is ErrorCode.UNKNOWN_TOPIC_ID:
                entry.key = TopicPartition(name, entry.key.partition)
                entry.refusal = ErrorCode.NONE if is_allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    # --- reading and answering ---

    def _await_memory(self, waiting: _Fetch) -> None:
        waiting.request.connection.listener.answers.when_there_is_some(lambda: self._start(waiting))

    def _start(self, waiting: _Fetch) -> None:
        connection = waiting.request.connection
        if connection.unread_since:
            connection.postpone(lambda: self._await_memory(waiting))
        elif connection.is_closed:
            return
        elif self._is_outdated(waiting):
            self._refuse_outdated(waiting)
        else:
            self._services.partitions.fetch(
                waiting.fetch, waiting.terms, lambda: self._done(waiting), connection.listener.answers.share
            )

    def _is_outdated(self, waiting: _Fetch) -> bool:
        """Whether the session has had another request since, or is over."""
        session = waiting.session
        return session is not None and session.requests != waiting.number

    def _refuse_outdated(self, waiting: _Fetch) -> None:
        waiting.request.respond(wire.FetchResponse(error_code=int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)))

    def _done(self, waiting: _Fetch) -> bool:
        """Answer; whether what was read is in the answer."""
        request, fetch, session = waiting.request, waiting.fetch, waiting.session
        if request.connection.is_closed:
            return False
        if self._is_outdated(waiting):
            self._refuse_outdated(waiting)
            return False
        due = fetch.due()
        if request.throttle is not None and self._is_withheld(request, sum(entry.records_size for entry in due)):
            if session is not None:
                self._respond(request, session.session_id, fetch, ())
                return False
            for entry in due:
                entry.drop_records()
            self._respond(request, NO_SESSION, fetch, due)
            return True
        if session is not None:
            self._respond(request, session.session_id, fetch, due)
            return True
        opened = self._open(request, fetch) if waiting.opens_session else None
        self._respond(request, opened.session_id if opened is not None else NO_SESSION, fetch, due)
        if opened is not None:
            fetch.begin_session()
        return True

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

    def _open(self, request: Request, fetch: ClientFetch) -> ClientSession | None:
        authorizer = self._access.authorizer
        return self.sessions.open(
            fetch,
            (request.principal, request.client_host),
            uses_ids=request.version >= _BY_ID_FROM,
            rights_version=authorizer.changes if authorizer is not None else 0,
        )

    def _respond(self, request: Request, session_id: int, fetch: ClientFetch, due: Collection[FetchEntry]) -> None:
        throttle_ms = request.settled_throttle_ms()
        request.respond_pieces(encode_fetched(request.version, throttle_ms, session_id, due, fetch.isolation))
