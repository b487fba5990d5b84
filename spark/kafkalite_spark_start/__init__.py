"""What every Python with the wheel does at its start, for Spark alone: `kafkalite-spark.pth` imports this (docs/adr/0055).

- PySpark's class for batch writes gets the two lines that Spark's own Kafka sink does not need (`like_kafka`), when it is imported.
- Python processes of a Spark that pip installed import PySpark from the installed package, not from its copy in a zip.
- The process that plans a stream imports Arrow and numpy only if it needs them.

It runs in programs that have nothing to do with Spark, too. So it imports nothing, and takes a fraction of a millisecond.
The environment variable KAFKALITE_SPARK_START=off leaves Spark as it is.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = "kafkalite"
#: Where PySpark has its class for batch writes: Spark in this process, and Spark Connect.
WRITERS = ("pyspark.sql.readwriter", "pyspark.sql.connect.readwriter")
#: The program of the process that plans a stream, and the module that it takes one function from. That module imports Arrow.
STREAM_PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
BATCH_PLANNER = "pyspark.sql.worker.plan_data_source_read"


def start() -> None:
    """Called by `site` before the program, once for each directory that has the line."""
    if os.environ.get("KAFKALITE_SPARK_START", "").lower() in ("off", "false", "0", "no"):
        return
    sys.path[:] = without_copies(sys.path, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not any(isinstance(finder, WriterFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, WriterFinder())
        if STREAM_PLANNER in sys.orig_argv:
            sys.meta_path.insert(0, LaterFinder())


def without_copies(path: "list[str]", installed: str) -> "list[str]":
    """The import path without the archives that Spark puts in front and that are copies of packages in `installed`.

    Python cannot keep compiled modules in a zip: PySpark and py4j are compiled again in every process that Spark starts, 0.5 s of
    processor. PySpark's wheel makes the zip from the same files; py4j's must be of the version that is installed.
    """
    archives = os.path.join(installed, "pyspark", "python", "lib", "")

    def is_copy(entry: str) -> bool:
        if not entry.endswith(".zip") or os.path.dirname(entry) + os.sep != archives:
            return False
        name = os.path.basename(entry)
        version = name.removeprefix("py4j-").removesuffix("-src.zip")
        return name == "pyspark.zip" or os.path.isdir(os.path.join(installed, f"py4j-{version}.dist-info"))

    return [entry for entry in path if not is_copy(entry)]


class WriterFinder:
    """In `sys.meta_path`: changes PySpark's classes for batch writes when they are imported, and nothing before."""

    def __init__(self) -> None:
        self._finding = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in WRITERS or self._finding:
            return None
        self._finding = True  # other finders like this one ask all finders, too
        try:
            spec = self._by_others(name, path, target)
        finally:
            self._finding = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)
        return spec

    def _by_others(self, name: str, path: "Any", target: "Any") -> "Any":
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None


class _Loader:
    """The module's own loader, and one change after it."""

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def create_module(self, spec: "Any") -> "Any":
        return self._loader.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if hasattr(getattr(module, "DataFrameWriter", None), "save"):  # a later PySpark may have it elsewhere
            like_kafka(module.DataFrameWriter)


class LaterFinder:
    """In `sys.meta_path` of a process that plans a stream: lets BATCH_PLANNER be imported when something of it is used.

    Spark starts such a process for each query. Of that module it uses one function, for sources that read on the driver; ours does
    not. Arrow and numpy are 150 ms of processor, a tenth of what a short query takes in all.
    """

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != BATCH_PLANNER:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: "Any") -> "Any":
        return None

    def exec_module(self, module: "Any") -> None:
        def found(name: str) -> "Any":
            if name.startswith("__"):  # what Python asks of each module
                raise AttributeError(name)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                sys.modules.pop(BATCH_PLANNER, None)
            import importlib

            return getattr(importlib.import_module(BATCH_PLANNER), name)

        def records_to_arrow_batches(*arguments: "Any", **options: "Any") -> "Any":
            return found("records_to_arrow_batches")(*arguments, **options)

        module.records_to_arrow_batches = records_to_arrow_batches
        module.__getattr__ = found


def like_kafka(writer: "Any") -> None:
    """From now on `save()` of this class appends when no mode was given, and works in every thread, for our format only.

    Spark takes no Python data source for a batch write in the mode that a write has at first (ErrorIfExists; Kafka's sink appends),
    and looks it up in the session that is active in the JVM's thread: a thread of Python has a JVM thread of its own, without one.
    """
    original = writer.save
    if hasattr(original, "__wrapped__"):
        return
    import functools

    @functools.wraps(original)
    def save(
        self: "Any",
        path: "str | None" = None,
        format: "str | None" = None,
        mode: "str | None" = None,
        *args: "Any",
        **options: "Any",
    ) -> None:
        prepare = _in_this_process if hasattr(self, "_jwrite") else _by_connect
        original(self, path, format, prepare(self, format, mode), *args, **options)

    writer.save = save


def _in_this_process(writer: "Any", format: "str | None", mode: "str | None") -> "str | None":
    """The mode to write with."""
    from py4j.protocol import Py4JError

    try:
        source = format or writer._jwrite.source()
    except Py4JError:  # not public in Spark: other formats must work without it
        return mode
    if source.lower() != _NAME:
        return mode
    spark = writer._spark
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    return "append" if mode is None and writer._jwrite.curmode().name() == "ErrorIfExists" else mode


def _by_connect(writer: "Any", format: "str | None", mode: "str | None") -> "str | None":
    """The server has an active session."""
    given = getattr(writer, "_write", None)
    if (format or getattr(given, "source", None) or "").lower() != _NAME:
        return mode
    return "append" if mode is None and given is not None and given.mode is None else mode
