"""Records of a coordinator that are appended, applied at once, and acknowledged when they are replicated.

What is in memory is what the log says. An answer without records of its own waits for those before it: nothing that could
still be lost is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Protocol

from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Offset


@dataclass(slots=True)
class WrittenPartition:
    """Of one partition: the end of the last record, and the appends that are not replicated yet, in their order."""

    end: Offset = Offset(0)
    appending: dict[asyncio.Future[ErrorCode], None] = field(default_factory=dict)


class CommittedState(Protocol):
    """What is loaded of a partition."""

    index: int
    written: WrittenPartition


class CommittedAppends:
    """See the module. All raise ApiError: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and what an append can fail with."""

    def __init__(self, log: InternalLog[Any]) -> None:
        self._log = log

    def append(
        self, partition: CommittedState, records: Sequence[KeyValue], apply: Callable[[Offset], object]
    ) -> asyncio.Future[ErrorCode]:
        """Append to a partition and `apply` with the first record's offset; the future has the outcome of replication.

        If it raises, nothing was appended and nothing has changed. If the future has an error, the records may be in the
        log: they stay applied.
        """
        written = partition.written
        base = self._log.bounds(partition.index)[0]
        outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def done(error: ErrorCode, _: Offset) -> None:
            written.appending.pop(outcome, None)
            if not outcome.done():
                outcome.set_result(error)

        self._log.append(partition.index, partition, records, done)
        if outcome.done() and outcome.result():
            raise self._log.refusal(outcome.result(), records)
        apply(base)
        written.end = Offset(base + len(records))
        if not outcome.done():
            written.appending[outcome] = None
        return outcome

    async def store(
        self, partition: CommittedState, records: Sequence[KeyValue], apply: Callable[[Offset], object]
    ) -> None:
        """As `append`, and return when it is replicated."""
        await _result(self.append(partition, records, apply))

    async def wait(self, partition: CommittedState, end: Offset | None = None) -> None:
        """Return when all up to `end` (None: all) is replicated. Raises ApiError: that is not expected soon."""
        end = partition.written.end if end is None else end
        if self._log.bounds(partition.index)[1] >= end:
            return
        waiting = next(reversed(partition.written.appending), None)
        if waiting is not None:
            await _result(waiting)
        if self._log.bounds(partition.index)[1] < end:
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def _result(outcome: asyncio.Future[ErrorCode]) -> None:
    """Wait without cancelling it: others may wait, too. Raises ApiError."""
    error = await asyncio.shield(outcome)
    if error:
        raise api_error(error)
