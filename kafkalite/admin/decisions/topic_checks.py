"""What a new topic, or more partitions of one, must satisfy: names, replica assignments, brokers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from kafkalite.coordination.broker_states import STATES
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import MAX_NAME_LENGTH, BrokerId

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_legal(name: str) -> bool:
    """Whether there can be a topic of this name, its length aside."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    """Kafka's rules for topic names. Raises ApiError INVALID_TOPIC_EXCEPTION, INVALID_REQUEST."""
    if name == "__cluster_metadata":  # KRaft's log: tools that find such a topic take the cluster for one of KRaft
        raise api_error(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    reason = None
    if not name:
        reason = "a topic name must not be empty"
    elif name in (".", ".."):
        reason = "a topic name must not be '.' or '..'"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"a topic name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}"
    elif not is_legal(name):
        reason = f"{name!r}: a topic name consists of ASCII letters and digits, '.', '_' and '-'"
    if reason is not None:
        raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def collision_key(name: str) -> str:
    """Names with the same key would share metric names: '.' and '_' are one there."""
    return name.replace(".", "_")


class TakenNames:
    """Names of topics, by which a new one may be refused."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._by_key: dict[str, str] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        self._names.add(name)
        self._by_key.setdefault(collision_key(name), name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def clashing(self, name: str) -> str | None:
        """A topic whose metrics would have the same name."""
        return self._by_key.get(collision_key(name))


@dataclass(frozen=True, slots=True)
class Existing:
    """What a new topic must not clash with, and where it can live."""

    topics: TakenNames
    #: Every live broker with its rack.
    brokers: Mapping[BrokerId, str | None]
    #: Those that take no new replicas, with their states (`broker.state`).
    closed: Mapping[BrokerId, str] = field(default_factory=dict)
    #: Names of topics whose znodes have vanished: their replicas are kept (ADR 19).
    vanished: frozenset[str] = frozenset()

    @property
    def open(self) -> dict[BrokerId, str | None]:
        """The brokers that take new replicas."""
        return {broker: rack for broker, rack in self.brokers.items() if broker not in self.closed}


def check_partition_count(partitions: int, most: int) -> None:
    """Raises ApiError INVALID_PARTITIONS."""
    if not 1 <= partitions <= most:
        reason = f"{partitions} partitions: not between 1 and {most}"
        raise api_error(ErrorCode.INVALID_PARTITIONS, reason)


def check_assignment(assignment: Mapping[int, Sequence[BrokerId]], brokers: Mapping[BrokerId, str | None]) -> None:
    """A replica assignment given by hand. Raises ApiError INVALID_REPLICA_ASSIGNMENT."""
    reason = None
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        reason = "partitions must be numbered from 0 without a gap"
    elif len({len(replicas) for replicas in assignment.values()}) != 1:
        reason = "all partitions must have the same number of replicas"
    for partition, replicas in sorted(assignment.items()):
        unknown = sorted(set(replicas) - brokers.keys())
        if not replicas:
            reason = reason or f"partition {partition} has no replica"
        elif len(set(replicas)) != len(replicas):
            reason = reason or f"partition {partition} has a broker twice: {list(replicas)}"
        elif unknown:
            reason = reason or f"partition {partition} names brokers that are not alive: {unknown}"
    if reason is not None:
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def closed_text(closed: Mapping[BrokerId, str]) -> str:
    """ "; broker 3 is cordoned": an addition to the message that there are too few brokers."""
    return "".join(f"; broker {broker} is {state}" for broker, state in sorted(closed.items()))


def check_open(brokers: Iterable[BrokerId], closed: Mapping[BrokerId, str]) -> None:
    """Whether all of these take new replicas. Raises ApiError INVALID_REPLICA_ASSIGNMENT."""
    for broker in sorted(set(brokers) & closed.keys()):
        state = closed[broker]
        remedy = f" (kafkalite admin broker uncordon {broker})" if state in STATES else ""
        reason = f"broker {broker} is {state}: it takes no new replicas{remedy}"
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
