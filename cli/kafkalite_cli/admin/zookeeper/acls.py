"""`kafkalite admin zookeeper check | secure | open`: who may change the cluster's znodes (Kafka: zookeeper-security-migration)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkalite.coordination.coordinator import Coordinator
from kafkalite.coordination.znode_acls import AclReport, as_acls, change, examine
from kafkalite.errors import ConfigError
from kafkalite_cli.admin.zookeeper.access import in_zookeeper, node_config_option
from kafkalite_cli.output import Output, confirm, run_async
from kafkalite_cli.parameters import json_option, with_options, yes_option

F = TypeVar("F", bound=Callable[..., Any])

_ALL = 2**31


@click.group("zookeeper")
def zookeeper() -> None:
    """Who may change the cluster's znodes in ZooKeeper."""


def _options(command: F) -> F:
    options = [
        click.option(
            "--zookeeper",
            "connect_string",
            metavar="HOST:PORT,…/chroot",
            help="ZooKeeper ensemble. [default: zookeeper.connect of --config]",
        ),
        node_config_option,
        json_option,
    ]
    return with_options(command, options)


@zookeeper.command("check")
@_options
def check(connect_string: str | None, config_file: Path | None, *, as_json: bool) -> None:
    """List znodes that anybody may change, or read though they are private. Exits with 1 if there are any.

    Example:

    \b
      kafkalite admin zookeeper check --config /etc/kafkalite/node1.toml
    """
    report, _ = _run(connect_string, config_file, is_open=None)
    _show(report, as_json=as_json, state="open")
    _name_users(report.users)
    if report.open:
        raise SystemExit(1)


@zookeeper.command("secure")
@_options
def secure(connect_string: str | None, config_file: Path | None, *, as_json: bool) -> None:
    """Close every znode: only the identity of zookeeper.auth may change it. Safe to repeat, and while nodes run.

    Every node that runs must have zookeeper.auth already. If users' credentials were open, it lists them: set other
    passwords.

    Example:

    \b
      kafkalite admin zookeeper secure --config /etc/kafkalite/node1.toml
    """
    report, left = _run(connect_string, config_file, is_open=False)
    _show(report, as_json=as_json, state="were open")
    _refuse_partial(report)
    _refuse_open_again(left)


@zookeeper.command("open")
@yes_option
@_options
def open_(*, yes: bool, connect_string: str | None, config_file: Path | None, as_json: bool) -> None:
    """Open every znode: every client that reaches ZooKeeper may then read and change everything. For the way back to plain text.

    Example:

    \b
      kafkalite admin zookeeper open --config /etc/kafkalite/node1.toml --yes
    """
    confirm("Every client that reaches ZooKeeper may then change the cluster and its users. Go on?", yes=yes)
    report, _ = _run(connect_string, config_file, is_open=True)
    Output(as_json).value(
        {"znodes": report.seen}, f"{report.seen} znodes are open to every client that reaches ZooKeeper"
    )
    _refuse_partial(report)


def _run(connect_string: str | None, config_file: Path | None, *, is_open: bool | None) -> tuple[AclReport, AclReport]:
    """What was found, and what was found after the change. `is_open` None: examine only. Raises ConfigError, CoordinatorError."""
    if connect_string is None and config_file is None:
        raise click.UsageError("name ZooKeeper: --zookeeper or --config")

    async def work(session: Coordinator) -> tuple[AclReport, AclReport]:
        acls = as_acls(session)
        assert acls is not None
        if is_open is None:
            report = await examine(acls, _ALL)
            return report, report
        if is_open:
            report = await change(acls, is_open=True)
            return report, report
        # First, because it cannot be seen any more when the znodes are closed.
        exposed = (await examine(acls, _ALL)).users
        _name_users(exposed)
        closed = await change(acls, is_open=False)
        _name_users([each for each in closed.users if each not in exposed])
        return closed, await examine(acls, _ALL)

    # `secure` means set.acl, whatever is configured; without zookeeper.auth that is refused.
    set_acl = None if is_open is None else not is_open
    return run_async(in_zookeeper(connect_string, config_file, work, makes_znodes=False, set_acl=set_acl))


def _show(report: AclReport, *, as_json: bool, state: str) -> None:
    value = {
        "znodes": report.seen,
        "open": report.open,
        "changeable": report.changeable,
        "readable": report.readable,
        "others": report.others,
        "users": report.users,
        "refused": report.refused,
    }
    out = Output(as_json)
    out.value(value, f"{report.open} of {report.seen} znodes {state}")
    rows = [(path, "change") for path in report.changeable] + [(path, "read") for path in report.readable]
    if rows:
        out.table(("znode", "anybody may"), rows)
    if report.others:
        click.echo(
            f"an identity other than that of zookeeper.auth may change or read: {', '.join(report.others)}", err=True
        )
    unnamed = report.open - len(rows) - len(report.others)
    if unnamed > 0 and not as_json:
        click.echo(f"and {unnamed} more")


def _name_users(names: Sequence[str]) -> None:
    if names:
        click.echo(
            f"anybody could read the credentials of: {', '.join(names)}; set other passwords (admin users set)",
            err=True,
        )


def _refuse_partial(report: AclReport) -> None:
    """Raises ConfigError if some znodes belong to somebody else."""
    if report.refused:
        raise ConfigError(
            f"zookeeper.auth is not the identity that {report.refused[0]} belongs to (of {len(report.refused)} or more): they"
            " stay as they are. If no node of this cluster has made them, delete them"
        )


def _refuse_open_again(report: AclReport) -> None:
    """Raises ConfigError: somebody made more while the znodes were closed, or since."""
    if report.open:
        first = (*report.changeable, *report.readable, *report.others)[0]
        raise ConfigError(
            f"{report.open} znodes are open again, {first} among them: a node or a command makes them without zookeeper.set.acl; set it"
            " there, and repeat this command"
        )
