"""What simulation has found in the product, each under a plan that brings it out again."""

from __future__ import annotations

import dataclasses
import errno
import re
from functools import partial
from typing import Any

import pytest

from kafkalite.log.returning import Awaited
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulation.plan import LONE, TRIMMED, Fault, FaultKind, Plan
from kafkalite.testing.simulation.plants import PLANTS
from kafkalite.testing.simulation.result import Result
from kafkalite.testing.simulation.run import Simulation
from tests.sim.three_nodes import three_nodes

#: Changes of a plan: one producer, and nobody else.
QUIET: dict[str, Any] = {
    **dict.fromkeys(("consumers", "transactions", "members", "shares", "streams", "wide"), 0),
    **dict.fromkeys(("alters", "recreates", "rolls", "trims", "orders"), False),
    "keyed": "",
    "producers": 1,
    "batches_per_s": 3.0,
}


def plan(*faults: Fault, **changes: Any) -> Plan:
    return dataclasses.replace(three_nodes(*faults, fault_time_s=12.0), **changes)


@pytest.mark.checklist("F28")
def test_a_node_without_one_of_its_disks_does_not_lead_or_follow_with_an_empty_log_while_in_sync() -> None:
    """All nodes crash; one comes back without a disk and was commanded to follow: it made an empty log and was in sync."""
    result = Simulation(
        plan(
            Fault(5.0, FaultKind.CRASH_ALL, "all", 0.7),
            Fault(5.1, FaultKind.DISK, "node1", 3.0),
            Fault(5.101, FaultKind.DISK, "node2", 2.0),
            log_dirs=("/data1", "/data2"),
        )
    ).run()
    assert result.violation is None, result.line()


@pytest.mark.checklist("F28", 93)
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("log_dirs", [("/data1", "/data2"), ("/data1",)])
def test_all_nodes_crash_and_the_first_that_is_back_has_an_empty_disk(seed: int, log_dirs: tuple[str, ...]) -> None:
    """With one of two disks empty it became all that was left of the ISR, and the partitions waited for a hand for ever."""
    faults = [
        Fault(
            3.0 + 4 * number,
            FaultKind.EMPTY_DISK,
            f"node{1 + (number + seed) % 3}",
            (0.3, 2.5, 4.0)[(number + seed) % 3],
        )
        for number in range(3)
    ]
    result = Simulation(plan(*faults, log_dirs=log_dirs, seed=seed, fault_time_s=14.0)).run()
    assert result.violation is None, result.line()


@pytest.mark.checklist("F28")
@pytest.mark.parametrize("at_ms", range(10, 16))
def test_a_topic_that_was_just_created_is_not_lost_with_an_empty_disk(at_ms: int) -> None:
    """All nodes crash between a topic's znode and its states: the first that is back made them, and took its logs for lost."""
    fault = Fault(at_ms / 1_000, FaultKind.EMPTY_DISK, "node3", 3.0)
    directories = ("/data1", "/data2")
    drawn = plan(fault, log_dirs=directories, members=2, transactions=0, keyed="", fault_time_s=6.0)
    result = Simulation(drawn).run()
    assert result.violation is None, result.line()


@pytest.mark.checklist("F5", "F28")
def test_who_does_not_say_whose_life_it_is_is_not_all_that_is_left_of_an_isr() -> None:
    """The node with the empty disk waits for its old registration to end, and answers late; the others have restarted, and
    it, as it seemed, had not: it was made the only one in sync, and the partitions waited for a hand for ever."""
    faults = [
        Fault(3.0, FaultKind.EMPTY_DISK, "node3", 0.273),
        Fault(9.997, FaultKind.EMPTY_DISK, "node3", 0.052),
        Fault(16.251, FaultKind.EMPTY_DISK, "node1", 0.033),
    ]
    result = Simulation(plan(*faults, log_dirs=("/data1",), seed=110, fault_time_s=22.96450589306179)).run()
    assert result.violation is None, result.line()


