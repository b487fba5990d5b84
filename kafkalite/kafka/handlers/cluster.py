"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster: the cluster as clients see it."""

from __future__ import annotations

import re
from collections.abc import Collection, Coroutine, Generator, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from kafkalite.coordination.patience import CREATION_PATIENCE_MS, waiting_at_most
from kafkalite.coordinators.internal_topics import broker_count, internal_topic, with_fewest_replicas
from kafkalite.coordinators.services import Services
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.topics import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from kafkalite.features import SUPPORTED
from kafkalite.kafka.encoded_answer import EncodedAnswer
from kafkalite.kafka.kept_metadata import KeptMetadata
from kafkalite.kafka.mutations import may_change
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps, sliced
from kafkalite.kafka.topic_names import described
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import (
    INTERNAL_TOPICS,
    NO_LEADER,
    BrokerId,
    Buffer,
    Endpoint,
)
from kafkalite.partition_values import PartitionMetadata, TopicMetadata
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.codec import encoding
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.messages.control import Broker
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import KAFKA

#: Types of endpoints (KIP-919).
_BROKERS, _CONTROLLERS = 1, 2
#: How long an answer waits for the first word of a controller.
_CONTROLLER_WAIT_S = 1.0
#: Nobody asked for them.
_NO_OPERATIONS = -(2**31)
_DESCRIBE_TOPIC, _CREATE_TOPIC = KAFKA["Metadata"]
#: max.request.partition.size.limit
MAX_PARTITIONS_PER_PAGE = 2000
#: Before this version of ApiVersions no feature may begin at 0 (KAFKA-17011).
_ZERO_MIN_FROM = 4
#: From this version of Metadata on, a leader without the client's listener is an error of its own (as in Kafka).
_LISTENER_NOT_FOUND_FROM = 6
#: From this version of Metadata on, the response begins with the time that a quota makes the client wait.
_THROTTLE_TIME_FROM = 3
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: Of a refusal.
TOPIC_NAME_RULE = "a topic's name has letters, digits, '.', '_' and '-', at most 249 of them"
#: Metadata of more partitions is put together in slices.
_PARTITIONS_AT_ONCE = 500
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def is_topic_name(name: str) -> bool:
    """Kafka's rule for topic names."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _Metadata = wire.MetadataResponse | EncodedAnswer
    _MetadataAnswer = wire.MetadataResponse | Steps[_Metadata]


@dataclass(slots=True)
class _Asked:
    """What a Metadata request is about. `names` None: all topics that the client may see."""

    names: list[str] | None
    unknown_ids: list[bytes] = field(default_factory=list)
    refused: list[wire.MetadataResponse.MetadataResponseTopic] = field(default_factory=list)
    #: Of topics that were to be created, and those that were.
    errors: dict[str, int] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)

    @property
    def is_as_for_others(self) -> bool:
        """Whether another client that asks for these topics gets the same response."""
        return not (self.unknown_ids or self.refused or self.errors or self.created)

    def refuse(self, names: Collection[str]) -> None:
        """Leave these out: the client may not create them."""
        assert self.names is not None
        self.refused += [_refused_topic(name, ZERO_UUID) for name in self.names if name in names]
        self.names = [name for name in self.names if name not in names]


class ClusterHandlers:
    def __init__(self, services: Services, kept: KeptMetadata) -> None:
        self._services = services
        self._access = services.rights.access
        self._kept = kept

    def table(self) -> dict[str, Handler]:
        return {
            "ApiVersions": self.api_versions,
            "Metadata": self.metadata,
            "DescribeCluster": self.describe_cluster,
            "DescribeTopicPartitions": self.describe_topic_partitions,
        }

    def api_versions(self, request: Request, message: wire.ApiVersionsRequest) -> wire.ApiVersionsResponse | None:
        response = wire.ApiVersionsResponse
        authenticator = request.connection.authenticator
        if authenticator is not None and authenticator.is_exchanging:
            authenticator.refuse_within(request, response(error_code=int(ErrorCode.ILLEGAL_SASL_STATE)))
            return None
        if request.version >= 3 and not (
            _SOFTWARE_NAME.fullmatch(message.client_software_name)
            and _SOFTWARE_NAME.fullmatch(message.client_software_version)
        ):
            return response(error_code=int(ErrorCode.INVALID_REQUEST))
        if request.version >= 3:
            request.connection.software = (message.client_software_name[:100], message.client_software_version[:100])
        if error := self._wrong_peer(message):
            return response(error_code=int(error))
        if authenticator is not None:
            authenticator.versions_told()
        served = request.connection.listener.apis.values()
        answer = response(
            api_keys=[
                response.ApiVersion(api.key, api.versions.start, api.versions.stop - 1)
                for api in sorted(served, key=lambda api: api.key)
            ]
        )
        features = self._services.features()
        if request.version >= _ZERO_MIN_FROM:
            answer.supported_features = [
                response.SupportedFeatureKey(name, lowest, highest)
                for name, (lowest, highest) in sorted(SUPPORTED.items())
                if highest
            ]
        if features.levels:
            answer.finalized_features_epoch = features.epoch
            answer.finalized_features = [
                response.FinalizedFeatureKey(name, level, level) for name, level in sorted(features.levels.items())
            ]
        return answer

    def _wrong_peer(self, message: wire.ApiVersionsRequest) -> ErrorCode:
        """Whether the client meant another node (KIP-1242): addresses move from cluster to cluster."""
        cluster_id, node_id = message.cluster_id, message.node_id
        if (cluster_id is None) != (node_id < 0):
            return ErrorCode.INVALID_REQUEST
        if cluster_id is None or (cluster_id, node_id) == (self._services.cluster_id, self._services.broker_id):
            return ErrorCode.NONE
        return ErrorCode.REBOOTSTRAP_REQUIRED

    def metadata(
        self, request: Request, message: wire.MetadataRequest
    ) -> _MetadataAnswer | Coroutine[Any, Any, _Metadata]:
        if self._is_new:
            return self._when_known(request, message)
        return self._known(request, message)

    @property
    def _is_new(self) -> bool:
        """Whether this node has just started, and does not know the cluster yet."""
        known = self._services.metadata([])
        return known.controller_id < 0 or not known.brokers

    async def _when_known(self, request: Request, message: wire.MetadataRequest) -> _Metadata:
        """A node that has just started has no metadata yet: a short wait is better than an empty response.

        (sarama takes an answer without a controller for good: "controller is not available".) A response without brokers has no
        topics: then clients ask again. With a topic in it, librdkafka gives up each broker that it knows, and what it has for a
        group's or a transaction's coordinator never comes back.
        """
        clock = self._services.clock
        until = clock.monotonic() + _CONTROLLER_WAIT_S
        while self._is_new and clock.monotonic() < until:
            await self._services.metadata_changed()
        known = self._services.metadata([])
        if not known.brokers:
            return wire.MetadataResponse(cluster_id=known.cluster_id)
        answer = self._known(request, message)
        return await answer if isinstance(answer, Coroutine) else await _all_of(request, answer)

    def _known(
        self, request: Request, message: wire.MetadataRequest
    ) -> _MetadataAnswer | Coroutine[Any, Any, _Metadata]:
        if message.topics is None or (request.version == 0 and not message.topics):
            return self._metadata(request, message, _Asked(None))
        asked = self._asked(request, message.topics)
        if message.allow_auto_topic_creation and self._services.config.auto_create_topics_enable:
            missing = [
                topic.topic
                for topic in self._services.metadata(asked.names).topics
                if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_topic_name(topic.topic)
            ]
            uncreatable = at_once(self._access.denying(request, _CREATE_TOPIC, missing))
            asked.refuse(uncreatable)
            missing = [name for name in missing if name not in uncreatable]
            if missing:
                return self._create_and_describe(request, message, asked, missing)
        return self._metadata(request, message, asked)

    def _asked(self, request: Request, topics: Sequence[wire.MetadataRequest.MetadataRequestTopic]) -> _Asked:
        """The topics by their names. Raises ApiError."""
        if request.version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics):
            raise api_error(ErrorCode.INVALID_REQUEST, "topics are asked for by id from version 12 on")
        asked = _Asked([])
        names: dict[str, None] = {}
        for topic in topics:
            has_id = topic.topic_id != ZERO_UUID
            name = self._services.topic_name(topic_ids.from_wire(topic.topic_id)) if has_id else topic.name or ""
            if name is None:
                asked.unknown_ids.append(topic.topic_id)
            elif name in request.denied.topics:
                # Without the right to describe it, the client gets back what it sent: the name, or the id.
                asked.refused.append(_refused_topic(None if has_id else name, topic.topic_id))
            else:
                names[name] = None
        asked.names = list(names)
        return asked

    async def _create_and_describe(
        self, request: Request, message: wire.MetadataRequest, asked: _Asked, missing: list[str]
    ) -> _Metadata:
        config = self._services.config
        brokers = broker_count(self._services.metadata(None)) if INTERNAL_TOPICS.intersection(missing) else 0
        replicas = auto_replicas(
            config.auto_create_topics_replication_factor,
            config.default_replication_factor,
            len(self._services.metadata(()).brokers),
        )
        wanted = tuple(
            internal_topic(name, config, brokers)
            if name in INTERNAL_TOPICS
            else NewTopic(name, replication_factor=replicas)
            for name in missing
            if brokers or name not in INTERNAL_TOPICS
        )
        may_change(request, len(wanted) * config.num_partitions)
        with waiting_at_most(CREATION_PATIENCE_MS):
            created = await self._services.create_topics(CreateTopicsRequest(wanted))
        # Brokers that are cordoned or draining take no replicas: then there may be fewer than are alive.
        few = {each.topic for each in created.topics if each.error == ErrorCode.INVALID_REPLICATION_FACTOR}
        fewer = tuple(
            with_fewest_replicas(order) if order.topic in INTERNAL_TOPICS else NewTopic(order.topic)
            for order in wanted
            if order.topic in few
            and (order.topic in INTERNAL_TOPICS or config.auto_create_topics_replication_factor == 0)
        )
        if fewer:
            again = (await self._services.create_topics(CreateTopicsRequest(fewer))).topics
            kept = (each for each in created.topics if each.topic not in {other.topic for other in again})
            created = CreateTopicsResponse((*kept, *again))
        asked.errors = {
            result.topic: result.error
            for result in created.topics
            if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        asked.created = set(missing) - asked.errors.keys()
        return await _all_of(request, self._metadata(request, message, asked))

    def _metadata(self, request: Request, message: wire.MetadataRequest, asked: _Asked) -> _MetadataAnswer:
        known = self._services.metadata(asked.names)
        if sum(len(topic.partitions) for topic in known.topics) > _PARTITIONS_AT_ONCE:
            return self._large(request, message, known, asked, self._services.metadata_version)
        steps = self._described(request, message, known, asked)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return cast("wire.MetadataResponse", stop.value)

    def _large(
        self,
        request: Request,
        message: wire.MetadataRequest,
        known: MetadataResponse,
        asked: _Asked,
        metadata_version: int,
    ) -> Steps[_Metadata]:
        """The response, or what it was to another client, if nothing has changed since."""
        yield  # its turn may come much later: others have had theirs
        is_for_all = asked.is_as_for_others and not (
            message.include_topic_authorized_operations or message.include_cluster_authorized_operations
        )
        if not is_for_all or (asked.names is None and self._access.authorizer is not None):
            return (yield from self._described(request, message, known, asked))
        version = request.version
        key = version, request.listener_name, tuple(topic.topic for topic in known.topics)
        body = self._kept.find(metadata_version, key)
        if body is None:
            answer = yield from self._described(request, message, known, asked)
            chunks: list[Buffer] = []
            chunks.append((yield from encoding("MetadataResponse", answer, version, bytearray(), chunks)))
            body = b"".join(chunks)
            self._kept.keep(metadata_version, key, body)
        return EncodedAnswer(body, has_throttle_time=version >= _THROTTLE_TIME_FROM)

    def _described(
        self,
        request: Request,
        message: wire.MetadataRequest,
        known: MetadataResponse,
        asked: _Asked,
    ) -> Steps[wire.MetadataResponse]:
        """The response, a step per topic, and per STEP partitions of a topic."""
        response = wire.MetadataResponse
        reachable = _reachable(request, known.brokers)
        not_here = (
            ErrorCode.LISTENER_NOT_FOUND
            if request.version >= _LISTENER_NOT_FOUND_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
        topics = []
        is_visible = self._access.visible(request, _DESCRIBE_TOPIC)
        for topic in known.topics:
            yield  # also for what is left out: to look up a right takes longer than to describe a topic
            if asked.names is None and not is_visible(topic.topic):
                continue
            entry = yield from _topic(topic, topic.partitions, reachable, not_here)
            if request.version >= 8 and message.include_topic_authorized_operations:
                entry.topic_authorized_operations = self._access.authorized_operations(
                    request, ResourceType.TOPIC, topic.topic
                )
            if not is_topic_name(topic.topic):
                entry.error_code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif topic.topic in asked.errors:
                entry.error_code = asked.errors[topic.topic]
            elif topic.topic in asked.created and entry.error_code:
                # It exists, but this node does not know its leader yet: the client asks again.
                entry.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
            topics.append(entry)
        for topic_id in asked.unknown_ids:
            topics.append(response.MetadataResponseTopic(int(ErrorCode.UNKNOWN_TOPIC_ID), None, topic_id))
        topics += asked.refused
        answer = response(
            brokers=[
                response.MetadataResponseBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
                for broker, endpoint in reachable.values()
            ],
            cluster_id=known.cluster_id,
            controller_id=_controller(known.controller_id, reachable),
            topics=topics,
        )
        if 8 <= request.version <= 10 and message.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = self._cluster_operations(request)
        return answer

    def _cluster_operations(self, request: Request) -> int:
        if not self._access.may(request, Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self._access.authorized_operations(request, ResourceType.CLUSTER)

    def describe_cluster(self, request: Request, message: wire.DescribeClusterRequest) -> wire.DescribeClusterResponse:
        response = wire.DescribeClusterResponse
        if message.endpoint_type == _CONTROLLERS:
            raise api_error(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "there are no endpoints of controllers here")
        if message.endpoint_type != _BROKERS:
            raise api_error(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {message.endpoint_type}"
            )
        known = self._services.metadata([])
        operations = _NO_OPERATIONS
        if message.include_cluster_authorized_operations:
            operations = self._cluster_operations(request)
        reachable = _reachable(request, known.brokers)
        return response(
            cluster_id=known.cluster_id,
            controller_id=_controller(known.controller_id, reachable),
            cluster_authorized_operations=operations,
            brokers=[
                response.DescribeClusterBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
                for broker, endpoint in reachable.values()
            ],
        )

    def describe_topic_partitions(
        self, request: Request, message: wire.DescribeTopicPartitionsRequest
    ) -> Steps[wire.DescribeTopicPartitionsResponse]:
        """Metadata in pages (KIP-966): topics by name, from the cursor on, at most `limit` partitions."""
        response = wire.DescribeTopicPartitionsResponse
        cursor = message.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise api_error(ErrorCode.INVALID_REQUEST, "a cursor at a negative partition")
        asked = {topic.name for topic in message.topics}
        if asked and cursor is not None and cursor.topic_name not in asked:
            raise api_error(ErrorCode.INVALID_REQUEST, "the cursor is at a topic that is not asked for")
        denied = request.denied.topics
        known = self._services.metadata(() if asked else None)
        found: Sequence[TopicMetadata] = known.topics
        if asked:
            found = list((yield from described(self._services, sorted(asked - denied))).values())
        is_visible = self._access.visible(request, _DESCRIBE_TOPIC)
        code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        start = "" if cursor is None else cursor.topic_name
        refused = [
            response.DescribeTopicPartitionsResponseTopic(code, name)
            for name in sorted(asked & denied)
            if name >= start
        ]
        reachable = _reachable(request, known.brokers)
        room = max(1, min(message.response_partition_limit, MAX_PARTITIONS_PER_PAGE))
        topics: list[wire.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = []
        for number, topic in enumerate(found, 1):
            if not number % STEP:
                yield
            if (cursor is not None and topic.topic < cursor.topic_name) or not (asked or is_visible(topic.topic)):
                continue
            first = cursor.partition_index if cursor is not None and topic.topic == cursor.topic_name else 0
            partitions = [part for part in topic.partitions if part.partition >= first]
            if topics and not room:
                return response(topics=[*topics, *refused], next_cursor=response.Cursor(topic.topic, 0))
            page = yield from topic_page(topic, partitions[:room], reachable)
            page.topic_authorized_operations = self._access.authorized_operations(
                request, ResourceType.TOPIC, topic.topic
            )
            topics.append(page)
            if len(partitions) > room:
                next_cursor = response.Cursor(topic.topic, partitions[room].partition)
                return response(topics=[*topics, *refused], next_cursor=next_cursor)
            room -= len(partitions)
        return response(topics=[*topics, *refused])


async def _all_of(request: Request, answer: _MetadataAnswer) -> _Metadata:
    return await sliced(request, answer) if isinstance(answer, Generator) else answer


def _refused_topic(name: str | None, topic_id: bytes) -> wire.MetadataResponse.MetadataResponseTopic:
    code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return wire.MetadataResponse.MetadataResponseTopic(code, name, topic_id, name in INTERNAL_TOPICS)


def _reachable(request: Request, brokers: Iterable[Broker]) -> dict[BrokerId, tuple[Broker, Endpoint]]:
    """The live brokers that have the listener of the request, with their addresses there."""
    found = {}
    for broker in brokers:
        endpoint = broker.kafka_on(request.listener_name)
        if endpoint is not None:
            found[broker.broker_id] = (broker, endpoint)
    return found


def _controller(controller_id: BrokerId, reachable: Collection[BrokerId]) -> BrokerId:
    """Any broker serves requests for the controller: another one if the client has no address of the controller."""
    if controller_id < 0 or controller_id in reachable:
        return controller_id
    return next(iter(reachable), controller_id)


def _topic(
    topic: TopicMetadata, described: Sequence[PartitionMetadata], alive: Collection[BrokerId], not_here: ErrorCode
) -> Steps[wire.MetadataResponse.MetadataResponseTopic]:
    """`described`: those of its partitions that are wanted. `alive`: brokers that the client can reach. `not_here`: the error if the leader
    is not one of them."""
    response = wire.MetadataResponse
    partitions = []
    for number, partition in enumerate(described, 1):
        if not number % STEP:
            yield
        has_leader = partition.leader != NO_LEADER and partition.leader in alive
        partitions.append(
            response.MetadataResponsePartition(
                partition.error or (0 if has_leader else int(not_here)),
                partition.partition,
                partition.leader if has_leader else NO_LEADER,
                partition.leader_epoch,
                partition.replicas,
                partition.isr,
                [replica for replica in partition.replicas if replica not in alive],
            )
        )
    return response.MetadataResponseTopic(
        topic.error, topic.topic, topic_ids.to_wire(topic.topic_id), topic.topic in INTERNAL_TOPICS, partitions
    )


def topic_page(
    topic: TopicMetadata, partitions: Sequence[PartitionMetadata], alive: Collection[BrokerId]
) -> Steps[wire.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]:
    """Some partitions of a topic, for DescribeTopicPartitions."""
    response = wire.DescribeTopicPartitionsResponse
    whole = yield from _topic(topic, partitions, alive, ErrorCode.LISTENER_NOT_FOUND)
    eligible = {part.partition: part for part in partitions}
    return response.DescribeTopicPartitionsResponseTopic(
        whole.error_code if is_topic_name(topic.topic) else int(ErrorCode.INVALID_TOPIC_EXCEPTION),
        whole.name,
        whole.topic_id,
        whole.is_internal,
        [
            response.DescribeTopicPartitionsResponsePartition(
                part.error_code,
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                part.replica_nodes,
                part.isr_nodes,
                eligible[part.partition_index].elr,
                eligible[part.partition_index].last_known_elr,
                part.offline_replicas,
            )
            for part in whole.partitions
        ],
    )


def auto_replicas(wanted: int, default: int, brokers: int) -> int:
    """How many replicas a topic gets that is created because a client asked for it. Pure.

    Args:
        wanted: auto.create.topics.replication.factor, 0: at least the default, and a replica on each of up to three brokers.
    """
    return wanted or max(default, min(3, brokers))
