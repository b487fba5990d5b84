"""The Kafka listener's services in memory: one broker, no disk, no ZooKeeper. For tests of the listener alone."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from kafkalite.admin.acls import AclManager
from kafkalite.admin.tokens import TokenAdmin
from kafkalite.config import (
    BrokerConfig,
    TopicConfig,
    internal_topic_config,
    topic_config,
    usable_topic_config,
    with_dynamic,
)
from kafkalite.coordination.coordinator import Coordinator, NotSentError
from kafkalite.coordination.topic_configs import BROKERS, FEATURES, GROUPS, TOPICS, broker_entity
from kafkalite.coordinators.services import ExtensionHandler, LogDirDescription, LogDirReplica
from kafkalite.env.loop_times import LoopTimes
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ConfigError, ErrorCode, api_error
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
)
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from kafkalite.features import Finalized, finalized, registered
from kafkalite.model import (
    ELR_VERSION,
    INTERNAL_TOPICS,
    NO_TOPIC_ID,
    TRANSACTION_VERSION,
    BrokerEpoch,
    BrokerId,
    ProducerId,
    TopicId,
    TopicPartition,
)
from kafkalite.partition_values import (
    CurrentLeader,
    PartitionMetadata,
    TopicMetadata,
)
from kafkalite.replica.deleted_topics import DeletedTopics
from kafkalite.replica.requests import (
    MetadataResponse,
)
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import Broker
from kafkalite.security.principal import Principal

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity
from tests.support.memory_partitions import EPOCH, MemoryLog, MemoryPartitions


async def _no_session() -> Coordinator:
    raise NotSentError("no ZooKeeper here")


class MemoryServices:
    """See the module. Set `kafka_endpoint` once the listener is bound."""

    def __init__(self, config: BrokerConfig, clock: Clock, network: Network, supervisor: Supervisor) -> None:
        self._config = config
        self.clock = clock
        self.loop_times = LoopTimes(clock)
        self.network = network
        self.random = random.Random(1)
        self.entropy: Callable[[int], bytes] = random.Random(2).randbytes
        self.security: dict[str, ListenerSecurity] = {}
        self.node_principals: frozenset[Principal] = frozenset()
        #: User -> mechanism -> credential as text.
        self.users: dict[str, dict[str, str]] = {}
        self.supervisor = supervisor
        self.rights = AclManager(config, clock, _no_session)
        self.tokens = TokenAdmin(config, clock, _no_session, self.entropy)
        self.partitions = MemoryPartitions()
        self.kafka_endpoint = ("127.0.0.1", 0)
        self.features_written_at = -1
        #: Brokers that have ever started.
        self.started: set[BrokerId] = set()
        #: Type of the entity -> name -> settings.
        self.settings: defaultdict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        #: What only a controller can do: the requests that came, and by class the answer that the next one gets.
        self.orders: list[ElectLeadersRequest | AlterReassignmentsRequest | ListReassignmentsRequest] = []
        self.answers: dict[Any, Any] = {}
        #: Handlers of the extension API; tests add theirs.
        self.extension: dict[type[Message], ExtensionHandler] = {}
        #: What `current_leader` returns, instead of this node.
        self.leaders: dict[TopicPartition, CurrentLeader] = {}
        self._ids: dict[str, TopicId] = {}
        self.deleted = DeletedTopics()
        self._blocks = count()
        self._metadata_versions: Iterator[int] = count()

    async def serve_extension(self, message: Message) -> Message:
        serve = self.extension.get(type(message))
        if serve is None:
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{type(message).__name__} is not served here")
        return await serve(message)

    async def known_everywhere(self, what: str) -> None:
        """There is no other node."""

    async def run_blocking(self, function: Callable[[], object]) -> object:
        return await asyncio.to_thread(function)

    async def dial_kafka(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
        return *await self.network.dial(host, port), float("inf")

    async def scram_users(self, names: Sequence[str] | None) -> Mapping[str, Mapping[str, int]]:
        wanted = self.users if names is None else {name: self.users[name] for name in names if name in self.users}
        return {
            name: {mechanism: int(text.rpartition("=")[2]) for mechanism, text in held.items()}
            for name, held in wanted.items()
            if held
        }

    async def alter_scram_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        held = {**self.users.get(name, {}), **changes}
        self.users[name] = {mechanism: text for mechanism, text in held.items() if text is not None}

    @property
    def broker_id(self) -> BrokerId:
        return BrokerId(1)

    @property
    def cluster_id(self) -> str:
        return "memory"

    def current_leader(self, partition: TopicPartition, listener_name: str) -> CurrentLeader | None:
        known = self.leaders.get(partition)
        if known is None and partition in self.partitions.logs:
            known = CurrentLeader(self.broker_id, EPOCH, *self.kafka_endpoint, None)
        return known

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        names = sorted(self._ids) if topics is None else topics
        host, port = self.kafka_endpoint
        broker = Broker(
            self.broker_id, BrokerEpoch(1), host, port, host, 1, None, TRANSACTION_VERSION, ELR_VERSION,
            features=registered(),
        )  # fmt: skip
        return MetadataResponse(self.cluster_id, self.broker_id, (broker,), tuple(map(self._topic, names)))

    def _topic(self, name: str) -> TopicMetadata:
        if name not in self._ids:
            return TopicMetadata(name, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), NO_TOPIC_ID, ())
        me = self.broker_id
        partitions = sorted(key.partition for key in self.partitions.logs if key.topic == name)
        return TopicMetadata(
            name, 0, self._ids[name], tuple(PartitionMetadata(p, 0, me, EPOCH, (me,), (me,)) for p in partitions)
        )

    @property
    def metadata_version(self) -> int:
        """Nothing says here whether anything has changed."""
        return next(self._metadata_versions)

    async def metadata_changed(self) -> None:
        await asyncio.sleep(0.01)

    def topic_name(self, topic_id: TopicId) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def is_deleted(self, name: str, topic_id: TopicId) -> bool:
        return (name, topic_id) in self.deleted

    def is_id_deleted(self, topic_id: TopicId) -> bool:
        return self.deleted.has_id(topic_id)

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            replicas = topic.replication_factor if topic.replication_factor > 0 else 1
            count = len(topic.assignment) if topic.assignment else topic.partitions
            count = count if count > 0 else self.config.num_partitions
            if topic.topic in self._ids:
                results.append(TopicResult(topic.topic, int(ErrorCode.TOPIC_ALREADY_EXISTS), "it exists"))
                continue
            if count > self.config.max_partitions_per_topic:
                results.append(TopicResult(topic.topic, int(ErrorCode.INVALID_PARTITIONS), "too many"))
                continue
            if replicas > 1:
                results.append(TopicResult(topic.topic, int(ErrorCode.INVALID_REPLICATION_FACTOR), "one broker"))
                continue
            try:
                topic_config(self.config.topic, topic.configs or {})
            except ConfigError as error:
                results.append(TopicResult(topic.topic, int(ErrorCode.INVALID_CONFIG), str(error)))
                continue
            topic_id = TopicId(f"{self.random.getrandbits(96):024x}"[:21] + "A")
            if not request.validate_only:
                self._ids[topic.topic] = topic_id
                self.deleted.is_there(topic.topic, topic_id)
                self.settings[TOPICS][topic.topic] = dict(topic.configs or {})
                self._add(topic.topic, range(count))
            results.append(TopicResult(topic.topic, 0, "", topic_id, count, replicas))
        return CreateTopicsResponse(tuple(results))

    def _add(self, topic: str, partitions: range) -> None:
        for partition in partitions:
            self.partitions.logs[TopicPartition(topic, partition)] = MemoryLog()
        self.partitions.tell_change()

    async def delete_topics(self, request: DeleteTopicsRequest, ids: Mapping[str, TopicId]) -> DeleteTopicsResponse:
        results = []
        for name in request.topics:
            topic_id = self._ids.pop(name, None)
            if topic_id is None:
                results.append(TopicResult(name, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "no such topic"))
                continue
            self.deleted.add(name, topic_id)
            for key in [key for key in self.partitions.logs if key.topic == name]:
                del self.partitions.logs[key]
            results.append(TopicResult(name, 0))
        return DeleteTopicsResponse(tuple(results))

    def vanish(self, name: str) -> Callable[[], None]:
        """The topic's znodes are gone, and nobody has requested its deletion; returns what brings them back."""
        topic_id = self._ids.pop(name)

        def undo() -> None:
            self._ids[name] = topic_id

        return undo

    async def missing_topics(self, topics: Sequence[str], timeout_ms: int) -> frozenset[str]:
        return frozenset(topics).difference(self._ids)

    async def create_partitions(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[BrokerId]] | None,
        *,
        timeout_ms: int,
        validate_only: bool,
    ) -> TopicResult:
        if topic not in self._ids:
            return TopicResult(topic, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "no such topic")
        have = len(self.metadata([topic]).topics[0].partitions)
        if not have < count <= self.config.max_partitions_per_topic:
            return TopicResult(topic, int(ErrorCode.INVALID_PARTITIONS), f"there are {have} already")
        if not validate_only:
            self._add(topic, range(have, count))
        return TopicResult(topic, 0)

    @property
    def static_config(self) -> BrokerConfig:
        return self._config

    @property
    def config(self) -> BrokerConfig:
        brokers = self.settings[BROKERS]
        return with_dynamic(self._config, *(brokers.get(broker_entity(each), {}) for each in (None, self.broker_id)))

    def features(self) -> Finalized:
        return finalized(self.metadata([]).brokers, self.settings[FEATURES].get("", {}), self.features_written_at)

    def feature_level(self, name: str) -> int:
        return self.features().level(name)

    async def update_features(self, levels: Mapping[str, int]) -> None:
        held = self.settings[FEATURES].setdefault("", {})
        self.features_written_at = self.features().epoch + 1
        held |= {name: str(level) for name, level in levels.items()}

    async def forget_broker(self, broker_id: BrokerId) -> bool:
        was_known = broker_id in self.started
        self.started.discard(broker_id)
        return was_known

    def settings_of(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        return {name: held for name, held in self.settings[entity_type].items() if held}

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self.settings[GROUPS].get(group_id, {})

    async def entity_overrides(self, entity_type: str, name: str) -> Mapping[str, str]:
        return self.settings[entity_type].get(name, {})

    async def replace_entity_overrides(
        self, entity_type: str, name: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> bool:
        settings = self.settings[entity_type]
        if settings.get(name, {}) != before:
            return False
        settings[name] = dict(after)
        return True

    async def check_broker_state(self, broker_id: BrokerId, state: str) -> None:
        return

    async def topic_overrides(self, topic: str) -> Mapping[str, str]:
        if topic not in self._ids:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.settings[TOPICS][topic]

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        if topic in INTERNAL_TOPICS:
            return internal_topic_config(self.config, topic, overrides, others_flush=False)
        return usable_topic_config(self.config.topic, overrides)

    def log_dirs(self) -> Generator[None, None, list[LogDirDescription]]:
        replicas = [
            LogDirReplica(key, sum(len(piece) for _, piece in log.batches), 0)
            for key, log in sorted(self.partitions.logs.items())
        ]
        yield from ()
        return [LogDirDescription("/memory", ErrorCode.NONE, 4000, 3000, tuple(replicas))]

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, ErrorCode]:
        return {
            partition: ErrorCode.LOG_DIR_NOT_FOUND
            if path != "/memory"
            else ErrorCode.NONE
            if partition in self.partitions.logs
            else ErrorCode.REPLICA_NOT_AVAILABLE
            for partition, path in assignments.items()
        }

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        self.orders.append(request)
        answer: ElectLeadersResponse = self.answers.pop(ElectLeadersResponse, ElectLeadersResponse(0))
        return answer

    async def alter_reassignments(self, request: AlterReassignmentsRequest) -> AlterReassignmentsResponse:
        self.orders.append(request)
        answer: AlterReassignmentsResponse = self.answers.pop(AlterReassignmentsResponse, AlterReassignmentsResponse(0))
        return answer

    async def list_reassignments(self, request: ListReassignmentsRequest) -> ListReassignmentsResponse:
        self.orders.append(request)
        answer: ListReassignmentsResponse = self.answers.pop(ListReassignmentsResponse, ListReassignmentsResponse(0))
        return answer

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        return ProducerId(next(self._blocks) * 1000), 1000
