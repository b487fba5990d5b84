"""The streaming reader. One process per query keeps it for the life of the query; executors get copies that only read."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader

from kafkalite.errors import KafkaliteError
from kafkalite.model import TopicPartition
from pyspark_kafkalite import clients
from pyspark_kafkalite.cluster import TopicReader
from pyspark_kafkalite.columns import Column
from pyspark_kafkalite.offsets import limit, limit_bytes, names, plan
from pyspark_kafkalite.options import OptionError, ReadOptions
from pyspark_kafkalite.reader import RangePartition
from pyspark_kafkalite.stream_offsets import EXTRA, Changes, StreamOffset, changes, next_end, ranges, topic_ids, waiting
from pyspark_kafkalite.worker_memory import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2: Spark asks for the latest offsets without telling where it is, and sets no limits
    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = None

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for the mixin that this version does not have."""


log = logging.getLogger("pyspark_kafkalite")

#: A batch is not held up for longer because its group's coordinator is away.
_SHOW_TIMEOUT_MS = 5_000


class UnknownBegin(KafkaliteError):
    """Nobody but Spark's own source knows where a batch of its begins. The message says what to do."""


class KafkaliteStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans micro-batches on the driver: what is new, how much of it, and what is lost."""

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[Column, ...],
        connect: clients.Connect = clients.shared,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._columns = columns
        self._connect = connect
        self._clock = clock
        self._initial: StreamOffset | None = None
        #: The end of the batch that was planned last: the next start, for Spark versions that do not pass it.
        self._planned: StreamOffset | None = None
        self._available_now = False
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._last_batch_at: float | None = None
        #: Since when a partition's end has been below what was read already.
        self._behind_since: dict[TopicPartition, float] = {}
        #: What was committed to the group.
        self._shown: Mapping[TopicPartition, int] | None = None
        for warning in options.warnings:
            log.warning("%s", warning)
        if ReadMaxRows is None:
            _refuse_limits(options)

    # --- what Spark calls on the driver

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. The same at every call: Spark asks more than once."""
        if self._initial is None:
            cluster = self._cluster()
            found = cluster.partitions()
            offsets = cluster.start_offsets(found, self._options.starting, waits=True)
            # earlier versions do not pass the position on after a restart: the name would not stay the same
            query = "" if ReadMaxRows is None else uuid.uuid4().hex[:12]
            self._initial = StreamOffset(offsets, topic_ids(found, found), initial=True, query=query)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> Any:
        """One limit is all that Spark takes; `latestOffset` looks at the options for the rest."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The target itself is taken with the first question for offsets, when the start is known (SPARK-53560)."""
        self._available_now = True

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """The end of the next batch; `start` itself if there is nothing to do."""
        position = self._planned if start is None else StreamOffset.from_json(start)
        if start is not None:
            self._show_progress(position)
        if position is None:
            position = StreamOffset.from_json(self.initialOffset())
        cluster = self._cluster()
        found, changed = self._partitions_now(cluster, position)
        begins = self._begins(cluster, position, changed)
        ends = self._ends(cluster, begins)
        limited = limit is not None and not isinstance(limit, ReadAllAvailable)
        if limited and self._too_few(begins, ends) and not changed.gone and not position.initial:
            return position.to_json() if start is None else start
        end = next_end(position, begins, ends, topic_ids(found, ends), partial(self._limits, cluster, limited=limited))
        if end is position:
            return position.to_json() if start is None else start
        self._last_batch_at = self._clock()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: how far the topics reach, whatever was read of it."""
        shown = StreamOffset(self._latest).to_json()
        return {topic: numbers for topic, numbers in shown.items() if not topic.startswith("#")} or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        """The tasks of one batch; asks nobody, so that a replay reads the same. (But of what Spark's own source has planned.)"""
        begin, self._planned = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if EXTRA not in end:
            self._planned = self._with_begins(begin, self._planned)
        planned = plan(
            ranges(begin, self._planned),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        ends, query = self._planned.offsets, self._planned.query
        return [RangePartition(part, part.end == ends.get(part.topic_partition), query) for part in planned]

    def commit(self, end: dict[str, Any]) -> None:
        """Positions are in the query's checkpoint. Spark says this a batch late: `latestOffset` is where it shows, but
        before 4.2 this does not reach the query's driver."""
        if ReadMaxRows is None:
            self._show_progress(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Nothing to do: the client ends with the process."""

    # --- what Spark calls on executors

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        if partition is None or getattr(partition, "range", None) is None:
            return
        from pyspark_kafkalite.fetching import RangeReader  # the process that plans a stream never needs it

        client = self._connect(self._options.client)
        yield from RangeReader(client, self._options.fetch).read(partition.range, self._columns)
        if partition.is_last and self._options.commit_progress and self._options.group_id is None:
            self._commit_read(client, partition)
        keep_modules()

    # --- inside

    def _commit_read(self, client: clients.LogClient, partition: RangePartition) -> None:
        """Where no group is named: to the one that is named after the query, which only its tasks know."""
        from pyspark import TaskContext

        from pyspark_kafkalite import query_group

        group = query_group.group_of(TaskContext.get(), self._options.group_prefix, partition.query)
        if group is not None:
            query_group.commit(client, group, partition.range)

    def _cluster(self) -> TopicReader:
        return TopicReader(self._connect(self._options.client), self._options)

    def _partitions_now(
        self, cluster: TopicReader, position: StreamOffset
    ) -> tuple[dict[TopicPartition, str], Changes]:
        """What exists, and what that means for the position. What seems gone is looked for again: a node that has
        just started knows few topics for a moment."""
        attempts = 0
        while True:
            found = cluster.existing_partitions()
            changed = changes(position, found)
            if not changed.gone or attempts >= self._options.offset_retries:
                break
            attempts += 1
            cluster.sleep(self._options.offset_retry_interval_ms / 1000)
        if changed.gone:
            cluster.report_loss(
                f"{names(changed.gone)}: this query has read them before, but they do not exist or are not subscribed any more",
                "A topic was deleted, or the query's options were changed",
            )
        for topic in changed.recreated:
            cluster.report_loss(f"topic {topic} was deleted and created again (its id was {position.ids[topic]})")
        return found, changed

    def _begins(self, cluster: TopicReader, position: StreamOffset, changed: Changes) -> dict[TopicPartition, int]:
        """Where each partition is read from: what the position says; new partitions from their first record."""
        begins = {tp: position.offsets[tp] for tp in changed.kept}
        if self._target is not None:
            return begins
        whole = () if position.initial else [tp for tp in changed.added if tp.topic not in changed.recreated]
        return begins | self._first(cluster, changed.added, whole)

    def _ends(self, cluster: TopicReader, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How far each partition can be read now; with Trigger.AvailableNow, what was there at the first question."""
        self._latest = cluster.latest(begins)
        short = self._short(cluster, begins)
        if self._available_now:
            short = self._short_after_a_while(cluster, begins, short)
            if self._target is None:
                self._target = dict(self._latest)
        self._behind_since = {tp: at for tp, at in self._behind_since.items() if tp in short}
        ends: dict[TopicPartition, int] = {}
        for tp, begin in begins.items():
            end = self._latest[tp]
            if self._target is not None:
                end = min(end, max(self._target.get(tp, begin), begin))
            ends[tp] = self._end_below(cluster, tp, begin, end) if end < begin and tp in short else max(end, begin)
        return ends

    def _short(self, cluster: TopicReader, begins: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Partitions whose log ends below what was in it. What is only undecided is in it: a position may be beyond that, which was
        reached by a query with another isolation level (the default of Spark's own source)."""
        known = {tp: max(begin, (self._target or {}).get(tp, begin)) for tp, begin in begins.items()}
        short = {tp for tp, end in known.items() if self._latest[tp] < end}
        if short and self._options.fetch.read_committed:
            written = cluster.written(short)
            short = {tp for tp in short if written[tp] < known[tp]}
        return short

    def _short_after_a_while(
        self, cluster: TopicReader, begins: Mapping[TopicPartition, int], short: set[TopicPartition]
    ) -> set[TopicPartition]:
        """A query with Trigger.AvailableNow ends when there is nothing to read: nobody would ask again when the patience is over."""
        deadline = self._clock() + self._options.fetch.poll_timeout_ms / 1000
        while short and self._clock() < deadline:
            cluster.sleep(self._options.offset_retry_interval_ms / 1000)
            self._latest = cluster.latest(begins)
            short = self._short(cluster, begins)
        return short

    def _with_begins(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """The end of a batch that Spark's own source has planned and not completed: where new partitions begin is not in it.

        Raises:
            UnknownBegin: it is the first batch.
        """
        if start.initial:
            raise UnknownBegin(
                "the first batch of this checkpoint was planned by Spark's own Kafka source and is not complete: run the query with "
                "format kafka until it is, or take a new checkpoint and startingOffsets"
            )
        added = tuple(tp for tp in end.offsets if tp not in start.offsets)
        return replace(end, begins=self._first(self._cluster(), added, added)) if added else end

    def _first(
        self, cluster: TopicReader, added: Sequence[TopicPartition], whole: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first record of partitions that are new. Of those in `whole` it must be the first one ever."""
        first = cluster.earliest(added)
        cut = [tp for tp in added if first[tp] > 0 and tp in whole]
        if cut:
            cluster.report_loss(f"new partitions {names(cut)} do not start at offset 0 any more")
        return first

    def _end_below(self, cluster: TopicReader, tp: TopicPartition, begin: int, latest: int) -> int:
        """An end below what was read: normal for a moment after a leader change, a loss when it stays so."""
        since = self._behind_since.setdefault(tp, self._clock())
        if not self._available_now and self._clock() - since < self._options.fetch.poll_timeout_ms / 1000:
            return begin
        cluster.report_loss(f"{tp} ends at offset {latest}, but was read up to {begin}")
        return latest

    def _limits(
        self,
        cluster: TopicReader,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        limited: bool,
    ) -> dict[TopicPartition, int]:
        """How far the batch may go: maxOffsetsPerTrigger, then maxBytesPerTrigger."""
        reached = dict(ends)
        if limited and (most := self._options.max_offsets_per_trigger) is not None:
            reached = limit(begins, reached, most)
        if limited and (most := self._options.max_bytes_per_trigger) is not None:
            filled = {tp: begins[tp] for tp in sorted(reached) if reached[tp] > begins[tp]}
            sizes = dict.fromkeys(reached, 0.0) | cluster.bytes_per_offset(filled)
            reached = limit_bytes(begins, reached, sizes, most)
        return reached

    def _show_progress(self, position: StreamOffset | None) -> None:
        """Commit what is done to the group that the user named. The checkpoint counts, not this: a failure is only logged."""
        group_id = self._options.group_id
        if group_id is None or position is None or position.initial or position.offsets == self._shown:
            return
        try:
            client = self._connect(self._options.client)
            client.commit_offsets(group_id, position.offsets, timeout_ms=_SHOW_TIMEOUT_MS)
        except (KafkaliteError, OSError) as error:
            log.warning("progress could not be committed to group %s: %s", group_id, error)
            return
        self._shown = position.offsets

    def _too_few(self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> bool:
        """Whether minOffsetsPerTrigger says to wait; never longer than maxTriggerDelay, never with a target."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or waiting(begins, ends) >= least:
            return False
        since = self._last_batch_at
        return since is not None and self._clock() - since < self._options.max_trigger_delay_ms / 1000


def _refuse_limits(options: ReadOptions) -> None:
    """Before 4.2 Spark does not say which trigger a query has: with Trigger.AvailableNow a limit would end it too early."""
    limits = {
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "maxBytesPerTrigger": options.max_bytes_per_trigger,
        "minOffsetsPerTrigger": options.min_offsets_per_trigger,
    }
    if given := [name for name, value in limits.items() if value is not None]:
        raise OptionError(
            f"{given[0]} needs Spark 4.2: earlier versions give a Python source no limits per trigger. "
            "Without the option each batch takes all records that are available"
        )
