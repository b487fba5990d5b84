"""Manual pages from the commands themselves: docs/man/*.1, one for the program and one for each of its commands.

A group's page has its verbs one after the other. The wheel puts them where `man` finds them (share/man).
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

from kafkalite_cli.main import COMMANDS, cli

_PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
#: Of the pages' own words; what comes from the commands is as old as the release in the footer.
_DATE = "2026-11-20"
_EXAMPLES = re.compile(r"Examples?:")
_ENVIRONMENT = (
    ("KAFKALITE_BOOTSTRAP", "Kafka addresses of some nodes, HOST:PORT,…; default localhost:9092."),
    ("KAFKALITE_CLIENT_CONFIG", "TOML file of TLS and SASL settings; see --client-config."),
    ("KAFKALITE_PROFILE", "Name of a profile; see kafkalite profile."),
    ("KAFKALITE_KEY_WITH_UNDERSCORES", "For serve: any key of the configuration (KAFKALITE_MIN_INSYNC_REPLICAS=2)."),
)
_EXITS = (
    ("0", "done"),
    ("1", "could not be done; for health, why, disk list: something is wrong"),
    ("2", "a usage error, or the request was rejected; nothing was changed"),
    ("130", "Ctrl-C"),
)


def _text(words: str) -> str:
    """One line of running text, with what the formatter would take for its own taken away."""
    line = " ".join(words.split()).replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + line if line[:1] in (".", "'") else line


def _paragraph(words: str) -> list[str]:
    """Running text in lines that others can look at."""
    # Wrapped before it is escaped: a line may begin with what has to be.
    return [_text(line) for line in textwrap.wrap(" ".join(words.split()), 70, break_on_hyphens=False)]


def _verbatim(line: str) -> str:
    escaped = line.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    return r"\&" + escaped if escaped[:1] in (".", "'") else escaped


def _help(text: str) -> Iterator[str]:
    """The paragraphs of a command's help; those that click leaves as they are are left so, too."""
    is_first = True
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        if lines[0].strip() == "\b":
            yield from (".RS 4", ".nf", *(_verbatim(line.strip()) for line in lines[1:]), ".fi", ".RE")
            continue
        if not is_first:
            yield ".PP"
        is_first = False
        if _EXAMPLES.fullmatch(paragraph.strip()):
            yield r"\fB" + paragraph.strip() + r"\fR"
        else:
            yield from _paragraph(paragraph)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    # Not get_params: its --help was built by the first caller, perhaps with other names.
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            names, meaning = record
            yield from (".TP", r"\fB" + _text(names) + r"\fR", *_paragraph(meaning))
    yield from (".TP", r"\fB\-h, \-\-help\fR", "Show what the command takes.")


def _usage(command: click.Command, context: click.Context) -> str:
    pieces = " ".join(command.collect_usage_pieces(context))
    return rf"\fB{_text(context.command_path)}\fR {_text(pieces)}"


def program() -> click.Context:
    """The context of the whole program. With its settings: a command keeps the names of its --help from the first context that asks."""
    return click.Context(cli, info_name="kafkalite", **cli.context_settings)


def verbs_below(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command below this one that does something."""
    if not isinstance(command, click.Group):
        yield command, context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            yield from verbs_below(inner, click.Context(inner, info_name=name, parent=context))


def _head(name: str, what: str) -> list[str]:
    title = name.upper().replace("-", r"\-")
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    release = f"kafkalite {project['version']}"
    return [
        r".\" Written by `make docs` from the commands; do not edit.",
        f'.TH "{title}" "1" "{_DATE}" "{release}" "kafkalite"',
        ".ad l",
        ".SH NAME",
        rf"{_text(name)} \- {_text(what.rstrip('.'))}",
    ]


def _tail(see_also: list[str]) -> list[str]:
    lines = [".SH ENVIRONMENT"]
    for name, meaning in _ENVIRONMENT:
        lines += [".TP", rf"\fB{name}\fR", *_paragraph(meaning)]
    lines.append(".SH EXIT STATUS")
    for code, meaning in _EXITS:
        lines += [".TP", rf"\fB{code}\fR", _text(meaning)]
    links = ",\n".join(rf".BR {_text(name)} (1)" for name in see_also).replace(",\n", " ,\n")
    return [*lines, ".SH SEE ALSO", *links.splitlines()]


def _page(name: str, what: str) -> str:
    """One command's."""
    above = program()
    command = cli.get_command(above, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=above)
    lines = [*_head(f"kafkalite-{name}", what), ".SH SYNOPSIS"]
    verbs = list(verbs_below(command, context))
    for verb, inner in verbs:
        lines += [_usage(verb, inner), ".br"]
    lines.pop()
    if verbs == [(command, context)]:
        lines += [".SH DESCRIPTION", *_help(command.help or what), ".SH OPTIONS", *_options(command, context)]
    else:
        lines += [".SH DESCRIPTION", *_help(command.help or what), ".SH OPTIONS OF ALL VERBS"]
        lines += [*_options(command, context), ".SH VERBS"]
        for verb, inner in verbs:
            lines += [f'.SS "{_text(inner.command_path)}"', *_help(verb.help or ""), *_options(verb, inner)]
    others = ["kafkalite", *(f"kafkalite-{other}" for other in sorted(COMMANDS) if other != name)]
    return "\n".join([*lines, *_tail(others)]) + "\n"


def _program() -> str:
    context = program()
    lines = [*_head("kafkalite", cli.help or ""), ".SH SYNOPSIS", _usage(cli, context)]
    lines += [".SH DESCRIPTION", *_help(cli.help or ""), ".SH COMMANDS"]
    for name, (_, what) in COMMANDS.items():
        lines += [".TP", rf"\fB{_text(name)}\fR", _text(what)]
    lines += [".SH OPTIONS", *_options(cli, context)]
    return "\n".join([*lines, *_tail([f"kafkalite-{name}" for name in sorted(COMMANDS)])]) + "\n"


def man_names() -> list[str]:
    """File names."""
    return ["kafkalite.1", *(f"kafkalite-{name}.1" for name in COMMANDS)]


def man_page(file_name: str) -> str:
    """A page, in the formatter's language."""
    name = file_name.removesuffix(".1").removeprefix("kafkalite").removeprefix("-")
    return _page(name, COMMANDS[name][1]) if name else _program()
