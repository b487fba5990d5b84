"""Which lines of the product the tests within one process run: `make coverage` loads this plugin (`-p tests.line_coverage`).

SlipCover takes its probes out of code that has run. coverage.py is called for each line on Python 3.11, and took as much CPU as the tests
themselves. SlipCover's own way of starting pytest does not find the packages of tests that are imported by path (`--import-mode=importlib`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from slipcover import FileMatcher, ImportManager, Slipcover, merge_coverage

#: Percent of the lines. Most of the command line runs in processes that are not measured. Raise it when the figure has risen by two points.
FLOOR = 88
#: kafkalite_pipelines runs in Spark, which the measured tests do not start.
_SOURCES = ["kafkalite", "cli/kafkalite_cli", "spark/pyspark_kafkalite"]
#: What tests with: run by the other tests.
_OMITTED = ["kafkalite/testing/*", "cli/kafkalite_cli/demo.py", "cli/kafkalite_cli/demo_table.py"]
_EXCLUDED = ["if TYPE_CHECKING:", "assert_never\\("]

_ROOT = Path(__file__).resolve().parents[1]
_measured = Slipcover(source=_SOURCES, omit=[str(_ROOT / each) for each in _OMITTED], exclude_also=_EXCLUDED)
# From here on, before pytest loads a conftest.py: what is imported earlier has no probes.
ImportManager(_measured, FileMatcher(sources=_SOURCES, omit=_OMITTED)).__enter__()

#: Of all workers, in the process that has started them.
_merged: dict[str, Any] = {}


def pytest_testnodedown(node: Any) -> None:
    if not hasattr(node, "workeroutput"):  # it has crashed
        return
    found = json.loads(node.workeroutput["lines"])
    if _merged:
        merge_coverage(_merged, found)
    else:
        _merged.update(found)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["lines"] = json.dumps(_measured.get_coverage())
        return
    _merged.update(_merged or _measured.get_coverage())
    if _percent() < FLOOR and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _merged:
        return
    terminalreporter.section("lines that no test within one process runs")
    for name, file in sorted(_merged["files"].items()):
        if missed := len(file["missing_lines"]):
            terminalreporter.write_line(f"{name:<70}{missed:>6} of {missed + len(file['executed_lines']):>5}")
    terminalreporter.write_line(f"{_percent():.1f} % of the lines are run, and at least {FLOOR} % must be")


def _percent() -> float:
    percent: float = _merged["summary"]["percent_covered"]
    return percent
