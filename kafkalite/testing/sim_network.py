"""A simulated TCP network between named hosts, on a SimLoop.

What holds: bytes of one direction of one connection arrive in order, once, or not at all; how they are cut into
pieces and how long they take is drawn from the seed. A blocked link loses nothing, for TCP sends again: what was
under way arrives some time after the link is healed, so a partition looks like silence. A full receive window
stops the sender.

    crash of a process   its kernel sends what was written to the socket, then FIN (or RST if there was unread data);
                         what waited in the program's own buffers is gone
    loss of power        silence; a peer learns of it only when the host is up again and answers RST
    stop of a process    the kernel goes on: connections are accepted, data is taken until the window is full

Packets travel in the world outside the processes; the code of a process runs in its own context only, so that
a killed or stopped one receives nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkalite.env.seams import ConnectionHandler, Listener
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.sim_loop import Process, SimLoop, current_process

if TYPE_CHECKING:
    from kafkalite.security.tls import ClientTls, ServerTls

#: As kafkalite.env.real has it.
STREAM_LIMIT_BYTES = 4 * 1024 * 1024
#: A sender may have so many bytes under way that the receiving program has not read.
WINDOW_BYTES = 1024 * 1024
#: asyncio's default marks for a transport's own buffer.
_HIGH_WATER_BYTES = 64 * 1024
#: When a SYN is not answered, Linux gives up after about this; a dialler's own deadline is mostly shorter.
_CONNECT_GIVE_UP_NS = 127_000_000_000
_FIRST_EPHEMERAL_PORT = 30_000


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two hosts."""

    latency_min_ns: int = 50_000
    latency_max_ns: int = 500_000
    bytes_per_s: int = 200_000_000
    #: Of 1,000 segments so many are late by `spike_ns` at most (a retransmission, a busy switch).
    spikes_per_mille: int = 2
    spike_ns: int = 200_000_000


class _Host:
    def __init__(self, name: str) -> None:
        self.name = name
        self.powered = True
        self.listeners: dict[int, SimListener] = {}
        self.next_port = _FIRST_EPHEMERAL_PORT


