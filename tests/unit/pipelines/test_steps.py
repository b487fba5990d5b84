"""SQL steps: what of the text is the rows of the step before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite_pipelines import Pipeline, Source, SqlStep
from kafkalite_pipelines.steps import step_function


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("SELECT * FROM input", "SELECT * FROM {input}"),
        ("SELECT input.a FROM input", "SELECT {input}.a FROM {input}"),
        ("SELECT 'input' AS kind FROM input", "SELECT 'input' AS kind FROM {input}"),
        ('SELECT "the input" AS kind FROM input', 'SELECT "the input" AS kind FROM {input}'),
        (r"SELECT 'it\'s input' AS kind FROM input", r"SELECT 'it\'s input' AS kind FROM {input}"),
        ("SELECT 'input''s' AS kind FROM input", "SELECT 'input''s' AS kind FROM {input}"),
        ("SELECT `input` FROM input", "SELECT `input` FROM {input}"),
        ("SELECT * -- input, it's\nFROM input", "SELECT * -- input, it's\nFROM {input}"),
        ("SELECT /* input\n' */ * FROM input", "SELECT /* input\n' */ * FROM {input}"),
        ("SELECT '{x}' FROM input", "SELECT '{{x}}' FROM {input}"),
        ("SELECT inputs, my_input FROM input", "SELECT inputs, my_input FROM {input}"),
    ],
)
def test_input_is_the_table_and_no_text(sql: str, asked: str) -> None:
    """A text 'input' became the name of a view, and the table had that name in its column."""
    seen: list[str] = []
    session = SimpleNamespace(sql=lambda query, input: seen.append(query))
    rows: Any = SimpleNamespace(sparkSession=session)
    spark: Any = session
    step_function(spark, Pipeline(name="p", kafka={}, source=Source(("t",)), sinks=()), SqlStep(sql))(rows)
    assert seen == [asked]
