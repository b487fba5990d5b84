"""Transaction groups: transactions that one decision commits together (Spark's exactly-once sink)."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import ProducerId
from kafkalite.rpc.messages.base import Message


@dataclass(frozen=True, slots=True)
class TransactionMember:
    """A transaction of a group, under the producer that has opened it."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class BeginTxnGroupRequest(Message):
    """Open one transaction of a group: InitProducerId for the decision that is to commit it.

    An earlier owner is fenced, and its records are aborted. If the transaction is open for the same `writer` (at most 64 characters,
    chosen at random; empty: nobody), it stays as it is, and the error is INVALID_TXN_STATE: one writer has two attempts with one name.
    """

    transactional_id: str
    owner: str
    version: int
    transaction_timeout_ms: int = 60_000
    writer: str = ""


@dataclass(frozen=True, slots=True)
class BeginTxnGroupResponse(Message):
    """`is_decided`: the group has that decision already, no producer was made (id -1): write nothing.

    `newest_version`: the owner's newest decided version then; -1: from a node that does not say it.
    """

    error: int
    message: str = ""
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: int = -1
    is_decided: bool = False
    newest_version: int = -1


@dataclass(frozen=True, slots=True)
class EndTxnGroupRequest(Message):
    """Decide a version of a group: commit exactly `members`, all or none, and abort what else the group has open.

    If it is repeated, or the version is decided already, it commits nothing more; those of `members` that are still open
    are aborted. Without `is_commit`: abort `members` where they are open and not decided.
    `wait_ms`: how long to wait until readers see the outcome; the answer comes at the latest then.
    """

    group: str
    owner: str
    version: int
    members: tuple[TransactionMember, ...]
    is_commit: bool
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndTxnGroupResponse(Message):
    """`was_decided`: by an earlier request. `is_complete`: every partition has its end-of-transaction marker."""

    error: int
    was_decided: bool = False
    is_complete: bool = False
    message: str = ""
