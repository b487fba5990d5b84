"""How commands that write to ZooKeeper reach it: with the identity and the ACLs of the nodes' own configuration."""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kafkalite.config import broker_config, settings_from
from kafkalite.coordination.coordinator import Coordinator
from kafkalite.env.real import RealClock
from kafkalite.env.real_network import RealNetwork
from kafkalite.errors import ConfigError
from kafkalite_cli.parameters import os_error_text

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_SESSION_TIMEOUT_MS = 10_000
_SET_ACL = "zookeeper.set.acl"


def node_config_option(command: F) -> F:
    """--config: where zookeeper.auth, zookeeper.set.acl and the like are."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The configuration of a node: zookeeper.connect, zookeeper.auth, zookeeper.set.acl and zookeeper.ssl.*."
        " Variables such as KAFKALITE_ZOOKEEPER_AUTH override it.",
    )(command)


async def in_zookeeper(
    connect_string: str | None,
    config_file: Path | None,
    work: Callable[[Coordinator], Awaitable[T]],
    *,
    makes_znodes: bool,
    set_acl: bool | None = None,
) -> T:
    """Call `work` with a session that has the nodes' identity.

    Args:
        makes_znodes: refuse if nothing says which ACL the cluster's znodes have. Otherwise the chroot must exist: in one that was
            mistyped nothing is open, and nobody is a user.
        set_acl: instead of the configured value.
    Raises:
        ConfigError, CoordinatorError.
    """
    from kafkalite.coordination import aiozk_adapter

    settings = _settings(config_file)
    if set_acl is not None:
        settings[_SET_ACL] = set_acl
    if makes_znodes and _SET_ACL not in settings:
        raise ConfigError(
            (f"{config_file} has no zookeeper.set.acl, so " if config_file is not None else "")
            + "it is not known who may change what this command writes to ZooKeeper: name a node's configuration that has it (--config FILE),"
            " or set KAFKALITE_ZOOKEEPER_AUTH and KAFKALITE_ZOOKEEPER_SET_ACL=true (=false: every client that reaches ZooKeeper may"
            " read and replace it)"
        )
    # Only what concerns ZooKeeper: the rest is of that node, and may name files that are not here.
    config, _ = broker_config({key: value for key, value in settings.items() if key.startswith("zookeeper")})
    session = await aiozk_adapter.connect(
        connect_string or config.zookeeper_connect,
        _SESSION_TIMEOUT_MS,
        clock=RealClock(),
        network=RealNetwork(),
        rng=random.Random(),
        access=aiozk_adapter.access_of(config),
        makes_chroot=makes_znodes,
    )
    try:
        return await work(session)
    finally:
        await session.close()


def _settings(config_file: Path | None) -> dict[str, Any]:
    """Raises ConfigError."""
    try:
        text = config_file.read_text(encoding="utf-8") if config_file is not None else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(os_error_text(error) if isinstance(error, OSError) else f"{config_file}: not UTF-8") from None
    return settings_from(text, os.environ, {})
