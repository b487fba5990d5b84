"""What an append decides before it writes: is it a retry, which heads do the batches get, which segment takes them. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kafkalite.config import TopicConfig
from kafkalite.errors import ErrorCode, api_error
from kafkalite.log.producer_state import ProducerStates
from kafkalite.log.segment import Segment
from kafkalite.log.validation import must_roll, segment_age_ms
from kafkalite.model import Buffer
from kafkalite.record.batch import (
    ASSIGNED_SIZE,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    assigned_head,
    stamped_header,
)


class AppendInfo(NamedTuple):
    """What an append did (a tuple: cheap to make, one per append). `duplicate`: an idempotent producer's retry; the offsets are those of the first time."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    batches: int
    size_bytes: int
    duplicate: bool = False
    #: Producers that the log did not know, and those that it dropped to keep `max.producer.ids`.
    new_producers: int = 0
    dropped_producers: int = 0


#: From all fields, in order; as `record.batch.new_header`.
new_append_info: Callable[[tuple[object, ...]], AppendInfo] = partial(tuple.__new__, AppendInfo)


def duplicate_of(
    batches: list[tuple[int, BatchHeader]], producers: ProducerStates, config: TopicConfig
) -> AppendInfo | None:
    """The answer to a retry of what is in the log already; None if none of the batches is known.

    Raises ApiError DUPLICATE_SEQUENCE_NUMBER when only some of the batches are known.
    """
    found = [producers.find_duplicate(header) if header.producer_id >= 0 else None for _, header in batches]
    kept = [batch for batch in found if batch is not None]
    if not kept:
        return None
    if len(kept) != len(found):
        raise api_error(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "some of these batches are in the log already")
    timestamp = max(batch.timestamp for batch in kept)
    append_time = timestamp if config.message_timestamp_type == "LogAppendTime" else -1
    return AppendInfo(kept[0].first_offset, kept[-1].last_offset, timestamp, append_time, len(kept), 0, duplicate=True)


def with_new_heads(
    view: memoryview, batches: list[tuple[int, BatchHeader]], bases: list[int], leader_epoch: int, append_time: int
) -> list[list[Buffer]]:
    """What to write per batch: base offset, leader epoch and the type of timestamps beside the unchanged rest. `append_time` -1: CreateTime."""
    buffers: list[list[Buffer]] = []
    for (position, header), base in zip(batches, bases):
        end = position + header.batch_length + LOG_OVERHEAD
        assigned = assigned_head(header, base, leader_epoch)
        if append_time >= 0 or header.attributes & TIMESTAMP_TYPE_FLAG:
            head = stamped_header(view, position, header, append_time)
            buffers.append([assigned, head[ASSIGNED_SIZE:], view[position + HEADER_SIZE : end]])
        else:
            buffers.append([assigned, view[position + ASSIGNED_SIZE : end]])
    return buffers


def place_for(
    config: TopicConfig,
    segment: Segment,
    batches: list[tuple[int, BatchHeader]],
    bases: list[int],
    first: int,
    append_time: int,
) -> tuple[bool, int]:
    """Whether batch number `first` needs a new segment behind `segment`, and how many from there on go together."""
    size, count = segment.size, 0
    if size:  # the usual case, in short: all of them fit
        position, last = batches[-1]
        oldest = segment.first_timestamp
        if append_time >= 0:
            newest = append_time
        elif first + 1 == len(batches):
            newest = last.max_timestamp
        else:
            newest = max([header.max_timestamp for _, header in batches[first:]])
        if (
            oldest is not None
            and size + position + last.batch_length + LOG_OVERHEAD - batches[first][0] <= config.segment_bytes
            and segment.index_bytes() + 12 <= config.segment_index_bytes
            and bases[-1] + last.last_offset_delta - segment.base_offset < 2**31
            and newest - oldest <= segment_age_ms(config, segment.base_offset, oldest)
        ):
            return False, len(batches) - first
    index_bytes = segment.index_bytes() if size else 0
    oldest = segment.starting_timestamp() if size else None
    base_offset, is_new = segment.base_offset, False
    for number in range(first, len(batches)):
        header = batches[number][1]
        timestamp = append_time if append_time >= 0 else header.max_timestamp
        if oldest is None:
            oldest = timestamp
        if must_roll(
            config,
            segment_size=size,
            index_bytes=index_bytes,
            relative_last_offset=bases[number] + header.last_offset_delta - base_offset,
            age_ms=timestamp - oldest,
            max_age_ms=segment_age_ms(config, base_offset, oldest),
            batch_size=header.batch_length + LOG_OVERHEAD,
        ):
            if count:
                break
            base_offset, is_new = bases[number], True
            size, index_bytes, oldest = 0, 0, timestamp
        size += header.batch_length + LOG_OVERHEAD
        count += 1
    return is_new, count
