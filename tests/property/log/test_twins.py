"""Epoch cache, producer states, retention and index against twins that are obviously right, and slow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.log.epoch_cache import LeaderEpochCache
from kafkalite.log.producer_state import PreparedAppend, ProducerStates
from kafkalite.log.retention import SegmentFacts, segments_to_delete
from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.builder import end_transaction_marker
from kafkalite.record.reader import EndTransactionMarker
from tests.support.logs import batch

# --- leader epochs ------------------------------------------------------------------------------------


class NaiveEpochs:
    """The epoch of each record, one by one."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        at_most = [other for other in self.records if other <= epoch]
        if not at_most:
            return -1, -1
        largest = max(at_most)
        return largest, max(n for n, other in enumerate(self.records) if other == largest) + 1


@given(
    st.lists(st.tuples(st.sampled_from(["append", "truncate"]), st.integers(0, 5)), max_size=40), st.integers(-1, 30)
)
def test_epochs_agree_with_records_one_by_one(steps: list[tuple[str, int]], asked: int) -> None:
    naive, cache, epoch = NaiveEpochs(), LeaderEpochCache(), 0
    for step, amount in steps:
        if step == "append":
            epoch += amount % 3
            for _ in range(amount):
                cache.assign(epoch, len(naive.records))
                naive.records.append(epoch)
        else:
            del naive.records[max(0, len(naive.records) - amount) :]
            cache.truncate_from_end(len(naive.records))
    assert cache.end_offset_for(asked, len(naive.records)) == naive.end_offset_for(asked)
    for offset, known in enumerate(naive.records):
        assert cache.epoch_at(offset) == known
    assert cache.latest_epoch == (naive.records[-1] if naive.records else -1)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=30), st.integers(0, 60))
def test_epoch_entries_always_increase(assigned: list[tuple[int, int]], start: int) -> None:
    cache = LeaderEpochCache()
    for epoch, offset in assigned:
        cache.assign(epoch, offset)
        entries = cache.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
        assert cache.epoch_at(offset) == epoch
    before = {offset: cache.epoch_at(offset) for offset in range(start, 70)}
    cache.truncate_from_start(start)
    assert {offset: cache.epoch_at(offset) for offset in range(start, 70)} == before
    assert sum(offset <= start for _, offset in cache.entries()) <= 1


# --- producers ----------------------------------------------------------------------------------------


