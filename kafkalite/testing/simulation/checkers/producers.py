"""What the replicas of a partition know of its producers: any of them may lead next."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.log.partition_log import PartitionLog
from kafkalite.model import NO_OFFSET
from kafkalite.testing.simulation.checkers.cluster import Violation


def check_producers(partition: str, logs: Iterable[tuple[str, PartitionLog]]) -> None:
    """Logs with the same end know the same epoch and last sequence of every producer that they know.

    One may not know a producer at all: its last batch was deleted before the log was copied. Then it takes any sequence.

    Args:
        logs: (node, its log), all with the same end.

    Raises:
        Violation.
    """
    seen: dict[int, tuple[str, tuple[int, int, int]]] = {}
    for node, log in logs:
        for producer_id, entry in log.active_producers().items():
            known = (entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset)
            first_node, first = seen.setdefault(producer_id, (node, known))
            if first != known:
                raise Violation(
                    f"replicas know the same of their producers: {partition}, producer {producer_id}: (epoch, sequence, open "
                    f"transaction) is {first} on {first_node}, {known} on {node}"
                )


def check_ended(replica: str, log: PartitionLog) -> None:
    """A follower that has all, and knows that all is committed, remembers no transaction but those that are open.

    Raises:
        Violation.
    """
    opened = [entry.transaction_first_offset for entry in log.active_producers().values()]
    earliest = min((max(each, log.log_start_offset) for each in opened if each != NO_OFFSET), default=None)
    if log.first_unstable_offset != earliest:
        raise Violation(
            f"a transaction that has ended is forgotten: {replica}: the first of {log.first_unstable_offset}, open is {earliest}"
        )
