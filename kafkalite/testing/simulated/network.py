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
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkalite.env.seams import ConnectionHandler, Listener
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulated.loop import SimLoop
from kafkalite.testing.simulated.process import SimProcess, current_process
from kafkalite.testing.simulated.transport import Pipe, SimTransport

if TYPE_CHECKING:
    from kafkalite.security.tls import ClientTls, ServerTls

#: As kafkalite.env.real_network has it.
STREAM_LIMIT_BYTES = 4 * 1024 * 1024
#: When a SYN is not answered, Linux gives up after about this; a dialler's own deadline is mostly shorter.
_CONNECT_GIVE_UP_NS = 127_000_000_000
_FIRST_EPHEMERAL_PORT = 30_000
#: TCP's retransmission timer has backed off at the end of a partition: it sends again within this time (ns).
_RESENT_NS = 1_500_000_000
#: What is overtaken arrives after a time between these (ns), its segments this far apart at most.
_OVERTAKEN_NS, _OVERTAKEN_GAP_NS = (2_000_000_000, 6_000_000_000), 400_000_000


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two hosts."""

    latency_min_ns: int = 50_000
    latency_max_ns: int = 500_000
    bytes_per_s: int = 200_000_000
    #: Number of 1,000 segments that are late by `spike_ns` at most (a retransmission, a busy switch).
    spikes_per_mille: int = 2
    spike_ns: int = 200_000_000


class NetworkHost:
    """A machine: whether it has power, and its bound ports."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.powered = True
        self.listeners: dict[int, SimListener] = {}
        self.next_port = _FIRST_EPHEMERAL_PORT


