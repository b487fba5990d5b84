"""How the future log of a move follows what the current one loses. The producers at a cut are found off the loop."""

from __future__ import annotations

from kafkalite.env.fair_executor import FairExecutor
from kafkalite.log.partition_log import PartitionLog


def costly_cut(future: PartitionLog, source: PartitionLog) -> int | None:
    """Where the current log was cut, if the future one has to find producers for the same cut."""
    cut = source.lowest_cut
    return cut if cut is not None and cut < future.log_end_offset and future.needs_producers(cut) else None


async def follow_costly_cuts(future: PartitionLog, source: PartitionLog, executor: FairExecutor) -> None:
    """Take up costly cuts, so that `follow` meets none in this turn of the loop. Raises StorageError."""
    while (offset := costly_cut(future, source)) is not None:
        source.lowest_cut = None
        await _cut(future, offset, executor)


def follow(future: PartitionLog, source: PartitionLog) -> None:
    """Cut from the future log what the current one has lost since the last time. Raises StorageError."""
    cut, source.lowest_cut = source.lowest_cut, None
    if cut is not None and cut < future.log_end_offset:
        future.truncate_to(cut)
    start = source.log_start_offset
    if future.log_end_offset < start:
        future.truncate_fully_and_start_at(start)
    elif future.log_start_offset < start:
        future.advance_log_start_offset(start)


async def agree(future: PartitionLog, source: PartitionLog, executor: FairExecutor) -> None:
    """Cut a future log that an earlier run has left to what the current log has, too (KIP-101's rule). Raises StorageError."""
    source.lowest_cut = None
    while future.log_end_offset > future.log_start_offset:
        own = future.latest_epoch
        epoch, end = source.epoch_and_end_offset_for(own)
        if epoch == own:
            await _cut(future, end, executor)
            return
        own_end = -1 if epoch < 0 else future.epoch_and_end_offset_for(epoch)[1]
        if own_end < 0:  # they share no epoch
            future.truncate_fully_and_start_at(source.log_start_offset)
            return
        await _cut(future, min(end, own_end), executor)


async def _cut(future: PartitionLog, offset: int, executor: FairExecutor) -> None:
    producers = None
    if future.needs_producers(offset):
        producers = await future.producers_at(offset, executor, ("move", future.topic_partition))
    future.truncate_to(offset, producers)
