"""Options as text, and as the types they stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kafkalite.errors import ConfigError
from kafkalite.model import TopicPartition
from kafkalite.security.dialling import KEYS as SECURITY_KEYS
from kafkalite.security.dialling import ClientSecurity
from pyspark_kafkalite import client_settings
from pyspark_kafkalite.offsets import EARLIEST, AtTimestamp, Earliest, Latest, OffsetSpec, Specific
from pyspark_kafkalite.options import BOOTSTRAP, GROUP_ID, INT_MAX, LONG_MAX, ClientOptions, OptionError, Subscription

#: Every option by its proper spelling. Client settings (`kafka.*`) are in `client_settings`.
_KNOWN = (
    "assign", "subscribe", "subscribePattern",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "filterPushdown", "groupIdPrefix",
    "commitProgress",
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "topic", "deliveryGuarantee", "txnAppId", "txnVersion",
)  # fmt: skip
PER_TRIGGER = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger")
#: Spark sets these.
_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})
_DURATION = re.compile(
    r"(\d{1,15})\s*(ms|msec|millis|milliseconds?|s|sec|secs|seconds?|m|min|mins|minutes?|h|hours?|d|days?)?"
)
#: In front of an address, where Kafka's clients pass over it.
_SCHEME = re.compile(r"[0-9A-Za-z._%-]*://")
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: Of txnAppId: it is part of every transaction's name.
NAME_CHARACTERS = 1_000


class Options:
    """Options by lower-cased name, read with the proper spelling in every message."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in options.items()}
        self.warnings: list[str] = []

    def text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def client(self, key: str) -> str | None:
        """`kafka.<key>`, or its old name `kafkalite.<key>`."""
        value = self._given.get(f"kafka.{key}", self._given.get(f"kafkalite.{key}"))
        return value.strip() if value is not None else None

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None and name.startswith("kafka."):
            value = self.client(name.removeprefix("kafka."))
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise OptionError(f"{name} must be true or false, not {value!r}")
        return value.strip().lower() == "true"

    def choice(self, name: str, *allowed: str) -> str:
        """In lower case; the first of `allowed` if nothing is given. Raises OptionError."""
        value = (self.text(name) or allowed[0]).strip().lower()
        if value not in allowed:
            raise OptionError(f"{name} is {', '.join(allowed[:-1])} or {allowed[-1]}, not {value!r}")
        return value

    def number(self, name: str, *, least: int, most: int = LONG_MAX) -> int | None:
        value = self.text(name)
        return None if value is None else _number(name, value, least, most)

    def client_number(self, key: str, default: int, most: int = INT_MAX, *, least: int = 1) -> int:
        value = self.client(key)
        return default if value is None else _number(f"kafka.{key}", value, least, most)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value.strip().lower())
        if match is None:
            raise OptionError(f"{name} is a time such as 30s, 15m or 500ms, not {value!r}")
        unit = match[2] or "ms"
        scale = _DURATION_MS["ms"] if unit.startswith(("ms", "mil")) else _DURATION_MS[unit[0]]
        return int(match[1]) * scale

    def check_names(self) -> None:
        """Refuse what is refused by name and what looks like a slip of the pen; warn of what is not ours, and leave it alone."""
        by_lower = {name.lower(): name for name in _KNOWN}
        for key in sorted(self._given):
            prefix, _, rest = key.partition(".")
            if key == GROUP_ID:
                continue
            if prefix in ("kafka", "kafkalite") and rest:
                self._check_client_key(prefix, rest)
            elif key not in by_lower and key not in _SPARKS_OWN:
                self._check_unknown(key, by_lower)

    def _check_unknown(self, key: str, by_lower: Mapping[str, str]) -> None:
        import difflib

        close = difflib.get_close_matches(key, by_lower, n=1, cutoff=0.8)
        meant = by_lower[close[0]] if close else f"kafka.{key}" if client_settings.matters(key) else None
        if meant is not None:
            raise OptionError(f"there is no option {key}; did you mean {meant}?")
        self.warnings.append(f"{key} is no option here and is ignored")

    def _check_client_key(self, prefix: str, key: str) -> None:
        try:
            warning = client_settings.check(key, self._given[f"{prefix}.{key}"])
        except ConfigError as error:
            raise OptionError(f"{prefix}.{error}") from None
        if warning is not None:
            self.warnings.append(warning)
        if prefix == "kafkalite":
            both = ", which counts here" if f"kafka.{key}" in self._given else ""
            self.warnings.append(f"kafkalite.{key} is the old name of kafka.{key}{both}")

    def client_options(self) -> ClientOptions:
        servers = self.client("bootstrap.servers")
        if servers is None:
            raise OptionError(f"{BOOTSTRAP} is missing: host:port of one or more brokers")
        endpoints = tuple(_SCHEME.sub("", part.strip()) for part in servers.split(",") if part.strip())
        for endpoint in endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or "/" in host or not _is_decimal(port) or not 0 < int(port) < 65536:
                raise OptionError(f"{BOOTSTRAP}: {endpoint!r} is not host:port")
        if not endpoints:
            raise OptionError(f"{BOOTSTRAP} is empty")
        return ClientOptions(
            endpoints,
            self.client("client.id") or "spark-kafkalite",
            self.client_number("request.timeout.ms", 30_000),
            self._security(),
        )

    def _security(self) -> ClientSecurity | None:
        given = {key: value for key in SECURITY_KEYS if (value := self.client(key)) is not None}
        try:
            return ClientSecurity.parse(given)
        except ConfigError as error:
            raise OptionError(f"kafka.{error}") from None

    def subscription(self) -> Subscription:
        strategies = ("assign", "subscribe", "subscribePattern")
        chosen = [name for name in strategies if self.text(name) is not None]
        if len(chosen) != 1:
            said = f"{' and '.join(chosen)} are given" if chosen else "none is"
            raise OptionError(f"exactly one of {', '.join(strategies)} is needed; {said}")
        value = (self.text(chosen[0]) or "").strip()
        if chosen[0] == "assign":
            partitions = _assignment(value)
            if not partitions:
                raise OptionError('assign names no partition; it is JSON such as {"topic":[0,1]}')
            return Subscription(partitions=partitions)
        if chosen[0] == "subscribe":
            topics = tuple(sorted({topic.strip() for topic in value.split(",") if topic.strip()}))
            if not topics:
                raise OptionError("subscribe names no topic")
            return Subscription(topics=topics)
        if not value:
            raise OptionError("subscribePattern is empty")
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(
                f"subscribePattern {value!r} is not a regular expression of Python: {error} "
                "(Java's possessive quantifiers, \\p{...} and && in classes do not exist here)"
            ) from error
        return Subscription(pattern=value)

    def offset_spec(self, side: str, default: OffsetSpec) -> OffsetSpec:
        """`<side>Timestamp` before `<side>OffsetsByTimestamp` before `<side>Offsets`."""
        if (value := self.text(f"{side}Timestamp")) is not None:
            return AtTimestamp({}, _number(f"{side}Timestamp", value, 0))
        if (value := self.text(f"{side}OffsetsByTimestamp")) is not None:
            return AtTimestamp(_per_partition(f"{side}OffsetsByTimestamp", value, least=0))
        value = self.text(f"{side}Offsets")
        if value is None:
            return default
        match value.strip().lower():
            case "earliest":
                return Earliest()
            case "latest":
                return Latest()
        return Specific(_per_partition(f"{side}Offsets", value.strip(), least=EARLIEST))


