"""What committed offsets promise: those of a transaction count when it commits, all of them, and never otherwise; none goes back.

Each offset of a group and partition is sent once, and is above the one before. So the offset alone says whose it is.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulation.checkers.cluster import Violation
from kafkalite.testing.simulation.checkers.transactions import TransactionOutcome


class OffsetKey(NamedTuple):
    """What a group commits for."""

    group: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.group} {self.topic}-{self.partition}"


@dataclass(slots=True, eq=False)
class Commit:
    """Offsets that are committed together: of a transaction, or of one plain request."""

    name: str
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    offsets: dict[OffsetKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Floor:
    """The lowest offset that a reader may be shown: `stable` for readers who wait for transactions that are about to end."""

    plain: int
    stable: int


class CommittedOffsets:
    """Follows who commits, and who reads. Methods raise Violation."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self._of: dict[OffsetKey, dict[int, Commit]] = {}
        self._last: dict[OffsetKey, int] = {}
        self._floors: dict[OffsetKey, Floor] = {}
        self.reads = 0

    @property
    def keys(self) -> list[OffsetKey]:
        return list(self._of)

    def count(self, outcome: TransactionOutcome) -> int:
        return sum(commit.outcome is outcome for commit in self.commits)

    def begin(self, name: str) -> Commit:
        commit = Commit(name)
        self.commits.append(commit)
        return commit

    def next_offset(self, commit: Commit, key: OffsetKey) -> int:
        """An offset that is part of `commit` from now on."""
        offset = self._last[key] = self._last.get(key, 0) + 1
        commit.offsets[key] = offset
        self._of.setdefault(key, {})[offset] = commit
        return offset

    def is_committed(self, commit: Commit, *, is_visible: bool) -> None:
        """The cluster has said so, of a transaction before all of it `is_visible` to readers who do not wait."""
        commit.outcome = TransactionOutcome.COMMITTED
        for key, offset in commit.offsets.items():
            floor = self.floor(key)
            plain = max(floor.plain, offset) if is_visible else floor.plain
            self._floors[key] = Floor(plain, max(floor.stable, offset))

    def floor(self, key: OffsetKey) -> Floor:
        """What a reader that asks now may be shown at least."""
        return self._floors.get(key, Floor(0, 0))

    def read(self, key: OffsetKey, offset: int, floor: Floor, *, is_stable: bool, may_be_former: bool = False) -> None:
        """A reader that asked when `floor` held was shown `offset`; -1: nothing is committed. `may_be_former`: a coordinator that had been
        replaced may have answered, from its memory (ADR 15)."""
        self.reads += 1
        lowest = floor.stable if is_stable else floor.plain
        if may_be_former:
            lowest = 0
        if max(offset, 0) < lowest:
            raise Violation(f"committed offsets stay: {key} has {offset}, {lowest} was committed before")
        if offset < 0:
            return
        commit = self._of.get(key, {}).get(offset)
        if commit is None:
            raise Violation(f"a committed offset that nobody has sent: {key} has {offset}")
        if commit.outcome in (TransactionOutcome.OPEN, TransactionOutcome.ABORTED):
            raise Violation(
                f"no offset of an open or aborted transaction counts: {key} has {offset} of {commit.name}, which is {commit.outcome.value}"
            )
        # If its client does not know it, it is known now; and this reader's successors are not shown less.
        self.is_committed(commit, is_visible=False)
        present = self.floor(key)
        self._floors[key] = Floor(max(present.plain, offset), present.stable)
