"""Before a transaction begins on a partition that this node leads, its coordinator must know of it (KIP-890).

Otherwise a packet that arrives after the end of its transaction opens another one, which never ends: readers of committed
records stop there, and the producer's next commit shows the record. There is one question per transaction and partition.
While a transaction is open in the log, its batches are appended at once. The answer may be older than an abort marker that
was written meanwhile, hence the guards (`kafkalite.log.verification`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator
from kafkalite.coordinators.transactions.questions import Answers, Asker, CoordinatorChannels
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, is_retriable
from kafkalite.extension.transaction_groups import coordinator_key
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    BrokerId,
    LeaderEpoch,
    TopicPartition,
)
from kafkalite.rpc.messages.control import Broker
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: EndTxn is answered when it is decided, and the next batch of a producer may come before the markers are written: the
#: time for which an added partition waits until the previous transaction is complete, and the pause between questions.
#: After it the client must send the batch again. Clients that send several at once (franz-go) then give the transaction up,
#: since the later ones come before it, so a busy node waits for its markers.
_PATIENCE_S = 5.0
_WARN_EVERY_S = 10.0
_RETRY_S = 0.02

Flush = Callable[[], None]
#: Gets the coordinator's answer, and the guard to append with if it is NONE. Its result is called once, after all
#: waiters of one answer have got it, so that their batches are appended together.
Done = Callable[[ErrorCode, int], Flush | None]


@dataclass(frozen=True, slots=True)
class Waiter:
    """A batch that would begin a transaction, or comes behind one that would; `guard` is from `begin_verification`, just now."""

    partition: TopicPartition
    sequence: int
    guard: int
    done: Done


class _Inquiry:
    """One question: its partitions, their guards, and the waiters for the answer."""

    __slots__ = ("guards", "late", "waiting")

    def __init__(self) -> None:
        self.guards: dict[TopicPartition, int] = {}
        self.waiting: list[Waiter] = []
        #: Waiters that came while it was under way: a yes holds for them, too, a no may be older than their batch.
        self.late: list[Waiter] = []

    def join(self, waiter: Waiter) -> None:
        self.guards[waiter.partition] = waiter.guard
        self.waiting.append(waiter)

    def join_late(self) -> None:
        """The question will be repeated."""
        self.waiting += self.late
        self.late = []


class TransactionVerifier:
    """See the module."""

    def __init__(self, services: Services, transactions: TransactionCoordinator) -> None:
        self._services = services
        self._transactions = transactions
        self._channels = CoordinatorChannels(services)
        #: By transaction: the question under way, and the next one.
        self._lines: dict[Asker, deque[_Inquiry]] = {}
        #: Coordinator that cannot be asked -> when that was last logged.
        self._warned: dict[BrokerId, float] = {}

    def close(self) -> None:
        """Give up the connections."""
        self._channels.close()

    def is_waiting(self, asker: Asker, partition: TopicPartition) -> bool:
        """Whether a batch for the partition waits for the coordinator. A later one has to wait behind it even if there is nothing to ask
        any more (the transaction has begun meanwhile, with a batch before both): it would be out of order."""
        line = self._lines.get(asker)
        return line is not None and any(partition in inquiry.guards for inquiry in line)

    def ask(self, asker: Asker, waiters: Sequence[Waiter]) -> None:
        """Call each one's `done` once, maybe at once, with the coordinator's answer; for each partition in order of calls."""
        line = self._lines.get(asker)
        if line is not None:
            for waiter in waiters:
                self._line_up(line, waiter)
            return
        line = self._lines[asker] = deque([_Inquiry()])
        for waiter in waiters:
            line[0].join(waiter)
        if asker.adds or not self._answer_here(asker, line):
            self._services.supervisor.spawn(
                f"transaction_verifier.{asker.transactional_id}", self._run(asker, line), Policy.ISOLATED
            )

    def _line_up(self, line: deque[_Inquiry], waiter: Waiter) -> None:
        # The question under way is older than the new guard: its answer is not valid for that one.
        if line[0].guards.get(waiter.partition) == waiter.guard:
            line[0].late.append(waiter)
            return
        if len(line) == 1:
            line.append(_Inquiry())
        line[1].join(waiter)

    def _answer_here(self, asker: Asker, line: deque[_Inquiry]) -> bool:
        """Whether this node coordinates, and so has answered already."""
        owner = self._coordinator(asker)
        if owner is None or owner[0].broker_id != self._services.broker_id:
            return False
        self._answer(asker, line, self._verify_here(asker, tuple(line[0].guards)))
        return True

    async def _run(self, asker: Asker, line: deque[_Inquiry]) -> None:
        """Ask until there are no waiters."""
        clock = self._services.clock
        try:
            while line:
                until = clock.monotonic() + _PATIENCE_S
                while True:
                    answers = await self._ask(asker, tuple(line[0].guards))
                    is_early = asker.adds and ErrorCode.CONCURRENT_TRANSACTIONS in answers.values()
                    if clock.monotonic() >= until:
                        break
                    if is_early:
                        await asyncio.sleep(_RETRY_S)
                    if not self._renew(asker, line[0], answers) and not is_early:
                        break
                    line[0].join_late()
                    _join_next(line)
                self._answer(asker, line, answers)
        finally:
            while line:  # the node stops
                for inquiry in line:
                    inquiry.join_late()
                self._answer(asker, line, {})

    def _renew(self, asker: Asker, inquiry: _Inquiry, answers: Answers) -> bool:
        """Take guards for another question. Whether any has gone: the marker of the transaction before came while the
        question was under way, so a yes may be that to a transaction that is over."""
        has_gone = False
        for waiter in (*inquiry.waiting, *inquiry.late):
            partition = waiter.partition
            error = answers.get(partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if error and error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                continue
            guard = self._guard(asker, waiter)
            has_gone |= not error and guard not in (0, inquiry.guards[partition])
            inquiry.guards[partition] = guard
        return has_gone

    def _guard(self, asker: Asker, waiter: Waiter) -> int:
        """A new guard for the batch; 0: its transaction is open by now."""
        producer = asker.producer_id, asker.producer_epoch
        return self._services.partitions.begin_verification(
            waiter.partition, *producer, waiter.sequence, begins_at_zero=asker.adds
        )

    def _answer(self, asker: Asker, line: deque[_Inquiry], answers: Answers) -> None:
        inquiry = line[0]
        serving = self._services.partitions
        errors = {each: answers.get(each, ErrorCode.COORDINATOR_NOT_AVAILABLE) for each in inquiry.guards}
        for partition, error in errors.items():
            if error and not is_retriable(error):
                # It will never be appended: later batches need not wait for its sequence.
                serving.end_verification(partition, asker.producer_id, inquiry.guards[partition])
        settled = list(inquiry.waiting)
        again: list[Waiter] = []
        for waiter in inquiry.late:
            error = errors[waiter.partition]
            (again if error and not is_retriable(error) else settled).append(waiter)
        line.popleft()
        for waiter in again:
            if not line:
                line.append(_Inquiry())
            line[0].join(replace(waiter, guard=self._guard(asker, waiter)))
        if not line:
            del self._lines[asker]  # a waiter may ask again after its answer
        flushes: dict[Flush, None] = {}
        for waiter in settled:
            flush = waiter.done(errors[waiter.partition], inquiry.guards[waiter.partition])
            if flush is not None:
                flushes[flush] = None
        for flush in flushes:
            flush()

    async def _ask(self, asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        owner = self._coordinator(asker)
        if owner is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        coordinator, epoch = owner
        if coordinator.broker_id != self._services.broker_id:
            try:
                answers = await self._channels.ask(coordinator, asker, partitions)
                return answers if asker.adds else self._unless_replaced(asker, answers, epoch)
            except (OSError, TimeoutError) as error:
                self._warn(coordinator, str(error))
                return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        if not asker.adds:
            return self._verify_here(asker, partitions)
        try:
            await self._transactions.add_partitions(
                asker.transactional_id, asker.producer_id, asker.producer_epoch, partitions, client_version=2
            )
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def _warn(self, coordinator: Broker, error: str) -> None:
        """Producers retry, so not every failure is logged."""
        now = self._services.clock.monotonic()
        if now - self._warned.get(coordinator.broker_id, -_WARN_EVERY_S) >= _WARN_EVERY_S:
            self._warned[coordinator.broker_id] = now
            _log.warning("transaction.not_verified", broker=coordinator.broker_id, error=error)

    def _verify_here(self, asker: Asker, partitions: tuple[TopicPartition, ...]) -> Answers:
        verify = self._transactions.verify_partition
        try:
            answers = {
                each: verify(asker.transactional_id, asker.producer_id, asker.producer_epoch, each)
                for each in partitions
            }
            epoch = self._transactions.partition_of(asker.transactional_id).leader_epoch
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        return self._unless_replaced(asker, answers, epoch)

    def _unless_replaced(self, asker: Asker, answers: Answers, epoch: LeaderEpoch) -> Answers:
        """A yes of a coordinator counts only if no later one has ended a transaction of the producer on the partition.

        A coordinator that was replaced and does not know it verifies from its memory, where the transaction is still open. A
        coordinator writes before it decides, and would notice; a question writes nothing. But the marker of the later
        coordinator has its epoch: once it is in this log, the earlier coordinator's yes is one to a transaction that is over.
        """
        last = self._services.partitions.last_coordinator_epoch
        return {
            key: ErrorCode.NOT_COORDINATOR if not error and last(key, asker.producer_id) > epoch else error
            for key, error in answers.items()
        }

    def _coordinator(self, asker: Asker) -> tuple[Broker, LeaderEpoch] | None:
        """The transaction's coordinator and the epoch in which it leads, as far as this node knows."""
        return self._transactions.log.owner_of(coordinator_key(asker.transactional_id))


_NOT_IN_IT = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})


def refusal(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """The error for the client when a coordinator refuses; COORDINATOR_NOT_AVAILABLE: it should retry."""
    if error in _NOT_IN_IT:
        return ErrorCode.TRANSACTION_ABORTABLE if knows_abortable else ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # ours, not the client's
        return ErrorCode.INVALID_TXN_STATE
    if is_retriable(error) or error is ErrorCode.OPERATION_NOT_ATTEMPTED:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _join_next(line: deque[_Inquiry]) -> None:
    """The first question is about to be repeated with new guards: it is that of the next one's waiters with the same guards, too.

    They would be appended later than what comes when the first ones have opened the transaction, out of order.
    """
    if len(line) < 2:
        return
    first, following = line
    line.pop()
    for waiter in following.waiting:
        if first.guards.get(waiter.partition) == waiter.guard:
            first.waiting.append(waiter)
            continue
        if len(line) == 1:
            line.append(_Inquiry())
        line[1].join(waiter)
