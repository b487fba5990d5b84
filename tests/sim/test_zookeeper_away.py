"""ZooKeeper is away for long, for everybody or for some: who leads goes on with its followers, and nothing is lost or doubled (ADR 15)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from itertools import pairwise

import pytest

from kafkalite.client.admin.configs import ConfigResource, alter_configs
from kafkalite.env.seams import Env
from kafkalite.env.turns import at_once
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.extension.messages.watching import HealthProblem
from kafkalite.replica import authority
from kafkalite.testing.simulated.zookeeper_tree import ZnodeTree
from kafkalite.testing.simulation.plan import Fault, FaultKind, Plan
from kafkalite.testing.simulation.result import Result
from kafkalite.testing.simulation.run import Simulation
from kafkalite.testing.simulation.workloads.clients import client_of
from tests.sim.three_nodes import three_nodes

NODES = ("node1", "node2", "node3")
#: Faults that no process ends by: without ZooKeeper none could start again, and the ISR cannot shrink.
PASSING = (
    FaultKind.PAUSE, FaultKind.PARTITION, FaultKind.PARTITION_IN, FaultKind.PARTITION_OUT, FaultKind.SLOW, FaultKind.ISOLATE,
)  # fmt: skip
ENDING = (FaultKind.CRASH, FaultKind.RESTART, FaultKind.POWER, FaultKind.DISK, FaultKind.CRASH_ALL)


def plan(seed: int, time_s: float, *faults: Fault, batches_per_s: float = 0.5, flush: bool = False) -> Plan:
    """Three nodes, three partitions, a fast network, and these faults."""
    return three_nodes(
        *sorted(faults, key=lambda fault: fault.at_s),
        seed=seed,
        flush_before_ack=flush,
        log_dirs=("/data1", "/data2"),
        fault_time_s=time_s,
        settings={
            "zookeeper.session.timeout.ms": 3_000,
            "replica.lag.time.max.ms": 5_000,
            "replica.fetch.wait.max.ms": 500,
        },
        batches_per_s=batches_per_s,
        orders=False,
    )


class Watched(Simulation):
    """Remembers when it had how many acknowledgements."""

    def __init__(self, drawn: Plan) -> None:
        super().__init__(drawn)
        self.acked: list[tuple[float, int]] = []

    def check(self) -> None:
        self.acked.append((self.world.loop.time(), self.history.acknowledgements))
        super().check()

    def acked_between(self, start_s: float, end_s: float) -> int:
        within = [count for at, count in self.acked if start_s <= at <= end_s]
        return within[-1] - within[0]

    def longest_silence_s(self, start_s: float, end_s: float) -> float:
        """The longest time in which nothing was acknowledged."""
        changed = [at for (at, count), (_, later) in pairwise(self.acked) if later > count]
        inside = [start_s, *(at for at in changed if start_s < at < end_s), end_s]
        return max(later - at for at, later in pairwise(inside))


def held(result: Result) -> None:
    assert result.violation is None, "\n".join([*result.log[-30:], result.line()])
    assert result.stats["acked"] == result.stats["sent"] > 0


@pytest.mark.timeout(1800)  # a minute of CPU, and other tests beside it
@pytest.mark.checklist(63)
def test_an_hour_without_zookeeper_under_faults_that_pass() -> None:
    """Every write was refused as soon as the leases had run out."""
    away_s = 3_600.0
    faults = [Fault(3.0, FaultKind.ZK_DOWN, "all", away_s)]
    faults += [
        Fault(30.0 + 53.0 * number, PASSING[number % len(PASSING)], NODES[number % 3 - 1], 9.0)
        for number in range(int((away_s - 80.0) / 53.0))
    ]
    drawn = plan(1, away_s + 20.0, *faults, batches_per_s=0.3)
    # An hour is long: what costs half of the CPU, and has nothing to do with ZooKeeper, is left to the other plans.
    rare = {
        "replica.fetch.wait.max.ms": 1_500,
        "replica.high.watermark.checkpoint.interval.ms": 5_000,
        "log.flush.offset.checkpoint.interval.ms": 5_000,
    }
    simulation = Watched(dataclasses.replace(drawn, settings={**drawn.settings, **rare}, alters=False, trims=False))
    held(simulation.run())
    for minute in range(1, 59):
        assert simulation.acked_between(minute * 60.0, minute * 60.0 + 60.0) > 0, f"nothing in minute {minute}"


@pytest.mark.checklist(63)
@pytest.mark.parametrize("seed", range(1, 7))
def test_every_fault_while_zookeeper_is_away_for_all_or_for_some(seed: int) -> None:
    """Also faults that end processes: those wait for ZooKeeper; sessions end at the server or live on, as it comes."""
    source = random.Random(f"{seed}/away")
    away_s = source.choice((40.0, 90.0, 180.0))
    faults = []
    if seed % 3:
        faults.append(Fault(3.0, FaultKind.ZK_DOWN, "all", away_s))
        ended = source.sample(NODES, source.randint(0, 3))
        faults += [Fault(away_s + source.uniform(0.0, 2.9), FaultKind.ZK_EXPIRE, node, 0.1) for node in ended]
    else:  # one or two nodes only: their sessions end, and others are elected
        cut_off = source.sample(NODES, source.randint(1, 2))
        faults += [Fault(3.0 + source.uniform(0, 5), FaultKind.ZK_BLOCK, node, away_s) for node in cut_off]
    kinds = (*PASSING, *ENDING) if seed % 2 else PASSING
    for _ in range(source.randint(4, 10)):
        kind = source.choice(kinds)
        target = "all" if kind is FaultKind.CRASH_ALL else source.choice([*NODES, "leader"])
        faults.append(Fault(source.uniform(2.0, away_s), kind, target, source.choice((0.5, 3.0, 8.0))))
    held(Simulation(plan(seed, away_s + 15.0, *faults, batches_per_s=3.0, flush=True)).run())


@pytest.mark.checklist(63)
@pytest.mark.parametrize("expired", [(), NODES[:1], NODES[1:], NODES])
def test_when_zookeeper_returns_the_service_goes_on(expired: tuple[str, ...]) -> None:
    """Who has lost its session registers again, and others may be elected meanwhile: within a session's time all is well."""
    faults = [Fault(3.0, FaultKind.ZK_DOWN, "all", 60.0)]
    faults += [Fault(62.0, FaultKind.ZK_EXPIRE, node, 0.1) for node in expired]
    simulation = Watched(plan(1, 90.0, *faults, batches_per_s=10.0))
    held(simulation.run())
    start_s = 63.0 - 5.0
    assert simulation.longest_silence_s(5.0, start_s) < 3.0
    assert simulation.longest_silence_s(start_s, 85.0) < 3.0


