"""Leaders' notices of changed ISRs: which partitions to read again, and the leaders that wait for a response.

A notice is acknowledged only if its controller was certainly active after it arrived. A later controller then reads the
state later, with the change in it. Otherwise the next controller may have read the state before the change, and without a
second notice it would not learn of it.
"""

from __future__ import annotations

import asyncio

from kafkalite.controller.decisions.events import Claim
from kafkalite.controller.decisions.state import ControllerState
from kafkalite.controller.storage import Storage
from kafkalite.errors import ErrorCode
from kafkalite.model import NO_TOPIC_ID, BrokerId, LeaderAndIsr, LeaderEpoch, PartitionEpoch, TopicPartition
from kafkalite.rpc.messages.control import IsrChange, IsrChangedRequest, IsrChangedResponse

#: State znodes that are compared in one go, so that a change whose notice was lost is found.
STATES_PER_CHECK = 1_000


class IsrNotices:
    """Bounded by the number of partitions, and by the requests under way."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changed: dict[TopicPartition, None] = {}
        self._drained: dict[TopicPartition, None] = {}
        self._claims: dict[TopicPartition, Claim] = {}
        self._answers: list[asyncio.Future[IsrChangedResponse]] = []
        #: How many partitions were checked in this round over all of them.
        self._checked = 0

    @property
    def is_due(self) -> bool:
        return bool(self._changed or self._drained or self._answers)

    def take(
        self, state: ControllerState, request: IsrChangedRequest, answer: asyncio.Future[IsrChangedResponse]
    ) -> None:
        """Remember what to read. All notices together cause one reading, and one check that this controller is still active."""
        for change in request.partitions:
            partition = TopicPartition(change.topic, change.partition)
            if state.replicas(partition) is not None:  # bounds the inbox: unknown partitions are ignored
                self._changed[partition] = None
                known = state.partitions.get(partition)
                # In an earlier leader epoch it may have been empty, and have taken records since then.
                if change.is_drained and known is not None and known.leader_epoch == change.leader_epoch:
                    self._drained[partition] = None
                if change.is_ahead and change.topic_id == state.topics[partition.topic].topic_id != NO_TOPIC_ID:
                    claim = _claim(state, request.broker_id, change)
                    self._claims[partition] = max(claim, self._claims.get(partition, claim), key=_how_late)
        self._answers.append(answer)

    async def confirm(self) -> None:
        """Answer the waiting leaders. Raises ControllerMovedError, SessionExpiredError."""
        if not self._answers:
            return
        waiting, self._answers = self._answers, []
        error = ErrorCode.NOT_CONTROLLER
        try:
            if await self._storage.verify():
                error = ErrorCode.NONE
        finally:
            _answer(waiting, error)

    def close(self) -> None:
        """The elected epoch is over: the notices are for the next controller."""
        waiting, self._answers = self._answers, []
        _answer(waiting, ErrorCode.NOT_CONTROLLER)

    def changed(self) -> tuple[TopicPartition, ...]:
        """What is to be read, once."""
        changed, self._changed = tuple(self._changed), {}
        return changed

    def claims(self) -> dict[TopicPartition, Claim]:
        """What leaders know, once."""
        claims, self._claims = self._claims, {}
        return claims

    def drained(self) -> tuple[TopicPartition, ...]:
        """Read-only partitions in which nothing is left, once."""
        drained, self._drained = tuple(sorted(self._drained)), {}
        return drained

    def next_to_check(self, state: ControllerState) -> tuple[TopicPartition, ...]:
        """The partitions whose turn it is to be compared with their znodes."""
        known = sorted(state.partitions)
        if self._checked >= len(known):
            self._checked = 0
        chosen = tuple(known[self._checked : self._checked + STATES_PER_CHECK])
        self._checked += len(chosen)
        return chosen


def _claim(state: ControllerState, leader: BrokerId, change: IsrChange) -> Claim:
    known = LeaderAndIsr(leader, change.leader_epoch, change.isr, state.epoch, change.partition_epoch)
    return Claim(known, change.has_resigned, change.is_epoch_only)


def _how_late(claim: Claim) -> tuple[LeaderEpoch, bool, PartitionEpoch]:
    """Replicas know different epochs: the latest counts, not the one that is reported last."""
    return claim.state.leader_epoch, not claim.is_epoch_only, claim.state.partition_epoch


def _answer(waiting: list[asyncio.Future[IsrChangedResponse]], error: ErrorCode) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(IsrChangedResponse(error))
