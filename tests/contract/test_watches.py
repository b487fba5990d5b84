"""What the Coordinator seam promises of watches, on a real ZooKeeper and on the simulated one."""

from __future__ import annotations

import pytest

from kafkalite.coordination.coordinator import Coordinator, Create, Delete, NoNodeError, SetData
from tests.contract.rigs import Rig, watcher


async def test_a_data_watch_fires_once_per_arming(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    await zk.create("/n", b"0")
    fired, watch, count = watcher()
    await zk.get("/n", watch)
    await zk.get("/n", watch)  # the same watch twice is one watch
    await other.set("/n", b"1")
    await fired.wait()
    await other.set("/n", b"2")
    await zk.sync("/n")
    assert (await zk.get("/n"))[0] == b"2"
    assert len(count) == 1
    fired.clear()
    await zk.get("/n", watch)
    await other.delete("/n")
    await fired.wait()
    assert len(count) == 2


async def test_an_exists_watch_fires_on_creation_change_and_deletion(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    fired, watch, count = watcher()
    create, write, delete = (lambda: other.create("/n")), (lambda: other.set("/n", b"x")), (lambda: other.delete("/n"))
    for change in (create, write, delete, create):
        await zk.exists("/n", watch)
        await change()
        await fired.wait()
        fired.clear()
    assert len(count) == 4


async def test_a_child_watch_fires_when_children_come_or_go_or_the_parent_goes(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    await zk.create("/p")
    fired, watch, count = watcher()
    for change in (other.create("/p/c"), other.delete("/p/c"), other.delete("/p")):
        await zk.children("/p", watch)
        await change
        await fired.wait()
        fired.clear()
    assert len(count) == 3
    await zk.create("/p")
    await zk.create("/p/c")
    await zk.children("/p", watch)
    await other.set("/p", b"data")
    await other.set("/p/c", b"data")
    await zk.sync("/")
    await zk.exists("/p")
    assert len(count) == 3


async def test_a_watch_is_armed_only_by_a_read_that_succeeds(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    _, watch, count = watcher()
    with pytest.raises(NoNodeError):
        await zk.get("/n", watch)
    with pytest.raises(NoNodeError):
        await zk.children("/n", watch)
    await other.create("/n")
    await zk.sync("/")
    await zk.exists("/n")
    assert count == []


async def test_a_multi_fires_the_watches_of_all_its_operations(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    await zk.multi([Create("/a"), Create("/b")])
    events = []
    for arm in (zk.get, zk.exists, zk.children):
        event, watch, _ = watcher()
        events.append(event)
        await arm({"get": "/a", "exists": "/c", "children": "/"}[arm.__name__], watch)
    await other.multi([SetData("/a", b"1"), Create("/c"), Delete("/b")])
    for event in events:
        await event.wait()


async def test_what_follows_a_watch_is_read_after_it(rig: Rig, zk: Coordinator) -> None:
    """The change is visible when the watch fires, and the watch fires before a later read shows a newer state."""
    other = await rig.connect("b")
    await zk.create("/n", b"0")
    for number in range(20):
        fired, watch, _ = watcher()
        await zk.get("/n", watch)
        await other.set("/n", str(number).encode())
        await fired.wait()
        assert int((await zk.get("/n"))[0]) == number


async def test_a_watch_that_is_forgotten_does_not_fire(rig: Rig, zk: Coordinator) -> None:
    """What it belongs to is over. Others of the same znode fire, and it can be armed again."""
    other = await rig.connect("b")
    await zk.multi([Create("/n"), Create("/p")])
    (_, watch, count), (fired, others, _) = watcher(), watcher()
    await zk.get("/n", watch)
    await zk.get("/n", others)
    await zk.children("/p", watch)
    await zk.exists("/absent", watch)
    zk.forget([watch])
    await other.multi([SetData("/n", b"1"), Create("/p/c"), Create("/absent")])
    await fired.wait()
    await zk.sync("/")
    await zk.exists("/p")
    assert count == []
    await zk.get("/n", watch)
    await other.set("/n", b"2")
    await zk.sync("/")
    await zk.exists("/p")
    assert count == [1]
