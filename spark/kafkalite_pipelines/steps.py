"""Steps of a pipeline: SQL over the rows of the step before, or functions of a DataFrame."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
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
#: Their names are their own.
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
#: Values that nobody can call.
_VALUES = (
    *(ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set),
    *(ast.ListComp, ast.DictComp, ast.SetComp, ast.AnnAssign),
)


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
    decode = pipeline.decode
    if decode.debezium or decode.key_column is not None or decode.format == "raw":
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
        module = ast.parse(beside.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f" line {error.lineno}," if isinstance(error, SyntaxError) else ""
        return f"{beside.name} is not Python:{line} {getattr(error, 'msg', error)}"
    names = _module_names(module.body)
    if function_name not in names:
        if names.keys() & {"*", "__getattr__"} or _is_global_elsewhere(module, function_name):
            return None
        close = difflib.get_close_matches(function_name, names, 1)
        return f"{beside.name} has no function {function_name}" + (f"; did you mean {close[0]}?" if close else "")
    wrong = [_no_step(node) for node in names[function_name]]
    return None if None in wrong else f"{function_name} in {beside.name} {wrong[-1]}"


def _module_names(body: Iterable[ast.stmt]) -> dict[str, list[ast.AST]]:
    """Name of the module -> what may be bound to it: definitions, values, imports. Branches count, functions' own names do not."""
    names: dict[str, list[ast.AST]] = {}
    for node in _module_level(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                names.setdefault(alias.asname or alias.name.partition(".")[0], []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                value = node.value if isinstance(target, ast.Name) else None
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        names.setdefault(each.id, []).append(value or node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, []).append(node)
    return names


def _module_level(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Nodes whose names are the module's."""
    for node in body:
        yield node
        if not isinstance(node, _SCOPES | ast.Assign | ast.AnnAssign):
            yield from _module_level(ast.iter_child_nodes(node))


def _is_global_elsewhere(module: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.Global) and name in node.names for node in ast.walk(module))


def _no_step(node: ast.AST) -> str | None:
    """Why it cannot be called with a DataFrame; None: it can, or only running the module would show that."""
    if isinstance(node, ast.AsyncFunctionDef):
        return "is async: a step is a plain function"
    if isinstance(node, _VALUES):
        return "is no function"
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return None
    given = node.args
    positional = len(given.posonlyargs) + len(given.args)
    needed = positional - len(given.defaults)
    if needed > 1 or (positional == 0 and given.vararg is None) or None in given.kw_defaults:
        return "must take one argument, a DataFrame"
    return None
