"""What a failed query says, as one line."""

from __future__ import annotations

import pytest

from kafkalite_pipelines import PipelineError
from kafkalite_pipelines.control import failed, in_one_line

CONNECT = """[STREAM_FAILED] Query [id = 1] terminated with exception: Found error inside foreachBatch Python process: Traceback (most recent call last):
  File "/x/pyspark/sql/connect/streaming/worker/foreach_batch_worker.py", line 85, in main
    process(df_ref_id, int(batch_id))
  File "/x/pyspark/sql/connect/plan.py", line 690, in __init__
    assert len(columnNames) > 0
           ^^^^^^^^^^^^^^^^^^^^
{end}
 SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kafkalite_pipelines.definition.PipelineError: the table is wrong\n\tat java", "the table is wrong"),
        ("x\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'n'\n", "KeyError: 'n'"),
        (CONNECT.format(end="ValueError: too few"), "ValueError: too few"),
        (CONNECT.format(end="AssertionError"), "AssertionError in plan.py, line 690"),
        (
            "pyspark_kafkalite.cluster.DataLoss: topic t was deleted. Set failOnDataLoss=false to continue",
            "topic t was deleted. Set source.fail_on_data_loss to false to continue",
        ),
        (
            "pyspark_kafkalite.cluster.DataLoss: startingOffsets: t-0 has offsets 4 to 9, not 2. Set failOnDataLoss=false",
            "t-0 has offsets 4 to 9, not 2. Set source.fail_on_data_loss to false",
        ),
        (
            "pyspark_kafkalite.options.OptionError: startingOffsets must name every partition: t-1 missing",
            "source.start must name every partition: t-1 missing",
        ),
        (
            "kafkalite.errors.SaslAuthenticationFailed: SASL_AUTHENTICATION_FAILED: no such user\n\tat java",
            "SASL_AUTHENTICATION_FAILED: no such user",
        ),
        (
            "x.SparkRuntimeException: [USER_RAISED_EXCEPTION] a row has no key (n) SQLSTATE: P0001\n\tat java",
            "a row has no key (n)",
        ),
        (
            "An exception was thrown from the Python worker:\npyspark_kafkalite.rows.BadRow: topic out does not exist\n\n",
            "topic out does not exist",
        ),
        (
            "An exception was thrown from the Python worker:\npyspark_kafkalite.fetching.ReadFailed: t-0 at offset 3: CRC\n",
            "t-0 at offset 3: CRC",
        ),
        (
            "An exception was thrown from the Python worker:\npyarrow.lib.ArrowInvalid: Integer value 300 not in range\n",
            "pyarrow.lib.ArrowInvalid: Integer value 300 not in range",
        ),
        (
            CONNECT.format(
                end="pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'x' is malformed. SQLSTATE: 22018\n"
                "== SQL (line 1, position 11) ==\nSELECT *, amount * 2 AS twice, upper(customer) AS cu...\n          ^^^^^^^^^^\n"
            ),
            "steps: [CAST_INVALID_INPUT] The value 'x' is malformed. SQLSTATE: 22018 (in amount * 2)",
        ),
        (
            "pyspark.errors.exceptions.connect.ArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n",
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
        ),
        ("[SOME_ERROR] Spark says this.\n\tat org.apache", "[SOME_ERROR] Spark says this."),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert failed(RuntimeError(text)).problems == (line,)


def test_what_a_table_s_library_raises_in_a_range_is_one_line_too() -> None:
    """In a query it comes through Spark; in a backfill it was a stack."""
    with pytest.raises(PipelineError, match=r"^OSError: no space left$"), in_one_line(Exception):
        raise OSError("no space\nleft")
    with pytest.raises(OSError), in_one_line():
        raise OSError
    with pytest.raises(PipelineError, match=r"^wrong$"), in_one_line(Exception):
        raise PipelineError("wrong")
