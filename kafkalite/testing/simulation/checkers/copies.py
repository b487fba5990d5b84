"""The copies of a partition on the disks, whatever the nodes report: a sound last copy must not be removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import pairwise

from kafkalite.lazy_dataclass import dataclass
from kafkalite.testing.simulated.disk import SimDisk
from kafkalite.testing.simulation.checkers.cluster import Partition, Violation
from kafkalite.testing.simulation.checkers.log_view import read_batches

#: topic-0, topic-0.0123…-stray; not topic-0.0123…-future, which is not whole.
_DIRECTORY = re.compile(r"(?P<topic>[A-Za-z0-9_]+)-(?P<number>\d+)(\.[0-9a-f]+-(?P<kind>stray|delete))?$")
_ALL = 2**62


@dataclass(frozen=True, slots=True)
class Copy:
    """One directory of a partition."""

    host: str
    path: str
    end: int
    #: It may serve: it was not set aside.
    in_place: bool


def partition_of(name: str) -> tuple[Partition, bool] | None:
    """The partition of a directory's name, and whether it is in its place."""
    found = _DIRECTORY.fullmatch(name)
    if found is None:
        return None
    return (found["topic"], int(found["number"])), found["kind"] is None


class Copies:
    """Looks at all disks.

    Args:
        disks: of each node's host.
        directories: the log directories of each.
        committed_end: of a partition.
        topics: those without a request to delete them.
        compacted: those in whose logs offsets may be missing.
    """

    def __init__(
        self,
        disks: Callable[[], Iterable[tuple[str, SimDisk]]],
        directories: Iterable[str],
        committed_end: Callable[[Partition], int],
        topics: Iterable[str],
        compacted: Container[str] = (),
    ) -> None:
        self._disks = disks
        self._directories = tuple(directories)
        self._committed_end = committed_end
        self._topics = frozenset(topics)
        self._compacted = compacted
        self.removed = 0

    def of(self, partition: Partition) -> Iterator[Copy]:
        """Every directory of it, wherever."""
        for host, disk in self._disks():
            for directory in self._directories:
                for name in disk.peek_names(directory):
                    found = partition_of(name)
                    if found is not None and found[0] == partition:
                        path = f"{directory}/{name}"
                        yield Copy(host, path, self._end(disk, path, partition[0]), found[1])

    def is_complete_without(self, host: str, partition: Partition, others: Iterable[str]) -> bool:
        """Whether one of the other hosts has all that is committed, in its place."""
        end, allowed = self._committed_end(partition), set(others) - {host}
        return any(copy.host in allowed and copy.in_place and copy.end >= end for copy in self.of(partition))

    def is_as_long_without(self, host: str, partition: Partition, others: Iterable[str]) -> bool:
        """Whether one of the other hosts has a copy that goes as far as this one's, in its place."""
        allowed, copies = set(others) - {host}, [copy for copy in self.of(partition) if copy.in_place]
        end = max((copy.end for copy in copies if copy.host == host), default=0)
        return any(copy.host in allowed and copy.end >= end for copy in copies)

    def removing(self, host: str, path: str) -> None:
        """A directory is about to be removed. Raises Violation if no other directory has its records."""
        found = partition_of(path.rpartition("/")[2])
        if found is None or found[0][0] not in self._topics:
            return
        partition, _ = found
        copies = list(self.of(partition))
        mine = next((copy.end for copy in copies if (copy.host, copy.path) == (host, path)), 0)
        needed = min(mine, self._committed_end(partition))
        self.removed += 1
        if needed and all(copy.end < needed for copy in copies if (copy.host, copy.path) != (host, path)):
            raise Violation(
                f"what is sound and the last is never removed: {host} {path} with {mine} records of {partition}, "
                f"{self._committed_end(partition)} are committed; the others: {copies}"
            )

    def _end(self, disk: SimDisk, path: str, topic: str) -> int:
        """Of what follows without a gap."""
        batches = read_batches(disk, path, 0, _ALL)
        for batch, following in pairwise(batches):
            if topic in self._topics and topic not in self._compacted and following.base_offset > batch.last_offset + 1:
                return batch.last_offset + 1
        return batches[-1].last_offset + 1 if batches else 0
