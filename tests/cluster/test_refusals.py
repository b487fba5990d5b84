"""What `kafkalite serve` refuses: with exit code 2 and one line that says why, and nobody else notices. Settings: tests/unit/cli/test_wrong_settings.py."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.testing.processes import ProcessCluster
from tests.cluster.running import QUICK, eye
from tests.support.commands import Outcome, kafkalite

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One node, with id 1."""
    settings = QUICK | {"zookeeper.session.timeout.ms": 1_000}
    with ProcessCluster(tmp_path_factory.mktemp("refusals"), nodes=1, settings=settings) as made:
        yield made


def serve(zookeeper: str, log_dir: Path, *more: str, broker_id: int = 1) -> Outcome:
    """Run a node that is expected to refuse."""
    arguments = ["serve", "--id", str(broker_id), "--zookeeper", zookeeper, "--log-dir", str(log_dir)]
    arguments += ["--rpc", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--set", "http.port=-1"]
    return kafkalite(*arguments, *more)


def complaint(outcome: Outcome, *, code: int = 2) -> str:
    """The one line for people; what else is on stderr is the log."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("kafkalite")]
    assert "Traceback" not in outcome.err
    assert "NoneType" not in outcome.err
    return line


def test_addresses_that_no_client_can_use(cluster: ProcessCluster, tmp_path: Path) -> None:
    for more, wanted in (
        (("--kafka", "0.0.0.0:0", "--rpc", "0.0.0.0:0"), "set advertised.listeners=PLAINTEXT://HOST:PORT"),
        (("--set", "advertised.listeners=PLAINTEXT://0.0.0.0:9092"), "advertised.listeners: no client can connect to"),
        (("--set", "listeners=PLAINTEXT://127.0.0.1:0"), "listeners is set: remove kafka.port"),
    ):
        assert wanted in complaint(serve(cluster.zookeeper_connect, tmp_path, *more, broker_id=2))
    assert not any(tmp_path.iterdir())


def test_a_second_node_with_the_same_id_is_refused_and_the_first_goes_on(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    with eye(cluster.zookeeper_connect) as zk:
        before = zk.stat("/brokers/ids/1").czxid
        flags = ("--set", "zookeeper.session.timeout.ms=1000")
        line = complaint(serve(cluster.zookeeper_connect, tmp_path / "other", *flags))
        assert "broker id 1 is in use" in line
        assert cluster.nodes[1].ready["rpc"] in line
        assert zk.stat("/brokers/ids/1").czxid == before
        assert zk.controller() == 1
    made = kafkalite("admin", "create-topic", "still-here", "--json", bootstrap=cluster.bootstrap)
    assert made.code == 0, made
    assert kafkalite("produce", "still-here", bootstrap=cluster.bootstrap, stdin=b"x\n").out == "1 acked\n"


def test_a_copy_of_a_running_nodes_directory_does_not_take_its_id(cluster: ProcessCluster, tmp_path: Path) -> None:
    """The copy names the running node's session. The second node took it for that of a process that is dead, removed the registration, and the
    first one ended with "broker id 1 is in use"."""
    shutil.copytree(cluster.directory / "node-1" / "disk-0", tmp_path / "copy")
    with eye(cluster.zookeeper_connect) as zk:
        before = zk.stat("/brokers/ids/1").czxid
        line = complaint(
            serve(cluster.zookeeper_connect, tmp_path / "copy", "--set", "zookeeper.session.timeout.ms=1000")
        )
        assert "broker id 1 is in use" in line
        assert zk.stat("/brokers/ids/1").czxid == before
        assert zk.controller() == 1
    assert cluster.nodes[1].running


def test_what_is_found_wrong_only_later_is_one_line_too(cluster: ProcessCluster, tmp_path: Path) -> None:
    flags = ("--set", "zookeeper.auth=nobody")
    line = complaint(serve(cluster.zookeeper_connect, tmp_path / "log", *flags, broker_id=2))
    assert line == "kafkalite: zookeeper.auth: not USER:PASSWORD"


def test_an_address_in_use_is_refused(cluster: ProcessCluster, tmp_path: Path) -> None:
    """With 1, not 2: it may be free in a moment, so that systemd tries again. The next start need not recover the logs."""
    address = cluster.nodes[1].ready["rpc"]
    (tmp_path / "log").mkdir()
    marker = tmp_path / "log" / ".kafka_cleanshutdown"
    marker.write_bytes(b'{"version":0,"brokerEpoch":1}')
    outcome = serve(cluster.zookeeper_connect, tmp_path / "log", "--rpc", address, broker_id=2)
    assert (
        complaint(outcome, code=1)
        == f"kafkalite: cannot listen on {address} (rpc.port): Address already in use; --rpc chooses another address"
    )
    assert marker.exists()


def test_a_directory_in_use_is_refused(cluster: ProcessCluster) -> None:
    directory = cluster.directory / "node-1" / "disk-0"
    line = complaint(serve(cluster.zookeeper_connect, directory, broker_id=2))
    assert line == f"kafkalite: log.dirs: {directory} is in use by another process"
    assert cluster.nodes[1].running


def _copy_of_a_running_nodes(source: Path, target: Path) -> None:
    """A directory, without what is renamed or removed meanwhile."""

    def copy(one: str, other: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(one, other)

    shutil.copytree(source, target, copy_function=copy)


def test_the_directory_of_another_node_is_refused(cluster: ProcessCluster, tmp_path: Path) -> None:
    _copy_of_a_running_nodes(cluster.directory / "node-1" / "disk-0", tmp_path / "copy")
    line = complaint(serve(cluster.zookeeper_connect, tmp_path / "copy", broker_id=2))
    assert line == f"kafkalite: log.dirs: {tmp_path / 'copy'} belongs to broker 1, this is broker 2"


@pytest.mark.parametrize("rubbish", [b"rubbish", b"\xff", b"", b"[]", b'{"version":"1"}', b'{"version":"1","id":""}'])
def test_rubbish_in_the_place_of_the_clusters_id_is_refused(
    cluster: ProcessCluster, rubbish: bytes, tmp_path: Path
) -> None:
    with eye(cluster.zookeeper_connect) as zk:
        root = f"/rubbish-{rubbish.hex()}"
        zk.client.create(f"{root}/cluster/id", rubbish, makepath=True)
    line = complaint(serve(cluster.zookeeper_connect + root, tmp_path / "log"))
    assert "/cluster/id" in line and "which cluster" in line
    assert not (tmp_path / "log").exists()


def test_the_directory_of_another_cluster_is_refused(cluster: ProcessCluster, tmp_path: Path) -> None:
    """Another chroot is another cluster. What is in the directory stays."""
    copy = tmp_path / "copy"
    _copy_of_a_running_nodes(cluster.directory / "node-1" / "disk-0", copy)
    before = sorted(path.relative_to(copy) for path in copy.rglob("*"))
    line = complaint(serve(f"{cluster.zookeeper_connect}/elsewhere", copy))
    assert f"log.dirs: {copy} belongs to cluster " in line
    with eye(cluster.zookeeper_connect) as zk:
        here, there = zk.json("/cluster/id")["id"], zk.json("/elsewhere/cluster/id")["id"]
        assert zk.json("/elsewhere/brokers/ids/1") is None
    assert here != there
    assert line.endswith(f"belongs to cluster {here}, this is cluster {there}")
    assert sorted(path.relative_to(copy) for path in copy.rglob("*")) == before


def test_an_address_in_use_ends_the_node_with_one_line(cluster: ProcessCluster, tmp_path: Path) -> None:
    taken = cluster.nodes[1].ready["rpc"]
    outcome = serve(
        cluster.zookeeper_connect, tmp_path / "log", "--set", f"rpc.port={taken.rpartition(':')[2]}", broker_id=7
    )
    assert outcome.code == 1
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("kafkalite")]
    assert taken.rpartition(":")[2] in line
    with eye(cluster.zookeeper_connect) as zk:
        assert zk.stat("/brokers/ids/7") is None
