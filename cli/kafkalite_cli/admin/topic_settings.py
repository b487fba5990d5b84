"""What verbs about topics need of settings. It loads no table of keys, which takes as long as the rest of such a verb's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from kafkalite.wording import number_of


def parse_settings(settings: Sequence[str], hint: str = "--set") -> dict[str, str]:
    """k=v words as a dict. Raises click.BadParameter about `hint`."""
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint=hint)
        found[key.strip()] = value.strip()
    return found


def note_of_min_isr(topic: str, replicas: int, changes: Mapping[str, str]) -> str:
    """Empty if the settings fit a topic with that number of replicas (0: not known)."""
    wanted = changes.get("min.insync.replicas", "")
    if not wanted.isdigit() or not 0 < replicas < int(wanted):
        return ""
    return f"note: {topic} has {number_of(replicas, 'replica')}, so min.insync.replicas={wanted} counts as {replicas}"
