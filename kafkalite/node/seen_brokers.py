"""The brokers that this node has seen (ADR 78).

ZooKeeper has a list of all that have ever started. A copy of ZooKeeper that is put back lacks those that have come since. Partitions that had moved there would
begin again without their records before these brokers start.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.env.seams import Disk
from kafkalite.log.pool import LogPool
from kafkalite.model import BrokerId
from kafkalite.node.kept_list import KeptList
from kafkalite.replica.metadata_cache import MetadataCache

_FILE = "kafkalite-brokers.json"


class SeenBrokers:
    """Grows by the brokers of the cluster's metadata."""

    def __init__(self, disk: Disk, pool: LogPool) -> None:
        self._kept = KeptList(disk, pool, _FILE)
        self.ids: frozenset[BrokerId] = frozenset()

    def load(self) -> None:
        """Read them."""
        self.ids = self._kept.load(lambda each: BrokerId(int(each)))

    async def follow(self, metadata: MetadataCache) -> None:
        """Until cancelled."""
        while True:
            self._add(broker.broker_id for broker in metadata.brokers())
            await metadata.changed()

    def _add(self, ids: Iterable[BrokerId]) -> None:
        known = self.ids.union(ids)
        if known != self.ids:
            self.ids = known
            self._kept.save(sorted(known))
