"""What a node measures every few seconds for plots and metrics: traffic by topic, and the lag of the groups it coordinates.

The lag of a group is counted where its offsets are: on its coordinator, from the high watermarks of its partitions' leaders,
so that no exporter has to ask for either. Everything is bounded; what is left out is a number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kafkalite.env.turns import result_of
from kafkalite.extension.messages.rates import (
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
    DescribeTrafficRequest,
    DescribeTrafficResponse,
    GroupLagHistory,
    TopicTraffic,
)
from kafkalite.http.leaders import ask_leaders
from kafkalite.model import TopicPartition
from kafkalite.telemetry.series import KEPT, Rates, Series

if TYPE_CHECKING:
    from kafkalite.env import Env
    from kafkalite.kafka.broker_apis import KafkaSide
    from kafkalite.replica.metadata_cache import MetadataCache
    from kafkalite.replica.peers import Peers
    from kafkalite.replica.replica_manager import ReplicaManager
    from kafkalite.rpc.local_broker import LocalBroker

INTERVAL_S = 10.0
#: Topics of which the traffic is kept.
MAX_TOPICS = 500
#: Groups, and committed partitions of all of them, of which the lag is measured.
MAX_GROUPS = 500
MAX_PARTITIONS = 2000
#: Characters of a group's id. A client may choose 32,767, and each partition of the group is a line of the metrics.
MAX_GROUP_ID = 300
_PATIENCE_S = 2.0
#: The series of everything together.
ALL = ""


class Sampled(Protocol):
    """What is measured for plots."""

    env: Env
    local: LocalBroker
    replicas: ReplicaManager
    metadata: MetadataCache
    kafka: KafkaSide
    peers: Peers


class Sampler:
    """One per node with an HTTP listener.

    Attributes:
        lag: group -> partition -> records behind, at the last sample.
        members: group -> how many members it has.
        omitted: committed partitions that were too many to measure.
    """

    def __init__(self, node: Sampled) -> None:
        self._node = node
        self._traffic = Rates(4, max_subjects=MAX_TOPICS)
        self._history: dict[str, Series] = {}
        self._sampled_at: float | None = None
        self._at_ms = 0
        self.lag: dict[str, dict[TopicPartition, int]] = {}
        self.members: dict[str, int] = {}
        self.omitted = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(INTERVAL_S)

    async def sample(self) -> None:
        """Measure once."""
        now = self._node.env.clock.monotonic()
        counts = await self._counts()
        await result_of(self._traffic.sample(counts, now - self._sampled_at if self._sampled_at is not None else 0.0))
        self._sampled_at, self._at_ms = now, self._node.env.clock.wall_ms()
        await self._sample_lag()

    # --- traffic -------------------------------------------------------------------------------------------

    async def _counts(self) -> Mapping[str, tuple[int, ...]]:
        hosted = self._node.replicas.hosted
        counters = hosted.counters
        total = (counters.bytes_in, counters.bytes_out, counters.messages_in, counters.messages_out)
        return {ALL: total, **await result_of(hosted.traffic())}

    async def describe_traffic(self, request: DescribeTrafficRequest) -> DescribeTrafficResponse:
        """The extension request."""
        points = min(request.points, KEPT)
        traffic = tuple(
            TopicTraffic(topic, *self._traffic.of(topic, points))
            for topic in dict.fromkeys(request.topics[:MAX_TOPICS])
        )
        return DescribeTrafficResponse(self._node.local.broker_id, self._at_ms, int(INTERVAL_S * 1000), traffic)

    # --- lag -----------------------------------------------------------------------------------------------

    async def describe_group_lag(self, request: DescribeGroupLagRequest) -> DescribeGroupLagResponse:
        """The extension request."""
        points = min(request.points, KEPT)
        wanted = request.groups[:MAX_GROUPS] or tuple(sorted(self.lag))
        groups = tuple(
            GroupLagHistory(group, self.members[group], len(self.lag[group]), self._history[group].last(points))
            for group in dict.fromkeys(wanted)
            if group in self.lag
        )
        return DescribeGroupLagResponse(
            self._node.local.broker_id, self._at_ms, int(INTERVAL_S * 1000), groups, self.omitted
        )

    async def _sample_lag(self) -> None:
        committed: dict[str, dict[TopicPartition, int]] = {}
        members: dict[str, int] = {}
        places = omitted = 0
        groups = self._node.kafka.coordinated_groups()
        for group, count, offsets in groups.committed_by_group() if groups is not None else ():
            if not offsets:
                continue
            is_room = len(committed) < MAX_GROUPS and places + len(offsets) <= MAX_PARTITIONS
            if not is_room or len(group) > MAX_GROUP_ID:
                omitted += len(offsets)
                continue
            places += len(offsets)
            committed[group], members[group] = dict(offsets), count
        ends = await self._ends({key for offsets in committed.values() for key in offsets})
        self.lag = {
            group: {key: max(0, ends[key] - offset) for key, offset in offsets.items() if key in ends}
            for group, offsets in committed.items()
        }
        self.members, self.omitted = members, omitted
        self._history = {group: self._history.get(group) or Series() for group in self.lag}
        for group, by_partition in self.lag.items():
            self._history[group].add(sum(by_partition.values()))

    async def _ends(self, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks, as the leaders know them; partitions without a leader that answers are left out."""
        node = self._node
        found: dict[TopicPartition, int] = {}
        elsewhere: list[TopicPartition] = []
        for key in sorted(wanted):
            hosted = node.replicas.hosted.get(key)
            if hosted is not None and hosted.leader is not None:
                found[key] = hosted.high_watermark
            else:
                elsewhere.append(key)
        if not elsewhere:
            return found
        answers = await ask_leaders(node, elsewhere, timeout_s=_PATIENCE_S)
        return found | {key: each.high_watermark for key, each in answers.items()}