@pytest.mark.checklist("F13")
def test_a_leader_cut_off_from_zookeeper_and_its_followers_sends_its_clients_away() -> None:
    """Nobody who has heard of the next leader fetches from it; records that it took would be lost (acks=1), or wait."""
    simulation = Watched(plan(1, 40.0, Fault(3.0, FaultKind.ISOLATE, "leader", 30.0), batches_per_s=10.0))
    held(simulation.run())
    assert simulation.longest_silence_s(12.0, 40.0) < 3.0


class Unclean(Simulation):
    """The leader is alone in sync, then cut off from ZooKeeper alone; the topic lets another replica lead, which lacks records."""

    def check(self) -> None:
        """What an unclean election loses is not the question here."""

    def _committed(self, zxid: int, host: str, ops: tuple[object, ...]) -> None:
        """Nor is it who is elected."""

    def led(self) -> tuple[int, int, list[int]]:
        state = json.loads(self._znode("/brokers/topics/topic1/partitions/0/state") or b"{}")
        return state["leader"], state["leader_epoch"], state["isr"]

    async def main(self) -> None:
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, 60.0, "all nodes start")
        await self.clients.create_topics(self.new_topics())
        self.clients.start()
        old, epoch, _ = self.led()
        others = [node for node in self.nodes.values() if node.broker_id != old]
        for other in others:
            self.world.crash(other.name)
        await self.until(lambda: None if self.led()[2] == [old] else "in sync", 30.0, "the others leave the ISR")
        view = next(view for view in self.views() if view.broker == old and view.partition == ("topic1", 0))
        before = view.high_watermark

        def mark() -> int:
            return next(v.high_watermark for v in self.views() if v.broker == old and v.partition == ("topic1", 0))

        await self.until(lambda: None if mark() > before else "nothing", 10.0, "it serves alone")
        self.world.zookeeper.block(f"node{old}")
        for other in others:
            self.start_node(other.name)
        await self.until(lambda: "not yet" if self.led()[0] in (old, -1) else None, 30.0, "another one is elected")
        assert self.led()[1] > epoch
        self.at_election = mark()
        for _ in range(100):
            await self.step()
        self.at_end = mark()


