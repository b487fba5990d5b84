"""Spark's workers collect garbage after each task: what is in memory after the first ones is left out of that."""

from __future__ import annotations

import gc
import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest

from pyspark_kafkalite import worker_memory


@pytest.fixture(autouse=True)
def _thawed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_memory, "_kept", {})
    yield
    gc.unfreeze()


def _main(monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))


def test_a_worker_keeps_what_it_has_loaded_after_its_first_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    _main(monkeypatch, ModuleSpec("pyspark.daemon", None))
    before = gc.get_freeze_count()
    worker_memory.keep_modules()
    assert gc.get_freeze_count() > before + 1_000
    for _ in range(2):
        worker_memory.keep_modules()
    kept, of_a_task = gc.get_freeze_count(), [[number] for number in range(5_000)]
    worker_memory.keep_modules()
    assert len(of_a_task) == 5_000 and gc.get_freeze_count() <= kept, "what later tasks leave is collected"


@pytest.mark.parametrize("name", [None, "pyspark.sql.streaming.python_streaming_source_runner", "pytest"])
def test_another_process_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    _main(monkeypatch, None if name is None else ModuleSpec(name, None))
    before = gc.get_freeze_count()
    worker_memory.keep_modules()
    assert gc.get_freeze_count() == before
