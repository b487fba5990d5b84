"""What the Coordinator seam promises of znodes and transactions, on a real ZooKeeper and on the simulated one.

The simulation is worth believing only as far as both pass the tests in this directory.
"""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.coordination.coordinator import (
    BadVersionError,
    Check,
    Coordinator,
    CoordinatorError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionState,
    SetData,
    TooBigError,
)
from kafkalite.env.real import RealClock
from tests.contract.rigs import Rig, watcher


async def test_a_znode_lives_through_its_versions(zk: Coordinator) -> None:
    path, made = await zk.create("/n", b"one")
    assert (path, made.version, made.ephemeral_owner, made.child_count) == ("/n", 0, 0, 0)
    assert made.czxid == made.mzxid
    data, stat = await zk.get("/n")
    assert (data, stat) == (b"one", made)
    changed = await zk.set("/n", b"two", 0)
    assert (changed.version, changed.czxid) == (1, made.czxid)
    assert changed.mzxid > made.mzxid
    assert (await zk.set("/n", b"", -1)).version == 2
    assert (await zk.get("/n"))[0] == b""
    await zk.delete("/n", 2)
    assert await zk.exists("/n") is None
    again = (await zk.create("/n"))[1]
    assert again.czxid > changed.mzxid
    assert again.version == 0


async def test_a_write_is_stamped_with_the_servers_clock(zk: Coordinator) -> None:
    """Also one that changes nothing. The server runs on this machine; a node compares its clock with it."""
    clock = RealClock()
    await zk.create("/n")
    for _ in range(3):
        before_ms = clock.wall_ms()
        stat = await zk.set("/n", b"")
        assert before_ms <= stat.mtime_ms <= clock.wall_ms()


async def test_refusals_change_nothing(zk: Coordinator) -> None:
    await zk.create("/n", b"x")
    await zk.create("/n/child")
    with pytest.raises(NodeExistsError):
        await zk.create("/n", b"y")
    with pytest.raises(NoNodeError):
        await zk.create("/absent/child")
    with pytest.raises(BadVersionError):
        await zk.set("/n", b"y", 7)
    with pytest.raises(BadVersionError):
        await zk.delete("/n/child", 1)
    with pytest.raises(NotEmptyError):
        await zk.delete("/n")
    for read in (zk.get, zk.children, zk.delete):
        with pytest.raises(NoNodeError):
            await read("/absent")
    with pytest.raises(NoNodeError):
        await zk.set("/absent", b"")
    data, stat = await zk.get("/n")
    assert (data, stat.version, stat.child_count) == (b"x", 0, 1)


async def test_children_are_sorted_names(zk: Coordinator) -> None:
    await zk.create("/p")
    for name in ("b", "10", "a", "9"):
        await zk.create(f"/p/{name}")
    names, stat = await zk.children("/p")
    assert names == ["10", "9", "a", "b"]
    assert (stat.child_count, stat.version) == (4, 0)


async def test_sequence_numbers_count_every_child_ever_made(zk: Coordinator) -> None:
    await zk.create("/q")
    assert (await zk.create("/q/req-", sequential=True))[0] == "/q/req-0000000000"
    await zk.create("/q/other")
    await zk.delete("/q/other")
    assert (await zk.create("/q/req-", sequential=True))[0] == "/q/req-0000000002"
    assert (await zk.create("/q/", sequential=True))[0] == "/q/0000000003"


