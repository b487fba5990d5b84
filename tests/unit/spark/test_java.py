"""Which Java Spark gets, and that a slim one takes Spark's arguments."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from pyspark_kafkalite.java import NoJava, java_home


def fake_java(home: Path, modules: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    java.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="21.0.1"\nMODULES="{modules}"\n')
    return java


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": str(tmp_path / "nothing"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_a_complete_java_is_used_as_it_is(tmp_path: Path, environ: dict[str, str]) -> None:
    fake_java(tmp_path / "jdk", "java.base jdk.incubator.vector")
    assert java_home(environ | {"JAVA_HOME": str(tmp_path / "jdk")}) == str(tmp_path / "jdk")


def test_a_slim_java_is_started_without_the_module_and_with_all_else(tmp_path: Path, environ: dict[str, str]) -> None:
    fake_java(tmp_path / "it's slim", "java.base")
    home = java_home(environ | {"JAVA_HOME": str(tmp_path / "it's slim")})
    assert home.startswith(str(tmp_path / "cache"))
    assert java_home(environ | {"JAVA_HOME": str(tmp_path / "it's slim")}) == home
    arguments = ["--add-modules=jdk.incubator.vector", "-Dnote=two words", "", "Main"]
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, timeout=150, check=True)
    assert told.stdout.splitlines() == ["[-Dnote=two words]", "[]", "[Main]"]


def test_the_wheel_s_java_starts_with_what_spark_asks_for(environ: dict[str, str]) -> None:
    """On a host without Java of its own; the wheel is in the lock."""
    home = java_home(environ)
    arguments = ["--add-modules=jdk.incubator.vector", "-version"]
    told = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, timeout=150, check=False)
    assert told.returncode == 0 and "version" in told.stderr


def test_without_any_the_message_says_what_was_found_and_what_to_install(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoJava, match=r"\(none was found\).*kafkalite\[java\]"):
        java_home(environ)
    old = fake_java(tmp_path / "old", "java.base")
    (tmp_path / "old" / "release").write_text('JAVA_VERSION="11.0.2"\n')
    environ |= {"JAVA_HOME": str(tmp_path / "wrong"), "PATH": str(old.parent)}
    with pytest.raises(NoJava, match=f"{tmp_path}/wrong/bin/java is not usable; {old} is version 11"):
        java_home(environ)
