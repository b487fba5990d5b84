"""What the Kafka listener needs of this node (`kafkalite.coordinators.services`), from the parts that the node has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkalite.config import BrokerConfig
from kafkalite.coordination import paths
from kafkalite.coordination.registration import forget_starts
from kafkalite.coordination.topic_configs import FEATURES, GROUPS, TOPICS, read_entity, replace_entity, write_entity
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.coordinators.services import DelegationTokens, LogDirDescription, LogDirReplica, Rights
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.topics import AddPartitionsRequest, NewPartitions, TopicResult
from kafkalite.features import Finalized, finalized
from kafkalite.kafka.stepped import STEP
from kafkalite.model import (
    NO_LEADER,
    NO_LEADER_EPOCH,
    BrokerId,
    ProducerId,
    TopicId,
    TopicPartition,
)
from kafkalite.node.kafka_partitions import NodePartitions
from kafkalite.node.metadata_answers import MetadataAnswers
from kafkalite.node.settings import CurrentSettings
from kafkalite.partition_values import CurrentLeader
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.replica.requests import MetadataResponse
from kafkalite.rpc.local_broker import LocalBroker
from kafkalite.rpc.messages.base import Message

if TYPE_CHECKING:
    from kafkalite.admin.acls import AclManager
    from kafkalite.admin.tokens import TokenAdmin
    from kafkalite.coordination.session import SessionKeeper
    from kafkalite.coordinators.producer_ids import ProducerIds
    from kafkalite.env import Env
    from kafkalite.env.loop_times import LoopTimes
    from kafkalite.env.supervisor import Supervisor
    from kafkalite.log.log_manager import LogManager
    from kafkalite.node.administration import Administration
    from kafkalite.node.catching_up import CatchingUp
    from kafkalite.node.zookeeper_health import ZooKeeperHealth
    from kafkalite.security.listener import ListenerSecurity
    from kafkalite.security.node_security import NodeSecurity
    from kafkalite.security.principal import Principal

_METADATA_POLL_S = 0.5
_T = TypeVar("_T")


class KafkaHost(Protocol):
    """The parts of the node that the Kafka listener's requests reach."""

    admin: Administration
    local: LocalBroker
    settings: CurrentSettings
    env: Env
    supervisor: Supervisor
    security: NodeSecurity | None
    rights: AclManager
    tokens: TokenAdmin
    session: SessionKeeper
    zookeeper: ZooKeeperHealth
    metadata: MetadataCache
    logs: LogManager
    replicas: ReplicaManager
    producer_ids: ProducerIds
    catching_up: CatchingUp
    extension: Mapping[type[Message], Callable[[Any], Awaitable[Message]]]
    loop_times: LoopTimes


