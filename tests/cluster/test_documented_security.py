"""docs/security.md, followed literally, gives a cluster on which outsiders find nothing; on an open one they find a lot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kafkalite.testing.certificates import Authority
from kafkalite.testing.processes import Process, ProcessCluster
from kafkalite.testing.scan import scan
from tests.cluster.running import QUICK, wait_until
from tests.support.commands import ROOT, kafkalite
from tests.zk import ZooKeeperForTests

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]


def _documented(directory: Path) -> str:
    """The node's configuration and the authorizer's, from the page; only the paths are other ones."""
    text = (ROOT / "docs" / "security.md").read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    node: str = next(block for block in blocks if '"zookeeper.set.acl" = true' in block)
    rights: str = next(block for block in blocks if block.startswith("authorizer.enabled = true"))
    return (node + rights).replace("/etc/kafkalite", str(directory))


def test_the_page_gives_a_closed_cluster(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    files = {
        "node1.pem": Path(authority.issue("node")).read_text(),
        "authority.pem": Path(authority.truststore).read_text(),
        "node.password": "hush\n",
        "zookeeper.auth": "nodes:zk-hush\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    where = zookeeper.chroot("documented")
    config = tmp_path / "node1.toml"
    config.write_text(_documented(tmp_path))
    for user in ("node", "admin", "nobody"):
        made = kafkalite("admin", "users", "set", user, "--zookeeper", where, "--config", str(config), stdin=b"hush\n")
        assert made.code == 0, made.err
        (tmp_path / f"{user}.toml").write_text(
            '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "SCRAM-SHA-512"\n'
            f'"ssl.truststore.location" = "{tmp_path}/authority.pem"\n"sasl.username" = "{user}"\n"sasl.password" = "hush"\n'
        )
    flags = [
        "--kafka",
        "127.0.0.1:0",
        "--rpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--log-dir",
        str(tmp_path / "log"),
    ]
    node = Process(
        "node 1", ["serve", "--id", "1", "--config", str(config), "--zookeeper", where, *flags], tmp_path / "node.log"
    )
    try:
        ready = node.start()
        by = ["--bootstrap", ready["kafka"], "--client-config", str(tmp_path / "admin.toml")]
        assert kafkalite("admin", "create-topic", "secret", *by).code == 0
        wait_until(lambda: kafkalite("admin", "health", *by).code == 0, "health without a problem")
        lines = [json.loads(line) for line in (tmp_path / "node.log").read_text().splitlines()]
        warnings = {line["event"] for line in lines if line["level"] == "warning"}
        busy = {"zookeeper.waits", "zookeeper.away", "zookeeper.unreachable", "isr.tick_late", "loop.held"}
        assert warnings <= busy  # nothing about security
        found = scan(ready["kafka"], ready["rpc"], ready["http"], where, str(tmp_path / "nobody.toml"))
        assert found == []
        assert not [path for path in (tmp_path / "log").rglob("*") if path.stat().st_mode & 0o007]  # other users' part
    finally:
        node.kill()


def test_an_open_cluster_is_found(zookeeper: ZooKeeperForTests, tmp_path: Path) -> None:
    settings = {key: value for key, value in QUICK.items() if key != "http.port"}
    where = zookeeper.chroot("open")
    (tmp_path / "nobody.toml").write_text("")
    with ProcessCluster(tmp_path / "cluster", nodes=1, settings=settings, zookeeper=where) as cluster:
        ready = cluster.nodes[1].ready
        found = scan(ready["kafka"], ready["rpc"], ready["http"], where, str(tmp_path / "nobody.toml"))
    for text in (
        "answers Metadata in plain text",
        "without a login",
        "anybody may change /config/users",
        "create-topic",
    ):
        assert any(text in each for each in found), (text, found)
