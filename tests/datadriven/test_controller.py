"""Every scenario file of the controller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.datadriven.controller_runner import run_scenario

SCENARIOS = sorted((Path(__file__).parent / "controller").glob("*.txt"))


@pytest.mark.checklist(1)
@pytest.mark.checklist(16)
@pytest.mark.checklist(18)
@pytest.mark.checklist(19)
@pytest.mark.checklist(21)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    expected, actual = run_scenario(path, rewrite=bool(os.environ.get("KAFKALITE_REWRITE")))
    assert actual == expected
