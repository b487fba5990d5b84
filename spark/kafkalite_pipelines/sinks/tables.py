"""What sinks into tables share, whatever the format: commits that are repeated after a conflict, and when maintenance is due."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kafkalite_pipelines.definition import PipelineError

log = logging.getLogger("kafkalite_pipelines")

#: A commit that met another one is repeated this number of times.
_ATTEMPTS = 10


def commit_batch(name: str, number: int, attempt: Callable[[], int], conflict: type[Exception]) -> int:
    """`attempt` reads the table as it is now and commits the batch; again if somebody else has committed meanwhile.

    Returns the number of rows. Raises PipelineError.
    """
    for attempts in range(_ATTEMPTS):
        try:
            return attempt()
        except conflict as error:
            log.warning("%s: batch %d is committed again: %s", name, number, error)
            time.sleep(min(0.05 * 2**attempts, 2.0))
    raise PipelineError(f"{name} was changed by others {_ATTEMPTS} times while batch {number} was committed")


class Interval:
    """Says when the time for maintenance has come: first `every_s` seconds after the first question."""

    def __init__(self) -> None:
        self._last: float | None = None

    def is_over(self, every_s: float) -> bool:
        """If so, the next interval begins."""
        now = time.monotonic()
        if self._last is not None and now - self._last < every_s:
            return False
        is_first, self._last = self._last is None, now
        return not is_first
