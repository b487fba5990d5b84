"""Ends groups of transactions: the shell around `decisions`, beside the coordinator whose transactions they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions import decisions
from kafkalite.coordinators.transactions import state as rules
from kafkalite.coordinators.transactions.coordinator import (
    TransactionCoordinator,
    TransactionEntry,
    TransactionPartition,
)
from kafkalite.coordinators.transactions.decisions import Decision
from kafkalite.coordinators.transactions.state import Transaction, TransactionState
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.transactions import EndTxnGroupRequest, EndTxnGroupResponse
from kafkalite.extension.transaction_groups import group_of
from kafkalite.model import TRANSACTION_TOPIC, ProducerId
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

_RETRY_S = 0.1
#: The longest that an answer waits for markers.
_MAX_WAIT_S = 20.0
#: Characters of a writer's name.
_MAX_WRITER = 64
#: The batch was refused before the append: nothing of it is in the log.
_NOT_WRITTEN = frozenset({ErrorCode.INVALID_COMMIT_OFFSET_SIZE})


class TransactionGroups:
    """See the module. All methods raise ApiError."""

    def __init__(self, services: Services, transactions: TransactionCoordinator) -> None:
        self._services = services
        self._transactions = transactions
        self._repeats = Repeats(services.clock.monotonic)

    async def begin(
        self, transactional_id: str, timeout_ms: int, owner: str, version: int, writer: str = ""
    ) -> tuple[ProducerId, int] | Decision:
        """Producer id and epoch for a transaction of a group; or the decision that covers this version: there is nothing to do.

        `writer`: see BeginTxnGroupRequest.
        """
        group = group_of(transactional_id)
        if group is None or not owner or version < 0:
            raise api_error(
                ErrorCode.INVALID_REQUEST, "a transaction of a group needs the group, an owner and a version"
            )
        if len(writer) > _MAX_WRITER:
            raise api_error(ErrorCode.INVALID_REQUEST, f"the writer's name is longer than {_MAX_WRITER} characters")
        if decision := self._decision(transactional_id, group, owner, version):
            return decision
        self._check_twin(transactional_id, writer)
        granted = await self._transactions.init_producer(transactional_id, timeout_ms, (-1, -1))
        entry = self._transactions.partition_of(transactional_id).slots.get(transactional_id)
        if entry is not None:
            entry.writer = writer
        # It may have been decided meanwhile, and the decision did not know of this transaction.
        return self._decision(transactional_id, group, owner, version) or granted

    def _decision(self, transactional_id: str, group: str, owner: str, version: int) -> Decision | None:
        """What covers this version."""
        partition = self._transactions.partition_of(transactional_id)
        self._check_free(partition, group)
        known = partition.decisions.get(group)
        return known if decisions.covers(known, owner, version) else None

    def _check_twin(self, transactional_id: str, writer: str) -> None:
        """Two attempts of one writer: fencing the first would fail the whole write, if the first is the one that counts."""
        entry = self._transactions.partition_of(transactional_id).slots.get(transactional_id)
        if entry is None or entry.transaction is None or entry.transaction.state is not TransactionState.ONGOING:
            return
        if writer and entry.writer == writer:
            raise api_error(
                ErrorCode.INVALID_TXN_STATE, f"{transactional_id} is open for another attempt of this writer"
            )

    async def end(self, request: EndTxnGroupRequest) -> EndTxnGroupResponse:
        """See EndTxnGroupRequest."""
        group, now = request.group, self._services.clock.wall_ms()
        if not group or not request.owner or request.version < 0:
            raise api_error(ErrorCode.INVALID_REQUEST)
        if any(group_of(member.transactional_id) != group for member in request.members):
            raise api_error(ErrorCode.INVALID_REQUEST, f"a member of another group than {group}")
        partition = self._transactions.log.state_for(group)
        self._check_free(partition, group)
        slots = {key: entry for key, entry in sorted(partition.slots.items()) if group_of(key) == group}
        known = {key: entry.transaction for key, entry in slots.items() if entry.transaction is not None}
        was_decided = decisions.covers(partition.decisions.get(group), request.owner, request.version)
        decision: Decision | None = None
        if request.is_commit and not was_decided:
            # A busy slot may be about to become what the rules would refuse: look again when it is quiet.
            self._check_quiet(slots, (member.transactional_id for member in request.members))
            targets = decisions.commit_group(known, request.members, now)
            decision = Decision(group, request.owner, request.version, now)
        else:
            targets = decisions.abort_members(known, request.members, now)
        self._check_quiet(slots, (target.transactional_id for target in targets))
        if targets or decision is not None:
            await self._write(partition, group, decision, targets)
            _log.info(
                "transaction_group.ended",
                group=group,
                version=request.version,
                is_commit=decision is not None,
                committed=sum(target.state is TransactionState.PREPARE_COMMIT for target in targets),
                aborted=sum(target.state is TransactionState.PREPARE_ABORT for target in targets),
            )
        ids = [member.transactional_id for member in request.members]
        done = await self._transactions.wait_complete(partition, ids, min(request.wait_ms / 1000, _MAX_WAIT_S))
        return EndTxnGroupResponse(ErrorCode.NONE, was_decided, done)

    def _check_free(self, partition: TransactionPartition, group: str) -> None:
        if group in partition.deciding:
            raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _check_quiet(self, slots: dict[str, TransactionEntry], transactional_ids: Iterable[str]) -> None:
        for transactional_id in transactional_ids:
            entry = slots.get(transactional_id)
            if entry is not None and entry.is_busy:
                raise api_error(ErrorCode.CONCURRENT_TRANSACTIONS)

    # --- writing -------------------------------------------------------------------------------

    async def _write(
        self, partition: TransactionPartition, group: str, decision: Decision | None, targets: list[Transaction]
    ) -> None:
        """Write the batch. Continues until it is known to be in the log, or another node coordinates, even if no caller waits.

        An append that failed may still be replicated later. If its transactions were released meanwhile, one could
        be aborted, and a coordinator that loads this log would find the decision as well.
        """
        slots = [partition.slots[target.transactional_id] for target in targets]
        for entry in slots:
            entry.is_busy = True
        partition.deciding.add(group)
        outcome: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self._services.supervisor.spawn(
            f"transaction_group.{group}",
            self._insist(partition, group, decision, list(zip(slots, targets)), outcome),
            Policy.ISOLATED,
        )
        error = await outcome
        if error is not None:
            raise error

    async def _insist(
        self,
        partition: TransactionPartition,
        group: str,
        decision: Decision | None,
        moves: list[tuple[TransactionEntry, Transaction]],
        outcome: asyncio.Future[ApiError | None],
    ) -> None:
        records: list[tuple[bytes, bytes | None]] = [
            (rules.key_of(target.transactional_id), rules.value_of(target)) for _, target in moves
        ]
        if decision is not None:
            records.append((decisions.key_of(group), decisions.value_of(decision)))
        failure: ApiError | None = None
        while True:
            try:
                await self._transactions.write(partition, records)
                break
            except ApiError as error:
                is_ours = self._transactions.log.ready_state(partition.index) is partition
                if error.code in _NOT_WRITTEN or not is_ours:
                    failure = _too_large(len(moves)) if is_ours else api_error(ErrorCode.NOT_COORDINATOR)
                    break
                suppressed = self._repeats.admit(error.code)
                if suppressed is not None:
                    _log.info(
                        "transaction_group.decision_delayed", group=group, error=error.code.name, suppressed=suppressed
                    )
                await asyncio.sleep(_RETRY_S)
        partition.deciding.discard(group)
        for entry, _ in moves:
            entry.is_busy = False
        if failure is None:
            if decision is not None:
                partition.decisions[group] = decision
            for entry, target in moves:
                entry.transaction = target
                self._transactions.finish(partition, entry)
        if not outcome.done():
            outcome.set_result(failure)


def _too_large(transactions: int) -> ApiError:
    return api_error(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{transactions} transactions do not fit into one batch of {TRANSACTION_TOPIC} (its max.message.bytes): "
        "let fewer tasks write",
    )
