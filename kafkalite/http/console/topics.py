"""Topics: their settings, partitions, sizes, rates, oldest and newest record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalite.client.admin.configs import ConfigResource, describe_configs
from kafkalite.client.async_client import AsyncClient
from kafkalite.config import TOPIC_KEYS
from kafkalite.env.turns import Slices
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.rates import DescribeTrafficRequest, DescribeTrafficResponse
from kafkalite.extension.messages.topics import ReplicaDescription
from kafkalite.http.authentication import AuthenticatedRequest
from kafkalite.http.console.cluster import TIMEOUT_S, ClusterAccess
from kafkalite.http.console.rights import UserRights
from kafkalite.http.leaders import ask_leaders
from kafkalite.http.values import given, whole
from kafkalite.model import INTERNAL_TOPICS, MAX_TIMESTAMP, TopicPartition, is_under_replicated
from kafkalite.rpc.answers import RpcError
from kafkalite.security.acl import ResourceType
from kafkalite.telemetry.series import KEPT

if TYPE_CHECKING:
    from kafkalite.http.host import ObservedNode

#: Topics of one page of the list, and partitions of one page of a topic.
MAX_TOPICS = 50
MAX_PARTITIONS = 100
_PATIENCE_S = 1.5
#: Partitions of a topic that are counted before the time of a slice is looked at.
_STEP = 100
_SERIES = ("bytes_in", "bytes_out", "messages_in", "messages_out")
_TOPIC = ResourceType.TOPIC


class TopicAnswers:
    """Of one node."""

    def __init__(self, node: ObservedNode, cluster: ClusterAccess) -> None:
        self._node = node
        self._cluster = cluster

    async def topics(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """One page of the list: `text` in the name, `internal=1` with the internal ones, `offset`."""
        query = asked.query
        offset, limit = whole(query, "offset", 0, 0, 10**6), whole(query, "limit", 25, 1, MAX_TOPICS)
        text, has_internal = query.get("text", ""), query.get("internal") == "1"
        is_visible = rights.visible("DescribeTopicPartitions", _TOPIC)
        cache = self._node.metadata
        slices = Slices(self._node.kafka.listener.turns, (str(asked.principal), asked.client_host))
        fitting = []
        for name in cache.all_topics():
            if slices.is_over:
                await slices.next()
            if text in name and is_visible(name):
                fitting.append(name)
        internal = [name for name in fitting if name in INTERNAL_TOPICS]
        listed = fitting if has_internal else [name for name in fitting if name not in INTERNAL_TOPICS]
        page = listed[offset : offset + limit]
        replicas = await self._replicas(page)
        traffic = await self.traffic(page, 1)
        rows = []
        for name in page:
            states = list((cache.topic(name) or {}).values())
            sums = dict.fromkeys(("replication_factor", "offline", "troubled", "size_bytes", "records"), 0)
            for number, state in enumerate(states):
                if not number % _STEP and slices.is_over:
                    await slices.next()
                sums["replication_factor"] = max(sums["replication_factor"], len(state.replicas))
                sums["offline"] += state.leader not in cache.broker_epochs
                sums["troubled"] += is_under_replicated(state.replicas, state.isr, state.adding_replicas)
                leader = replicas.get(TopicPartition(name, state.partition))
                if leader is not None:
                    sums["size_bytes"] += leader.size_bytes
                    sums["records"] += max(0, leader.high_watermark - leader.log_start_offset)
            rows.append(
                {
                    "topic": name,
                    "partitions": len(states),
                    **sums,
                    "is_internal": name in INTERNAL_TOPICS,
                    **{kind: sum(values) for kind, values in traffic[name].items()},
                }
            )
        return {"topics": rows, "matched": len(listed), "internal": len(internal), "offset": offset}

    async def topic(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """One topic: a page of partitions from `offset` on, its settings, what the user may do with it."""
        name = given(asked.query, "topic")
        offset = whole(asked.query, "offset", 0, 0, 10**6)
        rights.need("DescribeTopicPartitions", {_TOPIC: [name]})
        cache = self._node.metadata
        states = cache.topic(name)
        if not states:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        replicas = await self._replicas([name])
        numbers = sorted(states)[offset : offset + MAX_PARTITIONS]
        keys = [TopicPartition(name, number) for number in numbers]
        led = [key for key in keys if key in replicas and replicas[key].high_watermark > replicas[key].log_start_offset]
        client = await self._cluster.client(asked)
        oldest, newest = await _times(client, led, 0), await _times(client, led, MAX_TIMESTAMP)
        partitions = []
        for key in keys:
            state, found = states[key.partition], replicas.get(key)
            partitions.append(
                {
                    "partition": key.partition,
                    "leader": state.leader if state.leader in cache.broker_epochs else -1,
                    "replicas": state.replicas,
                    "isr": state.isr,
                    "adding": state.adding_replicas,
                    "start": found.log_start_offset if found else -1,
                    "end": found.high_watermark if found else -1,
                    "size_bytes": found.size_bytes if found else -1,
                    "oldest_ms": oldest.get(key, -1),
                    "newest_ms": newest.get(key, -1),
                    "open_transaction_ms": found.open_transaction_ms if found else -1,
                }
            )
        return {
            "topic": name,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": partitions,
            "partitions_total": len(states),
            "offset": offset,
            "size_bytes": sum(each.size_bytes for each in replicas.values()),
            "traffic": (await self.traffic([name], KEPT))[name],
            "settings": await _settings(client, name, rights),
            "can": {
                "read": rights.may("Fetch", {_TOPIC: [name]}),
                "send": name not in INTERNAL_TOPICS and rights.may("Produce", {_TOPIC: [name]}),
                "empty": name not in INTERNAL_TOPICS and rights.may("DeleteRecords", {_TOPIC: [name]}),
                "delete": rights.may("DeleteTopics", {_TOPIC: [name]}),
                "alter": rights.may("CreatePartitions", {_TOPIC: [name]}),
                "settings": rights.may("IncrementalAlterConfigs", {_TOPIC: [name]}),
            },
        }

    async def rates(self, asked: AuthenticatedRequest, rights: UserRights) -> dict[str, Any]:
        """The traffic of the whole cluster, and of each broker now."""
        rights.need("DescribeTrafficRequest")
        answers = await self._ask_traffic(("",), KEPT)
        by_broker = {}
        for answer in answers:
            each = answer.traffic[0]
            by_broker[answer.broker_id] = {kind: sum(getattr(each, kind)[-1:]) for kind in _SERIES}
        return {"cluster": _added(answers, ""), "brokers": by_broker, "interval_ms": _interval(answers)}

    async def traffic(self, topics: Iterable[str], points: int) -> dict[str, dict[str, list[int]]]:
        """Topic -> kind -> rates per second of all its leaders, the oldest first."""
        wanted = tuple(topics)
        answers = await self._ask_traffic(wanted, points) if wanted else []
        return {topic: _added(answers, topic) for topic in wanted}

    async def _ask_traffic(self, topics: tuple[str, ...], points: int) -> list[DescribeTrafficResponse]:
        answers = await self._node.peers.every_node(DescribeTrafficRequest(topics, points), timeout_s=_PATIENCE_S)
        return [each for each in answers.values() if isinstance(each, DescribeTrafficResponse)]

    async def _replicas(self, topics: Iterable[str]) -> dict[TopicPartition, ReplicaDescription]:
        """What the leaders say of all partitions of these topics."""
        cache = self._node.metadata
        keys = (TopicPartition(name, number) for name in topics for number in sorted(cache.topic(name) or {}))
        return await ask_leaders(self._node, keys, timeout_s=_PATIENCE_S)


async def _times(client: AsyncClient, keys: list[TopicPartition], stamp: int) -> dict[TopicPartition, int]:
    """The time of the first record from `stamp` on; of the newest record for MAX_TIMESTAMP. What fails is left out."""
    if not keys:
        return {}
    try:
        found = await client.list_offsets(dict.fromkeys(keys, stamp), timeout_s=TIMEOUT_S / 2)
    except (ApiError, RpcError):
        return {}
    return {key: each.timestamp for key, each in found.items()}


async def _settings(client: AsyncClient, name: str, rights: UserRights) -> list[dict[str, Any]] | None:
    """Every setting that holds; None: the user may not see them."""
    if not rights.may("DescribeConfigs", {_TOPIC: [name]}):
        return None
    found = await describe_configs(client, ConfigResource.topic(name))
    rows = []
    for key, value in sorted(found.effective.items()):
        doc = TOPIC_KEYS[key][0].metadata["doc"] if key in TOPIC_KEYS else ""
        rows.append({"key": key, "value": value, "is_own": key in found.own, "doc": doc})
    return rows


def _added(answers: list[DescribeTrafficResponse], topic: str) -> dict[str, list[int]]:
    """The sums of all nodes' series, by their latest samples: they are taken at about the same time."""
    found = [each for answer in answers for each in answer.traffic if each.topic == topic]
    return {kind: _sum([getattr(each, kind) for each in found]) for kind in _SERIES}


def _sum(series: list[tuple[int, ...]]) -> list[int]:
    length = max(map(len, series), default=0)
    padded = [(0,) * (length - len(each)) + tuple(each) for each in series]
    return [sum(values) for values in zip(*padded, strict=True)]


def _interval(answers: list[DescribeTrafficResponse]) -> int:
    return max((each.interval_ms for each in answers), default=0)
