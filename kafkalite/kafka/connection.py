"""One client's connection: frames in, answers out in the order of the requests.

Frames are parsed where they were received, synchronously in `buffer_updated`; what they answer is written with one
call per wake-up. A connection with nothing half received has no buffer of its own: it reads into one that all
connections of the listener share, which is safe because `get_buffer`, the read and `buffer_updated` follow each other
in one step of the event loop. Only the rest of a half received frame is copied into a buffer of the connection's own,
see `receive_buffer`.

Source: Kafka's SocketServer (a connection's answers keep its requests' order).
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from kafkalite.env.fair_queue import Owner
from kafkalite.env.loop_times import COUNTED_S
from kafkalite.env.streams import close_when_written, hung_up
from kafkalite.env.turns import SLICE_S
from kafkalite.kafka import frames
from kafkalite.kafka.flow_control import MUTED, RETIRING, STARVED, UNREAD, YIELDING, FlowControl
from kafkalite.kafka.outbox import Outbox
from kafkalite.kafka.receive_buffer import ReceiveBuffer
from kafkalite.kafka.request import Request, request_decoder
from kafkalite.kafka.throttle_accounting import Arrears
from kafkalite.protocol.errors import TooManyAtOnce, WireError
from kafkalite.protocol.request_header import parse_header, skip_tags
from kafkalite.security.fair_room import user_of
from kafkalite.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from kafkalite.kafka.authenticator import Authenticator
    from kafkalite.kafka.listener import KafkaListener
    from kafkalite.kafka.request import OfferedApi
    from kafkalite.security.listener import SaslLogin

_LENGTH = struct.Struct(">i").unpack_from
_LEAST_BYTES, _USUAL_BYTES = frames.LEAST_BYTES, frames.MAX_OTHER_REQUEST_BYTES
API_VERSIONS = 18
#: Answers beyond this are handed to the transport before the next request is looked at.
_FLUSH_BYTES = 2**20
#: Time in seconds to answer the outstanding requests of a connection that retires.
RETIRED_S = 1.0


class KafkaConnection(asyncio.BufferedProtocol):
    """See the module."""

    def __init__(self, listener: KafkaListener, listener_name: str) -> None:
        self.listener = listener
        #: On which of the node's listeners it was accepted.
        self.listener_name = listener_name
        self.peer_host = ""
        self.peer = ""
        self.principal = ANONYMOUS
        #: Name and version of the client's software, as ApiVersions states them (KIP-511).
        self.software = ("", "")
        #: The authentication on a SASL listener; None: none is needed (any more).
        self.authenticator: Authenticator | None = None
        #: What SASL has proved.
        self.login: SaslLogin | None = None
        self.max_request_bytes = listener.max_request_bytes
        self.last_active = 0.0
        #: When the frame that is half received began to arrive; 0 if there is none.
        self.frame_began = 0.0
        #: The request whose handler is running.
        self._served: Request | None = None
        self.is_closed = False
        #: Responses on their way to the transport.
        self.out = Outbox(listener.answers)
        self._own = ReceiveBuffer(listener.memory, self, listener.shared_bytes)
        self._waiting: deque[Request] = deque()
        self._flow = FlowControl(listener.max_in_flight)
        self._is_parsing = False
        self._is_flush_due = False
        self._is_reading_paused = False
        #: It has waited for its turn in a rush, and this is it.
        self._has_turn = False
        self._arrears = Arrears(listener.quotas)

    # --- the transport's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in deed, not in type.
        transport = self.out.transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_FLUSH_BYTES)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple) and len(address) >= 2:
            self.peer_host, self.peer = str(address[0]), f"{address[0]}:{address[1]}"
        if not self.listener.opened(self, transport):
            self.is_closed = True
            transport.abort()

    def admitted(self, login: SaslLogin, *, authenticator: Authenticator | None) -> None:
        """The peer has authenticated. `authenticator` stays if they will have to again."""
        self.principal = login.principal
        self.login = login
        self.authenticator = authenticator
        self.max_request_bytes = self.listener.max_request_bytes
        self.listener.admitted(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        abandoned, self._waiting = self._waiting, deque()
        # Nothing is received any more. The TLS buffers of thousands of connections must not wait for the collector of cycles.
        self.out.drop()
        self.authenticator = None
        self._own.release()
        self.listener.closed(self)
        for request in abandoned:
            request.abandoned()

    def pause_writing(self) -> None:
        self.out.paused(self.listener.now())
        self._forbid(UNREAD)

    def resume_writing(self) -> None:
        self._flow.allow(UNREAD)
        self.out.resumed()
        self._resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._own
        return own.view[own.end :] if own.view else self.listener.shared_view

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self.listener.monotonic()
        if self._own.view:
            self._own.end += nbytes
            self._parse_own()
        else:
            view = self.listener.shared_view
            used = self._parse(view, 0, nbytes)
            if used < nbytes and not self.is_closed:
                self._own.keep(view[used:nbytes])
        self._flush()

    def eof_received(self) -> bool:
        return False

    # --- frames ---

    def _parse_own(self) -> None:
        own = self._own
        start = self._parse(own.view, own.start, own.end)
        if not self.is_closed:
            own.parsed(start)

    def _parse(self, view: memoryview, start: int, stop: int) -> int:
        """Start the requests in view[start:stop]; return where the first one that was not started begins."""
        self._is_parsing = True
        listener, out = self.listener, self.out
        arrived, rush = start, listener.rush
        began = now = listener.monotonic()
        try:
            while stop - start >= 4:
                if not self._flow.may_start(len(self._waiting)):
                    self._pause_reading()
                    break
                size = _LENGTH(view, start)[0]
                first = start + 4
                # Of nearly all frames `why_refused` has nothing to say: none above the limit, none that only Produce may send.
                if not (_LEAST_BYTES <= size <= _USUAL_BYTES and size <= self.max_request_bytes):
                    least = _LEAST_BYTES if self.authenticator is None else frames.LEAST_TOKEN_BYTES
                    if why := frames.why_refused(view[first:stop], size, least, self.max_request_bytes):
                        self.refuse("frame.length", why)
                        return stop
                if listener.quotas.is_active and self._is_in_arrears(view[first:stop]):
                    break
                if size > stop - first:
                    break
                # Who has waited may start one in any case.
                if start > arrived and rush.is_over(now) if self._has_turn else rush.must_wait(now):
                    if self.is_closed:
                        return stop
                    self._yield(is_rush=True)
                    continue
                self.frame_began = 0.0
                now = self._frame(view[first : first + size], now)
                start = first + size
                if now - began > SLICE_S:
                    self._yield()
                if self.is_closed:
                    return stop
                if out.bytes > _FLUSH_BYTES:
                    out.write()
                    now = listener.monotonic()
        finally:
            self._is_parsing = False
            rush.ended = now
        if start < stop and not self.frame_began and not self._is_reading_paused:
            self.frame_began = self.last_active
        return start

    def _is_in_arrears(self, frame: memoryview) -> bool:
        """Whether this request, whose beginning has arrived, has to wait; then the connection is muted."""
        if self.is_unauthenticated or self.out.transport is None:
            return False
        now_ms = int(self.listener.now() * 1000)
        wait_ms = self._arrears.wait_before(frame, self.listener.apis, self.principal.name, now_ms)
        if wait_ms:
            self.mute(wait_ms)
        return wait_ms > 0

    def _yield(self, *, is_rush: bool = False) -> None:
        """Its requests have taken a slice of the loop's time, or those of all clients together more (`is_rush`): the next ones are started
        in its turn."""
        if self._flow.forbids_for(YIELDING) or self.is_closed:
            return
        self._flow.forbid(YIELDING)
        if is_rush:
            self.listener.rush.wait(self.owner, self._proceed)
        else:
            self.listener.turns.call(self.owner, self._proceed)

    def _proceed(self) -> bool:
        self._flow.allow(YIELDING)
        if self.is_closed or not self._is_reading_paused:
            return False
        self._has_turn = True
        try:
            self._resume()
        finally:
            self._has_turn = False
        return True

    def _frame(self, view: memoryview, began: float) -> float:
        """One request: header, body, handler. It begins now, at `began`; the end is returned (monotonic seconds)."""
        try:
            if self.authenticator is None or self.authenticator.admits(view):
                self._dispatch(view)
        except (WireError, struct.error, UnicodeDecodeError, IndexError) as error:
            self.refuse("request.malformed", str(error))
        return self._held_since(began)

    def _held_since(self, began: float) -> float:
        """The request that is served has held the loop since then, and does so no more; now."""
        now = self.listener.monotonic()
        if now - began > COUNTED_S and (served := self._served) is not None:
            assert served.api is not None
            self.listener.loop_times.held(served.api.name, now - began, served.client_id, str(self.principal))
        self._served = None
        return now

    def _dispatch(self, view: memoryview) -> None:
        listener = self.listener
        api_key, version, correlation_id, client_id, position = parse_header(view)
        api = listener.apis.get(api_key)
        if api is None or version not in api.known_versions:
            self._unsupported(api, api_key, version, correlation_id, client_id)
            return
        if version in api.flexible_requests:
            position = skip_tags(view, position) if view[position] else position + 1
        # Bytes behind the message are ignored, as by Kafka: librdkafka's Metadata v12 for all topics has three.
        # Records are used where they were received, within this call, unless they are for many partitions.
        message = None
        if api.recall is not None:
            message = api.recall(self, version, view[position:])
        if message is None or listener.tracer.watchers:  # a trace shows all of the request's partitions
            try:
                message, _ = request_decoder(api.name, version)(view, api.in_place, position)
            except TooManyAtOnce:
                self._dispatch_large(bytes(view[position:]), api, version, correlation_id, client_id)
                return
        request = self._served = Request(self, api, version, correlation_id, client_id)
        self._waiting.append(request)
        if api.is_in_turn and len(self._waiting) > 1:
            request.postponed = partial(listener.handle, request, message)
        else:
            listener.handle(request, message)

    def _dispatch_large(self, body: bytes, api: OfferedApi, version: int, correlation_id: int, client_id: str) -> None:
        """The request is served in slices, and those behind it wait."""
        request = Request(self, api, version, correlation_id, client_id)
        self._waiting.append(request)
        self.out.hold(len(body))
        self.hold_requests()
        if api.is_in_turn and len(self._waiting) > 1:
            request.postponed = partial(self.listener.handle_large, request, body)
        else:
            self.listener.handle_large(request, body)

    def _unsupported(
        self, api: OfferedApi | None, api_key: int, version: int, correlation_id: int, client_id: str
    ) -> None:
        """The API or its version is not known here: its response has no form that the client could read.

        Kafka closes such a connection (SocketServer.parseRequestHeader): a client then says that it was disconnected
        while it waited for this API, instead of taking other bytes for the response. ApiVersions is answered (KIP-511).
        """
        if api_key != API_VERSIONS:
            self.retire("a request that is not offered", api_key=api_key, version=version)
            return
        request = Request(self, api, version, correlation_id, client_id)
        self._waiting.append(request)
        request.respond_raw(self.listener.unsupported_api_versions())

    # --- answers ---

    def answered(self, request: Request) -> None:
        """A request has its answer: whatever is now complete from the oldest on goes out."""
        if self.is_closed:
            return
        waiting = self._waiting
        while waiting and waiting[0].is_answered:
            first = waiting.popleft()
            self.out.add(first.buffers, first.counted)
            first.buffers = []  # a remaining reference to the request must not keep its response
            if first.throttle is not None and first.throttle.throttle_ms:
                self.mute(first.throttle.throttle_ms)
        if waiting and waiting[0].postponed is not None:
            asyncio.get_running_loop().call_soon(self._begin_first)
        if not self._is_parsing and not self._is_flush_due:
            # Many requests may complete in this turn of the loop: write once, at its end.
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_later)

    def _begin_first(self) -> None:
        """The oldest request has waited for its turn."""
        if self.is_closed or not self._waiting or (begin := self._waiting[0].postponed) is None:
            return
        self._served = self._waiting[0]
        self._served.postponed = None
        began = self.listener.monotonic()
        try:
            begin()
        except (WireError, struct.error, UnicodeDecodeError, IndexError) as error:
            self.refuse("request.malformed", str(error))
        self._held_since(began)

    def send_bare(self, token: bytes) -> None:
        """An answer without a header (SASL after SaslHandshake v0), in turn."""
        request = Request(self, None, 0, 0, "")
        request.buffers = [len(token).to_bytes(4) + token]
        self._waiting.append(request)
        request.respond_nothing()

    def _flush_later(self) -> None:
        self._is_flush_due = False
        self._flush()
        if not self._waiting and self._flow.forbids_for(RETIRING):
            self.close()
        self._resume()

    def _flush(self) -> None:
        if self.out.bytes and not self.is_closed:
            self.out.write()

    @property
    def unread_since(self) -> float:
        """See Outbox."""
        return self.out.unread_since

    @property
    def unread_bytes(self) -> int:
        """See Outbox."""
        return self.out.unread_bytes

    # --- flow control ---

    def _forbid(self, reason: int) -> None:
        self._flow.forbid(reason)
        self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and not self.is_closed and self.out.transport is not None:
            self._is_reading_paused = True
            self.frame_began = 0.0  # backpressure is ours: stop the frame deadline
            self.out.transport.pause_reading()

    def _resume(self) -> None:
        """Start what was read ahead, then read on, if nothing forbids it any more."""
        if not self._is_reading_paused or self.is_closed or not self._flow.may_read(len(self._waiting)):
            return
        self._is_reading_paused = False
        if self._own.view:
            self._parse_own()
            self._flush()
        if not self._is_reading_paused and not self.is_closed:
            assert self.out.transport is not None
            self.out.transport.resume_reading()

    def _resume_soon(self) -> None:
        """Not at once: the caller may be in the middle of something of this connection."""
        self.last_active = self.listener.now()
        asyncio.get_running_loop().call_soon(self._resume)

    def mute(self, throttle_ms: int) -> None:
        """Read nothing for this time: the client exceeds a quota, as the last response says (KIP-219)."""
        now = self.listener.now()
        until = now + throttle_ms / 1000
        if until <= self._flow.unmute_at:
            return
        self._flow.unmute_at = until
        if not self.is_muted:
            asyncio.get_running_loop().call_later(throttle_ms / 1000, self._unmute)
        self._forbid(MUTED)
        # If others wait for memory, it does not keep what it has sent ahead (FrameMemory.evict).
        self.frame_began = now

    def _unmute(self) -> None:
        now = self.listener.now()
        if self.is_closed:
            return
        if left_s := self._flow.left_s(now):  # muted for longer meanwhile
            asyncio.get_running_loop().call_later(left_s, self._unmute)
            return
        self.last_active = now
        self.frame_began = 0.0
        self._resume()

    def hold_requests(self) -> None:
        """Start no further request before `release_requests`. Calls are counted: all who hold must release."""
        self._flow.hold()
        self._pause_reading()

    def release_requests(self) -> None:
        if self._flow.release() and not self.is_closed:
            self._resume_soon()

    def starve(self) -> None:
        """The listener has no memory left for half received frames: read on when it has."""
        self._forbid(STARVED)

    def feed(self) -> None:
        self._flow.allow(STARVED)
        self._resume_soon()

    @property
    def user(self) -> str:
        return user_of(self.principal, self.peer_host)

    @property
    def owner(self) -> Owner:
        """Whose turns it takes: a user's at a host, and within these its own."""
        return (self.principal.name, self.peer_host), id(self)

    @property
    def is_unauthenticated(self) -> bool:
        """Whether the peer has to log in and has not."""
        return self.authenticator is not None and self.authenticator.must_log_in

    @property
    def is_muted(self) -> bool:
        """Whether a quota keeps it waiting."""
        return self._flow.forbids_for(MUTED)

    @property
    def transport(self) -> asyncio.Transport | None:
        """None before it is connected, and after the end."""
        return self.out.transport

    @property
    def is_unwatched(self) -> bool:
        """Whether nothing is read, so that the client's end is not seen."""
        return self._is_reading_paused and not self.is_closed

    def end_if_gone(self) -> None:
        """Before long work for a request that has waited for its turn: meanwhile its client may have given up."""
        transport = self.out.transport
        if transport is not None and self.is_unwatched and hung_up((transport,)):
            self.abort()

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way, or kept waiting by a quota."""
        return bool(self._waiting) or self.is_muted

    def relax(self) -> None:
        """Give the memory of a drained buffer back; called when nothing has come for a while."""
        if self._own.end == 0:
            self._own.release()

    # --- the end ---

    def refuse(self, what: str, detail: str, *, at_once: bool = False) -> None:
        """The peer broke the protocol: one log line, and the connection closes. `at_once` drops what it has not read."""
        if not self.is_closed:
            self.listener.warn("kafka.connection_refused", self, what, detail=detail)
            if at_once:
                self.abort()
            else:
                self.close()
        elif at_once:  # it was closing, once all is read
            self.abort()

    def retire(self, reason: str, **details: object) -> None:
        """Take nothing more, and close when what was asked is answered, or has not been for RETIRED_S."""
        if self.is_closed or self._flow.forbids_for(RETIRING):
            return
        self.listener.warn("kafka.connection_retired", self, reason, **details)
        self._forbid(RETIRING)
        if not self._waiting:
            self.close()
        else:
            asyncio.get_running_loop().call_later(RETIRED_S, self.close)

    def close(self) -> None:
        """Write what is answered, then close."""
        if self.out.transport is not None and not self.is_closed:
            self._flush()
            self.is_closed = True
            close_when_written(self.out.transport)

    def abort(self) -> None:
        """Close now."""
        self.is_closed = True
        if self.out.transport is not None:
            self.out.transport.abort()
