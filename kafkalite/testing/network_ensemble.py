"""An ensemble of ZooKeeper servers, each on a host of its own (`network`), and nodes on others."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory
from kafkalite.testing.network import NetworkedCluster, VirtualNetwork

#: A loaded machine runs a JVM, an election and a copy of all data in this time.
_ELECTION_S = 240.0
#: For an answer to a four-letter command.
_ANSWER_S = 5.0
_PORT = 2181
_HEAP_MB = 64


class HostedZooKeeper(EmbeddedZooKeeper):
    """A server in the network namespace of its host.

    Args:
        name: of its host.
        before: what to put before its command.
    """

    def __init__(
        self, name: str, directory: Path, *, host: str, my_id: int, members: Sequence[str], before: Sequence[str]
    ) -> None:
        super().__init__(
            directory,
            _PORT,
            host=host,
            my_id=my_id,
            members=members,
            class_cache=cache_directory(),
            max_heap_mb=_HEAP_MB,
        )
        self.name = name
        self._before = list(before)
        self._copy = directory / "copy"

    def _arguments(self, java: Path, version: int, jars: Sequence[Path]) -> list[str]:
        return [*self._before, *super()._arguments(java, version, jars)]

    def _can_bind(self) -> bool:
        return True  # only on its own host; nothing else runs there

    def command(self, word: str) -> str:
        """See EmbeddedZooKeeper; with more patience, because each frame passes through Python."""
        answer = b""
        try:
            with socket.create_connection((self.host, self.port), _ANSWER_S) as probe:
                probe.sendall(word.encode())
                while chunk := probe.recv(65536):
                    answer += chunk
        except OSError:
            return ""
        return answer.decode(errors="replace")

    def mode(self) -> str:
        """leader or follower; "" if it does not serve."""
        lines = [line for line in self.command("srvr").splitlines() if line.startswith("Mode: ")]
        return lines[0].removeprefix("Mode: ") if lines else ""

    def await_serving(self) -> None:
        """Raises TimeoutError."""
        until = time.monotonic() + _ELECTION_S
        while not self.mode():
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name} does not serve")
            time.sleep(0.1)

    def copy_data(self) -> None:
        """Keep its snapshots and logs as they are now. It must not run."""
        assert not self.running
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self.directory / "data", self._copy)

    def put_back(self) -> None:
        """Give it the data that `copy_data` has kept. It must not run; the others have all data, and send what is missing."""
        assert not self.running
        shutil.rmtree(self.directory / "data")
        shutil.copytree(self._copy, self.directory / "data")


class EnsembleNetwork(NetworkedCluster):
    """Nodes n1, n2, … and ZooKeeper servers zk1, zk2, …, each on a host of its own. Nodes connect to any of the servers.

    Start it on the thread that stays: the kernel ends the servers with it.
    """

    def __init__(
        self,
        directory: Path,
        network: VirtualNetwork,
        *,
        servers: int = 3,
        nodes: int = 3,
        settings: Mapping[str, object] | None = None,
        log_dirs: int = 1,
    ) -> None:
        super().__init__(directory, network, nodes=nodes, settings=dict(settings or {}), log_dirs=log_dirs)
        names = [f"zk{number}" for number in range(1, servers + 1)]
        members = [f"{network.addresses[name]}:2888:3888" for name in names]
        self.servers = [
            HostedZooKeeper(
                name,
                directory / name,
                host=network.addresses[name],
                my_id=number,
                members=members,
                before=network.inside(name),
            )
            for number, name in enumerate(names, 1)
        ]

    def start_zookeeper(self) -> None:
        """All servers; returns when one leads."""
        for server in self.servers:
            if not server.running:
                server.launch()
        self.await_leader()

    @property
    def zookeeper_connect(self) -> str:
        return ",".join(server.connect for server in self.servers)

    def leader(self) -> HostedZooKeeper | None:
        """The server that leads the ensemble."""
        return next((each for each in self.servers if each.running and each.mode() == "leader"), None)

    def await_leader(self) -> HostedZooKeeper:
        """Raises TimeoutError."""
        until = time.monotonic() + _ELECTION_S
        while (found := self.leader()) is None:
            if time.monotonic() > until:
                raise TimeoutError("the ensemble has no leader")
            time.sleep(0.1)
        return found

    def followers(self) -> list[HostedZooKeeper]:
        """The others, when there is a leader. Raises TimeoutError."""
        leader = self.await_leader()
        return [each for each in self.servers if each is not leader]

    def await_all(self) -> None:
        """All servers serve. Raises TimeoutError."""
        for server in self.servers:
            if not server.running:
                server.launch()
        for server in self.servers:
            server.await_serving()

    def close(self) -> None:
        """kill -9 to all."""
        super().close()
        for server in self.servers:
            server.kill()
