"""Produce requests with a transactional id: a batch that begins a transaction waits for the coordinator (`verifier`).

Batches of transactions that are open on their partition are appended at once. The request has one response.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

from kafkalite.coordinators.services import Partitions, Services
from kafkalite.coordinators.transactions.questions import Asker
from kafkalite.coordinators.transactions.verifier import Flush, TransactionVerifier, Waiter, refusal
from kafkalite.errors import ErrorCode
from kafkalite.model import NO_OFFSET, Buffer, TopicPartition
from kafkalite.partition_values import ProducedPartition
from kafkalite.replica.purgatory import ProduceDone

#: Of a batch's head: attributes; producer id, producer epoch, base sequence.
_ATTRIBUTES = struct.Struct(">21xh").unpack_from
_PRODUCER = struct.Struct(">43xqhi").unpack_from
_TRANSACTIONAL = 0x10
_BATCH_BYTES = 61


def produce(
    services: Services,
    verifier: TransactionVerifier,
    transactional_id: str,
    acks: int,
    timeout_ms: int,
    partitions: Sequence[tuple[TopicPartition, Buffer]],
    done: ProduceDone,
    *,
    adds: bool,
    knows_abortable: bool,
    client: Callable[[], str],
) -> None:
    """Like Partitions.produce. Batches of transactions that are not open here wait for the coordinator's answer.

    Args:
        adds: the client leaves it to us to add partitions to its transaction (transaction.version 2).
        knows_abortable: the client knows TRANSACTION_ABORTABLE.
        client: names it.
    """
    serving = services.partitions
    if not adds and not services.config.transaction_partition_verification_enable:
        serving.produce(acks, timeout_ms, partitions, done, client=client)
        return
    keys = [key for key, _ in partitions]
    pending = _TransactionalProduce(
        serving, acks, timeout_ms, keys, done, knows_abortable=knows_abortable, client=client
    )
    at_once: list[tuple[int, Buffer]] = []
    unverified: dict[Asker, list[Waiter]] = {}
    for index, (key, records) in enumerate(partitions):
        if len(records) >= _BATCH_BYTES and _ATTRIBUTES(records)[0] & _TRANSACTIONAL:
            producer_id, epoch, sequence = _PRODUCER(records)
            guard = serving.begin_verification(key, producer_id, epoch, sequence, begins_at_zero=adds)
            asker = Asker(transactional_id, producer_id, epoch, adds)
            if guard or verifier.is_waiting(asker, key):
                # The buffer is the connection's: it will hold something else when the answer comes.
                kept = records if isinstance(records, bytes) else bytes(records)
                waiter = Waiter(key, sequence, guard, partial(pending.answered, index, kept))
                unverified.setdefault(asker, []).append(waiter)
                continue
        at_once.append((index, records))
    if not unverified:
        serving.produce(acks, timeout_ms, partitions, done, guards={}, client=client)
        return
    if at_once:
        pending.append(at_once, {})
    for asker, waiters in unverified.items():
        verifier.ask(asker, waiters)


class _TransactionalProduce:
    """One request: the parts appended at once, those appended after the coordinator's answer, and its one response."""

    def __init__(
        self,
        partitions: Partitions,
        acks: int,
        timeout_ms: int,
        keys: Sequence[TopicPartition],
        done: ProduceDone,
        *,
        knows_abortable: bool,
        client: Callable[[], str],
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._keys = keys
        self._done = done
        self._knows_abortable = knows_abortable
        self._results: dict[int, ProducedPartition] = {}
        self._verified: list[tuple[int, Buffer]] = []
        self._guards: dict[TopicPartition, int] = {}

    def append(self, some: list[tuple[int, Buffer]], guards: dict[TopicPartition, int]) -> None:
        """By index."""
        indexes = [index for index, _ in some]
        entries = [(self._keys[index], records) for index, records in some]
        produced = partial(self._produced, indexes)
        self._partitions.produce(self._acks, self._timeout_ms, entries, produced, guards=guards, client=self._client)

    def answered(self, index: int, records: bytes, error: ErrorCode, guard: int) -> Flush | None:
        """See `verifier.Done`."""
        key = self._keys[index]
        if not error:
            self._verified.append((index, records))
            self._guards[key] = guard
            return self._flush
        code, text = _produce_error(error, knows_abortable=self._knows_abortable)
        self._partitions.refused(key, records, code)
        self._produced([index], (ProducedPartition(key.topic, key.partition, int(code), NO_OFFSET, message=text),))
        return None

    def _flush(self) -> None:
        verified, guards = self._verified, self._guards
        self._verified, self._guards = [], {}
        self.append(verified, guards)

    def _produced(self, indexes: list[int], some: tuple[ProducedPartition, ...]) -> None:
        self._results.update(zip(indexes, some, strict=True))
        if len(self._results) == len(self._keys):
            self._done(tuple(self._results[index] for index in range(len(self._keys))))


def _produce_error(error: ErrorCode, *, knows_abortable: bool) -> tuple[ErrorCode, str]:
    code = refusal(error, knows_abortable=knows_abortable)
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # Producers of all ages try again after it, and do not look for another leader first.
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be verified: {error.name}"
    return code, f"the partition is not part of an ongoing transaction of this producer: {error.name}"
