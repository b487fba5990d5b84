"""How groups of the newer protocols are written: append, apply, answer when it is replicated.

What is in memory is what the log says. An answer without records waits for those of before: nothing that could still be lost
is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.coordinators.groups.partition import AssignedRuntime, GroupPartition
from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import Offset


class GroupLog:
    """See the module."""

    def __init__(self, log: InternalLog[GroupPartition]) -> None:
        self._log = log

    def write(
        self,
        partition: GroupPartition,
        written: AssignedRuntime[Any, Any],
        pairs: Sequence[KeyValue],
        apply: Callable[[], None],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append `pairs`, call `apply`, and call `done` when they are replicated.

        Raises ApiError: nothing was appended, and nothing has changed.
        """
        outcome: list[ErrorCode] = []
        is_appended = False

        def finished(error: ErrorCode, base_offset: Offset) -> None:
            if not is_appended:
                outcome.append(error)
                return
            written.appending -= 1
            self._finish(partition, written, done, error)

        self._log.append(partition.index, partition, pairs, finished)
        if outcome and outcome[0]:
            raise self._log.refusal(outcome[0], pairs)
        is_appended = True
        apply()
        written.written_to = self._log.bounds(partition.index)[0]
        if outcome:
            self._finish(partition, written, done, outcome[0])
        else:
            written.appending += 1

    def _finish(
        self,
        partition: GroupPartition,
        written: AssignedRuntime[Any, Any],
        done: Callable[[ErrorCode], None],
        error: ErrorCode,
    ) -> None:
        done(error)
        if not written.uncommitted:
            return
        committed = Offset(0)
        try:
            committed = self._log.bounds(partition.index)[1]
        except ApiError as failure:
            error = failure.code
        ready = [finish for offset, finish in written.uncommitted if error or offset <= committed]
        written.uncommitted = [] if error else [each for each in written.uncommitted if each[0] > committed]
        for finish in ready:
            finish(error)

    def when_committed(
        self, partition: GroupPartition, written: AssignedRuntime[Any, Any], done: Callable[[ErrorCode], None]
    ) -> None:
        """Call `done` when all that the group has written is replicated. Raises ApiError: that is not expected soon."""
        _, committed = self._log.bounds(partition.index)
        if committed >= written.written_to:
            done(ErrorCode.NONE)
        elif written.appending:
            written.uncommitted.append((written.written_to, done))
        else:
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
