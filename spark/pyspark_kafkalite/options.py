"""The options of the source and the sink: names and meaning are those of Spark's own Kafka source. Pure.

Spark hands option keys over in lower case and leaves values as they are.
Source: Spark's KafkaSourceProvider; Structured Streaming + Kafka Integration Guide.
"""

from __future__ import annotations

import re
from dataclasses import field

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import INTERNAL_TOPICS, TopicPartition
from kafkalite.security.dialling import ClientSecurity
from pyspark_kafkalite.offsets import Latest, OffsetSpec, names


class OptionError(KafkaliteError, ValueError):
    """An option cannot be used. One line: the option, what is wrong, what to write instead."""


BOOTSTRAP = "kafka.bootstrap.servers"
#: Commits a stream's progress. In Spark kafka.group.id commits nothing, so that is another option.
GROUP_ID = "kafkalite.group.id"
#: Records of a batch before compression: with its header it stays below Kafka's default max.message.bytes.
BATCH_BYTES = 1_000_000
BUFFER_BYTES = 16 << 20
#: More is not used: Arrow counts the bytes of what is encoded at once in 31 bits.
MAX_BUFFER_BYTES = 256 << 20
#: The most that brokers allow by default (transaction.max.timeout.ms).
TRANSACTION_TIMEOUT_MS = 900_000
#: The most that a client's settings, partitions and Spark's counts may be, and offsets and times.
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


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
    """Exactly one is set: partitions, topic names, or a pattern that is found in the topic's name, as in Spark's own source."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def matches(self, topic: str) -> bool:
        """Whether the pattern covers `topic`; internal topics are never meant."""
        assert self.pattern is not None
        return topic not in INTERNAL_TOPICS and re.search(self.pattern, topic) is not None

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
