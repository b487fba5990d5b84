"""A topic's settings, whose defaults are the broker's."""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from kafkalite.config.keys import INT_MAX, MAX, fields_of, setting
from kafkalite.config.parsing import parse
from kafkalite.errors import ConfigError
from kafkalite.lazy_dataclass import dataclass

FLUSH_BEFORE_ACK = "log.flush.before.ack"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic may set for itself; a broker's values are the defaults."""

    cleanup_policy: str = setting(
        "delete",
        "delete, compact, or both: what happens to old segments; empty: nothing",
        choices=("delete", "compact", "compact,delete", "delete,compact", ""),
        is_set=True,
    )
    compressed_content_validation_enable: bool = setting(
        True, "whether the content of compressed batches is checked before they are appended, as Kafka does"
    )
    compression_gzip_level: int = setting(
        -1, "level of compression.type gzip: 1 to 9, -1: zlib's own", low=-1, high=9, without=0
    )
    compression_lz4_level: int = setting(9, "level of compression.type lz4", low=1, high=17)
    compression_type: str = setting(
        "producer",
        "compression of a topic's batches; producer: as producers send them, else batches that come otherwise are"
        " decompressed and compressed again",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    )
    compression_zstd_level: int = setting(3, "level of compression.type zstd", low=-131_072, high=22)
    flush_messages: int = setting(MAX, "number of records after which a log is fsynced", low=1)
    flush_ms: int = setting(MAX, "time after which unsynced records are fsynced", low=0)
    follower_replication_throttled_replicas: str = setting(
        "",
        "replicas, PARTITION:BROKER,… or *, that copy at follower.replication.throttled.rate while they are behind",
        is_list_of_replicas=True,
    )
    index_interval_bytes: int = setting(4096, "bytes of log per entry of the offset index", low=0, high=INT_MAX)
    leader_replication_throttled_replicas: str = setting(
        "",
        "leaders, PARTITION:BROKER,… or *, that give records to replicas out of sync at leader.replication.throttled.rate",
        is_list_of_replicas=True,
    )
    local_retention_bytes: int = setting(-2, "has an effect only with tiered storage, which does not exist", low=-2)
    local_retention_ms: int = setting(-2, "has an effect only with tiered storage, which does not exist", low=-2)
    log_flush_before_ack: bool = setting(False, "fsync on every in-sync replica before a record counts as committed")
    max_producer_ids: int = setting(
        10_000,
        "number of idempotent producers that a partition remembers, besides those with an open transaction; beyond it the one that has"
        " not written for longest is forgotten, as if it had expired",
        low=1,
        high=INT_MAX,
    )
    max_message_bytes: int = setting(1_048_588, "size of the largest record batch", low=0, high=INT_MAX)
    message_timestamp_after_max_ms: int = setting(
        3_600_000, "a record whose own timestamp is further ahead of the broker's clock is refused (CreateTime)", low=0
    )
    message_timestamp_before_max_ms: int = setting(
        MAX, "a record whose own timestamp is further behind the broker's clock is refused (CreateTime)", low=0
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        "whether a record's timestamp is the producer's (CreateTime) or the broker's (LogAppendTime)",
        choices=("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5, "share of the log that is not compacted yet from which a compaction starts", low=0, high=1
    )
    min_compaction_lag_ms: int = setting(0, "minimum time before a record may be compacted", low=0)
    max_compaction_lag_ms: int = setting(MAX, "maximum time before a record must be compacted", low=1)
    delete_retention_ms: int = setting(
        86_400_000, "how long a compacted log keeps tombstones; longer while a replica is not in sync", low=0
    )
    errors_deadletterqueue_group_enable: bool = setting(
        False, "whether share groups may write the records that they give up to this topic"
    )
    file_delete_delay_ms: int = setting(
        60_000, "time between the deletion of a segment and the removal of its files", low=0
    )
    min_insync_replicas: int = setting(1, "minimum number of in-sync replicas for acks=all", low=1, high=INT_MAX)
    preallocate: bool = setting(
        False,
        "whether a new segment gets the room of segment.bytes on the disk at once (fallocate; at most half of the free room)",
    )
    remote_copy_lag_bytes: int = setting(-1, "has an effect only with tiered storage, which does not exist", low=-1)
    remote_copy_lag_ms: int = setting(0, "has an effect only with tiered storage, which does not exist", low=-1)
    remote_log_copy_disable: bool = setting(False, "has an effect only with tiered storage, which does not exist")
    remote_log_delete_on_disable: bool = setting(False, "has an effect only with tiered storage, which does not exist")
    remote_storage_enable: bool = setting(False, "there is no tiered storage: only false", is_only=False)
    retention_bytes: int = setting(-1, "size of a partition above which old segments are deleted; -1: no limit", low=-1)
    retention_ms: int = setting(604_800_000, "age above which segments are deleted; -1: no limit", low=-1)
    segment_bytes: int = setting(1_073_741_824, "size at which a segment rolls", low=14, high=INT_MAX)
    segment_index_bytes: int = setting(
        10_485_760, "size of an index file at which the segment rolls", low=4, high=INT_MAX
    )
    segment_jitter_ms: int = setting(
        0, "maximum time that is taken off segment.ms, so that segments end at different times", low=0
    )
    segment_ms: int = setting(604_800_000, "age at which a segment rolls", low=1)
    unclean_leader_election_enable: bool = setting(
        False, "whether a replica that is not in sync may become the leader (records can be lost)"
    )


TOPIC_KEYS = fields_of(TopicConfig)


def topic_config(base: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """`base` with a topic's own settings on top. Raises ConfigError."""
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        if key not in TOPIC_KEYS:
            raise ConfigError(f"{key}: no such topic configuration")
        spec, kind = TOPIC_KEYS[key]
        changes[spec.name] = parse(key, spec, kind, value)
    config = dataclasses.replace(base, **changes)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) is above max.compaction.lag.ms"
            f" ({config.max_compaction_lag_ms})"
        )
    return config


def usable_topic_config(base: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """As `topic_config`, without what was written by hand and means nothing: the rest of the topic's settings hold."""
    if not overrides:
        return base
    try:
        return topic_config(base, overrides)
    except ConfigError:
        usable = base
        for key, value in sorted(overrides.items()):
            with contextlib.suppress(ConfigError):
                usable = topic_config(usable, {key: value})
        return usable
