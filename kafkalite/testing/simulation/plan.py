"""What a seed means: the cluster, the workload and the schedule of faults. Pure: drawn from a generator, printable."""

from __future__ import annotations

import random
from dataclasses import field
from enum import Enum

from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulated.network import Link


class FaultKind(Enum):
    """What can go wrong. `for` is the fault's duration."""

    CRASH = "crash"  # kill -9, started again after `for`
    POWER = "power"  # power loss, on again and started after `for` (only with log.flush.before.ack)
    RESTART = "restart"  # controlled shutdown, started again after `for`
    PAUSE = "pause"  # SIGSTOP for `for`
    ISOLATE = "isolate"  # from every other host and from ZooKeeper, both ways
    PARTITION = "partition"  # from the other nodes only, both ways
    PARTITION_IN = "partition_in"  # hears nothing from the other nodes, they hear it
    PARTITION_OUT = "partition_out"  # is not heard by the other nodes
    OVERTAKEN = (
        "overtaken"  # as PARTITION; what was sent before arrives seconds after what is sent over new connections
    )
    CLOCK = "clock"  # its wall clock is minutes ahead or behind
    SLOW = "slow"  # its links are slow
    ZK_BLOCK = "zk_block"  # cut off from ZooKeeper only
    ZK_SLOW = "zk_slow"  # its messages to and from ZooKeeper are slow, its session lives on
    ZK_LAG = (
        "zk_lag"  # its ZooKeeper server is behind: it reads the past and hears of changes late. Drawn by harsh plans
    )
    ZK_EXPIRE = "zk_expire"  # its session ends at the server now
    ZK_LOSE_REPLY = "zk_lose_reply"  # its next write is applied but not answered
    ZK_DOWN = "zk_down"  # the whole ZooKeeper service, for everybody
    DISK = "disk"  # one of its two log directories answers EIO; repaired and restarted after `for`
    HANG = "hang"  # one of its two log directories does not answer for `for`; nobody repairs or restarts anything
    CRASH_ALL = "crash_all"  # every node, at the same instant
    POWER_ONE = "power_one"  # power loss without log.flush.before.ack, where another in-sync replica has all: nothing may be lost
    LAST_MAN = (
        "last_man"  # two processes die, the last in sync loses its power and is back first; the others after `for`
    )
    SETTINGS = "settings"  # a setting of a topic is changed, and reset after `for`
    FILE = "file"  # one segment's file answers an error (ENOENT, EIO, no descriptor, no memory) for `for`
    MOVES = "moves"  # every replica of the node is ordered to its other disk at once, and some back after `for`
    VANISH = "vanish"  # a topic's znodes are gone without a request, and come back as they were after `for`
    #: The partitions' states are what they were `for` before: ZooKeeper was restored from a copy. Not drawn: clients may lose what they wrote
    #: between the restore and the election that ends it.
    PUT_BACK = "put_back"
    ZK_AWAY = "zk_away"  # the whole ZooKeeper service, for long
    LATE = "late"  # what clients send to the node takes seconds, long after they have given up and asked again
    #: As POWER_ONE, and a segment that was closed and synced is shorter than it was. Drawn by harsh plans.
    LIE = "lie"
    FULL = "full"  # its disks have no room left for `for`. Not drawn
    #: One of its log directories is copied while it is down, and replaced by the copy `for` later, while it is down again; where another replica has
    #: all. How it went down, and which directory, by the moment: stopped or killed; with two, now and then the other one's copy.
    OLD_COPY = "old_copy"
    #: It is killed while the last replica in sync takes it into the ISR, and is back with an empty disk before ZooKeeper has that write. Then the other
    #: one is away for `for`. Drawn by harsh plans.
    TAKEN_IN = "taken_in"
    #: As CRASH, for longer than deletions are kept in the topic KEYED; keys come to an end there.
    AWAY = "away"
    THREADS = "threads"  # its host starts no thread for `for`: no sync, no work off the loop. Drawn by harsh plans
    #: Not at a time: some batches of a transactional client arrive after the end of the transaction (transaction_workload).
    LATE_BATCH = "late_batch"
    #: Each partition for which there are enough nodes is moved to others, and what was there `for` later is ZooKeeper's copy from before that:
    #: assignments and states, put back while no node runs. Those with the records start last, and an operator moves the partitions there
    #: again. Not drawn: nothing else that is in ZooKeeper is put back.
    RESTORED = "restored"
    #: The leader of the topic KEYED compacts nothing `for`; then the target's disk is replaced, and the leader dies when a value is copied whose
    #: tombstone is not, and which the third replica has removed with it. Keys come to an end as with AWAY. Not drawn.
    FIRST_COPY = "first_copy"
    LOST_REQUEST = "lost_request"  # the next write that carries out a request for partitions does not arrive. Not drawn
    #: As CRASH_ALL, and one of the target's log directories is empty when it starts, `for` before the others. Not drawn: it may have been
    #: the only one in sync.
    EMPTY_DISK = "empty_disk"


