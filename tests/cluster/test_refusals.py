"""What `kafkalite serve` refuses: with exit code 2 and one line that says why, and nobody else notices."""

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


def serve(
    zookeeper: str, log_dir: Path, *more: str, broker_id: int = 1, environ: dict[str, str] | None = None
) -> Outcome:
    """Run a node that is expected to refuse."""
    arguments = ["serve", "--id", str(broker_id), "--zookeeper", zookeeper, "--log-dir", str(log_dir)]
    arguments += ["--rpc", "127.0.0.1:0", "--kafka", "127.0.0.1:0", "--set", "http.port=-1"]
    return kafkalite(*arguments, *more, environ=environ)


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


@pytest.mark.checklist("F13")
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("log.segmnt.bytes=1", "log.segmnt.bytes: no such configuration"),
        (f"retention.ms={2**63}", f"retention.ms: {2**63} is not within -1..{2**63 - 1}"),
        ("num.partitions=many", "num.partitions: 'many' is not an integer"),
        ("auto.create.topics.enable=perhaps", "auto.create.topics.enable: 'perhaps' is not true or false"),
        ("min.insync.replicas=0", "min.insync.replicas: 0 is not within 1.."),
        ("cleanup.policy=shred", "cleanup.policy: 'shred' is not one of"),
        ("zookeeper.session.timeout.ms=30000", "zookeeper.session.timeout.ms (30000) must be below replica.lag.time"),
        ("replica.lag.time.max.ms=18000", "zookeeper.session.timeout.ms (18000) must be below replica.lag.time.max.ms"),
        ("rpc.port=70000", "rpc.port: 70000 is not within 0..65535"),
        ("no-equals-sign", "--set: 'no-equals-sign' is not key=value"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(setting: str, says: str, tmp_path: Path) -> None:
    outcome = serve("127.0.0.1:1", tmp_path / "log", "--set", setting)
    assert says in complaint(outcome)
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[log]\nsegmnt.bytes = 1\n", "log.segmnt.bytes: no such configuration"),
        ("num.partitions = 1.5\n", "num.partitions: 1.5 is not an integer"),
        ('log.dirs = ["/a", 7]\n', "log.dirs"),
        ('log.dirs = [""]\n', "log.dirs: [''] is not a list of names"),
        ("num.partitions = \n", "configuration file: "),
        ("\udcff", "configuration file: "),
    ],
)
def test_a_wrong_configuration_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "kafkalite.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    arguments = ["serve", "--id", "1", "--zookeeper", "127.0.0.1:1", "--config", str(path)]
    outcome = kafkalite(*arguments)
    assert says in complaint(outcome)
    assert outcome.err.count("\n") == 1


def test_a_wrong_variable_is_refused_and_a_flag_wins_over_it(tmp_path: Path) -> None:
    wrong = {"KAFKALITE_NUM_PARTITIONS": "0"}
    line = complaint(serve("127.0.0.1:1", tmp_path / "log", environ=wrong))
    assert "num.partitions: 0 is not within 1.." in line
    line = complaint(serve("127.0.0.1:1", tmp_path / "log", "--set", "num.partitions=-3", environ=wrong))
    assert "num.partitions: -3 is not within 1.." in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--id", "-1"), "--id"),
        (("--id", "one"), "--id"),
        ((), "--id"),
        (("--id", "1", "--rpc", "nohost"), "--rpc"),
        (("--id", "1", "--rpc", "127.0.0.1:99999"), "--rpc"),
        (("--id", "1", "--zookeeper", "host:port:port"), "zookeeper.connect"),
        (("--id", "1", "--zookeeper", ""), "zookeeper.connect"),
        (("--id", "1", "--config", "/does/not/exist"), "--config"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_name(arguments: tuple[str, ...], says: str) -> None:
    outcome = kafkalite("serve", *arguments)
    assert says in complaint(outcome)
    assert outcome.err.count("\n") == 1


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


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            (
                "listener.security.protocol=SSL",
                "ssl.keystore.location=x",
                "ssl.client.auth=required",
                "rpc.security.protocol=PLAINTEXT",
            ),
            "rpc.security.protocol is PLAINTEXT at 10.9.9.1",
        ),
        (("authorizer.enabled=true",), "nodes do not authenticate on listener PLAINTEXT"),
        (("security.open.acknowledged=KAFKA",), "there is no listener KAFKA"),
    ],
)
def test_a_half_secured_node_does_not_start(settings: tuple[str, ...], says: str) -> None:
    flags = [part for setting in ("host=10.9.9.1", *settings) for part in ("--set", setting)]
    outcome = kafkalite("serve", "--id", "1", "--zookeeper", "127.0.0.1:1", *flags)
    assert says in complaint(outcome)
    assert outcome.err.count("\n") == 1
