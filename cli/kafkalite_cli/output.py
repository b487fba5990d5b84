"""What every command shares: the options of a client, and output for people, pipes and programs."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import uvloop

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.bootstrap import DEFAULT_PORT, parse_bootstrap
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.telemetry import logs
from kafkalite_cli.parameters import Real, json_option, os_error_text, with_options
from kafkalite_cli.visible import visible

if TYPE_CHECKING:
    from kafkalite.security.dialling import ClientSecurity

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


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
        done = verb(Invocation(bootstrap, timeout_s, Output(as_json)), **arguments)
        if code := run_async(done) if asyncio.iscoroutine(done) else done:
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


def _note_waiting(client: AsyncClient, timeout_s: float) -> None:
    if why := client.connections.failure():
        click.echo(f"note: no broker answers yet: {visible(why)}; waiting up to {timeout_s:g} s (--timeout)", err=True)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine. Logs are for developers here: silent unless KAFKALITE_LOG_LEVEL says otherwise."""
    level = os.environ.get("KAFKALITE_LOG_LEVEL", "").lower()
    with (
        logs.configured(level=level if level in logs.LEVELS else "critical"),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        try:
            return runner.run(work)
        except asyncio.CancelledError:  # by a second signal, see `on_stop`
            raise KeyboardInterrupt from None


def run_watch(work: Coroutine[Any, Any, T], how_to_return: str) -> T:
    """`run_async` for what goes on in the cluster if the command is interrupted: Ctrl-C says so, and how to come back. Exits 130 then."""
    try:
        return run_async(work)
    except KeyboardInterrupt:
        click.echo(f"\n{how_to_return}", err=True)
        raise click.exceptions.Exit(130) from None


def on_stop(callback: Callable[[], object]) -> None:
    """At Ctrl-C or SIGTERM (`timeout`, systemd, a container that is stopped) end in order; a second one ends at once. Call it in the loop."""
    loop, command = asyncio.get_running_loop(), asyncio.current_task()
    assert command is not None

    def on_signal(call: Callable[[], object]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, call)

    def stop() -> None:
        on_signal(command.cancel)
        callback()

    on_signal(stop)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal before something is destroyed. Raises UsageError where nobody can be asked and there is no --yes, Abort on no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask on: add --yes")
    answer = None
    while answer is None:
        said = _line_of_terminal(f"{question} [y/N]: ").strip().lower()
        answer = {"y": True, "yes": True, "n": False, "no": False, "": False}.get(said)
    if not answer:
        raise click.Abort


def _line_of_terminal(question: str) -> str:
    """Empty at the end of the input. Raises Abort at Ctrl-C, which asyncio would only note the first time.

    A signal that comes just before a read does not interrupt it, so the read waits for the signals' pipe, too.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    wakeup = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        click.echo(question, nl=False, err=True)
        while sys.stdin not in select.select([sys.stdin, woken], [], [])[0]:
            os.read(woken, 1)
        return sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        raise click.Abort from None
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        os.close(woken)
        os.close(wakes)


@dataclass(frozen=True, slots=True)
class Output:
    """Writes a command's results to stdout: JSON if asked for, tables on a terminal, aligned text in a pipe."""

    as_json: bool

    def value(self, value: Any, text: str = "") -> None:
        """One result: `value` for programs, `text` for people (none where they get a table)."""
        click.echo(json.dumps(value) if self.as_json else visible(text, keeps_lines=True))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
        """A table for people; nothing with --json (see `value`)."""
        if self.as_json:
            return
        cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
        if sys.stdout.isatty() and _has_room(columns):
            self._rich_table(columns, cells, title)
            return
        header = [column.upper() for column in columns]
        widths = [max(len(row[i]) for row in [header, *cells]) for i in range(len(columns))]
        for row in [header, *cells]:
            click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def listing(self, value: Any, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """The same result twice: `value` for programs, or else a table."""
        if self.as_json:
            self.value(value)
        self.table(columns, rows)

    def _rich_table(self, columns: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title or None, title_justify="left")
        for index, column in enumerate(columns):
            numeric = bool(cells) and all(row[index].lstrip("-").isdigit() for row in cells)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)


def _has_room(columns: Sequence[str]) -> bool:
    """Whether the terminal is wide enough to fold these columns; in less a table would be frames around nothing."""
    longest_words = (max(map(len, column.split()), default=0) for column in columns)
    return sum(width + 3 for width in longest_words) + 1 <= shutil.get_terminal_size().columns


def ids_text(ids: Iterable[int]) -> str:
    """1,2,3"""
    return ",".join(map(str, ids))


def size_text(size_bytes: int) -> str:
    """1234567 -> 1.2 MB."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
