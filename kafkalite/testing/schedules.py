"""Fault schedules on real processes, each with its own kind of trouble, under numbered records; then everything is counted.

    python -m kafkalite.testing.schedules suspend-all --seed 7
    python -m kafkalite.testing.schedules --list

`kafkalite.testing.chaos` draws its faults from one bag; here each run is one story (a laptop that slept, a rack that lost
its power, a node in a crash loop). After each: every acknowledged record is there once, where it was acknowledged, and in
order; the replicas are equal to the byte; the cluster is in sync without a hand; no node has ended by itself; no disk is given
up; no node has grown beyond bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.rpc.messages.topics import NewTopic
from kafkalite.testing.chaos import TOPIC, Census, Say, Tally, census, produce, wait_in_sync
from kafkalite.testing.network import NetworkedCluster, VirtualNetwork
from kafkalite.testing.processes import Process, ProcessCluster

PARTITIONS = 6
#: A session short enough for many failovers.
SESSION_S = 3.0
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "replica.lag.time.max.ms": 4_000,
    "controlled.shutdown.max.wait.ms": 5_000,
    "kafka.port": -1,
    "http.port": -1,
}
#: More than any node has been seen to need (about 120 MB), less than a leak would take.
MEMORY_BOUND_BYTES = 400 << 20


@dataclass
class Stage:
    """What a schedule plays on."""

    cluster: ProcessCluster
    rng: random.Random
    say: Say
    tally: Tally
    #: Factor of every length of time; below 1 for a short run.
    pace: float = 1.0
    notes: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        """Tell what is done, and how many records were acknowledged by then."""
        self.say(f"  {what} ({len(self.tally.acked)} acked)")

    async def sleep(self, seconds: float) -> None:
        """So long, times the pace."""
        await asyncio.sleep(seconds * self.pace)

    async def progress(self, count: int = 200, patience_s: float = 90.0) -> float:
        """Wait until so many more records are acknowledged; the seconds it took. Raises TimeoutError."""
        began = time.monotonic()
        goal = len(self.tally.acked) + count
        async with asyncio.timeout(patience_s):
            while len(self.tally.acked) < goal:  # noqa: ASYNC110 - the tally is a plain dict
                await asyncio.sleep(0.02)
        return time.monotonic() - began

    def shuffled(self) -> list[int]:
        """The nodes' ids in random order."""
        return self.rng.sample(sorted(self.cluster.nodes), len(self.cluster.nodes))


def with_children(process: Process) -> list[int]:
    """The pids of a process and of what it has started (`kafkalite zookeeper` runs a JVM)."""
    found = [process.pid]
    for pid in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def stop(process: Process) -> None:
    """SIGSTOP, children included."""
    for pid in with_children(process):
        os.kill(pid, signal.SIGSTOP)


def go_on(process: Process) -> None:
    """SIGCONT, children included."""
    for pid in with_children(process):
        os.kill(pid, signal.SIGCONT)


Schedule = Callable[[Stage], Awaitable[None]]
SCHEDULES: dict[str, Schedule] = {}


def schedule(name: str) -> Callable[[Schedule], Schedule]:
    def add(play: Schedule) -> Schedule:
        SCHEDULES[name] = play
        return play

    return add


# --- everything at once ------------------------------------------------------------------------------------------


@schedule("suspend-all")
async def suspend_all(stage: Stage) -> None:
    """Nodes and ZooKeeper stand still past every session (a laptop that slept), and wake in random order."""
    for _ in range(3):
        processes = [*stage.cluster.nodes.values(), *([stage.cluster.zookeeper] if stage.cluster.zookeeper else [])]
        stage.note("everything stands still")
        for process in stage.rng.sample(processes, len(processes)):
            stop(process)
        await asyncio.sleep(SESSION_S * stage.rng.uniform(1.5, 3.0))
        for process in stage.rng.sample(processes, len(processes)):
            go_on(process)
            await stage.sleep(stage.rng.uniform(0.0, 2.0))
        stage.note(f"going on after {await stage.progress():.1f} s")
        await stage.sleep(3.0)


