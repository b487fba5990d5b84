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
