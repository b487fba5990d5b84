"""State batches and stored states of shared partitions against a model that knows each offset alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordinators.shares import state as rules
from kafkalite.coordinators.shares.batches import combined, completed
from kafkalite.coordinators.shares.delivery_states import DeliveryState, StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey
from kafkalite.coordinators.shares.records import encode_snapshot, encode_update, parse
from kafkalite.coordinators.shares.state import Change, StoredState
from kafkalite.model import Offset

_OFFSETS = st.integers(0, 30)
_BATCH = st.builds(
    lambda first, size, state, count: StateBatch(Offset(first), Offset(first + size), state, count),
    _OFFSETS,
    st.integers(0, 8),
    st.sampled_from(DeliveryState),
    st.integers(0, 2),
)
_WRITE = st.tuples(st.integers(-1, 20), st.lists(_BATCH, max_size=4))
_KEY = ShareKey("g", UUID(int=7), 3)


def expanded(batches: tuple[StateBatch, ...]) -> dict[int, tuple[DeliveryState, int]]:
    found: dict[int, tuple[DeliveryState, int]] = {}
    for batch in batches:
        for offset in range(batch.first, batch.last + 1):
            assert offset not in found
            found[offset] = (batch.state, batch.delivery_count)
    return found


@given(st.lists(_WRITE, max_size=8))
def test_each_offset_is_as_the_last_write_left_it(writes: list[tuple[int, list[StateBatch]]]) -> None:
    model: dict[int, tuple[DeliveryState, int]] = {}
    known: tuple[StateBatch, ...] = ()
    begin = 0
    for start, batches in writes:
        begin = max(begin, start)
        known = combined(known, batches, Offset(begin))
        for batch in batches:
            model.update(dict.fromkeys(range(batch.first, batch.last + 1), (batch.state, batch.delivery_count)))
        model = {offset: value for offset, value in model.items() if offset >= begin}
        assert expanded(known) == model
        assert list(known) == sorted(known)
        assert all(one.last + 1 < two.first or one[2:] != two[2:] for one, two in pairwise(known))
        done = {DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED}
        assert completed(known) == sum(state in done for state, _ in model.values())


@given(st.lists(_WRITE, max_size=12), st.integers(0, 4))
def test_what_is_read_from_the_log_is_what_was_in_memory(
    writes: list[tuple[int, list[StateBatch]]], per_snapshot: int
) -> None:
    """Any suffix of the log that begins with a snapshot leads to the same state."""
    state = rules.initialized(None, 5, Offset(-1), 100)
    assert state is not None
    log = [encode_snapshot(_KEY, state)]
    updates = 0
    for number, (start, batches) in enumerate(writes):
        change = replace(rules.change_of(state, Offset(start), batches), leader_epoch=number)
        state = rules.applied(state, change)
        if updates >= per_snapshot:
            state, updates = rules.snapshot(state, 200 + number), 0
            log.append(encode_snapshot(_KEY, state))
        else:
            updates += 1
            log.append(encode_update(_KEY, change, state))
    for first in range(len(log)):
        if not isinstance(parse(*log[first])[1], StoredState):
            continue
        found: StoredState | None = None
        for key, value in log[first:]:
            name, stored = parse(key, value)
            assert name == _KEY
            if isinstance(stored, Change):
                assert found is not None
                found = rules.applied(found, stored)
            else:
                found = stored
        assert found == state
    name, stored = parse(*encode_snapshot(_KEY, None))
    assert (name, stored) == (_KEY, None)