KEYED, LEDGER = "keyed", "ledger"
#: A topic of one replica: no other node has the records that its node loses.
LONE = "lone"
#: A topic whose records are deleted (DeleteRecords); it is compacted if there is also the topic KEYED.
TRIMMED = "trimmed"
#: The dead letter topic of the share group.
LETTERS = "dlq.letters"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    `target` is "node1", or a role whose holder is looked up when the time comes: "controller", "leader" (of the
    first topic's partition 0), "coordinator" (of the first partition of groups).
    """

    at_s: float
    kind: FaultKind
    target: str
    for_s: float

    def __str__(self) -> str:
        return f"{self.at_s:6.2f} s  {self.kind.value:14} {self.target:11} for {self.for_s:.2f} s"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is drawn from the seed."""

    seed: int
    nodes: int
    topics: dict[str, int]
    flush_before_ack: bool
    log_dirs: tuple[str, ...]
    fault_time_s: float
    settings: dict[str, int | str]
    topic_settings: dict[str, str]
    link: Link
    producers: int
    batches_per_s: float
    record_bytes: int
    consumers: int
    #: Whether an operator moves partitions about (operator_workload), and the limits of every such order.
    orders: bool
    move_limits: tuple[int, int, int]
    faults: tuple[Fault, ...] = field(repr=False)
    #: Policy of the topic KEYED, which is compacted; "" there is none. Only transactions write to it.
    keyed: str = ""
    #: Transactional producers. They write to LEDGER, too.
    transactions: int = 0
    ledger_partitions: int = 2
    late_batches: bool = False
    #: A producer gives a record up after this time.
    patience_ms: int = 600_000
    #: Both listeners ask for SASL, in sessions of this length (0: without an end); None: they do not.
    reauth_ms: int | None = None
    #: A producer makes way for another one, with an id of its own, after about this time; 0: never.
    life_s: float = 0.0
    #: Whether there is the topic TRIMMED.
    trims: bool = False
    #: Members of a consumer group (group_workload).
    members: int = 0
    #: Members of a share group (workloads.shares), and whether it has a dead letter topic.
    shares: int = 0
    dead_letters: bool = False
    #: Members of a streams group (workloads.streams).
    streams: int = 0
    #: Producers whose requests name many partitions (workloads.wide).
    wide: int = 0
    #: Whether clients change settings of one topic at the same time (workloads.alterations).
    alters: bool = False
    #: Whether there is a topic that is deleted and created again (workloads.recreated).
    recreates: bool = False
    #: Whether there is a topic that gets partitions (workloads.growing).
    grows: bool = False
    #: Whether the segments of the internal topics are small (workloads.internal_topics).
    rolls: bool = False
    #: Nodes and consumers have racks: consumers read from followers (KIP-392).
    racks: bool = False
    #: Whether the operator cordons and drains nodes (and the balancer moves replicas on its own).
    drains: bool = False
    #: Producers that commit offsets in transactions (workloads.committing).
    commits: int = 0
    #: Programs that delete groups which come again (workloads.deleted_groups).
    deletes: int = 0
    #: Share groups whose offsets and topics an administrator changes (workloads.administered).
    administered: int = 0

    @property
    def own_topics(self) -> dict[str, int]:
        """The topics of the transactional producers."""
        if not self.transactions:
            return {}
        return {LEDGER: self.ledger_partitions, **({KEYED: 1} if self.keyed else {})}

    @property
    def all_topics(self) -> dict[str, int]:
        """Every topic that is there from the beginning, and its partitions."""
        return {
            **self.topics,
            **self.own_topics,
            **({TRIMMED: 1} if self.trims else {}),
            **({LETTERS: 2} if self.dead_letters else {}),
        }

    @property
    def node_names(self) -> list[str]:
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    def replicas_of(self, topic: str) -> int:
        """Replicas of each of its partitions."""
        return 1 if topic == LONE else 3

    def lines(self) -> list[str]:
        """For people."""
        topics = ", ".join(f"{name} with {count} partitions" for name, count in self.topics.items())
        shown = " ".join(f"{key}={value}" for key, value in {**self.settings, **self.topic_settings}.items())
        return [
            f"seed {self.seed}: {self.nodes} nodes; {topics}; {len(self.log_dirs)} log dirs; faults for {self.fault_time_s:.0f} s",
            f"  settings   {shown}",
            (
                f"  links      {self.link.latency_min_ns / 1e6:.2f} to {self.link.latency_max_ns / 1e6:.2f} ms, "
                f"{self.link.spikes_per_mille} of 1000 late by up to {self.link.spike_ns / 1e6:.0f} ms"
            ),
            (
                f"  workload   {self.producers} producers, {self.batches_per_s:.0f} sends/s each, "
                f"{self.record_bytes} B; {self.consumers} consumers"
                + (f"; orders within {self.move_limits}" if self.orders else "")
                + ("; nodes are cordoned and drained" if self.drains else "")
                + (f"; {self.transactions} with transactions" if self.transactions else "")
                + (f"; {self.members} members of a group" if self.members else "")
                + (f"; {self.shares} of a share group" if self.shares else "")
                + (" with dead letters" if self.dead_letters else "")
                + (f"; {self.streams} of a streams group" if self.streams else "")
                + (f"; {self.wide} with many partitions" if self.wide else "")
                + (f"; {self.commits} with offsets in transactions" if self.commits else "")
                + ("; groups are deleted" if self.deletes else "")
                + (f"; {self.administered} administered share groups" if self.administered else "")
                + ("; settings are changed at the same time" if self.alters else "")
                + ("; a topic grows" if self.grows else "")
                + ("; internal topics roll" if self.rolls else "")
                + (f"; {KEYED} has {self.keyed}" if self.keyed else "")
                + (f"; records of {TRIMMED} are deleted" if self.trims else "")
                + (f"; producers live for {self.life_s:g} s" if self.life_s else "")
                + (f"; given up after {self.patience_ms} ms" if self.patience_ms < 600_000 else "")
                + (f"; SASL, again after {self.reauth_ms} ms" if self.reauth_ms is not None else "")
            ),
            *(f"  fault      {fault}" for fault in self.faults),
        ]


#: How often each kind is drawn, by weight.
_WEIGHTS = {
    FaultKind.CRASH: 10, FaultKind.POWER: 8, FaultKind.RESTART: 4, FaultKind.PAUSE: 7, FaultKind.ISOLATE: 6,
    FaultKind.PARTITION: 6, FaultKind.PARTITION_IN: 3, FaultKind.PARTITION_OUT: 3, FaultKind.SLOW: 3,
    FaultKind.ZK_BLOCK: 4, FaultKind.ZK_SLOW: 4, FaultKind.ZK_EXPIRE: 5, FaultKind.ZK_LOSE_REPLY: 5, FaultKind.ZK_DOWN: 2,
    FaultKind.CRASH_ALL: 1, FaultKind.DISK: 5,
}  # fmt: skip


def draw(seed: int, only: frozenset[FaultKind] | None = None, *, may_drain: bool = True) -> Plan:
    """The plan of this seed; with `only`, the faults are of these kinds. `may_drain`: the balancer may be on, nodes are drained."""
    source = random.Random(f"{seed}/plan")
    nodes = source.choice((3, 3, 3, 4, 5))
    flush = source.random() < 0.4
    session_ms = source.choice((1_500, 3_000, 6_000))
    settings = _node_settings(source, session_ms)
    topic_settings = _topic_settings(source, flush=flush)
    topics = {f"topic{number}": source.randint(1, 3) for number in range(1, source.choice((2, 2, 3)))}
    slow = source.random() < 0.2
    link = Link(
        latency_min_ns=50_000,
        latency_max_ns=source.choice((200_000, 1_000_000, 5_000_000)) * (4 if slow else 1),
        spikes_per_mille=source.choice((0, 2, 10)),
        spike_ns=source.choice((50, 300, 1_000)) * 1_000_000,
    )
    fault_time_s = source.choice((20.0, 30.0, 45.0))
    log_dirs = ("/data1", "/data2") if source.random() < 0.3 else ("/data1",)
    # From a source of their own: seeds from before there were orders stay what they were.
    choice = random.Random(f"{seed}/orders")
    orders = choice.random() < 0.4
    more = random.Random(f"{seed}/more")
    transactions = more.choice((0, 1, 2))
    keyed = more.choice(("", "compact", "compact,delete")) if transactions else ""
    settings.update(_more_settings(more, transactions=bool(transactions)))
    if only is not None and FaultKind.MOVES in only:
        log_dirs = ("/data1", "/data2")
    producers, batches_per_s = source.choice((1, 2, 3)), source.choice((5.0, 15.0))
    record_bytes, consumers = source.choice((40, 300, 1_500)), source.choice((0, 1, 2))
    faults = _draw_faults(source, nodes, fault_time_s, session_ms / 1000, power=flush, disks=len(log_dirs) > 1)
    extra = _draw_more(more, nodes, fault_time_s, session_ms / 1000, flush=flush, disks=len(log_dirs) > 1, only=only)
    if only is not None:
        faults = tuple(fault for fault in faults if fault.kind in only)
    hangs = _draw_hangs(seed, nodes, fault_time_s, session_ms / 1000) if len(log_dirs) > 1 else ()
    if only is not None and FaultKind.HANG not in only:
        hangs = ()
    overtaken = _draw_overtaken(seed, nodes, fault_time_s, session_ms / 1000, only)
    clocks = _draw_clocks(seed, nodes, fault_time_s, only)
    away = _draw_away(seed, nodes, fault_time_s, only, keyed=bool(keyed))
    patience_ms = more.choice((600_000, 600_000, 600_000, 4_000))
    if more.random() < 0.25:
        topics[LONE] = 1
    security = random.Random(f"{seed}/security")
    reauth_ms = security.choice((0, 3_000, 10_000)) if security.random() < 0.1 else None
    drains = random.Random(f"{seed}/drains")
    is_drained = drains.random() < 0.5 and nodes > 3 and may_drain
    if is_drained:
        orders = True
        settings.update(_balancer_settings(drains))
    shares, dead_letters, streams = _draw_groups(seed)
    coordinated = _draw_coordinated(seed)
    away_s = [fault.at_s + fault.for_s for fault in extra if fault.kind is FaultKind.ZK_AWAY]
    if away_s:
        fault_time_s, batches_per_s = max(away_s) + 5.0, 2.0
    return Plan(
        seed=seed,
        nodes=nodes,
        topics=topics,
        flush_before_ack=flush,
        log_dirs=log_dirs,
        fault_time_s=fault_time_s,
        settings=settings,
        topic_settings=topic_settings,
        link=link,
        producers=producers,
        batches_per_s=batches_per_s,
        record_bytes=record_bytes,
        consumers=consumers,
        orders=orders,
        # The balancer has limits of its own.
        move_limits=choice.choice(((0, 0, 0), (1, 1, 1), (1, 2, 1), (2, 3, 0)))
        if orders and not is_drained
        else (0, 0, 0),
        faults=tuple(sorted((*faults, *extra, *hangs, *overtaken, *clocks, *away), key=lambda fault: fault.at_s)),
        keyed=keyed,
        transactions=transactions,
        late_batches=only is None or FaultKind.LATE_BATCH in only,
        patience_ms=patience_ms,
        reauth_ms=reauth_ms,
        trims=random.Random(f"{seed}/trims").random() < 0.5,
        members=random.Random(f"{seed}/members").choice((0, 0, 2, 3)),
        racks=random.Random(f"{seed}/racks").random() < 0.4,
        drains=is_drained,
        shares=shares,
        dead_letters=dead_letters,
        streams=streams,
        wide=2 if random.Random(f"{seed}/wide").random() < 0.15 else 0,
        alters=random.Random(f"{seed}/alters").random() < 0.2,
        rolls=random.Random(f"{seed}/rolls").random() < 0.3,
        life_s=random.Random(f"{seed}/lives").choice((0.0, 0.0, 0.5, 2.0)),
        commits=coordinated["commits"],
        deletes=coordinated["deletes"],
        administered=coordinated["administered"],
    )


def _draw_coordinated(seed: int) -> dict[str, int]:
    """What tries the coordinators of groups, share groups and transactions. Few seeds have more than one kind of it: it is CPU."""
    source = random.Random(f"{seed}/coordinators")
    kind = source.choice(("", "", "", "commits", "deletes", "administered", "all"))
    counts = {"commits": source.choice((1, 2)), "deletes": 1, "administered": source.choice((1, 2))}
    return {name: count if kind in (name, "all") else 0 for name, count in counts.items()}


def _node_settings(source: random.Random, session_ms: int) -> dict[str, int | str]:
    lag_ms = session_ms + source.choice((500, 2_000, 6_000))
    return {
        "zookeeper.session.timeout.ms": session_ms,
        "replica.lag.time.max.ms": lag_ms,
        "replica.fetch.wait.max.ms": source.choice((50, 200, 500)),
        "replica.fetch.backoff.ms": source.choice((100, 500)),
        "replica.fetch.max.bytes": source.choice((2_000, 50_000, 1_048_576)),
        "replica.socket.timeout.ms": source.choice((2_000, 5_000)),
        "replica.high.watermark.checkpoint.interval.ms": source.choice((500, 5_000)),
        "log.flush.offset.checkpoint.interval.ms": source.choice((1_000, 10_000)),
        "num.replica.fetchers": source.choice((1, 1, 2)),
        "controller.socket.timeout.ms": source.choice((2_000, 5_000)),
        "controlled.shutdown.max.wait.ms": source.choice((500, 3_000)),
    }


def _topic_settings(source: random.Random, *, flush: bool) -> dict[str, str]:
    settings = {
        "min.insync.replicas": "2",
        "segment.bytes": str(source.choice((4_096, 32_768, 1_048_576))),
        "index.interval.bytes": str(source.choice((256, 4_096))),
        "log.flush.before.ack": "true" if flush else "false",
        "file.delete.delay.ms": "1000",
    }
    if not flush and source.random() < 0.3:
        settings["flush.ms"] = "1000"
    return settings


def _draw_hangs(seed: int, nodes: int, time_s: float, session_s: float) -> tuple[Fault, ...]:
    source = random.Random(f"{seed}/hangs")
    count = source.choice((0, 0, 0, 1, 2))
    return tuple(
        Fault(
            round(source.uniform(1.0, time_s), 3),
            FaultKind.HANG,
            source.choice(["leader", *(f"node{number}" for number in range(1, nodes + 1))]),
            round(source.choice((0.7, 3.0, session_s, session_s * 2.5)) * source.uniform(0.5, 1.5), 3),
        )
        for _ in range(count)
    )


def _draw_overtaken(
    seed: int, nodes: int, time_s: float, session_s: float, only: frozenset[FaultKind] | None
) -> tuple[Fault, ...]:
    source = random.Random(f"{seed}/overtaken")
    count = source.choice((0, 0, 0, 0, 1)) if only is None else 4 * (FaultKind.OVERTAKEN in only)
    return tuple(
        Fault(
            round(source.uniform(1.0, time_s), 3),
            FaultKind.OVERTAKEN,
            source.choice(["leader", "controller", *(f"node{number}" for number in range(1, nodes + 1))]),
            round(session_s * source.choice((0.7, 1.5, 2.5)), 3),
        )
        for _ in range(count)
    )


def _draw_clocks(seed: int, nodes: int, time_s: float, only: frozenset[FaultKind] | None) -> tuple[Fault, ...]:
    source = random.Random(f"{seed}/clocks")
    count = source.choice((0, 0, 0, 1, 2)) if only is None else 4 * (FaultKind.CLOCK in only)
    return tuple(
        Fault(
            round(source.uniform(1.0, time_s), 3),
            FaultKind.CLOCK,
            source.choice(
                ["leader", "controller", "coordinator", *(f"node{number}" for number in range(1, nodes + 1))]
            ),
            round(source.uniform(0.5, time_s), 3),
        )
        for _ in range(count)
    )


def _draw_away(
    seed: int, nodes: int, time_s: float, only: frozenset[FaultKind] | None, *, keyed: bool
) -> tuple[Fault, ...]:
    """A node is away for long, or comes back with what it had before."""
    source = random.Random(f"{seed}/away")
    kinds = [FaultKind.OLD_COPY] + [FaultKind.AWAY] * keyed
    count = source.choice((0, 0, 0, 1, 2)) if only is None else 4
    faults = [
        Fault(
            round(source.uniform(1.0, time_s * 0.6), 3),
            source.choice(kinds),
            source.choice(["leader", *(f"node{number}" for number in range(1, nodes + 1))]),
            round(source.uniform(2.0, 15.0), 3),
        )
        for _ in range(count)
    ]
    return tuple(fault for fault in faults if only is None or fault.kind in only)


def _draw_groups(seed: int) -> tuple[int, bool, int]:
    """Members of a share group, whether it has dead letters, and members of a streams group."""
    source = random.Random(f"{seed}/queue")
    shares = source.choice((0, 0, 2, 3))
    return shares, bool(shares) and source.random() < 0.5, source.choice((0, 0, 2, 3))


def _more_settings(more: random.Random, *, transactions: bool) -> dict[str, int | str]:
    settings: dict[str, int | str] = {
        "log.retention.check.interval.ms": more.choice((1_500, 5_000)),
        "log.cleaner.backoff.ms": more.choice((1_000, 4_000)),
        "stray.delete.delay.ms": more.choice((2_000, 5_000)),
    }
    if transactions:
        settings |= {"transaction.state.log.num.partitions": 2, "offsets.topic.num.partitions": 1}
    return settings


def _balancer_settings(drains: random.Random) -> dict[str, int | str]:
    return {
        "balancer.mode": drains.choice(("on", "on", "advise")),
        "balancer.interval.ms": drains.choice((500, 3_000)),
        "balancer.max.moves": drains.choice((1, 2, 10)),
        "balancer.broker.timeout.ms": drains.choice((0, 2_000, 8_000)),
        "leader.imbalance.check.interval.seconds": drains.choice((1, 10)),
    }


def _draw_faults(
    source: random.Random, nodes: int, time_s: float, session_s: float, *, power: bool, disks: bool
) -> tuple[Fault, ...]:
    # A run under few kinds of faults gets deeper into them than one under all (swarm testing).
    kinds = [
        kind for kind in _WEIGHTS if (kind is not FaultKind.POWER or power) and (kind is not FaultKind.DISK or disks)
    ]
    kinds = sorted(source.sample(kinds, source.randint(2, len(kinds))), key=lambda kind: kind.value)
    count = source.randint(2, max(3, round(time_s / 3)))
    names = [f"node{number}" for number in range(1, nodes + 1)]
    faults = []
    for _ in range(count):
        kind = source.choices(kinds, [_WEIGHTS[each] for each in kinds])[0]
        target = source.choice([*names, *names, "leader", "leader", "controller"])
        if kind in (FaultKind.ZK_DOWN, FaultKind.CRASH_ALL):
            target = "all"
        # Shorter and longer than the session timeout, and now and then just a blink.
        for_s = source.choice((0.05, session_s * 0.5, session_s * 1.2, session_s * 2.5)) * source.uniform(0.5, 1.5)
        faults.append(Fault(round(source.uniform(0, time_s), 3), kind, target, round(for_s, 3)))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


#: A run has few of these: each needs its time. They have a random source of their own, so the faults above are unchanged.
_FEW = {
    FaultKind.POWER_ONE: 4, FaultKind.LAST_MAN: 2, FaultKind.SETTINGS: 5, FaultKind.FILE: 3, FaultKind.MOVES: 3,
    FaultKind.VANISH: 1, FaultKind.ZK_AWAY: 1, FaultKind.LATE: 4,
}  # fmt: skip


def _draw_more(
    more: random.Random,
    nodes: int,
    time_s: float,
    session_s: float,
    *,
    flush: bool,
    disks: bool,
    only: frozenset[FaultKind] | None,
) -> tuple[Fault, ...]:
    kinds = [
        kind
        for kind in _FEW
        if (kind not in (FaultKind.POWER_ONE, FaultKind.LAST_MAN) or not flush)
        and (kind is not FaultKind.MOVES or disks)
        and (only is None or kind in only)
    ]
    if not kinds:
        return ()
    faults = []
    for _ in range(more.choice((0, 1, 2, 4)) if only is None else 6):
        kind = more.choices(kinds, [_FEW[each] for each in kinds])[0]
        target = more.choice(["leader", *(f"node{number}" for number in range(1, nodes + 1))])
        if kind in (FaultKind.SETTINGS, FaultKind.VANISH, FaultKind.ZK_AWAY):
            target = "all"
        for_s = more.choice((0.3, session_s, session_s * 2.5)) * more.uniform(0.5, 1.5)
        if kind is FaultKind.ZK_AWAY:
            for_s = more.uniform(60, 180)
        faults.append(Fault(round(more.uniform(1.0, time_s), 3), kind, target, round(for_s, 3)))
    return tuple(faults)
