"""What an error means for a client, and how long to wait before the next try."""

from __future__ import annotations

import random
from enum import Enum

from kafkalite.errors import ErrorCode, KafkaliteError, RecordFate, is_retriable

#: One node's patience for a question that any node can answer.
ANY_NODE_TIMEOUT_S = 5.0
#: Time after which the next node is asked: a stopped process must not delay the client.
ASK_NEXT_AFTER_S = 0.3
#: If a response takes this time, the client checks whether the leader is still the same.
PROBE_AFTER_S = 0.5


class BootstrapFailed(KafkaliteError):
    """No address that was given has ever answered, and waiting is not likely to help: nobody listens, the host's name is not known,
    or what listens does not speak Kafka's protocol with us. No RpcError: it is not tried again."""


class ProduceOutcome(Enum):
    """What a producer does with a batch after an answer."""

    DELIVERED = "delivered"
    #: Send again after a pause.
    RETRY = "retry"
    #: The same, and ask where the leader is first.
    RETRY_ELSEWHERE = "retry elsewhere"
    #: The broker misses what came before this batch, or has forgotten the producer.
    SEQUENCE_GAP = "sequence gap"
    FAILED = "failed"


_ELSEWHERE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_GAPS = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


def wants_metadata(code: ErrorCode) -> bool:
    """Whether the error says that this client's idea of the leader is old."""
    return code in _ELSEWHERE


def produce_outcome(code: ErrorCode, *, idempotent: bool) -> ProduceOutcome:
    """What a partition's answer to a produce means.

    Source: Kafka 3.7 Sender.completeBatch, TransactionManager.canRetry (producers without transactions).
    """
    if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return ProduceOutcome.DELIVERED
    if idempotent and code in _GAPS:
        return ProduceOutcome.SEQUENCE_GAP
    if code in _ELSEWHERE:
        return ProduceOutcome.RETRY_ELSEWHERE
    return ProduceOutcome.RETRY if is_retriable(code) else ProduceOutcome.FAILED


#: Retriable errors after which the records of this attempt are certainly not in the log. Not NOT_LEADER_OR_FOLLOWER: a leader that has
#: appended a batch, and is replaced before its followers have it, answers with it, too.
_NOT_APPENDED = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def fate_after(before: RecordFate, code: ErrorCode) -> RecordFate:
    """What is known of a batch after an attempt that was answered with an error."""
    if before is RecordFate.UNKNOWN or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return RecordFate.UNKNOWN
    return RecordFate.REFUSED if code in _NOT_APPENDED or not is_retriable(code) else RecordFate.UNKNOWN


class Backoff:
    """Pauses that double from 50 ms to a second, each between half and all of itself."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng

    def pause_s(self, attempts: int) -> float:
        """Seconds to wait after `attempts` failed attempts (1: after the first)."""
        whole: float = min(1.0, 0.05 * (1 << min(max(attempts - 1, 0), 16)))
        return whole * (0.5 + self._random.random() / 2)
