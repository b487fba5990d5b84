"""The transaction coordinator: transactional ids of the `__transaction_state` partitions that this node leads.

A shell around `state`: a transition is written to the log first and holds when it is replicated. A prepared
transaction's markers are then sent until every partition has one, also by the next coordinator if this one dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import field, replace

from kafkalite.coordinators.internal_log import InternalLog
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions import decisions
from kafkalite.coordinators.transactions import state as rules
from kafkalite.coordinators.transactions.decisions import Decision
from kafkalite.coordinators.transactions.marker_targets import MarkerTargets, marker_targets
from kafkalite.coordinators.transactions.markers import Errors, Marker, MarkerChannels
from kafkalite.coordinators.transactions.producer_ids import ProducerIdsInUse
from kafkalite.coordinators.transactions.state import Transaction, TransactionState
from kafkalite.env.side_by_side import SideBySide
from kafkalite.env.supervisor import Policy
from kafkalite.env.turns import Slices, Turns
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.transaction_groups import coordinator_key
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    NO_PRODUCER_ID,
    NO_TOPIC_ID,
    TRANSACTION_FEATURE,
    TRANSACTION_TOPIC,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kafkalite.protocol.errors import WireError
from kafkalite.record.batch import BatchHeader
from kafkalite.record.reader import EndTransactionMarker, Record
from kafkalite.rpc.messages.control import Broker
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

_RETRY_S = 0.1
#: Partitions of a transaction whose record is made in one turn of the loop.
_AT_ONCE = 500
#: The partition will never take this marker, or has it already.
_FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})


@dataclass(slots=True)
class TransactionEntry:
    """One transactional id. `is_busy`: a transition is being written, nobody else may begin one."""

    transaction: Transaction | None = None
    is_busy: bool = False
    #: Of a group's transaction: which writer has begun it, as far as this process knows (see BeginTxnGroupRequest).
    writer: str = ""
    #: When the open transaction is overdue, by this process's own clock; None: none is, or it has not been reported yet.
    deadline_s: float | None = None


@dataclass(slots=True)
class TransactionPartition:
    index: int
    leader_epoch: LeaderEpoch
    slots: dict[str, TransactionEntry] = field(default_factory=dict)
    #: The last decision of each group, and the groups whose next one is being written.
    decisions: dict[str, Decision] = field(default_factory=dict)
    deciding: set[str] = field(default_factory=set)
    #: Set, and replaced, whenever a transaction is complete.
    completion: asyncio.Event = field(default_factory=asyncio.Event)
    #: While it is loaded: the last record of each key in the piece that is read (key -> value, offset of the record).
    unsettled: dict[bytes | None, tuple[bytes | None, int]] = field(default_factory=dict)


class TransactionCoordinator:
    """See the module. All methods raise ApiError."""

    def __init__(self, services: Services, channels: MarkerChannels) -> None:
        self._services = services
        self._channels = channels
        self._turns = Turns(services.clock.monotonic)
        self._ids = ProducerIdsInUse(services)
        self._repeats = Repeats(services.clock.monotonic)
        self.log: InternalLog[TransactionPartition] = InternalLog(
            services,
            TRANSACTION_TOPIC,
            TransactionPartition,
            self._replay,
            self._loaded,
            lambda partition: None,
            settle=self._settle,
            when_committed=True,
        )

    def start(self) -> None:
        spawn = self._services.supervisor.spawn
        spawn("transactions.leadership", self.log.run())
        spawn("transactions.timeouts", self._run_timeouts())
        spawn("transactions.expiry", self._run_expiry())

    # --- requests ---

    async def init_producer(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int]
    ) -> tuple[ProducerId, int]:
        """(producer id, epoch)."""
        if (expected[0] == NO_PRODUCER_ID) != (expected[1] == -1):
            raise api_error(ErrorCode.INVALID_REQUEST)
        if transactional_id is None:
            return await self._ids.take(), 0
        if not transactional_id:
            raise api_error(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._services.config.transaction_max_timeout_ms:
            raise api_error(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        partition = self.partition_of(transactional_id)
        entry = partition.slots.get(transactional_id)
        fresh = NO_PRODUCER_ID
        if entry is None or entry.transaction is None or rules.needs_new_producer_id(entry.transaction):
            fresh = await self._ids.take()
            partition = self.partition_of(transactional_id)  # it may have moved meanwhile
        entry = partition.slots.setdefault(transactional_id, TransactionEntry())
        self._check_free(entry)
        now = self._services.clock.wall_ms()
        known = entry.transaction
        if known is None:
            target = rules.begin(transactional_id, fresh, timeout_ms, now)
        elif rules.needs_new_producer_id(known) and fresh == NO_PRODUCER_ID:
            raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)  # it was bumped meanwhile: the client asks again
        else:
            version = self._services.feature_level(TRANSACTION_FEATURE)
            target = rules.init_producer(known, expected, timeout_ms, fresh, now, version)
        await self._move(partition, entry, target)
        if target.state is TransactionState.PREPARE_ABORT:
            raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)  # granted once the abort is through
        return target.producer_id, target.producer_epoch

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        client_version: int = 0,
        patience_s: float = 0.0,
    ) -> None:
        """`client_version`: the producer's transaction.version. `patience_s`: how long to wait for the markers of the transaction before."""
        partition, entry = self._find(transactional_id)
        if patience_s and rules.waits_for_markers(entry.transaction, producer_id, producer_epoch):
            await self.wait_complete(partition, [transactional_id], patience_s)
            partition, entry = self._find(transactional_id)
        now = self._services.clock.wall_ms()
        target = rules.add_partitions(entry.transaction, producer_id, producer_epoch, partitions, now, client_version)
        self._check_free(entry)
        await self._move(partition, entry, target)

    def verify_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        _, entry = self._find(transactional_id)
        return rules.verify_partition(entry.transaction, producer_id, producer_epoch, partition)

    async def end(self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Returns when the decision is durable; the markers follow."""
        partition, entry = self._find(transactional_id)
        self._check_free(entry)  # before the rules: what is being written may be the partitions of this transaction
        now = self._services.clock.wall_ms()
        target = rules.end(entry.transaction, producer_id, producer_epoch, now, is_commit=is_commit)
        await self._move(partition, entry, target)

    async def end_and_bump(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool
    ) -> tuple[ProducerId, int]:
        """As `end`; the producer's id and epoch from now on (KIP-890)."""
        _, entry = self._find(transactional_id)
        fresh = NO_PRODUCER_ID
        if entry.transaction is not None and rules.needs_new_producer_id(entry.transaction):
            fresh = await self._ids.take()
        partition, entry = self._find(transactional_id)  # it may have moved meanwhile
        self._check_free(entry)
        known, now = entry.transaction, self._services.clock.wall_ms()
        if known is not None and rules.needs_new_producer_id(known) and fresh == NO_PRODUCER_ID:
            raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)  # it was bumped meanwhile: the client asks again
        target = rules.end_and_bump(known, producer_id, producer_epoch, fresh, now, is_commit=is_commit)
        await self._move(partition, entry, target)
        return rules.producer_after(target)

    def describe(self, transactional_id: str) -> Transaction:
        _, entry = self._find(transactional_id)
        if entry.transaction is None:
            raise api_error(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return entry.transaction

    def transactions(self) -> Iterable[Transaction]:
        """All that are coordinated here. Raises ApiError COORDINATOR_LOAD_IN_PROGRESS while some are not known yet."""
        if self.log.is_loading:
            raise api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for partition in self.log.states():
            for _, entry in sorted(partition.slots.items()):
                if entry.transaction is not None:
                    yield entry.transaction

    def _find(self, transactional_id: str) -> tuple[TransactionPartition, TransactionEntry]:
        if not transactional_id:
            raise api_error(ErrorCode.INVALID_REQUEST)
        partition = self.partition_of(transactional_id)
        return partition, partition.slots.get(transactional_id) or TransactionEntry()

    def partition_of(self, transactional_id: str) -> TransactionPartition:
        """Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        return self.log.state_for(coordinator_key(transactional_id))

    async def coordinator_of(self, transactional_id: str) -> Broker:
        """The node that coordinates it. Raises ApiError COORDINATOR_NOT_AVAILABLE, CoordinatorError."""
        return await self.log.coordinator_of(coordinator_key(transactional_id))

    def _check_free(self, entry: TransactionEntry) -> None:
        if entry.is_busy:
            raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)

    # --- transitions ---

    async def _move(self, partition: TransactionPartition, entry: TransactionEntry, target: Transaction) -> None:
        """Write the next state, then let it hold. Raises ApiError, and nothing has changed for the client then.

        The state of a repeated request is written once more: only a write that the followers confirm shows that no other node
        coordinates by now. Otherwise a node that does not know yet that it has been replaced would take the end of a transaction
        which it has never heard of for a repetition of the previous one's end.
        """
        assert not entry.is_busy
        entry.is_busy = True
        try:
            await self._write(partition, target.transactional_id, await self._value_of(target))
        finally:
            entry.is_busy = False
        was_open = entry.transaction is not None and entry.transaction.is_open
        entry.transaction = target
        if target.is_open and not was_open:
            entry.deadline_s = self._services.clock.monotonic() + target.timeout_ms / 1000
        if target.state in rules.PREPARED:
            self.finish(partition, entry)

    async def _value_of(self, transaction: Transaction) -> bytes:
        """In slices, if it has many partitions."""
        if len(transaction.partitions) <= _AT_ONCE:
            return rules.value_of(transaction)
        slices = Slices(self._turns, ("transactions.value", transaction.transactional_id))
        return await slices.run(rules.valuing(transaction))

    async def _write(self, partition: TransactionPartition, transactional_id: str, value: bytes | None) -> None:
        await self.write(partition, [(rules.key_of(transactional_id), value)])

    async def write(self, partition: TransactionPartition, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """One record batch: all of it is in the log, or nothing. Raises ApiError: whether it is, is then not known."""
        outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode, base_offset: Offset) -> None:
            if not outcome.done():
                outcome.set_result(error)

        self.log.append(partition.index, partition, records, done)
        if error := await outcome:
            raise api_error(error)
        if self.log.ready_state(partition.index) is not partition:
            raise api_error(ErrorCode.NOT_COORDINATOR)

    # --- markers ---

    def finish(self, partition: TransactionPartition, entry: TransactionEntry) -> None:
        """Have a prepared transaction's markers written."""
        assert entry.transaction is not None
        self._services.supervisor.spawn(
            f"transaction.{entry.transaction.transactional_id}", self._finish(partition, entry), Policy.ISOLATED
        )

    async def wait_complete(
        self, partition: TransactionPartition, transactional_ids: Sequence[str], limit_s: float
    ) -> bool:
        """Whether none of these transactions waits for markers any more, after `limit_s` at most."""

        def done() -> bool:
            slots = [partition.slots.get(each) for each in transactional_ids]
            return not any(entry and entry.transaction and entry.transaction.state in rules.PREPARED for entry in slots)

        try:
            async with asyncio.timeout(limit_s):
                while not done() and self.log.ready_state(partition.index) is partition:
                    await partition.completion.wait()
        except TimeoutError:
            pass
        return done()

    async def _finish(self, partition: TransactionPartition, entry: TransactionEntry) -> None:
        try:
            await self._complete(partition, entry)
        finally:
            # Also if another node coordinates by now: requests that wait for the markers must not wait until their limit.
            partition.completion.set()
            partition.completion = asyncio.Event()

    async def _complete(self, partition: TransactionPartition, entry: TransactionEntry) -> None:
        prepared = entry.transaction
        assert prepared is not None and prepared.state in rules.PREPARED
        remaining = set(prepared.partitions)
        clock = self._services.clock
        missing_since: dict[TopicPartition, float] = {}
        while remaining:
            if self.log.ready_state(partition.index) is not partition:
                return  # the next coordinator goes on
            known = self._services.metadata(sorted({each.topic for each in remaining}))
            targets = marker_targets(known, remaining, missing_since, clock.monotonic(), is_deleted=self._is_deleted)
            if targets.gone:
                remaining -= set(targets.gone)
                gone = [str(each) for each in targets.gone]
                _log.warning("transaction.partitions_gone", transactional_id=prepared.transactional_id, partitions=gone)
            for errors in await self._send_all(targets, prepared, partition.leader_epoch):
                if errors is None:
                    continue
                if ErrorCode.TRANSACTION_COORDINATOR_FENCED in errors.values():
                    _log.warning("transaction.fenced", transactional_id=prepared.transactional_id)
                    return
                remaining -= {key for key, error in errors.items() if not error or error in _FINAL}
            if remaining:
                await asyncio.sleep(_RETRY_S)
        await self._write_complete(partition, entry, prepared)

    def _is_deleted(self, topic: str) -> bool:
        return self._services.is_deleted(topic, NO_TOPIC_ID)

    async def _send_all(self, targets: MarkerTargets, prepared: Transaction, epoch: LeaderEpoch) -> list[Errors | None]:
        """Each leader's outcome. All are asked at once: a leader that does not answer must not block the readers of the others."""
        sends = [self._send(leader, prepared, epoch, theirs) for leader, theirs in targets.by_leader]
        if len(sends) == 1:
            return [await sends[0]]
        spawn = self._services.supervisor.spawn
        tasks = [spawn(f"markers.{prepared.transactional_id}", send, Policy.ISOLATED) for send in sends]
        return [await task for task in tasks]

    async def _send(
        self, broker: Broker, prepared: Transaction, epoch: LeaderEpoch, partitions: tuple[TopicPartition, ...]
    ) -> Errors | None:
        """Each partition's outcome; None: the node could not be asked."""
        marker = Marker(
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.state is TransactionState.PREPARE_COMMIT,
            epoch,
            tuple(partitions),
            prepared.client_version if broker.transaction_version >= rules.BUMPING_VERSION else 0,
        )
        try:
            return await self._channels.send(broker, marker)
        except (OSError, TimeoutError) as error:
            self._log_delay("transaction.marker_delayed", broker.broker_id, broker=broker.broker_id, error=str(error))
            return None

    async def _write_complete(
        self, partition: TransactionPartition, entry: TransactionEntry, prepared: Transaction
    ) -> None:
        """The last record of the transaction; repeated until it is there or somebody else coordinates."""
        while self.log.ready_state(partition.index) is partition and entry.transaction is prepared:
            try:
                await self._move(partition, entry, rules.complete(prepared, self._services.clock.wall_ms()))
            except ApiError as error:
                self._log_delay("transaction.complete_delayed", error.code, error=error.code.name)
                await asyncio.sleep(_RETRY_S)

    def _log_delay(self, event: str, kind: Hashable, **details: object) -> None:
        """One line. Transactions repeat it until they succeed, so similar lines are suppressed."""
        suppressed = self._repeats.admit((event, kind))
        if suppressed is not None:
            _log.info(event, **details, suppressed=suppressed)

    # --- time ---

    async def _run_timeouts(self) -> None:
        config = self._services.config
        while True:
            await asyncio.sleep(config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000)
            await self.abort_overdue()

    async def abort_overdue(self) -> None:
        """Abort transactions that are open for longer than their producer allowed, and fence the producer.

        The time is measured by this process's own clock, and starts again with a new coordinator: wall clocks jump, and differ between
        nodes, by hours. It starts again here where clients were sent away, too: what they asked for may have been the end.
        """
        now_s = self._services.clock.monotonic()
        async with SideBySide() as tasks:
            for partition in self.log.states():
                was_heard = not self.log.sends_away(partition.index)
                for entry in partition.slots.values():
                    known = entry.transaction
                    if known is None or not known.is_open:
                        entry.deadline_s = None
                        continue
                    if entry.deadline_s is None or not was_heard:
                        entry.deadline_s = now_s + known.timeout_ms / 1000
                    if entry.deadline_s <= now_s:
                        tasks.create_task(self._abort(partition, entry, known))

    async def _abort(self, partition: TransactionPartition, entry: TransactionEntry, known: Transaction) -> None:
        """Abort an overdue transaction, unless something has happened to it."""
        if entry.transaction is not known or entry.is_busy:
            return
        _log.info("transaction.timed_out", transactional_id=known.transactional_id)
        version = self._services.feature_level(TRANSACTION_FEATURE)
        try:
            await self._move(partition, entry, rules.fence(known, self._services.clock.wall_ms(), version))
        except ApiError as error:
            self._log_delay("transaction.abort_delayed", error.code, error=error.code.name)

    async def _run_expiry(self) -> None:
        config = self._services.config
        while True:
            await asyncio.sleep(config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Forget transactional ids that nobody has used for `transactional.id.expiration.ms`."""
        limit = self._services.clock.wall_ms() - self._services.config.transactional_id_expiration_ms
        idle = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        for partition in list(self.log.states()):
            for transactional_id, entry in list(partition.slots.items()):
                known = entry.transaction
                if known is None and not entry.is_busy:
                    del partition.slots[transactional_id]  # its first record could not be written
                if known is None or entry.is_busy or known.state not in idle or known.updated_ms > limit:
                    continue
                entry.is_busy = True
                try:
                    await self._write(partition, transactional_id, None)
                except ApiError as error:
                    self._log_delay("transaction.expiry_delayed", error.code, error=error.code.name)
                else:
                    entry.transaction = None
                    partition.slots.pop(transactional_id, None)
                finally:
                    entry.is_busy = False
            for decision in decisions.expired(partition.decisions.values(), limit):
                if decision.group not in partition.deciding and partition.decisions.get(decision.group) is decision:
                    await self._forget(partition, decision)

    async def _forget(self, partition: TransactionPartition, decision: Decision) -> None:
        partition.deciding.add(decision.group)
        try:
            await self.write(partition, [(decisions.key_of(decision.group), None)])
        except ApiError as error:
            self._log_delay("transaction.expiry_delayed", error.code, error=error.code.name)
        else:
            partition.decisions.pop(decision.group, None)
        finally:
            partition.deciding.discard(decision.group)

    # --- loading ---

    def _replay(
        self,
        partition: TransactionPartition,
        header: BatchHeader,
        data: list[Record],
        marker: EndTransactionMarker | None,
    ) -> None:
        """Each record has all that there is about its key: only the last one of a piece is parsed."""
        for record in data:
            partition.unsettled[record.key] = (record.value, record.offset)

    def _settle(self, partition: TransactionPartition) -> Iterator[None]:
        """Take what `_replay` has put aside, in steps."""
        aside, partition.unsettled = partition.unsettled, {}
        for key, (value, record_offset) in aside.items():
            yield
            try:
                if key is not None and decisions.is_decision(key):
                    group, decision = decisions.parse(key, value)
                    if decision is None:
                        partition.decisions.pop(group, None)
                    else:
                        partition.decisions[group] = decision
                    continue
                transactional_id, transaction = rules.parse(key, value)
            except WireError as error:
                suppressed = self._repeats.admit(("transaction.record_skipped", partition.index))
                if suppressed is not None:
                    _log.error(
                        "transaction.record_skipped",
                        partition=partition.index,
                        offset=record_offset,
                        error=str(error),
                        suppressed=suppressed,
                    )
                continue
            if transaction is None:
                partition.slots.pop(transactional_id, None)
            else:
                partition.slots[transactional_id] = TransactionEntry(replace(transaction))

    def _loaded(self, partition: TransactionPartition) -> None:
        for _, entry in sorted(partition.slots.items()):
            if entry.transaction is not None and entry.transaction.state in rules.PREPARED:
                self.finish(partition, entry)
