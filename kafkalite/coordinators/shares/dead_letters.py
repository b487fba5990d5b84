"""Records that a share group gives up, written to its dead letter topic (KIP-1191).

A dead letter says where its record was; a group with errors.deadletterqueue.copy.record.enable also gets key and value.
Its partition is that of the record, modulo the partitions of the dead letter topic. A letter may be there twice after a
failure. What cannot be written after five attempts is only logged, and the record is archived all the same, as in Kafka.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from kafkalite.config import BrokerConfig, TopicConfig, inter_broker_listener
from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordinators.node_connection import NodeConnection, node_address
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.delivery_states import StateBatch
from kafkalite.coordinators.shares.settings import ShareSettings
from kafkalite.errors import ApiError, ErrorCode, StorageError, api_error, error_code, is_retriable
from kafkalite.extension.messages.topics import CreateTopicsRequest, NewTopic
from kafkalite.features import DEAD_LETTERS_LEVEL, SHARE_FEATURE
from kafkalite.model import Offset, TopicPartition
from kafkalite.partition_values import ProducedPartition, TopicMetadata
from kafkalite.protocol import wire
from kafkalite.protocol.errors import WireError
from kafkalite.record.batch import split_batches
from kafkalite.record.builder import Headers, RecordBatchBuilder
from kafkalite.record.reader import records_of
from kafkalite.rpc.messages.control import Broker
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)
_T = TypeVar("_T")

#: Kafka's: attempts, the first pause and the longest one in seconds; bytes of the log that are read at once.
_ATTEMPTS, _PAUSE_S, _MAX_PAUSE_S = 5, 1.0, 30.0
_READ_BYTES = 2**20
_TIMEOUT_MS = 30_000
#: The time in seconds within which this node hears of a topic that was created.
_KNOWN_WITHIN_S = 10.0
#: The last version with names of topics, outside of transactions.
_PRODUCE_VERSION = 11
_TOPIC_SETTING = "errors.deadletterqueue.group.enable"
REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."

#: Offset -> key and value.
_Originals = Mapping[int, tuple[bytes | None, bytes | None]]


class _DeadLetterOrigin(NamedTuple):
    """The owner of the record."""

    group_id: str
    partition: TopicPartition
    letters: StateBatch
    cause: str

    def headers(self, offset: int) -> Headers:
        topic, number = self.partition
        texts = (
            ("topic", topic),
            ("partition", str(number)),
            ("offset", str(offset)),
            ("group", self.group_id),
            ("delivery.count", str(self.letters.delivery_count)),
            ("message", self.cause),
        )
        return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts]


class DeadLetterWriter:
    """See the module."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def are_kept(self, settings: ShareSettings) -> bool:
        """Whether a group with these settings has a dead letter topic."""
        return bool(settings.dead_letter_topic) and self._services.feature_level(SHARE_FEATURE) >= DEAD_LETTERS_LEVEL

    async def write(
        self, group_id: str, settings: ShareSettings, partition: TopicPartition, letters: StateBatch
    ) -> None:
        """Return when they are committed, or cannot be written."""
        cause = DELIVERED_TOO_OFTEN if letters.delivery_count >= settings.limits.delivery_count else REJECTED
        try:
            await self._write(_DeadLetterOrigin(group_id, partition, letters, cause), settings)
        except (ApiError, OSError, StorageError, CoordinatorError) as error:
            _log.warning(
                "share.dead_letters_dropped",
                group=group_id,
                partition=partition,
                topic=settings.dead_letter_topic,
                first=letters.first,
                last=letters.last,
                error=str(error),
            )

    async def _write(self, source: _DeadLetterOrigin, settings: ShareSettings) -> None:
        """Raises ApiError, OSError, StorageError, CoordinatorError."""
        offset, last = int(source.letters.first), int(source.letters.last)
        while offset <= last:
            config = await self._insist(partial(self._prepare, settings.dead_letter_topic))
            originals: _Originals = {}
            until = last
            if settings.copies_dead_letters:
                originals, until = await self._originals(source.partition, offset, last, config.max_message_bytes)
            batch, offset = _batch(source, offset, until, originals, config, self._services.clock.wall_ms())
            await self._insist(partial(self._produce, settings.dead_letter_topic, source.partition.partition, batch))

    async def _insist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """What `call` returns. Raises ApiError, OSError, CoordinatorError: of the last attempt, or if another one makes no sense."""
        pause_s = _PAUSE_S
        for left in range(_ATTEMPTS - 1, -1, -1):
            try:
                return await call()
            except (ApiError, OSError, CoordinatorError) as error:
                if not left or (isinstance(error, ApiError) and not is_retriable(error.code)):
                    raise
            await asyncio.sleep(pause_s * self._services.random.uniform(0.8, 1.2))
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        raise AssertionError

    # --- the topic ---

    async def _prepare(self, topic: str) -> TopicConfig:
        """The topic's configuration; it is created if it may be. Raises ApiError: it may not be used; CoordinatorError."""
        config = self._services.config
        if why := _why_not(topic, config):
            raise api_error(ErrorCode.INVALID_CONFIG, why)
        if self._known(topic) is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, "it does not exist, and is not created on demand")
            await self._create(topic)
        found = self._services.effective_topic_config(topic, await self._services.topic_overrides(topic))
        if not found.errors_deadletterqueue_group_enable:
            raise api_error(ErrorCode.INVALID_CONFIG, f"{_TOPIC_SETTING} is false for the topic")
        return found

    async def _create(self, topic: str) -> None:
        wanted = NewTopic(topic, configs={_TOPIC_SETTING: "true", "message.timestamp.type": "CreateTime"})
        [result] = (await self._services.create_topics(CreateTopicsRequest((wanted,)))).topics
        if result.error and result.error != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise api_error(error_code(result.error), result.message)
        until = self._services.clock.monotonic() + _KNOWN_WITHIN_S
        while self._known(topic) is None and self._services.clock.monotonic() < until:
            await self._services.metadata_changed()

    def _known(self, topic: str) -> TopicMetadata | None:
        found = self._services.metadata([topic]).topics[0]
        return None if found.error else found

    # --- the records ---

    async def _originals(
        self, partition: TopicPartition, first: int, last: int, most_bytes: int
    ) -> tuple[_Originals, int]:
        """Key and value of records from `first` on, and up to which offset was looked; what cannot be read is left out."""
        serving = self._services.partitions
        try:
            await serving.load_local(partition, Offset(first), _READ_BYTES)
            data = b"".join(bytes(each) for each in serving.read_local(partition, Offset(first), _READ_BYTES))
        except ApiError:
            return {}, last
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        until = await self._services.run_blocking(partial(_collect, data, first, last, most_bytes, found))
        assert isinstance(until, int)
        return found, until

    # --- the leader of the dead letter topic ---

    async def _produce(self, topic: str, source_number: int, batch: bytes) -> None:
        """One attempt. Raises ApiError; OSError: another node did not answer."""
        code, message = await self._produced(topic, source_number, batch)
        if code:
            raise api_error(code, message)

    async def _produced(self, topic: str, source_number: int, batch: bytes) -> tuple[ErrorCode, str]:
        """The answer. Raises OSError."""
        metadata = self._services.metadata([topic])
        known = metadata.topics[0]
        if known.error or not known.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its leader does not know it yet"
        number = source_number % len(known.partitions)
        leader = next((each.leader for each in known.partitions if each.partition == number), None)
        if leader == self._services.broker_id:
            return await self._produce_here(TopicPartition(topic, number), batch)
        broker = next((each for each in metadata.brokers if each.broker_id == leader), None)
        if broker is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader"
        return await self._produce_there(broker, topic, number, batch)

    async def _produce_here(self, partition: TopicPartition, batch: bytes) -> tuple[ErrorCode, str]:
        answer: asyncio.Future[ProducedPartition] = asyncio.get_running_loop().create_future()

        def done(produced: tuple[ProducedPartition, ...]) -> None:
            if not answer.done():
                answer.set_result(produced[0])

        self._services.partitions.produce(-1, _TIMEOUT_MS, [(partition, batch)], done)
        found = await answer
        return error_code(found.error), found.message

    async def _produce_there(self, broker: Broker, topic: str, number: int, batch: bytes) -> tuple[ErrorCode, str]:
        address = node_address(broker, inter_broker_listener(self._services.config).name)
        connection = NodeConnection(self._services, address, wire.ProduceResponse)
        request = wire.ProduceRequest
        data = request.TopicProduceData(topic, partition_data=[request.PartitionProduceData(number, batch)])
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                response = await connection.ask(
                    request(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data]), _PRODUCE_VERSION
                )
            found = response.responses[0].partition_responses[0]
        except (TimeoutError, WireError, EOFError, ApiError, struct.error, IndexError) as error:
            raise OSError(f"{address[0]}:{address[1]}: {error!r}") from error
        finally:
            connection.close()
        return error_code(found.error_code), found.error_message or ""


