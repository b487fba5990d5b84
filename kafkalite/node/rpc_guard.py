"""Checks each request of the RPC listener against its row of `kafkalite.security.requirements`, before its handler.

Where a request names several things and only some are allowed, the handler gets those, and its answer is completed
with refusals. A cluster without an authorizer has no guard at all: its handlers are called directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from kafkalite.coordination.topic_configs import TOPICS
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.apis import APIS
from kafkalite.extension.messages.open_transactions import (
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    OpenTransactionsRequest,
    OpenTransactionsResponse,
)
from kafkalite.extension.messages.topics import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    RemovePartitionsRequest,
    TopicResult,
)
from kafkalite.extension.messages.transactions import EndTxnGroupRequest
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import NO_OFFSET, NO_TOPIC_ID, Buffer
from kafkalite.rpc.handling import Handler, Peer, Reply, Request
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.configs import AlterConfigsRequest, DescribeConfigsRequest
from kafkalite.rpc.messages.control import PartitionError
from kafkalite.rpc.messages.data import (
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProducedPartition,
    ProduceRequest,
    ProduceResponse,
    TopicMetadata,
)
from kafkalite.rpc.messages.groups import (
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DescribeGroupRequest,
    DescribeGroupResponse,
    GroupHeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from kafkalite.rpc.messages.transactions import AddPartitionsToTxnRequest, FindCoordinatorRequest
from kafkalite.rpc.transaction_groups import transactional_id
from kafkalite.security.access import Access
from kafkalite.security.acl import CLUSTER_NAME, Operation, ResourceType
from kafkalite.security.requirements import REFUSALS, RPC, Need, Scope

Outcome = Reply | Awaitable[Reply | None] | None
#: The names of resources of one type that a request is about as a whole.
Names = Callable[[Any], Iterable[str]]

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_REFUSED_TEXT = "not authorized"


def _cluster_of_config(message: DescribeConfigsRequest | AlterConfigsRequest) -> Iterable[str]:
    return () if message.entity_type == TOPICS else (CLUSTER_NAME,)


def _topic_of_config(message: DescribeConfigsRequest | AlterConfigsRequest) -> Iterable[str]:
    return (message.entity_name,) if message.entity_type == TOPICS else ()


def _transaction_of_group(message: EndTxnGroupRequest) -> Iterable[str]:
    # What else the group has open is aborted: so it takes the right to the group's ids as such.
    return [transactional_id(message.group, ""), *(member.transactional_id for member in message.members)]


def _group(message: Any) -> Iterable[str]:
    return (message.group,)


_WHOLE: Mapping[tuple[type[Message], ResourceType], Names] = {
    (ProduceRequest, _TRANSACTION): lambda message: (
        () if message.transactional_id is None else (message.transactional_id,)
    ),
    (InitProducerIdRequest, _TRANSACTION): lambda message: (
        () if message.transactional_id is None else (message.transactional_id,)
    ),
    (InitProducerIdRequest, _CLUSTER): lambda message: (CLUSTER_NAME,) if message.transactional_id is None else (),
    # or its group's: `_check`
    (FindCoordinatorRequest, _TRANSACTION): lambda message: () if message.is_consumer_group else (message.key,),
    (FindCoordinatorRequest, _GROUP): lambda message: (message.key,) if message.is_consumer_group else (),
    **{
        (cls, _GROUP): _group
        for cls in (
            DescribeGroupRequest,
            DeleteGroupRequest,
            CommitOffsetsRequest,
            JoinGroupRequest,
            SyncGroupRequest,
            GroupHeartbeatRequest,
        )
    },
    (AddPartitionsToTxnRequest, _TRANSACTION): lambda message: (message.transactional_id,),
    (AddPartitionsToTxnRequest, _TOPIC): lambda message: [topic for topic, _ in message.partitions],
    (EndTxnGroupRequest, _TRANSACTION): _transaction_of_group,
    (DescribeTransactionRequest, _TRANSACTION): lambda message: (message.transactional_id,),
    (RemovePartitionsRequest, _TOPIC): lambda message: (message.topic,),
    (DescribeConfigsRequest, _TOPIC): _topic_of_config,
    (DescribeConfigsRequest, _CLUSTER): _cluster_of_config,
    (AlterConfigsRequest, _TOPIC): _topic_of_config,
    (AlterConfigsRequest, _CLUSTER): _cluster_of_config,
}


@dataclass(frozen=True, slots=True)
class Split:
    """How to serve the allowed part of a request that names several topics.

    names: all its topics. keep: the request without those that are denied, or None if nothing is left. complete: the
    answer to what was kept, with the refusals of the rest; `answer` None is the one to nothing at all.
    """

    names: Callable[[Any], Iterable[str]]
    keep: Callable[[Request, frozenset[str]], Request | None]
    complete: Callable[[Any, Any, frozenset[str]], Message]


def _keep_partitions(request: Request, denied: frozenset[str]) -> Request | None:
    message: Any = request.message
    kept = tuple(part for part in message.partitions if part.topic not in denied)
    return Request(replace(message, partitions=kept), request.body, request.peer) if kept else None


def _keep_produced(request: Request, denied: frozenset[str]) -> Request | None:
    message: Any = request.message
    pieces: list[Buffer] = []
    position = 0
    for part in message.partitions:
        if part.topic not in denied:
            pieces.append(request.body[position : position + part.records_size])
        position += part.records_size
    kept = _keep_partitions(request, denied)
    if kept is not None:
        # Writable, as the log wants it: it sets base offset and leader epoch in place.
        kept.body = memoryview(bytearray(b"".join(pieces)))
    return kept


def _keep_topics(request: Request, denied: frozenset[str]) -> Request | None:
    message: Any = request.message
    kept = tuple(each for each in message.topics if getattr(each, "topic", each) not in denied)
    return Request(replace(message, topics=kept), request.body, request.peer) if kept else None


def _results(message: Any, answer: Any, denied: frozenset[str]) -> tuple[TopicResult, ...]:
    refused = [getattr(each, "topic", each) for each in message.topics]
    return (
        *(answer.topics if answer is not None else ()),
        *(TopicResult(name, _REFUSED, _REFUSED_TEXT) for name in refused if name in denied),
    )


def _names_of_topics(message: Any) -> Iterable[str]:
    return [getattr(each, "topic", each) for each in message.topics]


def _names_of_partitions(message: Any) -> Iterable[str]:
    return [part.topic for part in message.partitions]


def _produced(message: ProduceRequest, answer: Any, denied: frozenset[str]) -> ProduceResponse:
    refused = tuple(
        ProducedPartition(part.topic, part.partition, _REFUSED, NO_OFFSET, message=_REFUSED_TEXT)
        for part in message.partitions
        if part.topic in denied
    )
    if answer is None:
        return ProduceResponse(refused)
    return ProduceResponse((*answer.partitions, *refused), answer.throttle_ms)


def _fetched(message: FetchRequest, answer: Any, denied: frozenset[str]) -> FetchResponse:
    refused = tuple(
        FetchedPartition(part.topic, part.partition, _REFUSED, NO_OFFSET, NO_OFFSET, NO_OFFSET, 0)
        for part in message.partitions
        if part.topic in denied
    )
    return (
        FetchResponse(refused) if answer is None else FetchResponse((*answer.partitions, *refused), answer.throttle_ms)
    )


def _listed(message: ListOffsetsRequest, answer: Any, denied: frozenset[str]) -> ListOffsetsResponse:
    refused = tuple(
        ListedOffset(part.topic, part.partition, _REFUSED, -1, NO_OFFSET)
        for part in message.partitions
        if part.topic in denied
    )
    return ListOffsetsResponse((*(answer.partitions if answer is not None else ()), *refused))


def _committed_topics(message: CommitOffsetsRequest) -> Iterable[str]:
    return [*(each.topic for each in message.offsets), *(topic for topic, _ in message.deletions)]


def _keep_committed(request: Request, denied: frozenset[str]) -> Request | None:
    message = request.message
    assert isinstance(message, CommitOffsetsRequest)
    offsets = tuple(each for each in message.offsets if each.topic not in denied)
    deletions = tuple(each for each in message.deletions if each[0] not in denied)
    if not offsets and not deletions:
        return None
    return Request(replace(message, offsets=offsets, deletions=deletions), request.body, request.peer)


def _committed(message: CommitOffsetsRequest, answer: Any, denied: frozenset[str]) -> CommitOffsetsResponse:
    named = [*((each.topic, each.partition) for each in message.offsets), *message.deletions]
    refused = tuple(PartitionError(topic, number, _REFUSED) for topic, number in named if topic in denied)
    if answer is None:
        return CommitOffsetsResponse(ErrorCode.NONE, partitions=refused)
    return replace(answer, partitions=(*answer.partitions, *refused))  # type: ignore[no-any-return]


_SPLITS: Mapping[type[Message], Split] = {
    ProduceRequest: Split(_names_of_partitions, _keep_produced, _produced),
    FetchRequest: Split(_names_of_partitions, _keep_partitions, _fetched),
    ListOffsetsRequest: Split(_names_of_partitions, _keep_partitions, _listed),
    CommitOffsetsRequest: Split(_committed_topics, _keep_committed, _committed),
    CreateTopicsRequest: Split(
        _names_of_topics,
        _keep_topics,
        lambda message, answer, denied: CreateTopicsResponse(_results(message, answer, denied)),
    ),
    DeleteTopicsRequest: Split(
        _names_of_topics,
        _keep_topics,
        lambda message, answer, denied: DeleteTopicsResponse(_results(message, answer, denied)),
    ),
    AddPartitionsRequest: Split(
        _names_of_topics,
        _keep_topics,
        lambda message, answer, denied: AddPartitionsResponse(_results(message, answer, denied)),
    ),
}


class RpcGuard:
    """Wraps handlers.

    Args:
        is_known: whether a topic exists, as far as this node knows (who may not create it may not ask for it).
    """

    def __init__(self, access: Access, is_known: Callable[[str], bool]) -> None:
        self._access = access
        self._is_known = is_known

    def guarded(self, handlers: Mapping[type[Message], Handler]) -> dict[type[Message], Handler]:
        """The same handlers behind their checks; all as they are if there is no authorizer."""
        if self._access.authorizer is None:
            return dict(handlers)
        return {cls: self._guarded(cls, handler) for cls, handler in handlers.items()}

    def _guarded(self, cls: type[Message], handler: Handler) -> Handler:
        extension = APIS.get(cls.__name__)
        row = RPC.get(cls.__name__) if extension is None else extension.needs

        def handle(request: Request) -> Outcome:
            if row is None:
                raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no rule for this request")
            for need in row:
                if need.scope is Scope.WHOLE:
                    self._check(request, cls, need)
            if cls is MetadataRequest:
                return self._metadata(request, row, handler)
            if cls is DescribeReplicasRequest:
                return then(handler(request), lambda reply: self._visible_replicas(request.peer, row[0], reply))
            if cls in (ListGroupsRequest, DescribeGroupRequest):
                return then(handler(request), lambda reply: self._visible_groups(request.peer, row[-1], reply))
            if cls in (ListTransactionsRequest, DescribeTransactionRequest, OpenTransactionsRequest):
                return then(handler(request), lambda reply: self._visible_transactions(request.peer, row[-1], reply))
            split = _SPLITS.get(cls)
            return handler(request) if split is None else self._split(request, row[-1], split, handler)

        return handle

    def _check(self, request: Request, cls: type[Message], need: Need) -> None:
        """Raises ApiError."""
        names = _WHOLE.get((cls, need.resource_type))
        wanted: Iterable[str] = (CLUSTER_NAME,) if names is None else names(request.message)
        if isinstance(request.message, CommitOffsetsRequest) and need.operation is Operation.DELETE:
            wanted = wanted if request.message.deletions else ()
        if isinstance(request.message, FindCoordinatorRequest) and need.resource_type is _TRANSACTION:
            group_ids = transactional_id(request.message.key, "")
            if self._access.may(request.peer, need.operation, need.resource_type, group_ids, is_told=False):
                return
        assert names is not None or need.resource_type is _CLUSTER, f"{cls.__name__}: no rule for {need}"
        denied = self._access.denied(request.peer, need, wanted)
        if denied:
            raise api_error(
                REFUSALS[need.resource_type], f"not allowed: {need.operation.name} on {', '.join(sorted(denied))[:200]}"
            )

    def _split(self, request: Request, need: Need, split: Split, handler: Handler) -> Outcome:
        message = request.message
        denied = self._access.denied(request.peer, need, split.names(message))
        if not denied:
            return handler(request)
        kept = split.keep(request, denied)
        if kept is None:
            is_one_way = isinstance(message, ProduceRequest) and message.acks == 0
            return None if is_one_way else Reply(split.complete(message, None, denied))
        return then(
            handler(kept),
            lambda reply: replace(reply, message=split.complete(message, reply.message, denied)),
        )

    # --- those that list ---

    def _metadata(self, request: Request, row: tuple[Need, ...], handler: Handler) -> Outcome:
        message = request.message
        assert isinstance(message, MetadataRequest)
        describe, create = row
        peer = request.peer
        if message.topics is None:
            is_visible = self._access.visible(peer, replace(describe, scope=Scope.HIDE))

            def listed(reply: Reply) -> Reply:
                answer = reply.message
                assert isinstance(answer, MetadataResponse)
                return Reply(replace(answer, topics=tuple(each for each in answer.topics if is_visible(each.topic))))

            return then(handler(request), listed)
        denied = self._access.denied(peer, describe, message.topics)
        if message.allow_auto_create:
            missing = [name for name in message.topics if name not in denied and not self._is_known(name)]
            denied |= self._access.denied(peer, create, missing)
        if not denied:
            return handler(request)
        kept = tuple(name for name in message.topics if name not in denied)

        def completed(reply: Reply) -> Reply:
            answer = reply.message
            assert isinstance(answer, MetadataResponse)
            refused = (
                TopicMetadata(name, _REFUSED, NO_TOPIC_ID, ())
                for name in dict.fromkeys(message.topics or ())
                if name in denied
            )
            return Reply(replace(answer, topics=(*answer.topics, *refused)))

        return then(handler(Request(replace(message, topics=kept), request.body, peer)), completed)

    def _visible_replicas(self, peer: Peer, need: Need, reply: Reply) -> Reply:
        answer = reply.message
        assert isinstance(answer, DescribeReplicasResponse)
        is_visible = self._access.visible(peer, need)
        return Reply(replace(answer, replicas=tuple(each for each in answer.replicas if is_visible(each.topic))))

    def _visible_groups(self, peer: Peer, need: Need, reply: Reply) -> Reply:
        """Groups, or a group's offsets by topic."""
        answer = reply.message
        is_visible = self._access.visible(peer, need)
        if isinstance(answer, ListGroupsResponse):
            return Reply(replace(answer, groups=tuple(each for each in answer.groups if is_visible(each.group))))
        assert isinstance(answer, DescribeGroupResponse)
        return Reply(replace(answer, offsets=tuple(each for each in answer.offsets if is_visible(each.topic))))

    def _visible_transactions(self, peer: Peer, need: Need, reply: Reply) -> Reply:
        """Transactional ids, or partitions by topic."""
        answer = reply.message
        is_visible = self._access.visible(peer, need)
        if isinstance(answer, ListTransactionsResponse):
            shown = tuple(each for each in answer.transactions if is_visible(each.transactional_id))
            is_partial = len(shown) < len(answer.transactions)
            return Reply(replace(answer, transactions=shown, is_partial=is_partial))
        if isinstance(answer, DescribeTransactionResponse):
            return Reply(replace(answer, partitions=tuple(each for each in answer.partitions if is_visible(each[0]))))
        assert isinstance(answer, OpenTransactionsResponse)
        return Reply(
            replace(answer, transactions=tuple(each for each in answer.transactions if is_visible(each.topic)))
        )


def then(outcome: Outcome, change: Callable[[Reply], Reply]) -> Outcome:
    """The outcome with its reply changed, now or when it comes."""
    if outcome is None or isinstance(outcome, Reply):
        return None if outcome is None else change(outcome)
    if isinstance(outcome, asyncio.Future):
        return _later_future(outcome, change)
    return _later(outcome, change)


async def _later(outcome: Awaitable[Reply | None], change: Callable[[Reply], Reply]) -> Reply | None:
    reply = await outcome
    return None if reply is None else change(reply)


def _later_future(
    outcome: asyncio.Future[Reply | None], change: Callable[[Reply], Reply]
) -> asyncio.Future[Reply | None]:
    """A future stays one: the server cancels it when its connection is gone."""
    changed: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def came(future: asyncio.Future[Reply | None]) -> None:
        if changed.done():
            return
        if future.cancelled():
            changed.cancel()
        elif (error := future.exception()) is not None:
            changed.set_exception(error)
        else:
            reply = future.result()
            changed.set_result(None if reply is None else change(reply))

    outcome.add_done_callback(came)
    changed.add_done_callback(lambda future: outcome.cancel() if future.cancelled() else None)
    return changed
