"""The tables that `admin health` and `admin why` print."""

from __future__ import annotations

import dataclasses

import pytest

from kafkalite.client.admin.why import Diagnosis
from kafkalite.extension.messages.watching import HealthProblem, HealthResponse
from kafkalite.model import BrokerId, TopicPartition
from kafkalite_cli.admin import cluster as health
from kafkalite_cli.admin import why
from kafkalite_cli.output import Output


def _shown(problems: tuple[HealthProblem, ...], capsys: pytest.CaptureFixture[str]) -> list[str]:
    answer = HealthResponse(BrokerId(1), problems)
    health._print_problems(
        [{"broker_id": 1, **dataclasses.asdict(each)} for each in answer.problems], Output(as_json=False), 0
    )
    return capsys.readouterr().out.partition("\n\n")[0].splitlines()


def test_the_table_of_problems_counts_those_that_a_node_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A node names twenty of a kind, and counts the others: "and 11 more, --json lists all" stood for 90."""
    named = tuple(HealthProblem("partition.offline", 0, f"t-{n}: gone", f"t-{n}") for n in range(20))
    rest = HealthProblem("partition.offline", 0, "and 80 more of this kind", count=80)
    lines = _shown((*named, rest), capsys)
    assert len(lines) == 12
    assert "and 90 more" in lines[-1] and "kafkalite top --state troubled" in lines[-1]

    assert "and 10 more" in (last := _shown(named, capsys)[-1]) and "--json lists all" in last


def test_few_problems_of_which_one_is_a_sum(capsys: pytest.CaptureFixture[str]) -> None:
    one = HealthProblem("disk.strays", 0, "d: old", "d")
    rest = HealthProblem("disk.strays", 0, "and 3 more of this kind", count=3)
    lines = _shown((one, rest), capsys)
    assert len(lines) == 3 and "and 3 more" in lines[-1] and "troubled" not in lines[-1]


def test_no_replica_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """There was a headline with nothing below it."""
    why._print(Diagnosis(TopicPartition("t", 0), BrokerId(-1), 0, (), (), (), (), ()), 0)
    assert "progress" not in capsys.readouterr().out
