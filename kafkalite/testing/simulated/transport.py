"""One connection of the simulated network: the bytes under way, and at each end a transport and its kernel's socket."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkalite.testing.simulated.process import ProcessState, SimProcess

if TYPE_CHECKING:
    from kafkalite.testing.simulated.network import NetworkHost, SimNetwork

#: Maximum number of sent bytes that the receiving program has not read.
WINDOW_BYTES = 1024 * 1024
#: asyncio's default marks for a transport's own buffer.
_HIGH_WATER_BYTES = 64 * 1024
#: Ends of a stream, as segments beside the bytes.
_FIN = "FIN"
_RST = "RST"


class Pipe:
    """One direction: segments under way, in order."""

    def __init__(self, network: SimNetwork, sender: SimTransport, receiver: SimTransport) -> None:
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._segments: deque[tuple[int, bytes | str]] = deque()
        self._last_arrival_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        #: Names: from, to.
        self.hosts = (sender.local_host.name, receiver.local_host.name)

    def send(self, data: bytes) -> None:
        size = len(data)
        if size > 1 and self._network.one_in(64):
            cut = 1 + self._network.randrange(size - 1)
            self._enqueue(data[:cut], cut)
            data = data[cut:]
            size -= cut
        self._enqueue(data, size)

    def end(self, how: str) -> None:
        """FIN or RST, behind what was sent."""
        self._enqueue(how, 0)

    def _enqueue(self, segment: bytes | str, size: int) -> None:
        network = self._network
        arrival_ns = network.loop.now_ns + network.delay_ns(self.hosts, size)
        self._last_arrival_ns = max(self._last_arrival_ns, arrival_ns)
        self._segments.append((self._last_arrival_ns, segment))
        if self._timer is None:
            network.pipes[self] = None
            self._arm(self._segments[0][0])

    def _arm(self, when_ns: int) -> None:
        if self._timer is None:
            self._timer = self._network.loop.call_at_ns(when_ns, self._arrive, context=self._network.world)

    def hold_up(self, delay_ns: int, gap_ns: int) -> int:
        """What is under way takes another path: the first segment arrives after `delay_ns`, the others up to `gap_ns` after each
        other. Returns when the last one does."""
        when_ns = self._network.loop.now_ns + delay_ns
        held: deque[tuple[int, bytes | str]] = deque()
        for _, segment in self._segments:
            held.append((when_ns, segment))
            when_ns += 1 + self._network.randrange(gap_ns)
        self._segments.clear()
        self._segments += held
        self._last_arrival_ns = max(self._last_arrival_ns, held[-1][0])
        self.retry_after(delay_ns)
        return held[-1][0]

    def retry_after(self, delay_ns: int) -> None:
        """The link is open again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm(max(self._network.loop.now_ns + delay_ns, self._segments[0][0]))

    def _arrive(self) -> None:
        self._timer = None
        network, receiver, segments = self._network, self._receiver, self._segments
        if not network.passes(self._sender.local_host, receiver.local_host):
            return  # sent again when the link is healed
        now = network.loop.now_ns
        data: list[bytes] = []
        while segments and segments[0][0] <= now:
            segment = segments.popleft()[1]
            if isinstance(segment, bytes):
                data.append(segment)
                continue
            if data:
                receiver.arrived(b"".join(data))
                data = []
            receiver.ended(reset=segment is _RST)
        if data:
            receiver.arrived(b"".join(data))
        if segments:
            self._arm(segments[0][0])
        else:
            network.pipes.pop(self, None)

    def drop_all(self) -> None:
        """What is under way never arrives."""
        self._segments.clear()
        self._network.pipes.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _TransportSocket:
    """What uvloop gives out for "socket": after the connection's end it has no descriptor."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport

    def fileno(self) -> int:
        """There is none to poll."""
        return -1

    def setsockopt(self, level: int, option: int, value: object) -> None:
        """Options make no difference here. Raises ValueError as uvloop's."""
        if self._transport.is_lost:
            raise ValueError("negative file descriptor")


