"""Two hosts behind address translation, and a client on each side of it.

With network namespaces and nftables where this machine allows them: the outside has no route to the hosts' own addresses, and
the hosts know nothing of the outside ones. Elsewhere with a proxy that has an address of its own for each host.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import threading
from types import TracebackType
from typing import NamedTuple, Self

from kafkalite.testing.apache_kafka import free_ports

KAFKA_INSIDE, KAFKA_OUTSIDE, RPC, HTTP = 9092, 9094, 9192, 9292


class Host(NamedTuple):
    """Where a node runs. `before`: in front of its command. `inside`: its own address; `outside`: what the others use."""

    before: tuple[str, ...]
    inside: str
    outside: str
    #: (inside port, port that is bound for the outside, port that the outside uses, port of RPC)
    ports: tuple[int, int, int, int]
    #: Of the console: (the port that is bound, the one that the outside uses).
    console: tuple[int, int]


class Translation:
    """`hosts`: of the nodes. `before_inside`, `before_outside`: in front of the clients' commands. A context manager."""

    hosts: tuple[Host, ...]
    before_inside: tuple[str, ...] = ()
    before_outside: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it."""


def translation() -> Translation:
    """The best that this machine can do."""
    return Namespaces() if _has_namespaces() else Proxies()


def _has_namespaces() -> bool:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft", "nsenter", "unshare"))):
        return False
    script = 'nft add table ip t && nft add chain ip t c "{ type nat hook prerouting priority -100 ; }"'
    return subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, check=False).returncode == 0


class Namespaces(Translation):
    """A gateway with a leg to each host, one to a client inside and one to a client outside; nftables translates."""

    def __init__(self) -> None:
        self._tag = f"t{os.getpid() % 100_000}"
        self._names: list[str] = []
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        gateway = self._add("g")
        legs = (("a", "10.55.1"), ("b", "10.55.2"), ("i", "10.55.3"), ("o", "198.51.100"))
        for number, (host, net) in enumerate(legs):
            name = self._add(host)
            near, far = f"{self._tag}n{number}", f"{self._tag}f{number}"
            _ip("link", "add", near, "netns", gateway, "type", "veth", "peer", "name", far, "netns", name)
            _ip("-n", gateway, "addr", "add", f"{net}.1/24", "dev", near)
            _ip("-n", gateway, "link", "set", near, "up")
            _ip("-n", name, "addr", "add", f"{net}.2/24", "dev", far)
            _ip("-n", name, "link", "set", far, "up")
            if host != "o":  # the outside knows its own network only
                _ip("-n", name, "route", "add", "default", "via", f"{net}.1")
        self._in(gateway, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        self._in(gateway, "nft", "add", "table", "ip", "t")
        self._in(gateway, "nft", "add chain ip t pre { type nat hook prerouting priority -100 ; }")
        outside = f"{self._tag}n3"
        hosts = []
        for number, host in enumerate(("a", "b"), 1):
            port = 19090 + number
            inside = f"10.55.{number}.2"
            console = 19290 + number
            for there, here in ((port, KAFKA_OUTSIDE), (console, HTTP)):
                rule = f"add rule ip t pre iifname {outside} tcp dport {there} dnat to {inside}:{here}"
                self._in(gateway, "nft", rule)
            ports = (KAFKA_INSIDE, KAFKA_OUTSIDE, port, RPC)
            hosts.append(Host(self._before(host), inside, "198.51.100.1", ports, (HTTP, console)))
        self.hosts = tuple(hosts)
        self.before_inside, self.before_outside = self._before("i"), self._before("o")

    def _add(self, host: str) -> str:
        name = self._tag + host
        _ip("netns", "add", name)
        self._names.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        return name

    def _before(self, host: str) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self._tag}{host}", "--")

    def _in(self, name: str, *command: str) -> None:
        subprocess.run(["nsenter", f"--net=/run/netns/{name}", "--", *command], check=True, capture_output=True)

    def close(self) -> None:
        """Interfaces go with their namespaces."""
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Proxies(Translation):
    """One thread that forwards 127.X.Y.N to 127.0.0.1; nobody outside is given the inside address. X and Y are this process's own: two of
    these may be there at once."""

    def __init__(self) -> None:
        free = free_ports(8)
        pid = os.getpid()
        self.hosts = tuple(
            Host(
                (),
                "127.0.0.1",
                f"127.{64 + pid % 128}.{pid // 128 % 256}.{number}",
                (free[3 * number - 3], free[3 * number - 2], KAFKA_OUTSIDE, free[3 * number - 1]),
                (free[5 + number], HTTP),
            )
            for number in (1, 2)
        )
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        for host in self.hosts:
            for there, here in ((KAFKA_OUTSIDE, host.ports[1]), (HTTP, host.console[0])):
                listener = socket.create_server((host.outside, there))
                self._selector.register(listener, selectors.EVENT_READ, (host.inside, here))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                sock, what = key.fileobj, key.data
                assert isinstance(sock, socket.socket)
                if what is None:
                    return
                if isinstance(what, tuple):
                    self._accept(sock, what)
                else:
                    self._copy(sock, what)

    def _accept(self, listener: socket.socket, to: tuple[str, int]) -> None:
        client, _ = listener.accept()
        try:
            there = socket.create_connection(to, 10)
        except OSError:
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ, there)
        self._selector.register(there, selectors.EVENT_READ, client)

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data:
                sink.sendall(data)
                return
        except OSError:
            pass
        for each in (source, sink):
            with contextlib.suppress(KeyError, ValueError):  # closed by the other direction in the same turn
                self._selector.unregister(each)
            each.close()

    def close(self) -> None:
        self._wake.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._wake.close()
        self._selector.close()
