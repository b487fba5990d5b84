"""Reading one range of offsets on an executor: fetch, check, decode, until the end is reached."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from kafkalite.errors import ApiError, ErrorCode, KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pyspark_kafkalite.batches import CorruptRecords, Scan, scan
from pyspark_kafkalite.clients import Fetched, LogClient
from pyspark_kafkalite.cluster import DataLoss, loss_message
from pyspark_kafkalite.columns import Column
from pyspark_kafkalite.decode import WantedRows, decode
from pyspark_kafkalite.offsets import OffsetRange
from pyspark_kafkalite.options import FetchOptions

log = logging.getLogger("pyspark_kafkalite")

#: Between two questions whether an offset that should exist has appeared.
_RETRY_S = 0.25


class ReadFailed(KafkaliteError):
    """A range could not be read. The message gives topic, partition, offset and cause."""


@dataclass(frozen=True, slots=True)
class RangeReader:
    client: LogClient
    options: FetchOptions
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def read(self, wanted: OffsetRange, columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of `wanted`, in order. Leaders may change meanwhile; the client follows them.

        A fetch names the topic, not its id: one that was deleted and created again answers in the place of the one that was
        planned. With failOnDataLoss that is looked for after the last row, which proves all of them; without it before
        the first, for the range to be left out: a batch in a checkpoint must be over with at some time.

        Raises:
            DataLoss: offsets of the range, or its topic, are gone and failOnDataLoss is true.
            ReadFailed: nothing arrived for poll_timeout_ms, the cluster refused, or the records are corrupt.
        """
        position = wanted.start
        if not self.options.fail_on_data_loss:
            position = self._in_same_topic(wanted, position)
        deadline = self._deadline()
        # the next fetch is on its way while this one is decoded and taken; nothing else uses the client meanwhile
        with ThreadPoolExecutor(1, "kafkalite-fetch") as fetcher:
            coming: Future[Fetched] | None = None
            while position < wanted.end:
                coming = coming or fetcher.submit(self._fetch, wanted, position)
                fetched = self._taken(coming, wanted, position, deadline)
                coming = None
                if isinstance(fetched, int):
                    position = fetched
                    continue
                found = self._scanned(fetched, wanted, position)
                after = found.next_offset
                if after is None or after <= position:
                    position = self._at_end(wanted, position, deadline, fetched.high_watermark)
                    position = self._in_same_topic(wanted, position)
                    continue
                if after < wanted.end:
                    coming = fetcher.submit(self._fetch, wanted, after)
                try:
                    shape = WantedRows(wanted.topic, wanted.partition, position, wanted.end, columns)
                    yield from decode(fetched.records, found.spans, shape)
                except CorruptRecords as error:
                    raise ReadFailed(f"{wanted.topic_partition} at offset {position}: {error}") from error
                position = after
                deadline = self._deadline()
        if self.options.fail_on_data_loss:
            self._in_same_topic(wanted, wanted.start)

    def _taken(self, coming: Future[Fetched], wanted: OffsetRange, position: int, deadline: float) -> Fetched | int:
        """What was fetched, or the offset to go on at when nothing could be."""
        try:
            return coming.result()
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return self._resume(wanted, position, deadline)
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # and for all of request.timeout.ms
                return self._lost(wanted, position, wanted.end, "the topic does not exist any more")
            self._wait(error, wanted, position, deadline)
        except (KafkaliteError, OSError) as error:
            self._wait(error, wanted, position, deadline)
        return position

    def _scanned(self, fetched: Fetched, wanted: OffsetRange, position: int) -> Scan:
        aborted = [(a.producer_id, a.first_offset) for a in fetched.aborted] if self.options.read_committed else []
        try:
            return scan(fetched.records, aborted, check_crc=self.options.check_crc)
        except CorruptRecords as error:
            raise ReadFailed(f"{wanted.topic_partition} at offset {position}: {error}") from error

    def _deadline(self) -> float:
        return self.clock() + self.options.poll_timeout_ms / 1000

    def _fetch(self, wanted: OffsetRange, position: int) -> Fetched:
        return self.client.fetch_raw(
            wanted.topic_partition,
            position,
            self.options.max_bytes,
            self.options.max_wait_ms,
            isolation=int(self.options.read_committed),
        )

    def _resume(self, wanted: OffsetRange, position: int, deadline: float) -> int:
        """Where to go on after OFFSET_OUT_OF_RANGE.

        Below the log's start the records are gone. Beyond its end they may come back: a new leader's high watermark
        is behind until its followers have fetched.
        """
        tp = wanted.topic_partition
        if self._in_same_topic(wanted, position) != position:
            return wanted.end
        try:
            first, end = (
                self.client.list_offsets({tp: at})[tp].offset for at in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
            )
        except (KafkaliteError, OSError) as error:
            self._wait(error, wanted, position, deadline)
            return position
        if position < first:
            return self._lost(wanted, position, min(first, wanted.end), f"the log begins at {first}")
        position = self._at_end(wanted, position, deadline, end)
        self.sleep(_RETRY_S)
        return position

    def _at_end(self, wanted: OffsetRange, position: int, deadline: float, end: int) -> int:
        """Where to go on if nothing is at `position`, of a log that ends at `end` (or does not show more to read_committed).

        What a log that was cut (an unclean election) does not have when patience is over is lost: a batch in a checkpoint must be
        over with at some time.
        """
        if end <= position and not self.options.fail_on_data_loss and self.clock() >= deadline:
            return self._lost(wanted, position, wanted.end, f"the log ends at {end}")
        self._check_patience(wanted, position, deadline, f"the log ends at {end}")
        return position

    def _in_same_topic(self, wanted: OffsetRange, position: int) -> int:
        """`position`, or the range's end if another topic has the name of the one that was planned."""
        deadline = self._deadline()
        while wanted.topic_id:
            try:
                found = self.client.metadata([wanted.topic]).topics
            except (KafkaliteError, OSError) as error:
                self._wait(error, wanted, position, deadline)
                continue
            others = [topic.topic_id for topic in found if topic.topic_id not in ("", wanted.topic_id)]
            if others:
                why = f"the topic was deleted and created again (its id was {wanted.topic_id}, now {others[0]})"
                return self._lost(wanted, position, wanted.end, why)
            break
        return position

    def _lost(self, wanted: OffsetRange, first: int, end: int, why: str) -> int:
        what = f"{wanted.topic_partition}: offsets {first} to {end} cannot be read, {why}"
        if self.options.fail_on_data_loss:
            raise DataLoss(loss_message(what))
        log.warning("%s: skipped (failOnDataLoss=false)", what)
        return end

    def _wait(self, error: Exception, wanted: OffsetRange, position: int, deadline: float) -> None:
        """Before the next try: there was no answer, the leader may be on its way to another node. Raises ReadFailed."""
        if isinstance(error, ApiError) and not error.retriable:
            raise ReadFailed(f"{wanted.topic_partition} at offset {position}: {error}") from error
        self._check_patience(wanted, position, deadline, str(error))
        self.sleep(_RETRY_S)

    def _check_patience(self, wanted: OffsetRange, position: int, deadline: float, why: str) -> None:
        if self.clock() >= deadline:
            raise ReadFailed(
                f"{wanted.topic_partition}: no record arrived at offset {position} (the range ends at {wanted.end}) for "
                f"{self.options.poll_timeout_ms} ms; {why}. A leader may be down: run kafkalite admin health. "
                "kafkaConsumer.pollTimeoutMs sets the patience"
            )
