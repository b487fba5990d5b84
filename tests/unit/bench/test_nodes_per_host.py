"""What bench.nodes_per_host computes from what it has measured."""

from __future__ import annotations

import pytest

from bench.nodes_per_host import MIB, PARTITIONS, NodeMemory, NodesLoad, load_figures, main, memory_figures


def test_a_load_is_shown_by_its_rate_its_cost_and_the_busiest_node() -> None:
    moved = NodesLoad(records=1_000_000, seconds=4.0, node_cpu_seconds=(1.0, 3.0), client_cpu_seconds=2.0)
    figures = load_figures(moved, in_batches=True)
    assert figures.pop("ms of all nodes' CPU per GB") == pytest.approx(4000 / 1.024)
    assert figures == {
        "records/s": 250_000,
        "CPU of the least busy node, % of all nodes'": 25,
        "CPU of the busiest node, %": 75,
        "cores busy with the nodes": 1.0,
        "cores busy with the client": 0.5,
        "records/s with a core for each node": pytest.approx(1_000_000 / 3),
    }


def test_single_records_have_a_cost_per_request() -> None:
    figures = load_figures(NodesLoad(100_000, 5.0, (2.0, 2.0), 1.0), in_batches=False)
    assert figures["us of all nodes' CPU per request"] == 40
    assert figures["records/s with a core for each node"] == 50_000
    assert not any("GB" in name for name in figures)


def test_nodes_that_share_the_work_evenly_take_as_many_times_more() -> None:
    """The same cost per record: twice the nodes are twice the rate with a core for each."""
    rates = [
        load_figures(NodesLoad(1_000_000, 4.0, (4.0 / nodes,) * nodes, 2.0), in_batches=True)[
            "records/s with a core for each node"
        ]
        for nodes in (1, 2, 4)
    ]
    assert rates == [250_000, 500_000, 1_000_000]


def test_a_load_too_short_for_the_clock_has_figures() -> None:
    figures = load_figures(NodesLoad(10_000, 0.01, (0.0, 0.0), 0.0), in_batches=True)
    assert figures["records/s with a core for each node"] > 0
    assert figures["CPU of the busiest node, %"] == 0


def test_memory_is_of_each_node_and_of_all() -> None:
    idle = NodeMemory(resident=(40 * MIB, 42 * MIB), shared_out=(30 * MIB, 32 * MIB))
    after = NodeMemory(resident=(50 * MIB, 45 * MIB), shared_out=(40 * MIB, 35 * MIB))
    assert list(memory_figures(idle, after, 76 * MIB).values()) == [40, 42, 62, 45, 50, 75, 76]


def test_the_default_numbers_of_nodes_share_the_partitions_evenly() -> None:
    [counts] = (option.default for option in main.params if option.name == "counts")
    assert counts == (1, 2, 4)
    assert not any(PARTITIONS % count for count in counts)
