"""What the Coordinator seam promises, held against a real ZooKeeper and against the simulated one.

The simulation is worth believing only as far as both pass this suite.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from kafkalite.coordination import zk_codec
from kafkalite.coordination.aiozk_adapter import ZkCoordinator
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
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    SetData,
    TooBigError,
)
from kafkalite.env.real import real_env
from kafkalite.env.real_network import RealNetwork
from kafkalite.testing.simulated.coordinator import ZooKeeperLink
from kafkalite.testing.simulated.zookeeper import Fate, SimZooKeeper
from kafkalite.testing.simulated.zookeeper_wire import Read, Request
from tests.zk import ZooKeeperForTests
from tests.zk_proxy import CONNECT, PING, Do, FaultProxy

TIMEOUT_MS = 1500


#: What the adapter proves its lease with, after the request's number.
_CONFIRMATION = zk_codec.multi(0, (Check("/", -1),))[4:]


class Rig(Protocol):
    """A server, and how to break what is between it and one client ("a"); others connect undisturbed."""

    @property
    def pings(self) -> int:
        """Heartbeats of "a" that have reached the server."""
        ...

    async def connect(self, host: str = "a", timeout_ms: int = TIMEOUT_MS, chroot: str = "") -> Coordinator: ...
    def cut(self) -> None: ...
    def refuse(self) -> None: ...
    def accept(self) -> None: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def lose_next_request(self) -> None: ...
    def lose_next_reply(self) -> None: ...
    async def expire(self, coordinator: Coordinator) -> None: ...
    async def outlive_a_silent_session(self) -> None:
        """Open a session of TIMEOUT_MS that never says a word, and wait until the server has let it go."""

    async def close(self) -> None: ...


class PingCounter(SimZooKeeper):
    """Counts the heartbeats of "a"."""

    pings = 0

    def serve(self, link: ZooKeeperLink, xid: int, request: Request) -> None:
        self.pings += link.client.host == "a" and request == Read("ping")
        super().serve(link, xid, request)


class SimRig:
    def __init__(self) -> None:
        self.server = PingCounter(random.Random(7))
        self.server.poke(Create("/test"))
        self.opened: list[Coordinator] = []

    async def connect(self, host: str = "a", timeout_ms: int = TIMEOUT_MS, chroot: str = "") -> Coordinator:
        session = await self.server.connector(host)(f"sim/test{chroot}", timeout_ms)
        self.opened.append(session)
        return session

    def cut(self) -> None:
        self.server.disconnect("a", Fate.LOSE_REQUEST)

    def refuse(self) -> None:
        self.server.stop()

    def accept(self) -> None:
        self.server.start()

    def hold(self) -> None:
        self.server.block("a")

    def release(self) -> None:
        self.server.unblock("a")

    def lose_next_request(self) -> None:
        self.server.lose_next("a", Fate.LOSE_REQUEST)

    def lose_next_reply(self) -> None:
        self.server.lose_next("a", Fate.LOSE_REPLY)

    async def expire(self, coordinator: Coordinator) -> None:
        self.server.expire("a")

    @property
    def pings(self) -> int:
        return self.server.pings

    async def outlive_a_silent_session(self) -> None:
        await self.connect("silent")
        self.server.block("silent")
        while self.server.session_ids("silent"):
            await asyncio.sleep(0.01)
        self.server.unblock("silent")

    async def close(self) -> None:
        for session in self.opened:
            await session.close()


class RealRig:
    def __init__(self, zookeeper: ZooKeeperForTests, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.chroot = "/" + zookeeper.chroot("contract").partition("/")[2]
        self.zookeeper = zookeeper
        self.env = real_env()
        self.opened: list[Coordinator] = []
        self.pings = 0
        self.lose: Do | None = None
        proxy.on_request = self._on_request

    async def connect(self, host: str = "a", timeout_ms: int = TIMEOUT_MS, chroot: str = "") -> Coordinator:
        server = self.proxy.connect if host == "a" else self.zookeeper.connect
        session = await self.env.connect_coordinator(f"{server}{self.chroot}{chroot}", timeout_ms)
        self.opened.append(session)
        return session

    def cut(self) -> None:
        self.proxy.cut(Do.RST)

    def refuse(self) -> None:
        self.proxy.accepting = False
        self.proxy.cut(Do.RST)

    def accept(self) -> None:
        self.proxy.accepting = True

    def hold(self) -> None:
        self.proxy.hold()

    def release(self) -> None:
        self.proxy.release()

    def _on_request(self, opcode: int, frame: bytes) -> Do:
        is_heartbeat = opcode == PING or frame[4:] == _CONFIRMATION
        self.pings += is_heartbeat
        if self.lose is None or opcode == CONNECT or is_heartbeat:
            return Do.PASS
        act, self.lose = self.lose, None
        return act

    def lose_next_request(self) -> None:
        self.lose = Do.RST

    def lose_next_reply(self) -> None:
        self.lose = Do.APPLY_THEN_RST

    async def expire(self, coordinator: Coordinator) -> None:
        """Take the session over with a second connection and close it there."""
        assert isinstance(coordinator, ZkCoordinator)
        self.refuse()  # or its owner, losing its connection to us, takes it back before we have closed it
        await self._say_and_wait(
            zk_codec.connect_request(coordinator.session_id, coordinator._password, TIMEOUT_MS, 0),
            zk_codec.close(1),
        )
        self.accept()

    async def outlive_a_silent_session(self) -> None:
        await self._say_and_wait(zk_codec.connect_request(0, b"", TIMEOUT_MS, 0))

    async def _say_and_wait(self, *frames: bytes) -> None:
        """On a connection of our own, until the server ends it: the session is over."""
        reader, writer = await RealNetwork().dial("127.0.0.1", self.zookeeper.port)
        for frame in frames:
            writer.write(len(frame).to_bytes(4, "big") + frame)
        while await reader.read(1 << 16):
            pass
        writer.close()

    async def close(self) -> None:
        for session in self.opened:
            await session.close()


@pytest.fixture(params=["real", "sim"])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    if request.param == "sim":
        simulated = SimRig()
        yield simulated
        await simulated.close()
        return
    server: ZooKeeperForTests = request.getfixturevalue("zookeeper")
    async with FaultProxy(server.port) as proxy:
        real = RealRig(server, proxy)
        yield real
        await real.close()


@pytest.fixture
async def zk(rig: Rig) -> Coordinator:
    return await rig.connect()


def watcher() -> tuple[asyncio.Event, Callable[[], None], list[int]]:
    """(set when fired, the watch, one entry per firing)."""
    event = asyncio.Event()
    fired: list[int] = []

    def watch() -> None:
        fired.append(1)
        event.set()

    return event, watch, fired


def states(coordinator: Coordinator) -> asyncio.Queue[SessionState]:
    queue: asyncio.Queue[SessionState] = asyncio.Queue()
    coordinator.on_state(queue.put_nowait)
    return queue


# --- znodes ------------------------------------------------------------------------------------------------------


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


# --- transactions ------------------------------------------------------------------------------------------------


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


# --- watches -----------------------------------------------------------------------------------------------------


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
    for change in (other.create("/n"), other.set("/n", b"x"), other.delete("/n"), other.create("/n")):
        await zk.exists("/n", watch)
        await change
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


# --- lost connections --------------------------------------------------------------------------------------------


async def test_a_cut_connection_is_noticed_and_replaced_within_the_session(rig: Rig, zk: Coordinator) -> None:
    session = zk.session_id
    await zk.create("/e", ephemeral=True)
    seen = states(zk)
    rig.cut()
    assert await seen.get() is SessionState.SUSPENDED
    with pytest.raises(NotSentError):
        await zk.get("/e")
    with pytest.raises(NotSentError):
        await zk.multi([SetData("/e", b"x")])
    assert [type(result) for result in await zk.multi_many([[Check("/e", 0)]] * 2)] == [NotSentError, NotSentError]
    assert await seen.get() is SessionState.CONNECTED
    assert zk.session_id == session
    assert (await zk.get("/e"))[1].ephemeral_owner == session


async def test_watches_survive_a_reconnect(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    await zk.multi([Create("/data"), Create("/deleted"), Create("/p"), Create("/later"), Create("/q")])
    armed = {}
    for path, arm in (
        ("/data", zk.get),
        ("/deleted", zk.exists),
        ("/absent", zk.exists),
        ("/p", zk.children),
        ("/later", zk.get),
        ("/never", zk.exists),
        ("/q", zk.children),
    ):
        armed[path] = watcher()
        await arm(path, armed[path][1])
    seen = states(zk)
    rig.refuse()
    assert await seen.get() is SessionState.SUSPENDED
    if isinstance(rig, SimRig):
        for op in (SetData("/test/data", b"1"), Delete("/test/deleted"), Create("/test/absent"), Create("/test/p/c")):
            rig.server.poke(op)
    else:
        await other.multi([SetData("/data", b"1"), Delete("/deleted"), Create("/absent"), Create("/p/c")])
    rig.accept()
    while await seen.get() is not SessionState.CONNECTED:
        pass
    for path in ("/data", "/deleted", "/absent", "/p"):
        await armed[path][0].wait()
    await zk.exists("/data")
    assert [armed[path][2] for path in ("/later", "/never", "/q")] == [[], [], []]
    while other.state is not SessionState.CONNECTED:
        await asyncio.sleep(0.01)
    await other.multi([SetData("/later", b"1"), Create("/never"), Create("/q/c")])
    for path in ("/later", "/never", "/q"):
        await armed[path][0].wait()
    assert all(len(fired) == 1 for _, _, fired in armed.values())


@pytest.mark.checklist("F6")
async def test_a_lost_reply_is_an_unknown_outcome_and_was_applied_once(rig: Rig, zk: Coordinator) -> None:
    await zk.create("/n", b"0")
    seen = states(zk)
    rig.lose_next_reply()
    with pytest.raises(OutcomeUnknownError):
        await zk.set("/n", b"1")
    assert await seen.get() is SessionState.SUSPENDED
    assert await seen.get() is SessionState.CONNECTED
    data, stat = await zk.get("/n")
    assert (data, stat.version) == (b"1", 1)


async def test_a_lost_request_is_an_unknown_outcome_and_was_not_applied(rig: Rig, zk: Coordinator) -> None:
    await zk.create("/n", b"0")
    seen = states(zk)
    rig.lose_next_request()
    with pytest.raises(OutcomeUnknownError):
        await zk.set("/n", b"1")
    assert await seen.get() is SessionState.SUSPENDED
    assert await seen.get() is SessionState.CONNECTED
    data, stat = await zk.get("/n")
    assert (data, stat.version) == (b"0", 0)


async def test_all_that_is_under_way_fails_with_the_connection(rig: Rig, zk: Coordinator) -> None:
    await zk.create("/n", b"0")
    seen = states(zk)
    rig.hold()
    under_way = [asyncio.ensure_future(zk.get("/n")) for _ in range(20)]
    many = asyncio.ensure_future(zk.multi_many([[Check("/n", 0)]] * 40))
    for _ in range(3):  # turns of the loop: they are called, written and under way
        await asyncio.sleep(0)
    rig.cut()
    if isinstance(rig, SimRig):
        rig.release()
    for result in await asyncio.gather(*under_way, return_exceptions=True):
        assert isinstance(result, OutcomeUnknownError)
    kinds = {type(result) for result in await many}
    assert kinds <= {OutcomeUnknownError, NotSentError}
    assert OutcomeUnknownError in kinds
    rig.release()
    while await seen.get() is not SessionState.CONNECTED:
        pass
    assert (await zk.get("/n"))[0] == b"0"


async def test_a_silent_connection_is_given_up_before_the_session_is_lost(rig: Rig) -> None:
    timeout_s = 2 * TIMEOUT_MS / 1000
    zk = await rig.connect(timeout_ms=2 * TIMEOUT_MS)
    session = zk.session_id
    leases: list[float] = []
    zk.on_state(lambda _: leases.append(zk.lease_left()))
    seen = states(zk)
    rig.hold()
    assert await seen.get() is SessionState.SUSPENDED
    assert 0 < leases[0] < timeout_s / 2  # while another server could still be reached, and not for a short silence
    rig.release()
    assert await seen.get() is SessionState.CONNECTED
    assert zk.session_id == session


# --- the end of a session ----------------------------------------------------------------------------------------


@pytest.mark.checklist(3)
async def test_expiry_is_told_once_and_is_terminal(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b", timeout_ms=10_000)  # outlives the other one on a slow machine too
    await zk.create("/e", ephemeral=True)
    gone, watch, _ = watcher()
    await other.exists("/e", watch)
    mine, my_watch, fired = watcher()
    await zk.get("/e", my_watch)
    told: list[SessionState] = []
    zk.on_state(told.append)
    seen = states(zk)
    await rig.expire(zk)
    await gone.wait()
    while await seen.get() is not SessionState.EXPIRED:
        pass
    assert told.count(SessionState.EXPIRED) == 1
    assert told[-1] is SessionState.EXPIRED
    assert zk.state is SessionState.EXPIRED
    assert zk.lease_left() <= 0
    for call in (zk.get("/e"), zk.exists("/e"), zk.create("/e"), zk.multi([Check("/e", 0)]), zk.sync("/")):
        with pytest.raises(SessionExpiredError):
            await call
    assert [type(result) for result in await zk.multi_many([[Check("/e", 0)]])] == [SessionExpiredError]
    with pytest.raises(SessionExpiredError):
        await zk.get_many(["/e"])
    await zk.close()
    assert told.count(SessionState.EXPIRED) == 1
    assert not mine.is_set() or fired == [1]


@pytest.mark.checklist("F13")
async def test_the_lease_runs_out_before_the_server_lets_the_session_go(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
    await zk.create("/e", ephemeral=True)
    assert 0 < zk.lease_left() <= TIMEOUT_MS / 1000
    seen = states(zk)
    gone = asyncio.Event()
    when_gone: list[tuple[bool, SessionState]] = []

    def watch() -> None:
        when_gone.append((zk.lease_left() > 0, zk.state))
        gone.set()

    await other.exists("/e", watch)
    rig.hold()
    await gone.wait()
    # Fenced first, replaced later; and only the server says "expired".
    assert when_gone == [(False, SessionState.SUSPENDED)]
    rig.release()
    while await seen.get() is not SessionState.EXPIRED:
        pass


async def test_heartbeats_keep_an_idle_session(rig: Rig, zk: Coordinator) -> None:
    await zk.create("/e", ephemeral=True)
    told: list[SessionState] = []
    zk.on_state(told.append)
    for _ in range(2):
        before = rig.pings
        await rig.outlive_a_silent_session()
        assert rig.pings - before >= 2  # often enough for one of them to be lost
        assert zk.lease_left() > 0
    assert told == []
    assert (await zk.get("/e"))[1].ephemeral_owner == zk.session_id


async def test_close_is_bounded_and_repeatable(rig: Rig) -> None:
    zk = await rig.connect(timeout_ms=60_000)
    told: list[SessionState] = []
    zk.on_state(told.append)
    rig.hold()
    await zk.close()
    await zk.close()
    assert told == [
        SessionState.EXPIRED
    ]  # it ran out of patience itself, long before the silent connection was given up
    with pytest.raises(SessionExpiredError):
        await zk.get("/")
    rig.release()


async def test_close_fails_what_is_under_way(rig: Rig, zk: Coordinator) -> None:
    rig.hold()
    reading = asyncio.ensure_future(zk.get("/"))
    await asyncio.sleep(0)
    await zk.close()
    with pytest.raises((SessionExpiredError, OutcomeUnknownError)):
        await reading
    rig.release()


async def test_connecting_to_nobody_ends_within_the_session_timeout(rig: Rig) -> None:
    ended: list[int] = []

    async def connect(timeout_ms: int) -> Coordinator:
        try:
            return await rig.connect(timeout_ms=timeout_ms)
        finally:
            ended.append(timeout_ms)

    rig.refuse()
    attempts = [asyncio.ensure_future(connect(timeout_ms)) for timeout_ms in (60_000, 1000, 500)]
    for attempt in reversed(attempts[1:]):
        with pytest.raises(NotSentError):
            await attempt
    assert ended == [500, 1000]  # each in its own time, while the most patient one goes on
    rig.accept()
    assert (await attempts[0]).state is SessionState.CONNECTED


async def test_a_caller_that_gives_up_harms_nobody(rig: Rig, zk: Coordinator) -> None:
    await zk.create("/n", b"0")
    rig.hold()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await zk.get("/n")
    rig.release()
    assert (await zk.get("/n"))[0] == b"0"
