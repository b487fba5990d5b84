"""One partition that this node hosts: its log, its role, and who waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING

from kafkalite.config import TopicConfig
from kafkalite.errors import NO_ERROR, ErrorCode, StorageError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from kafkalite.replica.decisions.leader import PartitionLeader
from kafkalite.replica.purgatory import ProduceWaiter

if TYPE_CHECKING:
    from kafkalite.log.partition_log import PartitionLog
    from kafkalite.replica.client_fetch import FetchEntry
    from kafkalite.replica.fetch_session import SessionEntry


@dataclass(slots=True, eq=False)
class Partition:
    """Mutable; touched only from the loop, and never across an await.

    Invariants: `leader` is set only while this node leads with `leader_epoch`; waiters exist only while it is set.
    """

    topic_partition: TopicPartition
    topic_id: TopicId
    log: PartitionLog
    config: TopicConfig
    #: Used while not leading; `high_watermark` gives the right one.
    follower_high_watermark: Offset
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    partition_epoch: PartitionEpoch = PartitionEpoch(-1)
    controller_epoch: ControllerEpoch = ControllerEpoch(-1)
    leader_id: BrokerId = NO_LEADER
    replicas: tuple[BrokerId, ...] = ()
    isr: tuple[BrokerId, ...] = ()
    #: Eligible leader replicas and the last known ones, as commanded.
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    #: The log may lack committed records (kafkalite.log.doubts), until it has caught up with a leader.
    is_doubtful: bool = False
    #: What a reassignment adds, and how fast (bytes/s) that may copy while it is not in sync; 0: as fast as it can.
    adding_replicas: tuple[BrokerId, ...] = ()
    throttle: int = 0
    #: About to be removed: no more records are taken.
    is_read_only: bool = False
    #: An epoch in which this replica must not lead: its log has records of another leader in it (ZooKeeper was put back).
    used_epoch: LeaderEpoch = NO_LEADER_EPOCH
    #: Whether a command for `leader_epoch` was carried out. Not while resigned: then that epoch may still be commanded.
    is_settled: bool = False
    leader: PartitionLeader | None = None
    #: The replica is offline: its log cannot be used (KIP-18).
    storage_error: StorageError | None = None
    is_flushing: bool = False
    #: Follower -> what it listed in its session.
    entries: dict[BrokerId, SessionEntry] = field(default_factory=dict)
    #: In the order of their offsets.
    produce_waiters: deque[ProduceWaiter] = field(default_factory=deque)
    #: Consumers' entries that watch it: of sessions, and of fetches that wait.
    fetch_waiters: dict[FetchEntry, None] = field(default_factory=dict)
    #: Requests that wait until every replica that may lead begins at an offset or behind it.
    start_waiters: list[tuple[Offset, asyncio.Future[Offset]]] = field(default_factory=list)
    #: Bytes appended since the start, and how many of them (about) lie below the high watermark.
    appended_bytes: int = 0
    readable_bytes: int = 0
    #: Bytes (about) that this follower has copied and that lie above its high watermark.
    copied_bytes: int = 0
    #: Follower -> until when (ms of HostedPartitions.now_ms) consumers may read there: it hears of each new high watermark.
    read_at: dict[BrokerId, int] = field(default_factory=dict)
    #: Records appended; bytes and records that consumers have got from this replica. Records are counted by their offsets.
    appended_records: int = 0
    fetched_bytes: int = 0
    fetched_records: int = 0
    #: Records below the leader's high watermark that this follower had not got at its last fetch.
    fetch_lag: int = 0
    #: Where the leader's epoch began, as it has answered in this epoch; NO_OFFSET: its code is older, and does not say. None: it has not answered.
    epoch_start_offset: Offset | None = None
    #: Whose batch last brought a producer that the log did not know.
    newest_client: str = ""

    @property
    def high_watermark(self) -> Offset:
        return self.leader.high_watermark if self.leader is not None else self.follower_high_watermark

    @property
    def current_isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR as far as this node knows."""
        return self.leader.committed_isr if self.leader is not None else self.isr

    @property
    def current_elr(self) -> tuple[BrokerId, ...]:
        """The committed ELR as far as this node knows."""
        return self.leader.elr if self.leader is not None else self.elr

    @property
    def is_following(self) -> bool:
        """Whether another node leads, and this replica copies from it."""
        return self.leader is None and self.is_settled and self.leader_id != NO_LEADER and self.storage_error is None

    @property
    def is_drained(self) -> bool:
        """Led here, read-only, and nothing is left in it."""
        return self.leader is not None and self.is_read_only and self.log.log_start_offset >= self.log.log_end_offset

    def epoch_error(self, leader_epoch: LeaderEpoch) -> ErrorCode:
        """What refuses a request that was meant for the leader of this epoch: FENCED_LEADER_EPOCH if it is an older one
        than here, UNKNOWN_LEADER_EPOCH if it is newer, NONE if it is the same (KIP-320)."""
        if leader_epoch == self.leader_epoch:
            return NO_ERROR
        is_older = leader_epoch < self.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH

    def add_produce_waiter(self, waiter: ProduceWaiter) -> None:
        """Keep the order of offsets; out of order come only the retry of a duplicate, and an append made for a request that the append
        before it has committed."""
        waiters = self.produce_waiters
        if not waiters or waiters[-1].required_offset <= waiter.required_offset:
            waiters.append(waiter)
            return
        place = len(waiters)
        while place > 0 and waiters[place - 1].required_offset > waiter.required_offset:
            place -= 1
        waiters.insert(place, waiter)

    def serve_readers(self, size_bytes: int) -> None:
        """The high watermark has moved: about this many more bytes can be read."""
        if self.fetch_waiters:
            stable = self.log.last_stable_offset(self.high_watermark)
            for watching in self.fetch_waiters:
                watching.on_readable(size_bytes, stable)

    def prune_produce_waiters(self) -> None:
        """Drop those at the front that were settled otherwise, so that a stuck watermark keeps no dead requests."""
        waiters = self.produce_waiters
        while waiters and waiters[0].is_settled:
            waiters.popleft()
        if waiters and waiters[-1].is_settled:
            self.produce_waiters = deque(waiter for waiter in waiters if not waiter.is_settled)
