"""`kafkalite admin config get | set | delete`."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, TypeVar

import click

from kafkalite.client.admin.configs import ConfigResource, Setting, alter_configs, describe_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.config import ALIASES, BROKER_KEYS, LIMIT_KEYS, TOPIC_KEYS, is_dynamic, is_limit
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import BrokerId
from kafkalite_cli.admin.refusals import refuse_unknown_broker
from kafkalite_cli.admin.topic_settings import note_of_min_isr, parse_settings
from kafkalite_cli.hints import closest
from kafkalite_cli.invocation import Invocation, client_options, group_options
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


def _resource(topic: str | None, broker: int | None, *, is_cluster: bool) -> ConfigResource:
    if (topic is not None) + (broker is not None) + is_cluster != 1:
        raise click.UsageError("give one of --topic, --broker and --cluster")
    if topic is not None:
        return ConfigResource.topic(topic)
    return ConfigResource.broker(None if broker is None else BrokerId(broker))


@config.command("get")
@click.argument("keys", nargs=-1)
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Everything that is in force for the topic or broker, and where it comes from.",
)
@entity_options
@client_options
async def get(
    cli: Invocation, keys: tuple[str, ...], *, is_all: bool, topic: str | None, broker: int | None, is_cluster: bool
) -> None:
    """Show what is set; with KEYS or --all also the values that apply otherwise. For a broker that is not alive: what is set.

    SOURCE is where the value comes from: the topic's, the broker's or the cluster's dynamic settings, the node's file, or the default.

    Examples:

    \b
      kafkalite admin config get --topic flights
      kafkalite admin config get --broker 1 --all
      kafkalite admin config get --broker 1 max.connections
      kafkalite admin config get --cluster
    """
    resource = _resource(topic, broker, is_cluster=is_cluster)
    if is_all and (keys or is_cluster):
        raise click.UsageError("--all is for a topic or a broker, and needs no KEYS")

    async with cli.connect() as client:
        found = await describe_configs(client, resource)
        if broker is not None and found.in_force is None and not found.own:
            await refuse_unknown_broker(client, broker)
    in_force: dict[str, Setting] = {}
    if is_all or (keys and not is_cluster):
        if found.in_force is None:
            reason = f"broker {broker} is not alive: only what is set for it is known"
            raise api_error(ErrorCode.BROKER_NOT_AVAILABLE, reason)
        in_force = found.in_force
    elif found.in_force is None and not found.own:
        click.echo(f"note: broker {broker} is not alive, and nothing is set for it", err=True)
    source = "topic" if topic is not None else "cluster" if is_cluster else "broker"
    known = {key: Setting(value, source) for key, value in found.own.items()} | in_force
    _refuse_unknown(keys, known.keys() | (_known_of_cluster() if is_cluster else set()))
    unset = Setting("", "not set")
    shown = {key: known.get(key, unset) for key in keys or sorted(in_force if is_all else known)}
    value = {
        "settings": {key: None if each is unset else each.value for key, each in shown.items()},
        "own": found.own,
        "effective": found.effective,
        "sources": {key: each.source for key, each in shown.items()},
    }
    rows = [(key, "(hidden)" if each.is_secret else each.value, each.source) for key, each in shown.items()]
    cli.out.listing(value, ("key", "value", "source"), rows)


def _known_of_cluster() -> set[str]:
    """Keys that can be set for all brokers."""
    return {key for key in (*BROKER_KEYS, *TOPIC_KEYS, *ALIASES) if is_dynamic(key)} | set(LIMIT_KEYS)


def _refuse_unknown(keys: tuple[str, ...], known: Set[str]) -> None:
    """A key that nobody knows is most likely misspelt. Raises ApiError."""
    for key in keys:
        if key not in known and not is_limit(key) and ALIASES.get(key, key) not in known:
            close = closest(key, sorted(known))
            hint = f"; did you mean {close}?" if close else ""
            raise api_error(ErrorCode.INVALID_CONFIG, f"{key}: no such configuration{hint}")


async def _alter(
    cli: Invocation, resource: ConfigResource, changes: dict[str, str], deletions: tuple[str, ...], broker: int | None
) -> None:
    async with cli.connect() as client:
        deadline = client.now() + cli.timeout_s
        if deletions:
            await _refuse_unset(client, resource, deletions)
        await alter_configs(client, resource, changes, deletions, timeout_s=deadline - client.now())
        settings = (await describe_configs(client, resource, timeout_s=deadline - client.now())).own
        await client.metadata([resource.name] if resource.is_topic else (), timeout_s=deadline - client.now())
    if resource.is_topic and (note := _too_many_in_sync(client, resource.name, changes)):
        click.echo(note, err=True)
    if broker is not None and BrokerId(broker) not in client.view.brokers:
        click.echo(f"kafkalite: broker {broker} is not alive: the setting takes effect when it starts", err=True)
    text = "\n".join(f"{key}={value}" for key, value in sorted(settings.items())) or "nothing is set"
    cli.out.value({"settings": settings}, text)


def _too_many_in_sync(client: AsyncClient, topic: str, changes: dict[str, str]) -> str:
    """That a topic has fewer replicas than must be in sync, if this was just set: allowed, as with Kafka, but rarely meant."""
    known = client.view.topics.get(topic)
    replicas = min((len(each.replicas) for each in known.partitions), default=0) if known is not None else 0
    return note_of_min_isr(topic, replicas, changes)


async def _refuse_unset(client: AsyncClient, resource: ConfigResource, keys: tuple[str, ...]) -> None:
    """A key that is not set is most likely misspelt. Raises ApiError."""
    settings = {ALIASES.get(key, key) for key in (await describe_configs(client, resource)).own}
    for key in keys:
        if ALIASES.get(key, key) not in settings:
            raise api_error(ErrorCode.INVALID_CONFIG, f"{key}: it is not set; nothing was changed")


@config.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE…")
@entity_options
@client_options
async def set_(
    cli: Invocation, pairs: tuple[str, ...], topic: str | None, broker: int | None, *, is_cluster: bool
) -> None:
    """Set keys; all of them, or none if one is wrong.

    Examples:

    \b
      kafkalite admin config set --topic flights retention.ms=3600000
      kafkalite admin config set --broker 2 max.connections=500
      kafkalite admin config set --cluster min.insync.replicas=2
    """
    resource = _resource(topic, broker, is_cluster=is_cluster)
    await _alter(cli, resource, parse_settings(pairs, "KEY=VALUE"), (), broker)


@config.command("delete")
@click.argument("keys", nargs=-1, required=True)
@entity_options
@client_options
async def delete(
    cli: Invocation, keys: tuple[str, ...], topic: str | None, broker: int | None, *, is_cluster: bool
) -> None:
    """Remove keys, so that the defaults apply again.

    Example:

    \b
      kafkalite admin config delete --topic flights retention.ms
    """
    await _alter(cli, _resource(topic, broker, is_cluster=is_cluster), {}, keys, broker)
