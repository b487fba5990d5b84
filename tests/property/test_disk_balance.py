"""The disks of a node: a plan ends, moves only what it may, and leaves nothing for the next one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.admin.decisions.disk_balance import DiskShare, choose_disk_moves
from kafkalite.model import TopicPartition

TERABYTE = 10**12
Replicas = dict[TopicPartition, tuple[str, int]]


def after(disks: dict[str, DiskShare], replicas: Replicas, limit: int = 1_000) -> Replicas:
    moved = dict(replicas)
    for each in choose_disk_moves(disks, replicas, tolerance=0.1, max_disk=0.85, limit=limit):
        assert moved[each.partition][0] == each.source != each.target
        moved[each.partition] = each.target, moved[each.partition][1]
    return moved


def test_a_new_disk_gets_its_share() -> None:
    disks = {"/a": DiskShare(TERABYTE, TERABYTE), "/b": DiskShare(TERABYTE, TERABYTE)}
    before: Replicas = {TopicPartition("t", number): ("/a", 10**9) for number in range(6)}
    assert sorted(path for path, _ in after(disks, before).values()) == ["/a"] * 3 + ["/b"] * 3
    assert len([1 for key, each in after(disks, before, limit=2).items() if each != before[key]]) == 2


def test_a_disk_of_twice_the_size_gets_twice_as_much_and_a_full_one_nothing() -> None:
    disks = {"/a": DiskShare(TERABYTE, TERABYTE), "/b": DiskShare(2 * TERABYTE, 2 * TERABYTE)}
    before: Replicas = {TopicPartition("t", number): ("/a", 10**9) for number in range(9)}
    assert [path for path, _ in after(disks, before).values()].count("/b") == 6
    full = {"/a": disks["/a"], "/b": DiskShare(TERABYTE, TERABYTE // 10)}
    assert after(full, before) == before


@given(
    st.lists(st.tuples(st.sampled_from(["/a", "/b", "/c"]), st.integers(0, 10**10)), max_size=30),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_a_second_plan_is_empty(placed: list[tuple[str, int]], sizes: list[int]) -> None:
    disks = {
        path: DiskShare(size * TERABYTE, size * TERABYTE) for path, size in zip(["/a", "/b", "/c"], sizes, strict=False)
    }
    replicas = {TopicPartition("t", number): each for number, each in enumerate(placed)}
    once = after(disks, replicas)
    assert after(disks, once) == once
    assert all(once[key][0] in disks or once[key] == replicas[key] for key in replicas), "a lost disk's replicas stay"
