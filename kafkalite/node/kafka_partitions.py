"""The partitions of this node, as the Kafka listener's requests and the coordinators reach them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from kafkalite.coordinators.services import ActiveProducer
from kafkalite.errors import ErrorCode, StorageError, api_error
from kafkalite.log.record_checks import RecordRules
from kafkalite.model import (
    NO_LEADER_EPOCH,
    Buffer,
    LeaderEpoch,
    Offset,
    ProducerId,
    TopicPartition,
)
from kafkalite.replica.metadata_cache import MetadataCache
from kafkalite.replica.partition import Partition
from kafkalite.replica.produce import AppendTerms
from kafkalite.replica.purgatory import ProduceDone
from kafkalite.replica.replica_manager import ReplicaManager

#: Maximum interval at which a coordinator compares led and loaded partitions, with or without notifications.
_LEADERSHIP_POLL_S = 5.0


class NodePartitions:
    """The partitions hosted here."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata = metadata
        consuming = replicas.consuming
        self.fetch = consuming.fetch
        self.read_entry = consuming.read
        self.wait_for_entries = consuming.wait
        self.entry_sent = consuming.sent
        self.list_offsets = consuming.list_offsets

    def produce(
        self,
        acks: int,
        timeout_ms: int,
        partitions: Sequence[tuple[TopicPartition, Buffer]],
        done: ProduceDone,
        *,
        guards: Mapping[TopicPartition, int] | None = None,
        client: Callable[[], str] | None = None,
    ) -> None:
        self._replicas.producing.produce(acks, timeout_ms, partitions, done, AppendTerms("client", guards, 0, client))

    def record_rules(self, partition: TopicPartition) -> RecordRules | None:
        found = self._replicas.hosted.get(partition)
        return None if found is None or found.leader is None else found.log.record_rules()

    def begin_verification(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
        *,
        begins_at_zero: bool = False,
    ) -> int:
        return self._replicas.producing.begin_verification(
            partition, producer_id, producer_epoch, sequence, begins_at_zero=begins_at_zero
        )

    def last_coordinator_epoch(self, partition: TopicPartition, producer_id: int) -> int:
        hosted = self._replicas.hosted.get(partition)
        return -1 if hosted is None else hosted.log.coordinator_epoch(producer_id)

    def end_verification(self, partition: TopicPartition, producer_id: int, guard: int) -> None:
        self._replicas.producing.end_verification(partition, producer_id, guard)

    def refused(self, partition: TopicPartition, records: Buffer, error: ErrorCode) -> None:
        self._replicas.producing.refused(partition, records, error)

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
            AppendTerms("coordinator", guards, transaction_version),
        )

    def led_partitions(self, topic: str) -> Mapping[int, LeaderEpoch]:
        return {
            partition.topic_partition.partition: partition.leader.leader_epoch
            for partition in self._replicas.hosted.of_topic(topic)
            if partition.leader is not None
        }

    def leader_epoch(self, partition: TopicPartition) -> LeaderEpoch | None:
        hosted = self._replicas.hosted.get(partition)
        return hosted.leader.leader_epoch if hosted is not None and hosted.leader is not None else None

    def may_be_replaced(self, partition: TopicPartition) -> bool:
        hosted = self._replicas.hosted.get(partition)
        return hosted is not None and hosted.leader is not None and self._replicas.hosted.may_be_replaced(hosted)

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
        hosted = self._hosted(partition)
        if current_epoch != NO_LEADER_EPOCH and (error := hosted.epoch_error(current_epoch)):
            raise api_error(error)
        return self._led(partition).log.epoch_end_for_clients(epoch)

    def delete_records(self, partition: TopicPartition, before: Offset) -> Awaitable[Offset]:
        led = self._led(partition)
        assert led.leader is not None
        if "delete" not in led.config.cleanup_policy:
            raise api_error(ErrorCode.POLICY_VIOLATION, "records of a compacted topic are not deleted by offset")
        target = led.leader.high_watermark if before == -1 else before
        if not 0 <= target <= led.leader.high_watermark:
            raise api_error(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            return self._replicas.hosted.delete_records(led, target)
        except StorageError as error:
            raise api_error(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None

    def active_producers(self, partition: TopicPartition) -> Iterator[ActiveProducer]:
        return (
            ActiveProducer(
                ProducerId(producer_id),
                entry.producer_epoch,
                entry.last_sequence,
                entry.timestamp,
                entry.coordinator_epoch,
                Offset(entry.transaction_first_offset),
            )
            for producer_id, entry in sorted(self._hosted(partition).log.active_producers().items())
        )
