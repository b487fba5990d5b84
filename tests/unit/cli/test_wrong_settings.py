"""Settings, files, variables and flags that `kafkalite serve` refuses: with exit code 2 and one line, before anything is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite_cli.main import run

Serve = Callable[..., str]


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Returns the line."""
    monkeypatch.setenv("KAFKALITE_ZOOKEEPER_CONNECT", "127.0.0.1:1")

    def refused(*arguments: str) -> str:
        try:
            code: object = run(["serve", *arguments])
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert (code, said.out, said.err.count("\n")) == (2, "", 1), said
        assert said.err.startswith("kafkalite") and "NoneType" not in said.err
        return said.err

    return refused


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
        ("super.users=ann", "super.users"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(setting: str, says: str, serve: Serve, tmp_path: Path) -> None:
    assert says in serve("--id", "1", "--log-dir", str(tmp_path / "log"), "--set", setting)
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
def test_a_wrong_configuration_file_is_refused(text: str, says: str, serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "kafkalite.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert says in serve("--id", "1", "--config", str(path))


def test_a_wrong_variable_is_refused_and_a_flag_wins_over_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKALITE_NUM_PARTITIONS", "0")
    assert "num.partitions: 0 is not within 1.." in serve("--id", "1")
    assert "num.partitions: -3 is not within 1.." in serve("--id", "1", "--set", "num.partitions=-3")


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
def test_a_wrong_flag_is_refused_by_its_name(arguments: tuple[str, ...], says: str, serve: Serve) -> None:
    assert says in serve(*arguments)


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
def test_a_half_secured_node_does_not_start(settings: tuple[str, ...], says: str, serve: Serve) -> None:
    flags = [part for setting in ("host=10.9.9.1", *settings) for part in ("--set", setting)]
    assert says in serve("--id", "1", *flags)
