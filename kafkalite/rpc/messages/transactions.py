"""Transactions, asked of their coordinator (NOT_COORDINATOR: find it again)."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ProducerId
from kafkalite.rpc.messages.base import Message, kind


@kind(70)
@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest(Message):
    """Which node coordinates a transactional id, a transaction group or a consumer group; any node answers."""

    key: str
    is_consumer_group: bool = False


@kind(71)
@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse(Message):
    error: int
    node_id: BrokerId = BrokerId(-1)
    message: str = ""


@kind(72)
@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest(Message):
    """Before the first records for these (topic, partition) in a transaction. All or nothing; safe to repeat."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]


@kind(73)
@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse(Message):
    error: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class TransactionMember:
    """A transaction of a group, under the producer that has opened it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int


@kind(74)
@dataclass(frozen=True, slots=True)
class EndTxnGroupRequest(Message):
    """Decide a version of a group: commit exactly `members`, all or none, and abort what else the group has open.

    Repeated, or asked for a version that is decided, it commits nothing more; those of `members` that are still open
    are aborted. Without `is_commit`: abort `members` where they are open and not decided.
    `wait_ms`: how long to wait until readers see the outcome; the answer comes at the latest then.
    """

    group: str
    owner: str
    version: int
    members: tuple[TransactionMember, ...]
    is_commit: bool
    wait_ms: int = 0


@kind(75)
@dataclass(frozen=True, slots=True)
class EndTxnGroupResponse(Message):
    """`was_decided`: by an earlier request. `is_complete`: every partition has its end-of-transaction marker."""

    error: int
    was_decided: bool = False
    is_complete: bool = False
    message: str = ""
