"""The Kafka listener's services in memory: one broker, no disk, no ZooKeeper. For tests of the listener alone."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import TYPE_CHECKING, Any

from kafkalite.admin.acls import AclManager
from kafkalite.admin.tokens import TokenAdmin
from kafkalite.config import BrokerConfig, TopicConfig, topic_config, usable_topic_config, with_dynamic
from kafkalite.coordination.coordinator import Coordinator, NotSentError
from kafkalite.coordination.topic_configs import FEATURES
from kafkalite.coordinators.services import ActiveProducer, LogDirDescription, LogDirReplica
from kafkalite.coordinators.transactions.extension import ExtensionHandler
from kafkalite.env.fair_queue import Owner
from kafkalite.env.loop_times import LoopTimes
from kafkalite.env.seams import Clock, Network
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
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
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log.record_checks import RecordRules, rules_of
from kafkalite.log.verification import Verifications
from kafkalite.model import (
    EARLIEST_TIMESTAMP,
    ELR_VERSION,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_OFFSET,
    NO_TOPIC_ID,
    TRANSACTION_VERSION,
    BrokerEpoch,
    BrokerId,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)
from kafkalite.partition_values import (
    AbortedTransaction,
    ListedOffset,
    PartitionMetadata,
    ProducedPartition,
    TopicMetadata,
)
from kafkalite.record.batch import BatchHeader, assign_in_place, split_batches, verify_crc
from kafkalite.record.reader import end_transaction_marker_of, records_of
from kafkalite.replica.client_fetch import ClientFetch, FetchEntry, FetchTerms
from kafkalite.replica.purgatory import DeadlineWheel, FetchDone, ProduceDone, ResponseLimit
from kafkalite.replica.requests import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
)
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import Broker

if TYPE_CHECKING:
    from kafkalite.security.listener import ListenerSecurity

_EPOCH = LeaderEpoch(0)


@dataclass(slots=True)
class MemoryLog:
    """One partition: its batches, and what its transactions did."""

    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    #: (producer id, epoch) -> (first sequence, last sequence, base offset) of its last batches
    sequences: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)
    verifications: Verifications = field(default_factory=Verifications)
    #: Producer id -> of its last marker.
    coordinator_epochs: dict[int, int] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        return min(self.open.values(), default=self.log_end_offset)

    def append(self, records: Buffer, *, from_client: bool, guard: int | None = None) -> int:
        """The base offset. Raises ApiError."""
        data = bytearray(records)
        base = self.log_end_offset
        for position, header in split_batches(data):
            verify_crc(data, position, header)
            if from_client and header.is_control:
                raise api_error(ErrorCode.INVALID_RECORD)
            if from_client and header.producer_id >= 0:
                known = self.sequences.setdefault((header.producer_id, header.producer_epoch), [])
                for first, last, offset in known:
                    if (first, last) == (header.base_sequence, header.last_sequence):
                        return offset
                if known and header.base_sequence != known[-1][1] + 1:
                    raise api_error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                known.append((header.base_sequence, header.last_sequence, self.log_end_offset))
                del known[:-5]
            begins = header.is_transactional and not header.is_control and header.producer_id not in self.open
            if guard is not None and begins and not self.verifications.holds(header.producer_id, guard):
                raise api_error(ErrorCode.INVALID_TXN_STATE)
            self.verifications.end(header.producer_id)
            assign_in_place(memoryview(data), position, self.log_end_offset, _EPOCH)
            self._account(data, position, header)
            piece = bytes(data[position : position + header.size])
            placed = next(iter(split_batches(piece)))[1]
            self.batches.append((placed, piece))
            self.log_end_offset = placed.next_offset
        return base

    def _account(self, data: bytearray, position: int, header: BatchHeader) -> None:
        producer_id = header.producer_id
        if header.is_control:
            marker = end_transaction_marker_of(data, position, header)
            first = self.open.pop(producer_id, None)
            if marker is not None:
                self.coordinator_epochs[producer_id] = marker.coordinator_epoch
            if first is not None and marker is not None and not marker.commit:
                self.aborted.append((producer_id, first, self.log_end_offset))
        elif header.is_transactional:
            self.open.setdefault(producer_id, self.log_end_offset)

    def read(self, offset: int, max_bytes: int, limit: int) -> list[Buffer]:
        found: list[Buffer] = []
        size = 0
        for header, piece in self.batches:
            if header.next_offset <= offset or header.base_offset >= limit:
                continue
            if found and size + len(piece) > max_bytes:
                break
            found.append(piece)
            size += len(piece)
        return found


class MemoryPartitions:
    """All partitions, led by this node. `fail_appends` makes every append fail with that error."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.fail_appends: ErrorCode | None = None
        #: High watermarks that are not the log's end.
        self.committed: dict[TopicPartition, int] = {}
        #: Configurations of topics, as far as they say what is asked of records.
        self.configs: dict[str, TopicConfig] = {}
        self.led: Callable[[TopicPartition], bool] = lambda partition: True
        self._appended = asyncio.Event()
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wheel = DeadlineWheel()
        #: Fetches of share groups that wait.
        self._waiting: dict[ClientFetch, None] = {}

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        done(tuple(self._append(key, records, from_client=True, guards=guards) for key, records in partitions))

    def record_rules(self, partition: TopicPartition) -> RecordRules | None:
        config = self.configs.get(partition.topic, TopicConfig())
        return rules_of(config) if partition in self.logs else None

    def begin_verification(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, sequence: int
    ) -> int:
        log = self.logs.get(partition)
        if log is None or producer_id in log.open:
            return 0
        return log.verifications.begin(producer_id, producer_epoch, sequence)

    def last_coordinator_epoch(self, partition: TopicPartition, producer_id: int) -> int:
        log = self.logs.get(partition)
        return -1 if log is None else log.coordinator_epochs.get(producer_id, -1)

    def end_verification(self, partition: TopicPartition, producer_id: int, guard: int) -> None:
        if (log := self.logs.get(partition)) is not None:
            log.verifications.refuse(producer_id, guard)

    def append_internal(
        self,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        transaction_version: int = 0,
    ) -> None:
        done(tuple(self._append(key, records, from_client=False, guards=guards) for key, records in partitions))

    def _append(
        self,
        key: TopicPartition,
        records: Buffer,
        *,
        from_client: bool,
        guards: Mapping[TopicPartition, int] | None = None,
    ) -> ProducedPartition:
        log = self.logs.get(key)
        try:
            if self.fail_appends is not None:
                raise api_error(self.fail_appends)
            if log is None:
                raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            guard = None if guards is None else guards.get(key, 0)
            base = log.append(records, from_client=from_client, guard=guard)
        except ApiError as error:
            return ProducedPartition(key.topic, key.partition, int(error.code), NO_OFFSET, message=str(error))
        self._appended.set()
        self._appended = asyncio.Event()
        for fetch in list(self._waiting):
            fetch.schedule()
        return ProducedPartition(key.topic, key.partition, 0, Offset(base), -1, Offset(log.log_start_offset))

    def fetch(self, fetch: ClientFetch, terms: FetchTerms, done: FetchDone, room: ResponseLimit) -> None:
        def answer() -> None:
            is_sent = done()
            if not fetch.is_session:
                fetch.end()
            elif is_sent:
                fetch.commit()
            else:
                fetch.drop_records()

        if self._read(fetch, terms, room) or terms.max_wait_ms <= 0 or not fetch.entries:
            answer()
            return
        task = asyncio.get_running_loop().create_task(self._fetch_later(fetch, terms, answer, room))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch_later(
        self, fetch: ClientFetch, terms: FetchTerms, answer: Callable[[], None], room: ResponseLimit
    ) -> None:
        try:
            async with asyncio.timeout(terms.max_wait_ms / 1000):
                while not self._read(fetch, terms, room):
                    await self._appended.wait()
        except TimeoutError:
            pass
        self._read(fetch, terms, room)
        answer()

    def _read(self, fetch: ClientFetch, terms: FetchTerms, room: ResponseLimit) -> bool:
        """Read all; whether there is enough, or an error."""
        size, left = 0, min(terms.max_bytes, room())
        is_error = False
        for entry in fetch.entries.values():
            fetch.ready[entry] = None
            self._read_one(entry, fetch.isolation, min(left - size, entry.max_bytes))
            size += entry.records_size
            is_error = is_error or bool(entry.error)
        return size >= terms.min_bytes or is_error

    def _read_one(self, entry: FetchEntry, isolation: int, max_bytes: int) -> None:
        log = self.logs.get(entry.key)
        if log is None or entry.refusal:
            entry.refuse(int(entry.refusal or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        end, stable, start = Offset(log.log_end_offset), Offset(log.last_stable_offset), Offset(log.log_start_offset)
        entry.high_watermark, entry.last_stable_offset, entry.log_start_offset = end, stable, start
        entry.drop_records()
        if not start <= entry.fetch_offset <= end:
            entry.error = int(ErrorCode.OFFSET_OUT_OF_RANGE)
            entry.is_news = True
            return
        entry.error = 0
        entry.records = log.read(entry.fetch_offset, max_bytes, stable if isolation else end)
        entry.records_size = sum(map(len, entry.records))
        entry.aborted = tuple(
            AbortedTransaction(ProducerId(producer_id), Offset(first))
            for producer_id, first, last in log.aborted
            if last >= entry.fetch_offset
        )
        is_changed = (end, start) != (entry.sent_high_watermark, entry.sent_log_start)
        entry.is_news = entry.records_size > 0 or is_changed

    def read_entry(self, entry: FetchEntry, max_bytes: int, *, is_first: bool) -> None:
        self._read_one(entry, entry.fetch.isolation, max_bytes)

    def wait_for_entries(self, fetch: ClientFetch, wait_ms: int, reader: Owner, complete: Callable[[], None]) -> bool:
        def woken() -> None:
            del self._waiting[fetch]
            complete()

        self._waiting[fetch] = None
        fetch.wait(self._wheel, wait_ms, 1, woken)
        return True

    def entry_sent(self, entry: FetchEntry, size_bytes: int, records: int) -> None:
        return

    async def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(tuple(self._list_one(wanted, request.isolation) for wanted in request.partitions))

    def _list_one(self, wanted: ListOffsetsPartition, isolation: int) -> ListedOffset:
        log = self.logs.get(TopicPartition(wanted.topic, wanted.partition))
        timestamp, offset, error = -1, -1, 0
        if log is None:
            error = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif wanted.timestamp == EARLIEST_TIMESTAMP:
            offset = log.log_start_offset
        elif wanted.timestamp == LATEST_TIMESTAMP:
            offset = log.last_stable_offset if isolation else log.log_end_offset
        else:
            for header, piece in log.batches:
                for record in records_of(piece, 0, header):
                    if wanted.timestamp == MAX_TIMESTAMP:
                        if record.timestamp > timestamp:
                            timestamp, offset = record.timestamp, record.offset
                    elif record.timestamp >= wanted.timestamp and offset < 0:
                        timestamp, offset = record.timestamp, record.offset
        return ListedOffset(wanted.topic, wanted.partition, error, timestamp, Offset(offset), _EPOCH)

    def led_partitions(self, topic: str) -> Mapping[int, LeaderEpoch]:
        return {key.partition: _EPOCH for key in self.logs if key.topic == topic and self.led(key)}

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        return _EPOCH if partition in self.logs and self.led(partition) else None

    async def leadership_changed(self) -> None:
        await self.changed.wait()
        self.changed.clear()

    def tell_change(self) -> None:
        """`led` answers differently now."""
        self.changed.set()

    def _log(self, partition: TopicPartition) -> MemoryLog:
        log = self.logs.get(partition)
        if log is None or not self.led(partition):
            raise api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    async def load_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> None:
        """It is in memory."""

    def read_local(self, partition: TopicPartition, offset: Offset, max_bytes: int) -> list[Buffer]:
        log = self._log(partition)
        return log.read(offset, max_bytes, log.log_end_offset)

    def local_bounds(self, partition: TopicPartition) -> tuple[Offset, Offset]:
        log = self._log(partition)
        return Offset(log.log_start_offset), Offset(log.log_end_offset)

    def local_high_watermark(self, partition: TopicPartition) -> Offset:
        return Offset(self.committed.get(partition, self._log(partition).log_end_offset))

    def end_offset_for_epoch(
        self, partition: TopicPartition, current_epoch: LeaderEpoch, epoch: LeaderEpoch
    ) -> tuple[LeaderEpoch, Offset]:
        if current_epoch > _EPOCH:
            raise api_error(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return _EPOCH, Offset(self._log(partition).log_end_offset)

    def delete_records(self, partition: TopicPartition, before: Offset) -> Awaitable[Offset]:
        log = self._log(partition)
        if not -1 <= before <= log.log_end_offset:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        log.log_start_offset = log.log_end_offset if before == -1 else max(before, log.log_start_offset)
        done: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        done.set_result(Offset(log.log_start_offset))
        return done

    def active_producers(self, partition: TopicPartition) -> list[ActiveProducer]:
        log = self._log(partition)
        return [
            ActiveProducer(
                ProducerId(producer_id), epoch, kept[-1][1], 1_000, 0, Offset(log.open.get(producer_id, NO_OFFSET))
            )
            for (producer_id, epoch), kept in sorted(log.sequences.items())
        ]


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
        #: User -> mechanism -> credential as text.
        self.users: dict[str, dict[str, str]] = {}
        self.supervisor = supervisor
        self.rights = AclManager(config, clock, _no_session)
        self.tokens = TokenAdmin(config, clock, _no_session, self.entropy)
        self.partitions = MemoryPartitions()
        self.kafka_endpoint = ("127.0.0.1", 0)
        self.overrides: dict[str, dict[str, str]] = {}
        self.features_written_at = -1
        #: Type of the entity -> name -> settings.
        self.settings: defaultdict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        self.broker_settings: dict[BrokerId | None, dict[str, str]] = {}
        #: What only a controller can do: the orders that came, and by class the answer that the next one gets.
        self.orders: list[ElectLeadersRequest | AlterReassignmentsRequest | ListReassignmentsRequest] = []
        self.answers: dict[Any, Any] = {}
        #: Handlers of the extension API; tests add theirs.
        self.extension: dict[type[Message], ExtensionHandler] = {}
        self._ids: dict[str, TopicId] = {}
        self._blocks = count()

    async def serve_extension(self, message: Message) -> Message:
        serve = self.extension.get(type(message))
        if serve is None:
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, f"{type(message).__name__} is not served here")
        return await serve(message)

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
            name, 0, self._ids[name], tuple(PartitionMetadata(p, 0, me, _EPOCH, (me,), (me,)) for p in partitions)
        )

    async def metadata_changed(self) -> None:
        await asyncio.sleep(0.01)

    def topic_name(self, topic_id: TopicId) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

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
                self.overrides[topic.topic] = dict(topic.configs or {})
                self._add(topic.topic, range(count))
            results.append(TopicResult(topic.topic, 0, "", topic_id, count, replicas))
        return CreateTopicsResponse(tuple(results))

    def _add(self, topic: str, partitions: range) -> None:
        for partition in partitions:
            self.partitions.logs[TopicPartition(topic, partition)] = MemoryLog()
        self.partitions.tell_change()

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        results = []
        for name in request.topics:
            if self._ids.pop(name, None) is None:
                results.append(TopicResult(name, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "no such topic"))
                continue
            for key in [key for key in self.partitions.logs if key.topic == name]:
                del self.partitions.logs[key]
            results.append(TopicResult(name, 0))
        return DeleteTopicsResponse(tuple(results))

    async def create_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[BrokerId]] | None, validate_only: bool
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
        return with_dynamic(
            self._config, self.broker_settings.get(None, {}), self.broker_settings.get(self.broker_id, {})
        )

    def features(self) -> Finalized:
        return finalized(self.metadata([]).brokers, self.settings[FEATURES].get("", {}), self.features_written_at)

    def feature_level(self, name: str) -> int:
        return self.features().levels.get(name, 0)

    async def update_features(self, levels: Mapping[str, int]) -> None:
        held = self.settings[FEATURES].setdefault("", {})
        self.features_written_at = self.features().epoch + 1
        held |= {name: str(level) for name, level in levels.items()}

    def settings_of(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        return {name: held for name, held in self.settings[entity_type].items() if held}

    async def entity_overrides(self, entity_type: str, name: str) -> Mapping[str, str]:
        return self.settings[entity_type].get(name, {})

    async def set_entity_overrides(self, entity_type: str, name: str, overrides: Mapping[str, str]) -> None:
        self.settings[entity_type][name] = dict(overrides)

    async def broker_overrides(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        return self.broker_settings.get(broker_id, {})

    async def set_broker_overrides(self, broker_id: BrokerId | None, overrides: Mapping[str, str]) -> None:
        self.broker_settings[broker_id] = dict(overrides)

    async def check_broker_state(self, broker_id: BrokerId, state: str) -> None:
        return

    async def topic_overrides(self, topic: str) -> Mapping[str, str]:
        if topic not in self._ids:
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.overrides[topic]

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        return usable_topic_config(self.config.topic, overrides)

    async def set_topic_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        self.overrides[topic] = dict(overrides)

    def log_dirs(self) -> list[LogDirDescription]:
        replicas = [
            LogDirReplica(key, sum(len(piece) for _, piece in log.batches), 0)
            for key, log in sorted(self.partitions.logs.items())
        ]
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
