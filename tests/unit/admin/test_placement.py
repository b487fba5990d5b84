"""Placement against the vectors (recorded from Kafka's formula), and what makes it good."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.admin.decisions.placement import PlacementError, alternate_racks, mod, shifted
from kafkalite.model import BrokerId

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "placement.json").read_text())


@pytest.mark.checklist(57)
@pytest.mark.checklist("C8")
@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"n{len(v['brokers'])}-p{v['partitions']}")
def test_vectors(vector: dict[str, list[list[int]]]) -> None:
    brokers = [BrokerId(each) for each in vector["brokers"]]  # type: ignore[arg-type]
    count, factor = vector["partitions"], vector["replication_factor"]
    assert [list(each) for each in mod(brokers, count, factor)] == vector["mod"]  # type: ignore[arg-type]
    placed = shifted(dict.fromkeys(brokers), count, factor, start=0, shift=0)  # type: ignore[arg-type]
    assert [list(each) for each in placed] == vector["shifted_start0_shift0"]


@pytest.mark.checklist(57)
@pytest.mark.checklist("C8")
def test_a_dead_brokers_leaders_spread_over_all_survivors() -> None:
    brokers = [BrokerId(each) for each in range(6)]
    heirs = {
        name: Counter(replicas[1] for replicas in placed if replicas[0] == 0)
        for name, placed in (
            ("mod", mod(brokers, 60, 3)),
            ("shifted", shifted(dict.fromkeys(brokers), 60, 3, start=0, shift=0)),
        )
    }
    assert heirs["mod"] == {1: 10}
    assert heirs["shifted"] == dict.fromkeys(range(1, 6), 2)


@st.composite
def clusters(draw: st.DrawFn) -> dict[BrokerId, str]:
    ids = draw(st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True))
    racks = draw(st.integers(1, 4))
    return {BrokerId(each): f"rack-{draw(st.integers(1, racks))}" for each in ids}


@given(clusters(), st.integers(1, 40), st.integers(1, 5), st.integers(0, 50), st.integers(0, 50))
def test_rack_aware(racks: dict[BrokerId, str], partitions: int, wanted: int, start: int, shift: int) -> None:
    factor = min(wanted, len(racks))
    placed = shifted(racks, partitions, factor, start=start, shift=shift)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[each] for each in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed)
    counts = [leaders[broker] for broker in racks]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 8), st.integers(1, 20), st.integers(0, 20), st.integers(1, 5), st.integers(0, 20))
def test_partitions_added_later_go_on_in_the_same_pattern(
    count: int, there: int, more: int, wanted: int, start: int
) -> None:
    brokers: dict[BrokerId, str | None] = dict.fromkeys(BrokerId(each) for each in range(count))
    factor = min(wanted, count)
    rounds = (there - 1) // count  # how often the shift has grown already
    later = shifted(brokers, more, factor, start=start, shift=rounds, first_partition=there)
    assert later == shifted(brokers, there + more, factor, start=start, shift=0)[there:]


def test_racks_alternate() -> None:
    racks = {
        BrokerId(0): "r1",
        BrokerId(1): "r3",
        BrokerId(2): "r3",
        BrokerId(3): "r2",
        BrokerId(4): "r2",
        BrokerId(5): "r1",
    }
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]  # the example in Kafka's AdminUtils


def test_refuses_what_cannot_be_placed() -> None:
    brokers: dict[BrokerId, str | None] = {BrokerId(1): "a", BrokerId(2): None}
    with pytest.raises(PlacementError, match="larger than"):
        shifted(brokers, 1, 3, start=0, shift=0)
    with pytest.raises(PlacementError, match="some do not"):
        shifted(brokers, 1, 1, start=0, shift=0)
    with pytest.raises(PlacementError, match="at least 1"):
        mod([BrokerId(1)], 1, 0)


@given(st.integers(2, 6), st.integers(1, 8), st.integers(1, 60), st.integers(0, 99), st.integers(0, 99), st.data())
def test_a_partition_has_at_most_one_replica_per_host(
    hosts: int, nodes: int, partitions: int, start: int, shift: int, data: st.DataObject
) -> None:
    """docs/large-host.md: the rack of a node is its host."""
    brokers: dict[BrokerId, str | None] = {
        BrokerId(10 * host + node): f"host{host}" for host in range(1, hosts + 1) for node in range(nodes)
    }
    factor = data.draw(st.integers(1, hosts))
    for replicas in shifted(brokers, partitions, factor, start=start, shift=shift):
        assert len({broker // 10 for broker in replicas}) == len(replicas) == factor