def _number(name: str, value: str, least: int, most: int = LONG_MAX) -> int:
    try:
        number = int(value.strip())
    except ValueError:
        unit = " of milliseconds since 1970" if name.endswith("Timestamp") else ""
        raise OptionError(f"{name} is a whole number{unit}, not {value!r}") from None
    return _between(name, number, least, most)


def _between(name: str, number: int, least: int, most: int) -> int:
    if number < least:
        raise OptionError(f"{name} is {number}; the least is {least}")
    if number > most:
        raise OptionError(f"{name} is {number}; the most is {most}")
    return number


def _is_decimal(text: str) -> bool:
    """Digits that `int` takes, few enough of them: `str.isdigit` is true of superscripts, too."""
    return text.isascii() and text.isdigit() and len(text) < 20


def _json_object(name: str, value: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError of another kind
        raise OptionError(f"{name} is JSON such as {example}, not {value[:200]!r}: {error}") from error
    if not isinstance(parsed, dict):
        raise OptionError(f"{name} is a JSON object such as {example}, not {value!r}")
    return parsed


def _assignment(value: str) -> tuple[TopicPartition, ...]:
    example = '{"topic":[0,1]}'
    found: set[TopicPartition] = set()
    for topic, partitions in _json_object("assign", value, example).items():
        if not isinstance(partitions, list) or not all(type(p) is int and p >= 0 for p in partitions):
            raise OptionError(f"assign: the partitions of {topic} are a list of numbers, as in {example}")
        found.update(TopicPartition(topic, p) for p in partitions)
    return tuple(sorted(found))


def _per_partition(name: str, value: str, *, least: int) -> dict[TopicPartition, int]:
    example = '{"topic":{"0":23,"1":-2}}' if name.endswith("Offsets") else '{"topic":{"0":1700000000000}}'
    words = "earliest, latest or " if name.endswith("Offsets") else ""
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in _json_object(name, value, words + example).items():
        if not isinstance(by_partition, dict):
            raise OptionError(f"{name}: {topic} has an object of partition and number, as in {example}")
        for partition, number in by_partition.items():
            if not _is_decimal(partition) or type(number) is not int:
                raise OptionError(
                    f"{name}: {topic} has {partition!r}: {number!r}; it is partition and number, as in {example}"
                )
            found[TopicPartition(topic, int(partition))] = _between(
                f"{name}: {topic}-{partition}", number, least, LONG_MAX
            )
    return found