def unclean() -> Unclean:
    drawn = plan(1, 10.0, batches_per_s=10.0)
    settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    simulation = Unclean(dataclasses.replace(drawn, topic_settings={**drawn.topic_settings, **settings}))
    result = simulation.run()
    assert result.violation is None, result.line()
    return simulation


def test_a_leader_alone_in_sync_commits_nothing_when_its_lease_is_over() -> None:
    simulation = unclean()
    assert simulation.at_end == simulation.at_election


def test_without_the_lease_such_a_leader_would_go_on_committing_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "may_commit", lambda leader: True)
    monkeypatch.setattr(authority, "refusal", lambda partition, **_: "")
    simulation = unclean()
    assert simulation.at_end > simulation.at_election


class Emptied(Watched):
    """ZooKeeper comes back without its data (a container without a volume), and later with it."""

    problems: tuple[set[str], ...] = ()

    def _committed(self, zxid: int, host: str, ops: tuple[object, ...]) -> None:
        if self.world.zookeeper.tree is self.kept:
            super()._committed(zxid, host, ops)

    def exchange(self, tree: ZnodeTree) -> None:
        zookeeper = self.world.zookeeper
        for name in self.nodes:
            zookeeper.expire(name)
        zookeeper.stop()
        tree.zxid = max(tree.zxid, zookeeper.tree.zxid)
        zookeeper.tree = tree
        zookeeper.start()

    def told(self) -> tuple[set[str], ...]:
        return tuple({problem.what for problem in at_once(node.node.health.problems())} for node in self.nodes.values())

    async def main(self) -> None:
        self.kept = self.world.zookeeper.tree
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, 60.0, "all nodes start")
        await self.clients.create_topics(self.new_topics())
        await self.until(self.final.not_converged, 90.0, "new topics come up")
        self.clients.start()
        for _ in range(50):
            await self.step()
        self.exchange(ZnodeTree())
        self.emptied_at = self.world.loop.time()
        await self.until(
            lambda: None if all("zookeeper.foreign" in told for told in self.told()) else str(self.told()),
            30.0,
            "every node says so",
        )
        for _ in range(300):
            await self.step()
        self.left = [path for path in ("/controller", "/brokers/ids/1", "/cluster/id") if self._znode(path)]
        self.returned_at = self.world.loop.time()
        self.exchange(self.kept)
        self.clients.stop()
        await self.until(self.clients.not_delivered, 90.0, "everything sent is delivered")
        await self.until(self.final.not_converged, 90.0, "the cluster converges")
        self.problems = self.told()
        self.final.check()


def test_nobody_registers_in_a_zookeeper_that_has_lost_the_clusters_data() -> None:
    """They did, and the next controller announced to the others that there are no topics; health and describe said that all is well."""
    simulation = Emptied(plan(1, 10.0, batches_per_s=5.0))
    held(simulation.run())
    assert simulation.left == []
    assert simulation.longest_silence_s(simulation.emptied_at, simulation.returned_at) < 3.0
    assert simulation.problems == (set(), set(), set())