class SimNetwork:
    """All hosts and links. `of(host)` is what a program on that host sees as its Network.

    Args:
        on_fatal: called with an AssertionError in a connection's handler, and in which process.
    """

    def __init__(
        self,
        loop: SimLoop,
        source: random.Random,
        *,
        default_link: Link | None = None,
        on_fatal: Callable[[SimProcess | None, BaseException], None] | None = None,
    ) -> None:
        self.loop = loop
        self._random = source
        self._default_link = default_link or Link()
        self._hosts: dict[str, NetworkHost] = {}
        self._links: dict[tuple[str, str], Link] = {}
        #: Blocked directions, each with how many times over (partitions may overlap).
        self._blocked: dict[tuple[str, str], int] = {}
        #: When the last segment arrives that was overtaken.
        self.overtaken_until_ns = 0
        self._transports: dict[int, SimTransport] = {}
        self._transport_count = 0
        #: Those with something under way (a dict for its order).
        self.pipes: dict[Pipe, None] = {}
        self._on_fatal = on_fatal
        # Packets travel outside of every process.
        self.world = contextvars.Context()
        loop.at_close(self._dispose)

    def _dispose(self) -> None:
        """The simulation is over: no connection is open any more, so that nothing complains of an unclosed one."""
        for transport in list(self._transports.values()):
            transport.vanish()

    # --- hosts and links -------------------------------------------------------------------------

    def host(self, name: str) -> NetworkHost:
        return self._hosts.setdefault(name, NetworkHost(name))

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

    def unblock(self, source: str, target: str, *, is_overtaken: bool = False) -> None:
        """`is_overtaken`: what was sent before arrives after what is sent over new connections."""
        count = self._blocked.get((source, target), 0) - 1
        if count > 0:
            self._blocked[source, target] = count
            return
        self._blocked.pop((source, target), None)
        self._wake_links({(source, target)}, is_overtaken=is_overtaken)

    def partition(self, *sides: Iterable[str], is_overtaken: bool = False) -> Callable[[], None]:
        """Block every direction between hosts of different sides; returns what heals it (see `unblock`)."""
        groups = [sorted(side) for side in sides]
        pairs = [(a, b) for one in groups for other in groups if one is not other for a in one for b in other if a != b]
        for pair in pairs:
            self.block(*pair)

        def heal() -> None:
            while pairs:
                self.unblock(*pairs.pop(), is_overtaken=is_overtaken)

        return heal

    def heal(self) -> None:
        """Unblock everything and forget all special links."""
        links = set(self._blocked)
        self._blocked.clear()
        self._links.clear()
        self._wake_links(links)

    def _wake_links(self, links: set[tuple[str, str]], *, is_overtaken: bool = False) -> None:
        for pipe in list(self.pipes):
            if pipe.hosts not in links:
                continue
            if is_overtaken:
                until_ns = pipe.hold_up(self._random.randrange(*_OVERTAKEN_NS), _OVERTAKEN_GAP_NS)
                self.overtaken_until_ns = max(self.overtaken_until_ns, until_ns)
            else:
                pipe.retry_after(self._random.randrange(0, _RESENT_NS))
        for transport in list(self._transports.values()):
            if (transport.peer_host.name, transport.local_host.name) in links:
                transport.unblocked()

    def passes(self, source: NetworkHost, target: NetworkHost) -> bool:
        """Whether a packet gets through right now."""
        if not (source.powered and target.powered):
            return False
        return not self._blocked or source is target or (source.name, target.name) not in self._blocked

    # --- processes and hosts end -----------------------------------------------------------------

    def process_died(self, process: SimProcess) -> None:
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

    def delay_ns(self, hosts: tuple[str, str], size: int = 0) -> int:
        """How long a segment of `size` bytes takes from the first of the hosts to the second."""
        link = self._links.get(hosts, self._default_link) if self._links else self._default_link
        draw = self._random.random  # one call for each number: `randrange` makes four
        delay = link.latency_min_ns + int(draw() * (link.latency_max_ns + 1 - link.latency_min_ns))
        delay += size * 1_000_000_000 // link.bytes_per_s
        if draw() * 1_000 < link.spikes_per_mille:
            delay += int(draw() * link.spike_ns)
        return delay

    async def connect(
        self, source: NetworkHost, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        target = self._hosts.get(host)
        if target is None:
            raise OSError(errno.ENOENT, f"no such host: {host}")
        started = self.loop.now_ns
        backoff_ns = 1_000_000_000
        while True:
            await asyncio.sleep(self.delay_ns((source.name, host)) / 1e9)
            if self.passes(source, target) and self.passes(target, source):
                break
            if self.loop.now_ns - started > _CONNECT_GIVE_UP_NS:
                raise TimeoutError(errno.ETIMEDOUT, f"no answer from {host}:{port}")
            await asyncio.sleep(backoff_ns / 1e9)
            backoff_ns *= 2
        listener = target.listeners.get(port)
        if listener is None:
            await asyncio.sleep(self.delay_ns((host, source.name)) / 1e9)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refused the connection")
        near, far = SimTransport(self, source), SimTransport(self, target)
        near.attach(far, target, (host, port), (source.name, self.ephemeral_port(source)))
        far.attach(near, source, near.local_address, near.peer_address)
        near.adopt(current_process())
        # The other kernel has accepted; the program there gets to it when it runs.
        far.adopt(listener.process)
        self.loop.call_soon(far.open, listener.factory, context=far.context)
        try:
            await asyncio.sleep(self.delay_ns((host, source.name)) / 1e9)
        except asyncio.CancelledError:
            near.abort()
            raise
        protocol = near.open(factory)
        return near, protocol

    def ephemeral_port(self, host: NetworkHost) -> int:
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

    def one_in(self, count: int) -> bool:
        """True once in `count` times."""
        return self._random.random() * count < 1

    def fatal(self, process: SimProcess | None, error: BaseException) -> None:
        if self._on_fatal is not None:
            self._on_fatal(process, error)
        else:
            self.loop.call_exception_handler({"message": f"assertion failed in {process}", "exception": error})


class SimListener:
    """A bound port."""

    def __init__(
        self, network: SimNetwork, host: NetworkHost, port: int, factory: Callable[[], asyncio.BaseProtocol]
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
