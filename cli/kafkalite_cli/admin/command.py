"""`kafkalite admin`: the table of its verbs, each of which is imported when it is used."""

from __future__ import annotations

import importlib

import click

from kafkalite_cli.imports import uncollected
from kafkalite_cli.invocation import group_options

#: Verb -> (module with a click command of its name (- as _), first sentence of its help). Imported when it is used: an admin command must
#: start fast, and so must the list of all.
VERBS = {
    "acls": ("kafkalite_cli.admin.acls", "Who may do what (clusters with authorizer.enabled)."),
    "add-partitions": (
        "kafkalite_cli.admin.partitions",
        "Add partitions to a topic; keyed records may go elsewhere from then on.",
    ),
    "backup": ("kafkalite_cli.admin.backup.command", "Copy topics and groups' offsets into files, and back."),
    "balance": ("kafkalite_cli.admin.balance", "How even the load is; what would move, and why."),
    "broker": ("kafkalite_cli.admin.broker", "Cordon, drain and replace brokers."),
    "config": ("kafkalite_cli.admin.settings", "Dynamic settings of topics, brokers and the cluster."),
    "create-topic": ("kafkalite_cli.admin.topics", "Create a topic; returns when every node knows its leaders."),
    "delete-records": (
        "kafkalite_cli.admin.delete_records",
        "Delete the oldest records of a topic, up to an offset or a time.",
    ),
    "delete-topic": ("kafkalite_cli.admin.topics", "Delete a topic with all its records."),
    "describe": ("kafkalite_cli.admin.topics", "Leaders and replicas of topics (default: all)."),
    "describe-cluster": (
        "kafkalite_cli.admin.cluster",
        "Brokers with their addresses and versions, and the controller.",
    ),
    "disk": ("kafkalite_cli.admin.disk", "Disks (log directories) of the nodes."),
    "elect": (
        "kafkalite_cli.admin.partitions",
        "Hold elections; exits 1 if one of them could not be held, 2 if there is no such partition.",
    ),
    "groups": ("kafkalite_cli.admin.groups", "Consumer groups: members, offsets, lag."),
    "health": (
        "kafkalite_cli.admin.cluster",
        "The problems that any node sees, and what to do about each; exits 1 if there are any.",
    ),
    "list-topics": ("kafkalite_cli.admin.topics", "Every topic with its number of partitions and replicas."),
    "offsets": ("kafkalite_cli.admin.groups", "Committed offsets of a group, one partition at a time."),
    "quotas": ("kafkalite_cli.admin.quotas", "Quotas of users, clients and addresses."),
    "reassign": ("kafkalite_cli.admin.reassign", "Move partitions between brokers, in small steps."),
    "remove-partitions": ("kafkalite_cli.admin.partitions", "Remove a topic's last partitions with their records."),
    "rolling-restart": (
        "kafkalite_cli.admin.rolling",
        "Restart the brokers one after the other, without a pause for clients with acks=all.",
    ),
    "tokens": (
        "kafkalite_cli.admin.tokens",
        "Delegation tokens: log in as a user without the user's password, for a limited time.",
    ),
    "trace": (
        "kafkalite_cli.admin.trace",
        "Watch the requests of clients on every broker, and show where their time goes.",
    ),
    "transactions": ("kafkalite_cli.admin.transactions", "Find open transactions, and end those that hang."),
    "users": ("kafkalite_cli.admin.users", "SCRAM users and their passwords."),
    "why": (
        "kafkalite_cli.admin.why",
        "What is wrong with a partition, since when, what led there, and what to do; exits 1 if anything is.",
    ),
    "zookeeper": ("kafkalite_cli.admin.zookeeper.acls", "Who may change the cluster's znodes in ZooKeeper."),
}


class AdminGroup(click.Group):
    """Finds the verbs in their modules."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        with uncollected():
            command = getattr(importlib.import_module(VERBS[cmd_name][0]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - 6 - max(map(len, VERBS))
        with formatter.section("Commands"):
            shown = [
                (verb, click.Command(verb, help=said).get_short_help_str(room)) for verb, (_, said) in VERBS.items()
            ]
            formatter.write_dl(sorted(shown))


@click.group(cls=AdminGroup)
@group_options
def admin(bootstrap: str | None) -> None:
    """Show and change the cluster."""