async def test_ephemerals_belong_to_the_session_and_go_with_it(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    path, stat = await zk.create("/e", b"me", ephemeral=True)
    assert (path, stat.ephemeral_owner) == ("/e", zk.session_id)
    assert zk.session_id not in (0, other.session_id)
    with pytest.raises(CoordinatorError):
        await zk.create("/e/child")
    await zk.create("/e-", ephemeral=True, sequential=True)
    gone, watch, _ = watcher()
    await other.exists("/e", watch)
    await zk.close()
    await gone.wait()
    await other.sync("/")
    assert (await other.children("/"))[0] == []


async def test_a_path_may_hold_any_letters(zk: Coordinator) -> None:
    await zk.create("/größe-<default>", "ä".encode())
    assert (await zk.get("/größe-<default>"))[0] == "ä".encode()
    assert (await zk.children("/"))[0] == ["größe-<default>"]


async def test_ensure_path_makes_what_is_missing(zk: Coordinator) -> None:
    await zk.create("/a", b"kept")
    await zk.ensure_path("/a/b/c")
    await zk.ensure_path("/a/b/c")
    assert (await zk.get("/a"))[0] == b"kept"
    stat = await zk.exists("/a/b/c")
    assert stat is not None
    assert (stat.ephemeral_owner, stat.version) == (0, 0)
    await zk.ensure_path("/x/y/z/")
    await zk.ensure_path("/")
    assert await zk.exists("/x/y/z") is not None


async def test_a_chroot_is_made_and_invisible(rig: Rig) -> None:
    inside = await rig.connect("b", chroot="/deep/er")
    outside = await rig.connect("c")
    assert (await inside.children("/"))[0] == []
    assert (await inside.create("/s-", b"x", sequential=True))[0] == "/s-0000000000"
    assert await inside.multi([Create("/s-", sequential=True), Check("/", 0)]) == ["/s-0000000001", None]
    assert (await outside.get("/deep/er/s-0000000000"))[0] == b"x"
    fired, watch, _ = watcher()
    await inside.get("/s-0000000000", watch)
    await outside.set("/deep/er/s-0000000000", b"y")
    await fired.wait()


async def test_multi_is_all(zk: Coordinator) -> None:
    await zk.create("/epoch", b"1")
    await zk.create("/old")
    results = await zk.multi(
        [
            Check("/epoch", 0),
            SetData("/epoch", b"2", 0),
            Create("/made", b"m"),
            Create("/made/req-", sequential=True),
            SetData("/made", b"again", 0),
            Create("/mine", ephemeral=True),
            Delete("/old"),
        ]
    )
    assert results == [None, 1, "/made", "/made/req-0000000000", 1, "/mine", None]
    made = (await zk.get("/made"))[1]
    mine = (await zk.get("/mine"))[1]
    assert made.czxid == mine.czxid == made.mzxid
    assert mine.ephemeral_owner == zk.session_id
    assert await zk.exists("/old") is None


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Check("/epoch", 9), BadVersionError),
        (Check("/absent", 0), NoNodeError),
        (SetData("/epoch", b"", 9), BadVersionError),
        (Create("/epoch"), NodeExistsError),
        (Create("/absent/child"), NoNodeError),
        (Delete("/absent"), NoNodeError),
        (Delete("/parent"), NotEmptyError),
    ],
    ids=lambda value: value.__class__.__name__ + getattr(value, "path", "") if not isinstance(value, type) else "",
)
async def test_multi_is_nothing(zk: Coordinator, failing: Check | Create | SetData | Delete, error: type) -> None:
    await zk.multi([Create("/epoch", b"1"), Create("/parent"), Create("/parent/child")])
    before = [(await zk.get(path)) for path in ("/", "/epoch", "/parent")]
    with pytest.raises(MultiFailedError) as failed:
        await zk.multi([SetData("/epoch", b"2"), Create("/new"), Create("/new/sub"), failing, Delete("/parent/child")])
    assert failed.value.index == 3
    assert type(failed.value.error) is error
    assert [(await zk.get(path)) for path in ("/", "/epoch", "/parent")] == before
    assert (await zk.create("/s", sequential=True))[0] == "/s0000000002"  # what was undone was never counted


@pytest.mark.checklist("F31")
async def test_many_multis_stand_by_themselves(zk: Coordinator) -> None:
    await zk.create("/fence")
    transactions: list[list[Check | Create | SetData | Delete]] = [
        [Check("/fence", 0), Create(f"/n{number}", b"x" * 50)] for number in range(100)
    ]
    transactions[40] = [Check("/fence", 1), Create("/n40")]
    results = await zk.multi_many(transactions)
    assert [index for index, result in enumerate(results) if isinstance(result, CoordinatorError)] == [40]
    failed = results[40]
    assert isinstance(failed, MultiFailedError)
    assert failed.index == 0
    assert isinstance(failed.error, BadVersionError)
    assert results[41] == [None, "/n41"]
    assert len((await zk.children("/"))[0]) == 100


async def test_get_many_keeps_the_order_and_tells_what_is_missing(zk: Coordinator) -> None:
    await zk.multi([Create(f"/n{number}", str(number).encode()) for number in range(0, 1200, 2)])
    found = await zk.get_many([f"/n{number}" for number in range(1200)])
    assert [None if each is None else int(each[0]) for each in found] == [
        number if number % 2 == 0 else None for number in range(1200)
    ]
    assert await zk.get_many([]) == []


async def test_get_many_of_long_paths_and_large_znodes(zk: Coordinator) -> None:
    long = [f"/{number}{'x' * 200_000}" for number in range(6)]
    large = [f"/large{number}" for number in range(70)]
    for path in long:
        await zk.create(path, path[:2].encode())
    for path in large:
        await zk.create(path, bytes(100_000))
    found = await zk.get_many([*long, *large])
    assert [None if each is None else each[0] for each in found[: len(long)]] == [path[:2].encode() for path in long]
    assert [None if each is None else len(each[0]) for each in found[len(long) :]] == [100_000] * len(large)


@pytest.mark.checklist(7)
async def test_of_two_writers_exactly_one_wins(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    await zk.create("/state", b"0")
    results = await asyncio.gather(zk.set("/state", b"a", 0), other.set("/state", b"b", 0), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["BadVersionError", "Stat"]
    assert (await zk.get("/state"))[1].version == 1


async def test_requests_are_applied_in_the_order_of_the_calls(zk: Coordinator) -> None:
    await zk.create("/n", b"")
    versions = [stat.version for stat in await asyncio.gather(*(zk.set("/n", bytes([n]), n) for n in range(100)))]
    assert versions == list(range(1, 101))
    assert (await zk.get("/n"))[0] == bytes([99])


async def test_a_request_over_the_limit_is_not_sent(zk: Coordinator) -> None:
    await zk.create("/n")
    with pytest.raises(TooBigError):
        await zk.set("/n", bytes(1 << 20))
    with pytest.raises(TooBigError):
        await zk.create("/big", bytes(1 << 20))
    with pytest.raises(TooBigError):
        await zk.multi([SetData("/n", bytes(600_000)), SetData("/n", bytes(600_000))])
    assert (await zk.set("/n", bytes(1_000_000))).version == 1
    assert len((await zk.get("/n"))[0]) == 1_000_000
    assert zk.state is SessionState.CONNECTED
