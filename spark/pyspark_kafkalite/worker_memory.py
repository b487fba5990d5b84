"""What Spark's Python workers do between two tasks: a full garbage collection, over every object of every module."""

from __future__ import annotations

import gc
import os
import sys

#: Of a process: the first one to read and the first one to write import our modules; a third is for what the user's code imports.
_TASKS = 3

_kept: dict[int, int] = {}


def keep_modules() -> None:
    """Call at the end of a task: later collections leave out what is in memory now.

    Spark calls `gc.collect()` after each task of a worker that it reuses. With PySpark, Arrow and our modules that visits 88,000
    objects, 45 ms of processor after a task that takes 5 ms. They live as long as the process. So the first tasks of a process
    take them out of the collector's sight (`gc.freeze`). Only in Spark's own workers: elsewhere the process is not ours to tune.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name != "pyspark.daemon":
        return
    pid = os.getpid()  # a worker is a fork of its daemon
    if (done := _kept.get(pid, 0)) < _TASKS:
        _kept[pid] = done + 1
        gc.freeze()
