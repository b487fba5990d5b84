"""Good requests of producers and transactions. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire

from .same_answers import Side, record_batch
from .same_requests import (
    Follow,
    add_partition,
    base,
    create_topic,
    describe_transaction,
    offset_fetch,
    offsets_of,
    produce,
    producer,
    shared_topic,
    stable,
)


@base
async def InitProducerId(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    given = who if version >= 3 and s.source.random() < 0.5 else (-1, -1)
    return wire.InitProducerIdRequest(name, 60_000, *given), [describe_transaction(name)]


@base
async def AddPartitionsToTxn(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    topic, _ = await shared_topic(s)
    who = await producer(s, name)
    r = wire.AddPartitionsToTxnRequest
    topics = [r.AddPartitionsToTxnTopic(topic, [0])]
    return r([r.AddPartitionsToTxnTransaction(name, *who, False, topics)], name, *who, topics), [
        describe_transaction(name)
    ]


@base
async def AddOffsetsToTxn(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    return wire.AddOffsetsToTxnRequest(name, *who, f"g{s.tag}"), [describe_transaction(name)]


@base
async def EndTxn(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    topic, _ = await create_topic(s, partitions=1)
    who = await producer(s, name)
    if s.source.random() < 0.8:
        await add_partition(s, name, who, topic)
    return wire.EndTxnRequest(name, *who, True), []


@base
async def TxnOffsetCommit(s: Side, version: int) -> tuple[Any, Follow]:
    name, group = f"x{s.tag}", f"g{s.tag}"
    topic, topic_id = await shared_topic(s)
    who = await producer(s, name)
    if version < 5:
        await s.ask(wire.AddOffsetsToTxnRequest(name, *who, group), 3, traced=False)
    member, generation = await stable(s, group) if version >= 3 and s.source.random() < 0.5 else ("", -1)
    r = wire.TxnOffsetCommitRequest
    topics = [
        r.TxnOffsetCommitRequestTopic(
            name=topic, topic_id=topic_id, partitions=[r.TxnOffsetCommitRequestPartition(0, 5, 0, "m")]
        )
    ]
    stable_fetch = wire.OffsetFetchRequest(
        groups=[wire.OffsetFetchRequest.OffsetFetchRequestGroup(group, None, -1, None)], require_stable=True
    )
    return r(name, group, *who, generation, member, None, topics), [offset_fetch(group), (stable_fetch, 9)]


@base
async def WriteTxnMarkers(s: Side, version: int) -> tuple[Any, Follow]:
    topic, _ = await create_topic(s, partitions=1)
    r = wire.WriteTxnMarkersRequest
    return r([r.WritableTxnMarker(5, 1, True, [r.WritableTxnMarkerTopic(topic, [0])], 0, 0)]), [offsets_of(topic)]


@base
async def DescribeProducers(s: Side, version: int) -> tuple[Any, Follow]:
    topic, _ = await create_topic(s, partitions=1)
    who = await producer(s)
    await produce(s, topic, 0, record_batch(b"1", producer_id=who[0], producer_epoch=who[1], base_sequence=0))
    r = wire.DescribeProducersRequest
    return r([r.TopicRequest(topic, [0])]), []


@base
async def DescribeTransactions(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    topic, _ = await shared_topic(s)
    if s.source.random() < 0.5:
        await add_partition(s, name, who, topic)
    return wire.DescribeTransactionsRequest([name]), []


@base
async def ListTransactions(s: Side, version: int) -> tuple[Any, Follow]:
    name = f"x{s.tag}"
    who = await producer(s, name)
    return wire.ListTransactionsRequest(["Empty"], [who[0]], -1, name), []
