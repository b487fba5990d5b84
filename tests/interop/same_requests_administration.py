"""Good requests about topics, settings, replicas and the cluster. (`same_requests` has what they are about.)"""

# ruff: noqa: FBT003 - the fields of a request by their positions
from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire
from kafkalite.protocol.structs import ZERO_UUID

from .same_answers import Side
from .same_requests import (
    Follow,
    base,
    create_topic,
    describe_topic,
    shared_topic,
    topic_configs,
)


@base
async def CreateTopics(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.CreateTopicsRequest
    name = f"t{s.tag}"
    if s.source.random() < 0.5:
        topic = r.CreatableTopic(
            name, -1, -1, [r.CreatableReplicaAssignment(0, [1])], [r.CreatableTopicConfig("retention.ms", "1000")]
        )
    else:
        topic = r.CreatableTopic(name, 2, 1, [], [r.CreatableTopicConfig("retention.ms", "1000")])
    return r([topic], 10_000, False), [describe_topic(name)]


@base
async def DeleteTopics(s: Side, version: int) -> tuple[Any, Follow]:
    name, topic_id = await create_topic(s, partitions=1)
    r = wire.DeleteTopicsRequest
    state = r.DeleteTopicState(name, ZERO_UUID) if s.source.random() < 0.5 else r.DeleteTopicState(None, topic_id)
    return r([state], [name], 10_000), [describe_topic(name)]


@base
async def CreatePartitions(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1)
    r = wire.CreatePartitionsRequest
    assignments = [r.CreatePartitionsAssignment([1])] if s.source.random() < 0.5 else None
    return r([r.CreatePartitionsTopic(name, 2, assignments)], 10_000, False), [describe_topic(name)]


@base
async def DescribeConfigs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.DescribeConfigsRequest
    return r([r.DescribeConfigsResource(2, name, ["retention.ms", "cleanup.policy"])], True, False), []


@base
async def AlterConfigs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1)
    r = wire.AlterConfigsRequest
    return r([r.AlterConfigsResource(2, name, [r.AlterableConfig("retention.ms", "1000")])], False), [
        topic_configs(name)
    ]


@base
async def IncrementalAlterConfigs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1, segment_bytes="2000000")
    r = wire.IncrementalAlterConfigsRequest
    change = s.source.choice(
        (("retention.ms", 0, "1000"), ("segment.bytes", 1, None), ("cleanup.policy", 2, "compact"))
    )
    return r([r.AlterConfigsResource(2, name, [r.AlterableConfig(*change)])], False), [topic_configs(name)]


@base
async def ListConfigResources(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ListConfigResourcesRequest([16]), []


@base
async def DescribeLogDirs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.DescribeLogDirsRequest
    return r([r.DescribableLogDirTopic(name, [0])]), []


@base
async def AlterReplicaLogDirs(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.AlterReplicaLogDirsRequest
    return r([r.AlterReplicaLogDir("/no/such/dir", [r.AlterReplicaLogDirTopic(name, [0])])]), []


@base
async def ElectLeaders(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.ElectLeadersRequest
    return r(0, [r.TopicPartitions(name, [0])], 5_000), []


@base
async def AlterPartitionReassignments(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await create_topic(s, partitions=1)
    r = wire.AlterPartitionReassignmentsRequest
    return r(5_000, True, [r.ReassignableTopic(name, [r.ReassignablePartition(0, [1])])]), []


@base
async def ListPartitionReassignments(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.ListPartitionReassignmentsRequest
    return r(5_000, [r.ListPartitionReassignmentsTopics(name, [0])]), []


@base
async def DescribeCluster(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.DescribeClusterRequest(True, 1, True), []


@base
async def DescribeTopicPartitions(s: Side, version: int) -> tuple[Any, Follow]:
    name, _ = await shared_topic(s)
    r = wire.DescribeTopicPartitionsRequest
    cursor = r.Cursor(name, 1) if s.source.random() < 0.5 else None
    return r([r.TopicRequest(name)], 1, cursor), []


@base
async def UpdateFeatures(s: Side, version: int) -> tuple[Any, Follow]:
    r = wire.UpdateFeaturesRequest
    return r(5_000, [r.FeatureUpdateKey("group.version", 1, False, 1)], True), []


@base
async def UnregisterBroker(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.UnregisterBrokerRequest(77), []


@base
async def ApiVersions(s: Side, version: int) -> tuple[Any, Follow]:
    return wire.ApiVersionsRequest("test-software", "1.2.3"), []
