"""The brokers that this node has seen, in its first log directory (ADR 78).

ZooKeeper has a list of all that have ever started. A copy of ZooKeeper that is put back lacks those that have come since. Partitions that had moved there would
begin again without their records before these brokers start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kafkalite.env.seams import Disk
from kafkalite.model import BrokerId
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_FILE = "kafkalite-brokers.json"


class SeenBrokers:
    """Grows by the brokers of the cluster's metadata."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{_FILE}"
        self.ids: frozenset[BrokerId] = frozenset()

    def load(self) -> None:
        """Read the file."""
        try:
            self.ids = frozenset(BrokerId(int(each)) for each in json.loads(self._disk.read_file(self._path)))
        except (OSError, ValueError, TypeError):
            self.ids = frozenset()

    async def follow(self, metadata: MetadataCache) -> None:
        """Until cancelled."""
        while True:
            self._add(broker.broker_id for broker in metadata.brokers())
            await metadata.changed()

    def _add(self, ids: Iterable[BrokerId]) -> None:
        known = self.ids.union(ids)
        if known == self.ids:
            return
        self.ids = known
        try:
            self._disk.write_file_atomic(self._path, json.dumps(sorted(known)).encode(), durable=False)
        except OSError as error:
            _log.warning("brokers_file.not_written", error=str(error))
