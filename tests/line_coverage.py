"""`pytest -p tests.line_coverage`: the share of the lines that the tests run, and its floor (docs/adr/0009).

slipcover measures. Its own plugin for pytest does not load a conftest that lies in a package, so its parts are put together here. Each worker measures
what it runs; the process that hears of all of them adds it up. What is measured, and the floor, stand in pyproject.toml.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import slipcover

_SETTINGS = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["slipcover"]
_WHAT = {"source": _SETTINGS["source"], "omit": _SETTINGS["omit"]}


class LineCoverage:
    """Measures from now on: modules that are loaded already are not seen."""

    def __init__(self) -> None:
        self._measured = slipcover.Slipcover(**_WHAT, exclude_also=_SETTINGS["exclude-also"])
        slipcover.ImportManager(self._measured, slipcover.FileMatcher(_WHAT["source"], _WHAT["omit"])).__enter__()
        #: What the workers ran, each file of the sources.
        self._lines: dict[str, Any] | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if hasattr(node, "workeroutput"):  # one that crashed has none
            self._add(json.loads(node.workeroutput["lines"]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        own = self._measured.get_coverage()
        if "PYTEST_XDIST_WORKER" in os.environ:
            session.config.workeroutput["lines"] = json.dumps(own)  # type: ignore[attr-defined]
            return
        self._add(own)
        if self._share() < _SETTINGS["fail-under"] and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        assert self._lines is not None
        terminalreporter.section("lines that were run")
        for name, file in sorted(self._lines["files"].items()):
            if file["missing_lines"]:
                of = len(file["executed_lines"]) + len(file["missing_lines"])
                terminalreporter.write_line(
                    f"{name:80} {of:6} {len(file['missing_lines']):6} {file['summary']['percent_covered']:4.0f}%"
                )
        floor = _SETTINGS["fail-under"]
        terminalreporter.write_line(
            f"of all: {self._share():.1f} %; the floor is {floor} %{'' if self._share() >= floor else ': FAILED'}"
        )

    def _add(self, lines: dict[str, Any]) -> None:
        if self._lines is None:
            self._lines = lines
        else:
            slipcover.merge_coverage(self._lines, lines)

    def _share(self) -> float:
        assert self._lines is not None
        return float(self._lines["summary"]["percent_covered"])


#: Before any conftest is loaded.
_coverage = LineCoverage()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_coverage, "lines")