@schedule("suspend-nodes")
async def suspend_nodes(stage: Stage) -> None:
    """All nodes, not ZooKeeper, stand still past their sessions."""
    for _ in range(3):
        stage.note("all nodes stand still")
        for broker_id in stage.shuffled():
            stop(stage.cluster.nodes[broker_id])
        await asyncio.sleep(SESSION_S * stage.rng.uniform(1.5, 3.0))
        for broker_id in stage.shuffled():
            go_on(stage.cluster.nodes[broker_id])
            await stage.sleep(stage.rng.uniform(0.0, 2.0))
        stage.note(f"going on after {await stage.progress():.1f} s")
        await stage.sleep(3.0)


@schedule("suspend-zookeeper")
async def suspend_zookeeper(stage: Stage) -> None:
    """ZooKeeper stands still for half a minute."""
    assert stage.cluster.zookeeper is not None
    stage.note("ZooKeeper stands still")
    stop(stage.cluster.zookeeper)
    await stage.sleep(30.0)
    go_on(stage.cluster.zookeeper)
    stage.note(f"going on after {await stage.progress():.1f} s")


@schedule("power-loss")
async def power_loss(stage: Stage) -> None:
    """kill -9 to all nodes (every other time to ZooKeeper, too), started again in random order."""
    for number in range(4):
        await _kill_all(stage, zookeeper=number % 2 == 1)
        for broker_id in stage.shuffled():
            stage.cluster.restart(broker_id, wait=False)
            await stage.sleep(stage.rng.uniform(0.0, 4.0))
        await _all_ready(stage)
        stage.note(f"going on after {await stage.progress():.1f} s")
        await stage.sleep(stage.rng.uniform(1.0, 4.0))


async def _kill_all(stage: Stage, *, zookeeper: bool) -> None:
    stage.note("kill -9 to all nodes" + (" and ZooKeeper" if zookeeper else ""))
    for broker_id in stage.shuffled():
        stage.cluster.nodes[broker_id].signal(signal.SIGKILL)
    for node in stage.cluster.nodes.values():
        await asyncio.to_thread(node.kill)
    if zookeeper and stage.cluster.zookeeper is not None:
        stage.cluster.zookeeper.kill()
        await asyncio.to_thread(stage.cluster.start_zookeeper)


async def _all_ready(stage: Stage) -> None:
    for node in stage.cluster.nodes.values():
        if not node.ready:
            await asyncio.to_thread(node.wait_ready)


@schedule("power-loss-one-stays-down")
async def power_loss_one_stays_down(stage: Stage) -> None:
    """kill -9 to all nodes; two are back before anybody's session has ended, and have to go on without the third."""
    for _ in range(4):
        await _kill_all(stage, zookeeper=False)
        *back, last = stage.shuffled()
        stage.note(f"only nodes {back} are started")
        for broker_id in back:
            stage.cluster.restart(broker_id, wait=False)
            await stage.sleep(stage.rng.uniform(0.0, 1.0))
        stage.note(f"going on after {await stage.progress():.1f} s")
        stage.cluster.restart(last, wait=False)
        await _all_ready(stage)
        await wait_in_sync(stage.cluster, TOPIC, 3)


@schedule("power-loss-empty-disk")
async def power_loss_empty_disk(stage: Stage) -> None:
    """kill -9 to all nodes; one comes back, first of all, with an empty disk in the place of its own."""
    for number in range(3):
        await _kill_all(stage, zookeeper=False)
        order = stage.shuffled()
        victim = order[0] if number != 1 else order[-1]
        shutil.rmtree(stage.cluster.directory / f"node-{victim}")
        stage.note(f"the disk of node {victim} is empty; starting {order}")
        for broker_id in order:
            stage.cluster.restart(broker_id, wait=False)
            await stage.sleep(stage.rng.uniform(2.0, 5.0))
        await _all_ready(stage)
        stage.note(f"going on after {await stage.progress():.1f} s")
        await wait_in_sync(stage.cluster, TOPIC, 3)


