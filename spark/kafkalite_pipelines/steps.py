"""Steps of a pipeline: SQL over the rows of the step before, or functions of a DataFrame."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.definition import DELETED, Pipeline, PipelineError, PythonStep, SqlStep
from kafkalite_pipelines.sql import with_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Nodes of a plan that need rows of other batches.
_STATEFUL = {
    "Aggregate": "groups rows", "Deduplicate": "removes duplicates", "Distinct": "removes duplicates",
    "Window": "uses a window function", "GlobalLimit": "has a LIMIT",
}  # fmt: skip


def check_stateless(rows: DataFrame) -> None:
    """Raises PipelineError: the steps need rows of other batches."""
    plan = _analyzed(rows)
    for node in re.findall(r"^[\s:+\-~]*([A-Z]\w+)", plan, re.MULTILINE):
        if node in _STATEFUL:
            raise PipelineError(
                f"steps: the query {_STATEFUL[node]}, which would be done in each batch alone; "
                "[watermark] with column and delay lets it see the whole stream"
            )


def with_deletions(pipeline: Pipeline, rows: DataFrame) -> DataFrame:
    """The rows of the last step. If a sink has a key, DELETED is true or false in each of them: null is false.

    Raises:
        PipelineError: the steps left the column out, so that a deletion would look like a row.
    """
    from pyspark.sql import functions as f

    if not pipeline.keyed or not pipeline.steps:
        return rows
    if DELETED in rows.columns:
        return rows.withColumn(DELETED, f.coalesce(f.col(DELETED), f.lit(False)))
    if pipeline.decode.debezium or pipeline.decode.key_column is not None:
        raise PipelineError(
            f"steps: the rows have no column {DELETED}, which says that a row is a deletion: select it, too"
        )
    return rows


def _analyzed(rows: DataFrame) -> str:
    if hasattr(rows, "_jdf"):
        return str(rows._jdf.queryExecution().analyzed().toString())
    explained: str = rows._explain_string(extended=True)  # Spark Connect
    return explained.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]


def step_function(spark: SparkSession, pipeline: Pipeline, step: Any) -> Callable[[DataFrame], DataFrame]:
    """A step as a function of DataFrames. Raises PipelineError: it cannot be found."""
    if isinstance(step, SqlStep):

        def run_sql(rows: DataFrame) -> DataFrame:
            try:
                return rows.sparkSession.sql(with_input(step.sql), input=rows)
            except Exception as error:
                raise step_error(error, step.sql) from error

        return run_sql
    if callable(step.function):
        return step.function  # type: ignore[no-any-return]
    return imported(step.function, pipeline.directory)


def step_error(error: Exception, sql: str) -> Exception:
    """Spark's error in the first line of its message."""
    if type(error).__name__ not in ("AnalysisException", "ParseException"):
        return error
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return PipelineError(f"steps: {text.strip()} (in {' '.join(sql.split())[:80]})")


def imported(name: str, directory: Path) -> Callable[[Any], Any]:
    """The function `module:function`; modules beside the pipeline file are found first."""
    module_name, _, function_name = name.partition(":")
    beside = directory / f"{module_name}.py"
    try:
        if beside.is_file():
            spec = importlib.util.spec_from_file_location(module_name, beside)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
        found = getattr(module, function_name)
    except (ImportError, AttributeError) as error:
        raise PipelineError(f"steps: {name} cannot be found: {error}") from None
    if not callable(found):
        raise PipelineError(f"steps: {name} is no function")
    return found  # type: ignore[no-any-return]


def missing_functions(pipeline: Pipeline) -> list[str]:
    """A line for each Python step whose module or function is not there. No code of the modules runs."""
    problems = []
    for number, step in enumerate(pipeline.steps, 1):
        if isinstance(step, PythonStep) and isinstance(step.function, str):
            problem = _missing_function(step.function, pipeline.directory)
            problems += [] if problem is None else [f"steps[{number}].python: {problem}"]
    return problems


def _missing_function(name: str, directory: Path) -> str | None:
    module_name, _, function_name = name.partition(":")
    beside = directory / f"{module_name}.py"
    if not beside.is_file():
        package = module_name.partition(".")[0]  # to look for a module in it would import it
        if importlib.util.find_spec(package) is not None:
            return None
        return f"there is no module {package}: neither {beside.name} beside the file, nor installed in this Python"
    try:
        nodes = list(ast.walk(ast.parse(beside.read_bytes())))
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}," if isinstance(error, SyntaxError) else ""
        return f"{beside.name} is not Python:{line} {getattr(error, 'msg', error)}"
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported_names = [alias for node in nodes if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names]
    names |= {alias.asname or alias.name for alias in imported_names}
    if function_name in names or names & {"*", "__getattr__"}:
        return None
    close = difflib.get_close_matches(function_name, names, 1)
    return f"{beside.name} has no function {function_name}" + (f"; did you mean {close[0]}?" if close else "")
