"""What the controller counts and measures; plain numbers, read by the metrics and the status page (controller design, discussion 1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.telemetry.counters import Timing


@dataclass(slots=True)
class FailoverPhases:
    """The phases of one failover; each `*_ms` counts from `started` (monotonic seconds), -1 where not reached.

    started      the watch fired (a broker's or the controller's znode went); the session timeout lies before that
    detected_ms  it is known who is gone; for a controller: elected
    read_ms      the state znodes concerned have been read
    decided_ms   leaders and ISRs are chosen
    written_ms   ... and durable
    sent_ms      the commands are in the brokers' queues
    acked_ms     every broker that is still alive has answered all of them
    """

    kind: str
    started: float
    partitions: int = 0
    detected_ms: float = -1
    read_ms: float = -1
    decided_ms: float = -1
    written_ms: float = -1
    sent_ms: float = -1
    acked_ms: float = -1


@dataclass(slots=True)
class ControllerStats:
    """Since the process started, over all elected epochs."""

    #: By kind of message: sent and answered, and attempts that failed (no connection, no answer).
    rpcs_sent: Counter[str] = field(default_factory=Counter)
    rpcs_failed: Counter[str] = field(default_factory=Counter)
    #: By kind: reads, writes, transactions, conflicts.
    zk_ops: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    unclean_elections: int = 0
    leader_elections: int = 0
    #: From the arrival of an event until it is handled.
    event_queue: Timing = field(default_factory=Timing)
    queue_size: int = 0
    last_broker_failover: FailoverPhases | None = None
    last_controller_failover: FailoverPhases | None = None
