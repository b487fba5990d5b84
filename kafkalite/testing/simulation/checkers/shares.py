"""What a share group promises (KIP-932): what is confirmed does not come again, no record is passed over, dead letters arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.record.reader import Record
from kafkalite.testing.simulation.checkers.cluster import Partition, Violation


@dataclass(slots=True)
class _PartitionHistory:
    """Offset -> when it was confirmed (s). `unsure`: it may have been; `spent`: delivered as often as the group allows."""

    accepted: dict[int, float] = field(default_factory=dict)
    rejected: dict[int, float] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    perhaps_rejected: set[int] = field(default_factory=set)
    spent: set[int] = field(default_factory=set)

    def confirmed_s(self, offset: int) -> float | None:
        """The first of both."""
        found = [each[offset] for each in (self.accepted, self.rejected) if offset in each]
        return min(found, default=None)

    def may_be_given_up(self, offset: int) -> bool:
        """Whether somebody has rejected it, or it was delivered too often."""
        return offset in self.rejected or offset in self.perhaps_rejected or offset in self.spent


class ShareHistory:
    """What the members of one group got and acknowledged. Methods raise Violation.

    Args:
        deliveries: how often a record is delivered at most.
    """

    def __init__(self, deliveries: int) -> None:
        self._deliveries = deliveries
        self._partitions: dict[Partition, _PartitionHistory] = {}
        #: Partition -> offsets whose dead letters the cluster says that it dropped.
        self._dropped: dict[Partition, set[int]] = {}
        self.delivered = 0
        self.again = 0

    def _of(self, partition: Partition) -> _PartitionHistory:
        return self._partitions.setdefault(partition, _PartitionHistory())

    def deliver(self, partition: Partition, offset: int, count: int, asked_s: float) -> None:
        """A member got a record for the `count`th time; it had asked at `asked_s`."""
        known = self._of(partition)
        self.delivered += 1
        self.again += count > 1
        if not 1 <= count <= self._deliveries:
            raise Violation(f"{partition} {offset} is delivered for the {count}th time of {self._deliveries}")
        confirmed_s = known.confirmed_s(offset)
        if confirmed_s is not None and confirmed_s < asked_s:
            kind = "accepted" if offset in known.accepted else "rejected"
            raise Violation(
                f"{partition} {offset} was {kind} at {confirmed_s:.3f} s, and comes again, asked for at {asked_s:.3f} s"
            )
        if count == self._deliveries:
            known.spent.add(offset)

    def confirm(self, partition: Partition, offset: int, *, is_rejected: bool) -> None:
        """The cluster confirmed an acknowledgement."""
        known = self._of(partition)
        which = known.rejected if is_rejected else known.accepted
        which.setdefault(offset, asyncio.get_running_loop().time())

    def doubt(self, partition: Partition, offset: int, *, is_rejected: bool) -> None:
        """The outcome of an acknowledgement is not known."""
        known = self._of(partition)
        known.unsure.add(offset)
        if is_rejected:
            known.perhaps_rejected.add(offset)

    def drop(self, partition: Partition, first: int, last: int) -> None:
        """The cluster says that it could not write these dead letters."""
        self._dropped.setdefault(partition, set()).update(range(first, last + 1))

    @property
    def confirmations(self) -> int:
        return sum(len(each.accepted) + len(each.rejected) for each in self._partitions.values())

    @property
    def rejections(self) -> int:
        return sum(len(each.rejected) for each in self._partitions.values())

    def open_offsets(self, partition: Partition, offsets: Iterable[int]) -> list[int]:
        """Those that nobody has acknowledged for good, as far as it is known."""
        known = self._of(partition)
        return [
            offset
            for offset in offsets
            if offset not in known.accepted
            and offset not in known.rejected
            and offset not in known.unsure
            and offset not in known.spent
        ]

    def missing_letter(self, letters: set[tuple[str, int, int]]) -> str | None:
        """A rejected record without a dead letter that should be there: `letters` by topic, partition, offset."""
        for partition, known in self._partitions.items():
            dropped = self._dropped.get(partition, set())
            for offset in known.rejected:
                if (*partition, offset) not in letters and offset not in dropped and offset not in known.accepted:
                    return f"{partition} {offset} was rejected, and has no dead letter"
        return None

    def check_letters(self, letters: set[tuple[str, int, int]]) -> None:
        """Nobody gives up what was accepted."""
        for topic, number, offset in letters:
            known = self._of((topic, number))
            if offset in known.accepted and not known.may_be_given_up(offset):
                raise Violation(f"({topic}, {number}) {offset} was accepted, and has a dead letter")


def letters_of(records: Iterable[Record]) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of the record of each dead letter."""
    for record in records:
        headers = dict(record.headers)
        topic, number, offset = (headers[f"__dlq.errors.{name}"] or b"" for name in ("topic", "partition", "offset"))
        yield topic.decode(), int(number), int(offset)
