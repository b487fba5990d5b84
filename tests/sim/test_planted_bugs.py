"""The simulation is worth believing only if it finds bugs: classic ones are planted in the product, and must be caught.

Each is an error that a replicated log of this design has had (docs/invariants.md, known flaws), under a plan that brings it out.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kafkalite.testing.simulated.network import Link
from kafkalite.testing.simulation.plan import LONE, Fault, FaultKind, Plan
from kafkalite.testing.simulation.plants import PLANTS, RARE
from kafkalite.testing.simulation.run import Simulation
from tests.sim.three_nodes import three_nodes

Patch = pytest.MonkeyPatch


def plan(seed: int, *faults: Fault, flush_before_ack: bool = False) -> Plan:
    """Three nodes, three partitions, a fast network, and these faults."""
    return three_nodes(
        *faults,
        seed=seed,
        flush_before_ack=flush_before_ack,
        log_dirs=("/data1",),
        fault_time_s=20.0,
        settings={"zookeeper.session.timeout.ms": 1_500, "replica.lag.time.max.ms": 2_000},
        batches_per_s=15.0,
        transactions=0,
        keyed="",
        members=0,
        shares=0,
        dead_letters=False,
        streams=0,
        wide=0,
        alters=False,
        recreates=False,
        rolls=False,
        trims=False,
        commits=0,
        deletes=0,
        administered=0,
        patience_ms=600_000,
    )


def patient(timeout_ms: int, one: Plan) -> Plan:
    """With this time until a node that does not answer is suspected."""
    return dataclasses.replace(one, settings={**one.settings, "broker.heartbeat.timeout.ms": timeout_ms})


def each_node(kind: FaultKind, for_s: float, every_s: float = 2.5) -> list[Fault]:
    """One node after the other."""
    return [Fault(2.0 + every_s * number, kind, f"node{1 + number % 3}", for_s) for number in range(6)]


NODES = ("node1", "node2", "node3")


def with_session(session_ms: int, drawn: Plan) -> Plan:
    """The same plan with another session timeout (and a lag time that fits)."""
    times = {"zookeeper.session.timeout.ms": session_ms, "replica.lag.time.max.ms": session_ms + 500}
    return dataclasses.replace(drawn, settings={**drawn.settings, **times})


def with_kafka(drawn: Plan) -> Plan:
    """The same plan with a Kafka listener, and the topic whose records are deleted."""
    settings = {**drawn.settings, "kafka.port": 9092, "log.flush.offset.checkpoint.interval.ms": 60_000}
    return dataclasses.replace(drawn, settings=settings, trims=True)


def with_transactions(drawn: Plan) -> Plan:
    """The same plan with transactional clients."""
    settings = {
        **drawn.settings,
        "kafka.port": 9092,
        "transaction.state.log.num.partitions": 2,
        "offsets.topic.num.partitions": 1,
        "log.cleaner.backoff.ms": 1_000,
        "log.retention.check.interval.ms": 1_500,
    }
    return dataclasses.replace(drawn, settings=settings, transactions=2, late_batches=False)


def with_small_segments(drawn: Plan) -> Plan:
    """The same plan with topics whose segments are small."""
    return dataclasses.replace(drawn, topic_settings={**drawn.topic_settings, "segment.bytes": "2048"})


def with_recreated_topic(drawn: Plan) -> Plan:
    """The same plan with a topic that is deleted and created again; its groups have one coordinator."""
    settings = {**drawn.settings, "offsets.topic.num.partitions": 1}
    return dataclasses.replace(drawn, settings=settings, recreates=True, orders=False)


def with_drained_nodes(drawn: Plan) -> Plan:
    """The same plan with four nodes of two disks each, which are cordoned and drained."""
    balancer: dict[str, int | str] = {
        "balancer.mode": "on",
        "balancer.interval.ms": 500,
        "balancer.max.moves": 10,
        "balancer.broker.timeout.ms": 0,
    }
    settings = {**drawn.settings, **balancer}
    return dataclasses.replace(
        drawn, nodes=4, log_dirs=("/data1", "/data2"), orders=True, drains=True, settings=settings, fault_time_s=26.0
    )


def with_coordinators_only(drawn: Plan, *, commits: int = 0, deletes: int = 0) -> Plan:
    """The same plan with clients of coordinators, and no others."""
    return dataclasses.replace(
        drawn,
        producers=0,
        consumers=0,
        orders=False,
        commits=commits,
        deletes=deletes,
        administered=0,
    )


BUGS: dict[str, Plan] = {
    # A link so slow that followers learn of a commit long after it.
    "F1": dataclasses.replace(
        plan(1, *each_node(FaultKind.CRASH, 0.3, 2.0)),
        link=Link(latency_min_ns=5_000_000, latency_max_ns=40_000_000),
    ),
    # A controller that is cut off, is replaced, and comes back before its own session has ended, and before it is without
    # its lease.
    "F4": with_session(
        6_000,
        patient(3_000, plan(1, *(Fault(at_s, FaultKind.ISOLATE, "controller", 3.0) for at_s in (7.0, 15.0)))),
    ),
    # The cut-off must be over before the controller suspects a node for it.
    "F8": patient(
        3_000,
        plan(
            1,
            *(Fault(1.0, FaultKind.ZK_SLOW, node, 18.0) for node in NODES),
            *each_node(FaultKind.PARTITION, 2.6, 2.9),
        ),
    ),
    # Every process is killed soon after records were deleted.
    "deleted": with_kafka(
        plan(1, *(Fault(at_s, FaultKind.CRASH_ALL, "all", 1.0) for at_s in (6.0, 14.0))),
    ),
    # A file of the only replica answers an error for a while.
    "copy": dataclasses.replace(
        plan(1, *(Fault(4.001 + 4.0 * n, FaultKind.FILE, NODES[n % 3], 3.0) for n in range(4))),
        topics={"topic1": 1, LONE: 1},
    ),
    # Every replica is moved to the node's other disk, and back.
    "writers": dataclasses.replace(
        plan(1, *(Fault(2.0 + 2.0 * n, FaultKind.MOVES, NODES[n % 3], 0.5) for n in range(8))),
        topics={"topic1": 6, "topic2": 6},
        log_dirs=("/data1", "/data2"),
        settings={**plan(1).settings, "log.flush.offset.checkpoint.interval.ms": 10},
    ),
    # Compaction leaves segments empty before the records in them are deleted.
    "empty": dataclasses.replace(
        with_kafka(plan(1)),
        keyed="compact,delete",
        settings={**with_transactions(plan(1)).settings, "log.retention.check.interval.ms": 4_000},
    ),
    # Segments roll often, and hosts lose what they have not synced.
    "txnindex": with_small_segments(
        with_transactions(plan(1, *each_node(FaultKind.POWER, 0.5), flush_before_ack=True))
    ),
    # A disk has lost the end of a closed segment together with the power; the others die when its host is in sync again.
    "lie": dataclasses.replace(
        with_small_segments(
            plan(
                1,
                Fault(6.0, FaultKind.LIE, NODES[0], 0.3),
                *(Fault(12.0 + 0.5 * number, FaultKind.CRASH, node, 3.0) for number, node in enumerate(NODES[1:])),
            )
        ),
        settings={**plan(1).settings, "log.flush.offset.checkpoint.interval.ms": 500},
    ),
    # A disk has lost the middle of what was flushed since the last checkpoint, and its host is back first. Two are in sync by then.
    "hole": dataclasses.replace(
        with_small_segments(
            plan(
                1,
                Fault(5.0, FaultKind.CRASH, NODES[2], 7.0),
                Fault(8.0, FaultKind.LIE, NODES[0], 2.0),
                Fault(9.5, FaultKind.CRASH, NODES[1], 5.0),
                flush_before_ack=True,
            )
        ),
        settings={
            **plan(1).settings,
            "log.flush.offset.checkpoint.interval.ms": 60_000,
            "replica.high.watermark.checkpoint.interval.ms": 60_000,
        },
    ),
    # Some requests of nodes fill the memory for them; nodes are cut off meanwhile, and dial again.
    "memory": dataclasses.replace(
        plan(1, *each_node(FaultKind.PARTITION_IN, 1.5)),
        topics={"topic1": 6, "topic2": 6},
        settings={**plan(1).settings, "queued.max.request.bytes": 60},
    ),
    # A client gives a sequence to two transactions.
    "ended": with_transactions(plan(1)),
    "vanished": plan(1, Fault(6.0, FaultKind.VANISH, "all", 10.0)),
    # Replicas are moved away from a node while a disk of it is offline; it starts with this disk.
    "disk-away": with_drained_nodes(
        plan(1, *(Fault(3.0 + 5.0 * n, FaultKind.DISK, f"node{1 + n}", 9.0) for n in range(4)))
    ),
    # One is stopped, and its directory copied; two die, one after the other, when it is back; it is killed, and begins with the copy.
    "old-copy": plan(
        1,
        Fault(2.002, FaultKind.OLD_COPY, NODES[0], 10.0),
        Fault(6.0, FaultKind.CRASH, NODES[1], 11.0),
        Fault(9.0, FaultKind.CRASH, NODES[2], 7.0),
    ),
    # It is taken into the ISR for what was on a disk that was replaced meanwhile.
    "taken-in": plan(1, Fault(2.0, FaultKind.TAKEN_IN, NODES[2], 2.0)),
    # Keys are deleted while one is away, each in turn; nothing of them is left elsewhere when it is back.
    "tombstones": dataclasses.replace(
        with_transactions(plan(1, *(Fault(3.0 + 8.0 * n, FaultKind.AWAY, NODES[n], 7.0) for n in range(3)))),
        keyed="compact",
        transactions=4,
        producers=0,
        consumers=0,
        fault_time_s=27.0,
    ),
    # A topic goes and comes back while no node hears ZooKeeper; a node that was not in sync wants to be in sync after that.
    "put-back": dataclasses.replace(
        plan(
            1,
            Fault(2.0, FaultKind.CRASH, NODES[2], 3.0),
            Fault(4.0, FaultKind.ZK_AWAY, "all", 5.0),
            Fault(5.0, FaultKind.VANISH, "all", 0.5),
        ),
        orders=False,
    ),
    # The same, and the controller dies before it has read the states: the next one has nothing to compare them with.
    "put-back-new": dataclasses.replace(
        plan(
            1,
            Fault(2.0, FaultKind.CRASH, NODES[2], 3.0),
            Fault(4.0, FaultKind.ZK_AWAY, "all", 5.0),
            Fault(5.0, FaultKind.VANISH, "all", 0.5),
            Fault(5.2, FaultKind.CRASH, "controller", 9.0),
        ),
        nodes=4,
        topics={"topic1": 4},
        orders=False,
    ),
    # Everything has moved to nodes that ZooKeeper's copy does not name; of partitions with three replicas, one has stayed. Seed 2: those
    # without logs start first.
    "elsewhere": dataclasses.replace(
        plan(2, Fault(2.0, FaultKind.RESTORED, "all", 1.0)), nodes=5, topics={"topic1": 2, LONE: 1}, orders=False
    ),
    # One is copied while its leader dies that has what the next one has compacted.
    "first-copy": dataclasses.replace(
        with_transactions(plan(1, Fault(3.0, FaultKind.FIRST_COPY, NODES[2], 14.0))),
        keyed="compact",
        transactions=4,
        producers=0,
        consumers=0,
        orders=False,
        fault_time_s=26.0,
        settings={**with_transactions(plan(1)).settings, "replica.fetch.max.bytes": 1_000},
    ),
    # Writes of the controller about requests do not arrive.
    "requests": dataclasses.replace(
        plan(1, *(Fault(2.0 + 5.0 * n, FaultKind.LOST_REQUEST, "controller", 0.0) for n in range(3))),
        orders=False,
        grows=True,
    ),
    # Processes die and start while ZooKeeper's answers to them are slow: the controller sees them before they know of it.
    "refused": dataclasses.replace(
        plan(
            1,
            *(Fault(2.0, FaultKind.CRASH, node, 2.0) for node in NODES[:2]),
            *(Fault(2.5, FaultKind.ZK_SLOW, node, 15.0) for node in NODES[:2]),
        ),
        orders=False,
    ),
    "ack": plan(1, *each_node(FaultKind.ISOLATE, 4.0, 5.0)),
    # Some followers are silent for a while; nobody can say so in ZooKeeper.
    "away": plan(1, Fault(3.0, FaultKind.ZK_DOWN, "all", 14.0), *each_node(FaultKind.PARTITION, 2.0)),
    "fsync": plan(1, *(Fault(6.0, FaultKind.POWER, node, 0.5) for node in NODES), flush_before_ack=True),
    # Answers that come later than a producer's patience.
    "F25": dataclasses.replace(plan(1), link=Link(spikes_per_mille=20, spike_ns=15_000_000_000)),
    "F28": dataclasses.replace(
        plan(1, *(Fault(3.0 + 3.001 * number, FaultKind.DISK, NODES[number % 3], 2.0) for number in range(5))),
        log_dirs=("/data1", "/data2"),
    ),
    "C10": plan(1, *each_node(FaultKind.SLOW, 6.0)),
    # Two processes die; the third host loses its power and is back first.
    "ELR": plan(
        1,
        *(Fault(5.0, FaultKind.CRASH, node, 9.0) for node in NODES[:2]),
        Fault(8.0, FaultKind.POWER, NODES[2], 0.3),
    ),
    # Members of a group come and go.
    "owners": dataclasses.replace(plan(1), members=3, orders=False),
    "tasks": dataclasses.replace(plan(1), streams=3, orders=False),
    # One node dies, and the others coordinate without it.
    "internal": dataclasses.replace(plan(1, Fault(6.0, FaultKind.CRASH, NODES[0], 4.0)), members=2, orders=False),
    # A coordinator whose followers do not hear it confirms to leaders that do.
    "shared": dataclasses.replace(plan(1, *each_node(FaultKind.PARTITION, 2.5, 3.0)), shares=2),
    # What several clients send to a node that stands still is received in one turn of its loop.
    "in-place": dataclasses.replace(plan(1, *each_node(FaultKind.PAUSE, 1.0)), wide=4, orders=False),
    # A topic is away while each coordinator looks twice for offsets of deleted topics.
    "missing": dataclasses.replace(
        plan(1, Fault(8.0, FaultKind.VANISH, "all", 118.0)),
        fault_time_s=130.0,
        producers=0,
        consumers=0,
        members=2,
        orders=False,
    ),
    "settings": dataclasses.replace(plan(1), alters=True, orders=False),
    # Coordinators fail, and those after them have segments that roll.
    **dict.fromkeys(
        ("unpruned", "uncompacted"),
        dataclasses.replace(
            with_transactions(plan(1, *each_node(FaultKind.CRASH, 0.6))), members=2, shares=2, rolls=True, orders=False
        ),
    ),
    # Requests of producers that are new everywhere are apart on the network; leaders are alone in sync now and then.
    "first": dataclasses.replace(
        plan(1, *(Fault(2.0 + 1.5 * number, FaultKind.CRASH, node, 0.4) for number in range(12) for node in NODES[1:])),
        link=Link(spikes_per_mille=200, spike_ns=500_000_000),
        life_s=0.5,
        producers=6,
        batches_per_s=60.0,
        record_bytes=1_500,
        orders=False,
    ),
    # Followers of which nobody reads.
    "remembered": with_transactions(plan(1)),
    # Hosts of coordinators lose their power, and answer with a reset when they are back.
    "lost": with_transactions(plan(1, *each_node(FaultKind.POWER, 3.0, 4.0), flush_before_ack=True)),
    # Many groups have offsets of a topic that is deleted and created again.
    **dict.fromkeys(("purge", "spared", "name"), with_recreated_topic(plan(1))),
    # Coordinators fail after a streams group was deleted, and a member had come meanwhile.
    "topology": with_coordinators_only(plan(1, *each_node(FaultKind.CRASH, 1.0, 3.0)), deletes=1),
    **dict.fromkeys(("unstable", "set-back"), with_coordinators_only(plan(1), commits=2)),
    # Commits of a transaction arrive when their producer has given it up.
    "unverified": with_coordinators_only(plan(1, *each_node(FaultKind.LATE, 3.0, 3.0)), commits=2),
    # An administrator sets offsets of a share group, and deletes it at the same time.
    # What the controller has sent to a node that was cut off arrives when it is back in sync. It is not suspected meanwhile.
    "late": patient(20_000, plan(1, *each_node(FaultKind.OVERTAKEN, 4.0, 6.0)[:3])),
    # One dies while two are left, which go on and commit; they die, and it is back before them.
    "ELR-min": plan(
        1,
        Fault(4.0, FaultKind.CRASH, NODES[0], 6.0),
        *(Fault(8.0, FaultKind.CRASH, node, 7.0) for node in NODES[1:]),
    ),
}


_COMPLETE = "a member of the ISR, or an eligible replica, has all that is"
_READABLE = "what was read stays readable"
_DELIVERED = "everything sent is delivered when the faults are over"
_LAST_COPY = "what is sound and the last is never removed"

#: What the simulation says is wrong. Another alarm would be no sign that the bug is found: so each plan needs no second run without the bug.
ALARMS: dict[str, str | tuple[str, ...]] = {
    "F1": _COMPLETE,
    "F4": "only the present controller moves leaders",
    "F8": _COMPLETE,
    "deleted": "deleted records stay deleted",
    "copy": _LAST_COPY,
    "writers": "a disk that does nothing wrong stays in service",
    "empty": "retention removes what is due",
    # An index that is older than its log lacks transactions that were aborted, or has some in the place of later ones.
    "txnindex": ("no record of an aborted transaction is ever visible", "what was committed is visible"),
    "ended": "what was committed is visible",
    "vanished": _LAST_COPY,
    "disk-away": "every request ends when the faults are over",
    "old-copy": _READABLE,
    "taken-in": "an empty replica is not counted in the ISR",
    "tombstones": "a deleted key never returns",
    "put-back": _DELIVERED,
    "put-back-new": _DELIVERED,
    "elsewhere": "one leader per epoch",
    "first-copy": "a deleted key never returns",
    "requests": "the cluster converges when the faults are over",
    "refused": _DELIVERED,
    "ack": _COMPLETE,
    "away": _COMPLETE,
    "fsync": _READABLE,
    "F25": "each record is there once",
    "F28": "the high watermark goes up within an epoch",
    "C10": _COMPLETE,
    "ELR": _READABLE,
    "owners": "has two owners",
    "tasks": "has two owners",
    "internal": "internal topics are whole when the faults are over",
    "shared": "was accepted at",
    "in-place": "what was acknowledged is there at the end",
    "missing": "reads the committed offset 0",
    "settings": "confirmed settings stay",
    "unpruned": "internal topics keep what is needed, and no more",
    "uncompacted": "internal topics keep what is needed, and no more",
    "first": "each producer's records are in the order sent",
    "remembered": "a transaction that has ended is forgotten",
    "lost": "a task met a bug: markers.",
    "purge": "committed offsets stay",
    "spared": "committed offsets stay",
    "name": "offsets are of one topic",
    "topology": "a member of a streams group goes on",
    "unstable": "committed offsets stay",
    "set-back": "committed offsets stay",
    # Those of the producer's next transaction count, or readers of stable offsets wait for one that nobody ends.
    "unverified": "committed offsets",
    "late": "every node knows the cluster as it is",
    "ELR-min": _COMPLETE,
    "lie": "a replica has what its high watermark covers",
    "hole": _COMPLETE,
    "memory": "the cluster converges when the faults are over",
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: Patch) -> None:
    PLANTS[name](monkeypatch.setattr)
    runs = []
    # Whether the error meets its moment is a matter of milliseconds in some plans: a few seeds each.
    for seed in range(1, 17):
        result = Simulation(dataclasses.replace(BUGS[name], seed=seed)).run()
        if result.violation is not None:
            alarms = ALARMS[name]
            alarms = (alarms,) if isinstance(alarms, str) else alarms
            assert any(alarm in str(result.violation) for alarm in alarms), result.violation
            return
        runs.append(result.line())
    pytest.fail("\n".join(runs))


#: Found by scenarios of their own: what they need comes together too rarely in a plan.
DIRECTED = {
    # Decoding takes none of the simulation's time: nothing comes in between.
    "acl-read": "tests/unit/coordination/test_acl_store.py",
    "decided": "tests/unit/kafka/test_uncommitted_decisions.py",
    "notice": "tests/unit/controller/test_isr_notices.py",
    # The next transaction of the same producer ends the one that has no marker.
    "vanished-markers": "tests/unit/kafka/test_partitions_gone.py",
    # Its clients have to reach a coordinator that its followers do not reach any more.
    "replaced": "tests/unit/kafka/test_replaced_coordinators.py",
    # A coordinator has to be replaced and be back while one append waits.
    "reloaded": "tests/unit/kafka/test_stale_coordinators.py",
    # A topic has to be deleted within the second in which its states begin, and their share coordinator to be away then.
    "outlived": "tests/unit/kafka/test_former_topic_states.py",
    # A follower's first fetch has to arrive just before the leader checks which replicas are in sync.
    "outside": "tests/sim/test_found.py",
    "swap": "tests/unit/log/test_compaction_swap.py",
}


def test_every_plant_has_a_plan_or_a_scenario_that_brings_it_out() -> None:
    assert BUGS.keys() | DIRECTED.keys() | RARE == PLANTS.keys()
    for name, path in DIRECTED.items():
        assert f'PLANTS["{name}"]' in Path(path).read_text(), path
