"""Every scenario file of the replica rules, replayed."""

import importlib.util
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "datadriven"


def _load(name: str):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, DATA / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


runner = _load("runner")
scripts = _load("replica_scripts")
FILES = sorted((DATA / "replica").glob("*.txt"))


@pytest.mark.checklist("F1")
@pytest.mark.checklist("F2")
@pytest.mark.checklist("F6")
@pytest.mark.checklist("F8")
@pytest.mark.checklist("F9")
@pytest.mark.checklist("F11")
@pytest.mark.checklist("F14")
@pytest.mark.checklist("F15")
@pytest.mark.checklist("F19")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    kinds = {"logs": scripts.LogsScript, "strays": scripts.StraysScript}
    runner.run(path, kinds.get(path.stem.partition("_")[0], scripts.LeaderScript)().handle)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 12
