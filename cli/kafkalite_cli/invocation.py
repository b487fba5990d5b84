"""The options of every verb that talks to a cluster: which one, with what security, how long; and the client that they describe."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.bootstrap import DEFAULT_PORT, parse_bootstrap
from kafkalite.errors import ConfigError, KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite_cli.output import Output, run_async
from kafkalite_cli.parameters import Real, json_option, os_error_text, with_options
from kafkalite_cli.visible import visible

if TYPE_CHECKING:
    from kafkalite.security.dialling import ClientSecurity

F = TypeVar("F", bound=Callable[..., Any])

_CLIENT_CONFIG = "kafkalite.client_config"
_PROFILE = "kafkalite.profile"
#: The profile whose addresses are used, or that was named: its security is used, too.
_PROFILE_USED = "kafkalite.profile_used"


def _given_bootstrap(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Of a group: checked. Its verbs take it over."""
    return None if value is None else _checked(value)


def _bootstrap(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Of a verb, or else of its group; then --profile, the environment, the profile in use, the default."""
    from kafkalite_cli.profiles import VARIABLE, read_profiles

    root = ctx.find_root().meta
    source = ctx.get_parameter_source("bootstrap")
    given = value if source is click.core.ParameterSource.COMMANDLINE else _of_group(ctx)
    named = root.get(_PROFILE)
    if named is not None:
        root[_PROFILE_USED] = read_profiles().named(named)
    if given is not None:
        return _checked(given)
    if named is not None:
        return str(root[_PROFILE_USED].bootstrap)
    if source is click.core.ParameterSource.ENVIRONMENT:
        return _checked(value)
    known = read_profiles()
    if chosen := os.environ.get(VARIABLE) or known.current:
        root[_PROFILE_USED] = known.named(chosen)
        return str(root[_PROFILE_USED].bootstrap)
    return _checked(value)


def _of_group(ctx: click.Context) -> str | None:
    parent = ctx.parent
    while parent is not None:
        if parent.params.get("bootstrap") is not None:
            return str(parent.params["bootstrap"])
        parent = parent.parent
    return None


def _checked(value: str) -> str:
    try:
        parse_bootstrap(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def chosen_cluster(ctx: click.Context) -> tuple[str, str]:
    """(addresses, the user) of a command that is not run, for a shell's completion. Raises ConfigError, BadParameter."""
    bootstrap = ctx.params.get("bootstrap")
    if bootstrap is None:
        raise ConfigError("no address")
    root = ctx.find_root().meta
    used = root.get(_PROFILE_USED)
    config = root.get(_CLIENT_CONFIG) or os.environ.get("KAFKALITE_CLIENT_CONFIG", "")
    return str(bootstrap), f"{config}/{'' if used is None else used.name}"


def _client_config(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Kept for `connect`: no command needs to know of it."""
    if value is not None:
        ctx.find_root().meta[_CLIENT_CONFIG] = value


def _profile(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.find_root().meta[_PROFILE] = value


def client_config_option(command: F) -> F:
    """--client-config and --profile."""
    command = click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_profile,
        help="Addresses and security of this profile. [env: KAFKALITE_PROFILE]",
    )(command)
    return click.option(
        "--client-config",
        metavar="FILE",
        expose_value=False,
        callback=_client_config,
        help="TOML: security.protocol, ssl.*, sasl.* [env: KAFKALITE_CLIENT_CONFIG]",
    )(command)


def client_security() -> ClientSecurity | None:
    """What the command's client shows and asks for. Raises ConfigError."""
    context = click.get_current_context(silent=True)
    root = context.find_root().meta if context is not None else {}
    path = root.get(_CLIENT_CONFIG)
    used = root.get(_PROFILE_USED)
    if path is None and (used is None or root.get(_PROFILE) is None):
        path = os.environ.get("KAFKALITE_CLIENT_CONFIG")
    if not path:
        found: ClientSecurity | None = None if used is None else used.security()
        return found
    from kafkalite.security.dialling import ClientSecurity

    settings = settings_of_file(path)
    try:
        return ClientSecurity.parse(settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def settings_of_file(path: str) -> dict[str, str]:
    """A client's settings from TOML, its tables flattened. Raises ConfigError."""
    import tomllib

    from kafkalite.config import flatten

    try:
        settings = flatten(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(os_error_text(error)) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    wrong = [key for key, value in settings.items() if not isinstance(value, str | bool)]
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]} is not text")
    return {key: value if isinstance(value, str) else str(value).lower() for key, value in settings.items()}


def group_options(command: F) -> F:
    """--bootstrap, --profile and --client-config for a group: its verbs take them over."""
    command = client_config_option(command)
    return click.option(
        "--bootstrap", metavar="HOST:PORT,…", callback=_given_bootstrap, help="Kafka addresses of some nodes."
    )(command)


def client_options(verb: Callable[..., Any]) -> Callable[..., None]:
    """--bootstrap, --profile, --client-config, --timeout and --json: as an `Invocation`, the first argument of the verb.

    A verb that is a coroutine function runs in a loop. A number that it returns is the exit code.
    """

    @functools.wraps(verb)
    def command(bootstrap: str, timeout_s: float, *, as_json: bool, **arguments: Any) -> None:
        cli = Invocation(bootstrap, timeout_s, Output(as_json))
        try:
            done = verb(cli, **arguments)
            code = run_async(done) if asyncio.iscoroutine(done) else done
        except KafkaliteError as error:
            raise _explained(error, cli) from None
        if code:
            raise click.exceptions.Exit(code)

    options = [
        client_config_option,
        click.option(
            "--bootstrap",
            metavar="HOST:PORT,…",
            envvar="KAFKALITE_BOOTSTRAP",
            default=f"localhost:{DEFAULT_PORT}",
            show_default=True,
            show_envvar=True,
            callback=_bootstrap,
            help="Kafka addresses of some nodes.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=Real(0.1, 86_400),
            default=30.0,
            show_default=True,
            metavar="SECONDS",
            help="Time limit.",
        ),
        json_option,
    ]
    return with_options(command, options)


#: A command that has reached no broker by then says that it waits.
_WAITS_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class Invocation:
    """What every verb is given: addresses of the cluster, how long a request may take, where the result goes."""

    bootstrap: str
    timeout_s: float
    out: Output

    def connect(self) -> AsyncClient:
        """The client for the command. If no broker answers, it says so before the time is over. Call it in the loop."""
        client = AsyncClient.connect(
            self.bootstrap,
            client_id="kafkalite-cli",
            timeout_s=self.timeout_s,
            request_timeout_s=self.timeout_s,
            security=client_security(),
        )
        if self.timeout_s > _WAITS_AFTER_S:
            asyncio.get_running_loop().call_later(_WAITS_AFTER_S, _note_waiting, client, self.timeout_s)
        return client


def _explained(error: KafkaliteError, cli: Invocation) -> KafkaliteError:
    """A verb's error. If its request may have waited for ZooKeeper, the brokers are asked whether they have it."""
    from kafkalite_cli.zookeeper_note import may_be_zookeeper, with_reason

    if not may_be_zookeeper(error):
        return error

    async def work() -> KafkaliteError:
        async with cli.connect() as client:
            return await with_reason(error, client)

    return run_async(work())


def _note_waiting(client: AsyncClient, timeout_s: float) -> None:
    if why := client.connections.failure():
        click.echo(f"note: no broker answers yet: {visible(why)}; waiting up to {timeout_s:g} s (--timeout)", err=True)
