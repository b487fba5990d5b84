"""The last one standing (KIP-966): processes die, and the last member of the ISR loses its power and is back first."""

from __future__ import annotations

import dataclasses
import errno
import posixpath
import re

import pytest

from kafkalite.testing.simulation.plan import Fault, FaultKind, Plan
from kafkalite.testing.simulation.run import Simulation
from tests.sim.three_nodes import three_nodes


def plan(seed: int, *faults: Fault) -> Plan:
    """Three nodes, three partitions, no flush before an acknowledgement, and these faults."""
    return three_nodes(
        *faults,
        seed=seed,
        flush_before_ack=False,
        log_dirs=("/data1",),
        fault_time_s=20.0,
        settings={"zookeeper.session.timeout.ms": 1_500, "replica.lag.time.max.ms": 2_000},
        topic_settings={"min.insync.replicas": "2"},
        batches_per_s=15.0,
        trims=False,  # its records are not synced, so a loss of all power may lose them
    )


def nodes(seed: int) -> list[str]:
    return [f"node{1 + (seed + number) % 3}" for number in range(3)]


def last_standing(seed: int) -> Plan:
    """Two processes die at once; the third host loses its power and is the first that is back."""
    first, second, last = nodes(seed)
    return plan(
        seed,
        Fault(5.0, FaultKind.CRASH, first, 9.0),
        Fault(5.001, FaultKind.CRASH, second, 9.5 if seed % 2 else 14.0),
        Fault(8.0, FaultKind.POWER, last, 0.3),
    )


def one_by_one(seed: int) -> Plan:
    """As before, but the second dies while the first one's absence is long known, and the last is killed after it is back."""
    first, second, last = nodes(seed)
    return plan(
        seed,
        Fault(3.0, FaultKind.CRASH, first, 12.0),
        Fault(6.0, FaultKind.CRASH, second, 8.0),
        Fault(9.0, FaultKind.POWER, last, 0.3),
        Fault(11.0, FaultKind.CRASH, last, 0.2),
    )


def without_the_controller(seed: int) -> Plan:
    """The last one is the controller as it comes back, and another one is elected while the others return."""
    first, second, last = nodes(seed)
    return plan(
        seed,
        Fault(5.0, FaultKind.CRASH, first, 6.0),
        Fault(5.3, FaultKind.CRASH, second, 7.0),
        Fault(8.0, FaultKind.POWER, last, 0.3),
        Fault(11.2, FaultKind.CRASH, last, 2.0),
        Fault(15.0, FaultKind.POWER, second, 0.2),
    )


def killed_only(seed: int) -> Plan:
    """Nobody loses power: the last one standing leads as soon as it is back, though the others stay away."""
    first, second, last = nodes(seed)
    return plan(
        seed,
        Fault(5.0, FaultKind.CRASH, first, 13.0),
        Fault(5.001, FaultKind.CRASH, second, 13.5),
        Fault(8.0, FaultKind.CRASH, last, 0.3),
    )


STORIES = [last_standing, one_by_one, without_the_controller, killed_only]


@pytest.mark.checklist("F14")
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_nothing_acknowledged_is_lost(story: object, seed: int) -> None:
    assert callable(story)
    result = Simulation(story(seed)).run()
    assert result.violation is None, result.line()


@pytest.mark.parametrize("seed", range(1, 4))
def test_all_lose_their_power_one_after_the_other_comes_back(seed: int) -> None:
    """What was written had reached the disks, which nobody knows for certain: nobody leads until the last one is back and all
    have said how far their logs go. Then the cluster is in sync again without an operator, and nothing is lost."""
    # With each of these seeds no record is younger than flush.ms then.
    faults = [
        Fault(9.5 + number / 1_000, FaultKind.POWER, nodes(seed)[number], 0.5 + 1.5 * number) for number in range(3)
    ]
    drawn = plan(seed, *faults)
    synced = {**drawn.topic_settings, "flush.ms": "200", "flush.messages": "1"}
    seen: list[str] = []
    result = Simulation(dataclasses.replace(drawn, batches_per_s=0.3, topic_settings=synced), watch=seen.append).run()
    assert result.violation is None, result.line()
    leads = [line for line in seen if "replica.leads_after_loss" in line]
    assert len(leads) == 3, leads
    assert sum("logs.doubtful" in line for line in seen) == 3


