"""A cluster that began in plain text is closed by one command; what commands write before the first node is closed from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from kafkalite.env.real import real_env
from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, wait_until
from tests.support.commands import kafkalite
from tests.zk import ZooKeeperForTests

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

_CHANGE = 2 | 4 | 8 | 16


def _node_config(directory: Path) -> str:
    secret = directory / "zookeeper.secret"
    secret.write_text("nodes:zk-hush\n")
    path = directory / "node.toml"
    path.write_text(
        f'"zookeeper.auth" = "file:{secret}"\n"zookeeper.set.acl" = true\n"ssl.keystore.location" = "elsewhere"\n'
    )
    return str(path)


class Stranger:
    """A ZooKeeper client without credentials."""

    def __init__(self, connect: str) -> None:
        self.client = KazooClient(connect.partition("/")[0], timeout=30)
        self.client.start(timeout=60)
        self.root = "/" + connect.partition("/")[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop()
        self.client.close()

    def everything(self) -> list[str]:
        """Every znode of the cluster that can be found without credentials."""
        found, ahead = [], [self.root]
        while ahead:
            path = ahead.pop()
            found.append(path)
            try:
                ahead += [f"{path}/{name}" for name in self.client.get_children(path)]
            except (NoAuthError, NoNodeError):
                continue
        return found

    def changeable(self) -> list[str]:
        """Those that the stranger may change: by their ACL, and by trying."""
        found = []
        for path in self.everything():
            try:
                acls, _ = self.client.get_acls(path)
                if any(each.id.scheme == "world" and each.perms & _CHANGE for each in acls):
                    found.append(path)
                self.client.create(f"{path}/mine")
                self.client.delete(f"{path}/mine")
                found.append(f"{path}/mine")
            except (NoAuthError, NoNodeError):
                continue
            except Exception as error:  # an ephemeral has no children: it is refused for that reason only if it is open
                if type(error).__name__ != "NoChildrenForEphemeralsError":
                    raise
                found.append(path)
        return found


def test_the_first_step_is_closed(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    """The nodes' own user is written before any node runs: closed, or the command says what is missing and writes nothing."""
    where = zookeeper.chroot("first")
    with Stranger(where) as stranger:
        refused = kafkalite("admin", "users", "set", "node", "--zookeeper", where, stdin=b"hush\n")
        assert refused.code == 2
        assert "--config" in refused.err
        assert "KAFKALITE_ZOOKEEPER_SET_ACL" in refused.err
        assert stranger.client.exists(stranger.root) is None
        config = _node_config(tmp_path)
        made = kafkalite("admin", "users", "set", "node", "--zookeeper", where, "--config", config, stdin=b"hush\n")
        assert made.code == 0, made.err
        assert stranger.changeable() == []
        with pytest.raises(NoAuthError):
            stranger.client.get(f"{stranger.root}/config/users/node")
        listed = kafkalite("admin", "users", "list", "--zookeeper", where, "--config", config)
        assert "SCRAM-SHA-512" in listed.out


def test_a_chroot_that_is_not_there_is_no_closed_cluster(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    """A mistyped chroot was made, and the report said that nothing in it was open."""
    where, config = zookeeper.chroot("mistyped"), _node_config(tmp_path)
    with Stranger(where) as stranger:
        for verb in (("zookeeper", "check"), ("zookeeper", "secure"), ("users", "list")):
            found = kafkalite("admin", *verb, "--zookeeper", where, "--config", config)
            assert (found.code, found.out) == (2, "")
            assert f"ZooKeeper has no {stranger.root}" in found.err
        assert stranger.client.exists(stranger.root) is None


def test_a_plain_cluster_is_closed_and_opened(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    where = zookeeper.chroot("plain")
    config = _node_config(tmp_path)
    with (
        ProcessCluster(tmp_path / "cluster", nodes=1, settings=QUICK, zookeeper=where) as cluster,
        Stranger(where) as stranger,
    ):
        made = kafkalite("admin", "create-topic", "t", bootstrap=cluster.bootstrap)
        assert made.code == 0, made.err
        made = kafkalite("admin", "users", "set", "alice", bootstrap=cluster.bootstrap, stdin=b"hush\n")
        assert made.code == 0, made.err
        assert f"{stranger.root}/config/users/alice" in stranger.changeable()
        cluster.nodes[1].terminate()
        cluster.settings |= {"zookeeper.auth": f"file:{tmp_path}/zookeeper.secret", "zookeeper.set.acl": "true"}
        cluster.restart(1)

        def health() -> str:
            return kafkalite("admin", "health", bootstrap=cluster.bootstrap).out

        wait_until(lambda: "zookeeper.open" in health(), "health that names the open znodes")
        checked = kafkalite("admin", "zookeeper", "check", "--zookeeper", where, "--config", config, "--json")
        assert checked.code == 1
        assert checked.json["users"] == ["alice"]
        assert "/config/users/alice" in checked.json["changeable"]
        secured = kafkalite("admin", "zookeeper", "secure", "--zookeeper", where, "--config", config)
        assert secured.code == 0, secured.err
        assert "alice" in secured.err
        assert stranger.changeable() == []
        with pytest.raises(NoAuthError):
            stranger.client.get(f"{stranger.root}/config/users/alice")
        with pytest.raises(NoAuthError):
            stranger.client.delete(f"{stranger.root}/config/users/alice")
        wait_until(lambda: "zookeeper.open" not in health(), "health without open znodes")
        made = kafkalite("admin", "create-topic", "u", bootstrap=cluster.bootstrap)
        assert made.code == 0, made.err
        assert stranger.changeable() == []
        checked = kafkalite("admin", "zookeeper", "check", "--zookeeper", where, "--config", config)
        assert checked.code == 0, checked.out
        opened = kafkalite("admin", "zookeeper", "open", "--yes", "--zookeeper", where, "--config", config)
        assert opened.code == 0, opened.err
        assert f"{stranger.root}/config/users/alice" in stranger.changeable()


async def test_a_chroot_that_an_operator_has_made(zookeeper: ZooKeeperForTests) -> None:
    """It is in a directory that only the operator may change. There ZooKeeper refuses even to create what is there."""
    with Stranger(zookeeper.chroot("shared")) as operator:
        closed = [make_digest_acl("operator", "hush", all=True), make_acl("world", "anyone", read=True)]
        operator.client.create(operator.root, acl=closed)
        operator.client.add_auth("digest", "operator:hush")
        operator.client.create(f"{operator.root}/mine", acl=OPEN_ACL_UNSAFE)
    session = await real_env().connect_coordinator(f"{zookeeper.connect}{operator.root}/mine", 6_000)
    await session.ensure_path("/a/b")
    assert (await session.children("/"))[0] == ["a"]
    await session.close()


def test_another_identity_is_refused(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    """`secure` with the wrong credentials says so; without any it does nothing."""
    where = zookeeper.chroot("other")
    config = _node_config(tmp_path)
    made = kafkalite("admin", "users", "set", "node", "--zookeeper", where, "--config", config, stdin=b"hush\n")
    assert made.code == 0, made.err
    none = kafkalite("admin", "zookeeper", "secure", "--zookeeper", where)
    assert none.code == 2
    assert "zookeeper.auth" in none.err
    (tmp_path / "zookeeper.secret").write_text("somebody:else\n")
    other = kafkalite("admin", "zookeeper", "open", "--yes", "--zookeeper", where, "--config", config)
    assert other.code == 2
    assert "zookeeper.auth" in other.err
