"""What this node reports of its load (`LoadRequest`), for the controller's balancer."""

from __future__ import annotations

from kafkalite.env.seams import Disk
from kafkalite.log.log_manager import LogManager
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.rpc.messages.load import LedPartition, LoadResponse


def load_of(
    identity: tuple[BrokerId, BrokerEpoch], replicas: ReplicaManager, logs: LogManager, disk: Disk
) -> LoadResponse:
    """Disks that are offline are not counted: nothing can be put there. Several directories on one disk count it several times, for used and
    free bytes alike."""
    total = free = 0
    for log_dir in logs.pool.dirs.values():
        if not log_dir.online:
            continue  # a dead disk is not asked: it may never answer
        try:
            size, room = disk.total_bytes(log_dir.path), disk.free_bytes(log_dir.path)
        except OSError:
            continue
        total, free = total + size, free + room
    led = tuple(
        LedPartition(
            *partition.topic_partition, partition.log.size_bytes, partition.appended_bytes, partition.fetched_bytes
        )
        for partition in replicas.hosted.all()
        if partition.leader is not None and partition.storage_error is None
    )
    return LoadResponse(*identity, total or -1, free if total else -1, led)
