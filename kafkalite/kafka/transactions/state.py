"""What a transaction coordinator knows of one transactional id, and the transitions that requests ask for. Pure.

Each transition returns the next state, which counts only once it is replicated; a request that may not be granted
raises ApiError with Kafka's code. Sources: KIP-98, KIP-360 (epoch bumps), KIP-588 (PRODUCER_FENCED); Kafka 3.9
TransactionMetadata and TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum

from kafkalite.errors import ErrorCode, api_error
from kafkalite.kafka import wire
from kafkalite.kafka.codec import WireError, decode, encode
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_PRODUCER_ID, ProducerId, TopicPartition

#: The highest epoch that a producer is given; the one above it only fences.
MAX_PRODUCER_EPOCH = 2**15 - 2
_KEY_VERSION = 0
_VALUE_VERSION = 0


class TransactionState(IntEnum):
    """Numbers are those of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def wire_name(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class Transaction:
    """`last_producer_epoch` is the epoch before the last bump (-1: none), to recognise a repeated InitProducerId."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    last_producer_epoch: int = -1

    @property
    def is_open(self) -> bool:
        """Whether it has begun and is not decided."""
        return self.state is TransactionState.ONGOING


def begin(transactional_id: str, producer_id: ProducerId, timeout_ms: int, now: int) -> Transaction:
    """A transactional id that was never seen."""
    return Transaction(transactional_id, producer_id, 0, timeout_ms, TransactionState.EMPTY, updated_ms=now)


def needs_new_producer_id(known: Transaction) -> bool:
    """Whether the epochs of the producer id are used up."""
    return known.producer_epoch >= MAX_PRODUCER_EPOCH


def init_producer(
    known: Transaction,
    expected: tuple[int, int],
    timeout_ms: int,
    fresh_id: ProducerId,
    now: int,
) -> Transaction:
    """InitProducerId for a known id: the next epoch, which fences whoever had the last one.

    Args:
        expected: producer id and epoch that the client says it has; (-1, -1) if it does not say.
        fresh_id: the producer id to go on with when `needs_new_producer_id`.
    Returns:
        The next state: EMPTY with the new epoch; PREPARE_ABORT when a transaction is open (the client asks again); or
        `known` itself when the request repeats one that was granted.
    """
    expected_id, expected_epoch = expected
    if expected_id != NO_PRODUCER_ID:
        if expected_id != known.producer_id:
            raise api_error(ErrorCode.PRODUCER_FENCED)
        if expected_epoch != known.producer_epoch:
            if expected_epoch == known.last_producer_epoch and known.state is TransactionState.EMPTY:
                return known
            raise api_error(ErrorCode.PRODUCER_FENCED)
    if known.state in PREPARED:
        raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)
    if known.state is TransactionState.ONGOING:
        return fence(known, now)
    if needs_new_producer_id(known):
        return replace(begin(known.transactional_id, fresh_id, timeout_ms, now))
    return replace(
        known,
        producer_epoch=known.producer_epoch + 1,
        # Only a client that told its epoch can repeat itself.
        last_producer_epoch=known.producer_epoch if expected_id != NO_PRODUCER_ID else -1,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now,
    )


def fence(known: Transaction, now: int) -> Transaction:
    """Abort an open transaction under a new epoch, so that its producer can add nothing more."""
    assert known.state is TransactionState.ONGOING
    return replace(known, producer_epoch=known.producer_epoch + 1, state=TransactionState.PREPARE_ABORT, updated_ms=now)


def _check_producer(known: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    if known is None or known.producer_id != producer_id:
        raise api_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != producer_epoch:
        raise api_error(ErrorCode.PRODUCER_FENCED)
    return known


def add_partitions(
    known: Transaction | None, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition], now: int
) -> Transaction:
    """AddPartitionsToTxn: opens the transaction if none is; `known` itself if nothing is new."""
    current = _check_producer(known, producer_id, producer_epoch)
    if current.state in PREPARED:
        raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_open = current.state is TransactionState.ONGOING
    before = current.partitions if is_open else frozenset()
    after = before | frozenset(partitions)
    if is_open and after == before:
        return current
    return replace(
        current,
        state=TransactionState.ONGOING,
        partitions=after,
        started_ms=current.started_ms if is_open else now,
        updated_ms=now,
    )


def verify_partition(
    known: Transaction | None, producer_id: int, producer_epoch: int, partition: TopicPartition
) -> ErrorCode:
    """Whether the partition is in the producer's open transaction (KIP-890)."""
    current = _check_producer(known, producer_id, producer_epoch)
    if current.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_in = current.state is TransactionState.ONGOING and partition in current.partitions
    return ErrorCode.NONE if is_in else ErrorCode.INVALID_TXN_STATE


def end(known: Transaction | None, producer_id: int, producer_epoch: int, now: int, *, is_commit: bool) -> Transaction:
    """EndTxn: prepared to commit or abort; `known` itself when the request repeats one that is done."""
    current = _check_producer(known, producer_id, producer_epoch)
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    prepared = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    if current.state is TransactionState.ONGOING:
        return replace(current, state=prepared, updated_ms=now)
    if current.state is done:
        return current
    if current.state is prepared:
        raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)
    raise api_error(ErrorCode.INVALID_TXN_STATE)


def complete(known: Transaction, now: int) -> Transaction:
    """All markers are written."""
    assert known.state in PREPARED
    done = (
        TransactionState.COMPLETE_COMMIT
        if known.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    return replace(known, state=done, partitions=frozenset(), updated_ms=now)


# --- in the log ----------------------------------------------------------------------------------


def key_of(transactional_id: str) -> bytes:
    return _KEY_VERSION.to_bytes(2) + encode(wire.TransactionLogKey(transactional_id), _KEY_VERSION)


def value_of(transaction: Transaction) -> bytes:
    topics: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    value = wire.TransactionLogValue
    partitions = [value.PartitionsSchema(topic, ids) for topic, ids in topics.items()]
    stored = value(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    return _VALUE_VERSION.to_bytes(2) + encode(stored, _VALUE_VERSION)


def parse(key: bytes | None, value: bytes | None) -> tuple[str, Transaction | None]:
    """A record of `__transaction_state`; None for a tombstone. Raises WireError."""
    if key is None or key[:2] != _KEY_VERSION.to_bytes(2):
        raise WireError("a key of another version in __transaction_state")
    transactional_id: str = decode("TransactionLogKey", _KEY_VERSION, key[2:]).transactional_id
    if value is None:
        return transactional_id, None
    version = int.from_bytes(value[:2])
    if len(value) < 2 or version > 1:
        raise WireError(f"a value of version {version} in __transaction_state")
    stored = decode("TransactionLogValue", version, value[2:])
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError as error:
        raise WireError(str(error)) from None
    return transactional_id, Transaction(
        transactional_id,
        ProducerId(stored.producer_id),
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, index)
            for topic in stored.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        stored.transaction_start_timestamp_ms,
        stored.transaction_last_update_timestamp_ms,
    )