class NodeServices:
    """See the module."""

    def __init__(self, node: KafkaHost) -> None:
        self._node = node
        self._answers = MetadataAnswers(node.metadata)
        self.clock = node.env.clock
        self.loop_times = node.loop_times
        self.network = node.env.network
        self.random = node.env.random
        self.supervisor = node.supervisor
        self.security: Mapping[str, ListenerSecurity] = node.security.kafka if node.security is not None else {}
        self.node_principals: Collection[Principal] = node.security.principals if node.security is not None else ()
        self.entropy = node.env.entropy
        self.rights: Rights = node.rights
        self.tokens: DelegationTokens = node.tokens
        self.partitions = NodePartitions(node.replicas, node.metadata)
        self.known_everywhere = node.catching_up.everywhere
        self.topic_name = node.metadata.topic_name
        self.is_id_deleted = node.metadata.deleted.has_id
        self.settings_of = node.settings.configs.entities
        self.effective_topic_config = node.settings.effective_topic_config
        self.create_topics = node.admin.topics.create_topics
        self.delete_topics = node.admin.topics.delete_topics
        self.elect_leaders = node.admin.partitions.elect
        self.alter_reassignments = node.admin.reassignments.alter
        self.list_reassignments = node.admin.reassignments.list

    async def serve_extension(self, message: Message) -> Message:
        serve = self._node.extension.get(type(message))
        if serve is None:
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{type(message).__name__} is not served here")
        return await serve(message)

    async def run_blocking(self, function: Callable[[], object]) -> object:
        return await self._node.env.disk.run_blocking(function)

    async def dial_kafka(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
        lifetime_s = float("inf")
        dialling = self._node.security.to_kafka if self._node.security is not None else None
        if dialling is None:
            return *await self.network.dial(host, port), lifetime_s
        reader, writer = await self.network.dial(host, port, dialling.tls)
        if dialling.credentials is not None:
            from kafkalite.protocol.authenticate import authenticate  # loaded only where SASL is used

            credentials = dialling.credentials
            try:
                client = credentials.client(self.entropy)
                lifetime_s = await authenticate(reader, writer, credentials.mechanism, client)
            except BaseException:
                writer.transport.abort()
                raise
        return reader, writer, lifetime_s

    async def scram_users(self, names: Sequence[str] | None) -> Mapping[str, Mapping[str, int]]:
        from kafkalite.coordination.scram_users import list_users

        return await list_users(await self._node.zookeeper.ordering(), names)

    async def alter_scram_user(self, name: str, changes: Mapping[str, str | None]) -> None:
        from kafkalite.coordination.scram_users import alter_user

        await _readable(alter_user(await self._node.zookeeper.ordering(), name, changes))

    @property
    def broker_id(self) -> BrokerId:
        return self._node.local.broker_id

    @property
    def cluster_id(self) -> str:
        return self._node.local.cluster_id

    def current_leader(self, partition: TopicPartition, listener_name: str) -> CurrentLeader | None:
        metadata = self._node.metadata
        known, hosted = metadata.partition(partition), self._node.replicas.hosted.get(partition)
        leader, epoch = (NO_LEADER, NO_LEADER_EPOCH) if known is None else (known.leader, known.leader_epoch)
        leads_here = hosted is not None and hosted.leader is not None
        if hosted is not None and hosted.leader_epoch >= epoch:
            leader, epoch = hosted.leader_id, hosted.leader_epoch
        broker = metadata.broker(leader)
        if broker is None or (
            leader == self.broker_id and not leads_here
        ):  # what this node led once: it knows no other leader yet
            return None
        endpoint = broker.kafka_on(listener_name)
        return None if endpoint is None else CurrentLeader(leader, epoch, endpoint.host, endpoint.port, broker.rack)

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        return self._answers.answer(self._node.local.cluster_id, topics)

    @property
    def metadata_version(self) -> int:
        return self._node.metadata.version

    async def metadata_changed(self) -> None:
        await _wait(self._node.metadata.changed(), _METADATA_POLL_S)

    def is_deleted(self, name: str, topic_id: TopicId) -> bool:
        return (name, topic_id) in self._node.metadata.deleted

    def features(self) -> Finalized:
        stored = self._node.settings.configs.entity(FEATURES, paths.DEFAULT_ENTITY)
        return finalized(self._node.metadata.brokers(), stored, self._node.settings.configs.features_written_at)

    def feature_level(self, name: str) -> int:
        return self.features().level(name)

    async def update_features(self, levels: Mapping[str, int]) -> None:
        coordinator = await self._node.zookeeper.ordering()
        changes = {name: str(level) for name, level in levels.items()}
        await write_entity(coordinator, FEATURES, paths.DEFAULT_ENTITY, changes)

    async def forget_broker(self, broker_id: BrokerId) -> bool:
        return await forget_starts(await self._node.zookeeper.ordering(), broker_id)

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self._node.settings.configs.entity(GROUPS, group_id)

    async def entity_overrides(self, entity_type: str, name: str) -> Mapping[str, str]:
        return await _readable(read_entity(await self._node.zookeeper.ordering(), entity_type, name))

    async def replace_entity_overrides(
        self, entity_type: str, name: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> bool:
        zookeeper = await self._node.zookeeper.ordering()
        return await _readable(replace_entity(zookeeper, entity_type, name, before, after))

    async def missing_topics(self, topics: Sequence[str], timeout_ms: int) -> frozenset[str]:
        return await self._node.admin.partitions.missing(topics, timeout_ms)

    async def create_partitions(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[BrokerId]] | None,
        *,
        timeout_ms: int,
        validate_only: bool,
    ) -> TopicResult:
        wanted = NewPartitions(topic, count, None if assignments is None else tuple(map(tuple, assignments)))
        request = AddPartitionsRequest((wanted,), timeout_ms, validate_only)
        answer = await self._node.admin.partitions.add(request)
        return answer.topics[0]

    @property
    def config(self) -> BrokerConfig:
        return self._node.settings.now

    @property
    def static_config(self) -> BrokerConfig:
        return self._node.settings.static

    async def check_broker_state(self, broker_id: BrokerId, state: str) -> None:
        await self._node.admin.brokers.check_state(broker_id, state)

    async def topic_overrides(self, topic: str) -> Mapping[str, str]:
        if self._node.metadata.topic(topic) is None:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
        current = self._node.session.current
        if current is None or self._node.zookeeper.away():
            return self._node.settings.configs.topic(topic)
        return await _readable(read_entity(current, TOPICS, topic))

    def log_dirs(self) -> Generator[None, None, list[LogDirDescription]]:
        hosted: dict[str, list[LogDirReplica]] = {}
        for number, partition in enumerate(self._node.replicas.hosted.all(), 1):
            if not number % STEP:
                yield
            log = partition.log
            lag = max(0, partition.high_watermark - log.log_end_offset)
            replica = LogDirReplica(partition.topic_partition, log.size_bytes, lag)
            hosted.setdefault(log.directory, []).append(replica)
        for move in self._node.logs.moves.under_way():
            size = 0 if move.future is None else move.future.size_bytes
            hosted.setdefault(move.target, []).append(
                LogDirReplica(move.topic_partition, size, move.lag, is_future=True)
            )
        answers: list[LogDirDescription] = []
        for log_dir in self._node.logs.pool.dirs.values():
            total = usable = -1
            is_online = log_dir.online
            if is_online:  # a dead disk is not asked: it may never answer
                try:
                    disk = self._node.env.disk
                    total, usable = disk.total_bytes(log_dir.path), disk.free_bytes(log_dir.path)
                except OSError:
                    is_online = False
            error = ErrorCode.NONE if is_online else ErrorCode.KAFKA_STORAGE_ERROR
            mine = hosted.get(log_dir.path, ()) if is_online else ()
            is_cordoned = log_dir.path in self._node.logs.pool.cordoned
            answers.append(LogDirDescription(log_dir.path, error, total, usable, tuple(mine), is_cordoned))
        return answers

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """See LogDirAdmin.alter_replica_log_dirs."""
        moves: dict[str, list[TopicPartition]] = {}
        for partition, path in assignments.items():
            moves.setdefault(path, []).append(partition)
        codes = await self._node.admin.log_dirs.alter_replica_log_dirs(moves)
        unknown, known = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self._node.metadata.partition
        is_missing = ErrorCode.REPLICA_NOT_AVAILABLE  # here; but there may be no such partition at all
        return {key: unknown if code is is_missing and known(key) is None else code for key, code in codes.items()}

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        first, count = await self._node.producer_ids.block()
        return ProducerId(first), count


async def _readable(exchange: Awaitable[_T]) -> _T:
    """What an exchange with ZooKeeper returns. Raises ApiError: what is there is none of our formats."""
    try:
        return await exchange
    except ZnodeError as error:
        reason = f"{error.path} is malformed ({error.reason}); remove or repair it first"
        raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from None


async def _wait(change: Awaitable[None], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await change
    except TimeoutError:
        return