class NaiveProducers:
    """Every batch and marker ever taken, looked through from the beginning each time."""

    def __init__(self) -> None:
        self.history: list[tuple[BatchHeader, int, EndTransactionMarker | None]] = []

    def of(self, producer_id: int) -> list[tuple[BatchHeader, int, EndTransactionMarker | None]]:
        return [entry for entry in self.history if entry[0].producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        return max((header.producer_epoch for header, _, _ in self.of(producer_id)), default=-1)

    def batches(self, producer_id: int) -> list[tuple[BatchHeader, int]]:
        """Of the current epoch."""
        epoch = self.epoch(producer_id)
        return [
            (h, offset) for h, offset, marker in self.of(producer_id) if h.producer_epoch == epoch and marker is None
        ]

    def duplicate(self, header: BatchHeader) -> int | ErrorCode | None:
        if header.producer_epoch != self.epoch(header.producer_id):
            return None
        since = self.open_since(header.producer_id)
        for kept, offset in self.batches(header.producer_id)[-5:]:
            if (kept.base_sequence, kept.record_count) == (header.base_sequence, header.record_count):
                is_over = header.is_transactional and (since is None or offset < since)
                return ErrorCode.INVALID_TXN_STATE if is_over else offset
        return None

    def open_since(self, producer_id: int) -> int | None:
        first = None
        for header, offset, marker in self.of(producer_id):
            if marker is not None:
                first = None
            elif header.is_transactional and first is None:
                first = offset
        return first

    def refusal(self, header: BatchHeader, marker: EndTransactionMarker | None) -> ErrorCode | None:
        epoch = self.epoch(header.producer_id)
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker is not None:
            seen = [m.coordinator_epoch for _, _, m in self.of(header.producer_id) if m is not None]
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED if seen and marker.coordinator_epoch < seen[-1] else None
        if epoch != -1:
            mine = self.batches(header.producer_id)
            expected = mine[-1][0].base_sequence + mine[-1][0].record_count if mine else 0
            if header.producer_epoch > epoch:
                expected = 0
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not header.is_transactional and self.open_since(header.producer_id) is not None:
            return ErrorCode.INVALID_TXN_STATE
        return None


steps = st.lists(
    st.tuples(
        st.sampled_from(["batch", "batch", "batch", "retry", "commit", "abort", "snapshot"]),
        st.integers(1, 2),  # producer id
        st.integers(0, 2),  # producer epoch
        st.integers(1, 3),  # records
        st.sampled_from(["next", "next", "next", "zero", "gap"]),
        st.booleans(),  # transactional
        st.integers(0, 2),  # coordinator epoch
        st.integers(0, 7),  # which one to retry
    ),
    max_size=40,
)


@pytest.mark.checklist("F25")
@given(steps)
def test_producers_agree_with_the_whole_history(script: list[tuple]) -> None:  # type: ignore[type-arg]
    naive, states, end = NaiveProducers(), ProducerStates(), 0
    for step, producer_id, epoch, count, sequence, transactional, coordinator_epoch, back in script:
        if step == "snapshot":
            decoded = ProducerStates.decode_snapshot(states.encode_snapshot())
            assert decoded is not None
            states = decoded
            continue
        marker = None
        if step in ("commit", "abort"):
            marker = EndTransactionMarker(step == "commit", coordinator_epoch)
            made = end_transaction_marker(
                producer_id, epoch, commit=marker.commit, coordinator_epoch=coordinator_epoch, timestamp_ms=9
            )
        elif step == "retry" and len(naive.batches(producer_id)) > back:
            old = naive.batches(producer_id)[-1 - back][0]
            made = batch(
                ["x"] * old.record_count, producer_id=producer_id, producer_epoch=old.producer_epoch,
                base_sequence=old.base_sequence, transactional=transactional,
            )  # fmt: skip
        else:
            mine = naive.batches(producer_id)
            following = mine[-1][0].base_sequence + mine[-1][0].record_count if mine else 0
            base = {"next": following, "zero": 0, "gap": following + 2}[sequence]
            made = batch(
                ["x"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=base,
                transactional=transactional,
            )  # fmt: skip
        header = parse_header(made)
        if marker is None:
            expected = naive.duplicate(header)
            try:
                kept = states.find_duplicate(header)
            except ApiError as error:
                assert error.code == expected
                continue
            assert (kept.first_offset if kept is not None else None) == expected
            if kept is not None:
                continue
        refusal = naive.refusal(header, marker)
        prepared = PreparedAppend()
        try:
            states.prepare(prepared, header, end, marker, from_client=marker is None, replicated=False)
        except ApiError as error:
            assert error.code == refusal
            continue
        assert refusal is None
        naive.history.append((header, end, marker))
        states.apply(prepared)
        end += header.record_count
        states.forget_replicated(end)
        opened = [first for pid in (1, 2) if (first := naive.open_since(pid)) is not None]
        assert states.first_unstable_offset == min(opened, default=None)


@pytest.mark.checklist("F25")
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.sampled_from(["batch", "batch", "begin", "end", "snapshot"])),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_the_producers_that_wrote_last_are_kept(script: list[tuple[int, str]], most: int) -> None:
    """Besides those with an open transaction: a function of the log alone, so that replicas agree."""
    states, offset = ProducerStates(), 0
    written: dict[int, bool] = {}  # producer id -> whether its transaction is open; the one that wrote last at the end
    for producer_id, step in script:
        if step == "snapshot":
            decoded = ProducerStates.decode_snapshot(states.encode_snapshot())
            assert decoded is not None
            states = decoded
            continue
        is_open = step == "begin" or (written.get(producer_id, False) and step != "end")
        marker = EndTransactionMarker(commit=True, coordinator_epoch=0) if step == "end" else None
        made = batch(["x"], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=is_open)
        header = parse_header(
            end_transaction_marker(producer_id, 0, commit=True, coordinator_epoch=0, timestamp_ms=9) if marker else made
        )
        prepared = PreparedAppend()
        states.prepare(prepared, header, offset, marker, from_client=False, replicated=True)
        states.apply(prepared)
        states.drop_silent(most)
        offset += 1
        written.pop(producer_id, None)
        written[producer_id] = is_open
        idle = [each for each, opened in written.items() if not opened]
        for each in idle[: max(0, len(idle) - most)]:
            del written[each]
        assert dict.fromkeys(states.active()).keys() == written.keys()
        assert {each for each, _ in states.in_transaction()} == {each for each, opened in written.items() if opened}


# --- retention ----------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(1, 10), st.sampled_from([0, 1, 50, 100]), st.integers(0, 100)), min_size=1, max_size=8
    ),
    st.integers(-1, 50),
    st.integers(-1, 500),
    st.integers(0, 90),
    st.integers(0, 90),
    st.sampled_from(["delete", "compact", "compact,delete"]),
)
def test_retention_deletes_a_prefix_and_never_too_much(
    shapes: list[tuple[int, int, int]], retention_ms: int, retention_bytes: int, hw: int, start: int, policy: str
) -> None:
    segments, end = [], 0
    for count, size, timestamp in shapes:
        end += count
        segments.append(SegmentFacts(end, size, timestamp))
    config = TopicConfig(retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy=policy)
    gone = segments_to_delete(segments, config, high_watermark=hw, log_start_offset=start, now_ms=100)
    # Said of what an operator sees: the segments with records in them, those that are empty left out.
    filled = [segment for segment in segments if segment.size_bytes]
    gone_filled = sum(segment.size_bytes > 0 for segment in segments[:gone])
    left = sum(segment.size_bytes for segment in filled)
    for number, segment in enumerate(filled):
        left -= segment.size_bytes
        reasons = [segment.next_offset <= start]
        if policy != "compact":
            reasons += [0 <= retention_ms < 100 - segment.largest_timestamp, 0 <= retention_bytes <= left]
        goes = segment.next_offset <= hw and any(reasons)
        assert goes == (number < gone_filled)
        if not goes:
            break
    # No empty one goes alone, unless its offsets were deleted; the active one never does.
    for segment in segments[:gone][::-1]:
        if segment.size_bytes:
            break
        assert segment.next_offset <= start
    if not segments[-1].size_bytes:
        assert gone < len(segments)
