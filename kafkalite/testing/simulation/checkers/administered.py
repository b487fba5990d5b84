"""What a share group promises beside its administrator (KIP-932): where he says that it begins, it begins, and each record from there on is
delivered; what was acknowledged since then stays."""

from __future__ import annotations

from dataclasses import field

from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulation.checkers.cluster import Partition, Violation
from kafkalite.testing.simulation.checkers.shares import ShareHistory


@dataclass(slots=True)
class Era:
    """The time between two acts of an administrator. `starts`: where partitions begin, if that is known; others begin with their first record."""

    began_s: float
    history: ShareHistory
    starts: dict[Partition, int] = field(default_factory=dict)
    #: What an act that was not answered may still change; records that were there before are no measure then.
    is_vague: bool = False


class AdministeredShares:
    """One group on one topic, whose partitions are called by the topic's id. Methods raise Violation."""

    def __init__(self, deliveries: int) -> None:
        self._deliveries = deliveries
        self.era = Era(0.0, ShareHistory(deliveries))
        #: Partition of the present topic -> the offsets of the records that are there for sure.
        self.written: dict[Partition, list[int]] = {}
        self.delivered = self.confirmed = 0

    def begin(self, now_s: float, starts: dict[Partition, int] | None) -> None:
        """The administrator has acted, and each partition begins at its offset in `starts`, or with its first record; None: nobody knows where."""
        starts_at = {where: at[-1] + 1 for where, at in self.written.items() if at} if starts is None else starts
        self.era = Era(now_s, ShareHistory(self._deliveries), starts_at, is_vague=starts is None)

    def is_another_topic(self) -> None:
        """The topic was deleted, and there is another one of its name."""
        self.written = {}

    def write(self, partition: Partition, first: int, count: int) -> None:
        """These records are there."""
        self.written.setdefault(partition, []).extend(range(first, first + count))

    def deliver(self, partition: Partition, offset: int, count: int, asked_s: float) -> None:
        """A member got a record; the leader that gave it out knew all that had happened until `asked_s`."""
        self.delivered += 1
        if asked_s > self.era.began_s and not self.era.is_vague:
            self.era.history.deliver(partition, offset, count, asked_s)

    def confirm(self, partition: Partition, offset: int, *, is_rejected: bool) -> None:
        """An acknowledgement is stored: so it is of a record that the group was to get."""
        self.confirmed += 1
        start = self.era.starts.get(partition, 0)
        if offset < start and not self.era.is_vague:
            raise Violation(
                f"a share group begins where its administrator says: {partition} at {start}, and {offset} was acknowledged"
            )
        self.era.history.confirm(partition, offset, is_rejected=is_rejected)

    def doubt(self, partition: Partition, offset: int, *, is_rejected: bool) -> None:
        """It is not known whether it is stored."""
        self.era.history.doubt(partition, offset, is_rejected=is_rejected)

    def missing(self) -> str | None:
        """Which records nobody has got since the administrator acted."""
        for partition, offsets in sorted(self.written.items()):
            start = self.era.starts.get(partition, 0)
            left = self.era.history.open_offsets(partition, (offset for offset in offsets if offset >= start))
            if left:
                return f"{partition}: {len(left)} records, from {left[0]} on"
        return None
