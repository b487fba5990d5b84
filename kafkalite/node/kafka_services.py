"""What the Kafka listener needs of this node (`kafkalite.coordinators.services`), from the parts that the node has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkalite.config import BrokerConfig, TopicConfig
from kafkalite.coordination import paths
from kafkalite.coordination.topic_configs import (
    BROKERS,
    FEATURES,
    GROUPS,
    TOPICS,
    read_config,
    read_entity,
    write_config,
    write_entity,
)
from kafkalite.coordinators.services import ActiveProducer, DelegationTokens, LogDirDescription, LogDirReplica, Rights
from kafkalite.env.fair_queue import Owner
from kafkalite.errors import ErrorCode, StorageError, api_error
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListReassignmentsRequest,
    ListReassignmentsResponse,
)
from kafkalite.extension.messages.topics import (
    AddPartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewPartitions,
    TopicResult,
)
from kafkalite.features import Finalized, finalized
from kafkalite.log.record_checks import RecordRules
from kafkalite.model import (
    INTERNAL_TOPICS,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)
from kafkalite.node.metadata_answers import MetadataAnswers
from kafkalite.node.settings import CurrentSettings
from kafkalite.replica.client_fetch import AT_ONCE, ClientFetch, FetchDone, FetchEntry, FetchTerms, Pacing
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.purgatory import ProduceDone, ResponseLimit
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.replica.requests import ListOffsetsRequest, ListOffsetsResponse, MetadataResponse
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
    from kafkalite.node.zookeeper_health import ZooKeeperHealth
    from kafkalite.security.listener import ListenerSecurity
    from kafkalite.security.node_security import NodeSecurity

#: Maximum interval at which a coordinator compares led and loaded partitions, with or without notifications.
_LEADERSHIP_POLL_S = 5.0
_METADATA_POLL_S = 0.5


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
    extension: Mapping[type[Message], Callable[[Any], Awaitable[Message]]]
    loop_times: LoopTimes


class NodePartitions:
    """The partitions hosted here."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata = metadata

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._replicas.producing.produce(acks, timeout_ms, partitions, done, guards=guards)

    def record_rules(self, partition: TopicPartition) -> RecordRules | None:
        found = self._replicas.hosted.get(partition)
        return None if found is None or found.leader is None else found.log.record_rules

    def begin_verification(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, sequence: int
    ) -> int:
        return self._replicas.producing.begin_verification(partition, producer_id, producer_epoch, sequence)

    def last_coordinator_epoch(self, partition: TopicPartition, producer_id: int) -> int:
        hosted = self._replicas.hosted.get(partition)
        return -1 if hosted is None else hosted.log.coordinator_epoch(producer_id)

    def end_verification(self, partition: TopicPartition, producer_id: int, guard: int) -> None:
        self._replicas.producing.end_verification(partition, producer_id, guard)

    def append_internal(
        self,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        self._replicas.producing.produce(
            -1,
            timeout_ms,
            partitions,
            done,
            origin="coordinator",
            guards=guards,
            transaction_version=transaction_version,
        )

    def fetch(
        self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit, pacing: Pacing = AT_ONCE
    ) -> None:
        self._replicas.consuming.fetch(fetch, terms, done, room, pacing)

    def read_entry(self, entry: FetchEntry, max_bytes: int, *, is_first: bool) -> None:
        self._replicas.consuming.read(entry, max_bytes, is_first=is_first)

    def wait_for_entries(self, fetch: ClientFetch, wait_ms: int, reader: Owner, complete: Callable[[], None]) -> bool:
        return self._replicas.consuming.wait(fetch, wait_ms, reader, complete)

    def entry_sent(self, entry: FetchEntry, size_bytes: int, records: int) -> None:
        self._replicas.consuming.sent(entry, size_bytes, records)

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return await self._replicas.consuming.list_offsets(request)

    def led_partitions(self, topic: str) -> Mapping[int, LeaderEpoch]:
        return {
            partition.topic_partition.partition: partition.leader.leader_epoch
            for partition in self._replicas.hosted.of_topic(topic)
            if partition.leader is not None
        }

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        hosted = self._replicas.hosted.get(partition)
        return hosted.leader.leader_epoch if hosted is not None and hosted.leader is not None else None

    async def leadership_changed(self) -> None:
        await self._replicas.hosted.leadership.wait(_LEADERSHIP_POLL_S)

    def _hosted(self, partition: TopicPartition) -> Partition:
        hosted = self._replicas.hosted.get(partition)
        if hosted is None and self._metadata.partition(partition) is None:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if hosted is None:
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return hosted

    def _led(self, partition: TopicPartition) -> Partition:
        hosted = self._hosted(partition)
        if hosted.leader is None:
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return hosted

    async def load_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> None:
        log = self._led(partition).log
        await self._replicas.cold.attempt(("node", "coordinators"), log.directory, lambda: log.read(offset, max_bytes))

    def read_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> list[Buffer]:
        return list(self._led(partition).log.read(offset, max_bytes).records)

    def local_bounds(self, partition: TopicPartition) -> tuple[Offset, Offset]:
        log = self._led(partition).log
        return log.log_start_offset, log.log_end_offset

    def local_high_watermark(self, partition: TopicPartition) -> Offset:
        return self._led(partition).high_watermark

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_epoch: LeaderEpoch, epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset]:
        led = self._led(partition)
        if current_epoch != NO_LEADER_EPOCH and (error := led.epoch_error(current_epoch)):
            raise api_error(error)
        if epoch > led.log.latest_epoch:
            # What a consumer has from there is not in this log (an unclean election): its end is unknown.
            return NO_LEADER_EPOCH, NO_OFFSET
        return led.log.epoch_and_end_offset_for(epoch)

    def delete_records(self, partition: TopicPartition, before: Offset) -> Awaitable[Offset]:
        led = self._led(partition)
        assert led.leader is not None
        if partition.topic in INTERNAL_TOPICS:
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, "records of internal topics are not deleted by offset")
        if "delete" not in led.config.cleanup_policy:
            raise api_error(ErrorCode.POLICY_VIOLATION, "records of a compacted topic are not deleted by offset")
        target = led.leader.high_watermark if before == -1 else before
        if not 0 <= target <= led.leader.high_watermark:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            return self._replicas.hosted.delete_records(led, target)
        except StorageError as error:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None

    def active_producers(self, partition: TopicPartition) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                ProducerId(producer_id),
                entry.producer_epoch,
                entry.last_sequence,
                entry.timestamp,
                entry.coordinator_epoch,
                Offset(entry.transaction_first_offset),
            )
            for producer_id, entry in sorted(self._hosted(partition).log.active_producers().items())
        ]


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
        self.entropy = node.env.entropy
        self.rights: Rights = node.rights
        self.tokens: DelegationTokens = node.tokens
        self.partitions = NodePartitions(node.replicas, node.metadata)

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

        await alter_user(await self._node.zookeeper.ordering(), name, changes)

    @property
    def broker_id(self) -> BrokerId:
        return self._node.local.broker_id

    @property
    def cluster_id(self) -> str:
        return self._node.local.cluster_id

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        return self._answers.answer(self._node.local.cluster_id, topics)

    async def metadata_changed(self) -> None:
        await _wait(self._node.metadata.changed(), _METADATA_POLL_S)

    def topic_name(self, topic_id: TopicId) -> str | None:
        return self._node.metadata.topic_name(topic_id)

    def features(self) -> Finalized:
        stored = self._node.settings.configs.entity(FEATURES, paths.DEFAULT_ENTITY)
        return finalized(self._node.metadata.brokers(), stored, self._node.settings.configs.features_written_at)

    def feature_level(self, name: str) -> int:
        return self.features().levels.get(name, 0)

    async def update_features(self, levels: Mapping[str, int]) -> None:
        coordinator = await self._node.zookeeper.ordering()
        changes = {name: str(level) for name, level in levels.items()}
        await write_entity(coordinator, FEATURES, paths.DEFAULT_ENTITY, changes)

    def settings_of(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        return self._node.settings.configs.entities(entity_type)

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        return self._node.settings.configs.entity(GROUPS, group_id)

    async def entity_overrides(self, entity_type: str, name: str) -> Mapping[str, str]:
        return await read_entity(await self._node.zookeeper.ordering(), entity_type, name)

    async def set_entity_overrides(self, entity_type: str, name: str, overrides: Mapping[str, str]) -> None:
        await write_entity(await self._node.zookeeper.ordering(), entity_type, name, overrides, replace=True)

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return await self._node.admin.topics.create_topics(request)

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return await self._node.admin.topics.delete_topics(request)

    async def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[BrokerId]] | None, *, validate_only: bool
    ) -> TopicResult:
        wanted = NewPartitions(topic, count, tuple(tuple(each) for each in assignments or ()))
        answer = await self._node.admin.partitions.add(AddPartitionsRequest((wanted,), validate_only=validate_only))
        return answer.topics[0]

    async def alter_reassignments(self, request: AlterReassignmentsRequest) -> AlterReassignmentsResponse:
        """See ReassignmentAdmin.alter."""
        return await self._node.admin.reassignments.alter(request)

    async def list_reassignments(self, request: ListReassignmentsRequest) -> ListReassignmentsResponse:
        """See ReassignmentAdmin.list: the whole plan; entries with a step or dropping replicas are the current batch."""
        return await self._node.admin.reassignments.list(request)

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """See PartitionAdmin.elect."""
        return await self._node.admin.partitions.elect(request)

    @property
    def config(self) -> BrokerConfig:
        return self._node.settings.now

    @property
    def static_config(self) -> BrokerConfig:
        return self._node.settings.static

    async def broker_overrides(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        return await read_config(await self._node.zookeeper.ordering(), BROKERS, _entity(broker_id))

    async def set_broker_overrides(self, broker_id: BrokerId | None, overrides: Mapping[str, str]) -> None:
        await write_config(await self._node.zookeeper.ordering(), BROKERS, _entity(broker_id), overrides, replace=True)

    async def check_broker_state(self, broker_id: BrokerId, state: str) -> None:
        await self._node.admin.brokers.check_state(broker_id, state)

    async def topic_overrides(self, topic: str) -> Mapping[str, str]:
        if self._node.metadata.topic(topic) is None:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        current = self._node.session.current
        if current is None or self._node.zookeeper.away():
            return self._node.settings.configs.topic(topic)
        return await read_config(current, TOPICS, topic)

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        return self._node.settings.effective_topic_config(topic, overrides)

    async def set_topic_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        current = await self._node.zookeeper.ordering()
        await write_config(current, TOPICS, topic, overrides, replace=True)

    def log_dirs(self) -> list[LogDirDescription]:
        hosted: dict[str, list[LogDirReplica]] = {}
        for partition in self._node.replicas.hosted.all():
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
            mine = sorted(hosted.get(log_dir.path, ()), key=lambda replica: replica.partition) if is_online else ()
            answers.append(LogDirDescription(log_dir.path, error, total, usable, tuple(mine)))
        return answers

    async def alter_replica_log_dirs(
        self, assignments: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """See LogDirAdmin.alter_replica_log_dirs."""
        moves: dict[str, list[TopicPartition]] = {}
        for partition, path in assignments.items():
            moves.setdefault(path, []).append(partition)
        return await self._node.admin.log_dirs.alter_replica_log_dirs(moves)

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        first, count = await self._node.producer_ids.block()
        return ProducerId(first), count


async def _wait(change: Awaitable[None], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await change
    except TimeoutError:
        return


__all__ = ["NodePartitions", "NodeServices"]


def _entity(broker_id: BrokerId | None) -> str:
    return paths.DEFAULT_ENTITY if broker_id is None else str(broker_id)
