"""From the options of a read or a write to `ReadOptions` and `WriteOptions`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalite.offsets import EARLIEST, LATEST, Earliest, Latest, OffsetSpec, Specific, names
from pyspark_kafkalite.option_values import NAME_CHARACTERS, PER_TRIGGER, Options
from pyspark_kafkalite.options import (
    BATCH_BYTES,
    BUFFER_BYTES,
    GROUP_ID,
    INT_MAX,
    LONG_MAX,
    MAX_BUFFER_BYTES,
    TRANSACTION_TIMEOUT_MS,
    FetchOptions,
    OptionError,
    ReadOptions,
    WriteOptions,
)


def include_headers(options: Mapping[str, str]) -> bool:
    """The one option that the schema depends on: needed before anything else is known to be right."""
    return Options(options).boolean("includeHeaders", default=False)


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check and read the options of the source.

    Raises:
        OptionError: an option is missing, wrong, or contradicts another.
    """
    given = Options(options)
    given.check_names()
    starting = given.offset_spec("starting", Latest() if streaming else Earliest())
    ending = Latest() if streaming else given.offset_spec("ending", Latest())
    if streaming:
        _check_stream(given)
    else:
        _check_batch(given, starting, ending)
    least = given.number("minOffsetsPerTrigger", least=1)
    most = given.number("maxOffsetsPerTrigger", least=1)
    if streaming and least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is larger than maxOffsetsPerTrigger ({most})")
    group_id, commit_progress = _progress(given)
    return ReadOptions(
        client=given.client_options(),
        subscription=given.subscription(),
        starting=starting,
        ending=ending,
        timestamp_strategy=given.choice("startingOffsetsByTimestampStrategy", "error", "latest"),
        fetch=_fetch_options(given),
        min_partitions=given.number("minPartitions", least=1),
        max_records_per_partition=given.number("maxRecordsPerPartition", least=1),
        include_headers=given.boolean("includeHeaders", default=False),
        filter_pushdown=given.choice("filterPushdown", "auto", "always", "never"),
        max_offsets_per_trigger=most if streaming else None,
        min_offsets_per_trigger=least if streaming else None,
        max_bytes_per_trigger=given.number("maxBytesPerTrigger", least=1) if streaming else None,
        group_id=group_id if streaming else None,
        group_prefix=(given.text("groupIdPrefix") or "").strip() or None,
        commit_progress=commit_progress,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 15 * 60_000),
        offset_retries=_or(given.number("fetchOffset.numRetries", least=0), 3),
        offset_retry_interval_ms=_or(given.number("fetchOffset.retryIntervalMs", least=0, most=INT_MAX), 1_000),
        warnings=tuple(given.warnings),
    )


def _progress(given: Options) -> tuple[str | None, bool]:
    """The group that a stream's progress is committed to, and whether it is committed."""
    group_id, is_committed = given.text(GROUP_ID), given.boolean("commitProgress", default=True)
    if group_id is None:
        if given.text("kafka.group.id") is not None:
            given.warnings.append(f"kafka.group.id is ignored: {GROUP_ID} names the group of a stream's progress")
        return None, is_committed
    if not group_id.strip():
        raise OptionError(f"{GROUP_ID} is empty")
    if not is_committed:
        raise OptionError(f"{GROUP_ID} names a group for the progress, and commitProgress is false")
    return group_id.strip(), is_committed


def _fetch_options(given: Options) -> FetchOptions:
    isolation = given.client("isolation.level") or "read_committed"
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"kafka.isolation.level must be read_uncommitted or read_committed, not {isolation!r}")
    default = FetchOptions()
    return FetchOptions(
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        read_committed=isolation == "read_committed",
        check_crc=given.boolean("kafka.check.crcs", default=True),
        max_bytes=given.client_number("max.partition.fetch.bytes", default.max_bytes),
        max_wait_ms=given.client_number("fetch.max.wait.ms", default.max_wait_ms),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", least=1) or default.poll_timeout_ms,
    )


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Check and read the options of the sink.

    Raises:
        OptionError: an option is missing or wrong.
    """
    given = Options(options)
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
    exactly_once = given.choice("deliveryGuarantee", "at-least-once", "exactly-once") == "exactly-once"
    app_id, version = given.text("txnAppId"), given.number("txnVersion", least=0)
    if not exactly_once and (app_id is not None or version is not None):
        raise OptionError("txnAppId and txnVersion are only for deliveryGuarantee=exactly-once")
    if app_id is not None and not app_id.strip():
        raise OptionError("txnAppId is empty")
    if app_id is not None and len(app_id) > NAME_CHARACTERS:
        raise OptionError(f"txnAppId has {len(app_id)} characters; the most is {NAME_CHARACTERS}")
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
        buffer_bytes=min(given.client_number("buffer.memory", BUFFER_BYTES, LONG_MAX), MAX_BUFFER_BYTES),
        delivery_timeout_ms=given.client_number("delivery.timeout.ms", 120_000),
        exactly_once=exactly_once,
        txn_app_id=app_id.strip() if app_id else None,
        txn_version=version or 0,
        transaction_timeout_ms=given.client_number("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        warnings=tuple(given.warnings),
    )


def _check_stream(given: Options) -> None:
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if given.text(name) is not None:
            raise OptionError(
                f"{name} is only for batch queries: a stream has no end (Trigger.AvailableNow stops at the latest)"
            )


def _check_batch(given: Options, starting: OffsetSpec, ending: OffsetSpec) -> None:
    """Ends that make no sense without a stream, and options that are ignored."""
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
    for name in (*PER_TRIGGER, "maxTriggerDelay", GROUP_ID, "commitProgress"):
        if given.text(name) is not None:
            given.warnings.append(f"{name} is only for streams and is ignored")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
