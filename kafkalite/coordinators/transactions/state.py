"""What a transaction coordinator knows of one transactional id, and the transitions that requests ask for. Pure.

Each transition returns the next state, which counts only once it is replicated; a request that may not be granted
raises ApiError with Kafka's code. Sources: KIP-98, KIP-360 (epoch bumps), KIP-588 (PRODUCER_FENCED); Kafka 3.9
TransactionMetadata and TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from enum import IntEnum

from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode, encoding
from kafkalite.protocol.errors import WireError

#: The highest epoch that a producer is given; the one above it only fences.
MAX_PRODUCER_EPOCH = 2**15 - 2
_KEY_VERSION = 0
#: The first flexible version; written only if a tagged field is not empty, so that values of producers with
#: transaction.version 0 stay readable by Kafka before 3.5.
_TAGGED_VALUE_VERSION = 1
_VALUE_VERSION = 0
#: Partitions per step.
_STEP = 100
#: From this transaction.version on every end of a transaction bumps the epoch (KIP-890).
BUMPING_VERSION = 2


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
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class Transaction:
    """`last_producer_epoch` is the epoch before the last bump (-1: none), to recognise a repeated InitProducerId.

    `client_version` is the transaction.version by which its producer began or ended it. When the epochs of the producer
    id run out at the end of a transaction, `next_producer_id` takes over once it is complete; the one before is then
    `previous_producer_id` (-1: none).
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    last_producer_epoch: int = -1
    client_version: int = 0
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID

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
    version: int = 0,
) -> Transaction:
    """InitProducerId for a known id: the next epoch, which fences the producer with the previous one.

    Args:
        expected: producer id and epoch that the client says it has; (-1, -1) if it does not say.
        fresh_id: the producer id to go on with when `needs_new_producer_id`.
        version: see `fence`.
    Returns:
        The next state: EMPTY with the new epoch; PREPARE_ABORT when a transaction is open (the client asks again); or
        `known` itself when the request repeats one that was granted.
    """
    _check_markers(known)
    expected_id, expected_epoch = expected
    current = (known.producer_id, known.producer_epoch), producer_after(known)
    if expected_id != NO_PRODUCER_ID and expected not in current:
        if not _is_repeated_init(known, expected_id, expected_epoch):
            raise api_error(ErrorCode.PRODUCER_FENCED)
        if known.producer_epoch <= MAX_PRODUCER_EPOCH:
            return known
    if known.state is TransactionState.ONGOING:
        return fence(known, now, version)
    if needs_new_producer_id(known):
        return replace(
            begin(known.transactional_id, fresh_id, timeout_ms, now),
            previous_producer_id=known.producer_id,
            last_producer_epoch=expected_epoch,
        )
    return replace(
        known,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=expected_epoch,  # only a client that sent its epoch can repeat itself
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now,
    )


def _is_repeated_init(known: Transaction, expected_id: int, expected_epoch: int) -> bool:
    """Whether a client with these got the next ones already, and the response was lost."""
    if expected_epoch != known.last_producer_epoch or known.state is TransactionState.ONGOING:
        return False  # what is open belongs to the one that has them
    return expected_id == known.producer_id or (
        expected_id == known.previous_producer_id and expected_epoch == MAX_PRODUCER_EPOCH
    )


def fence(known: Transaction, now: int, version: int = 0) -> Transaction:
    """Abort a transaction that is open, or that its producer may still open, under a new epoch: it can add nothing more.

    `version`: the transaction.version in force. From `BUMPING_VERSION` on the producer gets the new epoch if it asks for its next one, also
    if it does not know of this version: the coordinator ends the transaction, not the client (Kafka 4.x).
    """
    assert known.state in (TransactionState.ONGOING, TransactionState.EMPTY)
    version = max(version, known.client_version)
    return replace(
        known,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=known.producer_epoch if version >= BUMPING_VERSION else -1,
        state=TransactionState.PREPARE_ABORT,
        updated_ms=now,
        client_version=version,
    )


def _check_markers(known: Transaction | None) -> None:
    """While its markers are under way, the producer is asked to repeat. Of EndTxn 0 to 4, Kafka 4.4.0 checks the producer before that; of all
    others it does not, so a stale one hears that it is fenced only afterwards."""
    if known is not None and known.state in PREPARED:
        raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)


def _check_producer(known: Transaction | None, producer_id: int, producer_epoch: int) -> Transaction:
    if known is not None and known.state in PREPARED and producer_id == known.next_producer_id != NO_PRODUCER_ID:
        raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)  # it has its next id already; the markers are under way
    if known is None or known.producer_id != producer_id:
        raise api_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != producer_epoch or producer_epoch > MAX_PRODUCER_EPOCH:
        raise api_error(ErrorCode.PRODUCER_FENCED)
    return known


def waits_for_markers(known: Transaction | None, producer_id: int, producer_epoch: int) -> bool:
    """Whether the next transaction of this producer has to wait for the markers of the last one."""
    return (
        known is not None
        and known.state in PREPARED
        and (known.producer_id, known.producer_epoch) == (producer_id, producer_epoch)
    )


def add_partitions(
    known: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
    now: int,
    client_version: int = 0,
) -> Transaction:
    """AddPartitionsToTxn: opens the transaction if none is; `known` itself if nothing is new."""
    _check_markers(known)
    current = _check_producer(known, producer_id, producer_epoch)
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
        client_version=client_version,
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
    _check_markers(current)
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    prepared = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    if current.state is TransactionState.ONGOING:
        return replace(current, state=prepared, updated_ms=now, client_version=0)
    if current.state is done:
        return current
    raise api_error(ErrorCode.INVALID_TXN_STATE)


