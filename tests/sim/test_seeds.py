"""A few seeds with every run of the tests (make sim runs many), and that a seed means one run and no other."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from kafkalite.testing.simulation.harsh import draw_harsh
from kafkalite.testing.simulation.plan import draw
from kafkalite.testing.simulation.run import Simulation, simulate


@pytest.mark.checklist(18)
@pytest.mark.parametrize("seed", range(1, 4))
def test_every_promise_holds(seed: int) -> None:
    result = simulate(seed)
    assert result.violation is None, "\n".join([*draw(seed).lines(), *result.log[-30:], result.line()])
    # Some producers give up early, or send once: what they gave up may be there or not.
    assert result.stats["acked"] + result.stats["failed"] == result.stats["sent"] > 0
    given_up = result.stats["failed"] - result.stats.get("wide_failed", 0)
    assert given_up == 0 or draw(seed).patience_ms < 600_000


@pytest.mark.checklist(18)
def test_every_promise_holds_where_more_happens_at_once() -> None:
    result = simulate(30_000, draws=draw_harsh)
    assert result.violation is None, "\n".join([*draw_harsh(30_000).lines(), *result.log[-30:], result.line()])


@pytest.mark.checklist("F14")
def test_where_nobody_can_know_who_has_all_an_operator_elects_and_nothing_is_lost() -> None:
    """Two hosts lose their power, one of them bytes that were synced: both may lack something, and no leader comes without an operator."""
    result = simulate(192_349, draws=draw_harsh)
    assert result.violation is None, "\n".join([*result.log[-30:], result.line()])
    assert result.stats["elected"] == 1


def test_a_seed_is_one_run_event_for_event() -> None:
    plan = dataclasses.replace(draw(1), fault_time_s=5.0)
    first, second = Simulation(plan, record=True), Simulation(plan, record=True)
    one, two = first.run(), second.run()
    assert first.world.loop.record == second.world.loop.record
    assert one.trace_hash == two.trace_hash
    assert Simulation(dataclasses.replace(plan, seed=2)).run().trace_hash != one.trace_hash


def test_the_command_line_prints_the_plan_and_the_same_trace_in_another_process() -> None:
    command = [sys.executable, "-m", "kafkalite.testing.simulate", "--seed", "1"]
    runs = [
        subprocess.run(
            [*command, *more],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": pinned},
            capture_output=True,
            text=True,
        )
        for pinned, more in (("0", []), ("random", ["--once"]))
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stdout + runs[0].stderr
    assert runs[0].stdout.partition("virtual=")[0] == runs[1].stdout.partition("virtual=")[0]
    traces = {run.stdout.partition("trace=")[2].split()[0] for run in runs}
    assert len(traces) == 1
    assert draw(1).lines()[0] in runs[0].stdout
    assert "the second run was the same" in runs[0].stdout


def test_many_seeds_are_counted_and_a_failing_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kafkalite.testing import simulate as command_line
    from kafkalite.testing.simulation.result import Result

    def one(seed: int) -> Result:
        return Result(seed, "a promise is broken" if seed == 12 else None, "0", 1.0, 0.0, {"acked": 5})

    assert command_line.summarize("3 seeds from 11", [one(seed) for seed in (13, 12, 11)]) == 1
    printed = capsys.readouterr().out
    assert "3 seeds from 11: 2 ok, 1 failed; 15 records acknowledged" in printed
    assert printed.rstrip().endswith("failed: 12")
    assert command_line.summarize("1 seed", [one(1)]) == 0
