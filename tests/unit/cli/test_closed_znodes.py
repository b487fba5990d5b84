"""`zookeeper secure` that is killed half-way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner

from kafkalite.coordination.znode_acls import AclReport
from kafkalite_cli.main import cli

COMMAND = ["admin", "zookeeper", "secure", "--zookeeper", "zk:2181"]


def report(*users: str) -> AclReport:
    open_ = tuple(f"/config/users/{user}" for user in users)
    return AclReport(
        seen=9, is_complete=True, open=len(users), changeable=open_, readable=(), others=(), users=users, refused=()
    )


def test_users_whose_passwords_were_readable_are_named_before_anything_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run does not find them any more, and nobody would know which passwords to change."""

    async def in_zookeeper(_: str, __: object, work: Callable[[Any], Awaitable[Any]], **___: object) -> Any:
        return await work(None)

    is_closed = False

    async def examine(*_: object) -> AclReport:
        return report() if is_closed else report("alice", "bob")

    async def killed(*_: object, **__: object) -> AclReport:
        raise ConnectionError

    async def changed(*_: object, **__: object) -> AclReport:
        nonlocal is_closed
        is_closed = True
        return report("alice", "bob", "carol")

    place = "kafkalite_cli.admin.zookeeper.acls"
    for name, stub in (("in_zookeeper", in_zookeeper), ("as_acls", lambda _: object()), ("examine", examine)):
        monkeypatch.setattr(f"{place}.{name}", stub)
    monkeypatch.setattr(f"{place}.change", killed)
    said = CliRunner().invoke(cli, COMMAND)
    assert isinstance(said.exception, ConnectionError)
    assert "anybody could read the credentials of: alice, bob" in said.stderr
    monkeypatch.setattr(f"{place}.change", changed)
    said = CliRunner().invoke(cli, COMMAND)
    assert "credentials of: alice, bob;" in said.stderr and "credentials of: carol;" in said.stderr
    assert said.exit_code == 0
    is_closed = False

    async def changed_in_vain(*_: object, **__: object) -> AclReport:
        return report("alice", "bob")

    monkeypatch.setattr(f"{place}.change", changed_in_vain)
    said = CliRunner().invoke(cli, COMMAND)
    assert "open again" in str(said.exception), "a node without zookeeper.set.acl goes on making them"
