"""ZooKeeper's znodes written by hand."""

from __future__ import annotations

import asyncio
import contextlib

from kafkalite.client.async_client import AsyncClient
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.testing.chaos import wait_in_sync
from kafkalite.testing.schedules.stage import Stage, any_controller_within, schedule

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


@schedule("rubbish-znodes")
async def rubbish_znodes(stage: Stage) -> None:
    """A hand writes rubbish into every znode that we read, deletes some, and the controller dies with it in place."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException

    async with AsyncClient.connect(stage.cluster.bootstrap) as client:
        await client.create_topics([NewTopic(_SPOILT, 2, 3, configs={"min.insync.replicas": "2"})])
    await wait_in_sync(stage.cluster, _SPOILT, 3)
    zk = KazooClient(hosts=stage.cluster.zookeeper_connect, timeout=20)
    await asyncio.to_thread(zk.start)
    topic = f"/brokers/topics/{_SPOILT}"
    state = f"{topic}/partitions/0/state"
    kept = [
        (topic, RUBBISH),
        (state, RUBBISH + _STATES),
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
    ]
    made = [
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
        f"/brokers/topics/{_SPOILT}/partitions/" + "9" * 5000,
        "/brokers/topics/not a topic",
        "/brokers/topics/made",
        "/config/topics/made",
        "/brokers/seqid",
    ]

    async def check(what: str, killed: int = -1) -> None:
        for broker_id, node in stage.cluster.nodes.items():
            if not node.running and broker_id != killed:
                stage.notes.append(f"node {broker_id} ended after {what}")
                stage.note(stage.notes[-1] + "\n" + node.log_tail())
                await asyncio.to_thread(stage.cluster.restart, broker_id)
        try:
            took = await stage.progress(100, 20.0)
            if took > 5.0:
                stage.note(f"{what}: {took:.1f} s until it went on")
        except TimeoutError:
            stage.notes.append(f"nothing acknowledged for 20 s after {what}")
            stage.note(stage.notes[-1])

    async def kill_controller(what: str) -> None:
        try:
            async with asyncio.timeout(20):
                broker_id = await asyncio.to_thread(any_controller_within, stage.cluster, 20.0)
        except TimeoutError:
            stage.notes.append(f"no controller within 20 s after {what}")
            stage.note(stage.notes[-1])
            return
        await asyncio.to_thread(stage.cluster.nodes[broker_id].kill)
        await check(what + ", controller killed", broker_id)
        try:
            await asyncio.to_thread(stage.cluster.restart, broker_id)
        except Exception as error:  # noqa: BLE001 - reported, whatever it is
            stage.notes.append(f"node {broker_id} did not start after {what}: {str(error)[-300:]}")
            stage.note(stage.notes[-1])

    try:
        for path, values in kept:
            for number, value in enumerate(values):
                what = f"{path} = {value[:40]!r}"
                try:
                    before = (await asyncio.to_thread(zk.get, path))[0]
                except KazooException:
                    before = None
                try:
                    if before is None:
                        await asyncio.to_thread(zk.create, path, value, makepath=True)
                    else:
                        await asyncio.to_thread(zk.set, path, value)
                except KazooException as error:
                    stage.note(f"{what}: {error!r}")
                    continue
                await asyncio.sleep(0.5 * stage.pace)
                await check(what)
                if path not in ("/cluster/id", "/controller") and number == stage.rng.randrange(len(values)):
                    await kill_controller(what)
                with contextlib.suppress(KazooException):
                    if before is None:
                        await asyncio.to_thread(zk.delete, path)
                    elif path != "/controller" and not path.startswith("/brokers/ids"):
                        await asyncio.to_thread(zk.set, path, before)
            with contextlib.suppress(KazooException):
                data = (await asyncio.to_thread(zk.get, path))[0]
                await asyncio.to_thread(zk.delete, path, recursive=True) if path in (
                    "/controller",
                    "/brokers/ids/1",
                ) else None
                stage.note(f"{path}: done ({len(data)} bytes)")
            await check(f"{path} deleted")
        for path in made:
            for value in stage.rng.sample(RUBBISH, 4):
                what = f"{path} = {value[:40]!r}"
                with contextlib.suppress(KazooException):
                    if await asyncio.to_thread(zk.exists, path):
                        await asyncio.to_thread(zk.set, path, value)
                    else:
                        await asyncio.to_thread(zk.create, path, value, makepath=True)
                await asyncio.sleep(0.3 * stage.pace)
                await check(what)
            stage.note(f"{path}: done")
        await kill_controller("all that rubbish")
        for path in made:
            with contextlib.suppress(KazooException):
                await asyncio.to_thread(zk.delete, path)
        await check("rubbish taken away")
    finally:
        await asyncio.to_thread(zk.stop)
        zk.close()
