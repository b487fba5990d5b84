"""Transactions as operators see them: at their coordinators, and on the partitions where they are open."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Offset, ProducerId
from kafkalite.rpc.messages.base import Message, kind


@kind(190)
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


@kind(191)
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


@kind(192)
@dataclass(frozen=True, slots=True)
class DescribeTransactionRequest(Message):
    """One transactional id, for the node that coordinates it."""

    transactional_id: str


@kind(193)
@dataclass(frozen=True, slots=True)
class DescribeTransactionResponse(Message):
    """`started_ms`: wall time; -1: no transaction is open. Partitions that the asking user may not see are left out."""

    error: int
    message: str = ""
    transactional_id: str = ""
    state: str = ""
    producer_id: ProducerId = ProducerId(-1)
    producer_epoch: int = -1
    timeout_ms: int = -1
    started_ms: int = -1
    partitions: tuple[tuple[str, int], ...] = ()


@kind(194)
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


@kind(195)
@dataclass(frozen=True, slots=True)
class OpenTransactionsResponse(Message):
    """By partition and first offset."""

    error: int
    message: str = ""
    transactions: tuple[PartitionTransaction, ...] = ()


@kind(196)
@dataclass(frozen=True, slots=True)
class AbortTransactionRequest(Message):
    """Write an abort marker for one producer into one partition that THIS node leads, without asking its coordinator."""

    topic: str
    partition: int
    producer_id: ProducerId
    producer_epoch: int
    coordinator_epoch: int


@kind(197)
@dataclass(frozen=True, slots=True)
class AbortTransactionResponse(Message):
    error: int
    message: str = ""
