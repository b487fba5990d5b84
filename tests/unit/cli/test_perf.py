"""`kafkalite perf` on a real node, and the arithmetic of its latencies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.testing.cluster import cluster
from kafkalite_cli.records.latencies import percentiles, percentiles_text, plot
from tests.unit.cli.test_record_lines import run


def test_percentiles_are_values_that_occurred() -> None:
    found = percentiles([float(number) for number in range(1, 101)])
    assert found == {"p50": 50, "p95": 95, "p99": 99, "p99.9": 100, "max": 100}
    assert percentiles_text({"p50": 1.5, "max": 2.0}) == "p50 1.5 ms, max 2 ms"
    assert percentiles([]) == {} and plot([]) == []


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_a_plot_counts_everything(values: list[float]) -> None:
    lines = plot(sorted(values))
    assert len(lines) == 12
    assert sum(int(line.rsplit(" ", 1)[1].replace(",", "")) for line in lines if not line.endswith("ms")) == len(values)


async def test_produce_consume_and_both() -> None:
    async with cluster(1) as on:
        assert (await run(on, "admin", "create-topic", "t", "--partitions", "3")).code == 0
        sent = await run(on, "perf", "produce", "t", "--records", "500", "--size", "20", "--json")
        assert (
            sent.code == 0 and sent.json["records"] == 500 and sent.json["latency_ms"].keys() >= {"p50", "p99", "max"}
        )
        read = await run(on, "perf", "consume", "t", "--json")
        assert (read.code, read.json["records"]) == (0, 500)
        assert (await run(on, "admin", "delete-records", "t", "--before", "end", "--yes")).code == 0
        none = await run(on, "perf", "consume", "t", "--json", "--timeout", "3600")
        assert (none.code, none.json["records"]) == (0, 0), "nobody waits for what is not there any more"
        both = await run(on, "perf", "e2e", "t", "--records", "200", "--rate", "2000")
        assert both.code == 0 and both.out.startswith("200 records sent and read in ") and "p99 " in both.out, both
        assert (await run(on, "perf", "produce", "nope", "--records", "1")).code == 2
