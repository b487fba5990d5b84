"""What the network and the operating system do to a ZooKeeper session, and how the adapter comes through.

Each scenario is one that stock aiozk fails (lost elections, lost fences, endless hangs); a proxy or a signal makes it.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl

from kafkalite.coordination import aiozk_adapter
from kafkalite.coordination.aiozk_adapter import ZooKeeperAccess
from kafkalite.coordination.coordinator import (
    AuthFailedError,
    BadVersionError,
    Check,
    CoordinatorError,
    Create,
    MultiFailedError,
    NodeExistsError,
    NotSentError,
    OutcomeUnknownError,
    SessionState,
    SetData,
    TooBigError,
)
from kafkalite.coordination.retry import retrying
from kafkalite.env.real import RealClock, real_env
from kafkalite.env.real_network import RealNetwork
from kafkalite.testing.processes import kazoo_client
from tests.cluster.zookeeper_session import TIMEOUT_MS, Bench, connected, once, states
from tests.support.waiting import until
from tests.zk import ZooKeeperForTests
from tests.zk_proxy import CONNECT, MULTI_READ, SET, SET_WATCHES, Do, FaultProxy

pytestmark = [pytest.mark.zookeeper]


@pytest.fixture
async def bench(zookeeper: ZooKeeperForTests) -> AsyncIterator[Bench]:
    async with FaultProxy(zookeeper.port) as proxy:
        made = Bench(proxy, zookeeper)
        yield made
        await made.close()


@pytest.mark.parametrize("how", [Do.FIN, Do.RST])
async def test_an_idle_connection_that_ends_is_replaced_at_once(bench: Bench, how: Do) -> None:
    timeout_ms = 20_000
    zk = await bench.session(timeout_ms)
    await zk.create("/e", ephemeral=True)
    seen = states(zk)
    leases: list[float] = []
    zk.on_state(lambda _: leases.append(zk.lease_left()))
    before = bench.proxy.accepted
    bench.proxy.cut(how)
    await connected(seen)
    assert leases[0] > timeout_ms / 1000 / 2  # stock aiozk: when two thirds of the timeout are gone, and more
    assert bench.proxy.accepted == before + 1  # the first attempt
    assert (await zk.get("/e"))[1].ephemeral_owner == zk.session_id


async def test_a_truncated_reply_is_a_lost_connection(bench: Bench) -> None:
    zk = await bench.session()
    await zk.create("/n", b"0")
    seen = states(zk)
    xids: list[int] = []

    def on_reply(xid: int, _frame: bytes) -> Do:
        if xid > 0 and not xids:
            xids.append(xid)
            return Do.TRUNCATE
        return Do.PASS

    bench.proxy.on_reply = on_reply
    with pytest.raises(OutcomeUnknownError):
        await zk.set("/n", b"1", 0)
    await connected(seen)
    assert (await zk.get("/n"))[1].version == 1


async def test_a_server_that_cannot_read_many_at_once_is_asked_one_by_one(bench: Bench) -> None:
    zk = await bench.session()
    await zk.create("/a", b"1")
    await zk.create("/b", b"2")
    asked: list[int] = []

    def on_request(opcode: int, _frame: bytes) -> Do:
        asked.append(opcode)
        return Do.AS_UNKNOWN if opcode == MULTI_READ else Do.PASS  # as a server before 3.6

    bench.proxy.on_request = on_request
    for _ in range(2):
        found = await zk.get_many(["/a", "/none", "/b"])
        assert [None if each is None else each[0] for each in found] == [b"1", None, b"2"]
    assert asked.count(MULTI_READ) == 1


async def test_a_path_too_long_for_any_request_is_refused_before_it_is_sent(bench: Bench) -> None:
    zk = await bench.session()
    with pytest.raises(TooBigError):
        await zk.get_many(["/" + "x" * (1 << 20), "/a"])
    assert await zk.get_many(["/a", "/b"]) == [None, None]


@pytest.mark.checklist("F24")
async def test_an_own_ephemeral_of_a_lost_reply_is_recognised_by_its_owner(bench: Bench) -> None:
    zk = await bench.session()
    seen = states(zk)
    bench.proxy.on_request = lambda opcode, frame: Do.APPLY_THEN_RST if opcode == 15 else Do.PASS
    with pytest.raises(OutcomeUnknownError):
        await zk.create("/controller", b"me", ephemeral=True)
    bench.proxy.on_request = lambda opcode, frame: Do.PASS
    await connected(seen)
    with pytest.raises(NodeExistsError):
        await zk.create("/controller", b"me", ephemeral=True)
    assert (await zk.get("/controller"))[1].ephemeral_owner == zk.session_id


async def test_nothing_is_ever_sent_twice(bench: Bench) -> None:
    """Twenty unconditional writes of which many lose their reply: each is applied at most once."""
    zk = await bench.session()
    await zk.create("/n", b"")
    sent = 0

    def on_request(opcode: int, _frame: bytes) -> Do:
        nonlocal sent
        if opcode != SET:
            return Do.PASS
        sent += 1
        return Do.APPLY_THEN_FIN if sent % 3 == 0 else Do.PASS

    bench.proxy.on_request = on_request
    unknown = 0
    for number in range(20):
        while True:
            try:
                await zk.set("/n", str(number).encode())
            except NotSentError:
                await asyncio.sleep(0.002)
                continue
            except OutcomeUnknownError:
                unknown += 1
            break
    bench.proxy.on_request = lambda opcode, frame: Do.PASS
    assert unknown == 6
    assert sent == 20
    _, stat = await retrying(lambda: zk.get("/n"))
    assert stat.version == 20


@pytest.mark.parametrize("act", [Do.DROP, Do.FIN, Do.RST, Do.TRUNCATE])
async def test_a_missing_answer_to_connect_does_not_cost_the_session(bench: Bench, act: Do) -> None:
    zk = await bench.session()
    session = zk.session_id
    await zk.create("/e", ephemeral=True)
    seen = states(zk)
    refused: list[int] = []

    def on_reply(xid: int, _frame: bytes) -> Do:
        if xid == CONNECT and len(refused) < 2:
            refused.append(xid)
            return act
        return Do.PASS

    bench.proxy.on_reply = on_reply
    bench.proxy.cut(Do.RST)
    await connected(seen)
    assert len(refused) == 2
    assert zk.session_id == session
    assert (await zk.get("/e"))[1].ephemeral_owner == session


async def test_a_slow_answer_to_connect_is_waited_for_in_the_end(bench: Bench) -> None:
    """Patience grows: a server that needs 0.8 s for every ConnectResponse is still reached."""
    zk = await bench.session()
    seen = states(zk)
    bench.proxy.delay_connect_s = 0.8
    bench.proxy.cut(Do.FIN)
    await connected(seen)
    bench.proxy.delay_connect_s = 0.0
    await zk.sync("/")


@pytest.mark.parametrize("act", [Do.RST, Do.FIN, Do.APPLY_THEN_RST])
async def test_a_connection_lost_while_watches_are_set_again_is_replaced(bench: Bench, act: Do) -> None:
    zk = await bench.session()
    direct = await bench.direct()
    await zk.create("/n")
    changed = asyncio.Event()
    deleted = asyncio.Event()
    await zk.create("/m")
    await zk.get("/n", changed.set)
    await zk.exists("/m", deleted.set)
    seen = states(zk)
    left = once(bench.proxy, SET_WATCHES, act, times=2)
    bench.proxy.cut(Do.RST)
    while left():
        await connected(seen)
    await zk.sync("/") if zk.state is SessionState.CONNECTED else await connected(seen)
    await direct.set("/n", b"1")
    await direct.delete("/m")
    await changed.wait()
    await deleted.wait()


async def test_more_watches_than_a_frame_holds_are_set_again_in_chunks(bench: Bench) -> None:
    zk = await bench.session(10_000)
    direct = await bench.direct()
    paths = [f"/{'long-' * 40}{number}" for number in range(6_000)]  # 1.2 MB of paths; the limit is 1 MiB
    fired: list[str] = []
    last = asyncio.Event()
    for start in range(0, len(paths), 500):
        await asyncio.gather(
            *(zk.exists(path, functools.partial(fired.append, path)) for path in paths[start : start + 500])
        )
    await zk.exists(paths[-1], last.set)
    sizes: list[int] = []

    def on_request(opcode: int, frame: bytes) -> Do:
        if opcode == SET_WATCHES:
            sizes.append(len(frame))
        return Do.PASS

    bench.proxy.on_request = on_request
    seen = states(zk)
    bench.proxy.cut(Do.RST)
    await connected(seen)
    await zk.sync("/")
    assert sum(sizes) > 1_200_000
    assert max(sizes) < 150_000
    assert fired == []
    await direct.multi([Create(paths[0]), Create(paths[-1])])
    await last.wait()
    assert fired == [paths[0], paths[-1]]


async def test_attempts_go_on_until_the_server_accepts_one(bench: Bench) -> None:
    """How they back off: tests/unit/coordination/test_zk_session.py, in virtual time."""
    zk = await bench.session(20_000)
    seen = states(zk)
    bench.proxy.accepting = False
    before = bench.proxy.accepted
    bench.proxy.cut(Do.RST)
    await until(lambda: bench.proxy.accepted - before >= 7)
    bench.proxy.accepting = True
    await connected(seen)


@pytest.mark.checklist("F4")
async def test_a_process_that_stood_still_past_its_session_knows_at_once(zookeeper: ZooKeeperForTests) -> None:
    connect = zookeeper.chroot("sleeper")
    observer = await real_env().connect_coordinator(connect, TIMEOUT_MS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = Path(__file__).with_name("zookeeper_sleeper.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), connect, "1500", stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        holding = json.loads(await process.stdout.readline())
        assert holding["lease"] > 0
        gone = asyncio.Event()
        assert await observer.exists("/controller", gone.set) is not None
        process.send_signal(signal.SIGSTOP)
        await gone.wait()  # the server has given the session up: another controller may rule
        print("the session is over")
        process.send_signal(signal.SIGCONT)
        woke = json.loads(await process.stdout.readline())
        print(woke)
        assert woke["lease"] < 0  # at the first instruction, though the state still says "connected"
        expired = json.loads(await process.stdout.readline())
        assert expired["told"] == [["suspended", False], ["expired", False]]  # and never usable in between
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    await observer.close()


@pytest.mark.checklist("F4")
async def test_a_zombie_writes_nothing_past_the_fence(bench: Bench) -> None:
    """A controller cut off, another elected: what the first one still sends is refused by the epoch's version."""
    zombie = await bench.session()
    successor = await bench.direct()
    await zombie.multi([Create("/controller_epoch", b"1"), Create("/state", b"by zombie")])
    bench.proxy.hold()
    late = asyncio.ensure_future(zombie.multi([Check("/controller_epoch", 0), SetData("/state", b"zombie again")]))
    await asyncio.sleep(0)
    await successor.multi([SetData("/controller_epoch", b"2", 0), SetData("/state", b"by successor")])
    bench.proxy.release()
    with pytest.raises(MultiFailedError) as failed:
        await late
    assert failed.value.index == 0
    assert isinstance(failed.value.error, BadVersionError)
    assert (await successor.get("/state"))[0] == b"by successor"


