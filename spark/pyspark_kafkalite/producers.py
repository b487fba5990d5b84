"""The idempotent producers that a worker keeps from task to task.

Brokers remember each producer id for a day, in each partition that it wrote to. With an id for each task a stream of eight tasks and a
batch every ten seconds would leave them 70,000 a day, 28 MB in each partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field
from weakref import WeakKeyDictionary

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from pyspark_kafkalite.clients import LogClient

#: Seconds without a task after which a producer is not used again: below the time for which brokers remember it, whatever they are set to.
KEPT_S = 600.0


@dataclass(slots=True)
class TaskProducer:
    """A producer id with its epoch, and the sequences that come next."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    #: An earlier task has written with it, to its end.
    is_used: bool = False
    used_at: float = 0.0


_kept: WeakKeyDictionary[LogClient, TaskProducer] = WeakKeyDictionary()


def take(client: LogClient, clock: Callable[[], float] = time.monotonic) -> TaskProducer:
    """The producer that the client's last task has left, or a new one. Raises what the client raises."""
    kept = _kept.pop(client, None)
    if kept is not None and clock() - kept.used_at < KEPT_S:
        return kept
    return new(client)


def new(client: LogClient) -> TaskProducer:
    """Raises what the client raises."""
    return TaskProducer(*client.init_producer_id())


def leave(client: LogClient, producer: TaskProducer, clock: Callable[[], float] = time.monotonic) -> None:
    """For the client's next task. Only when all that was sent is acknowledged: else nobody knows the next sequences."""
    producer.is_used, producer.used_at = True, clock()
    _kept[client] = producer
