"""What clients ask of three nodes: of one that does not lead, and of those that are left when one has died.

Each partition has its replicas in the same order on both sides, so that node 1 leads and coordinates on both.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.protocol import wire
from kafkalite.protocol.schema import schemas

from .same_answers import Case, Side, record_batch
from .same_requests_all import BASES

ALL = [1, 2, 3]
#: A node that follows, and the one that is killed.
FOLLOWER, KILLED = "2", "3"
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_KEYS = ("g", "x", "g:AAAAAAAAAAAAAAAAAAAAAQ:0")
#: Topics by their replicas; the least number in sync where it is not 1.
_TOPICS = {"full": [1, 2, 3], "led": [3, 1, 2], "lone": [3], "strict": [1, 2, 3], "pair": [3, 1]}
_LEAST = {"strict": "3", "pair": "2"}


def elsewhere(api: str, version: int) -> Case:
    """A good request goes to a node that is neither leader nor coordinator."""

    async def case(side: Side) -> None:
        message, follow = await BASES[api](side, version)
        answer = await side.ask(message, version, "elsewhere", FOLLOWER)
        for each in schemas()[api + "Response"].root.fields:
            if each.name == "node_endpoints" and version in each.versions:
                side.note(f"leaders {version}", sorted(one.node_id for one in answer.node_endpoints))
        await _heard(side)
        for request, its_version in follow:
            await side.ask(request, its_version, "after")

    return case


async def _heard(side: Side) -> None:
    """Node 1 knows what another node was asked for: of a topic that was made later, it knows."""
    c, m = wire.CreateTopicsRequest, wire.MetadataRequest
    name = f"after{side.tag}"
    await side.ask(c([c.CreatableTopic(name, 1, 1)], 30_000), 4, connection=FOLLOWER, traced=False)
    while (await side.ask(m([m.MetadataRequestTopic(name=name)]), 9, traced=False)).topics[0].error_code:
        await asyncio.sleep(0.02)


async def lead_at_first(side: Side) -> None:
    """The internal topics get their replicas on all nodes, led by the first one; all nodes know it."""
    for kind, key in enumerate(_KEYS):
        await _coordinator(side, kind, key, "")
    reassign, elect = wire.AlterPartitionReassignmentsRequest, wire.ElectLeadersRequest
    moved = [reassign.ReassignableTopic(name, [reassign.ReassignablePartition(0, ALL)]) for name in _INTERNAL]
    await side.ask(reassign(10_000, topics=moved), 0, traced=False)
    while (await side.ask(wire.ListPartitionReassignmentsRequest(10_000, None), 0, traced=False)).topics:
        await asyncio.sleep(0.1)
    await side.ask(elect(0, [elect.TopicPartitions(name, [0]) for name in _INTERNAL], 10_000), 2, traced=False)
    for kind, key in enumerate(_KEYS):
        for connection in ("", FOLLOWER, KILLED):
            await _coordinator(side, kind, key, connection, 1)


async def _coordinator(side: Side, kind: int, key: str, connection: str, node: int | None = None) -> None:
    """Once it is known, and `node` if that is given."""
    while True:
        request = wire.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        [found] = (await side.ask(request, 6, connection=connection, traced=False)).coordinators
        if found.error_code == 0 and node in (None, found.node_id):
            return
        await asyncio.sleep(0.1)


async def before_death(side: Side) -> None:
    """Topics whose replicas are on the node that dies, and records in them by each node."""
    r = wire.CreateTopicsRequest
    topics = [
        r.CreatableTopic(
            name,
            -1,
            -1,
            [r.CreatableReplicaAssignment(0, replicas)],
            [r.CreatableTopicConfig("min.insync.replicas", _LEAST[name])] if name in _LEAST else [],
        )
        for name, replicas in _TOPICS.items()
    ]
    await side.ask(r(topics, 30_000), 4, traced=False)
    for connection, name in ((connection, name) for connection in ("", FOLLOWER, KILLED) for name in _TOPICS):
        while name not in [each.name for each in (await _metadata(side, 12, connection)).topics if not each.error_code]:
            await asyncio.sleep(0.1)
        await _produce(side, name, -1, connection, f"{name} before, at {connection}")
    await _reached(side, {"": ("full", "led", "strict", "pair"), FOLLOWER: ("full", "led", "strict")}, 2)


async def _reached(side: Side, names: dict[str, tuple[str, ...]], high_watermark: int) -> None:
    """The nodes know that all is committed: followers hear of it later."""
    for connection, name in ((connection, name) for connection, each in names.items() for name in each):
        while True:
            [topic] = (await side.ask(_fetch(name), 12, connection=connection, traced=False)).responses
            if topic.partitions[0].high_watermark == high_watermark:
                break
            await asyncio.sleep(0.05)


def _fetch(name: str, isolation_level: int = 0) -> Any:
    r = wire.FetchRequest
    topic = r.FetchTopic(topic=name, partitions=[r.FetchPartition(0, -1, 0, -1, -1, 1_000)])
    return r(max_wait_ms=100, min_bytes=1, isolation_level=isolation_level, topics=[topic])


async def _metadata(side: Side, version: int, connection: str, label: str = "") -> Any:
    r = wire.MetadataRequest
    asked = r([r.MetadataRequestTopic(name=name) for name in _TOPICS])
    return await side.ask(asked, version, label, connection, traced=bool(label))


async def _produce(side: Side, name: str, acks: int, connection: str, label: str) -> None:
    r = wire.ProduceRequest
    data = r.TopicProduceData(name=name, partition_data=[r.PartitionProduceData(0, record_batch(b"a", b"b"))])
    await side.ask(r(None, acks, 3_000, [data]), 11, label, connection)


async def death_is_known(side: Side) -> None:
    """Both nodes that are left know that the third one leads nothing and is in no ISR, but where it was alone."""
    for connection in ("", FOLLOWER):
        while True:
            seen = await _metadata(side, 12, connection)
            partitions = [(topic.name, each) for topic in seen.topics for each in topic.partitions]
            if len(seen.brokers) == 2 and all(
                each.leader_id != 3 and (3 not in each.isr_nodes or name == "lone") for name, each in partitions
            ):
                break
            await asyncio.sleep(0.1)


async def after_death(side: Side) -> None:
    """What writes, reads and describes the partitions, at either node that is left; then orders to move and lead them."""
    for connection in ("", FOLLOWER):
        for version in (1, 5, 9, 12, 13):
            await _metadata(side, version, connection, f"at {connection}")
        r = wire.DescribeTopicPartitionsRequest
        await side.ask(r([r.TopicRequest(name) for name in _TOPICS], 100), 0, f"at {connection}", connection)
        for name in _TOPICS:
            await _produce(side, name, -1, connection, f"{name} at {connection}")
        await _reached(side, {"": ("full", "led"), FOLLOWER: ("full", "led")}, 4)
        for name in _TOPICS:
            await _read(side, name, connection)
    for name in _TOPICS:
        await _produce(side, name, 1, "", f"{name} acks 1")
    for kind, name in ((kind, name) for kind in (0, 1) for name in _TOPICS):
        e = wire.ElectLeadersRequest
        await side.ask(e(kind, [e.TopicPartitions(name, [0])], 5_000), 2, f"{name} kind {kind}")
    a = wire.AlterPartitionReassignmentsRequest
    for target in ([9], [], [1, 1], [-1, 1]):
        moved = a.ReassignableTopic("full", [a.ReassignablePartition(0, target)])
        await side.ask(a(5_000, topics=[moved]), 0, f"to {target}")


async def _read(side: Side, name: str, connection: str) -> None:
    where = f"{name} at {connection}"
    ends, epochs = wire.ListOffsetsRequest, wire.OffsetForLeaderEpochRequest
    for timestamp in (-1, -2, -3, -4, 0):
        partition = ends.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
        await side.ask(
            ends(-1, 0, [ends.ListOffsetsTopic(name, [partition])], 1_000), 9, f"{where}, {timestamp}", connection
        )
    for isolation_level in (0, 1):
        await side.ask(_fetch(name, isolation_level), 12, where, connection)
    for epoch in (0, 9):
        asked = epochs.OffsetForLeaderTopic(name, [epochs.OffsetForLeaderPartition(0, -1, epoch)])
        await side.ask(epochs(-1, [asked]), 4, f"{where}, epoch {epoch}", connection)
    d = wire.DescribeProducersRequest
    await side.ask(d([d.TopicRequest(name, [0])]), 0, where, connection)
