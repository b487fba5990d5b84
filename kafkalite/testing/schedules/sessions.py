"""ZooKeeper sessions closed and their znodes removed from outside, while their owners live."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalite.testing.cluster_state import any_controller, wait_in_sync
from kafkalite.testing.numbered_records import TOPIC
from kafkalite.testing.processes import kazoo_client
from kafkalite.testing.schedules.stage import Stage, schedule

if TYPE_CHECKING:
    from kazoo.client import KazooClient

#: ZooKeeperServer's superSecret: a session's password follows from its id.
_SUPER_SECRET = 0xB3415C00
_REASSIGN = "/admin/reassign_partitions"


def password_of(session_id: int) -> bytes:
    """16 bytes, as ZooKeeperServer.generatePasswd makes them (java.util.Random)."""
    state = (session_id ^ _SUPER_SECRET ^ 0x5DEECE66D) & (1 << 48) - 1
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        password += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return password


def end_session(host: str, port: int, session_id: int) -> bool:
    """Another connection takes the session over and closes it in the same breath; False: it was over. Raises OSError."""
    password = password_of(session_id)
    # ConnectRequest: version, last zxid, timeout, session, password, read-only; then closeSession (-11).
    connect = struct.pack("!iqiqi16s?", 0, 0, 3_000, session_id, len(password), password, False)  # noqa: FBT003 - read-only
    close = struct.pack("!ii", 1, -11)
    with socket.create_connection((host, port), timeout=10) as sock:
        sock.sendall(b"".join(len(each).to_bytes(4) + each for each in (connect, close)))
        answer = b""
        while more := sock.recv(4096):
            answer += more
    return len(answer) >= 20 and struct.unpack_from("!q", answer, 12)[0] == session_id


def _owner(zk: KazooClient, path: str) -> int:
    """The session that an ephemeral znode belongs to; 0 if there is none."""
    stat = zk.exists(path)
    return 0 if stat is None else int(stat.ephemeralOwner)


async def _end(stage: Stage, zk: KazooClient, paths: Sequence[str]) -> None:
    """End the sessions that these znodes belong to, at once."""

    def end(path: str) -> str:
        session_id = _owner(zk, path)
        if session_id == 0:
            return f"{path} is not there"
        host, port = stage.cluster.zookeeper_connect.split(":")
        try:
            return "" if end_session(host, int(port), session_id) else f"{path}: the session was over before"
        except OSError as error:
            return f"{path}: {error}"

    for finding in await asyncio.gather(*(asyncio.to_thread(end, path) for path in paths)):
        if finding:
            stage.note(finding)


async def _all_there(stage: Stage, zk: KazooClient) -> None:
    """Wait until every node is registered, and one is the controller: what is ended next is to hit."""
    async with asyncio.timeout(60):
        for path in (*_paths(sorted(stage.cluster.nodes)), "/controller"):
            while not await asyncio.to_thread(_owner, zk, path):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


def _paths(brokers: Sequence[int]) -> list[str]:
    return [f"/brokers/ids/{broker_id}" for broker_id in brokers]


@schedule("sessions-ended", transactions=True)
async def sessions_ended(stage: Stage) -> None:
    """Somebody else closes nodes' sessions: one, two, all at once, the controller's, and again before they are back."""
    with kazoo_client(stage.cluster.zookeeper_connect, session_s=20) as zk:
        for count in (1, 2, 3, 1, 3):
            await _all_there(stage, zk)
            victims = stage.shuffled()[:count]
            stage.note(f"the sessions of nodes {victims} are closed")
            await _end(stage, zk, _paths(victims))
            await stage.going_on()
        for _ in range(3):
            await _all_there(stage, zk)
            stage.note("the controller's session is closed")
            await _end(stage, zk, ["/controller"])
            await stage.going_on()
        stage.note("sessions are closed as soon as they are there")
        for _ in range(12):
            await _end(stage, zk, _paths(stage.shuffled()[: stage.rng.randint(1, 3)]))
            await stage.sleep(stage.rng.uniform(0.0, 1.0))
        await stage.going_on()
        await asyncio.to_thread(any_controller, stage.cluster, 30.0)


@schedule("ephemerals-removed", transactions=True)
async def ephemerals_removed(stage: Stage) -> None:
    """A hand removes /controller and registrations, again and again, one, several, all at once."""
    from kazoo.exceptions import NoNodeError

    def remove(zk: KazooClient, path: str) -> None:
        with contextlib.suppress(NoNodeError):
            zk.delete(path)

    with kazoo_client(stage.cluster.zookeeper_connect, session_s=20) as zk:
        for number in range(12):
            chosen = stage.rng.sample([*_paths(stage.shuffled()), "/controller"], 1 + number % 4)
            stage.note(f"removed: {chosen}")
            for path in chosen:
                await asyncio.to_thread(remove, zk, path)
            if number % 3 == 2:
                await stage.going_on()
            await stage.sleep(stage.rng.uniform(0.1, 2.0))
        stage.note("/controller is removed as soon as it is there")
        for _ in range(30):
            await asyncio.to_thread(remove, zk, "/controller")
            await stage.sleep(stage.rng.uniform(0.0, 0.3))
        await stage.going_on()
        await asyncio.to_thread(any_controller, stage.cluster, 30.0)


@schedule("sessions-ended-in-moves")
async def in_moves(stage: Stage) -> None:
    """The controller's session is closed, with others, in the middle of reassignments, again and again."""
    from kazoo.exceptions import NodeExistsError

    with kazoo_client(stage.cluster.zookeeper_connect, session_s=20) as zk:
        partitions = range(len(json.loads(zk.get(f"/brokers/topics/{TOPIC}")[0])["partitions"]))

        def order(size: int) -> dict[int, list[int]]:
            wanted = {number: stage.shuffled()[:size] for number in partitions}
            rows = [{"topic": TOPIC, "partition": number, "replicas": wanted[number]} for number in wanted]
            zk.create(_REASSIGN, json.dumps({"version": 1, "partitions": rows}).encode())
            return wanted

        async def done(wanted: dict[int, list[int]]) -> None:
            async with asyncio.timeout(90):
                while True:
                    topic = json.loads((await asyncio.to_thread(zk.get, f"/brokers/topics/{TOPIC}"))[0])
                    now = {int(number): replicas for number, replicas in topic["partitions"].items()}
                    moving = topic.get("adding_replicas") or topic.get("removing_replicas")
                    if now == wanted and not moving and not await asyncio.to_thread(zk.exists, _REASSIGN):
                        return
                    await asyncio.sleep(0.1)

        for number in range(8):
            size = 2 if number % 2 == 0 else 3
            try:
                wanted = await asyncio.to_thread(order, size)
            except NodeExistsError:
                stage.wrong("the order before is still there")
                break
            for _ in range(stage.rng.randint(1, 3)):
                await stage.sleep(stage.rng.uniform(0.0, 0.5))
                await _end(stage, zk, ["/controller", *_paths(stage.shuffled()[: stage.rng.randint(0, 2)])])
            try:
                await done(wanted)
            except TimeoutError:
                stage.wrong(f"a reassignment to {size} replicas each did not end")
                break
            stage.note(f"moved to {size} replicas each")
            await stage.going_on()
        await wait_in_sync(stage.cluster, TOPIC, 3)
