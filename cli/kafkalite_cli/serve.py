"""`kafkalite serve`: one node, until SIGTERM."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kafkalite import config as configuration
from kafkalite.coordination.paths import split_connect_string
from kafkalite.errors import CannotListen, ConfigError, KafkaliteError, StartupRefused
from kafkalite.security.files import open_directories, readable_by_others, secret_files
from kafkalite.security.posture import Posture, listeners_of, posture
from kafkalite.telemetry import logs
from kafkalite_cli.hints import with_key
from kafkalite_cli.imports import uncollected
from kafkalite_cli.new_files import keep_from_others
from kafkalite_cli.parameters import is_whole, os_error_text


def _endpoint(flag: str, value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not is_whole(port, 65535):
        raise click.UsageError(f"{flag}: {value!r} is not HOST:PORT")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise click.UsageError(f"{flag}: {value!r}: an IPv6 address needs brackets, [::1]:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _settings(
    broker_id: int | None,
    zookeeper: str | None,
    kafka: str | None,
    rpc: str | None,
    http: str | None,
    log_dir: tuple[str, ...],
    settings: tuple[str, ...],
) -> dict[str, Any]:
    """The flags as configuration keys; --set comes last and wins."""
    flags: dict[str, Any] = {}
    if broker_id is not None:
        flags["broker.id"] = broker_id
    if zookeeper is not None:
        flags["zookeeper.connect"] = zookeeper
    hosts = set()
    for name, value in (("kafka", kafka), ("rpc", rpc), ("http", http)):
        if value is not None:
            host, flags[f"{name}.port"] = _endpoint(f"--{name}", value)
            hosts.add(host)
    if len(hosts) > 1:
        raise click.UsageError("--kafka, --rpc and --http must name one host")
    if hosts:
        flags["host"] = hosts.pop()
    if log_dir:
        flags["log.dirs"] = list(log_dir)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set: {setting!r} is not key=value")
        flags[key.strip()] = value.strip()
    return flags


def _read(config_file: str | None) -> str | None:
    """Raises ConfigError."""
    if config_file is None:
        return None
    try:
        return Path(config_file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config: configuration file: {os_error_text(error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config: configuration file: {config_file}: not UTF-8") from None


@click.command()
@click.option("--id", "broker_id", type=click.IntRange(0, 2**31 - 1), help="This node's id (or broker.id in the file).")
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="TOML file.")
@click.option("--zookeeper", metavar="HOST:PORT,…/chroot", help="ZooKeeper ensemble.")
@click.option("--kafka", metavar="HOST:PORT", help="Kafka protocol listener (default 127.0.0.1:9092).")
@click.option("--rpc", metavar="HOST:PORT", help="RPC listener (default 127.0.0.1:9192).")
@click.option("--http", metavar="HOST:PORT", help="Metrics and console (default 127.0.0.1:9292).")
@click.option("--log-dir", multiple=True, metavar="DIR", help="A log directory; repeat it for each disk.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any configuration key.")
@click.option("--log-level", type=click.Choice(sorted(logs.LEVELS)), default="info", show_default=True)
@click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default="auto",
    show_default=True,
    help="auto: text on a terminal, JSON elsewhere.",
)
def serve(
    broker_id: int | None,
    config_file: str | None,
    zookeeper: str | None,
    kafka: str | None,
    rpc: str | None,
    http: str | None,
    log_dir: tuple[str, ...],
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Run one node until SIGTERM (a controlled shutdown; a second SIGTERM stops at once).

    Prints one JSON line {"event": "node.ready", …} on stdout once it serves. Logs go to stderr.

    Examples:

    \b
      kafkalite serve --id 1 --zookeeper 127.0.0.1:2181 --log-dir /disk1 --log-dir /disk2
      kafkalite serve --config /etc/kafkalite.toml --set min.insync.replicas=2
    """
    if not __debug__:
        raise click.ClickException("refusing to run under python -O: assertions guard the data")
    flags = _settings(broker_id, zookeeper, kafka, rpc, http, log_dir, settings)
    try:
        config, warnings = configuration.load(_read(config_file), os.environ, flags, config_file or "")
        split_connect_string(config.zookeeper_connect)
        if config.broker_id < 0:
            raise ConfigError("the node's id is missing: give --id, or broker.id in the configuration")
        found = posture(config)
        if found.refusals:
            raise ConfigError("; ".join(found.refusals))
    except ConfigError as error:
        click.echo(f"kafkalite: {with_key(str(error))}", err=True)
        sys.exit(2)
    keep_from_others()
    logs.configure(level=log_level, form=log_format, node=config.broker_id)
    for warning in warnings:
        click.echo(f"kafkalite: {warning}", err=True)
    _warn(config, found, settings)
    # Before the imports of a node: they take seconds on a busy machine.
    _log.info("zookeeper.connecting", zookeeper=config.zookeeper_connect, reason="waits for a session with ZooKeeper")
    began = time.monotonic()
    with uncollected():
        import uvloop

    try:
        uvloop.run(_run(config, began))
    except (ConfigError, StartupRefused) as error:
        click.echo(f"kafkalite: {error}", err=True)
        sys.exit(2)
    except CannotListen as error:
        option = next((name for key, name in _PORT_OPTIONS.items() if f"({key})" in str(error)), "--set listeners=…")
        click.echo(f"kafkalite: {error}; {option} chooses another address", err=True)
        sys.exit(1)
    except (KafkaliteError, OSError) as error:
        click.echo(f"kafkalite: {error}", err=True)
        sys.exit(1)