class SimNetwork:
    """All hosts and links. `of(host)` is what a program on that host sees as its Network.

    Args:
        on_fatal: told of an AssertionError in a connection's handler, and in which process.
    """

    def __init__(
        self,
        loop: SimLoop,
        source: random.Random,
        *,
        default_link: Link | None = None,
        on_fatal: Callable[[Process | None, BaseException], None] | None = None,
    ) -> None:
        self.loop = loop
        self._random = source
        self._default_link = default_link or Link()
        self._hosts: dict[str, _Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        #: Blocked directions, each with how many times over (partitions may overlap).
        self._blocked: dict[tuple[str, str], int] = {}
        self._transports: dict[int, SimTransport] = {}
        self._transport_count = 0
        #: Those with something under way (a dict for its order).
        self.pipes: dict[_Pipe, None] = {}
        self._on_fatal = on_fatal
        # Packets travel outside of every process, whoever sends them.
        self.world = contextvars.Context()
        loop.at_close(self._dispose)

    def _dispose(self) -> None:
        """The simulation is over: no connection is open any more, so that nothing complains of an unclosed one."""
        for transport in list(self._transports.values()):
            transport.vanish()

    # --- hosts and links -------------------------------------------------------------------------

    def host(self, name: str) -> _Host:
        return self._hosts.setdefault(name, _Host(name))

    def of(self, name: str) -> HostNetwork:
        """The Network seam of programs on this host."""
        self.host(name)
        return HostNetwork(self, name)

    def link(self, source: str, target: str) -> Link:
        return self._links.get((source, target), self._default_link)

    def set_link(self, source: str, target: str, link: Link | None) -> None:
        """Another quality for one direction; None is the default again."""
        if link is None:
            self._links.pop((source, target), None)
        else:
            self._links[source, target] = link

    def block(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more. Counted: needs as many `unblock`s."""
        self._blocked[source, target] = self._blocked.get((source, target), 0) + 1

    def unblock(self, source: str, target: str) -> None:
        count = self._blocked.get((source, target), 0) - 1
        if count > 0:
            self._blocked[source, target] = count
            return
        self._blocked.pop((source, target), None)
        self._wake_links({(source, target)})

    def partition(self, *sides: Iterable[str]) -> Callable[[], None]:
        """Block every direction between hosts of different sides; returns what heals it."""
        groups = [sorted(side) for side in sides]
        pairs = [(a, b) for one in groups for other in groups if one is not other for a in one for b in other if a != b]
        for pair in pairs:
            self.block(*pair)

        def heal() -> None:
            while pairs:
                self.unblock(*pairs.pop())

        return heal

    def heal(self) -> None:
        """Unblock everything and forget all special links."""
        links = set(self._blocked)
        self._blocked.clear()
        self._links.clear()
        self._wake_links(links)

    def _wake_links(self, links: set[tuple[str, str]]) -> None:
        for pipe in list(self.pipes):
            if pipe.hosts in links:
                # TCP's retransmission timer has backed off in the meantime.
                pipe.retry_after(self._random.randrange(0, 1_500_000_000))
        for transport in list(self._transports.values()):
            if (transport.peer_host.name, transport.local_host.name) in links:
                transport.acknowledge(0)

    def passes(self, source: _Host, target: _Host) -> bool:
        """Whether a packet gets through right now."""
        if not (source.powered and target.powered):
            return False
        return source is target or (source.name, target.name) not in self._blocked

    # --- processes and hosts end -----------------------------------------------------------------

    def process_died(self, process: Process) -> None:
        """The kernel closes what the process had open."""
        for host in self._hosts.values():
            for port in [port for port, listener in host.listeners.items() if listener.process is process]:
                del host.listeners[port]
        for transport in list(self._transports.values()):
            if transport.process is process:
                transport.process_died()

    def power_lost(self, name: str) -> None:
        """The host is gone without a word. (Its processes: kill them on the loop; no need for `process_died`.)"""
        host = self.host(name)
        host.powered = False
        host.listeners.clear()
        for transport in list(self._transports.values()):
            if transport.local_host is host:
                transport.vanish()

    def power_on(self, name: str) -> None:
        self.host(name).powered = True
        links = {(other, name) for other in self._hosts}
        self._wake_links(links)

    # --- connecting ------------------------------------------------------------------------------

    def delay_ns(self, source: str, target: str, size: int = 0) -> int:
        """How long a segment of `size` bytes takes."""
        link = self.link(source, target)
        delay = (
            self._random.randint(link.latency_min_ns, link.latency_max_ns) + size * 1_000_000_000 // link.bytes_per_s
        )
        if self._random.randrange(1_000) < link.spikes_per_mille:
            delay += self._random.randrange(link.spike_ns)
        return delay

    async def connect(
        self, source: _Host, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        target = self._hosts.get(host)
        if target is None:
            raise OSError(errno.ENOENT, f"no such host: {host}")
        started = self.loop.now_ns
        backoff_ns = 1_000_000_000
        while True:
            await asyncio.sleep(self.delay_ns(source.name, host) / 1e9)
            if self.passes(source, target) and self.passes(target, source):
                break
            if self.loop.now_ns - started > _CONNECT_GIVE_UP_NS:
                raise TimeoutError(errno.ETIMEDOUT, f"no answer from {host}:{port}")
            await asyncio.sleep(backoff_ns / 1e9)
            backoff_ns *= 2
        listener = target.listeners.get(port)
        if listener is None:
            await asyncio.sleep(self.delay_ns(host, source.name) / 1e9)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refused the connection")
        near, far = SimTransport(self, source), SimTransport(self, target)
        near.attach(far, target, (host, port), (source.name, self.ephemeral_port(source)))
        far.attach(near, source, near.local_address, near.peer_address)
        near.adopt(current_process())
        # The other kernel has accepted; the program there gets to it when it runs.
        far.adopt(listener.process)
        self.loop.call_soon(far.open, listener.factory, context=far.context)
        try:
            await asyncio.sleep(self.delay_ns(host, source.name) / 1e9)
        except asyncio.CancelledError:
            near.abort()
            raise
        protocol = near.open(factory)
        return near, protocol

    def ephemeral_port(self, host: _Host) -> int:
        host.next_port += 1
        return host.next_port

    def register(self, transport: SimTransport) -> int:
        self._transport_count += 1
        self._transports[self._transport_count] = transport
        return self._transport_count

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport.number, None)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def fatal(self, process: Process | None, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(process, error)
        else:
            self.loop.call_exception_handler({"message": f"assertion failed in {process}", "exception": error})


class SimListener:
    """A bound port."""

    def __init__(
        self, network: SimNetwork, host: _Host, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.host = host.name
        self.port = port
        self.factory = factory
        self.process = current_process()
        self._host = host
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"{host.name}:{port} is in use")
        host.listeners[port] = self

    async def close(self) -> None:
        if self._host.listeners.get(self.port) is self:
            del self._host.listeners[self.port]


class HostNetwork:
    """The Network seam, as a program on one host sees it."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self._network = network
        self._host = network.host(host)
        self._supervisors: dict[int, Supervisor] = {}

    async def dial(
        self, host: str, port: int, tls: ClientTls | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = self._network.loop
        reader = asyncio.StreamReader(limit=STREAM_LIMIT_BYTES, loop=loop)
        transport, protocol = await self._network.connect(
            self._host, self._resolve(host), port, lambda: asyncio.StreamReaderProtocol(reader, loop=loop)
        )
        assert isinstance(protocol, asyncio.StreamReaderProtocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def listen(self, host: str, port: int, handler: ConnectionHandler, tls: ServerTls | None = None) -> Listener:
        loop = self._network.loop
        supervisor = self._supervisor()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            finally:
                writer.close()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            supervisor.spawn("connection", serve(reader, writer), Policy.ISOLATED)

        def factory() -> asyncio.BaseProtocol:
            reader = asyncio.StreamReader(limit=STREAM_LIMIT_BYTES, loop=loop)
            return asyncio.StreamReaderProtocol(reader, accepted, loop=loop)

        return await self.listen_protocol(host, port, factory)

    async def listen_protocol(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol], tls: ServerTls | None = None
    ) -> Listener:
        if self._resolve(host) != self._host.name:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {self._host.name}")
        while port == 0 or port in self._host.listeners:
            if port != 0:
                raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
            port = self._network.ephemeral_port(self._host)
        return SimListener(self._network, self._host, port, factory)

    def _resolve(self, host: str) -> str:
        return self._host.name if host in ("localhost", "127.0.0.1", "0.0.0.0") else host

    def _supervisor(self) -> Supervisor:
        process = current_process()
        number = process.number if process is not None else 0
        if number not in self._supervisors:
            self._supervisors[number] = Supervisor(lambda error: self._network.fatal(process, error))
        return self._supervisors[number]


#: Ends of a stream, as segments beside the bytes.
_FIN = "FIN"
_RST = "RST"


class _Pipe:
    """One direction: segments under way, in order."""

    def __init__(self, network: SimNetwork, sender: SimTransport, receiver: SimTransport) -> None:
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._segments: deque[tuple[int, bytes | str]] = deque()
        self._last_arrival_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def hosts(self) -> tuple[str, str]:
        return self._sender.local_host.name, self._receiver.local_host.name

    def send(self, segment: bytes | str) -> None:
        size = len(segment) if isinstance(segment, bytes) else 0
        if size > 1 and self._network.randrange(64) == 0:
            assert isinstance(segment, bytes)
            cut = 1 + self._network.randrange(size - 1)
            self._enqueue(segment[:cut])
            segment = segment[cut:]
        self._enqueue(segment)

    def _enqueue(self, segment: bytes | str) -> None:
        size = len(segment) if isinstance(segment, bytes) else 0
        delay = self._network.delay_ns(*self.hosts, size)
        self._last_arrival_ns = max(self._last_arrival_ns, self._network.loop.now_ns + delay)
        self._segments.append((self._last_arrival_ns, segment))
        self._network.pipes[self] = None
        self._arm(self._segments[0][0])

    def _arm(self, when_ns: int) -> None:
        if self._timer is None:
            self._timer = self._network.loop.call_at_ns(when_ns, self._arrive, context=self._network.world)

    def retry_after(self, delay_ns: int) -> None:
        """The link is open again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._arm(max(self._network.loop.now_ns + delay_ns, self._segments[0][0]))

    def _arrive(self) -> None:
        self._timer = None
        if not self._network.passes(self._sender.local_host, self._receiver.local_host):
            return  # sent again when the link is healed
        now = self._network.loop.now_ns
        data: list[bytes] = []
        while self._segments and self._segments[0][0] <= now:
            segment = self._segments.popleft()[1]
            if isinstance(segment, bytes):
                data.append(segment)
                continue
            if data:
                self._receiver.arrived(b"".join(data))
                data = []
            self._receiver.ended(reset=segment is _RST)
        if data:
            self._receiver.arrived(b"".join(data))
        if self._segments:
            self._arm(self._segments[0][0])
        else:
            self._network.pipes.pop(self, None)

    def drop_all(self) -> None:
        """What is under way never arrives."""
        self._segments.clear()
        self._network.pipes.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SimTransport(asyncio.Transport):
    """One end of a connection: the program's transport and its kernel's socket."""

    local_host: _Host
    peer_host: _Host
    outgoing: _Pipe

    def __init__(self, network: SimNetwork, host: _Host) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self.local_host = host
        self.process: Process | None = None
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
        #: The kernel knows this socket no more: whoever sends to it is told RST.
        self._gone = False

    def attach(self, peer: SimTransport, peer_host: _Host, peer_address: Any, local_address: Any) -> None:
        self.peer = peer
        self.peer_host = peer_host
        self.peer_address: tuple[str, int] = peer_address
        self.local_address: tuple[str, int] = local_address
        self.outgoing = _Pipe(self._network, self, peer)

    def adopt(self, process: Process | None) -> None:
        """Say which process this end belongs to."""
        self.process = process
        self.context = process.context.copy() if process is not None else contextvars.Context()
        if process is not None and not process.alive:
            self.process_died()

    def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        """In the process: build the protocol and tell it."""
        self._protocol = factory()
        self._protocol.connection_made(self)
        self._wake_reader()
        return self._protocol

    # --- the kernel ------------------------------------------------------------------------------

    def arrived(self, data: bytes) -> None:
        """A segment came in."""
        if self._gone:
            self.outgoing.send(_RST)
            return
        if self._closing:
            return  # the program wants no more
        self._loop.trace(f"arrive {self.number} {len(data)} {zlib.crc32(data)}")
        self._received.append(data)
        self._wake_reader()

    def ended(self, *, reset: bool) -> None:
        """FIN or RST came in."""
        if self._gone or self._end is _RST:
            return
        self._end = _RST if reset else (self._end or _FIN)
        self._loop.trace(f"end {self.number} {self._end}")
        if reset:
            self.outgoing.drop_all()
            self._received.clear()
        self._wake_reader()

    def acknowledge(self, size: int) -> None:
        """The peer's program has read so much; send more if the way back is open."""
        self._unacknowledged -= size
        if self._buffer or self._writing_paused:
            self._loop.call_soon(self._pump, context=self.context)

    def _wake_reader(self) -> None:
        if not self._delivering and self._protocol is not None:
            self._delivering = True
            self._loop.call_soon(self._deliver, context=self.context)

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
            data = b"".join(self._received)
            self._received.clear()
            self.peer.consumed(len(data))
            self._feed(data)
        if self._end is _FIN and not self._lost and not self._reading_paused and not self._received:
            self._end = ""
            assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not self._protocol.eof_received():
                self.close()

    def _feed(self, data: bytes) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self._lost:
                buffer = memoryview(self._protocol.get_buffer(len(view))).cast("B")
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                self._protocol.buffer_updated(size)
                view = view[size:]
        else:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)

    def consumed(self, size: int) -> None:
        """The peer's program took `size` of our bytes. With its way to us blocked, its acknowledgement waits."""
        if self._network.passes(self.peer_host, self.local_host):
            self.acknowledge(size)
        else:
            self._unacknowledged -= size  # pumped when the link is healed

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
            self.outgoing.send(_FIN)
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
            self.outgoing.send(_RST if self._received else _FIN)
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

    # --- asyncio.Transport -----------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.peer_address, "sockname": self.local_address}.get(name, default)

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
        self.write(b"".join(bytes(data) for data in list_of_data))

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
        self.outgoing.send(_RST)
        self._fin_sent = True
        self._leave_kernel()
        self._loop.call_soon(self._lose, None, context=self.context)
