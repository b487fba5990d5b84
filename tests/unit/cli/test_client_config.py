"""--client-config and KAFKALITE_CLIENT_CONFIG: what is accepted, and what the error says when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite_cli.main import run


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = ", "Invalid"),
        ("'sasl.password' = 5", "sasl.password is not text"),
        ("'sasl.passwort' = 'hush'", "sasl.passwort: no such setting"),
        ("[security]\nprotocol = 'TLS'", "security.protocol: 'TLS' is not one of"),
        ("[security]\nprotocol = 'SASL_SSL'\n[sasl]\nusername = 'a'", "sasl.password is missing"),
        ("[security]\nprotocol = 'SSL'\n[ssl.truststore]\nlocation = '/nowhere'", "/nowhere"),
    ],
)
@pytest.mark.parametrize("way", ["before", "behind", "environment"])
def test_a_file_that_is_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    told: str,
    way: str,
) -> None:
    file = tmp_path / "client.toml"
    file.write_text(text)
    option = ["--client-config", str(file)]
    if way == "environment":
        monkeypatch.setenv("KAFKALITE_CLIENT_CONFIG", str(file))
        option = []
    arguments = ["admin", *option, "health"] if way == "before" else ["admin", "health", *option]
    assert run([*arguments, "--bootstrap", "127.0.0.1:1"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "hush" not in error


def test_a_password_is_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KAFKALITE_USER_PASSWORD", "")
    assert run(["admin", "users", "set", "alice", "--bootstrap", "127.0.0.1:1"]) == 2
    assert "no password" in capsys.readouterr().err
    assert run(["admin", "users", "set", "alice", "--iterations", "4095"]) == 2
