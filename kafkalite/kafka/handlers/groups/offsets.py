"""Committed offsets of groups: from requests to the coordinator and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.coordinators.groups.commits import CommitResults
from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.groups.decisions.members import Committer
from kafkalite.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from kafkalite.coordinators.internal_log import partition_of
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions.questions import Asker
from kafkalite.coordinators.transactions.verifier import TransactionVerifier, Waiter, refusal
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka import stepped
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps
from kafkalite.kafka.topic_names import described, naming
from kafkalite.model import GROUP_TOPIC, NO_TOPIC_ID, Offset, ProducerId, TopicId, TopicPartition
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import Need, Scope

#: Versions of TxnOffsetCommit that know TRANSACTION_ABORTABLE, and that leave it to us to add the group (KIP-890).
_ABORTABLE_FROM = 4
_ADDS_FROM = 5
#: The version of OffsetCommit that knows member epochs (KIP-848).
_EPOCHS_FROM = 9
#: From this version of OffsetFetch on, an error is of the whole answer.
_ERROR_FROM = 2
#: From these versions on, topics are named by id, and groups that do not exist are an error; TxnOffsetCommit knows member epochs, too.
_TXN_COMMIT_IDS_FROM = 6
_COMMIT_IDS_FROM = 10
_FETCH_IDS_FROM = 10
_DESCRIBE_TOPIC = Need(ResourceType.TOPIC, Operation.DESCRIBE, Scope.HIDE)


if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _Topic = (
        wire.OffsetCommitRequest.OffsetCommitRequestTopic
        | wire.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        | wire.OffsetDeleteRequest.OffsetDeleteRequestTopic
    )
    _Offset = (
        wire.OffsetCommitRequest.OffsetCommitRequestPartition
        | wire.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    )
    _FetchedTopics = (
        Sequence[wire.OffsetFetchRequest.OffsetFetchRequestTopic]
        | Sequence[wire.OffsetFetchRequest.OffsetFetchRequestTopics]
        | None
    )


class OffsetHandlers:
    def __init__(
        self, services: Services, groups: GroupCoordinator, verifier: Callable[[], TransactionVerifier]
    ) -> None:
        self._services = services
        self._groups = groups
        self._verifier = verifier
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {
            "OffsetCommit": self.offset_commit,
            "TxnOffsetCommit": self.txn_offset_commit,
            "OffsetFetch": self.offset_fetch,
            "OffsetDelete": self.offset_delete,
        }

    def _existing(self, topics: Sequence[_Topic]) -> Steps[dict[str, tuple[TopicId, int]]]:
        """Of each of these topics its id, and how many partitions it has; 0: it does not exist.

        Raises ApiError COORDINATOR_LOAD_IN_PROGRESS: this node has just started, and does not know the cluster's topics.
        """
        names = list(dict.fromkeys(topic.name for topic in topics))
        found: dict[str, tuple[TopicId, int]] = {}
        for start in range(0, len(names) or 1, STEP):
            if start:
                yield
            known = self._services.metadata(names[start : start + STEP])
            if not known.brokers:
                raise api_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            found |= {topic.topic: (topic.topic_id, len(topic.partitions)) for topic in known.topics}
        return found

    def offset_commit(self, request: Request, message: wire.OffsetCommitRequest) -> Steps[None]:
        expire_ms = -1
        if 2 <= request.version <= 4 and message.retention_time_ms >= 0:
            # "For ever" has to fit into a record.
            expire_ms = min(self._services.clock.wall_ms() + message.retention_time_ms, 2**63 - 1)
        by_id = request.version >= _COMMIT_IDS_FROM
        offsets, refused = yield from self._sorted_out(request, message, expire_ms, by_id=by_id)

        def done(results: CommitResults) -> None:
            response = wire.OffsetCommitResponse
            classes = (response, response.OffsetCommitResponseTopic, response.OffsetCommitResponsePartition)
            stepped.respond(request, _committed(classes, message, results, refused))

        if not offsets:
            done({})
            return
        committer = Committer(
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id_or_member_epoch,
            knows_epochs=request.version >= _EPOCHS_FROM,
        )
        try:
            yield from self._groups.offsets.committing(committer, offsets, done)
        except ApiError as failure:
            done(dict.fromkeys(offsets, failure.code))  # partitions that do not exist keep their own error

    def txn_offset_commit(self, request: Request, message: wire.TxnOffsetCommitRequest) -> Steps[None]:
        """The group's partition of `__consumer_offsets` must be part of the transaction (KIP-890), as any other."""
        by_id = request.version >= _TXN_COMMIT_IDS_FROM
        offsets, refused = yield from self._sorted_out(request, message, -1, by_id=by_id)
        producer = (ProducerId(message.producer_id), message.producer_epoch)

        def done(results: CommitResults) -> None:
            response = wire.TxnOffsetCommitResponse
            classes = (response, response.TxnOffsetCommitResponseTopic, response.TxnOffsetCommitResponsePartition)
            stepped.respond(request, _committed(classes, message, results, refused))

        def committing(guard: int | None, error: ErrorCode = ErrorCode.NONE) -> Steps[None]:
            committer = Committer(
                message.group_id,
                message.member_id,
                message.group_instance_id,
                message.generation_id_or_member_epoch,
                producer,
                knows_epochs=by_id,
            )
            try:
                if error:
                    raise api_error(_txn_offset_commit_error(error, knows_abortable=request.version >= _ABORTABLE_FROM))
                yield from self._groups.offsets.committing(committer, offsets, done, guard=guard)
            except ApiError as failure:
                done(dict.fromkeys(offsets, failure.code))

        def verified(error: ErrorCode, guard: int) -> None:
            stepped.run(request, committing(guard, error))

        adds = request.version >= _ADDS_FROM
        if not offsets:
            done({})
        elif not adds and not self._services.config.transaction_partition_verification_enable:
            yield from committing(None)
        else:
            log = self._groups.log
            log.state_for(message.group_id)  # raises if this node does not coordinate the group
            owner = TopicPartition(GROUP_TOPIC, partition_of(message.group_id, log.partition_count()))
            guard = self._services.partitions.begin_verification(owner, *producer, -1)
            if not guard:
                yield from committing(guard)
            else:
                asker = Asker(message.transactional_id, *producer, adds)
                self._verifier().ask(asker, [Waiter(owner, -1, guard, verified)])

    def _sorted_out(
        self,
        request: Request,
        message: wire.OffsetCommitRequest | wire.TxnOffsetCommitRequest,
        expire_ms: int,
        *,
        by_id: bool,
    ) -> Steps[tuple[dict[TopicPartition, CommittedOffset], CommitResults]]:
        """The offsets to commit, and the refused ones. `by_id`: the request names topics by their ids."""
        if by_id:
            yield from naming(self._services, message.topics)
        existing = yield from self._existing(message.topics)
        now = self._services.clock.wall_ms()
        offsets: dict[TopicPartition, CommittedOffset] = {}
        refused: CommitResults = {}
        number = 0
        for topic in message.topics:
            name = topic.name
            topic_id, count = existing.get(name, (NO_TOPIC_ID, 0))
            refusal = _topic_error(request, name, by_id=by_id)
            partitions: Sequence[_Offset] = topic.partitions
            for partition in partitions:
                number += 1
                if not number % STEP:
                    yield
                index = partition.partition_index
                key = TopicPartition(name, index)
                if refusal or not 0 <= index < count:
                    refused[key] = refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                offsets[key] = CommittedOffset(
                    Offset(partition.committed_offset),
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now,
                    expire_ms,
                    topic_id=topic_id,
                )
        return offsets, refused

    def offset_fetch(
        self, request: Request, message: wire.OffsetFetchRequest
    ) -> Steps[wire.OffsetFetchResponse] | Coroutine[Any, Any, wire.OffsetFetchResponse]:
        if message.require_stable and (pending := self._under_way(request, message)):
            return self._fetch_when_ended(pending, request, message)
        return self._offset_fetch(request, message)

    def _under_way(self, request: Request, message: wire.OffsetFetchRequest) -> list[GroupOffsets]:
        """The groups of a request with commits whose records are not replicated yet."""
        found = []
        groups = [message.group_id] if request.version < 8 else [group.group_id for group in message.groups]
        for group_id in groups:
            if group_id in request.denied.keys:
                continue
            with suppress(ApiError):  # the answer says so
                offsets = self._groups.offsets.offsets_of(group_id)
                if offsets.appending:
                    found.append(offsets)
        return found

    async def _fetch_when_ended(
        self, pending: list[GroupOffsets], request: Request, message: wire.OffsetFetchRequest
    ) -> wire.OffsetFetchResponse:
        """As in Kafka, a reader of stable offsets waits for commits that are under way, and hears of open transactions."""
        loop = asyncio.get_running_loop()
        for offsets in pending:
            ended: asyncio.Future[None] = loop.create_future()
            offsets.when_ended(partial(_end, ended))
            await ended
        return await stepped.in_slices(request, self._offset_fetch(request, message))

    def _offset_fetch(self, request: Request, message: wire.OffsetFetchRequest) -> Steps[wire.OffsetFetchResponse]:
        response = wire.OffsetFetchResponse
        if request.version < 8:
            try:
                offsets = self._groups.offsets.offsets_of(message.group_id)
            except ApiError as error:
                if request.version < _ERROR_FROM:
                    raise
                return response(error_code=int(error.code))
            entry = response.OffsetFetchResponsePartition
            topics = yield from self._offset_topics(request, offsets, message.topics, message, entry)
            return response(topics=[response.OffsetFetchResponseTopic(*each) for each in topics])
        groups = []
        # A group that is named twice is answered once: it may have thousands of offsets.
        for group in {group.group_id: group for group in message.groups}.values():
            if group.group_id in request.denied.keys:
                code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
                groups.append(response.OffsetFetchResponseGroup(group.group_id, (), code))
                continue
            try:
                offsets = self._groups.offsets.offsets_of(group.group_id, group.member_id, group.member_epoch)
            except ApiError as error:
                groups.append(response.OffsetFetchResponseGroup(group.group_id, (), int(error.code)))
                continue
            found = yield from self._group_offsets(request, group.topics, offsets, message)
            groups.append(response.OffsetFetchResponseGroup(group.group_id, found, 0))
        return response(groups=groups)

    def _group_offsets(
        self,
        request: Request,
        asked: Sequence[wire.OffsetFetchRequest.OffsetFetchRequestTopics] | None,
        offsets: GroupOffsets,
        message: wire.OffsetFetchRequest,
    ) -> Steps[list[wire.OffsetFetchResponse.OffsetFetchResponseTopics]]:
        """Of one group. Topics have ids in the versions that answer with ids."""
        of_topic, entry = (
            wire.OffsetFetchResponse.OffsetFetchResponseTopics,
            wire.OffsetFetchResponse.OffsetFetchResponsePartitions,
        )
        by_id = request.version >= _FETCH_IDS_FROM
        found = []
        if by_id and asked is not None:
            yield from naming(self._services, asked)
            # Ids that nobody knows come last, as with Kafka.
            for number, topic in enumerate(sorted(asked, key=lambda topic: not topic.name), 1):
                if not number % STEP:
                    yield
                id_ = topic_ids.from_wire(topic.topic_id)
                topics = yield from self._offset_topics(request, offsets, [topic], message, entry, topic_id=id_)
                found += [of_topic(name, topic.topic_id, partitions) for name, partitions in topics]
            return found
        topics = yield from self._offset_topics(request, offsets, asked, message, entry)
        if not by_id:
            return [of_topic(name, ZERO_UUID, partitions) for name, partitions in topics]
        known = yield from described(self._services, [name for name, _ in topics])
        ids = {name: topic.topic_id for name, topic in known.items() if topic.topic_id != NO_TOPIC_ID}
        for count, (name, partitions) in enumerate(topics, 1):
            if not count % STEP:
                yield
            if name in ids:  # a topic that is gone has no id to be named by
                held = [
                    each for each in partitions if offsets.is_of(TopicPartition(name, each.partition_index), ids[name])
                ]
                found.append(of_topic(name, topic_ids.to_wire(ids[name]), held))
        return found

    def _offset_topics(
        self,
        request: Request,
        offsets: GroupOffsets,
        asked: _FetchedTopics,
        message: wire.OffsetFetchRequest,
        entry: Callable[..., Any],
        *,
        topic_id: TopicId = NO_TOPIC_ID,
    ) -> Steps[list[tuple[str, list[Any]]]]:
        """What is committed for the topics asked for (None: for everything that the client may see).

        `entry`: makes a partition of the answer. `topic_id`: of all that are asked for, as the client knows it. What was committed for
        another topic of this name is not meant.
        """
        wanted: dict[str, list[int]] = {}
        if asked is None:
            wanted = yield from self._visible_offsets(request, offsets)
        else:
            for topic in asked:
                wanted.setdefault(topic.name, []).extend(topic.partition_indexes)
        topics = []
        count = 0
        for name, indexes in wanted.items():
            partitions: list[Any] = []
            for index in indexes:
                count += 1
                if not count % STEP:
                    yield
                key = TopicPartition(name, index)
                known = offsets.committed.get(key)
                if code := _topic_error(request, name, by_id=request.version >= _FETCH_IDS_FROM):
                    partitions.append(entry(index, -1, -1, "", int(code)))
                elif message.require_stable and offsets.is_unstable(key):
                    partitions.append(entry(index, -1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT)))
                elif known is None or known.is_of_another(topic_id):
                    partitions.append(entry(index, -1, -1, "", 0))
                else:
                    partitions.append(entry(index, known.offset, known.leader_epoch, known.metadata, 0))
            topics.append((name, partitions))
        return topics

    def _visible_offsets(self, request: Request, offsets: GroupOffsets) -> Steps[dict[str, list[int]]]:
        """The partitions with committed offsets, by topic that the client may see; sorted."""
        is_visible = self._access.visible(request, _DESCRIBE_TOPIC)
        numbers: dict[str, list[int]] = {}
        for count, key in enumerate(list(offsets.committed), 1):
            numbers.setdefault(key.topic, []).append(key.partition)
            if not count % STEP:
                yield
        found: dict[str, list[int]] = {}
        for count, name in enumerate(sorted(numbers), 1):
            if is_visible(name):
                found[name] = sorted(numbers[name])
            if not count % STEP:
                yield
        return found

    async def offset_delete(self, request: Request, message: wire.OffsetDeleteRequest) -> wire.OffsetDeleteResponse:
        wanted, refused = await stepped.in_slices(request, self._deletable(request, message))
        results = await self._groups.removal.delete_offsets(message.group_id, wanted)
        return await stepped.in_slices(request, _deleted(message, results, refused))

    def _deletable(
        self, request: Request, message: wire.OffsetDeleteRequest
    ) -> Steps[tuple[list[TopicPartition], CommitResults]]:
        """The partitions whose offsets may be deleted, and the refused ones."""
        existing = yield from self._existing(message.topics)
        refused: CommitResults = {}
        wanted: list[TopicPartition] = []
        number = 0
        for topic in message.topics:
            error = _topic_error(request, topic.name, by_id=False)
            _, count = existing.get(topic.name, (NO_TOPIC_ID, 0))
            for partition in topic.partitions:
                number += 1
                if not number % STEP:
                    yield
                key = TopicPartition(topic.name, partition.partition_index)
                if error or not 0 <= key.partition < count:
                    refused[key] = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    wanted.append(key)
        return wanted, refused


