"""The examples do what they say, on the real data set."""

from __future__ import annotations

import csv
import importlib
import itertools
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark]

EXAMPLES = Path(__file__).resolve().parents[2] / "spark" / "examples"
ROWS = 20_000


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield lambda name: importlib.import_module(name).main
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def flights(example, tmp_path: Path) -> list[dict[str, str]]:
    """The first rows of the file, read without Spark."""
    with importlib.import_module("flights").flights_csv(tmp_path).open() as file:
        return list(itertools.islice(csv.DictReader(file), ROWS))


def test_files_parquet_windows_and_topic_to_topic(spark, served, example, flights, tmp_path: Path, capsys) -> None:
    common = ["--bootstrap", served.address]
    assert example("files_to_topic")([*common, "--rows", str(ROWS)]) == 0
    assert f"{ROWS:,} rows to topic flights" in capsys.readouterr().out
    out = str(tmp_path / "flights.parquet")
    assert example("topic_to_parquet")([*common, "--out", out]) == 0
    assert f"{ROWS:,} rows in {out}" in capsys.readouterr().out
    assert spark.read.parquet(out).where("origin = 'JFK'").count() == sum(f["origin"] == "JFK" for f in flights)

    weekly = ["--out", str(tmp_path / "delays.parquet"), "--checkpoint", str(tmp_path / "delays")]
    assert example("windowed_aggregation")([*common, *weekly]) == 0
    assert spark.read.parquet(weekly[1]).selectExpr("sum(flights)").collect()[0][0] == ROWS
    assert f"batch 0: {ROWS:,} rows" in capsys.readouterr().out

    assert example("topic_to_topic")([*common, "--checkpoint", str(tmp_path / "late")]) == 0
    late = sum(f["dep_delay"] != "NA" and float(f["dep_delay"]) > 60 for f in flights)
    assert f"{late:,} late flights" in capsys.readouterr().out