@pytest.mark.parametrize("seed", range(1, 4))
def test_who_was_killed_only_does_not_wait_for_others(seed: int) -> None:
    seen: list[str] = []
    result = Simulation(killed_only(seed), watch=seen.append).run()
    assert result.violation is None, result.line()
    assert not any("logs.doubtful" in line or "replica.refuses_to_lead" in line for line in seen)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_log_that_cannot_be_opened_at_first_is_waited_for(seed: int) -> None:
    """One error as the eligible replica, which has everything, comes back: its node registered it as missing, so the last one led with what
    its disk had kept, and the eligible one cut its log to that as soon as it was open."""
    _, second, _ = nodes(seed)
    seen: list[str] = []
    simulation = Simulation(one_by_one(seed), watch=seen.append)
    starts = 0
    refused: set[str] = set()

    def refuse(kind: str, path: str) -> None:
        nonlocal starts
        starts += kind == "lock"
        log = posixpath.dirname(path)
        if (
            starts == 2
            and kind == "open"
            and path.endswith(".log")
            and re.search(r"/topic1-\d$", log)
            and log not in refused
        ):
            refused.add(log)
            raise OSError(errno.EIO, "injected", path)

    simulation.world.host(second).disk.was_faulty = True
    simulation.world.host(second).disk.on_operation = refuse
    result = simulation.run()
    assert refused and any("log.opened_again" in line for line in seen)
    assert result.violation is None, result.line()


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_disk_that_does_not_answer_at_first_is_waited_for(seed: int) -> None:
    """As before, but one of the eligible replica's two disks does not answer as its node starts: which logs are on it is not known then."""
    _, second, _ = nodes(seed)
    seen: list[str] = []
    two_disks = dataclasses.replace(one_by_one(seed), log_dirs=("/data1", "/data2"))
    simulation = Simulation(two_disks, watch=seen.append)
    disk = simulation.world.host(second).disk

    def refuse(kind: str, path: str) -> None:
        """Once, at the second start."""
        if kind == "lock" and path.startswith("/data1/") and simulation.world.loop.time() > 5:
            disk.on_operation = lambda kind, path: None
            raise TimeoutError(errno.ETIMEDOUT, "injected", path)

    disk.was_faulty, disk.on_operation = True, refuse
    result = simulation.run()
    assert any("log_dir.online" in line for line in seen)
    assert result.violation is None, result.line()


@pytest.mark.checklist("F28")
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_disk_that_no_node_can_read_at_its_start_is_waited_for(seed: int) -> None:
    """All processes are killed, and start without one of their two disks (a mount, or its rights, are wrong on all hosts). Each of them took the
    disk's logs for lost, so empty ones led on the other disk, and cut the ones that came back with the disk at the next start."""
    killed = [
        Fault(9.0 + number / 1_000, FaultKind.CRASH, each, 3.0 + number) for number, each in enumerate(nodes(seed))
    ]
    again = [Fault(17.0 + number, FaultKind.RESTART, each, 0.3) for number, each in enumerate(nodes(seed))]
    drawn = dataclasses.replace(plan(seed, *killed, *again), log_dirs=("/data1", "/data2"))
    seen: list[str] = []
    simulation = Simulation(drawn, watch=seen.append)

    def refuse(kind: str, path: str) -> None:
        if kind == "lock" and path.startswith("/data1") and 9.0 < simulation.world.loop.time() < 16.5:
            raise PermissionError(errno.EACCES, "injected", path)

    for node in nodes(seed):
        disk = simulation.world.host(node).disk
        disk.was_faulty, disk.on_operation = True, refuse
    result = simulation.run()
    assert sum("log_dir.offline" in line for line in seen) >= 3
    assert result.violation is None, result.line()


