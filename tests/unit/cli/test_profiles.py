"""Profiles: the file, what wins over what, and no password on a screen."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkalite.client.admin.groups import Groups
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ConfigError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.testing.cluster import cluster
from kafkalite_cli.main import run
from kafkalite_cli.profiles import Profile, Profiles, profiles_path, read_profiles, write_profiles


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("KAFKALITE_BOOTSTRAP", "KAFKALITE_CLIENT_CONFIG", "KAFKALITE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def made(name: str, *arguments: str) -> None:
    assert run(["profile", "create", name, *arguments]) == 0


def test_what_is_written_is_read_again() -> None:
    strange = 'a "quoted" \\ \t\x7f\x1b é 😀 word'
    kept = Profiles("a.b", {"a.b": Profile("a.b", "h:1", {"sasl.password": strange}), "c": Profile("c", "[::1]:2", {})})
    write_profiles(kept)
    assert read_profiles() == kept
    assert profiles_path().stat().st_mode & 0o777 == 0o600
    profiles_path().chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_profiles()


def test_the_verbs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text("[sasl]\nusername = 'alice'\npassword = 'hush'\n[security]\nprotocol = 'SASL_PLAINTEXT'\n")
    made("dev", "--bootstrap", "localhost:9092")
    made("prod", "--bootstrap", "b1:9092,b2:9092", "--client-config", str(file))
    assert run(["profile", "create", "dev", "--bootstrap", "x:1"]) == 2
    assert run(["profile", "use", "prod"]) == 0
    capsys.readouterr()
    assert run(["profile", "show"]) == 0
    shown = capsys.readouterr().out
    assert "b1:9092,b2:9092" in shown and "alice" in shown and "(hidden)" in shown and "hush" not in shown
    assert run(["profile", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["profiles"]
    assert [(each["profile"], each["is_current"]) for each in listed] == [("dev", False), ("prod", True)]
    assert (run(["profile", "use", "--none"]), read_profiles().current) == (0, "")
    assert (run(["profile", "use", "prod"]), read_profiles().current) == (0, "prod")
    assert run(["profile", "delete", "prod"]) == 2  # nobody can be asked here
    assert run(["profile", "delete", "prod", "--yes"]) == 0
    assert (read_profiles().current, list(read_profiles().by_name)) == ("", ["dev"])
    for wrong in (
        ["create", "a b", "--bootstrap", "x:1"],
        ["create", "x", "--bootstrap", "x:y"],
        ["create", "x", "--bootstrap", "x:1", "--set", "sasl.passwort=hush"],
        ["create", "x", "--bootstrap", "x:1", "--set", "security.protocol=TLS"],
        ["use", "nope"],
        ["use"],
        ["use", "dev", "--none"],
        ["show", "nope"],
    ):
        capsys.readouterr()
        assert run(["profile", *wrong]) == 2, wrong
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "hush" not in error


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """(addresses, user) of each command that would have connected."""
    from kafkalite_cli import invocation

    found: list[tuple[str, str | None]] = []

    def connect(cli: invocation.Invocation) -> object:
        security = invocation.client_security()
        found.append((cli.bootstrap, None if security is None else security.username))
        raise ConfigError("seen")

    monkeypatch.setattr(invocation.Invocation, "connect", connect)
    return found


def asks(seen: list[tuple[str, str | None]], *arguments: str) -> tuple[str, str | None]:
    assert run(["admin", *arguments]) == 2
    return seen.pop()


def test_option_before_environment_before_profile(
    monkeypatch: pytest.MonkeyPatch, seen: list[tuple[str, str | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert asks(seen, "list-topics") == ("localhost:9092", None)
    write_profiles(Profiles("one", {"one": Profile("one", "one:1", {}), "two": Profile("two", "two:1", {})}))
    assert asks(seen, "list-topics") == ("one:1", None)
    monkeypatch.setenv("KAFKALITE_PROFILE", "two")
    assert asks(seen, "list-topics") == ("two:1", None)
    monkeypatch.setenv("KAFKALITE_BOOTSTRAP", "env:1")
    assert asks(seen, "list-topics") == ("env:1", None)
    assert asks(seen, "list-topics", "--profile", "two") == ("two:1", None)
    assert asks(seen, "--profile", "two", "list-topics") == ("two:1", None)
    assert asks(seen, "list-topics", "--profile", "two", "--bootstrap", "x:1") == ("x:1", None)
    assert asks(seen, "--bootstrap", "x:1", "list-topics", "--profile", "two") == ("x:1", None)
    capsys.readouterr()
    assert run(["admin", "list-topics", "--profile", "nope"]) == 2
    error = capsys.readouterr().err
    assert "there is no profile 'nope'" in error and error.count("\n") == 1


def test_a_user_without_a_home_has_no_profiles(
    monkeypatch: pytest.MonkeyPatch, seen: list[tuple[str, str | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A container whose user is a mere number."""

    def getpwuid(_: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    assert asks(seen, "list-topics") == ("localhost:9092", None)
    capsys.readouterr()
    assert run(["profile", "create", "p", "--bootstrap", "b:1"]) == 2
    assert "set HOME or XDG_CONFIG_HOME" in capsys.readouterr().err


def test_security_of_a_profile_goes_to_its_cluster_only(
    seen: list[tuple[str, str | None]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """--bootstrap names another cluster: the password of the profile in use is not for it."""
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": "hush"}
    write_profiles(Profiles("p", {"p": Profile("p", "p:1", settings)}))
    assert asks(seen, "list-topics") == ("p:1", "alice")
    assert asks(seen, "list-topics", "--bootstrap", "other:1") == ("other:1", None)
    assert asks(seen, "list-topics", "--bootstrap", "other:1", "--profile", "p") == ("other:1", "alice")
    file = tmp_path / "bob.toml"
    file.write_text("'security.protocol' = 'SASL_PLAINTEXT'\n'sasl.username' = 'bob'\n'sasl.password' = 'hush'\n")
    assert asks(seen, "list-topics", "--client-config", str(file)) == ("p:1", "bob")
    monkeypatch.setenv("KAFKALITE_CLIENT_CONFIG", str(file))
    assert asks(seen, "list-topics") == ("p:1", "bob")
    assert asks(seen, "list-topics", "--profile", "p") == ("p:1", "alice")
    assert "hush" not in capsys.readouterr().err


_SCRIPT = """
source <("$PYTHON" -m kafkalite_cli completion bash)
complete_words() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _kafkalite_completion kafkalite "${COMP_WORDS[COMP_CWORD]}" ""
    echo "${COMPREPLY[*]}"
}
complete_words kafkalite adm
complete_words kafkalite consume fl
complete_words kafkalite admin delete-topic o
complete_words kafkalite admin why flights-
complete_words kafkalite admin broker cordon ""
complete_words kafkalite admin config set --topic flights retention.
complete_words kafkalite profile use d
complete_words kafkalite consume --profile away fl
complete_words kafkalite admin groups describe b
complete_words kafkalite admin groups describe ""
"""
#: Group ids are whatever a client says. bash would insert them as they are, with the next Enter they would run.
_HOSTILE = (
    "evil$(touch run)",
    "evil`touch run`",
    "evil; touch run",
    "evil\\",
    "evil'",
    "evil*",
    "~evil",
    "--yes",
    "#",
    "e{v,i}l",
)


async def test_names_are_completed_in_bash(tmp_path: Path) -> None:
    write_profiles(Profiles("", {"dev": Profile("dev", "x:1", {}), "away": Profile("away", "127.0.0.1:1", {})}))
    root = Path(__file__).parents[3]
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic(name, 2, 1) for name in ("flights", "flags", "orders", "__hidden")])
        for group in ("billing", "eu/böse-1", *_HOSTILE):
            await Groups(client).commit(group, {TopicPartition("orders", 0): 0})
        binaries = tmp_path / "bin"
        binaries.mkdir()
        program = binaries / "kafkalite"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafkalite_cli "$@"\n')
        program.chmod(0o755)
        environ = os.environ | {
            "PYTHONPATH": f"{root}:{root / 'cli'}", "PYTHON": sys.executable, "XDG_CACHE_HOME": str(tmp_path),
            "KAFKALITE_BOOTSTRAP": ",".join(on.bootstrap), "PATH": f"{binaries}:{os.environ['PATH']}",
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            "bash", "--norc", "-c", _SCRIPT, env=environ,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
    lines = out.decode().splitlines()
    assert err == b""
    assert lines[:5] == ["admin", "flags flights", "orders", "flights-0 flights-1", "1"]
    assert "retention.ms=" in lines[5].split()
    assert lines[6:] == ["dev", "", "billing", "billing eu/böse-1"]


def test_profiles_that_are_made_at_once_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly() -> Profiles:
        found = read_profiles()
        time.sleep(0.02)
        return found

    for module in ("profile", "profiles"):
        monkeypatch.setattr(f"kafkalite_cli.{module}.read_profiles", slowly)
    names = [f"p{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        codes = list(threads.map(lambda name: run(["profile", "create", name, "--bootstrap", "b:1"]), names))
    assert codes == [0] * 8
    assert sorted(read_profiles().by_name) == names
