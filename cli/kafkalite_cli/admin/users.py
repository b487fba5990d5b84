"""`kafkalite admin users list | set | delete`: SCRAM credentials.

Passwords come from the terminal, from stdin or from KAFKALITE_USER_PASSWORD, never from the command line (others may read
it), and never leave this process: what is sent is the salted password (RFC 5802), as with Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkalite.client.admin.users import NewCredential, alter_user, describe_users
from kafkalite.coordination import paths, scram_users
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.errors import ErrorCode, api_error
from kafkalite.security.scram import (
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    SALT_BYTES,
    credential_of,
    salted_password,
)
from kafkalite_cli.admin.zookeeper.access import in_zookeeper, node_config_option
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import confirm, run_async
from kafkalite_cli.parameters import yes_option
from kafkalite_cli.passwords import read_password

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_PASSWORD_VARIABLE = "KAFKALITE_USER_PASSWORD"


@click.group("users")
@group_options
def users(bootstrap: str | None) -> None:
    """SCRAM users and their passwords."""


def zookeeper_option(command: F) -> F:
    """--zookeeper and --config: for the first users, when no node runs yet."""
    return click.option(
        "--zookeeper",
        metavar="HOST:PORT,…/chroot",
        help="Write directly to ZooKeeper: for the nodes' own users, before any node runs. Needs --config.",
    )(node_config_option(command))


async def _in_zookeeper(
    connect_string: str,
    config_file: Path | None,
    work: Callable[[Coordinator], Awaitable[T]],
    *,
    is_change: bool,
) -> T:
    async def prepared(session: Coordinator) -> T:
        if is_change:
            for path in (paths.CONFIG_USERS, paths.CONFIG_CHANGES):  # the first node is yet to make them
                await session.ensure_path(path)
        return await work(session)

    return await in_zookeeper(connect_string, config_file, prepared, makes_znodes=is_change)


@users.command("list")
@click.argument("names", nargs=-1)
@zookeeper_option
@client_options
async def list_(cli: Invocation, names: tuple[str, ...], zookeeper: str | None, config_file: Path | None) -> None:
    """Users that have SCRAM credentials.

    Example:

    \b
      kafkalite admin users list
    """
    if zookeeper is not None:
        found = await _in_zookeeper(
            zookeeper,
            config_file,
            lambda session: scram_users.list_users(session, names or None),
            is_change=False,
        )
    else:
        async with cli.connect() as client:
            found = await describe_users(client, names)
    missing = [name for name in names if not found.get(name)]
    if missing:
        raise api_error(ErrorCode.RESOURCE_NOT_FOUND, f"{missing[0]!r} has no SCRAM credentials")
    rows = [(name, kind, count) for name, held in sorted(found.items()) for kind, count in sorted(held.items())]
    cli.out.listing({"users": found}, ("user", "mechanism", "iterations"), rows)


def _alter(
    cli: Invocation,
    name: str,
    credentials: Sequence[NewCredential],
    deletions: Sequence[str],
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    async def work() -> None:
        if zookeeper is not None:
            changes: dict[str, str | None] = dict.fromkeys(deletions)
            for each in credentials:
                kept = credential_of(each.mechanism, each.salted_password, each.salt, each.iterations)
                changes[each.mechanism] = kept.text()
            await _in_zookeeper(
                zookeeper, config_file, lambda session: scram_users.alter_user(session, name, changes), is_change=True
            )
            return
        async with cli.connect() as client:
            await alter_user(client, name, credentials=credentials, deletions=deletions)

    run_async(work())


@users.command("set")
@click.argument("name")
@click.option("--mechanism", "mechanisms", multiple=True, type=click.Choice(sorted(MECHANISMS)), help="[default: all]")
@click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), default=DEFAULT_ITERATIONS, show_default=True
)
@zookeeper_option
@client_options
def set_(
    cli: Invocation,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    """Make a user, or give it another password (one line on stdin).

    Examples:

    \b
      kafkalite admin users set alice
      kafkalite admin users set node --zookeeper zk1:2181 --config /etc/kafkalite/node1.toml
    """
    if not name:
        raise click.UsageError("the name is empty")
    password = read_password(_PASSWORD_VARIABLE, is_new=True)
    wanted = mechanisms or tuple(sorted(MECHANISMS))
    credentials = [_credential(mechanism, password, iterations) for mechanism in wanted]
    _alter(cli, name, credentials, (), zookeeper, config_file)
    reported = {"user": name, "mechanisms": list(wanted), "iterations": iterations}
    cli.out.value(reported, f"{name}: {', '.join(wanted)}")


def _credential(mechanism: str, password: str, iterations: int) -> NewCredential:
    salt = os.urandom(SALT_BYTES)
    return NewCredential(mechanism, iterations, salt, salted_password(mechanism, password, salt, iterations))


@users.command("delete")
@click.argument("name")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=click.Choice(sorted(MECHANISMS)), help="[default: all it has]"
)
@yes_option
@zookeeper_option
@client_options
def delete(
    cli: Invocation,
    name: str,
    mechanisms: tuple[str, ...],
    *,
    yes: bool,
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    """Delete a user's credentials. Connections that were opened with them end at once. Asks on a terminal.

    Example:

    \b
      kafkalite admin users delete alice --yes
    """
    held = mechanisms or _held(cli, name, zookeeper, config_file)
    if not held:
        raise api_error(ErrorCode.RESOURCE_NOT_FOUND, f"{name!r} has no SCRAM credentials")
    confirm(f"Delete the passwords of {name}?", yes=yes)
    _alter(cli, name, (), held, zookeeper, config_file)
    cli.out.value({"user": name, "deleted": sorted(held)}, f"{name}: {', '.join(sorted(held))} deleted")


def _held(cli: Invocation, name: str, zookeeper: str | None, config_file: Path | None) -> Sequence[str]:
    async def work() -> list[str]:
        if zookeeper is not None:
            found = await _in_zookeeper(
                zookeeper, config_file, lambda session: scram_users.list_users(session, [name]), is_change=False
            )
            return sorted(found.get(name, {}))
        async with cli.connect() as client:
            return sorted((await describe_users(client, [name])).get(name, {}))

    return run_async(work())
