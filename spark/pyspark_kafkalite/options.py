"""The options of the source and the sink: names and meaning are those of Spark's own Kafka source. Pure.

Spark hands option keys over in lower case and leaves values as they are.
Source: Spark's KafkaSourceProvider; Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kafkalite.errors import ConfigError, KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.security.dialling import KEYS as SECURITY_KEYS
from kafkalite.security.dialling import ClientSecurity
from pyspark_kafkalite import client_settings
from pyspark_kafkalite.offsets import EARLIEST, LATEST, AtTimestamp, Earliest, Latest, OffsetSpec, Specific, names


class OptionError(KafkaliteError, ValueError):
    """An option cannot be used. One line: the option, what is wrong, what to write instead."""


BOOTSTRAP = "kafka.bootstrap.servers"
#: Commits a stream's progress. In Spark kafka.group.id commits nothing, so that is another option.
GROUP_ID = "kafkalite.group.id"

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

_PER_TRIGGER = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger")

#: Spark sets these.
_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode"})

_DURATION = re.compile(
    r"(\d{1,15})\s*(ms|msec|millis|milliseconds?|s|sec|secs|seconds?|m|min|mins|minutes?|h|hours?|d|days?)?"
)
_DURATION_MS = {"ms": 1, "mi": 60_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


#: Records of a batch before compression: with its header it stays below Kafka's default max.message.bytes.
BATCH_BYTES = 1_000_000
BUFFER_BYTES = 16 << 20
#: More is not used: Arrow counts the bytes of what is encoded at once in 31 bits.
MAX_BUFFER_BYTES = 256 << 20
#: The most that brokers allow by default (transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MS = 900_000
#: Of txnAppId: it is part of every transaction's name.
_NAME_CHARACTERS = 1_000
#: The most that a client's settings, partitions and Spark's counts may be, and offsets and times.
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach the cluster. Small, hashable, travels to executors."""

    bootstrap: tuple[str, ...]
    client_id: str = "spark-kafkalite"
    request_timeout_ms: int = 30_000
    #: TLS, and who we are; None: plain text. Its repr shows no secret.
    security: ClientSecurity | None = None


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one is set: partitions, topic names, or a pattern that a whole topic name must match."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def matches(self, topic: str) -> bool:
        """Whether the pattern covers `topic`; internal topics are never meant."""
        assert self.pattern is not None
        return not topic.startswith("__") and re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"subscribePattern {self.pattern}"
        return f"assign {names(self.partitions)}" if self.partitions else f"subscribe {', '.join(self.topics)}"


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What a task that reads needs to know."""

    fail_on_data_loss: bool = True
    read_committed: bool = True
    check_crc: bool = True
    max_bytes: int = 8 << 20
    max_wait_ms: int = 500
    #: How long a task waits for records that are said to be there.
    poll_timeout_ms: int = 120_000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    client: ClientOptions
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec = field(default_factory=Latest)
    #: What to do when no record is as late as a starting timestamp: "error" or "latest".
    timestamp_strategy: str = "error"
    fetch: FetchOptions = field(default_factory=FetchOptions)
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    #: Whether a batch plan is narrowed by filters: "auto" (where Spark keeps plans apart), "always", "never".
    filter_pushdown: str = "auto"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    #: As the bytes lie in the log, compressed or not.
    max_bytes_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    #: Where the positions of a stream are committed, for others to look at; None: a group named after the query,
    #: with this prefix, unless that is switched off.
    group_id: str | None = None
    group_prefix: str | None = None
    commit_progress: bool = True
    offset_retries: int = 3
    offset_retry_interval_ms: int = 1_000
    #: Options without effect here; each is reported once.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteOptions:
    client: ClientOptions
    #: Overrides the topic column.
    topic: str | None = None
    compression: str = "none"
    #: Bytes of a batch, records before compression.
    batch_bytes: int = BATCH_BYTES
    #: Rows collected before they are sorted by partition and sent.
    buffer_bytes: int = BUFFER_BYTES
    delivery_timeout_ms: int = 120_000
    exactly_once: bool = False
    #: Names the transactions; None: the query's id, or one made up for a batch write.
    txn_app_id: str | None = None
    #: Of a batch write under a name of its own: a version that is committed is not written again.
    txn_version: int = 0
    #: How long a task's transaction may be open before it is aborted.
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    warnings: tuple[str, ...] = ()


def include_headers(options: Mapping[str, str]) -> bool:
    """The one option that the schema depends on: needed before anything else is known to be right."""
    return _Options(options).boolean("includeHeaders", default=False)


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check and read the options of the source.

    Raises:
        OptionError: an option is missing, wrong, or contradicts another.
    """
    given = _Options(options)
    given.check_names()
    starting = given.offset_spec("starting", Latest() if streaming else Earliest())
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if given.text(name) is not None:
                raise OptionError(
                    f"{name} is only for batch queries: a stream has no end (Trigger.AvailableNow stops at the latest)"
                )
        ending: OffsetSpec = Latest()
    else:
        ending = given.offset_spec("ending", Latest())
        _check_batch(starting, ending)
        for name in (*_PER_TRIGGER, "maxTriggerDelay", GROUP_ID, "commitProgress"):
            if given.text(name) is not None:
                given.warnings.append(f"{name} is only for streams and is ignored")
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}")
    least = given.number("minOffsetsPerTrigger", least=1)
    most = given.number("maxOffsetsPerTrigger", least=1)
    if streaming and least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is larger than maxOffsetsPerTrigger ({most})")
    if given.text("kafka.group.id") is not None and given.text(GROUP_ID) is None:
        given.warnings.append(f"kafka.group.id is ignored: {GROUP_ID} names the group of a stream's progress")
    group_id = given.text(GROUP_ID)
    if group_id is not None and not group_id.strip():
        raise OptionError(f"{GROUP_ID} is empty")
    commit_progress = given.boolean("commitProgress", default=True)
    if group_id is not None and not commit_progress:
        raise OptionError(f"{GROUP_ID} names a group for the progress, and commitProgress is false")
    pushdown = (given.text("filterPushdown") or "auto").strip().lower()
    if pushdown not in ("auto", "always", "never"):
        raise OptionError(f"filterPushdown is auto, always or never, not {pushdown!r}")
    isolation = given.client("isolation.level") or "read_committed"
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"kafka.isolation.level is read_uncommitted or read_committed, not {isolation!r}")
    return ReadOptions(
        client=given.client_options(),
        subscription=given.subscription(),
        starting=starting,
        ending=ending,
        timestamp_strategy=strategy,
        fetch=FetchOptions(
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            read_committed=isolation == "read_committed",
            check_crc=given.boolean("kafka.check.crcs", default=True),
            max_bytes=given.client_number("max.partition.fetch.bytes", FetchOptions().max_bytes),
            max_wait_ms=given.client_number("fetch.max.wait.ms", FetchOptions().max_wait_ms),
            poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", least=1) or FetchOptions().poll_timeout_ms,
        ),
        min_partitions=given.number("minPartitions", least=1),
        max_records_per_partition=given.number("maxRecordsPerPartition", least=1),
        include_headers=given.boolean("includeHeaders", default=False),
        filter_pushdown=pushdown,
        max_offsets_per_trigger=most if streaming else None,
        min_offsets_per_trigger=least if streaming else None,
        max_bytes_per_trigger=given.number("maxBytesPerTrigger", least=1) if streaming else None,
        group_id=group_id.strip() if group_id and streaming else None,
        group_prefix=(given.text("groupIdPrefix") or "").strip() or None,
        commit_progress=commit_progress,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 15 * 60_000),
        offset_retries=_or(given.number("fetchOffset.numRetries", least=0), 3),
        offset_retry_interval_ms=_or(given.number("fetchOffset.retryIntervalMs", least=0, most=_INT_MAX), 1_000),
        warnings=tuple(given.warnings),
    )


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Check and read the options of the sink.

    Raises:
        OptionError: an option is missing or wrong.
    """
    given = _Options(options)
    given.check_names()
    acks = given.client("acks") or "all"
    if acks not in ("all", "-1"):
        raise OptionError(
            f"kafka.acks is {acks!r}: the sink writes with acks=all only, because a task that Spark counts as done must be durable"
        )
    compression = (given.client("compression.type") or "none").lower()
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    if compression not in codecs:
        raise OptionError(f"kafka.compression.type is one of {', '.join(codecs)}, not {compression!r}")
    guarantee = (given.text("deliveryGuarantee") or "at-least-once").lower()
    if guarantee not in ("at-least-once", "exactly-once"):
        raise OptionError(f"deliveryGuarantee is at-least-once or exactly-once, not {guarantee!r}")
    exactly_once = guarantee == "exactly-once"
    app_id, version = given.text("txnAppId"), given.number("txnVersion", least=0)
    if not exactly_once and (app_id is not None or version is not None):
        raise OptionError("txnAppId and txnVersion are only for deliveryGuarantee=exactly-once")
    if app_id is not None and not app_id.strip():
        raise OptionError("txnAppId is empty")
    if app_id is not None and len(app_id) > _NAME_CHARACTERS:
        raise OptionError(f"txnAppId has {len(app_id)} characters; the most is {_NAME_CHARACTERS}")
    if streaming and version is not None:
        raise OptionError("txnVersion is only for batch writes: a stream's versions are the numbers of its batches")
    if not streaming and (app_id is None) != (version is None):
        raise OptionError(
            "a batch write needs both txnAppId and txnVersion: the version numbers the writes of that name"
        )
    topic = given.text("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty")
    return WriteOptions(
        client=given.client_options(),
        topic=topic.strip() if topic else None,
        compression=compression,
        batch_bytes=max(given.client_number("batch.size", BATCH_BYTES, least=0), 1),
        buffer_bytes=min(given.client_number("buffer.memory", BUFFER_BYTES, _LONG_MAX), MAX_BUFFER_BYTES),
        delivery_timeout_ms=given.client_number("delivery.timeout.ms", 120_000),
        exactly_once=exactly_once,
        txn_app_id=app_id.strip() if app_id else None,
        txn_version=version or 0,
        transaction_timeout_ms=given.client_number("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        warnings=tuple(given.warnings),
    )


def _check_batch(starting: OffsetSpec, ending: OffsetSpec) -> None:
    """Ends that make no sense without a stream."""
    if isinstance(starting, Latest):
        raise OptionError(
            "startingOffsets latest would read nothing in a batch query: use earliest, offsets or a timestamp"
        )
    if isinstance(starting, Specific) and (late := [tp for tp, at in starting.offsets.items() if at == LATEST]):
        raise OptionError(f"startingOffsets: -1 (latest) would read nothing in a batch query ({names(late)})")
    if isinstance(ending, Earliest):
        raise OptionError("endingOffsets earliest would read nothing: use latest, offsets or a timestamp")
    if isinstance(ending, Specific) and (early := [tp for tp, at in ending.offsets.items() if at == EARLIEST]):
        raise OptionError(f"endingOffsets: -2 (earliest) would read nothing ({names(early)})")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class _Options:
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
            raise OptionError(f"{name} is true or false, not {value!r}")
        return value.strip().lower() == "true"

    def number(self, name: str, *, least: int, most: int = _LONG_MAX) -> int | None:
        value = self.text(name)
        return None if value is None else _number(name, value, least, most)

    def client_number(self, key: str, default: int, most: int = _INT_MAX, *, least: int = 1) -> int:
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
        """Refuse what is refused by name and what looks like a slip of the pen; leave what is not ours alone."""
        by_lower = {name.lower(): name for name in _KNOWN}
        for key in sorted(self._given):
            prefix, _, rest = key.partition(".")
            if key == GROUP_ID:
                continue
            if prefix in ("kafka", "kafkalite") and rest:
                self._check_client_key(prefix, rest)
            elif key not in by_lower and key not in _SPARKS_OWN:
                close = difflib.get_close_matches(key, by_lower, n=1, cutoff=0.8)
                if close:
                    raise OptionError(f"there is no option {key}; did you mean {by_lower[close[0]]}?")

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
        endpoints = tuple(part.strip() for part in servers.split(",") if part.strip())
        for endpoint in endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or not _is_decimal(port) or not 0 < int(port) < 65536:
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


def _number(name: str, value: str, least: int, most: int = _LONG_MAX) -> int:
    try:
        number = int(value.strip())
    except ValueError:
        raise OptionError(f"{name} is a whole number, not {value!r}") from None
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
                f"{name}: {topic}-{partition}", number, least, _LONG_MAX
            )
    return found
