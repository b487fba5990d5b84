"""ZooKeeper's znodes written by hand."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.cluster_state import any_controller, wait_in_sync
from kafkalite.testing.processes import kazoo_client
from kafkalite.testing.schedules.stage import Stage, schedule

if TYPE_CHECKING:
    from kazoo.client import KazooClient

RUBBISH = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b"{}",
    b'"text"',
    b"-1",
    b"1e999",
    b"9" * 5000,
    b"[" * 100_000,
    b'{"version": 1}',
    b'{"version": "one", "brokerid": "x"}',
    b'{"version": 99, "leader": 1e400, "isr": [1e400]}',
)
_HUGE = 2**70
_STATES = (
    b'{"version":1,"leader":99,"leader_epoch":5,"isr":[99],"controller_epoch":1}',
    b'{"version":1,"leader":1,"leader_epoch":-1,"isr":[1],"controller_epoch":1}',
    b'{"version":1,"leader":1,"leader_epoch":2147483647,"isr":[1,2,3],"controller_epoch":2147483647}',
    b'{"version":1,"leader":1,"leader_epoch":%d,"isr":[1,2,3],"controller_epoch":1}' % _HUGE,
    b'{"version":1,"leader":1,"leader_epoch":0,"isr":[1,2,3],"controller_epoch":0}',
    b'{"version":1,"leader":-1,"leader_epoch":3,"isr":[],"controller_epoch":1}',
    b'{"version":1,"leader":1,"leader_epoch":3,"isr":[1,1,1],"controller_epoch":1}',
    b'{"version":1,"leader":true,"leader_epoch":3,"isr":[true],"controller_epoch":1}',
)
_SPOILT = "spoilt"
_TOPIC = f"/brokers/topics/{_SPOILT}"
#: What is there, and what is written over it.
_KEPT = (
    (_TOPIC, RUBBISH),
    (f"{_TOPIC}/partitions/0/state", RUBBISH + _STATES),
    (
        f"/config/topics/{_SPOILT}",
        (
            *RUBBISH,
            b'{"version":1,"config":{"retention.ms":"x","no.such":"1"}}',
            b'{"version":1,"config":{"retention.ms":5}}',
            b'{"version":1,"config":{"min.insync.replicas":"%d"}}' % _HUGE,
        ),
    ),
    ("/controller", tuple(each for each in RUBBISH if each)),
    ("/brokers/ids/1", RUBBISH),
    ("/cluster/id", RUBBISH),
    ("/latest_producer_id_block", RUBBISH),
)
_EPHEMERAL = ("/controller", "/brokers/ids/1")
#: What is not there, most of it.
_MADE = (
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/admin/delete_topics",
    "/config/brokers/1",
    "/config/brokers/<default>",
    "/config/changes/config_change_9999999990",
    "/config/users/nobody",
    f"/admin/partitions_add/{_SPOILT}/7",
    f"/admin/partitions_remove/{_SPOILT}/1",
    "/admin/partitions_add/no-such/x",
    "/restart_partitions/req-0000000001",
    "/restart_partitions/rubbish",
    "/isr_change_notification/isr_change_0000000001",
    "/log_dir_event_notification/log_dir_event_0000000001",
    "/brokers/ids/rubbish",
    "/brokers/ids/99",
    "/brokers/ids/99999999999999999999",
    "/brokers/ids/" + "9" * 5000,
    f"/admin/partitions_add/{_SPOILT}/" + "9" * 5000,
    f"{_TOPIC}/partitions/" + "9" * 5000,
    "/brokers/topics/not a topic",
    "/brokers/topics/made",
    "/config/topics/made",
    "/brokers/seqid",
)


@schedule("rubbish-znodes")
async def rubbish_znodes(stage: Stage) -> None:
    """A hand writes rubbish into every znode that we read, deletes some, and the controller dies with it in place."""
    async with AsyncClient.connect(stage.cluster.bootstrap) as client:
        await client.create_topics([NewTopic(_SPOILT, 2, 3, configs={"min.insync.replicas": "2"})])
    await wait_in_sync(stage.cluster, _SPOILT, 3)
    with kazoo_client(stage.cluster.zookeeper_connect, session_s=20) as zk:
        hand = _Hand(stage, zk)
        for path, values in _KEPT:
            await hand.spoil(path, values)
        for path in _MADE:
            await hand.make(path)
        await hand.kill_controller("all that rubbish")
        for path in _MADE:
            await hand.delete(path)
        await hand.check("rubbish taken away")


@dataclass
class _Hand:
    """Writes to ZooKeeper, and looks after each change whether the cluster goes on."""

    stage: Stage
    zk: KazooClient

    async def spoil(self, path: str, values: tuple[bytes, ...]) -> None:
        """Write these values, one after the other, in the place of what is there; in the end a session's znode is deleted."""
        from kazoo.exceptions import KazooException

        for number, value in enumerate(values):
            what = f"{path} = {value[:40]!r}"
            try:
                before = await self._put(path, value)
            except KazooException as error:
                self.stage.note(f"{what}: {error!r}")
                continue
            await self.stage.sleep(0.5)
            await self.check(what)
            if path not in ("/cluster/id", "/controller") and number == self.stage.rng.randrange(len(values)):
                await self.kill_controller(what)
            if before is None:
                await self.delete(path)
            elif path not in _EPHEMERAL:
                with contextlib.suppress(KazooException):
                    await asyncio.to_thread(self.zk.set, path, before)
        if path in _EPHEMERAL:
            await self.delete(path)
        self.stage.note(f"{path}: done")
        await self.check(f"{path} deleted" if path in _EPHEMERAL else f"{path} put back")

    async def make(self, path: str) -> None:
        """Write some values there, and leave the last one."""
        from kazoo.exceptions import KazooException

        for value in self.stage.rng.sample(RUBBISH, 4):
            with contextlib.suppress(KazooException):
                await self._put(path, value)
            await self.stage.sleep(0.3)
            await self.check(f"{path} = {value[:40]!r}")
        self.stage.note(f"{path}: done")

    async def _put(self, path: str, value: bytes) -> bytes | None:
        """What was there; None: no such znode. Raises KazooException."""
        from kazoo.exceptions import NoNodeError

        try:
            before: bytes = (await asyncio.to_thread(self.zk.get, path))[0]
        except NoNodeError:
            await asyncio.to_thread(self.zk.create, path, value, makepath=True)
            return None
        await asyncio.to_thread(self.zk.set, path, value)
        return before

    async def delete(self, path: str) -> None:
        """If it is there, and nothing below it."""
        from kazoo.exceptions import KazooException

        with contextlib.suppress(KazooException):
            await asyncio.to_thread(self.zk.delete, path)

    async def check(self, what: str, killed: int = -1) -> None:
        """Every node but `killed` runs, and records are acknowledged, after `what`."""
        for broker_id, node in self.stage.cluster.nodes.items():
            if not node.running and broker_id != killed:
                self.stage.wrong(f"node {broker_id} ended after {what}")
                self.stage.note(node.log_tail())
                await asyncio.to_thread(self.stage.cluster.restart, broker_id)
        try:
            took = await self.stage.progress(100, 20.0)
            if took > 5.0:
                self.stage.note(f"{what}: {took:.1f} s until it went on")
        except TimeoutError:
            self.stage.wrong(f"nothing acknowledged for 20 s after {what}")

    async def kill_controller(self, what: str) -> None:
        """And start it again, with the rubbish in place."""
        cluster = self.stage.cluster
        try:
            broker_id = await asyncio.to_thread(any_controller, cluster, 20.0)
        except TimeoutError:
            self.stage.wrong(f"no controller within 20 s after {what}")
            return
        await asyncio.to_thread(cluster.nodes[broker_id].kill)
        await self.check(what + ", controller killed", broker_id)
        try:
            await asyncio.to_thread(cluster.restart, broker_id)
        except Exception as error:  # noqa: BLE001 - reported, whatever it is
            self.stage.wrong(f"node {broker_id} did not start after {what}: {str(error)[-300:]}")
