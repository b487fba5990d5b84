"""Values as the types of their settings: from TOML, a variable of the environment, a flag, or a znode."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafkalite.config.keys import MAX
from kafkalite.errors import ConfigError

#: (key, the field's metadata, value) -> value of the field's type.
_Parser = Callable[[str, Mapping[str, Any], Any], Any]

_REPLICAS = r"|\*|\d{1,9}:\d{1,9}(,\d{1,9}:\d{1,9})*"


#: Old spellings that are still taken: alias -> key.
ALIASES = {
    "log.dir": "log.dirs", "log.segment.bytes": "segment.bytes", "log.retention.ms": "retention.ms",
    "log.retention.bytes": "retention.bytes", "log.roll.ms": "segment.ms", "log.cleanup.policy": "cleanup.policy",
    "log.index.interval.bytes": "index.interval.bytes", "log.index.size.max.bytes": "segment.index.bytes",
    "log.flush.interval.messages": "flush.messages", "log.flush.interval.ms": "flush.ms",
    "log.segment.delete.delay.ms": "file.delete.delay.ms", "message.max.bytes": "max.message.bytes",
    "log.cleaner.delete.retention.ms": "delete.retention.ms", "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio", "zookeeper": "zookeeper.connect",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.roll.jitter.ms": "segment.jitter.ms", "log.preallocate": "preallocate",
    "log.local.retention.bytes": "local.retention.bytes", "log.local.retention.ms": "local.retention.ms",
    "log.remote.copy.lag.bytes": "remote.copy.lag.bytes", "log.remote.copy.lag.ms": "remote.copy.lag.ms",
}  # fmt: skip


#: Kafka's spellings in other units: -> (ours, milliseconds in one). The spelling in milliseconds wins.
UNITS = {
    "log.retention.minutes": ("retention.ms", 60_000), "log.retention.hours": ("retention.ms", 3_600_000),
    "log.roll.hours": ("segment.ms", 3_600_000), "log.roll.jitter.hours": ("segment.jitter.ms", 3_600_000),
}  # fmt: skip


#: Keys of the article (docs/sources.md) that have no effect any more; accepted with a warning (invariant C9).
OBSOLETE = frozenset({"replica.lag.max.messages", "replica.lag.max.bytes"})


_KINDS: dict[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "text"}


def parse(key: str, spec: dataclasses.Field[Any], kind: Any, value: Any) -> Any:
    """One value, from TOML or text, as `kind`. Raises ConfigError."""
    meta = spec.metadata
    try:
        parser: _Parser = _PARSERS.get(kind, _names)
        return parser(key, meta, value)
    except (KeyError, TypeError, ValueError, OverflowError):
        shown = "the value" if meta["secret"] else repr(value)
        raise ConfigError(f"{key}: {shown} is not {_KINDS.get(kind, 'a list of names')}") from None


def _boolean(key: str, meta: Mapping[str, Any], value: Any) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False}[value.strip().lower()]
    if not isinstance(value, bool):
        raise ValueError
    if meta["is_only"] is not None and value is not meta["is_only"]:
        raise ConfigError(f"{key}: only {str(meta['is_only']).lower()} is supported")
    return value


def _number(kind: type[int] | type[float], key: str, meta: Mapping[str, Any], value: Any) -> int | float:
    number = number_of(kind, value)
    low, high = meta["low"], meta["high"]
    if abs(number) > MAX:  # of 64 bits, as clients read them
        low, high = -MAX if low is None else low, MAX if high is None else high
    if key == "kafka.port" and number == -1:
        raise ConfigError("kafka.port: -1 (no listener) is not taken any more: clients have no other listener")
    if (low is not None and number < low) or (high is not None and number > high):
        raise ConfigError(f"{key}: {number} is not {_range_text(low, high)}")
    if number == meta["without"]:
        raise ConfigError(f"{key}: {number} is not supported: {meta['doc']}")
    return number


def _text(key: str, meta: Mapping[str, Any], given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError
    value = given
    if meta["is_set"]:
        value = ",".join(dict.fromkeys(part.strip() for part in value.split(",")))
    if meta["is_list_of_replicas"] and not re.fullmatch(_REPLICAS, value := value.replace(" ", "")):
        raise ConfigError(f"{key}: {given!r} is neither * nor PARTITION:BROKER,PARTITION:BROKER")
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigError(f"{key}: {value!r} is not one of {', '.join(map(_plain, meta['choices']))}")
    return value


def _plain(choice: str) -> str:
    """In quotes if it is empty, or a list: a list of lists is hard to read."""
    return choice if choice and "," not in choice else f'"{choice}"'


def _names(key: str, meta: Mapping[str, Any], value: Any) -> tuple[str, ...]:
    names = tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)
    if not names or not all(isinstance(part, str) and part for part in names):
        raise ValueError
    return names


_PARSERS: dict[Any, _Parser] = {
    bool: _boolean,
    int: partial(_number, int),
    float: partial(_number, float),
    str: _text,
}


def number_of(kind: type[int] | type[float], value: Any) -> int | float:
    """Raises ValueError, also for what only Python takes for a number (1_000), and for nan and inf."""
    expected = int | str if kind is int else int | float | str
    if isinstance(value, bool) or not isinstance(value, expected) or (isinstance(value, str) and "_" in value):
        raise ValueError
    number = kind(value)
    if kind is float and not math.isfinite(number):
        raise ValueError
    return number


def _range_text(low: int | None, high: int | None) -> str:
    if high is None:
        return f"at least {low}"
    return f"at most {high}" if low is None else f"within {low}..{high}"


def in_milliseconds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Hours and minutes as milliseconds; of several spellings the finest holds, as with Kafka. Raises ConfigError."""
    plain = {raw: value for raw, value in settings.items() if raw not in UNITS}
    known = {ALIASES.get(raw, raw) for raw in plain}
    for raw, (key, factor) in UNITS.items():  # minutes before hours
        if raw in settings:
            try:
                number = int(number_of(int, settings[raw]))
            except (ValueError, TypeError):
                raise ConfigError(f"{raw}: {settings[raw]!r} is not an integer") from None
            if key not in known:
                known.add(key)
                plain[key] = -1 if number < 0 else min(number * factor, MAX)
    return plain
