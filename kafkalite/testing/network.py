"""A host for each process of a test: network namespaces, joined by a switch in this process that can lose, delay and
refuse what one host sends to another, each direction alone. Needs root and iproute2 (`available` checks).

The kernel need not know netem or a packet filter: every frame passes through Python, up to some ten thousand a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import selectors
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkalite.testing.processes import Process, ProcessCluster

_SIOCETHTOOL = 0x8946
#: ETHTOOL_STXCSUM, _SSG, _STSO, _SGSO: a frame is to be whole, with its checksum, when we see it.
_OFFLOADS_OFF = (0x17, 0x19, 0x1F, 0x24)
_ETH_P_ALL = 3
_ETH_P_IP = 0x0800
_FRAME_BYTES = 65536
_SYN, _RST, _ACK = 0x02, 0x04, 0x10
#: Frames on their way at once; more are lost, as in any switch.
_MAX_DELAYED = 50_000


def available() -> bool:
    """Whether this process may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        return False
    return subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class VirtualNetwork:
    """Hosts by name, each with an address; host "" is this process's own side. Use as a context manager.

    What is lost is decided by (from, to). Names and addresses carry this process's id, so that several can run at once.

    Args:
        hosts: names, short.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._tag = f"k{os.getpid() % 100_000}"
        subnet = os.getpid() % 250
        self.addresses = {host: f"10.{200 + subnet % 50}.{subnet}.{n}" for n, host in enumerate(["", *hosts], 1)}
        self._of_address = {socket.inet_aton(address): host for host, address in self.addresses.items()}
        self._sockets: dict[str, socket.socket] = {}
        self._made: list[str] = []
        self._thread: threading.Thread | None = None
        self._wake_read, self._wake_write = os.pipe()
        #: (from, to) whose frames are lost.
        self.cut: frozenset[tuple[str, str]] = frozenset()
        self.delay_s = 0.0
        #: (from, to) -> seconds, instead of `delay_s`.
        self.delays: dict[tuple[str, str], float] = {}
        self.loss = 0.0
        #: How much of what carries data is answered by RST, to both ends, and lost: 1 ends every connection that is used.
        self.resets = 0.0
        #: Frames forwarded and lost, and connections reset, for reports.
        self.forwarded = 0
        self.lost = 0
        self.reset = 0
        self._rng = random.Random(0)

    # --- making it -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            for number, host in enumerate(self.addresses):
                self._add(host, number)
        except BaseException:
            self._remove()
            raise
        self._thread = threading.Thread(target=self._switch, name="switch", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.write(self._wake_write, b"x")
        if self._thread is not None:
            self._thread.join()
        self._remove()

    def namespace(self, host: str) -> str:
        """The network namespace of a host."""
        return f"{self._tag}{host}"

    def inside(self, host: str) -> tuple[str, ...]:
        """What to put before a command that is to run on the host."""
        return ("nsenter", f"--net=/run/netns/{self.namespace(host)}", "--")

    def _add(self, host: str, number: int) -> None:
        port, nic = f"{self._tag}p{number}", f"{self._tag}n{number}"
        _ip("link", "add", port, "type", "veth", "peer", "name", nic)
        self._made.append(port)
        if host:
            _ip("netns", "add", self.namespace(host))
            inside = ["-n", self.namespace(host)]
            _no_offloads(nic)
            _ip("link", "set", nic, "netns", self.namespace(host))
            _ip(*inside, "link", "set", "lo", "up")
        else:
            inside = []
            _no_offloads(nic)
        _no_offloads(port)
        _ip(*inside, "link", "set", nic, "address", self._mac(number))
        _ip(*inside, "addr", "add", f"{self.addresses[host]}/24", "dev", nic)
        _ip(*inside, "link", "set", nic, "up")
        _ip("link", "set", port, "up")
        # No lookup of addresses is needed: a cut would be noticed by an error of its own kind.
        for other, (name, address) in enumerate(self.addresses.items()):
            if name != host:
                _ip(*inside, "neigh", "replace", address, "lladdr", self._mac(other), "dev", nic, "nud", "permanent")
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        sock.bind((port, 0))
        sock.setblocking(False)  # noqa: FBT003 - the socket's method
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
        self._sockets[host] = sock

    @staticmethod
    def _mac(number: int) -> str:
        return f"02:00:00:00:01:{number:02x}"

    def _remove(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        for host in self.addresses:
            if host and Path(f"/run/netns/{self.namespace(host)}").exists():
                subprocess.run(["ip", "netns", "del", self.namespace(host)], capture_output=True, check=False)
        for port in self._made:
            subprocess.run(["ip", "link", "del", port], capture_output=True, check=False)
        os.close(self._wake_read)
        os.close(self._wake_write)

    # --- faults ----------------------------------------------------------------------------------------------

    def part(self, some: Iterable[str], others: Iterable[str], *, both_ways: bool = True) -> None:
        """Nothing gets from `some` to `others` any more, nor back; added to what is cut already."""
        some, others = list(some), list(others)
        pairs = {(one, other) for one in some for other in others}
        self.cut |= pairs | ({(other, one) for one, other in pairs} if both_ways else set())

    def heal(self) -> None:
        """No cut, delay, loss or reset any more."""
        self.cut = frozenset()
        self.delays = {}
        self.delay_s = self.loss = self.resets = 0.0

    def end_connections(self, host: str) -> None:
        """Every TCP connection of a host is aborted on both sides, those that are idle too."""
        assert host, "this process's own side is the whole machine"
        command = ["ss", "--kill", "--tcp", "state", "established"]
        subprocess.run([*self.inside(host), *command], check=True, capture_output=True)

    # --- the switch ------------------------------------------------------------------------------------------

    def _switch(self) -> None:
        waiting: list[tuple[float, int, str, bytes]] = []
        count = 0
        with selectors.DefaultSelector() as selector:
            for host, sock in self._sockets.items():
                selector.register(sock, selectors.EVENT_READ, host)
            selector.register(self._wake_read, selectors.EVENT_READ, None)
            while True:
                timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
                for key, _ in selector.select(timeout):
                    if key.data is None:
                        return
                    for _ in range(64):
                        try:
                            frame, where = self._sockets[key.data].recvfrom(_FRAME_BYTES)
                        except BlockingIOError:
                            break
                        if where[2] == socket.PACKET_OUTGOING:
                            continue
                        target = self._target(key.data, frame)
                        if target is None:
                            continue
                        delay_s = self.delays.get((key.data, target), self.delay_s)
                        if delay_s and len(waiting) < _MAX_DELAYED:
                            count += 1
                            heapq.heappush(waiting, (time.monotonic() + delay_s, count, target, frame))
                        else:
                            self._forward(target, frame)
                now = time.monotonic()
                while waiting and waiting[0][0] <= now:
                    _, _, target, frame = heapq.heappop(waiting)
                    self._forward(target, frame)

    def _target(self, host: str, frame: bytes) -> str | None:
        if len(frame) < 34 or struct.unpack_from("!H", frame, 12)[0] != _ETH_P_IP:
            return None
        target = self._of_address.get(frame[30:34])
        if target is None or target == host:
            return None
        if (host, target) in self.cut or (self.loss and self._rng.random() < self.loss):
            self.lost += 1
            return None
        if self.resets and self._rng.random() < self.resets and (pair := resets_for(frame)) is not None:
            self.reset += 1
            self._forward(target, pair[0])
            self._forward(host, pair[1])
            return None
        return target

    def _forward(self, target: str, frame: bytes) -> None:
        self.forwarded += 1
        with contextlib.suppress(OSError):
            self._sockets[target].send(frame)


def resets_for(frame: bytes) -> tuple[bytes, bytes] | None:
    """RSTs that end the TCP connection of an Ethernet frame: one for its receiver, one for its sender. None: it is of no
    connection, or carries no data.

    Each has the sequence number that its receiver expects next, without which a kernel does not believe it.
    """
    ip, transport = frame[14:34], 14 + (frame[14] & 0xF) * 4
    size = int.from_bytes(ip[2:4])
    if ip[9] != socket.IPPROTO_TCP or len(frame) < transport + 20:
        return None
    source, target, sequence, acknowledged, offset_flags = struct.unpack_from("!HHIIH", frame, transport)
    data = 14 + size - transport - (offset_flags >> 12) * 4
    if data <= 0 or offset_flags & (_SYN | _RST) or not offset_flags & _ACK:
        return None
    to_receiver = _reset(frame[:12], ip[12:16], ip[16:20], source, target, sequence, acknowledged)
    to_sender = _reset(
        frame[6:12] + frame[:6], ip[16:20], ip[12:16], target, source, acknowledged, (sequence + data) & 0xFFFFFFFF
    )
    return to_receiver, to_sender


def _reset(
    macs: bytes, source: bytes, target: bytes, source_port: int, target_port: int, sequence: int, acknowledged: int
) -> bytes:
    """A frame from `source` (address) to `target`. `macs`: the target's, then the source's."""
    tcp = struct.pack("!HHIIHHHH", source_port, target_port, sequence, acknowledged, 5 << 12 | _RST | _ACK, 0, 0, 0)
    tcp = tcp[:16] + _checksum(source + target + struct.pack("!HH", socket.IPPROTO_TCP, len(tcp)) + tcp) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, socket.IPPROTO_TCP, 0) + source + target
    return macs + struct.pack("!H", _ETH_P_IP) + ip[:10] + _checksum(ip) + ip[12:] + tcp


def _checksum(data: bytes) -> bytes:
    """Of an even number of bytes (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


def _no_offloads(interface: str) -> None:
    import array

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for command in _OFFLOADS_OFF:
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP", interface.encode(), value.buffer_info()[0])
            with contextlib.suppress(OSError):
                fcntl.ioctl(sock, _SIOCETHTOOL, request)


class NetworkedCluster(ProcessCluster):
    """Nodes n1, n2, … and ZooKeeper `zk`, each on a host of its own. Clients are on host ""."""

    def __init__(
        self,
        directory: Path,
        network: VirtualNetwork,
        *,
        nodes: int = 3,
        settings: dict[str, object] | None = None,
        log_dirs: int = 1,
    ) -> None:
        super().__init__(directory, nodes=nodes, settings=settings, log_dirs=log_dirs)
        self.network = network

    def start_zookeeper(self) -> None:
        """On host `zk`."""
        arguments = ["zookeeper", "--dir", str(self.directory / "zookeeper"), "--port", "2181"]
        arguments += ["--host", self.network.addresses["zk"]]
        log_path = self.directory / "zookeeper.log"
        self.zookeeper = Process("zookeeper", arguments, log_path, before=self.network.inside("zk"))
        self.zookeeper.start()

    @property
    def zookeeper_connect(self) -> str:
        return f"{self.network.addresses['zk']}:2181"

    def _node(self, broker_id: int) -> Process:
        host = f"n{broker_id}"
        arguments = ["serve", "--id", str(broker_id), "--zookeeper", self.zookeeper_connect]
        for name, port in (("kafka", 9092), ("rpc", 9093), ("http", 9094)):
            arguments += [f"--{name}", f"{self.network.addresses[host]}:{port}"]
        # Nobody else reaches these hosts.
        arguments += ["--set", "security.open.acknowledged=PLAINTEXT,RPC,HTTP"]
        for number in range(self._log_dirs):
            arguments += ["--log-dir", str(self.directory / f"node-{broker_id}" / f"disk-{number}")]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        log_path = self.directory / f"node-{broker_id}.log"
        return Process(f"node {broker_id}", arguments, log_path, before=self.network.inside(host))