def _why_not(topic: str, config: BrokerConfig) -> str:
    if topic.startswith("__"):
        return "its name must not start with '__'"
    prefix = config.errors_deadletterqueue_topic_name_prefix
    if not topic.startswith(prefix):
        return f"its name must start with {prefix!r} (errors.deadletterqueue.topic.name.prefix)"
    return ""


def _batch(
    source: _DeadLetterOrigin, first: int, last: int, originals: _Originals, config: TopicConfig, now_ms: int
) -> tuple[bytes, int]:
    """One batch of at most max.message.bytes, if one letter is not more than that; the offset of the next letter."""
    builder = RecordBatchBuilder()
    most = config.max_message_bytes
    for offset in range(first, last + 1):
        key, value = originals.get(offset, (None, None))
        headers = source.headers(offset)
        # What a record needs beside its fields, at most.
        size = (
            64 + len(key or b"") + len(value or b"") + sum(len(name) + len(text or b"") + 8 for name, text in headers)
        )
        if builder.record_count and builder.size_bytes + size > most:
            return builder.build(), offset
        if builder.size_bytes + size > most:
            key = value = None  # it does not fit: say at least where it was
        builder.append(key, value, headers, now_ms)
    return builder.build(), last + 1


def _collect(
    data: bytes, first: int, last: int, most_bytes: int, found: dict[int, tuple[bytes | None, bytes | None]]
) -> int:
    """Put keys and values into `found`, about `most_bytes` of them; the last offset that was looked at."""
    size = 0
    until = first - 1
    for position, header in split_batches(data):
        if header.base_offset > last:
            return last
        try:
            records = [] if header.is_control else list(records_of(data, position, header, limit_bytes=most_bytes))
        except ApiError:
            records = []  # more than the dead letter topic takes, or damaged
        for record in records:
            if not first <= record.offset <= last:
                continue
            size += len(record.key or b"") + len(record.value or b"")
            if size > most_bytes and found:
                return until
            found[record.offset] = (record.key, record.value)
            until = record.offset
        until = max(until, min(last, header.last_offset))
    return until if until >= first else last
