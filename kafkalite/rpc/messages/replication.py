"""Between followers and leaders."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER_EPOCH, NO_OFFSET, NO_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId
from kafkalite.rpc.messages.base import Message, kind


@dataclass(frozen=True, slots=True)
class ReplicaFetchPartition:
    """`fetch_offset` is the follower's LEO: everything below it is in its log (and synced, if flush=ack)."""

    topic: str
    partition: int
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    #: Epoch of the follower's last batch, -1 for an empty log: the leader answers where the logs part (invariants F1 and F2).
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    max_bytes: int


@kind(20)
@dataclass(frozen=True, slots=True)
class ReplicaFetchRequest(Message):
    """Follower -> leader, long poll. Incremental sessions (KIP-227): within a session only partitions whose
    entry changed since the last request are sent. `session_id` 0 with `session_epoch` 0 opens one; epoch is
    the last one plus 1 for each further request."""

    replica_id: BrokerId
    broker_epoch: BrokerEpoch
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: tuple[ReplicaFetchPartition, ...]
    forgotten: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaFetchedPartition:
    topic: str
    partition: int
    error: int
    high_watermark: Offset
    log_start_offset: Offset
    records_size: int
    #: Set when the logs part: truncate to min(own end of `diverging_epoch`, `diverging_end_offset`), ask again.
    diverging_epoch: LeaderEpoch = NO_LEADER_EPOCH
    diverging_end_offset: Offset = NO_OFFSET
    #: The leader's LEO when its epoch began: below it are all records that were committed before. Not with an error or a divergence.
    epoch_start_offset: Offset = NO_OFFSET


@kind(21)
@dataclass(frozen=True, slots=True)
class ReplicaFetchResponse(Message):
    """Body: record batches. Within a session, partitions with nothing new are left out."""

    error: int
    session_id: int
    partitions: tuple[ReplicaFetchedPartition, ...]


@kind(22)
@dataclass(frozen=True, slots=True)
class ReplicaFetchWake(Message):
    """Follower -> leader, one way: answer the fetch that waits in this session now; the next one brings changes.

    So a partition that is added while the follower is in a long poll does not wait for the poll's end.
    """

    session_id: int


@kind(26)
@dataclass(frozen=True, slots=True)
class LogEndsRequest(Message):
    """The ends of the logs of these partitions (topic, number). The controller asks before it chooses a leader that may lack committed
    records. `with_strays`: logs that were set aside (-stray) are listed, too."""

    partitions: tuple[tuple[str, int], ...]
    with_strays: bool = False


@dataclass(frozen=True, slots=True)
class LogEnd:
    """`leader_epoch`: of the last record, -1 if there is none, but 0 if an empty log was surely here before the host lost its power. `leads_in`: the
    leader epoch in which this replica leads, -1 if it does not.
    `is_doubtful`: the log may lack committed records (ADR 16). `topic_id`: of the log; "" from older nodes. `is_stray`: it was set aside, and goes
    as far as this at least."""

    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    log_end_offset: Offset
    leads_in: LeaderEpoch = NO_LEADER_EPOCH
    is_doubtful: bool = False
    topic_id: TopicId = NO_TOPIC_ID
    is_stray: bool = False


@kind(27)
@dataclass(frozen=True, slots=True)
class LogEndsResponse(Message):
    """Logs that cannot be read are left out. `has_offline_dir`: a directory is offline, and may have some, too."""

    ends: tuple[LogEnd, ...]
    has_offline_dir: bool = False
