"""The pages that come from code are those that are committed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import takewhile

import click
import pytest

from kafkalite.config import load
from kafkalite.rpc.messages.base import by_kind
from kafkalite.telemetry.advice import ADVICE
from kafkalite_cli.docs.man import man_names, man_page
from kafkalite_cli.docs.pages import PAGES, ROOT, rpc_api
from kafkalite_cli.docs.troubleshooting import MEANS
from kafkalite_cli.main import cli


@pytest.mark.parametrize("name", sorted(PAGES))
def test_page_is_current(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


#: Whatever reads manual pages on this machine, and how it reports what is wrong with one.
_READERS = {"man": ("-l", "--warnings"), "mandoc": ("-Tlint", "-Wwarning")}


@pytest.mark.parametrize("name", man_names())
def test_manual_pages_are_well_formed(name: str) -> None:
    page = man_page(name)
    assert [line for line in page.splitlines() if line.startswith(".SH ")][:2] == [".SH NAME", ".SH SYNOPSIS"]
    assert not re.search(r"(?<!\\)-", "".join(line for line in page.splitlines() if not line.startswith(".")))
    for reader, options in _READERS.items():
        if shutil.which(reader) is not None:
            done = subprocess.run(
                [reader, *options, ROOT / "docs" / "man" / name], capture_output=True, text=True, check=False
            )
            told = (done.stdout if reader == "mandoc" else "") + done.stderr
            assert [line for line in told.splitlines() if "referenced manual not found" not in line] == []
            assert reader == "mandoc" or "SEE ALSO" in done.stdout.replace("\b", "")


def test_every_verb_is_in_a_manual_page() -> None:
    page = man_page("kafkalite-admin.1")
    assert page.count(".SS ") > 30
    assert r'.SS "kafkalite admin reassign plan"' in page
    assert r"\fB\-\-max\-replicas R\fR" in page


def test_every_message_is_in_the_table() -> None:
    page = rpc_api()
    assert all(f"## {cls.__name__}\n\nKind {kind}." in page for kind, cls in by_kind.items())


def test_the_example_of_a_configuration_file_is_one() -> None:
    text = (ROOT / "docs" / "examples" / "kafkalite.toml").read_text(encoding="utf-8")
    config, warnings = load(text, {}, {})
    assert (config.broker_id, config.topic.min_insync_replicas, warnings) == (1, 2, [])


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


#: Ends a command's own arguments.
_SHELL = ("|", "||", "&&", ";", ">", "&")


def commands(page: str) -> Iterator[list[str]]:
    """Arguments of each `kafkalite` in the page's blocks of code, pipes taken apart."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"(\$ )?(.* \| )?kafkalite ", line):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                yield list(takewhile(lambda word: word not in _SHELL, words[words.index("kafkalite") + 1 :]))


def parse(arguments: list[str]) -> list[str]:
    """The path of the command; all of its arguments are taken, none is carried out. Raises click.UsageError."""
    command: click.Command = cli
    context = click.Context(cli)
    path: list[str] = []
    while isinstance(command, click.Group):
        path.append(arguments[len(path)])
        found = command.get_command(context, path[-1])
        assert found is not None, arguments
        command = found
    command.make_context(path[-1], arguments[len(path) :], parent=context)
    return path


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_every_command_in_a_block_exists_with_its_options(page: str) -> None:
    for arguments in commands(page):
        if arguments != ["--version"]:
            parse(arguments)


def test_each_verb_about_partitions_is_shown() -> None:
    shown = {" ".join(parse(arguments)) for arguments in commands("docs/partitions.md")}
    verbs = {f"admin reassign {verb}" for verb in ("plan", "execute", "status", "list", "cancel")}
    assert shown >= verbs | {f"admin {verb}" for verb in ("add-partitions", "remove-partitions", "elect")}
    main = {" ".join(parse(arguments)) for arguments in commands("README.md")}
    assert main >= {f"admin reassign {verb}" for verb in ("plan", "execute", "status")}


def test_every_problem_is_in_the_page_about_troubleshooting() -> None:
    """test_status finds every problem of the code in ADVICE; the page has one section for each, and no others."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\w+\.\w+)$", text, re.MULTILINE)) == set(ADVICE) == set(MEANS)
