"""Settings of share groups, and the batches that a member gets."""

from __future__ import annotations

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.coordinators.shares.decisions.deliveries import Acquired
from kafkalite.coordinators.shares.delivery import holding, placed_batches
from kafkalite.coordinators.shares.settings import share_settings
from kafkalite.model import Offset, ProducerId
from kafkalite.partition_values import AbortedTransaction
from kafkalite.record.batch import assign_in_place, parse_header
from kafkalite.record.builder import RecordBatchBuilder, end_transaction_marker
from kafkalite.resource_configs import duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", None),
        ("latest", None),
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H2M3.5S", 3_723_500),
        ("by_duration:pt0.05s", 50),
        ("by_duration:PT1.S", 1_000),
        ("by_duration:P", None),
        ("by_duration:P1DT", None),
        ("by_duration:P106751991167300D", 9_223_372_036_854_720_000_000),
        ("by_duration:P106751991167301D", None),
        (f"by_duration:P{'9' * 400}D", None),
        ("by_duration:P\u0663D", None),
    ],
)
def test_how_far_back_a_group_begins(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


def test_a_group_has_the_settings_of_the_broker_unless_it_has_its_own() -> None:
    config = BrokerConfig(group_share_delivery_count_limit=7)
    assert share_settings(config, {}).limits == (30_000, 7, 2_000)
    own = {"share.delivery.count.limit": "3", "share.isolation.level": "read_committed"}
    assert (share_settings(config, own).limits, share_settings(config, own).isolation) == ((30_000, 3, 2_000), 1)


def _log(*parts: bytes) -> bytes:
    log = bytearray()
    offset = 0
    for part in parts:
        piece = bytearray(part)
        assign_in_place(memoryview(piece), 0, offset, 0)
        offset = parse_header(piece).next_offset
        log += piece
    return bytes(log)


def _batch(count: int, producer_id: int = -1) -> bytes:
    more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    builder = RecordBatchBuilder(**(more if producer_id >= 0 else {}))  # type: ignore[arg-type]
    for _ in range(count):
        builder.append(None, b"v", (), 1)
    return builder.build()


def _marker(producer_id: int, *, commit: bool) -> bytes:
    return end_transaction_marker(producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=1)


def test_what_is_delivered_of_transactions() -> None:
    log = _log(_batch(2, 5), _batch(1, 6), _marker(5, commit=False), _batch(1, 5), _marker(5, commit=True), _batch(1))
    aborted = [AbortedTransaction(ProducerId(5), Offset(0))]
    committed = [each.batch for each in placed_batches([log], aborted, is_committed=True)]
    assert [batch[:2] for batch in committed if batch.is_delivered] == [(2, 2), (4, 4), (6, 6)]
    everything = [each.batch for each in placed_batches([log], aborted)]
    assert [batch[:2] for batch in everything if batch.is_delivered] == [(0, 1), (2, 2), (4, 4), (6, 6)]


def test_only_batches_with_acquired_records_are_sent() -> None:
    parts = [_batch(2), _batch(2), _batch(2), _batch(2)]
    log = _log(*parts)
    placed = placed_batches([log])
    size = len(parts[0])
    assert holding([log], placed, [Acquired(1, 3, 1), Acquired(7, 7, 2)]) == [log[: 2 * size], log[3 * size :]]
    assert holding([log], placed, [Acquired(4, 4, 1)]) == [log[2 * size : 3 * size]]
