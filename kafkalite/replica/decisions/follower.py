"""What a follower does with its leader's answers. Pure."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_LEADER_EPOCH, LeaderEpoch, Offset

#: Largest epoch <= the requested one that a log knows, and where it ends; (-1, -1) if there is none.
EpochEnd = Callable[[LeaderEpoch], tuple[LeaderEpoch, Offset]]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The leader's answer where the logs part: its largest epoch <= the asked one, and where that ends."""

    epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The leader has no common history to name: what the follower has lies outside of the leader's log."""


def find_divergence(
    epoch_end: EpochEnd,
    *,
    latest_epoch: LeaderEpoch,
    log_start_offset: Offset,
    log_end_offset: Offset,
    fetch_offset: Offset,
    last_fetched_epoch: LeaderEpoch,
) -> Divergence | OutOfRange | None:
    """The leader's side: does a follower's log, ending at `fetch_offset` in `last_fetched_epoch`, continue ours?

    Returns None if it does. Source: KIP-320, KIP-595; Kafka 3.7 Partition.readRecords. The largest epoch that is
    not above the asked one is answered, so that the follower can walk down epoch by epoch (invariant F2).
    """
    if fetch_offset < log_start_offset:
        return OutOfRange()
    if last_fetched_epoch == NO_LEADER_EPOCH:  # an empty log diverges from nothing
        return OutOfRange() if fetch_offset > log_end_offset else None
    if last_fetched_epoch == latest_epoch and fetch_offset <= log_end_offset:
        return None
    epoch, end_offset = epoch_end(last_fetched_epoch)
    if epoch == NO_LEADER_EPOCH:  # our history begins after the follower's epoch
        return None if fetch_offset == log_start_offset else OutOfRange()
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return Divergence(epoch, end_offset)
    return None


def reader_divergence(
    epoch: LeaderEpoch, end_offset: Offset, *, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch
) -> Divergence | OutOfRange | None:
    """The same for a client that says in which epoch it has read up to `fetch_offset`; no replica is meant.

    Args:
        epoch, end_offset: what a client hears of `last_fetched_epoch` (ReadableLog.epoch_end_for_clients).

    Source: Kafka 4.3 Partition.readRecords.
    """
    if epoch == NO_LEADER_EPOCH:
        return OutOfRange()
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return Divergence(epoch, end_offset)
    return None


def truncation_offset(
    epoch_end: EpochEnd, *, log_start_offset: Offset, log_end_offset: Offset, divergence: Divergence
) -> Offset | None:
    """The follower's side: where to cut. What remains may still diverge in an earlier epoch: fetch again and see.

    If our log knows the leader's epoch, the logs agree up to the nearer of the two ends. If it does not, our
    records of later epochs than our largest one below it have no counterpart: cut at the end of that one.
    Never the high watermark (invariant F1). Source: Kafka 3.7 AbstractFetcherThread.getOffsetTruncationState.

    Returns None if the leader began a later epoch before the start of our log: what was deleted here is not what the leader has there (an election
    has lost it). A log that began again at our start would lack the leader's records before it, and be in sync.
    """
    if divergence.end_offset < log_start_offset:
        return None
    own_epoch, own_end = epoch_end(divergence.epoch)
    if own_epoch == NO_LEADER_EPOCH:  # nothing of ours is as old as what the leader has: all of it is foreign
        return log_start_offset
    if own_epoch != divergence.epoch:
        return min(own_end, log_end_offset)
    return min(own_end, divergence.end_offset, log_end_offset)


def follower_high_watermark(current: Offset, *, leader_high_watermark: Offset, log_end_offset: Offset) -> Offset:
    """The follower's HW after an answer: the leader's, as far as the own log goes.

    It does not go back when a new leader is behind in announcing (invariant F10): what was committed stays committed.
    Only a truncation lowers it.
    """
    return max(min(current, log_end_offset), min(leader_high_watermark, log_end_offset))


def high_watermark_after_truncation(current: Offset, log_end_offset: Offset) -> Offset:
    """An HW never lies beyond the log."""
    return min(current, log_end_offset)
