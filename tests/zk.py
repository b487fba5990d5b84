"""A real ZooKeeper for tests: one server per test session, a chroot of its own for every test that asks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.coordination.embedded import EmbeddedZooKeeper, cache_directory

_numbers = itertools.count(1)


class ZooKeeperForTests:
    """The shared server; do not stop it (a test that kills servers starts its own EmbeddedZooKeeper)."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self.server = server

    @property
    def host(self) -> str:
        return self.server.host

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def connect(self) -> str:
        """host:port, without chroot."""
        return self.server.connect

    def chroot(self, name: str = "test") -> str:
        """A connect string with a chroot that nobody else has; Coordinators make it when they connect."""
        return f"{self.connect}/{name}-{next(_numbers)}"


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperForTests]:
    """The shared real server: .connect, .port, .chroot(name)."""
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    server = EmbeddedZooKeeper(directory, force_sync=False, class_cache=cache_directory())
    server.start(deadline_s=150)
    yield ZooKeeperForTests(server)
    server.stop()
