"""The Kafka listener: accepts connections, hands requests to handlers, and keeps the limits that all connections share.

Limits (keys of the configuration): connections (`max.connections`, `max.connections.per.ip`), bytes per request (`socket.request.max.bytes`),
requests under way per connection (`max.inflight.requests.per.connection`), memory of half received requests in all
(`queued.max.request.bytes`), idle time (`connections.max.idle.ms`).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from kafkalite.config import inter_broker_listener, max_connections
from kafkalite.coordination.coordinator import CoordinatorError, refusal_of
from kafkalite.coordination.patience import waiting_at_most
from kafkalite.coordinators.services import Services
from kafkalite.env import heap
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.seams import Listener
from kafkalite.env.streams import hung_up
from kafkalite.env.supervisor import Policy
from kafkalite.env.turns import Rush, Slices, Turns
from kafkalite.errors import ApiError, AuthenticationFailed, ErrorCode
from kafkalite.kafka import large_requests, stepped
from kafkalite.kafka.answers import AnswerMemory
from kafkalite.kafka.apis import refusal
from kafkalite.kafka.connection import API_VERSIONS, KafkaConnection
from kafkalite.kafka.guard import Guard
from kafkalite.kafka.request import OfferedApi, Request
from kafkalite.kafka.request_memory import FrameMemory
from kafkalite.kafka.throttle_accounting import EXEMPT, ThrottleAccounting
from kafkalite.kafka.tracing import Tracer
from kafkalite.model import Endpoint
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from kafkalite.telemetry.counters import Requests
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity

_log = get_logger(__name__)

#: The buffer that idle connections share; what one read can bring in.
SHARED_BYTES = 512 * 1024
#: A frame that is not complete after this long is given up (seconds): slow senders hold memory.
FRAME_DEADLINE_S = 60.0
_SWEEP_S = 1.0
#: Connections that a sweep ends because max.connections was lowered.
_ENDED_AT_ONCE = 1_000
#: Large requests under way at once: each may take some 100 MB while it is decoded.
_LARGE_REQUESTS = 4
#: Threads that decompress for clients: one bomb inflates while somebody else's batch is looked at.
_EXECUTOR_THREADS = 2
#: The largest frame of a connection that has yet to authenticate.
MAX_STRANGERS_BYTES = 64 * 1024


class KafkaListener:
    """See the module. `start` for each listener by name: they share limits and memory. `close` ends all connections."""

    def __init__(self, services: Services, apis: Mapping[int, OfferedApi]) -> None:
        config = services.config
        self.services = services
        #: By the name of the listener.
        self.security = services.security
        self.apis: dict[int, OfferedApi] = dict(apis)
        self.max_request_bytes = config.socket_request_max_bytes
        self.max_in_flight = config.max_inflight_requests_per_connection
        self.shared_bytes = SHARED_BYTES
        self.shared_view = memoryview(bytearray(SHARED_BYTES))
        self.quotas = services.rights.quotas
        access = services.rights.access
        #: None: everybody may do everything.
        self.guard = Guard(services, access) if access.authorizer is not None else None
        self._per_ip = services.rights.connection_limits(lambda: services.config.max_connection_creation_rate)
        self.connections: dict[KafkaConnection, None] = {}
        #: By listener: how many there are, and those of them that have yet to log in, the oldest first.
        self._counts: Counter[str] = Counter()
        self._unauthenticated: defaultdict[str, dict[KafkaConnection, None]] = defaultdict(dict)
        self._for_nodes = inter_broker_listener(config).name
        self.monotonic = services.clock.monotonic
        self.loop_times = services.loop_times
        self._repeats = Repeats(services.clock.monotonic)
        self.requests = Requests()
        self.tracer = Tracer(services)
        #: Of half received requests.
        self.memory = FrameMemory(config.queued_max_request_bytes, lambda: self._is_closing)
        #: Answers have as much again.
        self.answers = AnswerMemory(
            config.queued_max_request_bytes, lambda call: asyncio.get_running_loop().call_soon(call)
        )
        #: Work that a client's request causes and that takes long: decompression, hashing of passwords.
        self.executor = FairExecutor(services.run_blocking, services.clock, at_once=_EXECUTOR_THREADS)
        #: Requests and responses that take more than one turn of the loop, and how many of the requests are under way.
        self.turns = Turns(services.clock.monotonic)
        #: The requests that arrive in one turn of the loop.
        self.rush = Rush(services.clock.monotonic)
        self.large = FairExecutor(services.run_blocking, services.clock, at_once=_LARGE_REQUESTS)
        #: The same for those that wait for nobody but the loop: fetches must not wait behind requests that create topics.
        self.listings = FairExecutor(services.run_blocking, services.clock, at_once=_LARGE_REQUESTS)
        #: Called with each connection that has ended.
        self.on_closed: list[Callable[[KafkaConnection], None]] = []
        self._bound: list[Listener] = []
        self._is_closing = False

    async def start(self, name: str, host: str, port: int) -> Endpoint:
        """Bind the listener of this name, and serve. Raises OSError."""
        security = self.security.get(name)
        bound = await self.services.network.listen_protocol(
            host, port, lambda: KafkaConnection(self, name), security.tls if security is not None else None
        )
        if not self._bound:
            self.services.supervisor.spawn("kafka.sweep", self._sweep())
        self._bound.append(bound)
        return Endpoint(bound.host, bound.port)

    async def close(self) -> None:
        """Accept no more, and close every connection after what is answered was written."""
        self._is_closing = True
        for bound in self._bound:
            await bound.close()
        for connection in list(self.connections):
            connection.close()

    def credentials_changed(self, user: str) -> None:
        """End the connections that have logged in with a credential of `user` that is gone, or another one now."""
        for connection in list(self.connections):
            login, security = connection.login, self.security.get(connection.listener_name)
            if login is None or security is None or login.principal.name != user:
                continue
            if not security.holds(login):
                connection.retire(f"the credential of {login.principal} was changed or deleted")

    def token_gone(self, token_id: str) -> None:
        """End the connections that have logged in with this delegation token."""
        for connection in list(self.connections):
            login = connection.login
            if login is not None and login.token_id == token_id:
                connection.retire(f"a delegation token of {login.principal} has ended")

    def now(self) -> float:
        return self.services.clock.monotonic()

    def warn(self, event: str, connection: KafkaConnection, reason: str, **details: object) -> None:
        """One line about a connection; many similar ones from one host are suppressed."""
        suppressed = self._repeats.admit((event, reason, connection.peer_host))
        if suppressed is not None:
            _log.warning(event, reason=reason, peer=connection.peer, **details, suppressed=suppressed)

    # --- connections ---

    def opened(self, connection: KafkaConnection, transport: asyncio.BaseTransport) -> bool:
        """A connection was accepted; False: there are too many, or its certificate is nobody's."""
        name = connection.listener_name
        config = self.services.config
        is_listener_full = self._counts[name] >= max_connections(config, name)
        is_full = is_listener_full or len(self.connections) >= config.max_connections
        replaced = self._replaceable(name, elsewhere=not is_listener_full) if is_full else None
        if self._is_closing or (is_full and replaced is None):
            self.warn("kafka.connection_refused", connection, "max.connections")
            return False
        if not self._per_ip.opened(connection.peer_host):
            self.warn("kafka.connection_refused", connection, "max.connections.per.ip")
            return False
        if replaced is not None:
            self._unauthenticated[replaced.listener_name].pop(replaced, None)
            replaced.refuse("max.connections", "replaced by a newer connection", at_once=True)
        connection.last_active = self.now()
        security = self.security.get(connection.listener_name)
        if security is not None and not self._identify(connection, security, transport):
            self._per_ip.closed(connection.peer_host)
            return False
        self.connections[connection] = None
        self._counts[name] += 1
        if connection.is_unauthenticated:
            self._unauthenticated[name][connection] = None
        return True

    def _replaceable(self, name: str, *, elsewhere: bool) -> KafkaConnection | None:
        """The connection that a new one replaces; None: there is none. `elsewhere`: it may be on another listener.

        Peers that come back whenever they are closed must not keep users out, so it is the oldest that has yet to log in.
        Clients must not keep nodes out: for a node it is the client of another listener that was silent for longest (KIP-402).
        """
        for each in (name, *self._unauthenticated) if elsewhere else (name,):
            if self._unauthenticated[each]:
                return next(iter(self._unauthenticated[each]))
        if not elsewhere or name != self._for_nodes:
            return None
        clients = (each for each in self.connections if each.listener_name != name and not each.is_closed)
        return min(clients, key=lambda each: each.last_active, default=None)

    def admitted(self, connection: KafkaConnection) -> None:
        """It has logged in."""
        self._unauthenticated[connection.listener_name].pop(connection, None)

    def _identify(
        self, connection: KafkaConnection, security: ListenerSecurity, transport: asyncio.BaseTransport
    ) -> bool:
        """The client's principal, as its certificate says; on a SASL listener the client has to log in."""
        if not security.uses_sasl:
            try:
                connection.principal = security.certified(transport.get_extra_info("ssl_object"))
            except AuthenticationFailed as error:
                security.refused(connection.peer, str(error))
                return False
            return True
        from kafkalite.kafka.authentication import ConnectionAuthenticator  # loaded only where SASL is used

        supervisor = self.services.supervisor
        connection.authenticator = ConnectionAuthenticator(
            connection,
            security,
            spawn=lambda name, work: supervisor.spawn(name, work, Policy.ISOLATED),
            share=self.services.random.random(),
        )
        if not security.is_optional:
            connection.max_request_bytes = min(self.max_request_bytes, MAX_STRANGERS_BYTES)
        return True

    def closed(self, connection: KafkaConnection) -> None:
        """A connection is lost, or was not taken."""
        if self.connections.pop(connection, self) is None:
            self._per_ip.closed(connection.peer_host)
            self._counts[connection.listener_name] -= 1
            self._unauthenticated[connection.listener_name].pop(connection, None)
        for call in self.on_closed:
            call(connection)

    def _end_excess(self) -> None:
        """After max.connections was lowered: the clients that were silent for the longest time leave, those of nodes stay (KIP-402)."""
        most = self.services.config.max_connections
        if len(self.connections) <= most:
            return
        is_protected = len(self._bound) > 1  # else clients and nodes come to the same listener
        staying = [each for each in self.connections if not each.is_closed]
        clients = [each for each in staying if not (is_protected and each.listener_name == self._for_nodes)]
        excess = min(len(staying) - most, _ENDED_AT_ONCE)
        for connection in heapq.nsmallest(excess, clients, key=lambda each: each.last_active):
            connection.retire("max.connections was lowered")

    def _end_the_gone(self) -> None:
        """Nobody reads from a connection that is muted or has a long request, so nobody sees its end: clients that come and go would use all
        connections up, and the node would work for them."""
        unwatched = {id(each.transport): each for each in self.connections if each.is_unwatched}
        transports = [each.transport for each in unwatched.values() if each.transport is not None]
        for gone in hung_up(transports):
            unwatched[id(gone)].abort()

    async def _sweep(self) -> None:
        """Close what is idle for too long, and what sends a request too slowly."""
        idle_s = self.services.config.connections_max_idle_ms / 1000
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self.now()
            self.memory.evict(now)
            if self.answers.has_emptied():
                heap.give_back()
            for connection in self.answers.to_be_closed(self.connections, now):
                connection.refuse(
                    "answer.unread", "the client did not read a response while others waited for memory", at_once=True
                )
            self._end_the_gone()
            self._end_excess()
            for connection in list(self.connections):
                if connection.is_closed:
                    continue  # it ends when its peer has read everything, or soon (streams.close_when_written)
                if connection.is_muted:
                    continue  # its client sends nothing for now, or is not read
                if connection.frame_began and now - connection.frame_began > FRAME_DEADLINE_S:
                    connection.refuse("frame.slow", f"a request was not complete after {FRAME_DEADLINE_S:.0f} s")
                elif connection.authenticator is not None and connection.authenticator.is_late(now):
                    connection.refuse("authentication.slow", "no authentication before the deadline")
                elif now - connection.last_active < _SWEEP_S:
                    continue
                elif now - connection.last_active > idle_s and not connection.is_busy:
                    connection.close()
                else:
                    connection.relax()

    # --- requests ---

    def unsupported_api_versions(self) -> bytes:
        """The body that answers a version of ApiVersions that is not known here: version 0 of it (KIP-511)."""
        api = self.apis[API_VERSIONS]
        entry = wire.ApiVersionsResponse.ApiVersion(API_VERSIONS, api.versions.start, api.versions.stop - 1)
        return encode(wire.ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[entry]), 0)

    def handle(self, request: Request, message: Any, checked: large_requests.Checked | None = None) -> None:
        """Start one request. Handlers are called in arrival order; those that wait go on as tasks. `checked`: what the guard has said of it."""
        api = request.api
        assert api is not None
        if request.version not in api.served_versions:
            if not self._ended(request, message):
                request.respond(refusal(api, message, request.version, ErrorCode.UNSUPPORTED_VERSION, ""))
            return
        request.began = self.monotonic()
        if self.tracer.watchers:
            self.tracer.began(request, message)
        if self.quotas.is_active:
            self._meter(request)
        try:
            result = self._call(api, request, message, checked)
            if type(result) is GeneratorType:  # it works in steps, and answers later
                stepped.answer(request, message, result)
                result = None
        except ApiError as error:
            if not self._ended(request, message):
                request.respond(refusal(api, message, request.version, error.code, str(error)))
            return
        if request.throttle is not None and (wait_ms := request.throttle.started()):
            request.connection.mute(wait_ms)
        if request.is_answered:
            return  # `timed` has counted it
        request.returned = self.monotonic()
        if result is None:
            return
        if type(result) is CoroutineType:
            self.services.supervisor.spawn(f"kafka.{api.name}", self._finish(request, message, result), Policy.ISOLATED)
        else:
            request.respond(result)

    def handle_large(self, request: Request, body: bytes) -> None:
        """A request with too many elements for one turn of the loop. The connection starts no other one before it is answered."""
        request.began = self.monotonic()
        if self.quotas.is_active:
            self._meter(request)
        work = large_requests.serve(self, request, body)
        assert request.api is not None
        self.services.supervisor.spawn(f"kafka.{request.api.name}.large", work, Policy.ISOLATED)

    def start_part(self, part: Request, message: Any) -> Any:
        """A piece of a large request: its answer, or a coroutine or steps that return it."""
        api = part.api
        assert api is not None
        try:
            return self._call(api, part, message)
        except ApiError as error:
            return refusal(api, message, part.version, error.code, str(error))

    async def finish_part(self, part: Request, message: Any, work: Coroutine[Any, Any, Any]) -> Any:
        """The answer of a piece's coroutine."""
        api = part.api
        assert api is not None
        try:
            with waiting_at_most(getattr(message, "timeout_ms", None)):
                return await work
        except ApiError as error:
            return refusal(api, message, part.version, error.code, str(error))
        except CoordinatorError as error:
            return refusal(api, message, part.version, refusal_of(error), str(error))

    def respond_large(self, request: Request, message: Any) -> None:
        """A response with too many elements for one turn of the loop."""
        slices = Slices(self.turns, request.connection.owner)

        async def respond() -> None:
            try:
                await slices.run(request.responding(message))
            finally:
                if not request.is_answered:
                    request.connection.abort()
                slices.end()
                if request.throttle is not None:
                    request.throttle.has_worked(slices.spent)

        self.services.supervisor.spawn("kafka.respond.large", respond(), Policy.ISOLATED)

    def _meter(self, request: Request) -> None:
        """Count what it costs: a quota is set."""
        assert request.api is not None
        if request.api.name not in EXEMPT and not request.connection.is_unauthenticated:
            request.throttle = ThrottleAccounting(
                self.quotas, self.services.clock, request.principal, request.client_id
            )

    def _call(
        self, api: OfferedApi, request: Request, message: Any, checked: large_requests.Checked | None = None
    ) -> Any:
        """Check what it needs, then call its handler. Raises ApiError."""
        if self.guard is not None:
            refused = self.guard.check(request, message) if checked is None else checked.refusal
            if refused is not None:
                return None if self._ended(request, message) else refused
        return api.handler(request, message)

    def _ended(self, request: Request, message: Any) -> bool:
        """Produce with acks=0 has no answer that says that it is refused: its connection is closed, as by Kafka."""
        assert request.api is not None
        if request.api.name != "Produce" or message.acks:
            return False
        request.respond_nothing()
        request.connection.close()
        return True

    def timed(self, request: Request) -> None:
        """A request has its answer: for the metrics."""
        if request.api is not None and request.began:
            now = self.monotonic()
            # Answered from within the handler: all of it was our own work.
            returned = request.returned or now
            self.requests.add(request.api.name, returned - request.began, now - request.began)
            if self.tracer.watchers:
                self.tracer.ended(request, now)

    async def _finish(self, request: Request, message: Any, work: Coroutine[Any, Any, Any]) -> None:
        """Carry out a request that waits for something, when it is the turn of its client, who may have sent many ahead."""
        api = request.api
        assert api is not None
        answer = None
        try:
            await self.turns.take(request.connection.owner)
            if request.connection.is_closed:
                return
            with waiting_at_most(getattr(message, "timeout_ms", None)):
                answer = await work
        except ApiError as error:
            answer = refusal(api, message, request.version, error.code, str(error))
        except CoordinatorError as error:
            answer = refusal(api, message, request.version, refusal_of(error), str(error))
        finally:
            work.close()  # if it has not begun
            if answer is None:
                # A bug, or the node stops: the supervisor reports it. This client must not wait for ever.
                request.connection.abort()
        if not request.connection.is_closed:
            request.respond(answer)
