"""What is looked for inside a batch, when, and what becomes of one that a topic wants compressed otherwise."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kafkalite.config import TopicConfig
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.log.record_checks import CHEAP_REQUEST_BYTES, CheckBudget, is_costly, prepare, rules_of
from kafkalite.log.validation import MAX_COMPRESSED_RECORDS, MAX_RECORD_ERRORS, CheckedRecords, batches_for_leader
from kafkalite.record.batch import HEADER_SIZE, split_batches
from kafkalite.record.builder import RecordBatchBuilder, encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.record.reader import read_records
from tests.support.failing import fails_with

NOW = 1_700_000_000_000
PLAIN = TopicConfig()


def made(codec: Codec, *records: tuple[bytes | None, bytes], timestamps: tuple[int, ...] = (), **fields: Any) -> bytes:
    builder = RecordBatchBuilder(codec, **fields)
    for (key, value), timestamp in zip(records, [*timestamps, *[NOW] * len(records)], strict=False):
        builder.append(key, value, (), timestamp)
    return builder.build()


def checked(records: bytes, config: TopicConfig = PLAIN) -> CheckedRecords:
    return prepare(records, rules_of(config), NOW)


RECORDS = tuple((b"k%d" % number, b"value %d " % number * 30) for number in range(200))


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.product(Codec, ["uncompressed", "gzip", "snappy", "lz4", "zstd"]))
)
def test_every_codec_becomes_every_other_and_the_records_stay(source: Codec, target: str) -> None:
    before = made(source, *RECORDS, producer_id=7, producer_epoch=1, base_sequence=5, transactional=True)
    config = TopicConfig(compression_type=target)
    wanted = Codec.NONE if target == "uncompressed" else Codec[target.upper()]
    if source != wanted:
        assert is_costly(before, rules_of(config), NOW, CheckBudget())
    after = checked(before, config)
    assert list(read_records(after)) == list(read_records(before))
    [(_, old)], [(_, new)] = split_batches(before), split_batches(after)
    assert new.compression == wanted
    assert (new.producer_id, new.producer_epoch, new.base_sequence) == (7, 1, 5) and new.is_transactional
    assert (new.record_count, new.last_offset_delta, new.max_timestamp) == (
        old.record_count, old.last_offset_delta, old.max_timestamp,
    )  # fmt: skip
    batches_for_leader(memoryview(after), config, "client")
    if source == wanted:
        assert after == before  # it is not touched


@pytest.mark.parametrize(
    ("target", "key", "low", "high"), [("gzip", "gzip", 1, 9), ("lz4", "lz4", 1, 12), ("zstd", "zstd", 1, 19)]
)
def test_levels_are_used(target: str, key: str, low: int, high: int) -> None:
    before = made(Codec.NONE, *((b"%d" % n, b"%d" % (n * n * 7919 % 10_007)) for n in range(5_000)))
    levels: list[dict[str, Any]] = [{f"compression_{key}_level": level} for level in (low, high)]
    sizes = [len(checked(before, TopicConfig(compression_type=target, **each))) for each in levels]
    assert sizes[1] < sizes[0]


def test_a_result_above_the_topics_limit_is_refused() -> None:
    small = made(Codec.ZSTD, (b"k", bytes(50_000_000)))
    assert len(small) < 10_000
    with fails_with(ErrorCode.MESSAGE_TOO_LARGE):
        checked(small, TopicConfig(compression_type="uncompressed"))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_content_of_another_form_is_refused(codec: Codec) -> None:
    good = made(codec, *RECORDS)
    for content in (b"nothing that was ever compressed", good[HEADER_SIZE:-9]):
        bad = encode_batch(
            content, record_count=200, last_offset_delta=199, attributes=int(codec), base_timestamp=NOW, max_timestamp=NOW
        )  # fmt: skip
        with fails_with(ErrorCode.INVALID_RECORD):  # clients repeat CORRUPT_MESSAGE
            is_costly(bad, rules_of(PLAIN), NOW, CheckBudget())
        with fails_with(ErrorCode.INVALID_RECORD):
            checked(bad)
        assert not is_costly(bad, rules_of(TopicConfig(compressed_content_validation_enable=False)), NOW, CheckBudget())
    assert not is_costly(good, rules_of(PLAIN), NOW, CheckBudget())


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
@pytest.mark.parametrize(
    ("content", "count"),
    [(b"\x07" * 40, 1), (b"\0" * 40, 1), (b"", 1), (encode_record(0, 0, b"k", b"v", ()), 2), (bytes(1_000_000), 9)],
)
def test_malformed_records_are_refused_under_any_codec(
    codec: Codec, cleanup_policy: str, content: bytes, count: int
) -> None:
    """Kafka 4.4: INVALID_RECORD. They were appended, and each reader of the partition failed at them."""
    bad = encode_batch(
        compress(codec, content), record_count=count, last_offset_delta=count - 1, attributes=int(codec),
        base_timestamp=NOW, max_timestamp=NOW,
    )  # fmt: skip
    rules = rules_of(TopicConfig(cleanup_policy=cleanup_policy))
    with fails_with(ErrorCode.INVALID_RECORD):
        assert is_costly(bad, rules, NOW, CheckBudget())
        prepare(bad, rules, NOW)


def test_what_is_left_to_a_thread() -> None:
    compacted = rules_of(TopicConfig(cleanup_policy="compact"))
    assert is_costly(made(Codec.GZIP, (b"k", bytes(10_000_000))), rules_of(PLAIN), NOW, CheckBudget())  # ten kilobytes
    assert is_costly(made(Codec.GZIP, (b"k", b"v")), compacted, NOW, CheckBudget())
    assert is_costly(made(Codec.NONE, (b"k", bytes(20_000))), compacted, NOW, CheckBudget())
    assert not is_costly(made(Codec.NONE, (b"k", bytes(20_000))), rules_of(PLAIN), NOW, CheckBudget())
    assert not is_costly(made(Codec.NONE, (b"k", b"v")), compacted, NOW, CheckBudget())
    assert not is_costly(b"short", compacted, NOW, CheckBudget())
    assert not is_costly(b"x" * 200, compacted, NOW, CheckBudget())  # the append refuses it


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_with_wrong_timestamps_are_named(codec: Codec) -> None:
    hour = 3_600_000
    records = made(codec, *RECORDS[:4], timestamps=(NOW, NOW + 2 * hour, NOW - 5 * hour, NOW))
    config = TopicConfig(message_timestamp_before_max_ms=hour)
    with pytest.raises(ApiError) as refused:
        assert is_costly(records, rules_of(config), NOW, CheckBudget())
        checked(records, config)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in refused.value.record_errors] == [1, 2]
    stamped = TopicConfig(message_timestamp_before_max_ms=hour, message_timestamp_type="LogAppendTime")
    assert checked(records, stamped)


@pytest.mark.parametrize(("of_topic", "timestamps"), [("LogAppendTime", ()), ("CreateTime", (-1, -1))])
def test_only_a_broker_says_that_timestamps_are_those_of_the_append(of_topic: str, timestamps: tuple[int, ...]) -> None:
    """As Kafka 4.4.0 answers; on a topic with CreateTime it takes records that have timestamps."""
    records = made(Codec.NONE, *RECORDS[:2], log_append_time=True, timestamps=timestamps)
    with pytest.raises(ApiError) as refused:
        batches_for_leader(memoryview(records), TopicConfig(message_timestamp_type=of_topic), "client")
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in refused.value.record_errors] == [0, 1]


def test_record_errors_are_bounded() -> None:
    records = made(Codec.NONE, *((None, b"v") for _ in range(5_000)))
    with pytest.raises(ApiError) as refused:
        checked(records, TopicConfig(cleanup_policy="compact"))
    assert len(refused.value.record_errors) == MAX_RECORD_ERRORS


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
def test_millions_of_empty_records_in_a_few_bytes_are_not_even_counted(cleanup_policy: str) -> None:
    """300 bytes stood for 36 million records: minutes of a thread at each look, and gigabytes when they were compacted."""
    config = TopicConfig(cleanup_policy=cleanup_policy)
    for count in (MAX_COMPRESSED_RECORDS, MAX_COMPRESSED_RECORDS + 1):
        batch = encode_batch(
            compress(Codec.ZSTD, encode_record(0, 0, b"k", b"", ())),  # that there is one only is for the next look
            record_count=count, last_offset_delta=count - 1, attributes=Codec.ZSTD, base_timestamp=NOW, max_timestamp=NOW,
        )  # fmt: skip
        if count > MAX_COMPRESSED_RECORDS:
            with pytest.raises(ApiError, match=str(MAX_COMPRESSED_RECORDS)) as refused:
                batches_for_leader(memoryview(checked(batch, config)), config, "client")
            assert refused.value.code is ErrorCode.INVALID_RECORD
        else:
            assert batches_for_leader(memoryview(CheckedRecords(batch)), config, "client", keys_checked=True)


def test_a_wrong_crc_is_the_appends_to_say() -> None:
    records = bytearray(made(Codec.GZIP, *RECORDS))
    records[-1] ^= 1
    assert not is_costly(records, rules_of(PLAIN), NOW, CheckBudget())
    assert checked(bytes(records)) == bytes(records)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_request_has_few_batches_decompressed_on_the_loop(codec: Codec) -> None:
    """A thousand batches of 300 bytes each, which stand for 250 kB, held the loop for half a second."""
    records, budget = made(codec, (b"k", bytes(250_000))), CheckBudget()
    costly = [is_costly(records, rules_of(PLAIN), NOW, budget) for _ in range(1000)]
    assert costly.index(True) <= CHEAP_REQUEST_BYTES // 250_000 + 1
    assert all(costly[costly.index(True) :])


def test_a_request_with_hundreds_of_small_batches_stays_on_the_loop() -> None:
    records, budget = made(Codec.LZ4, (b"k", b"v" * 100)), CheckBudget()
    assert not any(is_costly(records, rules_of(PLAIN), NOW, budget) for _ in range(500))