@pytest.mark.checklist("F14")
@pytest.mark.parametrize("seed", range(1, 5))
def test_checkpoints_torn_by_a_loss_of_power_cut_no_record(seed: int) -> None:
    """A leader-epoch checkpoint that had lost its last digits made recovery cut records that were safe on the disk."""
    nodes = ("node1", "node2", "node3")
    faults = [Fault(2.0 + 1.5 * number, FaultKind.POWER, nodes[number % 3], 0.4) for number in range(7)]
    drawn = plan(*faults, Fault(8.0, FaultKind.CRASH_ALL, "all", 0.3), seed=seed, flush_before_ack=True)
    settings = {**drawn.topic_settings, "log.flush.before.ack": "true"}
    result = Simulation(dataclasses.replace(drawn, topic_settings=settings)).run()
    assert result.violation is None, result.line()


@pytest.mark.checklist(89)
@pytest.mark.checklist(93)
def test_disks_die_and_come_back_without_a_restart() -> None:
    """Replicas move to the other disk without an operator; those that were alone in sync come back with their disk."""
    seen: set[str] = set()
    for seed in range(1, 6):
        faults = [
            Fault(2.0 + number * 1.502 + number % 2 / 1_000, FaultKind.DISK, f"node{1 + (number + seed) % 3}", 0.9)
            for number in range(6)
        ]
        faults += [Fault(4.0, FaultKind.CRASH, "controller", 0.6), Fault(8.2, FaultKind.CRASH, "leader", 0.5)]
        drawn = plan(*sorted(faults, key=lambda fault: fault.at_s), log_dirs=("/data1", "/data2"), seed=seed)
        result = Simulation(drawn, watch=lambda line: seen.update(line.split())).run()
        assert result.violation is None, result.line()
    assert {"log_dir.offline", "restart_request.written", "replica.restarted", "log_dir.online"} <= seen


def suspecting(drawn: Plan, *, timeout_ms: int) -> tuple[Result, list[str]]:
    """A run without violation in which only silence has a node replaced, after `timeout_ms`: sessions and ISRs are patient. And its log."""
    settings = {
        **drawn.settings,
        "zookeeper.session.timeout.ms": 30_000,
        "replica.lag.time.max.ms": 40_000,
        "broker.heartbeat.interval.ms": 50,
        "broker.heartbeat.timeout.ms": timeout_ms,
    }
    seen: list[str] = []
    result = Simulation(dataclasses.replace(drawn, settings=settings), watch=seen.append).run()
    assert result.violation is None, result.line()
    return result, seen


@pytest.mark.checklist(63)
@pytest.mark.parametrize("kind", [FaultKind.PAUSE, FaultKind.PARTITION_OUT])
def test_ten_wrong_suspicions_in_a_row_lose_nothing(kind: FaultKind) -> None:
    """Heartbeats of nodes that live come too late, again and again; their sessions do not end."""
    faults = [Fault(2.0 + 5.0 * number, kind, f"node{1 + number % 3}", 3.2) for number in range(14)]
    drawn = plan(*faults, fault_time_s=75.0, batches_per_s=5.0)
    result, seen = suspecting(drawn, timeout_ms=150)
    suspicions = sum("broker.suspected" in line or "controller.unseated" in line for line in seen)
    assert suspicions >= 10, suspicions
    assert result.stats["acked"] == result.stats["sent"]


@pytest.mark.checklist(63)
def test_a_silent_controller_that_leads_partitions_is_waited_for_once() -> None:
    """Seen with real nodes: its partitions stood still for twice broker.heartbeat.timeout.ms, until another controller, and then until
    that one's patience was over, too."""
    drawn = plan(Fault(1.0, FaultKind.PAUSE, "controller", 3.0), fault_time_s=4.0, batches_per_s=1.0)
    _, seen = suspecting(drawn, timeout_ms=1_000)
    at_s = [float(line.split()[0]) for line in seen if "controller.unseated" in line or "broker.suspected" in line]
    assert at_s[1] - at_s[0] < 0.5, seen


