"""What the wheel does at the start of each Python (docs/adr/0055)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import kafkalite_spark_start

START = "import os, sys; before = set(sys.modules); import kafkalite_spark_start; kafkalite_spark_start.start();"


def said(program: str, **environment: str) -> str:
    paths = ":".join(entry for entry in sys.path if entry)
    done = subprocess.run(  # -S: an editable installation has the line, too
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=100, check=True,
        env={"PYTHONPATH": paths, "PATH": "/usr/bin:/bin"} | environment,
    )  # fmt: skip
    return done.stdout.strip()


def test_a_python_without_spark_imports_nothing_more() -> None:
    assert said(START + "print(*set(sys.modules) - before)") == "kafkalite_spark_start"


def test_the_writer_is_changed_when_pyspark_is_imported_and_keeps_its_own_loader() -> None:
    program = """
import inspect, pyspark.sql.readwriter as module
save = module.DataFrameWriter.save
print(save.__wrapped__.__qualname__, type(module.__loader__).__name__, module.__spec__.loader is module.__loader__)
assert "class DataFrameWriter" in inspect.getsource(module)
"""
    wanted = "DataFrameWriter.save SourceFileLoader True"
    assert said(START + program) == wanted
    assert said(START + "kafkalite_spark_start.start();" + program) == wanted  # two directories with the line


def test_the_process_that_plans_a_stream_imports_arrow_when_it_is_needed() -> None:
    program = """
sys.orig_argv = [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
kafkalite_spark_start.start()
import pyspark.sql.streaming.python_streaming_source_runner as runner
assert {"pyarrow", "numpy"}.isdisjoint(sys.modules), "the import"
schema = runner.StructType().add("n", "integer")
[batch] = runner.records_to_arrow_batches(iter([(7,), (8,)]), 10, schema, object())
import pyspark.sql.worker.plan_data_source_read as module
print(batch.num_rows, module.__spec__.loader.__class__.__name__, module.__name__)
"""
    wanted = "2 SourceFileLoader pyspark.sql.worker.plan_data_source_read"
    assert said("import sys, kafkalite_spark_start;" + program) == wanted


def test_other_processes_import_arrow_as_ever() -> None:
    program = "import pyspark.sql.worker.plan_data_source_read; print('pyarrow' in sys.modules)"
    assert said(START + program) == "True"


def test_it_can_be_switched_off() -> None:
    program = (
        START + "import pyspark.sql.readwriter as module; print(hasattr(module.DataFrameWriter.save, '__wrapped__'))"
    )
    assert said(program, KAFKALITE_SPARK_START="off") == "False"


def test_the_line_of_the_wheel_is_the_call_that_is_tested() -> None:
    [line] = Path(kafkalite_spark_start.__file__).with_name("kafkalite-spark.pth").read_text().splitlines()
    assert line == "import kafkalite_spark_start; kafkalite_spark_start.start()"


def test_only_archives_of_installed_packages_leave_the_path(tmp_path: Path) -> None:
    lib = tmp_path / "pyspark" / "python" / "lib"
    (tmp_path / "py4j-0.10.9.9.dist-info").mkdir(parents=True)
    kept = [
        "",
        "/opt/spark/python/lib/pyspark.zip",
        f"{lib}/py4j-0.10.9.7-src.zip",
        f"{tmp_path}/mine.zip",
        str(tmp_path),
    ]
    path = [f"{lib}/pyspark.zip", *kept, f"{lib}/py4j-0.10.9.9-src.zip"]
    assert kafkalite_spark_start.without_copies(path, str(tmp_path)) == kept


class Writer:
    """As Spark Connect's."""

    def __init__(self, source: str | None, mode: str | None = None) -> None:
        self._write = SimpleNamespace(source=source, mode=mode)
        self.given: list[tuple[object, ...]] = []

    def save(self, path=None, format=None, mode=None, partitionBy=None, **options) -> None:
        self.given.append((path, format, mode, partitionBy, options))


def test_a_mode_is_added_for_our_format_alone() -> None:
    kafkalite_spark_start.like_kafka(Writer)
    kafkalite_spark_start.like_kafka(Writer)
    for writer, mode in (
        (Writer("kafkalite"), "append"),
        (Writer("Kafkalite", "overwrite"), None),
        (Writer("parquet"), None),
        (Writer(None), None),
    ):
        writer.save("p", None, None, "c", topic="t")
        assert writer.given == [("p", None, mode, "c", {"topic": "t"})]
    writer = Writer("parquet")
    writer.save(format="kafkalite")
    writer.save(format="kafkalite", mode="error")
    assert [given[2] for given in writer.given] == ["append", "error"]