@schedule("crash-loop")
async def crash_loop(stage: Stage) -> None:
    """One node is killed and started again, over and over, sooner than it can start."""
    victim = stage.rng.choice(sorted(stage.cluster.nodes))
    for seconds in (0.5, 1.5):
        stage.note(f"node {victim} in a crash loop of {seconds} s")
        until = time.monotonic() + 20 * stage.pace
        before = len(stage.tally.acked)
        while time.monotonic() < until:
            await asyncio.to_thread(stage.cluster.nodes[victim].kill)
            stage.cluster.restart(victim, wait=False)
            await asyncio.sleep(seconds)
        stage.note(f"{len(stage.tally.acked) - before} records acknowledged during the loop")
        await _all_ready(stage)
        stage.note(f"going on after {await stage.progress():.1f} s")


# --- ZooKeeper's znodes written by hand -------------------------------------------------------------------------

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
        except Exception as error:  # noqa: BLE001
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
                        await asyncio.to_thread(zk.create, path, value, None, False, False, True)
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
                await asyncio.to_thread(zk.delete, path, -1, True) if path in (
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
                        await asyncio.to_thread(zk.create, path, value, None, False, False, True)
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


def any_controller_within(cluster: ProcessCluster, seconds: float) -> int:
    """Like any_controller; raises TimeoutError."""
    from kafkalite.testing.chaos import controller_of

    until = time.monotonic() + seconds
    while (broker_id := controller_of(cluster)) not in cluster.nodes:
        if time.monotonic() > until:
            raise TimeoutError("no controller")
        time.sleep(0.1)
    return broker_id


# --- the network -------------------------------------------------------------------------------------------------


def _network(stage: Stage) -> VirtualNetwork:
    assert isinstance(stage.cluster, NetworkedCluster)
    return stage.cluster.network


def _others(stage: Stage, *but: int) -> list[str]:
    return [f"n{each}" for each in stage.cluster.nodes if each not in but]


async def _heal(stage: Stage) -> None:
    _network(stage).heal()
    stage.note("healed")
    stage.note(f"going on after {await stage.progress():.1f} s")
    took = await wait_in_sync(stage.cluster, TOPIC, 3)
    stage.note(f"in sync after {took:.1f} s")


async def _watch(stage: Stage, what: str, seconds: float, *, serves: bool = True) -> None:
    """Tell how many records are acknowledged while the fault lasts; it is wrong if none are where some should be.

    The fault lasts until some are, whatever the pace: a busy machine takes its time.
    """
    before = len(stage.tally.acked)
    stage.note(what)
    await stage.sleep(seconds)
    if serves:
        try:
            await stage.progress(0 if len(stage.tally.acked) > before else 1)
        except TimeoutError:
            stage.notes.append(f"nothing was acknowledged: {what}")
    stage.note(f"{len(stage.tally.acked) - before} records acknowledged meanwhile")


@schedule("net-node-from-nodes")
async def node_from_nodes(stage: Stage) -> None:
    """Each node in turn is cut off from the other nodes, not from ZooKeeper nor from clients."""
    for broker_id in stage.shuffled():
        _network(stage).part([f"n{broker_id}"], _others(stage, broker_id))
        await _watch(stage, f"node {broker_id} does not reach other nodes", 20.0)
        await _heal(stage)


@schedule("net-node-from-zookeeper")
async def node_from_zookeeper(stage: Stage) -> None:
    """Each node in turn is cut off from ZooKeeper, not from the others."""
    for broker_id in stage.shuffled():
        _network(stage).part([f"n{broker_id}"], ["zk"])
        await _watch(stage, f"node {broker_id} does not reach ZooKeeper", 15.0)
        await _heal(stage)


@schedule("net-one-way")
async def one_way(stage: Stage) -> None:
    """One direction only: a node hears and is not heard, then the other way round; with ZooKeeper, then with nodes."""
    for _ in range(2):
        broker_id = stage.shuffled()[0]
        me = f"n{broker_id}"
        for some, others in (
            ([me], ["zk"]),
            (["zk"], [me]),
            ([me], _others(stage, broker_id)),
            (_others(stage, broker_id), [me]),
            ([me], [""]),
            ([""], [me]),
        ):
            _network(stage).part(some, others, both_ways=False)
            await _watch(stage, f"nothing gets from {some} to {others}", 12.0)
            await _heal(stage)


@schedule("net-controller")
async def controller_cut_off(stage: Stage) -> None:
    """The controller is cut off from everything, then from the nodes alone, then from ZooKeeper alone."""
    for others in (["zk", "", *_others(stage)], _others(stage), ["zk"]):
        broker_id = await asyncio.to_thread(any_controller_within, stage.cluster, 30.0)
        _network(stage).part([f"n{broker_id}"], [each for each in others if each != f"n{broker_id}"])
        await _watch(stage, f"the controller, node {broker_id}, does not reach {others}", 20.0)
        await _heal(stage)


@schedule("net-minute")
async def minute(stage: Stage) -> None:
    """Every node is alone with its clients and ZooKeeper for a minute."""
    for one in (1, 2):
        _network(stage).part([f"n{one}"], [f"n{other}" for other in (2, 3) if other > one])
    await _watch(stage, "no node reaches another", 60.0, serves=False)
    await _heal(stage)


@schedule("net-no-zookeeper")
async def no_zookeeper(stage: Stage) -> None:
    """Nobody reaches ZooKeeper for half a minute."""
    _network(stage).part(["zk"], _others(stage))
    await _watch(stage, "no node reaches ZooKeeper", 30.0)
    await _heal(stage)


@schedule("net-halves")
async def halves(stage: Stage) -> None:
    """Two nodes with ZooKeeper on one side, one with the clients on the other; then one node with ZooKeeper."""
    for broker_id in stage.shuffled()[:2]:
        others = _others(stage, broker_id)
        _network(stage).part([f"n{broker_id}", ""], [*others, "zk"])
        await _watch(stage, f"node {broker_id} and the clients on one side", 15.0, serves=False)
        await _heal(stage)
        _network(stage).part([f"n{broker_id}", "zk"], [*others, ""])
        await _watch(stage, f"node {broker_id} and ZooKeeper on one side", 15.0, serves=False)
        await _heal(stage)


@schedule("net-slow")
async def slow(stage: Stage) -> None:
    """200 ms each way and one frame of twenty lost."""
    network = _network(stage)
    network.delay_s = 0.2
    await _watch(stage, "200 ms", 30.0)
    network.loss = 0.05
    await _watch(stage, "200 ms and 5 % lost", 40.0)
    network.delay_s = 0.0
    await _watch(stage, "5 % lost", 20.0)
    await _heal(stage)


@schedule("net-flapping")
async def flapping(stage: Stage) -> None:
    """A link that comes and goes, sooner than anybody's patience."""
    network = _network(stage)
    until = time.monotonic() + 40 * stage.pace
    stage.note("links come and go")
    while time.monotonic() < until:
        one, other = stage.rng.sample([*_others(stage), "zk", ""], 2)
        network.part([one], [other], both_ways=stage.rng.random() < 0.5)
        await asyncio.sleep(stage.rng.uniform(0.1, 2.5))
        network.heal()
        await asyncio.sleep(stage.rng.uniform(0.0, 1.0))
    await _heal(stage)


# --- the frame ---------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What was found when it was over; `wrong` says what should not be."""

    tally: Tally
    census: Census
    healed_s: float
    peak_memory_bytes: int
    wrong: list[str]


def replica_bytes(cluster: ProcessCluster) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Each partition of the topic, with what each node's segments hold, joined."""
    for partition in range(PARTITIONS):
        name = f"{TOPIC}-{partition}"
        copies = {}
        for broker_id in cluster.nodes:
            (where,) = (cluster.directory / f"node-{broker_id}").glob(f"*/{name}")
            copies[broker_id] = b"".join(path.read_bytes() for path in sorted(where.glob("*.log")))
        yield name, copies


async def _problems(cluster: ProcessCluster, deadline_s: float = 60.0) -> list[str]:
    """What health tells, once it has had time to be well."""
    until = time.monotonic() + deadline_s
    async with AsyncClient.connect(cluster.bootstrap) as client:
        while True:
            found = [f"node {node}: not asked" for node in cluster.nodes]
            with contextlib.suppress(KafkaliteError, OSError):
                answers = await client.health(timeout_s=10)
                found = [f"node {node} gave no health" for node in cluster.nodes.keys() - answers.keys()]
                for node, answer in answers.items():
                    if isinstance(answer, KafkaliteError):
                        found.append(f"node {node}: {answer}")
                    else:
                        # A znode under /config that was put right by hand is read again at the next change of settings.
                        found += [f"node {node}: {each}" for each in answer.problems if each.what != "znode.malformed"]
            if not found or time.monotonic() > until:
                return found
            await asyncio.sleep(0.2)


async def run(
    name: str,
    directory: Path,
    *,
    seed: int,
    rate: float,
    pace: float,
    say: Say,
    make: Callable[[Path], ProcessCluster] | None = None,
) -> Verdict:
    """Cluster, load, the schedule, healing, census."""
    tally = Tally()
    cluster = make(directory) if make is not None else ProcessCluster(directory, nodes=3, settings=SETTINGS)
    with contextlib.ExitStack() as stack:
        if name.startswith("net-"):
            network = stack.enter_context(VirtualNetwork(["n1", "n2", "n3", "zk"]))
            cluster = NetworkedCluster(directory, network, settings=SETTINGS)
        stack.enter_context(cluster)
        async with AsyncClient.connect(cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(cluster, TOPIC, 3)
        stage = Stage(cluster, random.Random(seed), say, tally, pace)
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(cluster, tally, enough, rate=rate))
            await stage.progress()
            try:
                await SCHEDULES[name](stage)
                ended = time.monotonic()
                await wait_in_sync(cluster, TOPIC, 3)
            finally:
                enough.set()
        healed_s = time.monotonic() - ended
        wrong = list(stage.notes)
        wrong += [f"node {each} ended\n{node.log_tail()}" for each, node in cluster.nodes.items() if not node.running]
        wrong += await _problems(cluster)
        found = await census(cluster, tally)
        if not found.clean:
            wrong.append(
                f"lost {found.lost[:10]} twice {found.duplicates[:10]} out of order {found.disordered[:10]} "
                f"moved {found.moved[:10]}"
            )
        wrong += [f"{len(tally.failed)} records failed"] if tally.failed else []
        peak = max(node.peak_memory_bytes() for node in cluster.nodes.values() if node.running)
        if peak > MEMORY_BOUND_BYTES:
            wrong.append(f"a node took {peak >> 20} MB")
        wrong += [
            f"{each}: replicas differ: { {k: len(v) for k, v in copies.items()} }"
            for each, copies in replica_bytes(cluster)
            if len(set(copies.values())) > 1
        ]
        for broker_id in cluster.nodes:
            log = cluster.nodes[broker_id].log_path.read_text(errors="replace")
            wrong += [f"node {broker_id} logged a traceback"] if "Traceback" in log else []
    return Verdict(tally, found, healed_s, peak, wrong)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "listed", is_flag=True, help="Tell which there are.")
