"""A leader whose disk gives back other bytes than were written, where they are committed: it heals as a dead log does.

The log goes offline, so an in-sync replica that is alive leads, and this one is recreated from it (see offline_replicas). If
nobody else could lead, it stays the leader, and serves what it can: reads stop at the damage, and `health` says so.
"""

from __future__ import annotations

from kafkalite.errors import ApiError, ErrorCode, StorageError
from kafkalite.replica.hosted import HostedPartitions
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)


def give_up_damaged(hosted: HostedPartitions, metadata: MetadataCache, partition: Partition, error: ApiError) -> bool:
    """Whether the replica was given up because of `error`, met while reading from its log."""
    leader = partition.leader
    if error.code is not ErrorCode.CORRUPT_MESSAGE or leader is None:
        return False
    if not any(each != leader.broker_id and each in metadata.broker_epochs for each in leader.committed_isr):
        return False
    log = partition.log
    _log.error("replica.damaged", partition=str(partition.topic_partition), path=log.path, error=str(error))
    hosted.fail_storage(partition, StorageError(str(error), directory=log.directory, path=log.path))
    return True
