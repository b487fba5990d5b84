"""Compaction under random histories: what readers of committed records end up with never changes.

Transactions that commit and abort, tombstones, rolls, passes with small maps, changes of settings, crashes and losses of
power, a follower that copies. The model is what was committed, and what it was at each earlier end of the log; it knows
nothing of segments, maps, markers or indexes.
"""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any, NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalite.log.cleaner import compact
from kafkalite.log.partition_log import PartitionLog
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.record.compression import Codec
from tests.support.committed import committed_state
from tests.support.logs import PATH, config, make_log, reopen
from tests.support.memory_disk import MemoryDisk

SETTINGS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 1024,
    "index_interval_bytes": 200,
    "min_cleanable_dirty_ratio": 0,
    "delete_retention_ms": 5,
}
KEYS = st.sampled_from(["a", "b", "c", "d"])
Pairs = list[tuple[bytes, bytes | None]]


class Model(NamedTuple):
    #: What is committed, what each open transaction has written, the next sequence of each producer.
    state: dict[bytes, bytes]
    open: dict[int, Pairs]
    sequences: dict[int, int]


class Compacted(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.settings = dict(SETTINGS)
        self.log: PartitionLog = make_log(self.disk, **self.settings)
        self.number = 0
        self.now_ms = 2_000
        self.dirty = 0
        self.model = Model({}, {}, {})
        #: The model as it was when the log ended there.
        self.history: dict[int, Model] = {}
        self._remember()

    def _remember(self) -> None:
        self.history[self.log.log_end_offset] = copy.deepcopy(self.model)

    @initialize()
    def flush_at_first(self) -> None:
        asyncio.run(self.log.flush())
        self.disk.sync_dir("/data")

    # --- writing ----------------------------------------------------------------------------------

    def _append(self, pairs: Pairs, **producer: int) -> None:
        builder = RecordBatchBuilder(Codec.NONE, **producer)  # type: ignore[arg-type]
        for key, value in pairs:
            builder.append(key, value, (), 1_000)
        self.log.append_as_leader(builder.build(), 1)

    def _pairs(self, keys: list[str], *, deletes: bool, of: int = 0) -> Pairs:
        """Of keys that no other open transaction has written: which of two writes counts is not decided here."""
        busy = {key for producer_id, pairs in self.model.open.items() if producer_id != of for key, _ in pairs}
        pairs: Pairs = []
        for key in keys:
            self.number += 1
            if key.encode() not in busy:
                pairs.append((key.encode(), None if deletes else b"%d" % self.number + b"." * 60))
        return pairs

    def _commit(self, pairs: Pairs) -> None:
        for key, value in pairs:
            if value is None:
                self.model.state.pop(key, None)
            else:
                self.model.state[key] = value

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3), deletes=st.booleans())
    def write(self, keys: list[str], *, deletes: bool) -> None:
        if pairs := self._pairs(keys, deletes=deletes):
            self._append(pairs)
            self._commit(pairs)
            self._remember()

    @rule(
        producer_id=st.integers(1, 2),
        keys=st.lists(KEYS, min_size=1, max_size=2),
        deletes=st.booleans(),
        end=st.sampled_from(["commit", "abort", "abort", "later"]),
        also=st.lists(KEYS, max_size=1),
    )
    def transaction(self, producer_id: int, keys: list[str], *, deletes: bool, end: str, also: list[str]) -> None:
        model = self.model
        if pairs := self._pairs(keys, deletes=deletes, of=producer_id):
            sequence = model.sequences.get(producer_id, 0)
            model.open.setdefault(producer_id, []).extend(pairs)
            model.sequences[producer_id] = sequence + len(pairs)
            self._append(pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
            self._remember()
        if also:
            self.write(also, deletes=False)
        if end != "later" and producer_id in model.open:
            marker = end_transaction_marker(
                producer_id, 0, commit=end == "commit", coordinator_epoch=0, timestamp_ms=1_000
            )
            self.log.append_as_leader(marker, 1, origin="coordinator")
            pairs = model.open.pop(producer_id)
            if end == "commit":
                self._commit(pairs)
            self._remember()

    # --- compaction and settings --------------------------------------------------------------------

    @rule(
        roll=st.booleans(),
        map_bytes=st.sampled_from([1, 200, 1 << 20]),
        later_ms=st.sampled_from([0, 1, 10]),
        passes=st.integers(1, 2),
    )
    def compact(self, *, roll: bool, map_bytes: int, later_ms: int, passes: int) -> None:
        if roll:
            self.log.roll()
        for _ in range(passes):
            self.now_ms += later_ms
            end = self.log.log_end_offset
            self.dirty = asyncio.run(
                compact(
                    self.log,
                    self.disk,
                    first_dirty_offset=min(self.dirty, end),
                    high_watermark=end,
                    now_ms=self.now_ms,
                    map_bytes=map_bytes,
                )
            )
        # A file system keeps renames in their order; this disk, where they were not synced, does not.
        self.disk.sync_dir(PATH)

    @rule(policy=st.sampled_from(["compact", "delete", "compact,delete"]))
    def change_the_policy(self, policy: str) -> None:
        self.settings |= {"cleanup_policy": policy, "retention_ms": -1}
        self.log.config = config(**self.settings)

    @rule(
        segment_bytes=st.sampled_from([1024, 4096]),
        index_interval_bytes=st.sampled_from([0, 200, 100_000]),
        timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    )
    def change_other_settings(self, segment_bytes: int, index_interval_bytes: int, timestamp_type: str) -> None:
        self.settings |= {
            "segment_bytes": segment_bytes,
            "index_interval_bytes": index_interval_bytes,
            "message_timestamp_type": timestamp_type,
        }
        self.log.config = config(**self.settings)

    # --- durability and the end of processes ------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        asyncio.run(self.log.flush())

    @rule()
    def flush_rolled(self) -> None:
        asyncio.run(self.log.flush_rolled())

    def _reopened(self, synced: int) -> None:
        end = self.log.log_end_offset
        assert end >= synced
        # The tail may be lost between two batches of one step. What is visible then, the model does not know.
        assume(end in self.history)
        self.model = copy.deepcopy(self.history[end])
        self.history = {offset: model for offset, model in self.history.items() if offset <= end}
        self.dirty = min(self.dirty, end)

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        synced, point = self.log.synced_offset, self.log.recovery_point
        self.disk.power_loss(random.Random(seed))
        self.log = reopen(self.disk, recovery_point=point, **self.settings)
        self._reopened(synced)

    @rule(seed=st.integers(0, 2**32), power=st.booleans())
    def stop_and_start(self, seed: int, *, power: bool) -> None:
        end = self.log.log_end_offset
        asyncio.run(self.log.close_cleanly())
        if power:
            self.disk.power_loss(random.Random(seed))
        else:
            self.disk.process_crash()
        self.log = reopen(self.disk, clean=True, handle_capacity=2, **self.settings)
        self._reopened(end)

    @rule(lost=st.booleans())
    def crash(self, *, lost: bool) -> None:
        """With its recovery point lost, all of the log is checked, and everything that is derived is rebuilt."""
        end, point = self.log.log_end_offset, self.log.recovery_point
        self.disk.process_crash()
        self.log = reopen(self.disk, recovery_point=0 if lost else point, **self.settings)
        self._reopened(end)

    # --- what always holds --------------------------------------------------------------------------------

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        if not self.model.open:
            assert committed_state(self.log) == self.model.state
            assert committed_state(self.log, max_bytes=300) == self.model.state

    @rule()
    def copy(self) -> None:
        """A new replica takes all of it, whatever its settings are."""
        follower = make_log(MemoryDisk(), **SETTINGS | {"cleanup_policy": "delete", "max_message_bytes": 100})
        while follower.log_end_offset < self.log.log_end_offset:
            read = self.log.read(follower.log_end_offset, 300, verify=False)
            if not read.records:
                break
            follower.append_as_follower(b"".join(read.records))
        if not self.model.open:
            assert committed_state(follower) == self.model.state


TestCompacted = Compacted.TestCase
TestCompacted.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_producer_goes_on_after_compaction_and_a_loss_of_power(seed: int) -> None:
    """What compaction keeps of a producer is durable: its newest batch may be lost, and then an older one must be there."""
    state = Compacted()
    state.flush_at_first()
    state.transaction(also=[], deletes=False, end="abort", keys=["a"], producer_id=1)
    state.change_the_policy(policy="delete")
    state.compact(later_ms=0, map_bytes=1, passes=1, roll=True)
    state.change_the_policy(policy="compact")
    state.transaction(also=[], deletes=False, end="commit", keys=["a"], producer_id=1)
    state.compact(later_ms=0, map_bytes=1, passes=1, roll=False)
    state.lose_power(seed=seed)
    state.transaction(also=[], deletes=False, end="commit", keys=["a"], producer_id=1)
    state.readers_see_what_was_committed()
    state.teardown()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_log_that_was_never_compacted_has_no_hole_after_a_loss_of_power(seed: int) -> None:
    """The first segment's records were lost, the next segment's file was there: its base offset became the end of an empty log."""
    state = Compacted()
    state.flush_at_first()
    state.transaction(also=[], deletes=False, end="commit", keys=["a", "a"], producer_id=1)
    state.write(deletes=False, keys=["a"])
    state.write(deletes=False, keys=["a", "a"])
    state.write(deletes=False, keys=["a"])
    state.transaction(also=[], deletes=False, end="commit", keys=["a"], producer_id=1)
    state.write(deletes=False, keys=["a"])
    state.lose_power(seed=seed)
    state.readers_see_what_was_committed()
    state.copy()
    state.teardown()