def with_hanging_disks(seed: int) -> tuple[str | None, str]:
    lines: list[str] = []
    faults = [Fault(3.0 + number, FaultKind.HANG, f"node{1 + (number + seed) % 3}", 4.0) for number in range(3)]
    result = Simulation(plan(*faults, seed=seed, log_dirs=("/data1", "/data2")), watch=lines.append).run()
    return result.violation, "\n".join(lines)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_disk_that_did_not_answer_for_a_while_returns_without_a_hand(seed: int) -> None:
    """It was given up after seconds of a busy device, and its partitions had no leader until somebody restarted the node."""
    violation, lines = with_hanging_disks(seed)
    assert violation is None, lines[-3_000:]
    assert "log_dir.offline" in lines and "log_dir.answer_again" in lines


def test_a_disk_that_stays_away_after_it_hung_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Awaited, "after", lambda error: Awaited.OPERATOR)
    assert any(with_hanging_disks(seed)[0] is not None for seed in range(1, 4))


@pytest.mark.checklist("F18")
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("crashed", [("controller", "leader"), ("all",)])
def test_states_that_were_put_back_are_led_in_a_later_epoch(seed: int, crashed: tuple[str, ...]) -> None:
    """The replicas knew a later epoch, refused the earlier one, and nobody led any more: the leader that knew who was in sync had died."""
    kind = FaultKind.CRASH_ALL if crashed == ("all",) else FaultKind.CRASH
    faults = [
        Fault(3.0, FaultKind.PUT_BACK, "all", 6.01),
        Fault(4.0, FaultKind.CRASH, f"node{1 + seed % 3}", 1.0),
        Fault(6.0, FaultKind.CRASH, f"node{1 + (seed + 1) % 3}", 1.0),
        *(Fault(9.0, kind, target, 4.0) for target in crashed),
    ]
    result = Simulation(plan(*faults, seed=seed, orders=False)).run()
    assert result.violation is None, result.line()


class MadeAgain(Simulation):
    """The disk with a follower's replica dies; its leader has deleted the first records, so the recreated replica begins with a fetch out of
    range. The leader hears nothing more of it until it has looked which replicas are in sync."""

    async def main(self) -> None:
        for name in self.nodes:
            self.start_node(name)
        await self.until(self.final.not_ready, 60.0, "all nodes start")
        await self.clients.create_topics(self.new_topics())
        await self.until(self.final.not_converged, 90.0, "new topics come up")
        self._trimming.start(self)
        await self.until(lambda: None if self._trimming.deleted else "nothing is deleted", 30.0, "records are deleted")
        self._trimming.stopping.set()
        await self.until(
            lambda: "it runs" if self.world.host("trimmer").running else None, 30.0, "nothing more is written"
        )
        await self.until(self.final.not_converged, 30.0, "all is committed")
        self.leader = self.plan.node_names[self.zk.states[TRIMMED, 0].leader - 1]
        self.follower = next(name for name in self.nodes if name != self.leader)
        disk = self.world.host(self.follower).disk
        disk.fail(next(each for each in self.plan.log_dirs if f"{TRIMMED}-0" in disk.peek_names(each)))
        await self.until(
            lambda: None if self.is_cut_off else "it is not recreated", 60.0, "its first fetch is out of range"
        )
        for _ in range(
            int(self.plan.settings["replica.lag.time.max.ms"]) // 100
        ):  # twice as long as until the leader looks
            await self.step()
        await self.faults.finish([])
        await self.until(self.final.not_converged, 90.0, "the cluster converges when the faults are over")
        self.final.check()

    leader = follower = ""
    is_cut_off = False

    def _logged(self, seconds: float, process: str, level: str, event: dict[str, Any]) -> None:
        super()._logged(seconds, process, level, event)
        is_out_of_range = event.get("reason") == "outside of the leader's range"
        if is_out_of_range and process.startswith(f"{self.follower}#") and event["partition"] == f"{TRIMMED}-0":
            self.is_cut_off = True
            self.world.network.block(self.follower, self.leader)


def made_again(seed: int) -> Result:
    drawn = plan(seed=seed, producers=0, consumers=0, trims=True, orders=False, log_dirs=("/data1", "/data2"))
    patient = {"broker.heartbeat.timeout.ms": 60_000}  # the silence is no reason to suspect the node
    return MadeAgain(dataclasses.replace(drawn, settings={**drawn.settings, **patient})).run()


