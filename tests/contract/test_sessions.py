"""What the Coordinator seam promises when connections are lost and sessions end, on a real ZooKeeper and on the simulated one."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.coordination.coordinator import (
    Check,
    Coordinator,
    Create,
    Delete,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    SessionState,
    SetData,
)
from tests.contract.rigs import TIMEOUT_MS, Rig, SimRig, states, watcher


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


async def test_all_that_is_under_way_fails_with_the_connection(rig: Rig) -> None:
    zk = await rig.connect(timeout_ms=TIMEOUT_MS)  # that is how long a blocked connection hides its end
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


@pytest.mark.checklist(3)
async def test_expiry_is_told_once_and_is_terminal(rig: Rig, zk: Coordinator) -> None:
    other = await rig.connect("b")
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
async def test_the_lease_runs_out_before_the_server_lets_the_session_go(rig: Rig) -> None:
    zk, other = await rig.connect(timeout_ms=TIMEOUT_MS), await rig.connect("b")
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


async def test_heartbeats_keep_an_idle_session(rig: Rig) -> None:
    timeout_ms = 10_000  # it lives by its heartbeats, although the machine may stand still for seconds
    zk = await rig.connect(timeout_ms=timeout_ms)
    await zk.create("/e", ephemeral=True)
    told: list[SessionState] = []
    zk.on_state(told.append)
    before = rig.pings
    await rig.outlive_a_silent_session(timeout_ms)
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
