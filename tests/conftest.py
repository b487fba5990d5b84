"""Fixtures and options of every suite."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.loop import ClosingLoops
from tests.zk import zookeeper

__all__ = ["zookeeper"]

pytest_plugins = ["tests.checklist"]

# Processes that tests start find the modules compiled: it saves each of them half a second of CPU.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell ignores it for what runs in its background, and so would every command that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of the tests, of the commands that they call, of threads.
asyncio.set_event_loop_policy(ClosingLoops())

# Machines differ in speed: an example that takes long is no failure. `thorough` is for a hunt by hand.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

#: Where CI wants a line for each test that fails. Only the process that hears of all tests writes.
_FAILED = "" if "PYTEST_XDIST_WORKER" in os.environ else os.environ.get("TESTS_FAILED", "")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and _FAILED:
        lines = [line for line in report.longreprtext.splitlines() if line.strip()]
        with open(_FAILED, "a") as file:
            file.write(f"{report.nodeid} ({report.when}, {report.duration:.0f} s)\n")
            file.writelines(f"    {line[:200]}\n" for line in lines[-4:])


_SPARK, _SIM = Path(__file__).parent / "spark", Path(__file__).parent / "sim"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests first: the first worker begins with all of them, and idle workers take tests from the ends of the others' queues
    (--dist worksteal). So one JVM is started and warmed up, not one for each worker. The second worker begins with the simulation's, whose
    longest take minutes of a core: at the end, the other cores would wait for them."""
    spark, sim = ([item for item in items if item.path.is_relative_to(room)] for room in (_SPARK, _SIM))
    others = [item for item in items if not item.path.is_relative_to(_SPARK) and not item.path.is_relative_to(_SIM)]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    before = max(len(items) // workers - len(spark), 0)
    items[:] = [*spark, *others[:before], *sim, *others[before:]]


def pytest_collection_finish() -> None:
    """What was collected stays until the end: thousands of items, the modules of all tests. Python's collector need not look at them each time,
    half a second of CPU, which every simulated world took at its start."""
    gc.collect()
    gc.freeze()