class SimTransport(asyncio.Transport):
    """One end of a connection: the program's transport and its kernel's socket."""

    local_host: NetworkHost
    peer_host: NetworkHost
    outgoing: Pipe

    def __init__(self, network: SimNetwork, host: NetworkHost) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.local_host = host
        self.process: SimProcess | None = None
        self.context = contextvars.Context()
        self.number = network.register(self)
        self._protocol: asyncio.BaseProtocol | None = None
        # The program's side.
        self._buffer: deque[bytes] = deque()
        self._buffered = 0
        self._high, self._low = _HIGH_WATER_BYTES, _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._eof_wanted = False
        self._lost = False
        # The kernel's side.
        self._unacknowledged = 0
        self._received: deque[bytes] = deque()
        self._end: str | None = None
        self._delivering = False
        self._fin_sent = False
        #: The kernel does not know this socket any more: senders get RST.
        self._gone = False

    def attach(self, peer: SimTransport, peer_host: NetworkHost, peer_address: Any, local_address: Any) -> None:
        self.peer = peer
        self.peer_host = peer_host
        self.peer_address: tuple[str, int] = peer_address
        self.local_address: tuple[str, int] = local_address
        self.outgoing = Pipe(self._network, self, peer)

    def adopt(self, process: SimProcess | None) -> None:
        """Say which process this end belongs to."""
        self.process = process
        self.context = process.context.copy() if process is not None else contextvars.Context()
        if process is not None and not process.alive:
            self.process_died()

    def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        """In the process: build the protocol and connect it."""
        self._protocol = factory()
        self._protocol.connection_made(self)
        self._wake_reader()
        return self._protocol

    # --- the kernel ------------------------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        """A segment came in."""
        if self._gone:
            self.outgoing.end(_RST)
            return
        if self._closing:
            return  # the program wants no more
        self._loop.trace(f"arrive {self.number} {len(data)} {zlib.crc32(data)}")
        self._received.append(data)
        self._deliver_now()

    def ended(self, *, reset: bool) -> None:
        """FIN or RST came in."""
        if self._gone or self._end is _RST:
            return
        self._end = _RST if reset else (self._end or _FIN)
        self._loop.trace(f"end {self.number} {self._end}")
        if reset:
            self.outgoing.drop_all()
            self._received.clear()
        self._deliver_now()

    def unblocked(self) -> None:
        """The peer's acknowledgements arrive again: send more."""
        if self._buffer or self._writing_paused:
            self._loop.call_soon(self._pump, context=self.context)

    def _wake_reader(self) -> None:
        if not self._delivering and self._protocol is not None:
            self._delivering = True
            self._loop.call_soon(self._deliver, context=self.context)

    def _deliver_now(self) -> None:
        """From a packet's arrival, which is no program's turn: a program that runs reads at once, without a turn of its own."""
        if self._delivering or self._protocol is None:
            return
        process = self.process
        if process is not None and process.state is not ProcessState.RUNNING:
            self._wake_reader()
            return
        try:
            self.context.run(self._deliver)
        except Exception as error:  # noqa: BLE001 - as the loop does with a callback's
            self._loop.call_exception_handler({"message": "Exception in a protocol", "exception": error})

    def _deliver(self) -> None:
        """In the process: hand the program what has come."""
        self._delivering = False
        if self._lost:
            return
        if self._end is _RST:
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            return
        if self._reading_paused:
            return
        if self._received:
            self._read()
        if self._end is _FIN and not self._lost and not self._reading_paused and not self._received:
            self._end = ""
            assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not self._protocol.eof_received():
                self.close()

    def _read(self) -> None:
        """One read from the socket: all that has come, or as much as the program's own buffer takes."""
        received = self._received
        data = received[0] if len(received) == 1 else b"".join(received)
        received.clear()
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            assert isinstance(self._protocol, asyncio.Protocol)
            self.peer.consumed(len(data))
            self._protocol.data_received(data)
            return
        buffer = memoryview(self._protocol.get_buffer(len(data))).cast("B")
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        if size < len(data):
            # The next read is another turn of the loop; it does not happen if the program pauses now.
            self._received.append(data[size:])
            self._wake_reader()
        self.peer.consumed(size)
        self._protocol.buffer_updated(size)

    def consumed(self, size: int) -> None:
        """The peer's program took `size` of our bytes. With its way to us blocked, its acknowledgement waits."""
        self._unacknowledged -= size
        if (self._buffer or self._writing_paused) and self._network.passes(self.peer_host, self.local_host):
            self._loop.call_soon(self._pump, context=self.context)
        # Otherwise it is pumped when the link is healed.

    def _pump(self) -> None:
        """Move from the program's buffer into the window."""
        if self._gone or self._lost:
            return
        while self._buffer and self._unacknowledged < WINDOW_BYTES:
            data = self._buffer.popleft()
            room = WINDOW_BYTES - self._unacknowledged
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._buffered -= len(data)
            self._unacknowledged += len(data)
            self.outgoing.send(data)
        if not self._buffer and (self._eof_wanted or self._closing) and not self._fin_sent:
            self._fin_sent = True
            self.outgoing.end(_FIN)
        if not self._buffer and self._closing:
            self._loop.call_soon(self._lose, None, context=self.context)
        elif self._writing_paused and self._buffered <= self._low:
            self._writing_paused = False
            if self._protocol is not None:
                self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        """In the process: the connection is over."""
        if self._lost:
            return
        self._lost = self._closing = True
        self._buffer.clear()
        self._buffered = 0
        self._leave_kernel()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _leave_kernel(self) -> None:
        self._gone = True
        self._network.forget(self)

    def process_died(self) -> None:
        """The kernel closes the socket of a dead process."""
        if self._gone:
            return
        self._buffer.clear()
        if not self._fin_sent or self._received:
            self.outgoing.end(_RST if self._received else _FIN)
        self._lost = self._closing = True
        self._received.clear()
        self._leave_kernel()

    def vanish(self) -> None:
        """The host has lost power."""
        self._buffer.clear()
        self._received.clear()
        self.outgoing.drop_all()
        self._lost = self._closing = True
        self._leave_kernel()

    @property
    def is_lost(self) -> bool:
        """The connection is over in the process."""
        return self._lost

    # --- asyncio.Transport -----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": self.peer_address, "sockname": self.local_address, "socket": _TransportSocket(self)}
        return known.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            if not self._closing:
                self._wake_reader()

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else (4 * low if low is not None else _HIGH_WATER_BYTES)
        self._low = low if low is not None else self._high // 4

    def write(self, data: Any) -> None:
        if self._eof_wanted:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        self._buffer.append(bytes(data))
        self._buffered += len(self._buffer[-1])
        self._pump()
        if self._buffered > self._high and not self._writing_paused:
            self._writing_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._eof_wanted:
            self._eof_wanted = True
            self._pump()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._received:
            # A kernel that is asked to close a socket with unread data resets the connection.
            self._received.clear()
            self.abort()
            return
        self._pump()

    def abort(self) -> None:
        if self._lost or self._gone:
            return
        self._closing = True
        self._buffer.clear()
        self._buffered = 0
        self.outgoing.end(_RST)
        self._fin_sent = True
        self._leave_kernel()
        self._loop.call_soon(self._lose, None, context=self.context)
