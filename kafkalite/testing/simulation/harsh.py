"""Plans that are harsher than those that are drawn: more nodes, smaller segments, shorter sessions, several faults within a second."""

from __future__ import annotations

import dataclasses
import random

from kafkalite.testing.simulation.plan import Fault, FaultKind, Plan, draw

#: What may happen at once, by weight.
_AT_ONCE = {
    FaultKind.CRASH: 8, FaultKind.PAUSE: 6, FaultKind.ISOLATE: 4, FaultKind.PARTITION: 4, FaultKind.PARTITION_IN: 5,
    FaultKind.OVERTAKEN: 4, FaultKind.PARTITION_OUT: 5, FaultKind.SLOW: 3, FaultKind.ZK_BLOCK: 5, FaultKind.ZK_SLOW: 5, FaultKind.ZK_EXPIRE: 7,
    FaultKind.ZK_LOSE_REPLY: 7, FaultKind.ZK_DOWN: 3, FaultKind.RESTART: 4, FaultKind.CRASH_ALL: 1, FaultKind.FULL: 4,
    FaultKind.FILE: 3, FaultKind.LATE: 3, FaultKind.POWER_ONE: 3, FaultKind.SETTINGS: 3, FaultKind.VANISH: 1,
}  # fmt: skip
_ROLES = ("leader", "leader", "controller", "controller", "coordinator")
#: Of the faults: more short runs find more than few long ones.
_LONGEST_S = 25.0
_OF_ALL = frozenset({FaultKind.ZK_DOWN, FaultKind.CRASH_ALL, FaultKind.SETTINGS, FaultKind.VANISH})


def draw_harsh(seed: int, only: frozenset[FaultKind] | None = None) -> Plan:
    """The plan of this seed, and more of everything; with `only`, all faults are of these kinds."""
    plan = draw(seed, only)
    time_s = min(plan.fault_time_s, _LONGEST_S)
    source = random.Random(f"{seed}/harsh")
    nodes = max(plan.nodes, source.choice((3, 4, 5, 5, 6, 7)))
    session_ms = source.choice((600, 1_000, 1_500))
    two_disks = source.random() < 0.3 and FaultKind.MOVES not in {fault.kind for fault in plan.faults}
    settings = {
        **plan.settings,
        "zookeeper.session.timeout.ms": session_ms,
        "replica.lag.time.max.ms": session_ms + source.choice((200, 1_000, 3_000)),
        "log.cleaner.backoff.ms": source.choice((200, 1_000)),
        "log.retention.check.interval.ms": source.choice((500, 1_500)),
        "replica.high.watermark.checkpoint.interval.ms": source.choice((200, 2_000)),
    }
    recreates = source.random() < 0.2
    if recreates:  # its groups have one coordinator
        settings["offsets.topic.num.partitions"] = 1
    if memory := random.Random(f"{seed}/memory").choice((0, 0, 0, 60, 100, 300)):  # a few requests of nodes fill it
        # A fetch that waits for records holds its bytes: with one of each fetcher nothing else would come through.
        fetchers = (nodes - 1) * int(str(settings.get("num.replica.fetchers", 1)))
        settings["queued.max.request.bytes"] = memory * max(1, fetchers // 2)
    topic_settings = {**plan.topic_settings, "segment.bytes": str(source.choice((600, 2_048, 8_192)))}
    kinds = [kind for kind in _AT_ONCE if not (plan.flush_before_ack and kind is FaultKind.POWER_ONE)]
    kinds = source.sample(kinds, source.randint(3, len(kinds)))
    names = [f"node{number}" for number in range(1, nodes + 1)]
    faults = [fault for fault in plan.faults if fault.kind is not FaultKind.ZK_AWAY and fault.at_s < time_s]
    for _ in range(source.randint(2, 5)):
        at_s = source.uniform(1.0, time_s)
        for _ in range(source.randint(2, 5)):
            kind = source.choices(kinds, [_AT_ONCE[each] for each in kinds])[0]
            target = "all" if kind in _OF_ALL else source.choice([*names, *_ROLES])
            for_s = source.choice((0.05, 0.5, 1.2, 2.5)) * session_ms / 1000 * source.uniform(0.5, 1.5)
            faults.append(Fault(round(at_s + source.uniform(0, 1.0), 3), kind, target, round(for_s, 3)))
    faults += _draw_later(seed, names, time_s, session_ms / 1000)
    if only is not None:
        faults = [fault for fault in faults if fault.kind in only]
    return dataclasses.replace(
        plan,
        nodes=nodes,
        fault_time_s=time_s,
        settings=settings,
        topic_settings=topic_settings,
        log_dirs=("/data1", "/data2") if two_disks else plan.log_dirs,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        members=source.choice((0, 2, 3)),
        shares=source.choice((0, 2)),
        rolls=source.random() < 0.7,
        recreates=recreates,
        grows=random.Random(f"{seed}/grows").random() < 0.25,
        orders=plan.orders or source.random() < 0.5,
    )


#: Kinds that were added later -> the word of their random source, how many there may be, and how many sessions they may last.
_LATER = {
    FaultKind.ZK_LAG: ("lags", (0, 0, 2, 4, 8), (1.0, 3.0, 8.0)),
    FaultKind.THREADS: ("threads", (0, 0, 0, 1, 3), (0.05, 1.0, 4.0)),
    FaultKind.TAKEN_IN: ("taken in", (0, 0, 1, 2), (0.5, 1.0, 3.0)),
    FaultKind.LIE: ("lies", (0, 0, 1, 2), (0.05, 0.5, 2.5)),
}


def _draw_later(seed: int, names: list[str], time_s: float, session_s: float) -> list[Fault]:
    """From sources of their own: seeds from before there were any stay what they were, apart from these."""
    faults = []
    for kind, (word, counts, sessions) in _LATER.items():
        source = random.Random(f"{seed}/{word}")
        for _ in range(source.choice(counts)):
            for_s = session_s * source.choice(sessions) * source.uniform(0.5, 1.5)
            target = source.choice([*names, *_ROLES])
            faults.append(Fault(round(source.uniform(0.5, time_s), 3), kind, target, round(for_s, 3)))
    return faults