@click.option("--seed", default=None, type=int, help="Default: drawn, and printed.")
@click.option("--rate", default=500.0, show_default=True, help="Records a second.")
@click.option("--pace", default=1.0, show_default=True, help="Factor of every length of time.")
@click.option("--keep", default=None, type=click.Path(path_type=Path), help="Leave data and logs here.")
def main(names: tuple[str, ...], listed: bool, seed: int | None, rate: float, pace: float, keep: Path | None) -> None:
    """Play fault schedules, one after the other (default: all)."""
    if listed:
        for name, play in SCHEDULES.items():
            click.echo(f"{name:24}{(play.__doc__ or '').splitlines()[0]}")
        return
    failed = False
    for name in names or SCHEDULES:
        drawn = seed if seed is not None else random.SystemRandom().randrange(10**6)
        click.echo(f"{name}: seed {drawn}")
        with tempfile.TemporaryDirectory(prefix="kafkalite-schedule-") as temporary:
            directory = keep / f"{name}-{drawn}" if keep is not None else Path(temporary)
            verdict = asyncio.run(run(name, directory, seed=drawn, rate=rate, pace=pace, say=click.echo))
        click.echo(
            f"  acked = {len(verdict.tally.acked)}, failed = {len(verdict.tally.failed)}, read = {verdict.census.read}, "
            f"longest silence = {verdict.tally.longest_silence_s:.1f} s, in sync after {verdict.healed_s:.1f} s, "
            f"peak memory = {verdict.peak_memory_bytes >> 20} MB"
        )
        for each in verdict.wrong:
            click.echo(f"  WRONG: {each}")
        failed = failed or bool(verdict.wrong)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
