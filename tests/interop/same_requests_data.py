"""Good requests of the APIs that write, read and find records. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side, record_batch
from .same_requests import (
    Follow,
    base,
    create_topic,
    offsets_of,
    produce_request,
    shared_topic,
)


@base
async def Produce(s: Side, version: int) -> tuple[Any, Follow]:
    name, topic_id = await create_topic(s, partitions=1)
    r = wire.FetchRequest
    fetch = r(
        max_wait_ms=0,
        min_bytes=0,
        topics=[r.FetchTopic(topic=name, partitions=[r.FetchPartition(0, -1, 0, -1, -1, 100_000)])],
    )
    return produce_request(name, topic_id, 0, record_batch(b"one", b"two")), [offsets_of(name), (fetch, 11)]


@base
async def Fetch(s: Side, version: int) -> tuple[Any, Follow]:
    name, topic_id = await shared_topic(s)
    r = wire.FetchRequest
    partition = r.FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=1,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=100_000,
    )
    topic = r.FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])
    return r(max_wait_ms=50, min_bytes=1, max_bytes=1_000_000, topics=[topic]), []


@base
async def ListOffsets(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.ListOffsetsRequest
    partition = r.ListOffsetsPartition(partition_index=0, current_leader_epoch=0, timestamp=-1, max_num_offsets=1)
    return r(-1, 0, [r.ListOffsetsTopic(name, [partition])], 1_000), []


@base
async def Metadata(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    return wire.MetadataRequest([wire.MetadataRequest.MetadataRequestTopic(name=name)], False, True, True), []


@base
async def OffsetForLeaderEpoch(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.OffsetForLeaderEpochRequest
    return r(-1, [r.OffsetForLeaderTopic(name, [r.OffsetForLeaderPartition(0, 0, 0)])]), []


@base
async def DeleteRecords(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, records=5, partitions=1)
    r = wire.DeleteRecordsRequest
    return r([r.DeleteRecordsTopic(name, [r.DeleteRecordsPartition(0, 2)])], 3_000), [offsets_of(name)]
