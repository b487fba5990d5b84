"""Lag by default: what a stream's tasks have read is committed to a consumer group that is named after the query.

Mostly only tasks know the query: Spark plans a Python source in a process that has the source's options and nothing else. The
checkpoint decides where a query continues; the group is for tools that show lag. So nothing here fails a task.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any

from kafkalite.errors import KafkaliteError
from pyspark_kafkalite import clients
from pyspark_kafkalite.offsets import OffsetRange

log = logging.getLogger("pyspark_kafkalite")

#: In front of the query's name, so that no group of consumers is touched that has the same name.
PREFIX = "spark"
#: A task is not held up for longer by a coordinator that is away, ...
_TIMEOUT_MS = 2_000
#: ... and the next tasks of this process not at all for this time (seconds).
_PAUSE_S = 60.0
#: What Spark calls the jobs of a batch: NAME, id = …, runId = …, batch = …, a line each; without NAME if there is none.
_DESCRIPTION = re.compile(r"(?:(?P<name>.+)\n)?id = [0-9a-f-]{36}\nrunId = ", re.DOTALL)

#: Of this process: group -> when it is tried again, and the groups of which a warning was logged.
_paused: dict[tuple[int, str], float] = {}
_warned: set[str] = set()


def group_of(context: Any, prefix: str | None, kept: str) -> str | None:
    """PREFIX-NAME, or PREFIX-ID of a query without a name.

    `kept` is the name that the query's position keeps. It counts in tasks that do not know their query: with Spark Connect and
    foreachBatch Spark runs them without the query's properties, as it does in threads that foreachBatch starts. None: there is
    no such name either.
    """
    query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if not query:
        return f"{prefix or PREFIX}-{kept}" if kept else None
    found = _DESCRIPTION.match(context.getLocalProperty("spark.job.description") or "")
    name = found["name"] if found is not None else None
    return f"{prefix or PREFIX}-{name or query}"


def commit(client: clients.LogClient, group: str, read: OffsetRange) -> None:
    """What a task has read to its end. A failure is one warning of this process."""
    key = (os.getpid(), group)
    if time.monotonic() < _paused.get(key, 0.0):
        return
    try:
        client.commit_offsets(group, {read.topic_partition: read.end}, timeout_ms=_TIMEOUT_MS)
    except (KafkaliteError, OSError) as error:
        _paused[key] = time.monotonic() + _PAUSE_S
        if group not in _warned:
            _warned.add(group)
            log.warning(
                "progress could not be committed to group %s (commitProgress=false switches that off): %s",
                group,
                error,
            )