def _topic_error(request: Request, name: str, *, by_id: bool) -> ErrorCode:
    """Why no partition of the topic may be named; `by_id`: the topic was named by its id."""
    if by_id and not name:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in request.denied.topics else ErrorCode.NONE


def _deleted(
    message: wire.OffsetDeleteRequest, results: CommitResults, refused: CommitResults
) -> Steps[wire.OffsetDeleteResponse]:
    response = wire.OffsetDeleteResponse
    topics = []
    number = 0
    for topic in message.topics:
        codes = []
        for partition in topic.partitions:
            number += 1
            if not number % STEP:
                yield
            key = TopicPartition(topic.name, partition.partition_index)
            code = results[key] if key in results else refused[key]
            codes.append(response.OffsetDeleteResponsePartition(key.partition, int(code)))
        topics.append(response.OffsetDeleteResponseTopic(topic.name, codes))
    return response(topics=topics)


def _committed(
    classes: tuple[Any, Any, Any],
    message: wire.OffsetCommitRequest | wire.TxnOffsetCommitRequest,
    results: CommitResults,
    refused: CommitResults,
) -> Steps[Any]:
    """The answer. `classes`: its own, that of a topic and that of a partition in it."""
    response, of_topic, of_partition = classes
    topics = []
    number = 0
    for topic in message.topics:
        codes = []
        partitions: Sequence[_Offset] = topic.partitions
        for partition in partitions:
            number += 1
            if not number % STEP:
                yield
            key = TopicPartition(topic.name, partition.partition_index)
            code = results.get(key) or refused.get(key, ErrorCode.NONE)
            codes.append(of_partition(partition.partition_index, int(code)))
        topics.append(of_topic(topic.name, topic.topic_id, codes))
    return response(topics=topics)


def _txn_offset_commit_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    code = refusal(error, knows_abortable=knows_abortable)
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # The client asks again, and the same coordinator: this one is available.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return code


def _end(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
