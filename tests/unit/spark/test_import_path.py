"""What is taken off the import path of Spark's Python processes."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from pyspark_kafkalite.import_path import without_spark_core


def test_only_sparks_own_jar_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["spark-core_2.13-4.0.5.jar", "graphframes-0.8.4-spark3.5-s_2.13.jar", "my-spark-core_2.13-1.jar"]
    entries = [str(tmp_path / name) for name in names]
    for entry in entries:
        with zipfile.ZipFile(entry, "w") as jar:
            jar.writestr("of_a_jar.py", f"where = {entry!r}")
    monkeypatch.setattr(sys, "path", [entries[0], *sys.path, *entries])
    monkeypatch.delitem(sys.modules, "of_a_jar", raising=False)
    without_spark_core()
    import of_a_jar

    assert of_a_jar.where == entries[1]
    assert [entry for entry in sys.path if entry.endswith(".jar")] == entries[1:]
    assert entries[0] not in sys.path_importer_cache
    del sys.modules["of_a_jar"]
