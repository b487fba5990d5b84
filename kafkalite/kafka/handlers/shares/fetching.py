"""ShareFetch and ShareAcknowledge (KIP-932): sessions, acknowledgements, records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.coordinators.groups.decisions.share.heartbeats import MAX_MEMBER_ID
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.leading import SharedPartitions
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.features import SHARE_FEATURE
from kafkalite.kafka.connection import KafkaConnection
from kafkalite.kafka.current_leaders import MOVED, CurrentLeaders
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.shares.answers import acknowledged
from kafkalite.kafka.shares.fetch import Delivered, ShareFetch, ShareTerms
from kafkalite.kafka.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, Listed, ShareSession, ShareSessions
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.model import NO_LEADER, NO_LEADER_EPOCH, TopicId, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.quotas import Kind

if TYPE_CHECKING:
    from kafkalite.kafka.shares.answers import Batches

    _Message = wire.ShareFetchRequest | wire.ShareAcknowledgeRequest

_RECORD_LIMIT = 1
_Result = asyncio.Future[ErrorCode] | ErrorCode

#: Nobody is known to lead.
_NO_LEADER = (int(NO_LEADER), int(NO_LEADER_EPOCH))


class _Waiting(NamedTuple):
    """A ShareFetch that is read when there is memory. It may wait for long, so it does not keep its message, which may be large."""

    request: Request
    terms: ShareTerms
    session: ShareSession
    #: Which request of the session it is, and whether it is the first one.
    number: int
    is_first: bool
    results: dict[Listed, _Result]


class ShareHandlers:
    """See the module."""

    def __init__(self, services: Services, shares: SharedPartitions) -> None:
        self._services = services
        self._shares = shares
        self._access = services.rights.access
        self.sessions = ShareSessions(lambda: services.config.group_share_max_share_sessions, self._left)

    def table(self) -> dict[str, Handler]:
        return {"ShareFetch": self.fetch, "ShareAcknowledge": self.acknowledge}

    def connection_closed(self, connection: KafkaConnection) -> None:
        """Its members have no session any more."""
        connection.listener.turns.run(connection.owner, self.sessions.connection_closed(connection), lambda _: None)

    def _left(self, session: ShareSession, listed: Listed, *, is_over: bool) -> None:
        self._shares.leave(session.group_id, *listed, session.member, is_over=is_over)

    # --- ShareFetch ---

    def fetch(self, request: Request, message: wire.ShareFetchRequest) -> Steps[wire.ShareFetchResponse | None]:
        try:
            group_id, member = self._check(message)
            if message.is_renew_ack and (
                message.max_wait_ms or message.min_bytes or message.max_bytes or message.max_records
            ):
                raise api_error(ErrorCode.INVALID_REQUEST, "a fetch that renews locks must not ask for records")
            session = self._session(group_id, member, request, message)
            results = yield from self._acknowledge(session, request, message)
            yield from self._list(session, message)
            self._check_open(session)
        except ApiError as error:
            return wire.ShareFetchResponse(error_code=int(error.code), error_message=str(error) or None)
        is_first = message.share_session_epoch == INITIAL_EPOCH
        terms = ShareTerms(
            max(0, message.max_wait_ms),
            message.min_bytes,
            min(message.max_bytes, self._services.config.fetch_max_bytes),
            message.max_records,
            message.batch_size,
            message.share_acquire_mode == _RECORD_LIMIT,
            request.connection.owner,
        )
        waiting = _Waiting(request, terms, session, session.requests, is_first, results)
        if message.share_session_epoch == FINAL_EPOCH:
            self.sessions.close(session)
        elif message.max_records > 0 and message.max_bytes > 0 and session.partitions:
            self._await_memory(waiting)
            return None
        self._answer(waiting, {}, {})
        return None

    def _await_memory(self, waiting: _Waiting) -> None:
        waiting.request.connection.listener.answers.when_there_is_some(lambda: self._start(waiting))

    def _start(self, waiting: _Waiting) -> None:
        request, terms, session = waiting.request, waiting.terms, waiting.session
        connection = request.connection
        if connection.out.unread_since:
            connection.out.postpone(lambda: self._await_memory(waiting))
            return
        if connection.is_closed:
            return
        settings = self._shares.settings(session.group_id)
        most = request.throttle.most_at_once(Kind.FETCH) if request.throttle is not None else None
        if most is not None:
            terms = terms._replace(max_bytes=min(terms.max_bytes, most))
        ShareFetch(
            self._shares,
            self._services.partitions,
            session,
            settings,
            terms,
            lambda: self._refused(session, request),
            room=connection.listener.answers.share,
            may_send=lambda size: self._may_send(request, size),
            is_over=lambda: connection.is_closed,
            is_outdated=lambda: session.requests != waiting.number,
            done=lambda delivered, errors: self._answer(waiting, delivered, errors),
        ).start()

    def _may_send(self, request: Request, size: int) -> bool:
        """Whether the client's quota allows it. One batch that is more than the quota of all windows is given all the same."""
        throttle = request.throttle
        if throttle is None:
            return True
        most = throttle.most_at_once(Kind.FETCH)
        if throttle.count(Kind.FETCH, size) and most is not None and size <= most:
            throttle.take_back(Kind.FETCH, size)
            return False
        return True

    def _refused(self, session: ShareSession, request: Request) -> dict[Listed, ErrorCode]:
        """The partitions of the session that the client may not read, or no longer, and why."""
        if self._access.authorizer is None:
            return {}
        allowed: dict[TopicId, bool] = {}
        for topic_id, _ in session.partitions:
            if topic_id not in allowed:
                name = self._services.topic_name(topic_id)
                allowed[topic_id] = name is None or self._access.may(request, Operation.READ, ResourceType.TOPIC, name)
        return {listed: ErrorCode.TOPIC_AUTHORIZATION_FAILED for listed in session.partitions if not allowed[listed[0]]}

    # --- ShareAcknowledge ---

    def acknowledge(
        self, request: Request, message: wire.ShareAcknowledgeRequest
    ) -> Steps[wire.ShareAcknowledgeResponse | None]:
        try:
            group_id, member = self._check(message)
            session = self._session(group_id, member, request, message)
            results = yield from self._acknowledge(session, request, message)
            self._check_open(session)
        except ApiError as error:
            return wire.ShareAcknowledgeResponse(error_code=int(error.code), error_message=str(error) or None)
        if message.share_session_epoch == FINAL_EPOCH:
            self.sessions.close(session)

        def respond(codes: dict[Listed, ErrorCode]) -> None:
            request.respond(self._acknowledged(request, codes, self._lock_ms(group_id)))

        self._when_stored(request, results, respond)
        return None

    def _acknowledged(
        self, request: Request, codes: dict[Listed, ErrorCode], lock_ms: int
    ) -> wire.ShareAcknowledgeResponse:
        response = wire.ShareAcknowledgeResponse
        leaders = CurrentLeaders(self._services, request)
        topics: dict[TopicId, list[wire.ShareAcknowledgeResponse.PartitionData]] = {}
        for listed, code in codes.items():
            leader = self._leader(leaders, listed) if code in MOVED else _NO_LEADER
            topics.setdefault(listed[0], []).append(
                response.PartitionData(listed[1], int(code), None, response.LeaderIdAndEpoch(*leader))
            )
        return response(
            responses=[
                response.ShareAcknowledgeTopicResponse(topic_ids.to_wire(topic_id), partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[response.NodeEndpoint(*endpoint) for endpoint in leaders.endpoints()],
            acquisition_lock_timeout_ms=lock_ms,
        )

    # --- both ---

    def _leader(self, leaders: CurrentLeaders, listed: Listed) -> tuple[int, int]:
        name = self._services.topic_name(listed[0])
        found = leaders.of(TopicPartition(name, listed[1])) if name is not None else None
        return _NO_LEADER if found is None else (found.broker_id, found.leader_epoch)

    def _check(self, message: _Message) -> tuple[str, str]:
        """The group and the member. Raises ApiError."""
        if not self._services.feature_level(SHARE_FEATURE):
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{SHARE_FEATURE} is 0: share groups are off")
        if not message.group_id:
            raise api_error(ErrorCode.INVALID_GROUP_ID)
        if not message.member_id or len(message.member_id) > MAX_MEMBER_ID:
            raise api_error(ErrorCode.INVALID_REQUEST, "a member id is a UUID in text")
        return message.group_id, message.member_id

    def _lock_ms(self, group_id: str) -> int:
        return self._shares.settings(group_id).limits.lock_ms

    def _session(self, group_id: str, member: str, request: Request, message: _Message) -> ShareSession:
        """The session in which the request comes. Raises ApiError."""
        epoch = message.share_session_epoch
        if epoch == INITIAL_EPOCH:
            if isinstance(message, wire.ShareAcknowledgeRequest):
                raise api_error(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            if any(partition.acknowledgement_batches for topic in message.topics for partition in topic.partitions):
                raise api_error(ErrorCode.INVALID_REQUEST, "the first fetch of a session has nothing to acknowledge")
            opened = self.sessions.open(group_id, member, request.connection)
            if opened is None:
                raise api_error(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            return opened
        session = self.sessions.get(group_id, member)
        if session is None:
            raise api_error(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise api_error(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        self.sessions.used_by(session, request.connection)
        session.next()
        return session

    def _check_open(self, session: ShareSession) -> None:
        """Raises ApiError: it has ended while something of it was done in steps."""
        if self.sessions.get(session.group_id, session.member) is not session:
            raise api_error(ErrorCode.SHARE_SESSION_NOT_FOUND)

    def _list(self, session: ShareSession, message: wire.ShareFetchRequest) -> Steps[None]:
        """What the session fetches from now on. Raises ApiError INVALID_REQUEST, SHARE_SESSION_NOT_FOUND."""
        self._check_open(session)
        if message.share_session_epoch != FINAL_EPOCH:
            for topic in message.topics:
                topic_id = topic_ids.from_wire(topic.topic_id)
                for number, partition in enumerate(topic.partitions, 1):
                    self.sessions.list(session, (topic_id, partition.partition_index))
                    if not number % STEP:
                        yield
                        self._check_open(session)
        for forgotten in message.forgotten_topics_data:
            topic_id = topic_ids.from_wire(forgotten.topic_id)
            for count, number in enumerate(forgotten.partitions, 1):
                self.sessions.forget(session, (topic_id, number))
                if not count % STEP:
                    yield
                    self._check_open(session)

    def _acknowledge(self, session: ShareSession, request: Request, message: _Message) -> Steps[dict[Listed, _Result]]:
        """Partition -> the outcome of its acknowledgements, or what it will be. What is said of one partition counts as a whole."""
        results: dict[Listed, _Result] = {}
        may_renew = self._shares.settings(session.group_id).may_renew
        elements = 0
        for topic_id, number, batches in _acknowledged_in(message):
            elements += 1 + sum(len(batch.acknowledge_types) for batch in batches)
            if elements > STEP:
                yield
                elements = 0
            if not batches and isinstance(message, wire.ShareFetchRequest):
                continue
            try:
                name = self._services.topic_name(topic_id)
                if name is None:
                    raise api_error(ErrorCode.UNKNOWN_TOPIC_ID)
                if name in request.denied.topics:
                    raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                said = yield from acknowledged(batches, is_renewing=message.is_renew_ack)
                led = self._shares.known(session.group_id, topic_id, number)
                if led is None:
                    self._shares.check(topic_id, number)
                    raise api_error(ErrorCode.INVALID_RECORD_STATE, "no record of this partition is delivered")
            except ApiError as error:
                results[topic_id, number] = error.code
                continue
            results[topic_id, number] = led.acknowledge(session.member, said, may_renew=may_renew)
        return results

    def _when_stored(
        self, request: Request, results: dict[Listed, _Result], respond: Callable[[dict[Listed, ErrorCode]], None]
    ) -> None:
        """Call `respond` when all outcomes are known."""
        pending = [result for result in results.values() if isinstance(result, asyncio.Future)]

        def codes() -> dict[Listed, ErrorCode]:
            return {
                listed: result.result() if isinstance(result, asyncio.Future) else result
                for listed, result in results.items()
            }

        if all(result.done() for result in pending):
            respond(codes())
            return

        async def wait() -> None:
            for result in pending:
                await result
            if not request.connection.is_closed:
                respond(codes())

        self._services.supervisor.spawn("shares.answer", wait(), Policy.ISOLATED)

    def _answer(self, waiting: _Waiting, delivered: dict[Listed, Delivered], errors: dict[Listed, ErrorCode]) -> None:
        request = waiting.request
        if request.connection.is_closed:
            return

        def respond(codes: dict[Listed, ErrorCode]) -> None:
            request.respond(self._fetched(waiting, delivered, errors, codes))

        self._when_stored(request, waiting.results, respond)

    def _fetched(
        self,
        waiting: _Waiting,
        delivered: dict[Listed, Delivered],
        errors: dict[Listed, ErrorCode],
        codes: dict[Listed, ErrorCode],
    ) -> wire.ShareFetchResponse:
        response = wire.ShareFetchResponse
        leaders = CurrentLeaders(self._services, waiting.request)
        topics: dict[TopicId, list[wire.ShareFetchResponse.PartitionData]] = {}
        # The first answer of a session lists all its partitions, as in Kafka.
        asked = waiting.session.partitions if waiting.is_first else ()
        for listed in dict.fromkeys((*delivered, *errors, *codes, *asked)):
            got = delivered.get(listed)
            is_moved = errors.get(listed) in MOVED or codes.get(listed) in MOVED
            leader = self._leader(leaders, listed) if is_moved else _NO_LEADER
            topics.setdefault(listed[0], []).append(
                response.PartitionData(
                    listed[1],
                    int(errors.get(listed, ErrorCode.NONE)),
                    None,
                    int(codes.get(listed, ErrorCode.NONE)),
                    None,
                    response.LeaderIdAndEpoch(*leader),
                    got.records if got is not None else b"",
                    [response.AcquiredRecords(*each) for each in got.acquired] if got is not None else [],
                )
            )
        return response(
            responses=[
                response.ShareFetchableTopicResponse(topic_ids.to_wire(topic_id), partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[response.NodeEndpoint(*endpoint) for endpoint in leaders.endpoints()],
            acquisition_lock_timeout_ms=self._lock_ms(waiting.session.group_id),
        )


def _acknowledged_in(message: _Message) -> Iterable[tuple[TopicId, int, Batches]]:
    for topic in message.topics:
        topic_id = topic_ids.from_wire(topic.topic_id)
        partitions: Sequence[
            wire.ShareFetchRequest.FetchPartition | wire.ShareAcknowledgeRequest.AcknowledgePartition
        ] = topic.partitions
        for partition in partitions:
            yield topic_id, partition.partition_index, partition.acknowledgement_batches
