"""From what the user said (topics, offsets, times) to numbers: asks the cluster, decides little."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kafkalite.client.retry import BootstrapFailed
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from pyspark_kafkalite.clients import LogClient, Unreachable, error_text
from pyspark_kafkalite.filters import Narrowing
from pyspark_kafkalite.offsets import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Earliest,
    Latest,
    OffsetRange,
    OffsetSpec,
    Specific,
    names,
)
from pyspark_kafkalite.options import OptionError, ReadOptions, Subscription

if TYPE_CHECKING:
    from kafkalite.partition_values import TopicMetadata

log = logging.getLogger("pyspark_kafkalite")
T = TypeVar("T")

_DELETED = "Records were deleted (retention, or the topic was created again) before they were read"

#: Fetched of a partition to learn how large its records are.
_SAMPLE_BYTES = 64 << 10


class DataLoss(KafkaliteError):
    """Records that should have been read are gone (failOnDataLoss=true). The message says which and what to do."""


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Asks about topics and offsets, again when that fails: `offset_retries` times, then the error goes up."""

    client: LogClient
    options: ReadOptions
    sleep: Callable[[float], None] = time.sleep

    def partitions(self) -> dict[TopicPartition, str]:
        """The partitions that the subscription means now, with their topics' ids.

        Raises:
            OptionError: a topic or partition that is named does not exist.
        """
        subscription = self.options.subscription
        for _ in range(self.options.offset_retries):
            found = self._retry(lambda: _partitions(self.client, subscription))
            if not _missing(subscription, found):
                return found
            # a node that has just started, or not heard of a new topic yet
            self.sleep(self.options.offset_retry_interval_ms / 1000)
        found = self._retry(lambda: _partitions(self.client, subscription))
        _check_exist(subscription, found)
        return found

    def existing_partitions(self) -> dict[TopicPartition, str]:
        """The same for a stream that runs already: what is not there any more is left out."""
        return self._retry(lambda: _partitions(self.client, self.options.subscription))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._listed(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset to be written; for read_committed, the first that is not decided yet."""
        return self._listed(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    def written(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset to be written, also for read_committed: what is not decided is there."""
        return self._listed(dict.fromkeys(partitions, LATEST_TIMESTAMP), is_decided=False)

    def at_timestamp(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset with a record at or after each time; None if there is none."""
        listed = self._listed(timestamps_ms)
        return {tp: offset if offset >= 0 else None for tp, offset in listed.items()}

    def bytes_per_offset(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """About how large a record is in the log after each offset: of the first batches there, 64 KiB or one batch."""
        from pyspark_kafkalite.batches import mean_bytes  # for maxBytesPerTrigger alone

        found: dict[TopicPartition, float] = {}
        for tp, begin in sorted(begins.items()):
            try:
                fetched = self._retry(partial(self.client.fetch_raw, tp, begin, _SAMPLE_BYTES, 0))
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                found[tp] = 1.0  # what is lost is for the task that reads it to say
                continue
            found[tp] = mean_bytes(fetched.records, begin)
        return found

    def _listed(self, asked: Mapping[TopicPartition, int], *, is_decided: bool = True) -> dict[TopicPartition, int]:
        if not asked:
            return {}
        isolation = int(is_decided and self.options.fetch.read_committed)
        listed = self._retry(lambda: self.client.list_offsets(asked, isolation=isolation))
        return {tp: listed[tp].offset for tp in sorted(asked)}

    def _retry(self, ask: Callable[[], T]) -> T:
        for attempt in range(self.options.offset_retries + 1):
            try:
                return ask()
            except BootstrapFailed as error:
                raise Unreachable(error_text(self.options.client, error)) from error
            except (KafkaliteError, OSError) as error:
                refused = isinstance(error, ApiError) and not error.retriable
                if refused or isinstance(error, OptionError):
                    raise
                if attempt == self.options.offset_retries:
                    if isinstance(error, ApiError):
                        raise
                    raise Unreachable(error_text(self.options.client, error)) from error
                log.warning("asking %s for offsets failed: %s", ",".join(self.options.client.bootstrap), error)
                self.sleep(self.options.offset_retry_interval_ms / 1000)
        raise AssertionError("unreachable")

    def start_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, *, waits: bool = False
    ) -> dict[TopicPartition, int]:
        """Where reading begins, as numbers. `waits`: the reader waits for what is not decided yet, and may begin there."""
        wanted = sorted(partitions)
        match spec:
            case Earliest():
                return self.earliest(wanted)
            case Latest():
                return self.latest(wanted)
            case Specific(offsets):
                _check_same("startingOffsets", offsets, wanted)
                return self._specific(offsets, "startingOffsets", undecided_too=waits)
            case AtTimestamp():
                return self._start_at(spec, wanted)

    def _start_at(self, spec: AtTimestamp, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.at_timestamp(_times("startingOffsetsByTimestamp", spec, wanted))
        late = [tp for tp in wanted if found[tp] is None]
        if late and self.options.timestamp_strategy == "error":
            raise OptionError(
                f"there is no record as late as the starting timestamp in {names(late)}; "
                "set startingOffsetsByTimestampStrategy to latest to start at the end"
            )
        ends = self.latest(late)
        return {tp: ends[tp] if (offset := found[tp]) is None else offset for tp in wanted}

    def end_offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        """Where a batch query ends, as numbers; no record as late as a timestamp means the latest."""
        wanted = sorted(partitions)
        match spec:
            case Specific(offsets):
                _check_same("endingOffsets", offsets, wanted)
                return self._specific(offsets, "endingOffsets")
            case AtTimestamp():
                found = self.at_timestamp(_times("endingOffsetsByTimestamp", spec, wanted))
                ends = self.latest([tp for tp in wanted if found[tp] is None])
                return {tp: ends[tp] if (offset := found[tp]) is None else offset for tp in wanted}
            case _:
                return self.latest(wanted)

    def _specific(
        self, offsets: Mapping[TopicPartition, int], option: str, *, undecided_too: bool = False
    ) -> dict[TopicPartition, int]:
        """Put numbers for -1 and -2, and see that the others lie in the log."""
        first, end = self.earliest(offsets), self.latest(offsets)
        last = dict(end)
        if undecided_too and self.options.fetch.read_committed:
            last |= self.written([tp for tp, offset in offsets.items() if offset > end[tp]])
        lost: list[str] = []
        beyond: list[str] = []
        resolved: dict[TopicPartition, int] = {}
        for tp, offset in sorted(offsets.items()):
            if offset in (LATEST, EARLIEST):
                resolved[tp] = end[tp] if offset == LATEST else first[tp]
                continue
            resolved[tp] = min(max(offset, first[tp]), last[tp])
            if resolved[tp] != offset:
                wrong = lost if offset < first[tp] else beyond
                wrong.append(f"{tp} has offsets {first[tp]} to {last[tp]}, not {offset}")
        if lost:
            self.report_loss(f"{option}: {'; '.join(lost[:10])}")
        if beyond:
            excluded = self.options.fetch.read_committed and not undecided_too
            open_too = "; records of open transactions are not counted" if excluded else ""
            self.report_loss(
                f"{option}: {'; '.join(beyond[:10])}",
                f"Nothing was written there yet, or the topic was deleted and created again{open_too}",
            )
        return resolved

    def report_loss(self, what: str, why: str = _DELETED) -> None:
        """Fail or warn, as failOnDataLoss says."""
        if self.options.fetch.fail_on_data_loss:
            raise DataLoss(loss_message(what, why))
        log.warning("%s: continuing with the remaining records (failOnDataLoss=false)", what)

    def ranges(self, narrowing: Narrowing) -> list[OffsetRange]:
        """What a batch query reads, one range per partition, after the query's filters."""
        ids = self.partitions()
        starts = self.start_offsets(ids, self.options.starting)
        ends = self.end_offsets(ids, self.options.ending)
        wrong = [tp for tp in sorted(ids) if starts[tp] > ends[tp]]
        if wrong:
            first = wrong[0]
            raise OptionError(
                f"the start is beyond the end for {names(wrong)}: {first} would be read from offset {starts[first]} to {ends[first]}"
            )
        chosen = [tp for tp in sorted(ids) if narrowing.admits(*tp)]
        if narrowing.timestamp_ms is not None:
            late = self.at_timestamp(dict.fromkeys(chosen, narrowing.timestamp_ms))
            for tp, offset in late.items():
                starts[tp] = ends[tp] if offset is None else max(starts[tp], offset)
        found = []
        for tp in chosen:
            start = max(starts[tp], narrowing.first_offset or 0)
            end = ends[tp] if narrowing.end_offset is None else min(ends[tp], narrowing.end_offset)
            found.append(OffsetRange(tp.topic, tp.partition, start, max(start, end), ids[tp]))
        return found


def loss_message(what: str, why: str = _DELETED) -> str:
    return f"{what}. {why}. Set failOnDataLoss=false to continue with the remaining records"


def _partitions(client: LogClient, subscription: Subscription) -> dict[TopicPartition, str]:
    if subscription.pattern is not None:
        answer = client.metadata(None)
        topics = [t for t in answer.topics if subscription.matches(t.topic)]
    else:
        asked = subscription.topics or tuple(sorted({tp.topic for tp in subscription.partitions}))
        topics = list(client.metadata(asked).topics)
    found: dict[TopicPartition, str] = {}
    for topic in topics:
        if topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            continue
        if topic.error and not (refusal := _refusal(topic)).retriable:
            raise refusal
        for partition in topic.partitions:
            found[TopicPartition(topic.topic, partition.partition)] = topic.topic_id
    if subscription.partitions:
        named = set(subscription.partitions)
        found = {tp: topic_id for tp, topic_id in found.items() if tp in named}
    return dict(sorted(found.items()))


def _refusal(topic: TopicMetadata) -> ApiError:
    from kafkalite.errors import error_code

    code = error_code(topic.error)
    return api_error(code, f"topic {topic.topic}: {code.name}")


def _missing(subscription: Subscription, found: Mapping[TopicPartition, str]) -> list[str]:
    """What the subscription names and the cluster does not have."""
    known = {tp.topic for tp in found}
    missing: list[str] = [topic for topic in subscription.topics if topic not in known]
    return missing + [str(tp) for tp in subscription.partitions if tp not in found]


def _check_exist(subscription: Subscription, found: Mapping[TopicPartition, str]) -> None:
    if missing := _missing(subscription, found):
        raise OptionError(
            f"{', '.join(missing[:10])}: no such topic or partition in this cluster "
            "(kafkalite admin list-topics shows what there is)"
        )


def _check_same(option: str, given: Iterable[TopicPartition], wanted: list[TopicPartition]) -> None:
    named = set(given)
    missing, extra = sorted(set(wanted) - named), sorted(named - set(wanted))
    if missing or extra:
        parts = [f"{names(missing)} missing"] if missing else []
        parts += [f"{names(extra)} not subscribed"] if extra else []
        raise OptionError(f"{option} must name every partition (-1 is latest, -2 earliest): {', '.join(parts)}")


def _times(option: str, spec: AtTimestamp, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    if spec.default_ms is not None:
        return dict.fromkeys(wanted, spec.default_ms)
    _check_same(option, spec.timestamps_ms, wanted)
    return dict(spec.timestamps_ms)