async def test_credentials_are_shown_on_every_connection(zookeeper: ZooKeeperForTests) -> None:
    connect = zookeeper.chroot("auth")
    with kazoo_client(zookeeper.connect) as kazoo:
        path = "/" + connect.partition("/")[2]
        kazoo.create(path, b"")
        kazoo.create(f"{path}/secret", b"s", acl=[make_digest_acl("user", "word", all=True)])
    env = real_env()
    async with FaultProxy(zookeeper.port) as proxy:
        through = f"{proxy.connect}/{connect.partition('/')[2]}"
        stranger = await env.connect_coordinator(through, TIMEOUT_MS)
        with pytest.raises(AuthFailedError):
            await stranger.get("/secret")
        assert stranger.state is SessionState.CONNECTED
        known = await aiozk_adapter.connect(
            through,
            TIMEOUT_MS,
            clock=RealClock(),
            network=RealNetwork(),
            rng=env.random,
            access=ZooKeeperAccess((("digest", b"user:word"),)),
        )
        assert (await known.get("/secret"))[0] == b"s"
        seen = states(known)
        proxy.cut(Do.RST)
        await connected(seen)
        assert (await known.get("/secret"))[0] == b"s"
        await stranger.close()
        await known.close()
        with pytest.raises(CoordinatorError):
            await aiozk_adapter.connect(
                through,
                TIMEOUT_MS,
                clock=RealClock(),
                network=RealNetwork(),
                rng=env.random,
                access=ZooKeeperAccess((("no-such", b"x"),)),
            )


async def test_nothing_is_left_open(bench: Bench) -> None:
    """Sessions opened, cut and closed leave no task and no socket behind."""
    before = {task for task in asyncio.all_tasks() if "proxy" not in task.get_name()}
    zk = await bench.session()
    seen = states(zk)
    bench.proxy.cut(Do.FIN)
    await connected(seen)
    await zk.close()
    await until(lambda: not bench.proxy.connections)
    left = {task for task in asyncio.all_tasks() - before if task.get_name() == "zookeeper-session"}
    assert left == set()