def _warn(config: configuration.BrokerConfig, found: Posture, settings: tuple[str, ...]) -> None:
    """Log what is open. Health repeats the exposures."""
    log = logs.get_logger(__name__)
    for exposure in found.exposures:
        log.warning("security.open", listener=exposure.name, detail=exposure.detail)
    warnings = [*found.warnings, *readable_by_others(secret_files(config))]
    listeners = listeners_of(config)
    if any(each.authenticates for each in listeners):
        warnings += open_directories(config.log_dirs)
    if any(each.protocol.endswith("SSL") for each in listeners):
        from kafkalite.security.own_certificate import certificate_warnings  # a node in plain text loads no TLS

        with contextlib.suppress(ConfigError):  # what cannot be used is an error when the listeners are made
            warnings += certificate_warnings(config)
    for setting in settings:
        key, _, value = setting.partition("=")
        spec = configuration.BROKER_KEYS.get(key.strip())
        if spec is not None and spec[0].metadata["secret"] and not value.strip().startswith("file:"):
            warnings.append(
                f"{key.strip()}: every user of this machine sees --set in the list of processes: use file:PATH"
            )
    for warning in warnings:
        log.warning("security.weak", detail=warning)


_log = logs.get_logger(__name__)
#: A node that has no session with ZooKeeper by then warns that it waits for one.
_ZOOKEEPER_NOTE_S = 1.5
#: Key of a port -> the option that sets it.
_PORT_OPTIONS = {"kafka.port": "--kafka", "rpc.port": "--rpc", "http.port": "--http"}

#: Objects more than have gone before the collector looks at the young ones (Python's own: 700); and how many of those
#: looks make one at the middle ones, and at all. Almost everything here is freed by counting references, and with
#: 10,000 partitions a look at all objects holds up the loop for a tenth of a second.
_GC_THRESHOLDS = (50_000, 20, 50)


def _print_ready(line: Mapping[str, object]) -> None:
    """On stdout. If its reader is gone or its disk is full, the node serves all the same."""
    try:
        os.write(sys.stdout.fileno(), f"{json.dumps(line)}\n".encode())
    except OSError as error:
        _log.warning("stdout.failed", reason=os_error_text(error))


async def _why_no_session(connect: str) -> str:
    """What each server's address is good for: a wrong name or port is seen at once."""
    import asyncio

    async def tried(host: str, port: int) -> str:
        try:
            async with asyncio.timeout(_ZOOKEEPER_NOTE_S):
                _, writer = await asyncio.open_connection(host, port)
        except TimeoutError:
            return "no connection yet"
        except OSError as error:
            return os.strerror(error.errno) if error.errno and error.errno > 0 else os_error_text(error)
        writer.close()
        return "connected, no session yet"

    servers, _ = split_connect_string(connect)
    answers = await asyncio.gather(*(tried(each.host, each.port) for each in servers))
    return "; ".join(f"{server}: {answer}" for server, answer in zip(servers, answers, strict=True))


async def _run(config: configuration.BrokerConfig, began: float) -> None:
    with uncollected():
        import asyncio

        from kafkalite.env import heap, open_files
        from kafkalite.env.real import real_env
        from kafkalite.env.supervisor import Policy, Supervisor
        from kafkalite.node.node import Node

    gc.freeze()  # modules and classes stay
    gc.set_threshold(*_GC_THRESHOLDS)
    open_files.raise_limit()
    node = Node(config, real_env(config=config))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if node.stopping:
            os._exit(1)
        node.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)

    async def announce() -> None:
        await node.ready.wait()
        addresses = {name: str(endpoint) for name, endpoint in node.endpoints.items()}
        _print_ready({"event": "node.ready", "id": config.broker_id, **addresses})

    announcer = Supervisor(on_fatal=lambda error: node.stop())

    async def note_zookeeper() -> None:
        await asyncio.sleep(began + _ZOOKEEPER_NOTE_S - time.monotonic())
        if node.session.current is None:
            reason = await _why_no_session(config.zookeeper_connect)
            _log.warning("zookeeper.waits", zookeeper=config.zookeeper_connect, reason=reason)

    announcer.spawn("announce", announce(), Policy.FATAL)
    announcer.spawn("heap", heap.give_back_regularly(), Policy.ISOLATED)
    announcer.spawn("zookeeper.note", note_zookeeper(), Policy.ISOLATED)
    try:
        await node.run()
    finally:
        await announcer.stop()
