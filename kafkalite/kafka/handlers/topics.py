"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordinators.services import Services
from kafkalite.env.turns import with_pauses
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, NewTopic, TopicResult
from kafkalite.kafka.handlers.cluster import TOPIC_NAME_RULE, is_topic_name
from kafkalite.kafka.handlers.configs.describing import DescribeConfigHandlers
from kafkalite.kafka.mutations import EXCEEDED, may_change
from kafkalite.kafka.pieces import MAX_NEW_PARTITIONS
from kafkalite.kafka.request import Handler, Request
from kafkalite.model import INTERNAL_TOPICS, NO_LEADER, BrokerId
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import Need, Scope

_DESCRIBE_CONFIGS = Need(ResourceType.TOPIC, Operation.DESCRIBE_CONFIGS, Scope.HIDE)
#: From this version on, the response has the topic's configuration.
_CONFIGS_FROM = 5
#: Who may delete every topic may know their names.
_KNOW_TO_DELETE = Need(ResourceType.TOPIC, Operation.DESCRIBE, Scope.HIDE, or_cluster=Operation.DELETE)
#: Topics that this node does not know, in one CreatePartitions: from here on they are looked for together, as each would be read from ZooKeeper.
_MANY_UNKNOWN = 20
#: From this version of DeleteTopics on, there is an error for deletions that are switched off.
_DISABLED_FROM = 3


class TopicHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._access = services.rights.access
        self._configs = DescribeConfigHandlers(services)

    def table(self) -> dict[str, Handler]:
        return {
            "CreateTopics": self.create_topics,
            "DeleteTopics": self.delete_topics,
            "CreatePartitions": self.create_partitions,
        }

    # --- CreateTopics ---

    async def create_topics(self, request: Request, message: wire.CreateTopicsRequest) -> wire.CreateTopicsResponse:
        deadline = _deadline(message.timeout_ms)
        _check_size(message, self._services.config.num_partitions)
        new_topics, results = self._to_create(request, message)
        if new_topics:
            created = await self._services.create_topics(
                CreateTopicsRequest(tuple(new_topics), message.timeout_ms, message.validate_only)
            )
            results |= {result.topic: result for result in created.topics}
        if not message.validate_only:
            made = [result.topic for result in results.values() if not result.error]
            if not await self._until(lambda: self._have_leaders(made), deadline):
                late = int(ErrorCode.REQUEST_TIMED_OUT), "created; its leaders are not known yet"
                results |= {name: TopicResult(name, *late) for name in made if not self._have_leaders([name])}
        is_described = self._access.visible(request, _DESCRIBE_CONFIGS)
        asked = {topic.name: topic.configs for topic in message.topics}
        answers = [_created(results[name], is_described=is_described(name)) for name in asked]
        for answer in answers if request.version >= _CONFIGS_FROM else ():
            if not answer.error_code and answer.configs is not None:
                overrides = {each.name: each.value for each in asked[answer.name] if each.value is not None}
                try:
                    answer.configs = await self._configs.of_new_topic(answer.name, overrides)
                except (ApiError, CoordinatorError):  # it is made all the same
                    answer.configs, answer.topic_config_error_code = None, int(ErrorCode.UNKNOWN_SERVER_ERROR)
        return wire.CreateTopicsResponse(topics=answers)

    def _to_create(
        self, request: Request, message: wire.CreateTopicsRequest
    ) -> tuple[list[NewTopic], dict[str, TopicResult]]:
        """The topics to create, and what is refused, by name."""
        times = Counter(topic.name for topic in message.topics)
        refused: dict[str, TopicResult] = {}
        new_topics: list[NewTopic] = []
        for topic in message.topics:
            problem = _new_topic_problem(topic, times[topic.name])
            if topic.name in request.denied.topics and times[topic.name] == 1:
                problem = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
            if problem is None and not message.validate_only and not self._may_create(request, topic):
                problem = EXCEEDED
            if problem is not None:
                refused[topic.name] = TopicResult(topic.name, int(problem[0]), problem[1])
            else:
                new_topics.append(_new_topic(topic))
        return new_topics, refused

    def _may_create(self, request: Request, topic: wire.CreateTopicsRequest.CreatableTopic) -> bool:
        """Whether the quota of changes has room. What exists already, and is refused for that, costs nothing."""
        if request.throttle is None or not self._services.metadata([topic.name]).topics[0].error:
            return True
        count = len(topic.assignments) or topic.num_partitions
        return may_change(request, self._services.config.num_partitions if count == -1 else count)

    def _partitions(self, topic: str) -> int:
        """How many it has; 0: there is no such topic."""
        found = self._services.metadata([topic]).topics[0]
        return 0 if found.error else len(found.partitions)

    def _have_leaders(self, topics: list[str]) -> bool:
        return all(
            not topic.error and topic.partitions and all(part.leader != NO_LEADER for part in topic.partitions)
            for topic in self._services.metadata(topics).topics
        )

    async def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Wait until the cache shows it, at most until `deadline` (the loop's time)."""
        try:
            async with asyncio.timeout_at(deadline):
                while not condition():
                    await self._services.metadata_changed()
        except TimeoutError:
            return condition()
        return True

    # --- DeleteTopics ---

    async def delete_topics(self, request: Request, message: wire.DeleteTopicsRequest) -> wire.DeleteTopicsResponse:
        deadline = _deadline(message.timeout_ms)
        result_class = wire.DeleteTopicsResponse.DeletableTopicResult
        wanted, answers = self._to_delete(request, message)
        known = {topic.topic: topic_ids.to_wire(topic.topic_id) for topic in self._services.metadata([*wanted]).topics}
        names = []
        for name in wanted:
            if may_change(request, self._partitions(name)):
                names.append(name)
            else:
                answers.append(result_class(name, known.get(name, ZERO_UUID), int(EXCEEDED[0]), EXCEEDED[1]))
        deleted = []
        if names:
            response = await self._services.delete_topics(
                DeleteTopicsRequest(tuple(names), message.timeout_ms),
                {name: topic_ids.from_wire(raw) for name in names if (raw := wanted[name]) is not None},
            )
            for result in response.topics:
                if not result.error:
                    deleted.append(result.topic)
                raw_id = wanted[result.topic] or known.get(result.topic, ZERO_UUID)
                code = int(result.error)
                if code == ErrorCode.TOPIC_DELETION_DISABLED and request.version < _DISABLED_FROM:
                    code = int(ErrorCode.INVALID_REQUEST)
                answers.append(result_class(result.topic, raw_id, code, result.message or None))
        await self._until(lambda: self._are_gone(deleted), deadline)
        return wire.DeleteTopicsResponse(responses=answers)

    def _to_delete(
        self, request: Request, message: wire.DeleteTopicsRequest
    ) -> tuple[dict[str, bytes | None], list[wire.DeleteTopicsResponse.DeletableTopicResult]]:
        """Topic -> the id by which it is to be deleted, None: by its name; and what is refused.

        Source: Kafka's ControllerApis.deleteTopics.
        """
        result_class = wire.DeleteTopicsResponse.DeletableTopicResult
        invalid, refused = int(ErrorCode.INVALID_REQUEST), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        denied, is_visible = request.denied.topics, self._access.visible(request, _KNOW_TO_DELETE)
        answers: list[wire.DeleteTopicsResponse.DeletableTopicResult] = []
        by_name, by_id = Counter(message.topic_names), Counter[bytes]()
        for topic in message.topics if request.version >= 6 else ():
            if topic.name is None and topic.topic_id == ZERO_UUID:
                answers.append(result_class(None, ZERO_UUID, invalid, "neither a name nor an id"))
            elif topic.name is None:
                by_id[topic.topic_id] += 1
            elif topic.topic_id == ZERO_UUID:
                by_name[topic.name] += 1
            else:
                answers.append(result_class(topic.name, topic.topic_id, invalid, "give the name or the id, not both"))
        wanted: dict[str, bytes | None] = {}
        for raw, times in by_id.items():
            name = self._services.topic_name(topic_ids.from_wire(raw))
            if times > 1:
                answers.append(result_class(None, raw, invalid, "the topic id is there twice"))
            elif name is None:
                answers.append(result_class(None, raw, int(ErrorCode.UNKNOWN_TOPIC_ID), "no such topic id"))
            elif name in denied or not is_visible(name):
                answers.append(result_class(name if is_visible(name) else None, raw, refused))
            else:
                wanted[name] = raw
        for name, times in by_name.items():
            if times > 1:
                answers.append(result_class(name, ZERO_UUID, invalid, "the topic is named twice"))
            elif name in denied:
                is_unknown = is_visible(name) and self._services.metadata([name]).topics[0].error
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if is_unknown else refused
                answers.append(result_class(name, ZERO_UUID, code))
            elif (known_id := wanted.pop(name, None)) is not None:
                answers.append(result_class(name, known_id, invalid, "the topic is named by its id, too"))
            else:
                wanted[name] = None
        return wanted, answers

    def _are_gone(self, topics: list[str]) -> bool:
        return not topics or all(topic.error for topic in self._services.metadata(topics).topics)

    # --- CreatePartitions ---

    async def create_partitions(
        self, request: Request, message: wire.CreatePartitionsRequest
    ) -> wire.CreatePartitionsResponse:
        deadline = _deadline(message.timeout_ms)
        result_class = wire.CreatePartitionsResponse.CreatePartitionsTopicResult
        times = Counter(topic.name for topic in message.topics)
        added, unknown = await self._added_partitions(request, message)
        if added > MAX_NEW_PARTITIONS:
            text = "Excessively large number of additional partitions per request."
            raise api_error(ErrorCode.POLICY_VIOLATION, text)
        missing: frozenset[str] = frozenset()
        if len(unknown) > _MANY_UNKNOWN:
            possible = [name for name in unknown if is_topic_name(name)]
            missing = frozenset(unknown).difference(possible)
            missing |= await self._services.missing_topics(possible, message.timeout_ms)
        answers = []
        async for topic in with_pauses(message.topics):
            if times[topic.name] > 1:
                answers.append(result_class(topic.name, int(ErrorCode.INVALID_REQUEST), "the topic is named twice"))
                continue
            if topic.name in request.denied.topics:
                code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answers.append(result_class(topic.name, code, "The topic authorization is failed."))
                continue
            if topic.name in missing:
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answers.append(result_class(topic.name, code, f"there is no topic {topic.name!r}"))
                continue
            more = topic.count - self._partitions(topic.name)
            if more < topic.count and not message.validate_only and not may_change(request, more):
                answers.append(result_class(topic.name, int(EXCEEDED[0]), EXCEEDED[1]))
                continue
            assignments = None
            if topic.assignments is not None:
                assignments = [[BrokerId(replica) for replica in entry.broker_ids] for entry in topic.assignments]
            left_ms = max(0, int((deadline - asyncio.get_running_loop().time()) * 1000))
            result = await self._services.create_partitions(
                topic.name, topic.count, assignments, timeout_ms=left_ms, validate_only=message.validate_only
            )
            answers.append(result_class(topic.name, result.error, result.message or None))
            if not result.error and not message.validate_only:
                wanted = [topic.name]

                def is_there(wanted: list[str] = wanted, count: int = topic.count) -> bool:
                    known = self._services.metadata(wanted).topics
                    return len(known[0].partitions) >= count and self._have_leaders(wanted)

                await self._until(is_there, deadline)
        return wire.CreatePartitionsResponse(results=answers)

    async def _added_partitions(self, request: Request, message: wire.CreatePartitionsRequest) -> tuple[int, list[str]]:
        """How many partitions the topics get that exist; and the topics that this node does not know. Of those that the client may alter."""
        added, unknown = 0, []
        async for topic in with_pauses(message.topics):
            if topic.name in request.denied.topics:
                continue
            has = self._partitions(topic.name)
            if not has and topic.name not in INTERNAL_TOPICS:
                unknown.append(topic.name)
            elif 0 < has < topic.count:
                added += topic.count - has
        return added, unknown


def _deadline(timeout_ms: int) -> float:
    """The loop's time at which a request that begins now has to be answered."""
    return asyncio.get_running_loop().time() + max(0, timeout_ms) / 1000


def _check_size(message: wire.CreateTopicsRequest, default_partitions: int) -> None:
    """Refuse the request as a whole if it asks for too many partitions, before anything else, as KRaft does. Raises ApiError."""
    wanted = 0
    for topic in message.topics:
        count = len(topic.assignments) or topic.num_partitions
        wanted += default_partitions if count == -1 else max(count, 0)
    if wanted > MAX_NEW_PARTITIONS:
        raise api_error(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _new_topic_problem(topic: wire.CreateTopicsRequest.CreatableTopic, times: int) -> tuple[ErrorCode, str] | None:
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "the topic is named twice"
    if not is_topic_name(topic.name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION, TOPIC_NAME_RULE
    if topic.assignments and (topic.num_partitions != -1 or topic.replication_factor != -1):
        return ErrorCode.INVALID_REQUEST, "an assignment and counts exclude each other"
    if len({entry.partition_index for entry in topic.assignments}) < len(topic.assignments):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assignment names a partition twice"
    if topic.num_partitions == 0 or topic.num_partitions < -1:
        return ErrorCode.INVALID_PARTITIONS, "the number of partitions must be positive"
    if topic.replication_factor == 0 or topic.replication_factor < -1:
        return ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor must be positive"
    if any(config.value is None for config in topic.configs):
        return ErrorCode.INVALID_CONFIG, "a configuration without a value"
    return None


def _new_topic(topic: wire.CreateTopicsRequest.CreatableTopic) -> NewTopic:
    assignment = {
        entry.partition_index: tuple(BrokerId(replica) for replica in entry.broker_ids) for entry in topic.assignments
    }
    return NewTopic(
        topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment or None,
        configs={config.name: config.value for config in topic.configs if config.value is not None} or None,
    )


def _created(result: TopicResult, *, is_described: bool) -> wire.CreateTopicsResponse.CreatableTopicResult:
    answer = wire.CreateTopicsResponse.CreatableTopicResult(
        name=result.topic,
        topic_id=topic_ids.to_wire(result.topic_id),
        error_code=result.error,
        error_message=(result.message or ErrorCode(result.error).name) if result.error else None,
        configs=None,
    )
    if not is_described:
        # Kafka: how many partitions and replicas, and under which configuration, is for those who may describe that.
        if not result.error:
            answer.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answer
    answer.num_partitions, answer.replication_factor = result.partitions, result.replication_factor
    if not result.error:
        answer.configs = ()
    return answer