@pytest.mark.checklist("F28")
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_replica_that_was_made_again_below_its_leaders_first_record_is_not_in_sync(seed: int) -> None:
    """Its first fetch was out of range. The leader still knew how far the replica on the dead disk had come, and took the empty one into the ISR."""
    result = made_again(seed)
    assert result.violation is None, result.line()


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_leader_that_keeps_what_it_knew_of_replicas_outside_of_the_isr_is_found(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTS["outside"](monkeypatch.setattr)
    violation = made_again(seed).violation
    assert violation is not None and "of the ISR, or an eligible replica, has all that is committed" in violation, (
        violation
    )


@pytest.mark.checklist("F14", "F15", "F28")
@pytest.mark.parametrize("seed", [1, 2, 4])  # with 3 and two disks, nobody takes it in in time
@pytest.mark.parametrize("log_dirs", [("/data1", "/data2"), ("/data1",)])
def test_who_is_taken_in_for_what_was_on_a_replaced_disk_does_not_lead(seed: int, log_dirs: tuple[str, ...]) -> None:
    """The leader's write was under way while the follower registered again, with an empty disk. The leader died, and the empty log led."""
    seen: list[str] = []
    drawn = plan(Fault(2.0, FaultKind.TAKEN_IN, "node3", 2.0), seed=seed, log_dirs=log_dirs, orders=False)
    result = Simulation(drawn, watch=seen.append).run()
    assert result.violation is None, result.line()
    assert any("replica.refuses_to_lead" in line and " node3#3 " in line for line in seen)


@pytest.mark.checklist("F14")
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_deleted_key_does_not_come_back_with_an_older_copy(seed: int) -> None:
    """The tombstones had gone when all were in sync: the copy had the values, continued behind the tombstones, and was in sync."""
    drawn = plan(
        Fault(6.002, FaultKind.OLD_COPY, "node1", 10.0),
        Fault(17.5, FaultKind.AWAY, "node2", 0.5),  # keys come to an end
        seed=seed,
        fault_time_s=20.0,
        keyed="compact",
        transactions=2,
        late_batches=False,
        orders=False,
    )
    settings = {
        **drawn.settings,
        "transaction.state.log.num.partitions": 2,
        "offsets.topic.num.partitions": 1,
        "log.cleaner.backoff.ms": 1_000,
        "log.retention.check.interval.ms": 1_500,
    }
    result = Simulation(dataclasses.replace(drawn, settings=settings)).run()
    assert result.violation is None, result.line()


def test_a_log_that_is_not_trusted_after_a_failed_fsync_waits_for_an_operator() -> None:
    """The only replica of its partition: `health` names it and what to do, and only then it is opened again."""
    simulation = Simulation(
        plan(
            topics={"topic1": 1, LONE: 1},
            flush_before_ack=True,
            topic_settings={"log.flush.before.ack": "true"},
            fault_time_s=3.0,
            **QUIET,
        )
    )
    failed: list[str] = []

    def fail(disk: SimDisk, kind: str, path: str) -> None:
        if kind == "sync" and f"/{LONE}-0/" in path and path.endswith(".log") and not failed:
            failed.append(path)
            disk.was_faulty = True
            raise OSError(errno.EIO, "injected", path)

    for name in simulation.nodes:
        disk = simulation.world.host(name).disk
        disk.on_operation = partial(fail, disk)
    result = simulation.run()
    assert failed and result.violation is None, result.line()


def test_a_node_that_nobody_answers_stops_at_once() -> None:
    """It asked a controller that it could not reach, for as long as a controlled shutdown may take: 10 s."""
    seen: list[str] = []
    drawn = plan(
        Fault(1.0, FaultKind.PARTITION, "node1", 9.0),
        Fault(1.1, FaultKind.RESTART, "node1", 0.1),
        fault_time_s=7.0,
        settings={
            **plan().settings,
            "zookeeper.session.timeout.ms": 8_000,
            "controlled.shutdown.max.wait.ms": 10_000,
        },
        **QUIET,
    )
    result = Simulation(drawn, watch=seen.append).run()
    assert result.violation is None, result.line()
    stopped = [line for line in seen if "node.stopped" in line and "node1" in line]
    assert float(re.findall(r"seconds=([0-9.]+)", stopped[0])[0]) < 5, stopped[0]
