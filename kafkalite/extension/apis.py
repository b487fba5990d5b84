"""The extension API: what Kafka has no API for, as one API in a private key range of the Kafka listener. One table. Pure.

A request carries the name of a class of `kafkalite.extension.messages` and its msgpack (`kafkalite.rpc.codec`); the
response carries the msgpack of that kind's response. Each message has its row here: which response, what
it needs, and whether every node gives the same answer. Where a need names resources, the row says where the names are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.extension.messages.balancing import DescribeBalanceRequest, DescribeBalanceResponse
from kafkalite.extension.messages.configs import DescribeBrokerSettingsRequest, DescribeBrokerSettingsResponse
from kafkalite.extension.messages.disks import (
    AlterStrayRequest,
    AlterStrayResponse,
    DescribeDisksRequest,
    DescribeDisksResponse,
    DiskOnlineRequest,
    DiskOnlineResponse,
    MoveReplicasRequest,
    MoveReplicasResponse,
)
from kafkalite.extension.messages.open_transactions import (
    AbortTransactionRequest,
    AbortTransactionResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    OpenTransactionsRequest,
    OpenTransactionsResponse,
)
from kafkalite.extension.messages.rates import (
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
    DescribeTrafficRequest,
    DescribeTrafficResponse,
)
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
)
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    RemovePartitionsRequest,
    RemovePartitionsResponse,
    TopicResult,
)
from kafkalite.extension.messages.tracing import TraceRequest, TraceResponse
from kafkalite.extension.messages.transactions import (
    BeginTxnGroupRequest,
    BeginTxnGroupResponse,
    EndTxnGroupRequest,
    EndTxnGroupResponse,
)
from kafkalite.extension.messages.watching import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    HealthRequest,
    HealthResponse,
    HistoryRequest,
    HistoryResponse,
    StatusRequest,
    StatusResponse,
)
from kafkalite.extension.transaction_groups import transactional_id
from kafkalite.lazy_dataclass import dataclass
from kafkalite.rpc.messages.base import Message
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import FREE, Need, Row, Scope

#: The names of resources that a request is about.
Names = Callable[[Any], Iterable[str]]
#: No topic has this name. An empty list would mean all.
_NO_PARTITION = ("", 0)
#: (response, is visible) -> the response without what the asking user may not see.
Hide = Callable[[Any, Callable[[str], bool]], Any]


class AnsweredBy(Enum):
    """Which node is to be asked."""

    ANY = "any node"
    EACH = "each node answers for itself"
    CONTROLLER = "the controller; others answer NOT_CONTROLLER"
    COORDINATOR = "the coordinator of the transactional id"


@dataclass(frozen=True, slots=True)
class ExtensionApi:
    """A row. `names`: for needs that name topics or transactional ids; `hide`: for a need that is left out.

    `mentions`: the names in a request that asks for some of what it could see; `narrow`: the request without those that its user may not see.
    To look them up would take time, which shows that they exist.
    """

    request: type[Message]
    response: type[Message]
    needs: Row
    node: AnsweredBy = AnsweredBy.ANY
    names: Names | None = None
    hide: Hide | None = None
    mentions: Names | None = None
    narrow: Hide | None = None

    @property
    def kind(self) -> str:
        return self.request.__name__


def _topics(message: CreateTopicsRequest | DeleteTopicsRequest) -> list[str]:
    return [each if isinstance(each, str) else each.topic for each in message.topics]


def _transactions_of_group(message: EndTxnGroupRequest) -> Iterable[str]:
    # What else the group has open is aborted: so it takes the right to the group's ids as such.
    return [transactional_id(message.group, ""), *(member.transactional_id for member in message.members)]


def _visible_replicas(answer: DescribeReplicasResponse, is_visible: Callable[[str], bool]) -> DescribeReplicasResponse:
    return replace(answer, replicas=tuple(each for each in answer.replicas if is_visible(each.topic)))


def _visible_transactions(
    answer: ListTransactionsResponse, is_visible: Callable[[str], bool]
) -> ListTransactionsResponse:
    shown = tuple(each for each in answer.transactions if is_visible(each.transactional_id))
    return replace(answer, transactions=shown, is_partial=len(shown) < len(answer.transactions))


def _replicas_mentioned(message: DescribeReplicasRequest) -> list[str]:
    return [*message.topics, *(topic for topic, _ in message.partitions)]


def _narrow_replicas(asked: DescribeReplicasRequest, is_visible: Callable[[str], bool]) -> DescribeReplicasRequest:
    partitions = tuple(each for each in asked.partitions if is_visible(each[0]))
    if len(partitions) < len(asked.partitions):
        partitions = partitions or (_NO_PARTITION,)
    topics = tuple(each for each in asked.topics if is_visible(each))
    if len(topics) < len(asked.topics):
        topics = topics or (_NO_PARTITION[0],)
    return replace(asked, topics=topics, partitions=partitions)


def _narrow_open(asked: OpenTransactionsRequest, is_visible: Callable[[str], bool]) -> OpenTransactionsRequest:
    partitions = tuple(each for each in asked.partitions if is_visible(each[0]))
    return replace(asked, partitions=partitions or (_NO_PARTITION,)) if asked.partitions else asked


def _visible_open(answer: OpenTransactionsResponse, is_visible: Callable[[str], bool]) -> OpenTransactionsResponse:
    return replace(answer, transactions=tuple(each for each in answer.transactions if is_visible(each.topic)))


_TOPIC, _CLUSTER, _TRANSACTION = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_CREATE, _DELETE, _ALTER = Operation.CREATE, Operation.DELETE, Operation.ALTER
_DESCRIBE, _READ, _WRITE = Operation.DESCRIBE, Operation.READ, Operation.WRITE
_DESCRIBE_CLUSTER: Row = (Need(_CLUSTER, _DESCRIBE),)
_ALTER_CLUSTER: Row = (Need(_CLUSTER, _ALTER),)
_EACH, _HIDE = Scope.EACH, Scope.HIDE

_ROWS = (
    # Like Kafka's CreateTopics and DeleteTopics, with a placement, and for topics that have vanished.
    ExtensionApi(
        CreateTopicsRequest,
        CreateTopicsResponse,
        (Need(_TOPIC, _CREATE, _EACH, or_cluster=_CREATE),),
        names=_topics,
    ),
    ExtensionApi(
        DeleteTopicsRequest, DeleteTopicsResponse, (Need(_TOPIC, _DELETE, _EACH, or_cluster=_DELETE),), names=_topics
    ),
    ExtensionApi(
        DescribeReplicasRequest,
        DescribeReplicasResponse,
        (Need(_TOPIC, _DESCRIBE, _HIDE),),
        AnsweredBy.EACH,
        hide=_visible_replicas,
        mentions=_replicas_mentioned,
        narrow=_narrow_replicas,
    ),
    # The records of those partitions go with them.
    ExtensionApi(
        RemovePartitionsRequest,
        RemovePartitionsResponse,
        (Need(_TOPIC, _ALTER), Need(_TOPIC, _DELETE)),
        names=lambda message: (message.topic,),
    ),
    ExtensionApi(AlterReassignmentsRequest, AlterReassignmentsResponse, _ALTER_CLUSTER),
    ExtensionApi(ListReassignmentsRequest, ListReassignmentsResponse, _DESCRIBE_CLUSTER),
    ExtensionApi(DescribeBalanceRequest, DescribeBalanceResponse, _DESCRIBE_CLUSTER, AnsweredBy.CONTROLLER),
    ExtensionApi(
        DescribeBrokerSettingsRequest,
        DescribeBrokerSettingsResponse,
        (Need(_CLUSTER, Operation.DESCRIBE_CONFIGS),),
    ),
    ExtensionApi(DescribeDisksRequest, DescribeDisksResponse, _DESCRIBE_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(DiskOnlineRequest, DiskOnlineResponse, _ALTER_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(MoveReplicasRequest, MoveReplicasResponse, _ALTER_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(AlterStrayRequest, AlterStrayResponse, _ALTER_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(DescribeClusterRequest, DescribeClusterResponse, FREE),
    ExtensionApi(HealthRequest, HealthResponse, _DESCRIBE_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(HistoryRequest, HistoryResponse, _DESCRIBE_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(StatusRequest, StatusResponse, _DESCRIBE_CLUSTER),
    # As with Kafka's request log, which is turned on by the level of one of a broker's loggers.
    ExtensionApi(TraceRequest, TraceResponse, (Need(_CLUSTER, Operation.ALTER_CONFIGS),), AnsweredBy.EACH),
    ExtensionApi(DescribeTrafficRequest, DescribeTrafficResponse, _DESCRIBE_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(DescribeGroupLagRequest, DescribeGroupLagResponse, _DESCRIBE_CLUSTER, AnsweredBy.EACH),
    ExtensionApi(
        BeginTxnGroupRequest,
        BeginTxnGroupResponse,
        (Need(_TRANSACTION, _WRITE),),
        AnsweredBy.COORDINATOR,
        names=lambda message: (message.transactional_id,),
    ),
    ExtensionApi(
        EndTxnGroupRequest,
        EndTxnGroupResponse,
        (Need(_TRANSACTION, _WRITE),),
        AnsweredBy.COORDINATOR,
        names=_transactions_of_group,
    ),
    ExtensionApi(
        ListTransactionsRequest,
        ListTransactionsResponse,
        (Need(_TRANSACTION, _DESCRIBE, _HIDE),),
        AnsweredBy.EACH,
        hide=_visible_transactions,
    ),
    # WriteTxnMarkers is for nodes alone where there is no authorizer.
    ExtensionApi(AbortTransactionRequest, AbortTransactionResponse, _ALTER_CLUSTER, AnsweredBy.EACH),
    # As with DescribeProducers.
    ExtensionApi(
        OpenTransactionsRequest,
        OpenTransactionsResponse,
        (Need(_TOPIC, _READ, _HIDE),),
        AnsweredBy.EACH,
        hide=_visible_open,
        mentions=lambda message: [topic for topic, _ in message.partitions],
        narrow=_narrow_open,
    ),
)

#: Kind (the name of the request's class) -> its row.
APIS: Mapping[str, ExtensionApi] = {api.kind: api for api in _ROWS}


def without(message: Any, denied: Collection[str]) -> Message | None:
    """The request without the topics of `denied`; None: nothing is left."""
    kept = tuple(each for each, name in zip(message.topics, _topics(message), strict=True) if name not in denied)
    return replace(message, topics=kept) if kept else None


def with_refusals(api: ExtensionApi, answer: Any, denied: Collection[str], code: ErrorCode, reason: str) -> Message:
    """The answer (None: nothing was asked) with a refusal for each topic of `denied`."""
    refused = tuple(TopicResult(name, code, reason) for name in sorted(denied))
    served = () if answer is None else answer.topics
    response: Any = api.response
    return response((*served, *refused))  # type: ignore[no-any-return]
