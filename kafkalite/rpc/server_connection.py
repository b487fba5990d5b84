"""One peer's connection to the RPC server: requests in, in the order of arrival; answers out, in that order; its bounds."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kafkalite.config import BrokerConfig
from kafkalite.env.streams import close_when_written
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.errors import ApiError, ErrorCode, ProtocolError
from kafkalite.model import NO_BROKER_EPOCH, BrokerId
from kafkalite.rpc.admission import Admission
from kafkalite.rpc.codec import from_fields
from kafkalite.rpc.framing import (
    HELLO_FRAME_BYTES,
    NODE_HEADER_BYTES,
    Frame,
    RpcFrameReader,
    encode_frame,
)
from kafkalite.rpc.greeting import Identity, check_peer
from kafkalite.rpc.handling import Handler, LateReply, Peer, Reply, RpcRequest
from kafkalite.rpc.memory import ConnectionMemory, RequestMemory
from kafkalite.rpc.messages.base import PROTOCOL_VERSION, Message, by_kind
from kafkalite.rpc.messages.connection import ErrorResponse, HelloRequest, HelloResponse, SaslAuthenticateRequest
from kafkalite.rpc.messages.replication import ReplicaFetchRequest, ReplicaFetchWake
from kafkalite.rpc.pending_responses import PendingResponse, PendingResponses
from kafkalite.security.principal import ANONYMOUS
from kafkalite.telemetry.counters import Requests
from kafkalite.telemetry.logs import get_logger

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity

_log = get_logger(__name__)

#: One read takes at most this much off the stream; small frames cost one wake-up per chunk, not one each.
READ_BYTES = 256 * 1024
#: Number of requests of one chunk after which other connections get their turn.
DISPATCH_SLICE = 64
#: No further request is read while the peer leaves more than this unread.
WRITE_HIGH_BYTES = 4 * 1024 * 1024
#: Fetches hold whole answers: fewer of them may be under way on one connection.
MAX_INFLIGHT_FETCHES = 8
#: The first frame of a connection has to be here in time, ...
HELLO_TIMEOUT_S = 10.0
#: ... and the rest of any frame that has begun, and room for answers.
STALL_TIMEOUT_S = 30.0
SWEEP_INTERVAL_S = 1.0
#: Time to answer the outstanding requests of an ended session; then the connection is closed in any case.
LAST_WORDS_S = 1.0


class Server(Protocol):
    """What a connection needs of the listener that accepted it. `monotonic` None: requests are not timed."""

    config: BrokerConfig
    identity: Callable[[], Identity]
    handlers: dict[type[Message], Handler]
    security: ListenerSecurity | None
    supervisor: Supervisor
    memory: RequestMemory
    requests: Requests
    monotonic: Callable[[], float] | None

    def warn(self, event: str, reason: str, *, peer: str, **details: object) -> None:
        """One line about a connection; many similar ones from one host are suppressed."""

    def greeted(self, connection: ServerConnection) -> None:
        """The peer has said hello: it is a node."""


class ServerConnection:
    """One peer's connection."""

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, number: int
    ) -> None:
        self.server = server
        self._number = number
        self.peer = Peer(BrokerId(-1), NO_BROKER_EPOCH, "", address)
        self.greeted = False
        self._reader = reader
        self._writer = writer
        self._frames = RpcFrameReader(max_frame_bytes=HELLO_FRAME_BYTES, max_header_bytes=HELLO_FRAME_BYTES)
        self._pending = PendingResponses(server.requests, server.monotonic)
        self._loop = asyncio.get_running_loop()
        self._admission = None if server.security is None else Admission(server.security, address, self._loop.time)
        self._closed = False
        #: Why nothing is taken any more: the connection closes as soon as what was asked before is answered.
        self._ending = ""
        self._flush_due = False
        self._is_dispatching = False
        #: Set whenever a request is answered: a reader that waits for room looks again.
        self._progress: asyncio.Future[None] | None = None
        self.memory = ConnectionMemory(server.memory)
        now = self._loop.time()
        self._last_active = now
        self._frame_since: float | None = now
        self._stalled_since: float | None = None

    # --- reading -----------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            if self._admission is not None:
                self._admission.authenticate_certificate(self._writer)
            while not self._closed and not self._ending:
                memory = self.server.memory
                if not memory.has_room:
                    await self.memory.wait_for_room()
                    if self._closed:
                        break
                # Beyond the limit a connection ends its frame and reads nothing further.
                data = await self._reader.read(READ_BYTES if memory.has_room else self._frames.missing)
                if not data:
                    self.shut("peer closed", quietly=True)
                    break
                self._last_active = self._loop.time()
                self.memory.charge(len(data))
                frames = self._frames.feed(data)
                self._count_incomplete()
                await self._dispatch(frames)
            while not self._closed:
                self._progress = self._loop.create_future()
                await self._progress
        except ProtocolError as error:
            self.shut(str(error))
        except OSError as error:
            self.shut(f"connection lost: {error}", quietly=True)
        finally:
            self.shut("handler failed")

    async def _dispatch(self, frames: list[Frame]) -> None:
        count = 0
        for frame in frames:
            if self._closed or self._ending:
                break
            if not self.greeted:
                if self._admission is not None and frame.kind == SaslAuthenticateRequest.kind:
                    await self._authenticate(self._admission, frame)
                else:
                    self._greet(frame)
                continue
            cls = by_kind.get(frame.kind)
            admission = self._admission
            if admission is not None and admission.login is not None:
                if cls is SaslAuthenticateRequest:
                    self._log_in_again(admission, frame)
                    continue
                if admission.has_ended(self._last_active):
                    self._refuse_ended(admission, frame, cls)
                    continue
            is_fetch = cls is ReplicaFetchRequest
            if self._peer_is_slow() or self._is_full(is_fetch=is_fetch):  # else no coroutine for each request
                await self._wait_until_may_dispatch(is_fetch=is_fetch)
                if self._closed or self._ending:
                    break
            self._is_dispatching = True
            try:
                self._handle(frame, cls, is_fetch=is_fetch)
            finally:
                self._is_dispatching = False
            count += 1
            if count % DISPATCH_SLICE == 0:
                self._flush()
                await asyncio.sleep(0)
        self._flush()

    async def _wait_until_may_dispatch(self, *, is_fetch: bool) -> None:
        while not self._closed:
            if self._peer_is_slow():
                self._flush()
                await self._drain()
            elif not self._is_full(is_fetch=is_fetch):
                return
            else:
                self._flush()
                if self._is_full(is_fetch=is_fetch):
                    self._progress = self._loop.create_future()
                    await self._progress

    def _is_full(self, *, is_fetch: bool) -> bool:
        if is_fetch and self._pending.fetches >= MAX_INFLIGHT_FETCHES:
            return True
        return len(self._pending) >= self.server.config.max_inflight_requests_per_connection

    def _peer_is_slow(self) -> bool:
        return bool(self._writer.transport.get_write_buffer_size() > WRITE_HIGH_BYTES)

    async def _drain(self) -> None:
        """Wait until the peer has taken most of its answers; the sweeper cuts one that does not."""
        if self._stalled_since is None:
            self._stalled_since = self._loop.time()
        try:
            # Waits down to the transport's own low mark (16 KiB), which is far below ours.
            await self._writer.drain()
        finally:
            self._stalled_since = None

    # --- one frame ---------------------------------------------------------------------------

    async def _authenticate(self, admission: Admission, frame: Frame) -> None:
        answer = admission.step(frame)
        if answer.error:
            await asyncio.sleep(admission.security.failed_delay_s)
        self._writer.writelines(encode_frame(frame.correlation_id, answer))
        self.memory.uncharge(frame.size)
        if answer.error:
            self.shut("authentication failed", quietly=True)  # the admission has given the reason

    def _log_in_again(self, admission: Admission, frame: Frame) -> None:
        """Between other requests: what was asked before it is answered before it."""
        answer = admission.step(frame)
        response = PendingResponse(frame.correlation_id, frame.size, is_fetch=False)
        self._pending.add(response)
        if not answer.error:
            response.done, response.reply = True, Reply(answer)
            return
        delay_s = admission.security.failed_delay_s
        name = f"rpc.refusal[{self.peer.address}]"
        response.waiting = self.server.supervisor.spawn(name, _late(Reply(answer), delay_s), Policy.ISOLATED)
        response.waiting.add_done_callback(lambda future: self._answered(response, future))
        self._end_soon("authentication failed", delay_s)  # the admission has given the reason

    def _refuse_ended(self, admission: Admission, frame: Frame, cls: type[Message] | None) -> None:
        """Something else than an authentication, and the session is over."""
        refusal = ErrorResponse(int(ErrorCode.SASL_AUTHENTICATION_FAILED), admission.log_session_ended())
        reply = None if cls is ReplicaFetchWake else Reply(refusal)
        self._pending.add(PendingResponse(frame.correlation_id, frame.size, is_fetch=False, done=True, reply=reply))
        self._end_soon("the session has ended")

    def _end_soon(self, reason: str, delay_s: float = 0.0) -> None:
        """Take nothing more, and close when what was asked is answered; within `delay_s` and LAST_WORDS_S in any case."""
        if self._closed or self._ending:
            return
        self._ending = reason
        if not self._pending:
            self.shut(reason, quietly=True)
        else:
            self._loop.call_later(delay_s + LAST_WORDS_S, lambda: self.shut(reason, quietly=True))

    def _greet(self, frame: Frame) -> None:
        if frame.kind != HelloRequest.kind:
            raise ProtocolError("the first frame is not a hello")
        admission = self._admission
        if admission is not None and not admission.is_enough:
            refusal = ErrorResponse(int(ErrorCode.SASL_AUTHENTICATION_FAILED), "authenticate first")
            self._writer.writelines(encode_frame(frame.correlation_id, refusal))
            self.memory.uncharge(frame.size)
            admission.security.refused(self.peer.address, "no authentication")
            self.shut("no authentication", quietly=True)
            return
        hello = from_fields(HelloRequest, frame.fields)
        assert isinstance(hello, HelloRequest)
        own = self.server.identity()
        error, message = check_peer(hello, own)
        if not error and admission is not None and not admission.admits():
            error, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{admission.principal} is not a node"
        answer = HelloResponse(
            int(error),
            message,
            own.cluster_id,
            own.node_id,
            own.broker_epoch,
            min(PROTOCOL_VERSION, hello.max_version),
        )
        self._writer.writelines(encode_frame(frame.correlation_id, answer))
        self.memory.uncharge(frame.size)
        if error:
            self.shut(f"hello of {hello.client_id or hello.node_id} refused: {message}")
            return
        principal = ANONYMOUS if admission is None else admission.principal
        client_id = hello.client_id[:256]
        self.peer = Peer(hello.node_id, hello.broker_epoch, client_id, self.peer.address, principal, self._number)
        self._frames.max_frame_bytes = self.server.config.rpc_max_frame_bytes
        self._frames.max_header_bytes = NODE_HEADER_BYTES
        self.greeted = True
        self.server.greeted(self)
        self._frame_since = None
        self._count_incomplete()

    def _handle(self, frame: Frame, cls: type[Message] | None, *, is_fetch: bool) -> None:
        handler = self.server.handlers.get(cls) if cls is not None else None
        response = PendingResponse(frame.correlation_id, frame.size, is_fetch)
        if cls is None or handler is None:
            if frame.kind % 2 or frame.kind == HelloRequest.kind:
                raise ProtocolError(f"message of kind {frame.kind} is not a request")
            # A newer peer may ask for what this node does not know: refused, and the connection stays.
            text = f"api {frame.kind} is not served here"
            response.done, response.reply = True, Reply(ErrorResponse(int(ErrorCode.UNSUPPORTED_VERSION), text))
            self._pending.add(response)
            return
        message = from_fields(cls, frame.fields)
        self._pending.add(response)
        monotonic = self.server.monotonic
        if monotonic is not None:
            response.api, response.began = cls.__name__, monotonic()
        try:
            outcome = handler(RpcRequest(message, frame.body, self.peer))
        except ApiError as error:
            # A peer that expects no answer would take a refusal for a breach of the protocol.
            outcome = None if isinstance(message, ReplicaFetchWake) else _refusal(error)
        if monotonic is not None:
            response.returned = monotonic()
        if outcome is None or isinstance(outcome, Reply):
            response.done, response.reply = True, outcome
            self._pending.count(response)
            return
        if type(outcome) is LateReply:
            ready = outcome.then(lambda reply: self._given(response, reply))
            if ready is None:
                response.is_late = True
            else:
                response.done, response.reply = True, ready
                self._pending.count(response)
            return
        if inspect.iscoroutine(outcome):
            name = f"rpc.{cls.__name__}[{self.peer.address}]"
            response.waiting = self.server.supervisor.spawn(name, outcome, Policy.ISOLATED)
        else:
            assert isinstance(outcome, asyncio.Future), f"{cls.__name__}: {type(outcome)} is not a response"
            response.waiting = outcome
        response.waiting.add_done_callback(lambda future: self._answered(response, future))

    def _given(self, response: PendingResponse, reply: Reply) -> None:
        response.reply, response.done = reply, True
        self._pending.count(response)
        # It is given at the end of a turn, for all that this turn has brought: it goes out now.
        if not self._closed and not self._is_dispatching:
            self._flush()

    def _answered(self, response: PendingResponse, future: asyncio.Future[Reply | None]) -> None:
        if future.cancelled():
            # A cancelled answer means that its server part is stopping.
            response.reply = Reply(ErrorResponse(int(ErrorCode.BROKER_NOT_AVAILABLE), "stopping"))
        elif (error := future.exception()) is None:
            response.reply = future.result()
        elif isinstance(error, ApiError):
            response.reply = _refusal(error)
        else:
            # The supervisor reports a coroutine's failure; a future's owner has to do it.
            response.reply = Reply(ErrorResponse(int(ErrorCode.UNKNOWN_SERVER_ERROR), type(error).__name__))
        response.done = True
        self._pending.count(response)
        if not self._flush_due and not self._closed:
            self._flush_due = True
            self._loop.call_soon(self._flush_now)

    # --- answering ---------------------------------------------------------------------------

    def _flush_now(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        """Write the answers that are next in order, in one call."""
        if self._closed:
            return
        if self._writer.transport.is_closing():
            self.shut("connection lost", quietly=True)
            return
        buffers, released = self._pending.take_answered()
        if released:
            self.memory.uncharge(released)
            self._last_active = self._loop.time()
            if self._progress is not None and not self._progress.done():
                self._progress.set_result(None)
        if buffers:
            self._writer.writelines(buffers)
            if self._stalled_since is None and self._peer_is_slow():
                self._stalled_since = self._last_active
        if self._ending and not self._pending:
            self.shut(self._ending, quietly=True)

    # --- bounds ------------------------------------------------------------------------------

    def _count_incomplete(self) -> None:
        incomplete = self._frames.buffered
        self.memory.set_incomplete(incomplete)
        if not incomplete:
            if self.greeted:
                self._frame_since = None
        elif self._frame_since is None:
            self._frame_since = self._last_active

    def held_by_frame_since(self, moment: float) -> bool:
        """Whether it has held memory for a half received frame since then."""
        return self.memory.incomplete_bytes > 0 and self._frame_since is not None and self._frame_since <= moment

    def check_deadlines(self, now: float) -> None:
        """Close the connection if it has used up somebody's patience."""
        if self._stalled_since is not None and not self._peer_is_slow():
            self._stalled_since = None
        if self._frame_since is not None and not self.greeted and now - self._frame_since > HELLO_TIMEOUT_S:
            self.shut("no hello before the deadline", at_once=True)
        elif self._frame_since is not None and self.greeted and now - self._frame_since > STALL_TIMEOUT_S:
            self.shut("a frame took too long", at_once=True)
        elif self._stalled_since is not None and now - self._stalled_since > STALL_TIMEOUT_S:
            self.shut("the peer does not read its responses", at_once=True)
        elif not self._pending and now - self._last_active > self.server.config.connections_max_idle_ms / 1000:
            self.shut("idle", quietly=True, at_once=True)

    def shut(self, reason: str, *, quietly: bool = False, at_once: bool = False) -> None:
        """Close the connection, once; one log line. `at_once` drops what the peer has not read."""
        if self._closed:
            return
        self._closed = True
        details = {"client": self.peer.client_id, "node": self.peer.node_id}
        if quietly:
            _log.debug("rpc.closed", peer=self.peer.address, **details, reason=reason)
        else:
            self.server.warn("rpc.closed", reason, peer=self.peer.address, **details)
        self._pending.drop()
        self.memory.release()
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)
        if at_once:
            self._writer.transport.abort()
        else:
            close_when_written(self._writer.transport)


async def _late(reply: Reply, delay_s: float) -> Reply:
    """Guessing passwords shall take time."""
    await asyncio.sleep(delay_s)
    return reply


def _refusal(error: ApiError) -> Reply:
    return Reply(ErrorResponse(int(error.code), str(error)))
