"""Histories that a node keeps for plots: traffic of the topics it leads, lag of the groups it coordinates."""

from __future__ import annotations

from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId
from kafkalite.rpc.messages.base import Message, kind


@kind(140)
@dataclass(frozen=True, slots=True)
class DescribeTrafficRequest(Message):
    """What clients wrote to and read from the partitions that THIS node leads, by topic; the topic "" is all of them.

    `points`: how many of the latest samples; at most 180 are kept.
    """

    topics: tuple[str, ...] = ("",)
    points: int = 1


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Per second and sample, the oldest first. Empty: nothing was written or read recently."""

    topic: str
    bytes_in: tuple[int, ...] = ()
    bytes_out: tuple[int, ...] = ()
    messages_in: tuple[int, ...] = ()
    messages_out: tuple[int, ...] = ()


@kind(141)
@dataclass(frozen=True, slots=True)
class DescribeTrafficResponse(Message):
    """`at_ms`: wall time of the last sample; `interval_ms` between samples."""

    broker_id: BrokerId
    at_ms: int
    interval_ms: int
    traffic: tuple[TopicTraffic, ...] = ()


@kind(142)
@dataclass(frozen=True, slots=True)
class DescribeGroupLagRequest(Message):
    """The lag of the groups that THIS node coordinates; without names: of all. `points`: as in DescribeTrafficRequest."""

    groups: tuple[str, ...] = ()
    points: int = 1


@dataclass(frozen=True, slots=True)
class GroupLagHistory:
    """`lag`: records, the sum of its partitions, by sample, the oldest first."""

    group: str
    members: int
    partitions: int
    lag: tuple[int, ...] = ()


@kind(143)
@dataclass(frozen=True, slots=True)
class DescribeGroupLagResponse(Message):
    """`omitted`: how many partitions with committed offsets were not measured, because there are too many."""

    broker_id: BrokerId
    at_ms: int
    interval_ms: int
    groups: tuple[GroupLagHistory, ...] = ()
    omitted: int = 0
