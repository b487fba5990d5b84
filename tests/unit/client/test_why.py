"""What `admin why` concludes from what the nodes report."""

from __future__ import annotations

from kafkalite.client.admin.why import Known, diagnose, gather
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import ReplicaDescription
from kafkalite.extension.messages.watching import HealthRequest, HistoryEvent
from kafkalite.model import BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId, TopicPartition
from kafkalite.partition_values import PartitionMetadata
from kafkalite.rpc.messages.base import Message

T0 = TopicPartition("t", 0)
ONE, TWO = BrokerId(1), BrokerId(2)


def _leader(*, is_read_only: bool) -> ReplicaDescription:
    return ReplicaDescription(
        "t", 0, TopicId("id"), is_leader=True, leader=ONE, leader_epoch=LeaderEpoch(1), isr=(ONE, TWO), replicas=(ONE, TWO),
        partition_epoch=PartitionEpoch(1), high_watermark=Offset(7), log_start_offset=Offset(0), log_end_offset=Offset(7),
        size_bytes=1, directory="/d", is_read_only=is_read_only,
    )  # fmt: skip


def _known(*events: HistoryEvent, live: tuple[BrokerId, ...] = (ONE, TWO), is_read_only: bool = False) -> Known:
    metadata = PartitionMetadata(0, 0, ONE, LeaderEpoch(1), (ONE, TWO), (ONE, TWO))
    replicas = {ONE: _leader(is_read_only=is_read_only)}
    return Known(T0, metadata, frozenset(live), replicas, {}, {ONE: events}, {})


def test_a_partition_that_is_being_drained_says_so() -> None:
    """Producers were refused with POLICY_VIOLATION, and nothing showed why."""
    (line,) = diagnose(_known(is_read_only=True)).progress
    assert line.endswith("it accepts no more records: the partition is being drained, and will be removed")
    assert "drained" not in diagnose(_known()).progress[0]


def test_a_broker_is_gone_since_it_was_first_missed() -> None:
    """Not since its session has ended, half a minute later; nor since an earlier time when it was away."""
    happened = ("suspected", "started", "suspected", "gone", "gone")
    events = [HistoryEvent("2", at, f"controller.broker.{what}", "") for at, what in enumerate(happened, 10)]
    (finding,) = diagnose(_known(*events, live=(ONE,))).findings
    assert (finding.what, finding.since_ms) == ("broker.unreachable", 12)
    assert diagnose(_known(live=(ONE,))).findings[0].since_ms == 0


async def test_a_node_is_asked_for_the_problems_of_this_very_partition() -> None:
    """A node with many problems lists only the first ones of a kind otherwise."""
    asked: list[Message] = []

    async def every_node(message: Message) -> dict[BrokerId, Message | KafkaliteError]:
        asked.append(message)
        return {}

    metadata = PartitionMetadata(0, 0, ONE, LeaderEpoch(1), (ONE, TWO), (ONE, TWO))
    await gather(T0, metadata, every_node, frozenset)
    assert HealthRequest(("t-0",)) in asked
