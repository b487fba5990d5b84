"""The log of a partition of FakeCluster, with Kafka's checks of producer id, epoch and sequence."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.record.batch import MAX_SEQUENCE, assigned_head, parse_header, split_batches, verify_crc
from kafkalite.record.reader import Record, read_records


@dataclass
class FakeLog:
    """A partition's log and its producers' last batches."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    end: int = 0
    start: int = 0
    leader: int = 1
    epoch: int = 0
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        base = self.end
        for position, header in split_batches(records):
            verify_crc(records, position, header)
            if header.producer_id >= 0:
                code, known = self._check(header.producer_id, header.producer_epoch, header.base_sequence, header)
                if code is not None:
                    return code, known
            data = bytes(records[position : position + header.size])
            stored = assigned_head(header, self.end, self.epoch) + data[16:]
            self.batches.append((self.end, self.end + header.last_offset_delta, stored))
            self.end += header.last_offset_delta + 1
        return ErrorCode.NONE, base

    def _check(self, producer: int, epoch: int, base: int, header: Any) -> tuple[ErrorCode | None, int]:
        last = (base + header.last_offset_delta) & MAX_SEQUENCE
        known = self.producers.get(producer)
        if known is None or epoch > known[0]:
            if base != 0 and known is not None:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            if base != 0:
                return ErrorCode.UNKNOWN_PRODUCER_ID if not self.batches else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[producer] = (epoch, deque([(base, last, self.end)], maxlen=5))
            return None, 0
        if epoch < known[0]:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        for first_seq, last_seq, offset in known[1]:
            if (first_seq, last_seq) == (base, last):
                return ErrorCode.NONE, offset
        if base != (known[1][-1][1] + 1) & MAX_SEQUENCE:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known[1].append((base, last, self.end))
        return None, 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for _, last, data in self.batches:
            if last < offset:
                continue
            if found and size + len(data) > max_bytes:
                break
            found.append(data)
            size += len(data)
        return b"".join(found)

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and the offset behind its last record."""
        headers = [parse_header(data) for *_, data in self.batches]
        known = [each for each in headers if each.partition_leader_epoch <= epoch]
        later = [each for each in headers if each.partition_leader_epoch > epoch]
        end = later[0].base_offset if later else self.end
        return (known[-1].partition_leader_epoch if known else -1), end

    def truncate(self, offset: int) -> None:
        """As a replica that has been out of sync, and is elected all the same."""
        self.batches = [each for each in self.batches if each[1] < offset]
        self.end = self.batches[-1][1] + 1 if self.batches else self.start
        self.producers.clear()

    def records(self) -> list[Record]:
        return list(read_records(b"".join(data for *_, data in self.batches)))

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]