@pytest.mark.parametrize("seed", range(1, 4))
def test_an_older_copy_on_another_disk_does_not_lead(seed: int) -> None:
    """A disk is away for a while, and its replicas are recreated on the node's other one. Then all processes are killed, and the node is back
    first, with the first disk and without the other one: it led with logs from before, though nobody had lost any power."""
    first, second, last = nodes(seed)
    faults = (
        Fault(9.0, FaultKind.CRASH, first, 4.0),
        Fault(9.001, FaultKind.CRASH, second, 4.5),
        Fault(9.002, FaultKind.CRASH, last, 0.3),
        Fault(15.0, FaultKind.RESTART, last, 0.3),
    )
    seen: list[str] = []
    simulation = Simulation(dataclasses.replace(plan(seed, *faults), log_dirs=("/data1", "/data2")), watch=seen.append)
    starts = 0

    def refuse(kind: str, path: str) -> None:
        nonlocal starts
        now = simulation.world.loop.time()
        starts += kind == "lock" and path.startswith("/data2/")
        if (2 < now < 9 and path.startswith("/data1")) or (starts > 1 and now < 14.5 and path.startswith("/data2")):
            raise OSError(errno.EIO, "injected", path)

    simulation.world.host(last).disk.was_faulty = True
    simulation.world.host(last).disk.on_operation = refuse
    result = simulation.run()
    assert any("replica.restarted" in line for line in seen) and any("log.twice" in line for line in seen)
    assert result.violation is None, result.line()


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_newer_copy_comes_back_before_a_leader_is_chosen_by_the_older_one(seed: int) -> None:
    """As before, but the two others lose their power, and the disk with the newer copies comes back by `admin disk online`, without a restart:
    it has all that was acknowledged, and nobody else surely has. What it has became strays, and the most complete of the rest led."""
    first, second, last = nodes(seed)
    faults = (
        Fault(9.0, FaultKind.CRASH, last, 0.3),
        Fault(9.001, FaultKind.POWER, first, 6.0),
        Fault(9.002, FaultKind.POWER, second, 6.5),
    )
    seen: list[str] = []
    simulation = Simulation(dataclasses.replace(plan(seed, *faults), log_dirs=("/data1", "/data2")), watch=seen.append)
    starts = 0

    def refuse(kind: str, path: str) -> None:
        nonlocal starts
        now = simulation.world.loop.time()
        starts += kind == "lock" and path.startswith("/data2/")
        if (2 < now < 9 and path.startswith("/data1")) or (starts > 1 and now < 12 and path.startswith("/data2")):
            raise OSError(errno.EIO, "injected", path)

    simulation.world.host(last).disk.was_faulty = True
    simulation.world.host(last).disk.on_operation = refuse
    simulation.world.loop.call_at(12.1, simulation.faults.bring_back, last, context=simulation._outside)
    result = simulation.run()
    assert any("replica.restarted" in line for line in seen) and any("log.twice" in line for line in seen)
    assert result.violation is None, result.line()


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_disk_that_returns_without_its_logs_is_not_waited_for(seed: int) -> None:
    """It did not answer as its node started, so its logs were waited for like those of the others in doubt; and they were still when the disk
    was back, without them. What was written had reached the disks."""
    first, second, last = nodes(seed)
    faults = [
        Fault(9.0 + number / 1_000, FaultKind.POWER, name, 0.5 + 1.5 * number)
        for number, name in enumerate((first, last, second))
    ]
    drawn = plan(seed, *faults)
    synced = {**drawn.topic_settings, "flush.ms": "200", "flush.messages": "1"}
    seen: list[str] = []
    drawn = dataclasses.replace(
        drawn, batches_per_s=0.3, topic_settings=synced, log_dirs=("/data1", "/data2"), fault_time_s=30.0
    )
    simulation = Simulation(drawn, watch=seen.append)
    disk = simulation.world.host(second).disk

    def refuse(kind: str, path: str) -> None:
        """Once, at the second start."""
        if kind == "lock" and path.startswith("/data1/") and simulation.world.loop.time() > 5:
            disk.on_operation = lambda kind, path: None
            for name in disk.peek_names("/data1"):
                if name.startswith("topic1-"):
                    disk.remove_tree(f"/data1/{name}")
            raise TimeoutError(errno.ETIMEDOUT, "injected", path)

    disk.was_faulty, disk.on_operation = True, refuse
    result = simulation.run()
    assert any("log_dir.online" in line for line in seen)
    assert result.violation is None, result.line()
