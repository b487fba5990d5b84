"""Writes ISR changes to the state znodes: conditional, many in one go, and never in doubt about the outcome.

A proposal handed in is settled by exactly one call of `on_settled`, unless its leadership ends first. Between,
the leader counts the proposed members too (invariant F8). What an error means (invariant F6) is decided in `isr.outcome_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import (
    Coordinator,
    CoordinatorError,
    NotSentError,
    SetData,
)
from kafkalite.coordination.session import SessionKeeper
from kafkalite.coordination.topic_znodes import decode_partition_state, encode_partition_state
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.env.turns import with_pauses
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ControllerEpoch, LeaderAndIsr, PartitionEpoch, TopicPartition
from kafkalite.replica.decisions.isr import Proposal, ProposalOutcome, outcome_of, still_joining
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: Proposals in one transaction: one failure makes each of them go again alone, so not too many.
CHUNK = 50
#: Proposals taken up in one round.
ROUND = 5_000
BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 2.0


@dataclass(frozen=True, slots=True)
class Task:
    """A proposal for a partition, with the controller epoch that the znode carries (kept as stored)."""

    topic_partition: TopicPartition
    proposal: Proposal
    controller_epoch: ControllerEpoch


@dataclass(frozen=True, slots=True)
class Settled:
    """ADOPT: `isr` is in the znode with `partition_epoch`. RESIGN: the leadership is over. RETRY: surely not written."""

    task: Task
    outcome: ProposalOutcome
    isr: tuple[int, ...] = ()
    partition_epoch: PartitionEpoch = PartitionEpoch(-1)
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()


class Proposer(Protocol):
    """Proposes changes (`IsrKeeper`)."""

    def is_current(self, task: Task) -> bool:
        """Whether the leadership that a task was proposed under still stands."""

    def on_settled(self, settled: Sequence[Settled]) -> None:
        """All that one round settled."""


class IsrWriter:
    """One task (`run`); bounded by the number of led partitions, as each has at most one proposal."""

    def __init__(self, session: SessionKeeper, random: Random, metadata: MetadataCache, proposer: Proposer) -> None:
        self._session = session
        self._random = random
        self._metadata = metadata
        self._proposer = proposer
        self._pending: dict[TopicPartition, Task] = {}
        #: Tasks that may have been applied: not to be withdrawn, only settled by what the znode says.
        self._in_doubt: dict[TopicPartition, Task] = {}
        self._arrived = asyncio.Event()
        self._backoff_s = BACKOFF_MIN_S

    def submit(self, task: Task) -> None:
        """Write this. A task of a leadership that is over is replaced."""
        self._pending[task.topic_partition] = task
        self._in_doubt.pop(task.topic_partition, None)
        self._arrived.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending:
                coordinator = await self._session.wait()
                batch = [task for task in list(self._pending.values())[:ROUND] if self._keep(task)]
                try:
                    unsettled = await self._round(coordinator, batch)
                except CoordinatorError as error:  # while reading
                    _log.info("isr.write_postponed", partitions=len(batch), error=repr(error))
                    unsettled = len(batch)
                if unsettled:
                    await asyncio.sleep(self._backoff_s * self._random.uniform(0.5, 1.5))
                    self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)
                else:
                    self._backoff_s = BACKOFF_MIN_S

    def _keep(self, task: Task) -> bool:
        if self._proposer.is_current(task):
            return True
        self._forget(task)
        return False

    def _forget(self, task: Task) -> None:
        if self._pending.get(task.topic_partition) is task:
            del self._pending[task.topic_partition]
            self._in_doubt.pop(task.topic_partition, None)

    def _settle(self, settled: Sequence[Settled]) -> None:
        for one in settled:
            self._forget(one.task)
        if settled:
            self._proposer.on_settled([one for one in settled if self._proposer.is_current(one.task)])

    async def _round(self, coordinator: Coordinator, batch: list[Task]) -> int:
        """Write all of them, pipelined; returns how many are still not settled.

        The versions of a znode begin again when its topic is deleted and created again (invariant F18), or when the znode is removed and put back. So
        each one is read again first: a leader that has not heard of that would meet the version that it knows in a later leader epoch.
        """
        await self._read_again(coordinator, batch)
        batch = [task for task in batch if self._keep(task)]
        chunks = [batch[start : start + CHUNK] for start in range(0, len(batch), CHUNK)]
        in_doubt = await self._write(coordinator, chunks)
        if not in_doubt:
            return 0
        # Each one alone, so that one that is behind does not stand in the way of the others.
        alone = [[task] for task in in_doubt if self._keep(task)]
        in_doubt = await self._write(coordinator, alone)
        if not in_doubt:
            return 0
        return await self._read_again(coordinator, [task for task in in_doubt if self._keep(task)])

    async def _write(self, coordinator: Coordinator, chunks: list[list[Task]]) -> list[Task]:
        """One transaction per chunk; returns the tasks of those that failed, or may have.

        Also a repetition must write something on top of the version: it settles whether an earlier try was applied.
        """
        due: list[list[Proposal]] = []
        transactions: list[list[SetData]] = []
        for chunk in chunks:
            proposals = [still_joining(task.proposal, self._metadata.broker_epochs) for task in chunk]
            due.append(proposals)
            transactions.append([_operation(task, proposal) for task, proposal in zip(chunk, proposals, strict=True)])
            await asyncio.sleep(0)
        results = await coordinator.multi_many(transactions)
        settled: list[Settled] = []
        in_doubt: list[Task] = []
        for chunk, written, result in zip(chunks, due, results, strict=True):
            if isinstance(result, NotSentError):
                for task in chunk:
                    if self._in_doubt.get(task.topic_partition) is task:  # an earlier try of it may have been applied
                        in_doubt.append(task)
                    else:
                        settled.append(Settled(task, ProposalOutcome.RETRY))
            elif isinstance(result, CoordinatorError):
                in_doubt += chunk
            else:
                for task, proposal, version in zip(chunk, written, result, strict=True):
                    assert isinstance(version, int)
                    settled.append(
                        Settled(
                            task,
                            ProposalOutcome.ADOPT,
                            proposal.isr,
                            PartitionEpoch(version),
                            proposal.elr,
                            proposal.last_known_elr,
                        )
                    )
        self._settle(settled)
        for task in in_doubt:
            self._in_doubt[task.topic_partition] = task
        return in_doubt

    async def _read_again(self, coordinator: Coordinator, tasks: list[Task]) -> int:
        """Look what the znodes say; returns how many writes must be repeated."""
        await coordinator.sync(paths.TOPICS)
        found = await coordinator.get_many([paths.partition_state(task.topic_partition) for task in tasks])
        settled: list[Settled] = []
        again = 0
        async for task, node in with_pauses(zip(tasks, found, strict=True)):
            current = None
            if node is not None:
                path = paths.partition_state(task.topic_partition)
                try:
                    current = decode_partition_state(node[0], node[1].version, path)
                except ZnodeError as error:
                    _log.error("isr.malformed_state", path=path, error=str(error))
                    again += 1
                    continue
            outcome = outcome_of(task.proposal, current)
            if outcome is ProposalOutcome.RETRY:
                again += 1
            elif outcome is ProposalOutcome.ADOPT:
                assert current is not None
                settled.append(
                    Settled(task, outcome, current.isr, current.partition_epoch, current.elr, current.last_known_elr)
                )
            else:
                _log.warning("isr.superseded", partition=str(task.topic_partition), current=repr(current))
                settled.append(Settled(task, outcome))
        self._settle(settled)
        return again


def _operation(task: Task, proposal: Proposal) -> SetData:
    state = LeaderAndIsr(
        leader=proposal.leader,
        leader_epoch=proposal.leader_epoch,
        isr=proposal.isr,
        controller_epoch=task.controller_epoch,
        partition_epoch=proposal.partition_epoch,
        elr=proposal.elr,
        last_known_elr=proposal.last_known_elr,
    )
    return SetData(paths.partition_state(task.topic_partition), encode_partition_state(state), proposal.partition_epoch)