def end_and_bump(
    known: Transaction | None,
    producer_id: int,
    producer_epoch: int,
    fresh_id: ProducerId,
    now: int,
    *,
    is_commit: bool,
) -> Transaction:
    """EndTxn 5 (KIP-890): as `end`, and the producer goes on with the next epoch. `known` itself for a repeated request.

    A delayed request of the ended transaction cannot count for the next one. Without an open transaction an abort is
    allowed: the producer cannot know whether its requests have arrived and opened one.

    Args:
        fresh_id: the producer id to go on with when `needs_new_producer_id`.
    Source: Kafka 4.x TransactionCoordinator.endTransaction.
    """
    _check_markers(known)
    if known is None:
        raise api_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_overflow = (producer_id, producer_epoch) == (
        known.previous_producer_id,
        MAX_PRODUCER_EPOCH,
    ) and known.producer_epoch == 0
    if known.producer_id != producer_id and not is_overflow:
        raise api_error(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = not is_overflow and producer_epoch == known.producer_epoch <= MAX_PRODUCER_EPOCH
    is_repeated = is_overflow or producer_epoch == known.producer_epoch - 1
    if not is_current and not (is_repeated and known.state in COMPLETE):
        raise api_error(ErrorCode.PRODUCER_FENCED)
    if not is_current:
        done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        if known.state is not done:
            raise api_error(ErrorCode.INVALID_TXN_STATE)
        return known if known.producer_epoch <= MAX_PRODUCER_EPOCH else _with_next_id(known, fresh_id, now)
    if is_commit and known.state is not TransactionState.ONGOING:
        raise api_error(ErrorCode.INVALID_TXN_STATE)
    return replace(
        known,
        producer_epoch=known.producer_epoch + 1,
        last_producer_epoch=known.producer_epoch,
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        partitions=known.partitions if known.state is TransactionState.ONGOING else frozenset(),
        started_ms=known.started_ms if known.state is TransactionState.ONGOING else now,
        updated_ms=now,
        client_version=BUMPING_VERSION,
        next_producer_id=fresh_id if needs_new_producer_id(known) else NO_PRODUCER_ID,
    )


def _with_next_id(known: Transaction, fresh_id: ProducerId, now: int) -> Transaction:
    """The coordinator has aborted the transaction under the epoch that only fences, and its producer, which nobody has replaced, goes on."""
    return replace(
        known,
        producer_id=fresh_id,
        producer_epoch=0,
        previous_producer_id=known.producer_id,
        updated_ms=now,
        client_version=BUMPING_VERSION,
    )


def producer_after(known: Transaction) -> tuple[ProducerId, int]:
    """Id and epoch with which the producer begins its next transaction."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return known.next_producer_id, 0
    return known.producer_id, known.producer_epoch


def complete(known: Transaction, now: int) -> Transaction:
    """All markers are written."""
    assert known.state in PREPARED
    done = (
        TransactionState.COMPLETE_COMMIT
        if known.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    producer_id, producer_epoch = producer_after(known)
    is_other = producer_id != known.producer_id
    return replace(
        known,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=known.producer_id if is_other else known.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=done,
        partitions=frozenset(),
        updated_ms=now,
    )


# --- in the log ----------------------------------------------------------------------------------


def key_of(transactional_id: str) -> bytes:
    return _KEY_VERSION.to_bytes(2) + encode(wire.TransactionLogKey(transactional_id), _KEY_VERSION)


def value_of(transaction: Transaction) -> bytes:
    steps = valuing(transaction)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            value: bytes = stop.value
            return value


def valuing(transaction: Transaction) -> Generator[None, None, bytes]:
    """As `value_of`, in steps: it may have 12,000 partitions."""
    topics: dict[str, list[int]] = {}
    for number, (topic, index) in enumerate(transaction.partitions, 1):
        topics.setdefault(topic, []).append(index)
        if not number % _STEP:
            yield
    value = wire.TransactionLogValue
    partitions = []
    for number, topic in enumerate(sorted(topics), 1):
        partitions.append(value.PartitionsSchema(topic, sorted(topics[topic])))
        if not number % _STEP:
            yield
    stored = value(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.client_version,
    )
    is_tagged = bool(transaction.client_version) or transaction.previous_producer_id != NO_PRODUCER_ID
    version = _TAGGED_VALUE_VERSION if is_tagged else _VALUE_VERSION
    if len(transaction.partitions) < _STEP:
        return version.to_bytes(2) + encode(stored, version)
    encoded = yield from encoding(type(stored).__name__, stored, version, bytearray(), [])
    return version.to_bytes(2) + encoded


def parse(key: bytes | None, value: bytes | None) -> tuple[str, Transaction | None]:
    """A record of `__transaction_state`; None for a tombstone. Raises WireError."""
    if key is None or key[:2] != _KEY_VERSION.to_bytes(2):
        raise WireError("a key of another version in __transaction_state")
    transactional_id: str = decode(wire.TransactionLogKey, _KEY_VERSION, key[2:]).transactional_id
    if value is None:
        return transactional_id, None
    version = int.from_bytes(value[:2])
    if len(value) < 2 or version > 1:
        raise WireError(f"a value of version {version} in __transaction_state")
    stored = decode(wire.TransactionLogValue, version, value[2:])
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
        # Not in the log, as in Kafka; but with version 2 the epoch has always been bumped by one.
        stored.producer_epoch - 1
        if stored.client_transaction_version >= BUMPING_VERSION and state in (*PREPARED, *COMPLETE)
        else -1,
        stored.client_transaction_version,
        ProducerId(stored.previous_producer_id),
        ProducerId(stored.next_producer_id),
    )
