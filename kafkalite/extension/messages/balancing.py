"""How even the load is, what the balancer would move, and how far brokers are that are being drained."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.base import Message


@dataclass(frozen=True, slots=True)
class DescribeBalanceRequest(Message):
    """`moves`: how many moves of a plan to compute, at most 1,000; 0: none. `refresh`: ask the brokers for their load first."""

    moves: int = 0
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class BrokerBalance:
    """`state` active, cordoned or draining. `preferred`: partitions whose preferred leader it is; `leads`: that it leads.

    `size_bytes` and `rate` (bytes/s in and out) count what the assignment gives it; bytes are -1 if unknown. `missing_s`: seconds for which
    it has not been alive, -1 if it is. `leaving`: replicas that are being moved away and are not counted in `replicas`; -1: an older node
    does not say.
    """

    broker_id: BrokerId
    state: str
    rack: str
    replicas: int
    preferred: int
    leads: int
    size_bytes: int
    rate: int
    total_bytes: int = -1
    free_bytes: int = -1
    missing_s: int = -1
    leaving: int = -1


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """`goal`: drain, rack, disk, replicas, leaders, bytes or rate."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]
    goal: str
    reason: str
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class StuckReplica:
    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class DescribeBalanceResponse(Message):
    """`mode`: balancer.mode. `age_ms`: since the brokers were asked, -1: never. `under_way`: partitions that are being moved by anybody.

    `moves`: of the plan; `has_more`: it is longer. `stuck`: replicas that a draining broker cannot get rid of.
    """

    mode: str
    is_even: bool
    tolerance_percent: int
    under_way: int
    age_ms: int = -1
    throttle: int = 0
    max_moves: int = 0
    brokers: tuple[BrokerBalance, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    has_more: bool = False
    stuck: tuple[StuckReplica, ...] = ()
