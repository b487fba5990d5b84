"""`kafkalite admin`: the table of its verbs, each of which is imported when it is used."""

from __future__ import annotations

import importlib

import click

from kafkalite_cli.imports import uncollected
from kafkalite_cli.output import group_options

#: Verb -> module with a click command of its name (- as _). Imported when it is used: an admin command must start fast.
VERBS = {
    "acls": "kafkalite_cli.admin.acls",
    "add-partitions": "kafkalite_cli.admin.partitions",
    "backup": "kafkalite_cli.admin.backup.command",
    "balance": "kafkalite_cli.admin.balance",
    "broker": "kafkalite_cli.admin.broker",
    "config": "kafkalite_cli.admin.settings",
    "create-topic": "kafkalite_cli.admin.topics",
    "delete-records": "kafkalite_cli.admin.delete_records",
    "delete-topic": "kafkalite_cli.admin.topics",
    "describe": "kafkalite_cli.admin.topics",
    "describe-cluster": "kafkalite_cli.admin.cluster",
    "disk": "kafkalite_cli.admin.disk",
    "elect": "kafkalite_cli.admin.partitions",
    "groups": "kafkalite_cli.admin.groups",
    "health": "kafkalite_cli.admin.cluster",
    "list-topics": "kafkalite_cli.admin.topics",
    "offsets": "kafkalite_cli.admin.groups",
    "quotas": "kafkalite_cli.admin.quotas",
    "reassign": "kafkalite_cli.admin.reassign",
    "remove-partitions": "kafkalite_cli.admin.partitions",
    "rolling-restart": "kafkalite_cli.admin.rolling",
    "tokens": "kafkalite_cli.admin.tokens",
    "trace": "kafkalite_cli.admin.trace",
    "transactions": "kafkalite_cli.admin.transactions",
    "users": "kafkalite_cli.admin.users",
    "why": "kafkalite_cli.admin.why",
    "zookeeper": "kafkalite_cli.admin.zookeeper.acls",
}


class AdminGroup(click.Group):
    """Finds the verbs in their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        with uncollected():
            command = getattr(importlib.import_module(VERBS[cmd_name]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


@click.group(cls=AdminGroup)
@group_options
def admin(bootstrap: str | None) -> None:
    """Show and change the cluster."""
