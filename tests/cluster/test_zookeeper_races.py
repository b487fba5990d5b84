"""A stranger's ZooKeeper client that reads and makes everything it can, all the time: while the tree is closed, while nodes start, and
while znodes are deleted and made again. What is closed stays closed, and nothing secret can be read after that."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from kafkalite.coordination import paths
from kafkalite.coordination.zk_acl_codec import is_private
from kafkalite.coordination.znode_acls import ROOTS
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, wait_until
from tests.cluster.test_zookeeper_acls import Stranger, _node_config
from tests.support.commands import kafkalite
from tests.support.secured import PASSWORDS, SecuredCluster
from tests.zk import ZooKeeperForTests

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

#: Where others would stop the cluster instead of waiting for its secrets.
_LEFT_ALONE = (paths.CONTROLLER, "/brokers", "/admin", paths.LATEST_PRODUCER_ID_BLOCK)
_MINE = [make_digest_acl("attacker", "hush", all=True), make_acl("world", "anyone", read=True)]


class Attacker:
    """Its thread goes round until it is stopped.

    Attributes:
        read: (path, when the request began) of secrets that it has read.
        made: znodes that it has made.
        rounds: how often it has tried everything.
    """

    def __init__(self, connect: str, acl: Sequence[ACL] = ()) -> None:
        self._client = KazooClient(connect.partition("/")[0], timeout=30)
        self._root = f"/{connect.partition('/')[2]}".rstrip("/")
        self._acl = acl
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.read: list[tuple[str, float]] = []
        self.made: list[str] = []
        self.rounds = 0

    def __enter__(self) -> Self:
        self._client.start(timeout=60)
        self._client.add_auth("digest", "attacker:hush")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._client.stop()
        self._client.close()

    def goes_round(self) -> None:
        """Return when it has tried everything twice more."""
        wanted = self.rounds + 2
        wait_until(lambda: self.rounds >= wanted, "two more rounds of the attacker")

    def _run(self) -> None:
        while not self._stopped.is_set():
            for root in ROOTS:
                self._visit(root, 4)
            self.rounds += 1

    def _visit(self, path: str, depth: int) -> None:
        self._make(path)
        began = time.monotonic()
        try:
            self._client.get(self._root + path)
            if is_private(path) and path not in (paths.CONFIG_USERS, paths.CONFIG_BROKERS, paths.TOKENS):
                self.read.append((path, began))
        except KazooException:
            pass
        if not depth or self._stopped.is_set():
            return
        if self._acl:
            self._make(f"{path}/x")
        try:
            names = self._client.get_children(self._root + path)
        except KazooException:
            return
        for name in names:
            self._visit(f"{path}/{name}", depth - 1)

    def _make(self, path: str) -> None:
        if not self._acl or len(self.made) >= 200 or path.startswith(_LEFT_ALONE):
            return
        try:
            self._client.create(self._root + path, b"", acl=list(self._acl))
            self.made.append(path)
        except KazooException:
            return


@pytest.mark.parametrize("acl", [OPEN_ACL_UNSAFE, _MINE], ids=["open", "its own"])
def test_a_tree_is_closed_under_attack(zookeeper: ZooKeeperForTests, tmp_path: Path, acl: Sequence[ACL]) -> None:
    where = zookeeper.chroot("raced")
    config = _node_config(tmp_path)
    with ProcessCluster(tmp_path / "cluster", nodes=1, settings=QUICK, zookeeper=where) as cluster:
        for name in ("t", "u"):
            assert kafkalite("admin", "create-topic", name, bootstrap=cluster.bootstrap).code == 0
        made = kafkalite("admin", "users", "set", "alice", bootstrap=cluster.bootstrap, stdin=b"hush\n")
        assert made.code == 0, made.err
        cluster.nodes[1].terminate()
        cluster.settings |= {"zookeeper.auth": f"file:{tmp_path}/zookeeper.secret", "zookeeper.set.acl": "true"}
        with Attacker(where, acl) as attacker:
            cluster.restart(1)
            attacker.goes_round()
            assert ("/config/users/alice" in {path for path, _ in attacker.read}) and attacker.made
            secured = kafkalite("admin", "zookeeper", "secure", "--zookeeper", where, "--config", config)
            closed = time.monotonic()
            is_owned = acl is _MINE
            assert secured.code == (2 if is_owned else 0), secured.err
            attacker.goes_round()
            count = len(attacker.made)
            made = kafkalite("admin", "users", "set", "alice", bootstrap=cluster.bootstrap, stdin=b"new\n")
            assert made.code == 0, made.err
            for verb in (("delete-topic", "u", "--yes"), ("create-topic", "v"), ("users", "delete", "alice", "--yes")):
                assert kafkalite("admin", *verb, bootstrap=cluster.bootstrap).code == 0
            made = kafkalite("admin", "users", "set", "alice", bootstrap=cluster.bootstrap, stdin=b"again\n")
            assert made.code == 0, made.err
            cluster.nodes[1].kill()
            cluster.restart(1)
            attacker.goes_round()
        late = {path for path, began in attacker.read if began > closed}
        mine = set(attacker.made)
        assert not {path for path in late if path not in mine}
        beyond = {path for path in attacker.made[count:] if path.rpartition("/")[0] not in mine}
        assert not beyond, "only below what it had made before is there room for it"
        checked = kafkalite("admin", "zookeeper", "check", "--zookeeper", where, "--config", config, "--json")
        assert checked.code == (1 if is_owned else 0), checked.out
        if is_owned:
            assert checked.json["others"] and not checked.json["changeable"]
            assert "/kafka-acl" in checked.json["others"], "who owns this one owns the cluster's rules"
        else:
            with Stranger(where) as stranger:
                assert stranger.changeable() == []


def test_secrets_that_are_deleted_and_made_again(tmp_path: Path) -> None:
    """Users, tokens, settings of brokers, registrations: closed in the moment in which they are made."""
    secret = tmp_path / "token.secret"
    secret.write_text("the nodes' secret of tokens\n")
    secret.chmod(0o600)
    settings = {"delegation.token.secret.key": f"file:{secret}"}
    with (
        SecuredCluster(tmp_path / "c", "SASL_SSL", settings) as cluster,
        Attacker(cluster.zookeeper_connect, OPEN_ACL_UNSAFE) as attacker,
    ):
        admin = cluster.client_config("admin")
        for _ in range(3):
            cluster.command("admin", "users", "set", "alice", client_config=admin, stdin=PASSWORDS["alice"])
            cluster.command("admin", "config", "set", "--broker", "1", "max.connections=500", client_config=admin)
            cluster.command("admin", "tokens", "create", client_config=admin)
            cluster.command("admin", "create-topic", "t", client_config=admin)
            attacker.goes_round()
            cluster.command("admin", "users", "delete", "alice", "--yes", client_config=admin)
            cluster.command("admin", "config", "delete", "--broker", "1", "max.connections", client_config=admin)
            cluster.command("admin", "delete-topic", "t", "--yes", client_config=admin)
        cluster.nodes[2].kill()
        cluster.restart(2)
        attacker.goes_round()
        assert attacker.read == [] and attacker.made == []
