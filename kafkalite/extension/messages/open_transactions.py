"""Transactions as operators see them: at their coordinators, and on the partitions where they are open."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Offset, ProducerId
from kafkalite.rpc.messages.base import Message


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest(Message):
    """The transactional ids that THIS node coordinates; empty filters: all."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[ProducerId, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: ProducerId
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse(Message):
    """`coordinated`: the partitions of __transaction_state whose transactional ids are all known here now.

    `is_partial`: some were left out because the user may not see them.
    """

    error: int
    message: str = ""
    transactions: tuple[ListedTransaction, ...] = ()
    coordinated: tuple[int, ...] = ()
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class OpenTransactionsRequest(Message):
    """The transactions that are open on partitions that THIS node leads; of these (topic, number), or of all."""

    partitions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction that is open on one partition.

    `open_ms`: for how long this node has seen it open, by its own clock (less than the true age after a restart).
    `last_timestamp_ms`: of its producer's last batch. `coordinator_epoch`: of its producer's last marker, or -1.
    """

    topic: str
    partition: int
    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int
    start_offset: Offset
    last_timestamp_ms: int
    open_ms: int


@dataclass(frozen=True, slots=True)
class OpenTransactionsResponse(Message):
    """By partition and first offset."""

    error: int
    message: str = ""
    transactions: tuple[PartitionTransaction, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortTransactionRequest(Message):
    """Write an abort marker for one producer into one partition that THIS node leads, without asking its coordinator."""

    topic: str
    partition: int
    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class AbortTransactionResponse(Message):
    error: int
    message: str = ""
