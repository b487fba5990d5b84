"""What sinks into tables share, whatever the format: commits that are repeated after a conflict, and when maintenance is due."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.places import OWN, Place

log = logging.getLogger("kafkalite_pipelines")

#: A commit that met another one is repeated this number of times.
_ATTEMPTS = 10

T = TypeVar("T")


def repeated(name: str, what: str, attempt: Callable[[], T], conflict: type[Exception]) -> T:
    """`attempt` reads the table as it is now and commits to it; again if somebody else has committed meanwhile.

    Args:
        what: of the attempts, for the log: "batch 7 is committed".

    Raises:
        PipelineError: others were faster each time.
    """
    for attempts in range(_ATTEMPTS):
        try:
            return attempt()
        except conflict as error:
            log.warning("%s: %s again: %s", name, what, error)
            time.sleep(min(0.05 * 2**attempts, 2.0))
    raise PipelineError(f"{name} was changed by others {_ATTEMPTS} times while {what}")


class Interval:
    """Says when the time for maintenance of a sink has come: first `every_s` seconds after the first question. Kept beside the
    checkpoint, for pipelines that are started for what is there and end."""

    def __init__(self, pipeline: Pipeline, sink: str, clock: Callable[[], float] = time.time) -> None:
        self._place = Place(f"{pipeline.place(pipeline.checkpoint)}/{OWN}")
        self._file = f"maintained-{quote(sink, safe='')[:200]}.json"
        self._clock = clock
        self._last: float | None = None

    def is_over(self, every_s: float) -> bool:
        """If so, the next interval begins."""
        now = self._clock()
        if self._last is None:
            self._last = self._place.read_json(self._file)
        if self._last is not None and 0 <= now - self._last < every_s:  # a clock may be set back
            return False
        is_first, self._last = self._last is None, now
        self._place.write(self._file, json.dumps(now))
        return not is_first
