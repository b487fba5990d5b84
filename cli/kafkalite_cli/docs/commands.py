"""docs/commands.md: the help of every command, for the site and for searching."""

from __future__ import annotations

import copy

import click

from kafkalite_cli.docs.man import program, verbs_below
from kafkalite_cli.main import COMMANDS, cli

_WIDTH = 100
_INTRODUCTION = """# Commands

The help of every command (`kafkalite COMMAND --help`, or `-h`), written by `make docs`. Exit codes: 0 on success, 1 on failure (for `health`, `why`
and `disk list`: something is wrong), 2 if the arguments are invalid or the cluster rejects the request, 130 after Ctrl-C."""


def _help(command: click.Command, context: click.Context) -> list[str]:
    """Without `--help`, which all have: click remembers it with the names that it had when the command was first used."""
    shown = copy.copy(command)
    shown.add_help_option = False
    formatter = click.HelpFormatter(width=_WIDTH)
    shown.format_help(context, formatter)
    return ["```text", formatter.getvalue().rstrip(), "```"]


def commands_page() -> str:
    """The whole page."""
    above = program()
    lines = [_INTRODUCTION]
    for name, (_, what) in COMMANDS.items():
        command = cli.get_command(above, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=above)
        lines += ["", f"## kafkalite {name}", "", what.rstrip(".") + "."]
        for verb, inner in verbs_below(command, context):
            if verb is not command:
                lines += ["", f"### {inner.command_path}"]
            lines += ["", *_help(verb, inner)]
    return "\n".join(lines) + "\n"
