"""`kafkalite admin acls list | add | remove`: who may do what, as with kafka-acls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from kafkalite.client.admin.acls import create_acls, delete_acls, describe_acls
from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    AclEntry,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from kafkalite.security.addresses import address_range, is_address
from kafkalite_cli.invocation import Invocation, client_options, group_options
from kafkalite_cli.output import Output
from kafkalite_cli.parameters import with_options
from kafkalite_cli.zookeeper_note import note_zookeeper

Resource = tuple[ResourceType, str]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_PATTERNS = {each.name.lower(): each for each in PatternType if each}
_OPERATIONS = {each.name.lower().replace("_", "-"): each for each in Operation if each > Operation.ANY}
#: What the shortcuts stand for, as in kafka-acls.
_PRODUCER = {
    _TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    _TRANSACTION: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {_TOPIC: (Operation.READ, Operation.DESCRIBE), _GROUP: (Operation.READ,)}


@click.group("acls")
@group_options
def acls(bootstrap: str | None) -> None:
    """Who may do what (clusters with authorizer.enabled)."""


def resource_options(command: Callable[..., None]) -> Callable[..., None]:
    """The resources that are named, as the parameter `resources`."""

    @functools.wraps(command)
    def named(
        topics: Sequence[str],
        groups: Sequence[str],
        transactions: Sequence[str],
        users: Sequence[str],
        tokens: Sequence[str],
        *,
        is_cluster: bool,
        **others: Any,
    ) -> None:
        found = [(_TOPIC, name) for name in topics] + [(_GROUP, name) for name in groups]
        found += [(_TRANSACTION, name) for name in transactions]
        found += [(ResourceType.USER, name) for name in users]
        found += [(ResourceType.DELEGATION_TOKEN, name) for name in tokens]
        command(resources=found + ([(_CLUSTER, CLUSTER_NAME)] if is_cluster else []), **others)

    return with_options(named, [
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is every topic."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group."),
        click.option("--transactional-id", "transactions", multiple=True, metavar="ID", help="A transactional id."),
        click.option("--token-of", "users", multiple=True, metavar="User:NAME", help="Delegation tokens of a user."),
        click.option("--delegation-token", "tokens", multiple=True, metavar="ID", help="A delegation token."),
        click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself."),
    ])  # fmt: skip


def _row(acl: Binding) -> tuple[str, ...]:
    pattern, entry = acl.pattern, acl.entry
    return (
        pattern.resource_type.name,
        pattern.name,
        pattern.pattern_type.name,
        entry.principal,
        entry.permission.name,
        entry.operation.name,
        entry.host,
    )


def _print(found: Sequence[Binding], out: Output, key: str) -> None:
    names = ("resource", "name", "pattern", "principal", "permission", "operation", "host")
    rows = [_row(acl) for acl in found]
    out.listing({key: [dict(zip(names, row, strict=True)) for row in rows]}, names, rows)


@acls.command("list")
@resource_options
@click.option(
    "--pattern", type=click.Choice(sorted(_PATTERNS)), default="any", show_default=True,
    help="match: every entry that covers the named resource.",
)  # fmt: skip
@click.option("--principal", help="Only entries for User:NAME.")
@client_options
async def list_acls(cli: Invocation, resources: list[Resource], pattern: str, principal: str | None) -> None:
    """The entries in force.

    Example:

    \b
      kafkalite admin acls list --topic orders --pattern match
    """
    filters = [Filter(kind, name, _PATTERNS[pattern], principal) for kind, name in resources]

    found: set[Binding] = set()
    async with cli.connect() as client:
        for each in filters or [Filter(principal=principal)]:
            found.update(await describe_acls(client, each))
        await note_zookeeper(client, cli.out)
    _print(sorted(found), cli.out, "acls")


@dataclass(frozen=True, slots=True)
class EntryOptions:
    """Principals, operations and hosts, as the options name them."""

    allowed: Sequence[str]
    denied: Sequence[str]
    allow_hosts: Sequence[str]
    deny_hosts: Sequence[str]
    operations: Sequence[str]
    is_producer: bool
    is_consumer: bool
    is_idempotent: bool
    pattern: str

    @property
    def are_given(self) -> bool:
        """Whether they say anything, besides how names are matched."""
        return bool(
            self.allowed
            or self.denied
            or self.operations
            or self.is_producer
            or self.is_consumer
            or self.is_idempotent
            or self.allow_hosts
            or self.deny_hosts
        )

    def _wanted(self, resources: Sequence[Resource]) -> list[tuple[Resource, Operation]]:
        """Raises click.UsageError."""
        if self.is_producer or self.is_consumer:
            return self._of_shortcuts(resources)
        if not resources or self.is_idempotent:
            raise click.UsageError(
                "name a topic, a group, a transactional id or the cluster (--idempotent: a producer)"
            )
        chosen = [_OPERATIONS[each] for each in self.operations] or [Operation.ALL]
        wanted = [(resource, operation) for resource in resources for operation in chosen]
        for (kind, _), operation in wanted:
            if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
                raise click.UsageError(f"{operation.name} is not an operation of {kind.name}")
        return wanted

    def _of_shortcuts(self, resources: Sequence[Resource]) -> list[tuple[Resource, Operation]]:
        """What --producer and --consumer mean. Raises click.UsageError."""
        if self.operations:
            raise click.UsageError("--producer and --consumer say which operations: not with --operation")
        kinds = {kind for kind, _ in resources}
        if _TOPIC not in kinds or (self.is_consumer and _GROUP not in kinds) or _CLUSTER in kinds:
            raise click.UsageError("--producer needs --topic; --consumer needs --topic and --group; neither --cluster")
        shortcuts = [*([_PRODUCER] if self.is_producer else []), *([_CONSUMER] if self.is_consumer else [])]
        found = [
            (resource, operation)
            for shortcut in shortcuts
            for resource in resources
            for operation in shortcut.get(resource[0], ())
        ]
        if self.is_idempotent and self.is_producer:
            found.append(((_CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE))
        return list(dict.fromkeys(found))

    def bindings(self, resources: Sequence[Resource]) -> tuple[Binding, ...]:
        """The entries for these resources. Raises click.UsageError."""
        wanted = self._wanted(resources)
        if not self.allowed and not self.denied:
            raise click.UsageError("give --allow-principal or --deny-principal")
        if (self.allow_hosts and not self.allowed) or (self.deny_hosts and not self.denied):
            raise click.UsageError(
                "a host needs a principal: use --allow-host with --allow-principal, --deny-host with --deny-principal"
            )
        whom = [(who, host, Permission.ALLOW) for who in self.allowed for host in self.allow_hosts or ("*",)]
        whom += [(who, host, Permission.DENY) for who in self.denied for host in self.deny_hosts or ("*",)]
        found = []
        for (kind, name), operation in wanted:
            # The cluster has one name: nothing begins with it.
            pattern_type = PatternType.LITERAL if kind is _CLUSTER else _PATTERNS[self.pattern]
            found += [
                Binding(Pattern(kind, name, pattern_type), AclEntry(who, host, operation, permission))
                for who, host, permission in whom
            ]
        return tuple(found)


def entry_options(command: Callable[..., None]) -> Callable[..., None]:
    """Pass the options for principals, operations and hosts to the command, as its parameter `entries`."""

    @functools.wraps(command)
    def bundled(**given: Any) -> None:
        entries = EntryOptions(**{name: given.pop(name) for name in EntryOptions.__match_args__})
        command(entries=entries, **given)

    return with_options(bundled, [
        click.option("--allow-principal", "allowed", multiple=True, metavar="User:NAME", help="Principal whose access is allowed."),
        click.option("--deny-principal", "denied", multiple=True, metavar="User:NAME", help="Principal whose access is denied."),
        click.option("--allow-host", "allow_hosts", multiple=True, metavar="ADDRESS", help="Address, or range (10.0.0.0/8), from which access is allowed [default: *]."),
        click.option("--deny-host", "deny_hosts", multiple=True, metavar="ADDRESS", help="Address, or range (10.0.0.0/8), from which access is denied [default: *]."),
        click.option(
            "--operation", "operations", multiple=True, type=click.Choice(sorted(_OPERATIONS), case_sensitive=False), help="[default: all]"
        ),
        click.option("--producer", "is_producer", is_flag=True, help="Write, describe, create of the topics named."),
        click.option("--consumer", "is_consumer", is_flag=True, help="Read, describe of the topics, read of the groups."),
        click.option("--idempotent", "is_idempotent", is_flag=True, help="With --producer: idempotent writes."),
        click.option(
            "--pattern", type=click.Choice(["literal", "prefixed"]), default="literal", show_default=True,
            help="Whether the names are exact names or prefixes.",
        ),
    ])  # fmt: skip


def _check_host(host: str) -> None:
    """An entry for anything else never matches: a denial would deny nothing. (`remove` takes any, so that such an entry can go.)"""
    if host != "*" and not is_address(host) and address_range(host) is None:
        raise click.UsageError(f"{host!r} is neither an IP address nor a range of them")


@acls.command("add")
@resource_options
@entry_options
@client_options
async def add(cli: Invocation, resources: list[Resource], entries: EntryOptions) -> None:
    """Add entries; those that are there stay.

    Examples:

    \b
      kafkalite admin acls add --producer --topic orders --allow-principal User:shop
      kafkalite admin acls add --consumer --topic orders --group billing- --pattern prefixed --allow-principal User:billing
    """
    found = entries.bindings(resources)
    for each in found:
        _check_host(each.entry.host)

    async with cli.connect() as client:
        await create_acls(client, found)
    _print(found, cli.out, "added")


@acls.command("remove")
@resource_options
@entry_options
@click.option(
    "--yes", is_flag=True, help="Confirm the removal of every entry of the named resources, if no principal is given."
)
@client_options
async def remove(cli: Invocation, resources: list[Resource], entries: EntryOptions, *, yes: bool) -> None:
    """Remove entries.

    Example:

    \b
      kafkalite admin acls remove --topic orders --yes
    """
    if not entries.are_given:
        if not resources:
            raise click.UsageError("name a topic, a group, a transactional id or the cluster")
        if not yes:
            raise click.UsageError("no principal: add --yes to remove every entry of the named resources")
        filters = tuple(
            Filter(kind, name, PatternType.LITERAL if kind is _CLUSTER else _PATTERNS[entries.pattern])
            for kind, name in resources
        )
    else:
        filters = tuple(each.exactly() for each in entries.bindings(resources))

    async with cli.connect() as client:
        removed = await delete_acls(client, filters)
    _print(removed, cli.out, "removed")
    if not removed:
        is_all = bool(entries.allowed or entries.denied) and not (
            entries.operations or entries.is_producer or entries.is_consumer
        )
        hint = "; without --operation only entries for ALL are meant" if is_all else ""
        click.echo(f"kafkalite: no entry matches: nothing was removed{hint}", err=True)
