"""Names in a shell's completion: topics, partitions, groups, brokers, profiles, settings. Silent if anything goes wrong.

A shell waits for every completion. So a cluster is asked once in a while, and for a second only; the names are kept in a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    _resolve_context,
    _resolve_incomplete,
)

from kafkalite.errors import KafkaliteError

#: A cluster that answers slowly gets no names completed.
_TIMEOUT_S = 1.0
#: Names are asked for again after this time; after a failure, too.
_KEPT_S = 10.0
#: What is kept of a cluster, and of how many clusters.
_MAX_NAMES = 5_000
_MAX_FILES = 20
#: A shell lists no more.
_MAX_SHOWN = 500
#: A name that is no option, and means nothing else to a shell.
_PLAIN = re.compile(r"(?!-)[\w./:=@%+,-]+")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "kafkalite"


def names_of(bootstrap: str, who: str) -> dict[str, list[str]]:
    """topics (as NAME/PARTITIONS), groups and brokers of a cluster, from the file if it is new; empty if nobody answers."""
    digest = hashlib.sha256(f"{bootstrap}\n{who}".encode()).hexdigest()[:16]
    path = _cache() / f"names-{digest}.json"
    with contextlib.suppress(OSError, ValueError):
        if 0 <= time.time() - path.stat().st_mtime < _KEPT_S:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(kept, dict):
                return kept
    found: dict[str, list[str]] = {"topics": [], "groups": [], "brokers": []}
    with contextlib.suppress(KafkaliteError, OSError, ValueError):
        found = _ask(bootstrap)
    with contextlib.suppress(OSError):
        _keep(path, json.dumps(found))
    return found


def _ask(bootstrap: str) -> dict[str, list[str]]:
    import asyncio

    from kafkalite.protocol import wire
    from kafkalite_cli.invocation import Invocation
    from kafkalite_cli.output import Output, run_async

    async def work() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {"topics": [], "groups": [], "brokers": []}
        with contextlib.suppress(TimeoutError):
            cli = Invocation(bootstrap, _TIMEOUT_S, Output(as_json=False))
            async with asyncio.timeout(_TIMEOUT_S), cli.connect() as client:
                metadata = await client.metadata(timeout_s=_TIMEOUT_S)
                found["brokers"] = [str(each.broker_id) for each in metadata.brokers][:_MAX_NAMES]
                topics = sorted((each.topic, len(each.partitions)) for each in metadata.topics)
                found["topics"] = [f"{name}/{count}" for name, count in topics[:_MAX_NAMES]]
                answers = await client.every_node(wire.ListGroupsRequest(), timeout_s=_TIMEOUT_S)
                groups = {
                    each.group_id
                    for answer in answers.values()
                    if not isinstance(answer, KafkaliteError)
                    for each in answer.groups
                }
                found["groups"] = sorted(groups)[:_MAX_NAMES]
        return found

    return run_async(work())


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = sorted(path.parent.glob("names-*"), key=lambda each: each.stat().st_mtime)
    for old in files[: max(0, len(files) - _MAX_FILES + 1)]:
        old.unlink(missing_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


# --- which parameter takes what ----------------------------------------------------------------------

Words = Callable[[click.Context, str], Iterable[str]]


def _cluster(ctx: click.Context) -> dict[str, list[str]]:
    from kafkalite_cli.invocation import chosen_cluster

    bootstrap, who = chosen_cluster(ctx)
    return names_of(bootstrap, who)


def _topics(ctx: click.Context, incomplete: str) -> Iterable[str]:
    names = [each.rpartition("/")[0] for each in _cluster(ctx)["topics"]]
    # Internal topics only for those who begin to write one.
    return [name for name in names if incomplete.startswith("_") or not name.startswith("__")]


def _partitions(ctx: click.Context, incomplete: str) -> Iterable[str]:
    for each in _cluster(ctx)["topics"]:
        name, _, count = each.rpartition("/")
        if incomplete.startswith("_") or not name.startswith("__"):
            yield from (f"{name}-{number}" for number in range(int(count)))


def _groups(ctx: click.Context, _: str) -> Iterable[str]:
    return _cluster(ctx)["groups"]


def _brokers(ctx: click.Context, _: str) -> Iterable[str]:
    return _cluster(ctx)["brokers"]


def _list_of_brokers(ctx: click.Context, incomplete: str) -> Iterable[str]:
    """1,2,3: the last one, after those that are written."""
    before, comma, _ = incomplete.rpartition(",")
    used = before.split(",")
    return [before + comma + each for each in _brokers(ctx, "") if each not in used]


def _profiles(ctx: click.Context, _: str) -> Iterable[str]:
    from kafkalite_cli.profiles import read_profiles

    return read_profiles().by_name


def _settings(ctx: click.Context, _: str) -> Iterable[str]:
    from kafkalite.config import BROKER_KEYS, TOPIC_KEYS

    is_broker = ctx.params.get("broker") is not None or ctx.params.get("is_cluster")
    return BROKER_KEYS if is_broker else TOPIC_KEYS


def _assigned_settings(ctx: click.Context, incomplete: str) -> Iterable[str]:
    return [f"{key}=" for key in _settings(ctx, incomplete)]


_BY_NAME: dict[str, Words] = {
    "broker": _brokers, "broker_id": _brokers, "old": _brokers, "brokers": _list_of_brokers, "group": _groups, "groups": _groups,
    "partition": _partitions, "profile": _profiles, "topic": _topics, "topics": _topics,
}  # fmt: skip
_BY_METAVAR: dict[str, Words] = {
    "BROKER…": _brokers, "GROUP…": _groups, "TOPIC-P": _partitions, "[TOPIC-P]…": _partitions, "[TOPIC[-P]]": _topics,
    "TOPIC[-P]": _topics,
}  # fmt: skip
#: (the end of the command's path, parameter): where a name alone does not say it.
_BY_COMMAND: dict[tuple[str, str], Words] = {
    ("admin delete-topic", "name"): _topics,
    ("admin create-topic", "settings"): _assigned_settings,
    ("config get", "keys"): _settings,
    ("config delete", "keys"): _settings,
    ("config set", "pairs"): _assigned_settings,
    ("profile use", "name"): _profiles,
    ("profile show", "name"): _profiles,
    ("profile delete", "name"): _profiles,
}


def _words_for(ctx: click.Context, parameter: click.Parameter) -> Words | None:
    for (path, name), words in _BY_COMMAND.items():
        if parameter.name == name and ctx.command_path.endswith(path):
            return words
    if parameter.metavar in _BY_METAVAR:
        return _BY_METAVAR[parameter.metavar]
    # `--partition 3` is a number, not a partition's name.
    if parameter.name == "partition" and isinstance(parameter, click.Option):
        return None
    return _BY_NAME.get(parameter.name or "")


class _Names(ShellComplete):
    """Completes what a cluster has, and everything else as click does."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        ctx = _resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        found, incomplete = _resolve_incomplete(ctx, args, incomplete)
        words = _words_for(ctx, found) if isinstance(found, click.Parameter) else None
        if words is None:
            return found.shell_complete(ctx, incomplete)
        try:
            fitting = [word for word in words(ctx, incomplete) if word.startswith(incomplete)]
        except (KafkaliteError, click.ClickException, OSError, ValueError, RuntimeError):  # the last one: no home
            return []
        # Clients choose the names of groups, and bash inserts a name as it is: one like `$(reboot)` would run with the command.
        return [CompletionItem(word) for word in fitting if _PLAIN.fullmatch(word)][:_MAX_SHOWN]


class _Bash(_Names, BashComplete):
    pass


class _Zsh(_Names, ZshComplete):
    pass


class _Fish(_Names, FishComplete):
    pass


SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def answer(command: click.Command, program: str, variable: str, instruction: str) -> int:
    """What a shell asked for, on stdout; the exit code."""
    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what not in ("source", "complete"):
        return 1
    asked = SHELLS[shell](command, {}, program, variable)
    click.echo(asked.source() if what == "source" else asked.complete())
    return 0
