"""`kafkalite admin quotas list | set | delete`: how fast users, clients and addresses may be."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from kafkalite.client.admin.quotas import alter_quotas, describe_quotas
from kafkalite.errors import ErrorCode, api_error
from kafkalite.security.quotas import CONNECTION_RATE, DEFAULT, Entity, Kind, parse_limit
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.parameters import parse_size, with_options
from kafkalite_cli.zookeeper_note import note_zookeeper

_ENTITY_OPTIONS = ("user", "user_default", "client_id", "client_id_default", "ip", "ip_default")
_KEYS = [*map(str, Kind), CONNECTION_RATE]
_BYTE_RATES = frozenset({"producer_byte_rate", "consumer_byte_rate"})


@click.group("quotas")
@group_options
def quotas(bootstrap: str | None) -> None:
    """Quotas of users, clients and addresses."""


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--user, --client-id, --ip and their defaults: the command gets them as `entity`."""

    @functools.wraps(command)
    def with_entity(*args: Any, **given: Any) -> Any:
        chosen = {name: given.pop(name) for name in _ENTITY_OPTIONS}
        return command(*args, entity=_entity(**chosen), **given)

    options = [
        click.option("--user", metavar="NAME", help="A user (the principal's name)."),
        click.option("--user-default", is_flag=True, help="Every user without its own quota."),
        click.option("--client-id", metavar="ID", help="A client id."),
        click.option("--client-id-default", is_flag=True, help="Every client id without its own quota."),
        click.option("--ip", metavar="ADDRESS", help="An address, for connection_creation_rate."),
        click.option("--ip-default", is_flag=True, help="Every address without its own quota."),
    ]
    return with_options(with_entity, options)


def _entity(
    *,
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> Entity:
    """Raises click.UsageError."""
    pairs = ((user, user_default), (client_id, client_id_default), (ip, ip_default))
    if any(name is not None and is_default for name, is_default in pairs):
        raise click.UsageError("give a name or the default: not both")
    if "" in (user, client_id, ip):
        raise click.UsageError("an empty name")
    names = [DEFAULT if is_default else name for name, is_default in pairs]
    if names == [None, None, None]:
        raise click.UsageError("give --user, --client-id or --ip, or one of their defaults")
    if names[2] is not None and names[:2] != [None, None]:
        raise click.UsageError("--ip cannot be used with --user or --client-id: quotas of addresses are separate")
    return Entity(*names)


def _name(name: str | None) -> str:
    return "" if name is None else "<default>" if name == DEFAULT else name


@quotas.command("list")
@client_options
async def list_quotas(cli: Invocation) -> None:
    """Every quota that is set.

    Example:

    \b
      kafkalite admin quotas list
    """
    async with cli.connect() as client:
        found = await describe_quotas(client)
        await note_zookeeper(client, cli.out)
    rows = [
        (_name(entity.user), _name(entity.client_id), _name(entity.ip), key, value)
        for entity, limits in found
        for key, value in sorted(limits.items())
    ]
    names = ("user", "client_id", "ip", "quota", "limit")
    value = {"quotas": [dict(zip(names, row, strict=True)) for row in rows]}
    cli.out.listing(value, ("user", "client id", "address", "quota", "limit"), rows)


@quotas.command("set")
@click.argument("limits", nargs=-1, required=True, metavar="KEY=VALUE…")
@entity_options
@client_options
async def set_quota(cli: Invocation, limits: tuple[str, ...], *, entity: Entity) -> None:
    """Set limits: producer_byte_rate, consumer_byte_rate (bytes/s, or 10MB), request_percentage, controller_mutation_rate
    (partitions/s); connection_creation_rate of addresses.

    Example:

    \b
      kafkalite admin quotas set producer_byte_rate=10MB --user shop
    """
    found: dict[str, str] = {}
    for limit in limits:
        key, equals, value = limit.partition("=")
        try:
            if key in _BYTE_RATES and value[-1:].isalpha():
                value = str(parse_size(value))
            parse_limit(key, value)
        except ValueError:
            equals = ""
        found[key] = value
        if not equals:
            raise click.BadParameter(f"{limit!r} is not KEY=NUMBER; keys are {', '.join(_KEYS)}", param_hint="LIMITS")
    await _change(cli, entity, found, ())


@quotas.command("delete")
@click.argument("keys", nargs=-1, required=True, type=click.Choice(_KEYS))
@entity_options
@client_options
async def delete(cli: Invocation, keys: tuple[str, ...], *, entity: Entity) -> None:
    """Remove limits.

    Example:

    \b
      kafkalite admin quotas delete producer_byte_rate --user shop
    """
    await _change(cli, entity, {}, keys)


async def _change(cli: Invocation, entity: Entity, limits: dict[str, str], deletions: tuple[str, ...]) -> None:
    changes: dict[str, float | None] = {key: parse_limit(key, text) for key, text in limits.items()}
    changes |= dict.fromkeys(deletions)
    async with cli.connect() as client:
        # As with `config delete`: what is not set is most likely misspelt. The nodes may resolve the name of an address.
        if deletions and entity.ip is None:
            own = dict(await describe_quotas(client)).get(entity, {})
            if unset := sorted({*deletions} - own.keys()):
                raise api_error(ErrorCode.INVALID_CONFIG, f"{unset[0]}: it is not set; nothing was changed")
        await alter_quotas(client, entity, changes)
    reported = {"user": entity.user, "client_id": entity.client_id, "ip": entity.ip}
    cli.out.value({**reported, "set": limits, "deleted": list(deletions)}, "done")
