"""Steps of a pipeline: SQL over the rows of the step before, or functions of a DataFrame."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite_pipelines.definition import Pipeline, PipelineError, SqlStep

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
                return rows.sparkSession.sql(re.sub(r"\binput\b", "{input}", _braces(step.sql)), input=rows)
            except Exception as error:
                raise _step_error(error, step.sql) from error

        return run_sql
    if callable(step.function):
        return step.function  # type: ignore[no-any-return]
    return imported(step.function, pipeline.directory)


def _braces(sql: str) -> str:
    return sql.replace("{", "{{").replace("}", "}}")


def _step_error(error: Exception, sql: str) -> Exception:
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
