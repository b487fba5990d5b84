"""`kafkalite admin config get | set | delete`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.configs import ConfigResource, alter_configs, describe_configs
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import BrokerId
from kafkalite_cli.output import Output, client_options, connect, group_options, run_async
from kafkalite_cli.parameters import Whole

F = TypeVar("F", bound=Callable[..., Any])


@click.group("config")
@group_options
def config(bootstrap: str | None) -> None:
    """Dynamic settings of topics, brokers and the cluster."""


def entity_options(command: F) -> F:
    """--topic T | --broker N | --cluster."""
    command = click.option("--cluster", "is_cluster", is_flag=True, help="Settings of all brokers.")(command)
    command = click.option("--broker", type=Whole(0), help="A broker's settings.")(command)
    return click.option("--topic", help="A topic's settings.")(command)


def _resource(topic: str | None, broker: int | None, is_cluster: bool) -> ConfigResource:
    if (topic is not None) + (broker is not None) + is_cluster != 1:
        raise click.UsageError("give one of --topic, --broker and --cluster")
    if topic is not None:
        return ConfigResource.topic(topic)
    return ConfigResource.broker(None if broker is None else BrokerId(broker))


@config.command("get")
@click.argument("keys", nargs=-1)
@entity_options
@client_options
def get(
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    is_cluster: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """What is set; with KEYS also what holds without being set (topics). A broker need not be alive.

    Examples:

    \b
      kafkalite admin config get --topic flights
      kafkalite admin config get --cluster
    """
    resource = _resource(topic, broker, is_cluster)

    async def work() -> None:
        async with connect(bootstrap, timeout_s) as client:
            found = await describe_configs(client, resource, timeout_s=timeout_s)
        own, effective = found.own, found.effective
        shown = {key: own.get(key, effective.get(key)) for key in keys} if keys else own
        out = Output(as_json)
        if as_json:
            out.value({"settings": shown, "own": own, "effective": effective}, "")
        rows = [(key, shown[key] or "", "set" if key in own else "default") for key in sorted(shown)]
        out.table("", ("key", "value", "source"), rows)

    run_async(work())


def _alter(
    resource: ConfigResource,
    changes: dict[str, str],
    deletions: tuple[str, ...],
    broker: int | None,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    async def work() -> None:
        async with connect(bootstrap, timeout_s) as client:
            if deletions:
                await _refuse_unset(client, resource, deletions, timeout_s)
            await alter_configs(client, resource, changes, deletions, timeout_s=timeout_s)
            settings = (await describe_configs(client, resource, timeout_s=timeout_s)).own
            await client.metadata((), timeout_s=timeout_s)
        if broker is not None and BrokerId(broker) not in client.view.brokers:
            click.echo(f"kafkalite: broker {broker} is not alive: the setting takes effect when it starts", err=True)
        text = "\n".join(f"{key}={value}" for key, value in sorted(settings.items())) or "nothing is set"
        Output(as_json).value({"settings": settings}, text)

    run_async(work())


async def _refuse_unset(client: AsyncClient, resource: ConfigResource, keys: tuple[str, ...], timeout_s: float) -> None:
    """A key that is not set is most likely misspelt. Raises ApiError."""
    settings = (await describe_configs(client, resource, timeout_s=timeout_s)).own
    for key in keys:
        if key not in settings:
            raise api_error(ErrorCode.INVALID_CONFIG, f"{key}: it is not set; nothing was changed")


@config.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE…")
@entity_options
@client_options
def set_(
    pairs: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    is_cluster: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Set keys; all of them, or none if one is wrong.

    Examples:

    \b
      kafkalite admin config set --topic flights retention.ms=3600000
      kafkalite admin config set --broker 2 max.connections=500
      kafkalite admin config set --cluster min.insync.replicas=2
    """
    from kafkalite_cli.admin import parse_settings

    _alter(_resource(topic, broker, is_cluster), parse_settings(pairs), (), broker, bootstrap, timeout_s, as_json)


@config.command("delete")
@click.argument("keys", nargs=-1, required=True)
@entity_options
@client_options
def delete(
    keys: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    is_cluster: bool,
    bootstrap: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Take keys away, so that the defaults hold again.

    Example:

    \b
      kafkalite admin config delete --topic flights retention.ms
    """
    _alter(_resource(topic, broker, is_cluster), {}, keys, broker, bootstrap, timeout_s, as_json)
