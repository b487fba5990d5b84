"""Numbers, brokers and partitions on a command line. A wrong value is refused before a broker is asked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, AnyStr, TypeVar

import click

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition

#: Partitions and brokers are 32-bit on the wire; int() also refuses thousands of digits, in words for programmers.
MAX_ID = 2**31 - 1
#: Offsets, and bytes per second.
MAX_LONG = 2**63 - 1


F = TypeVar("F", bound=Callable[..., Any])


json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def with_options(command: F, options: Sequence[Callable[[F], F]]) -> F:
    """The command with these options, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


class Whole(click.IntRange):
    """An integer from `low` to `high`, which is what the wire takes and needs no mention in the help."""

    name = "integer"

    def __init__(self, low: int, high: int = MAX_ID) -> None:
        super().__init__(low)
        self._high = high

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number: int = super().convert(value, param, ctx)
        if number > self._high:
            self.fail(f"{number} is more than {self._high}.", param, ctx)
        return number


#: "10MB", "1.5GB", "64 KiB", "500k"; of a rate also "10MB/s".
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:([kKMGT])(i?B)?|B)?(/s)?")
_PREFIXES = "KMGT"


def parse_size(text: str) -> int:
    """A number of bytes with a unit: kB, MB, GB and TB (k, M, …) are decimal as in all outputs, KiB, MiB, … binary. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a number of bytes, such as 500k or 20MB")
    number, prefix, unit, _ = found.groups()
    power = 0 if prefix is None else _PREFIXES.index(prefix.upper()) + 1
    size = Decimal(number) * (1024 if unit == "iB" else 1000) ** power
    if size != int(size):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


class Bytes(click.IntRange):
    """A number of bytes, or of bytes per second, that may have a unit. `most` is what the wire takes and needs no mention in the help."""

    name = "bytes"

    def __init__(self, low: int = 1, high: int | None = None, *, most: int = MAX_LONG) -> None:
        super().__init__(low, high)
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,30}", value):
            try:
                value = parse_size(value)
            except ValueError as error:
                self.fail(f"{error}.", param, ctx)
        number: int = super().convert(value, param, ctx)
        if number > self._most:
            self.fail(f"{number} is more than {self._most}.", param, ctx)
        return number


class Count(Whole):
    """A number of things that also have names: the refusal of a list of names says which option takes them."""

    def __init__(self, low: int, hint: str) -> None:
        super().__init__(low)
        self._hint = hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and "," in value:
            self.fail(f"{value!r} is a list: {self._hint}.", param, ctx)
        return super().convert(value, param, ctx)


class Real(click.FloatRange):
    """A finite number: the range of click lets nan through, because nan is neither too small nor too large."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def is_whole(text: str, high: int = MAX_ID) -> bool:
    """Whether `text` is a number from 0 to `high`, in ASCII digits."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(high)) and int(text) <= high


def parse_pattern(text: AnyStr, hint: str) -> re.Pattern[AnyStr]:
    """A regular expression. Raises click.BadParameter."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        shown = text if isinstance(text, str) else text.decode()
        raise click.BadParameter(f"{shown!r} is not a regular expression: {error}", param_hint=hint) from None


def parse_time_ms(text: str) -> int:
    """An ISO date and time in ms since 1970; without a zone it is UTC, as for Kafka's tools. Raises ValueError.

    No time is below 0: Kafka's protocol has other meanings for these numbers.
    """
    at = datetime.fromisoformat(text)
    return max(0, int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000))


_AGO = re.compile(r"-([0-9]{1,9})(s|m|h|d)")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: For errors.
MOMENTS = "a time (2026-11-22T10:00:00Z), a time ago (-15m, -2h, -1d)"


@dataclass(frozen=True, slots=True)
class At:
    """Wall time in ms; `is_ago`: before now."""

    ms: int
    is_ago: bool = False

    def at_ms(self, now_ms: int) -> int:
        """In ms since 1970."""
        return max(0, now_ms - self.ms) if self.is_ago else self.ms


def parse_moment(text: str) -> At:
    """An ISO date and time, as `parse_time_ms`, or how long ago: -90s, -15m, -2h, -7d. Raises ValueError."""
    if found := _AGO.fullmatch(text):
        return At(int(found[1]) * _UNIT_MS[found[2]], is_ago=True)
    return At(parse_time_ms(text))


def parse_partition(text: str) -> TopicPartition:
    """ "t-0". Raises click.BadParameter."""
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not is_whole(number):
        example = f", for example {text}-0" if re.fullmatch(r"[\w.-]{1,100}", text, re.ASCII) else ""
        raise click.BadParameter(f"{text!r} is not TOPIC-PARTITION{example}")
    return TopicPartition(topic, int(number))


def parse_brokers(text: str, hint: str) -> tuple[BrokerId, ...]:
    """ "1,2,3", each once. Raises click.BadParameter."""
    names = [each.strip() for each in text.split(",")]
    if not all(map(is_whole, names)):
        raise click.BadParameter(f"{text!r} is not BROKER,…", param_hint=hint)
    brokers = tuple(BrokerId(int(each)) for each in names)
    if len(set(brokers)) != len(brokers):
        raise click.BadParameter(f"{text!r}: the same broker twice", param_hint=hint)
    return brokers


def os_error_text(error: OSError) -> str:
    """ "plan.json: No such file or directory"."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
