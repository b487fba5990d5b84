"""Spark imports the package in every session, whether it is used or not, and its parts in every worker."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        (
            "pyspark_kafkalite",
            ["pyarrow", "numpy", "msgpack", "asyncio", "kafkalite.rpc", "kafkalite.record", "structlog"],
        ),
        (
            "pyspark_kafkalite.reader",
            ["asyncio", "uvloop", "kafkalite.node", "kafkalite.log", "pyspark_kafkalite.sending"],
        ),
        (  # the process that plans a stream reads no record
            "pyspark_kafkalite.stream_reader",
            [
                "asyncio",
                "crc32c",
                "difflib",
                "kafkalite.record",
                "pyspark_kafkalite.decode",
                "pyspark_kafkalite.sending",
            ],
        ),
        (
            "pyspark_kafkalite.writer",
            ["asyncio", "uvloop", "kafkalite.node", "kafkalite.log", "pyspark_kafkalite.decode"],
        ),
    ],
)
def test_nothing_is_imported_that_is_not_used(module: str, absent: list[str]) -> None:
    """What pyspark itself brings along does not count."""
    code = f"import pyspark.sql.datasource, sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=True)
    assert set(absent).isdisjoint(told.stdout.split())
