"""Incremental fetch sessions (KIP-227) as the leader keeps them: what each follower listed, and what is new for it.

A session costs nothing for partitions on which nothing happens: an append or a move of the high watermark marks
the entries of that partition dirty, and an answer looks at dirty entries only (invariant F29).

The protocol: after an answer with records, a divergence or an error for a partition, the leader says nothing more
about it until the follower lists it again (it does when it has appended, truncated or waited).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.model import NO_OFFSET, BrokerEpoch, BrokerId, Buffer, Offset, TopicPartition
from kafkalite.replica.purgatory import Waiting
from kafkalite.rpc.messages.replication import ReplicaFetchedPartition, ReplicaFetchResponse

if TYPE_CHECKING:
    from kafkalite.replica.partition import Partition

ReplicaFetchDone = Callable[[ReplicaFetchResponse, list[Buffer]], None]


class SessionEntry:
    """One partition in one follower's session."""

    __slots__ = (
        "cold_reads",
        "fetch_offset",
        "is_held_back",
        "is_sent",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "session",
    )

    def __init__(self, session: ReplicaFetchSession, partition: Partition) -> None:
        self.session = session
        self.partition = partition
        self.fetch_offset: Offset = NO_OFFSET
        self.max_bytes = 0
        self.sent_high_watermark: Offset = NO_OFFSET
        self.sent_log_start: Offset = NO_OFFSET
        #: Records or a divergence were answered; the follower has not listed the partition since.
        self.is_sent = False
        #: A throttle holds its records back for a while, or they are being read from the disk.
        self.is_held_back = False
        #: How often in a row they were not in the page cache.
        self.cold_reads = 0


class ReplicaFetchSession(Waiting):
    """One follower connection's session."""

    __slots__ = (
        "_answer",
        "answers",
        "broker_epoch",
        "done",
        "entries",
        "epoch",
        "is_waking",
        "last_fetch_ms",
        "max_bytes",
        "min_bytes",
        "pending_bytes",
        "replica_id",
        "session_id",
        "with_news",
        "with_records",
    )

    def __init__(
        self,
        session_id: int,
        replica_id: BrokerId,
        broker_epoch: BrokerEpoch,
        answer: Callable[[ReplicaFetchSession], None],
    ) -> None:
        super().__init__()
        self.session_id = session_id
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self._answer = answer
        self.epoch = 0
        self.entries: dict[TopicPartition, SessionEntry] = {}
        #: Entries whose partition has records for the follower; in the order in which they are served.
        self.with_records: dict[SessionEntry, None] = {}
        #: Entries with another high watermark than was sent: included in the next response, but cause none.
        self.with_news: dict[SessionEntry, None] = {}
        #: Refusals and divergences to be sent.
        self.answers: list[ReplicaFetchedPartition] = []
        self.last_fetch_ms = 0
        #: Of the fetch that waits; None if none does.
        self.done: ReplicaFetchDone | None = None
        self.is_waking = False
        self.min_bytes = 1
        self.max_bytes = 0
        self.pending_bytes = 0

    def expire(self) -> None:
        self._answer(self)

    def drop(self, entry: SessionEntry) -> None:
        """The entry was removed."""
        partition = entry.partition
        if partition.entries.get(self.replica_id) is entry:
            del partition.entries[self.replica_id]
        if self.entries.get(partition.topic_partition) is entry:
            del self.entries[partition.topic_partition]
        self.with_records.pop(entry, None)
        self.with_news.pop(entry, None)
