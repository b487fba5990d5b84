"""`admin why TOPIC-P`: what is wrong with one partition, since when, what led there, what is being done, what to do.

`ask` gathers what every node knows; `diagnose` draws the conclusion, without any I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from kafkalite.errors import ErrorCode, KafkaliteError, api_error, error_code
from kafkalite.extension.messages.topics import DescribeReplicasRequest, DescribeReplicasResponse, ReplicaDescription
from kafkalite.extension.messages.watching import (
    HealthProblem,
    HealthRequest,
    HealthResponse,
    HistoryEvent,
    HistoryRequest,
    HistoryResponse,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, TopicPartition, is_under_replicated
from kafkalite.partition_values import PartitionMetadata
from kafkalite.rpc.messages.base import Message, of_kind
from kafkalite.telemetry.advice import advice

if TYPE_CHECKING:
    from kafkalite.client.async_client import AsyncClient

#: Asks every live node: a response or an error for each.
EveryNode = Callable[[Message], Awaitable[Mapping[BrokerId, Message | KafkaliteError]]]
#: Problems of brokers and disks that explain a partition's.
_CAUSES = frozenset({"disk.offline", "disk.full", "command.unanswered"})
#: Problems of brokers that concern every partition.
_EVERYBODYS = frozenset({"zookeeper.away", "zookeeper.foreign"})
_OF_A_SHORT_ISR = frozenset({"partition.under_min_isr", "partition.under_replicated"})
_NOBODY = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class Known:
    """What the nodes reported about one partition. `unreachable`: broker -> why it did not."""

    partition: TopicPartition
    metadata: PartitionMetadata
    live: frozenset[BrokerId]
    replicas: Mapping[BrokerId, ReplicaDescription]
    problems: Mapping[BrokerId, tuple[HealthProblem, ...]]
    events: Mapping[BrokerId, tuple[HistoryEvent, ...]]
    unreachable: Mapping[BrokerId, str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong; `since_ms` 0: not known."""

    what: str
    detail: str
    since_ms: int
    broker_id: BrokerId
    doing: str
    do: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`events`: (reporting broker, event) by time. No finding: nothing is wrong."""

    partition: TopicPartition
    leader: BrokerId
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    findings: tuple[Finding, ...]
    progress: tuple[str, ...]
    events: tuple[tuple[BrokerId, HistoryEvent], ...]
    elr: tuple[BrokerId, ...] = ()


async def ask(client: AsyncClient, partition: TopicPartition, *, timeout_s: float | None = None) -> Known:
    """Ask every node. Raises ApiError: there is no such partition; RpcError: nobody answers."""
    answer = await client.describe_topics([partition.topic], timeout_s=timeout_s)
    found = next(iter(answer.topics), None)
    if found is not None and found.error:
        code = error_code(found.error)
        is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise api_error(
            code, f"there is no topic {partition.topic!r}" if is_unknown else f"{partition.topic}: {code.name}"
        )
    metadata = next((p for p in found.partitions if p.partition == partition.partition), None) if found else None
    if metadata is None:
        raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    return await gather(
        partition,
        metadata,
        lambda message: client.every_node(message, timeout_s=client.patience_s(timeout_s)),
        lambda: frozenset(client.view.brokers),
    )


async def gather(
    partition: TopicPartition,
    metadata: PartitionMetadata,
    every_node: EveryNode,
    live: Callable[[], frozenset[BrokerId]],
) -> Known:
    """Ask every node about a partition that there is. `live`: the brokers, after that."""
    subjects = (str(partition), "", *(str(broker) for broker in metadata.replicas))
    unreachable: dict[BrokerId, str] = {}

    async def every(message: Message) -> dict[BrokerId, Message]:
        answers = await every_node(message)
        unreachable.update({node: str(each) for node, each in answers.items() if isinstance(each, KafkaliteError)})
        return {node: each for node, each in answers.items() if not isinstance(each, KafkaliteError)}

    described = await every(DescribeReplicasRequest((partition.topic,), ((partition.topic, partition.partition),)))
    replicas = {
        node: replica
        for node, each in described.items()
        for replica in of_kind(each, DescribeReplicasResponse).replicas
        if (replica.topic, replica.partition) == partition
    }
    health = await every(HealthRequest((str(partition),)))
    history = await every(HistoryRequest(subjects))
    return Known(
        partition,
        metadata,
        live(),
        replicas,
        {node: of_kind(each, HealthResponse).problems for node, each in health.items()},
        {node: of_kind(each, HistoryResponse).events for node, each in history.items()},
        unreachable,
    )


def diagnose(known: Known) -> Diagnosis:
    """The conclusion. Pure."""
    metadata, name = known.metadata, str(known.partition)
    findings: dict[tuple[str, str], Finding] = {}

    def add(what: str, detail: str, since_ms: int = 0, broker: BrokerId = _NOBODY) -> None:
        said = advice(what)
        findings.setdefault((what, detail), Finding(what, detail, since_ms, broker, said.doing, said.do))

    def add_those_on_replicas(kinds: Collection[str]) -> None:
        for broker in metadata.replicas:
            for problem in known.problems.get(broker, ()):
                if problem.what in kinds:
                    add(problem.what, f"on broker {broker}: {problem.detail}", problem.since_ms, broker)

    for node, problems in sorted(known.problems.items()):
        for problem in problems:
            if problem.subject == name:
                add(problem.what, problem.detail, problem.since_ms, node)
    reported = {what for what, _ in findings}
    if metadata.leader < 0 and "partition.offline" not in reported:
        add("partition.offline", f"{name} has no leader; only {[*metadata.isr, *metadata.elr]} may lead it")
    is_short = is_under_replicated(metadata.replicas, metadata.isr, metadata.adding)
    if metadata.leader >= 0 and is_short and reported.isdisjoint(_OF_A_SHORT_ISR):
        missing = [each for each in metadata.replicas if each not in (*metadata.adding, *metadata.isr)]
        add("partition.under_replicated", f"{name}: not in sync: {missing}")
    for broker in metadata.replicas:
        if broker not in known.live:
            add("broker.unreachable", f"broker {broker} is not registered", _gone_ms(known, broker))
        elif broker in known.unreachable:
            add("broker.unreachable", f"broker {broker} does not answer: {known.unreachable[broker]}")
    add_those_on_replicas(_EVERYBODYS)
    if findings:  # what is wrong with a replica's broker explains a problem of the partition, and is not one of its own
        add_those_on_replicas(_CAUSES)
    events = sorted(
        ((node, event) for node, each in known.events.items() for event in each), key=lambda row: (row[1].at_ms, row[0])
    )
    return Diagnosis(
        known.partition,
        metadata.leader,
        metadata.leader_epoch,
        tuple(metadata.isr),
        tuple(metadata.replicas),
        tuple(findings.values()),
        tuple(_progress(known)),
        tuple(events),
        tuple(metadata.elr),
    )


def _gone_ms(known: Known, broker: BrokerId) -> int:
    """When the controller saw this broker go, after its last start; 0 if nobody remembers."""
    mine = [event for events in known.events.values() for event in events if event.subject == str(broker)]
    started_ms = max((each.at_ms for each in mine if each.what == "controller.broker.started"), default=0)
    gone = ("controller.broker.gone", "controller.broker.suspected")
    return min((each.at_ms for each in mine if each.what in gone and each.at_ms >= started_ms), default=0)


def _progress(known: Known) -> list[str]:
    """How far each replica is, as its leader sees it."""
    leader = next((replica for replica in known.replicas.values() if replica.is_leader), None)
    if leader is None:
        return [
            f"broker {broker}: log end {replica.log_end_offset}, high watermark {replica.high_watermark}"
            for broker, replica in sorted(known.replicas.items())
        ]
    drained = (
        "; it accepts no more records: the partition is being drained, and will be removed"
        if leader.is_read_only
        else ""
    )
    ends = f"log end {leader.log_end_offset}, high watermark {leader.high_watermark}"
    lines = [f"broker {leader.leader} leads: {ends}{drained}"]
    for follower in leader.followers:
        state = "in sync" if follower.broker_id in leader.isr else "not in sync"
        behind = leader.log_end_offset - follower.log_end_offset if follower.log_end_offset >= 0 else -1
        ago = "never caught up" if follower.caught_up_ms_ago < 0 else f"caught up {follower.caught_up_ms_ago} ms ago"
        far = "has not fetched from this leader" if behind < 0 else f"{behind} records behind"
        lines.append(f"broker {follower.broker_id} is {state}: {far}, {ago}")
    return lines