class Asked(Watched):
    """What nodes say and what they answer while ZooKeeper is away, and when it is back."""

    async def main(self) -> None:
        self.said: list[HealthProblem] = []
        self.answers: list[str] = []
        self.carried_out: list[str] = []
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, 60.0, "all nodes start")
        await self.clients.create_topics(self.new_topics())
        await self.until(self.final.not_converged, 90.0, "new topics come up")
        self.world.zookeeper.stop()
        await self.until(
            lambda: None if all(at_once(node.node.health.problems()) for node in self.nodes.values()) else "silence",
            10.0,
            "all say so",
        )
        for _ in range(100):
            await self.step()
        self.said = [problem for node in self.nodes.values() for problem in at_once(node.node.health.problems())]
        self.serve = [at_once(node.node.replicas.hosted.serves()) for node in self.nodes.values()]
        self.world.start("asking", self._ask, self.client_ended)
        await self.until(lambda: None if len(self.answers) == 3 else str(self.answers), 30.0, "every order is answered")
        self.world.start("patient", self._ask_again, self.client_ended)
        for _ in range(80):
            await self.step()
        self.early = list(self.carried_out)
        self.world.zookeeper.start()
        await self.until(lambda: None if len(self.carried_out) == 3 else "waits", 20.0, "every order is carried out")
        await self.until(
            lambda: "still" if any(at_once(node.node.health.problems()) for node in self.nodes.values()) else None,
            10.0,
            "all is well",
        )
        await self.until(self.final.not_converged, 90.0, "the cluster converges")

    async def _ask(self, env: Env) -> None:
        async with client_of(self.plan, env, "asking") as client:
            made = await client.create_topics([NewTopic("more", 1, 1)], timeout_s=2.0)
            self.answers.append(f"{made[0].error} {made[0].message}")
            gone = await client.delete_topics(["topic1"], timeout_s=2.0)
            self.answers.append(f"{gone[0].error} {gone[0].message}")
            try:  # the protocol has no time-out for it: the broker's own is shorter than ours
                await alter_configs(client, ConfigResource.topic("topic1"), {"retention.ms": "1"})
            except ApiError as refusal:
                self.answers.append(f"{refusal.code.value} {refusal}")

    async def _ask_again(self, env: Env) -> None:
        """Orders whose own time-out lasts until ZooKeeper is back."""
        async with client_of(self.plan, env, "patient") as client:
            _, made, gone = await asyncio.gather(
                alter_configs(client, ConfigResource.topic("topic1"), {"retention.ms": "604800001"}),
                client.create_topics([NewTopic("later", 1, 1)], timeout_s=30.0),
                client.delete_topics(["never"], timeout_s=30.0),
            )
        assert gone[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone
        self.carried_out += ["0", f"{made[0].error}", "0"]


def test_everybody_says_that_zookeeper_is_away_and_every_refused_order_does() -> None:
    lines: list[str] = []
    simulation = Asked(plan(1, 10.0))
    simulation._watch = lines.append
    result = simulation.run()
    assert result.violation is None, result.line()
    assert [problem.what for problem in simulation.said] == ["zookeeper.away"] * 3
    assert all("has not answered for 1" in problem.detail and problem.since_ms for problem in simulation.said)
    assert simulation.serve == [True] * 3  # it is away for all alike: no reason to send clients elsewhere
    assert all("ZooKeeper (zookeeper:2181) has not answered for" in answer for answer in simulation.answers)
    assert {answer.split()[0] for answer in simulation.answers} == {str(ErrorCode.REQUEST_TIMED_OUT)}
    assert simulation.early == [] and simulation.carried_out == ["0"] * 3
    away = [line for line in lines if " zookeeper.away " in line]
    assert len(away) == 3 and all(" warning " in line and "lease_s=" in line for line in away)
    back = [line for line in lines if " zookeeper.back " in line]
    assert len(back) == 3 and all(" info " in line and "away_s=" in line for line in back)
