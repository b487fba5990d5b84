"""The batch writer as plain classes over an in-memory log: columns, partitions, sequences, refusals."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from kafkalite.client.results import Metadata
from kafkalite.errors import ErrorCode, api_error
from kafkalite.model import NO_OFFSET, NO_TOPIC_ID, BrokerId, TopicPartition
from kafkalite.partition_values import ProducedPartition, TopicMetadata
from kafkalite.record.batch import parse_header
from kafkalite.rpc.answers import RpcTimeout
from pyspark_kafkalite import encode, producers, rows, sending
from pyspark_kafkalite.arrow_types import HEADER_ARROW
from pyspark_kafkalite.columns import HEADERS_SPARK
from pyspark_kafkalite.option_parsing import write_options
from pyspark_kafkalite.options import OptionError
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.rows import BadRow, batches_of
from pyspark_kafkalite.sending import WriteFailed
from pyspark_kafkalite.source import KafkaliteDataSource
from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter
from pyspark_kafkalite.writer import KafkaliteWriter
from tests.spark.fake_log import FakeLog

TYPES = {
    "key": (BinaryType(), pa.binary()),
    "value": (StringType(), pa.string()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "headers": (HEADERS_SPARK, pa.list_(HEADER_ARROW)),
    "other": (LongType(), pa.int64()),
}


def write(fake, rows: list[dict[str, Any]], batches: int = 1, /, **options: str):
    names = list(rows[0])
    schema = StructType([StructField(n, TYPES[n][0]) for n in names])
    given = write_options({"kafka.bootstrap.servers": "a:1"} | options)
    writer = KafkaliteWriter(given, row_shape(schema, given.topic), lambda _: fake)
    whole = pa.RecordBatch.from_arrays([pa.array([r[n] for r in rows], TYPES[n][1]) for n in names], names=names)
    step = -(-len(rows) // batches)
    return writer.write(iter([whole.slice(at, step) for at in range(0, len(rows), step)]))


@pytest.fixture
def topic(fake):
    fake.add_topic("t", 3)
    fake.add_topic("u", 1)
    return fake


def values(fake, topic: str, partition: int) -> list[bytes]:
    return [r.value for r in fake.records(topic, partition)]


def test_keys_go_where_kafka_puts_them_and_keep_their_order(topic) -> None:
    rows = [{"key": b"key-%d" % (n % 7), "value": f"{n}", "other": n} for n in range(500)]
    message = write(topic, rows, 5, topic="t")
    assert message.rows == 500
    by_key: dict[bytes, list[tuple[int, bytes]]] = {}
    for partition in range(3):
        for record in topic.records("t", partition):
            by_key.setdefault(record.key, []).append((partition, record.value))
    for n in range(7):
        found = by_key[b"key-%d" % n]
        assert len({partition for partition, _ in found}) == 1
        assert [value for _, value in found] == [b"%d" % m for m in range(n, 500, 7)]
    assert sum(end - first for _, _, first, end in message.offsets) == 500


def test_topic_partition_and_headers_columns(topic) -> None:
    write(
        topic,
        [
            {
                "topic": "t",
                "partition": 2,
                "key": b"k",
                "value": "a",
                "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
            },
            {"topic": "u", "partition": None, "key": None, "value": None, "headers": None},
            {"topic": "t", "partition": 2, "key": None, "value": "b", "headers": []},
        ],
    )
    first, second = topic.records("t", 2)
    assert (first.key, first.value, first.headers) == (b"k", b"a", (("h", b"1"), ("n", None)))
    assert (second.key, second.value, second.headers) == (None, b"b", ())
    assert [(r.key, r.value) for r in topic.records("u", 0)] == [(None, None)]


def test_the_topic_option_wins_over_the_column(topic) -> None:
    write(topic, [{"topic": "t", "value": "a"}], topic="u")
    assert values(topic, "u", 0) == [b"a"]


def test_sequences_go_on_and_what_is_sent_twice_is_kept_once(topic) -> None:
    topic.resend = True
    rows = [{"value": "x" * 100 + str(n)} for n in range(300)]
    message = write(topic, rows, 10, topic="u", **{"kafka.batch.size": "1000", "kafka.buffer.memory": "4000"})
    assert values(topic, "u", 0) == [r["value"].encode() for r in rows]
    headers = [parse_header(b) for b in next(log for tp, log in topic.partitions.items() if tp.topic == "u").batches]
    assert {h.producer_id for h in headers} == {headers[0].producer_id} != {-1}
    assert [h.base_sequence for h in headers] == [h.base_offset for h in headers]
    assert len(headers) > 30 and message.rows == 300


def test_a_worker_keeps_its_producer_from_task_to_task(topic) -> None:
    """A broker remembers each for a day, in each partition: with one for each task a stream fills its memory."""
    for n in range(3):
        write(topic, [{"value": f"{n}"}, {"value": "b"}], topic="u")
    headers = [parse_header(batch) for batch in topic.partitions[TopicPartition("u", 0)].batches]
    assert [h.base_sequence for h in headers] == [0, 2, 4]
    assert len({h.producer_id for h in headers}) == 1


def test_an_attempt_that_has_failed_leaves_its_producer_to_nobody(topic) -> None:
    """Nobody knows how much of it is in the log: its sequences could stand for other rows."""
    write(topic, [{"value": "a"}], topic="u")

    def lost(name: str) -> None:
        if name == "produce_many":
            raise RpcTimeout("no answer")

    topic.before = lost
    with pytest.raises(WriteFailed):
        write(topic, [{"value": "b"}], topic="u")
    topic.before = lambda _: None
    write(topic, [{"value": "c"}], topic="u")
    assert topic.calls.count("init_producer_id") == 2


def test_a_log_that_has_lost_what_an_earlier_task_wrote_takes_a_new_producer(topic) -> None:
    for n in range(3):
        write(topic, [{"value": f"{n}"}], topic="u")
    log = topic.partitions[TopicPartition("u", 0)]
    refusals = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]

    def refuse(name: str) -> None:
        if name == "produce_many" and refusals:
            raise api_error(refusals.pop())

    topic.before = refuse
    write(topic, [{"value": "after"}], topic="u")
    assert values(topic, "u", 0) == [b"0", b"1", b"2", b"after"]
    ids = [parse_header(batch).producer_id for batch in log.batches]
    assert ids == [ids[0]] * 3 + [ids[0] + 1]


def test_only_what_a_log_has_refused_is_sent_under_a_new_producer(topic) -> None:
    """The other partitions of the round have their batch already, and would have it twice."""
    write(topic, [{"partition": n, "value": "before"} for n in (0, 1, 2)], topic="t")
    topic.partitions[TopicPartition("t", 1)].sequences.clear()
    message = write(topic, [{"partition": n, "value": "after"} for n in (0, 1, 2)], topic="t")
    assert [values(topic, "t", n) for n in (0, 1, 2)] == [[b"before", b"after"]] * 3
    assert message.rows == 3 and sorted(message.offsets) == [("t", n, 1, 2) for n in (0, 1, 2)]


def test_a_log_that_a_task_comes_to_late_may_have_lost_the_producer_too(topic) -> None:
    write(topic, [{"partition": n, "value": "before"} for n in (0, 1)], topic="t")
    topic.partitions[TopicPartition("t", 1)].sequences.clear()
    rows = [{"partition": n, "value": f"{n}" + "x" * 500} for n in (0, 0, 0, 1, 0, 1)]
    write(topic, rows, 6, topic="t", **{"kafka.buffer.memory": "500"})
    assert [value[:1] for value in values(topic, "t", 0)[1:]] == [b"0"] * 4
    assert [value[:1] for value in values(topic, "t", 1)[1:]] == [b"1"] * 2


def test_a_log_that_has_lost_what_this_task_wrote_ends_the_task(topic) -> None:
    write(topic, [{"value": "a"}], topic="u")
    rounds = iter([None, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])

    def refuse(name: str) -> None:
        if name == "produce_many" and (code := next(rounds)) is not None:
            raise api_error(code)

    topic.before = refuse
    with pytest.raises(WriteFailed, match="OUT_OF_ORDER"):
        write(topic, [{"value": "x" * 900}] * 4, topic="u", **{"kafka.batch.size": "1000"})


def test_a_producer_that_was_not_used_for_long_is_not_used_again(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    write(topic, [{"value": "a"}], topic="u")
    monkeypatch.setattr(producers, "KEPT_S", 0.0)
    write(topic, [{"value": "b"}], topic="u")
    assert topic.calls.count("init_producer_id") == 2


def test_all_leaders_are_sent_to_at_once(topic) -> None:
    write(topic, [{"partition": n % 3, "value": "v"} for n in range(30)], topic="t")
    assert topic.calls.count("produce_many") == 1


def test_rows_without_keys_fill_batches(topic) -> None:
    write(topic, [{"value": "v" * 100} for _ in range(1000)], topic="t", **{"kafka.batch.size": "20000"})
    assert (
        all(len(values(topic, "t", p)) > 5 for p in range(3))
        or sum(len(values(topic, "t", p)) for p in range(3)) == 1000
    )
    assert sum(len(log.batches) for log in topic.partitions.values()) <= 15


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(topic, codec: str) -> None:
    write(topic, [{"value": "v" * 1000}] * 20, topic="u", **{"kafka.compression.type": codec})
    assert values(topic, "u", 0) == [b"v" * 1000] * 20
    assert sum(len(b) for log in topic.partitions.values() for b in log.batches) < 2000


def test_an_empty_task_says_so_and_asks_nothing(topic) -> None:
    options = write_options({"kafka.bootstrap.servers": "a:1", "topic": "t"})
    shape = row_shape(StructType([StructField("value", StringType())]), "t")
    message = KafkaliteWriter(options, shape, lambda _: topic).write(iter([]))
    assert (message.rows, message.offsets, topic.calls) == (0, (), [])
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"topic": None, "value": "v"}, "no topic"),
        ({"topic": "", "value": "v"}, "no topic"),
        ({"topic": "nope", "value": "v"}, "create-topic nope"),
        (
            {"topic": "t", "partition": 2, "value": "v", "headers": [("h", b""), (None, b"")]},
            "for t-2 has a header without a key",
        ),
        ({"topic": "t", "partition": 2, "value": "v", "headers": [None]}, "for t-2 has a header without a key"),
        ({"topic": "t", "partition": 3, "value": "v"}, "partition 3 of t, which has partitions 0 to 2"),
        ({"topic": "t", "partition": -1, "value": "v"}, "partition -1 of t"),
    ],
)
def test_rows_that_cannot_be_written(topic, row: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRow, match=says):
        write(topic, [row])


def test_a_topic_is_made_where_the_cluster_makes_them(topic) -> None:
    """As Kafka's producer has it, and with it Spark's own sink."""
    topic.auto_create = 2
    assert write(topic, [{"topic": "new", "key": b"%d" % n, "value": "v"} for n in range(20)]).rows == 20
    assert sum(len(values(topic, "new", partition)) for partition in (0, 1)) == 20


def test_a_node_that_does_not_know_a_topic_for_a_moment_is_asked_again(topic) -> None:
    """One that has just started, or the topic."""
    kept, questions = dict(topic.topic_ids), []

    def before(name: str) -> None:
        if name == "metadata":
            questions.append(name)
            topic.topic_ids = kept if len(questions) > 2 else {}

    topic.before = before
    assert write(topic, [{"value": "v"}], topic="u").rows == 1


def test_a_topic_that_has_no_leaders_yet_is_waited_for(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a cluster makes it. After two seconds the task ended, because there was no such topic."""
    slept: list[float] = []
    made = topic.metadata(["u"])
    new = Metadata(
        "cluster", BrokerId(1), (), (TopicMetadata("u", int(ErrorCode.LEADER_NOT_AVAILABLE), NO_TOPIC_ID, ()),)
    )
    monkeypatch.setattr(topic, "metadata", lambda _, **__: made if sum(slept) > 15 else new)
    options = write_options({"kafka.bootstrap.servers": "a:1"}).client
    assert sending._TopicPartitions(topic, options, lambda: None, slept.append)("u") == 1
    made, slept = new, []
    with pytest.raises(WriteFailed, match="topic u: LEADER_NOT_AVAILABLE for 30000 ms"):
        sending._TopicPartitions(topic, options, lambda: None, slept.append)("u")
    assert 29 <= sum(slept) <= 30


def test_a_topic_that_may_not_be_seen_is_not_called_missing(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = TopicMetadata("t", int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), NO_TOPIC_ID, ())
    answer = Metadata("cluster", BrokerId(1), (), (refused,))
    monkeypatch.setattr(topic, "metadata", lambda topics, allow_auto_create: answer)
    with pytest.raises(WriteFailed, match="topic t: TOPIC_AUTHORIZATION_FAILED"):
        write(topic, [{"value": "v"}], topic="t")


@pytest.mark.parametrize("name", ["metadata", "produce_many"])
def test_what_fails_is_told_with_its_code_and_a_cluster_that_is_away_with_its_address(topic, name: str) -> None:
    errors = [
        ConnectionError("nobody there"),
        api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "IDEMPOTENT_WRITE on x"),
    ]

    def before(asked: str) -> None:
        if asked == name:
            raise errors.pop(0)

    topic.before = before
    with pytest.raises(WriteFailed, match=r"u.*a:1 .*nobody there.*kafka\.bootstrap\.servers"):
        write(topic, [{"value": "v"}], topic="u")
    with pytest.raises(WriteFailed, match=r"u.*CLUSTER_AUTHORIZATION_FAILED.*IDEMPOTENT_WRITE on x"):
        write(topic, [{"value": "v"}], topic="u")


def test_memory_goes_by_the_buffer_and_not_by_what_spark_hands_over(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once Spark hands over up to 64 MiB (before 4.1: 10,000 rows, of any size)."""
    at_once: list[int] = []

    def counted(rows: encode.Rows, *rest: Any) -> Any:
        at_once.append(rows.values.nbytes)
        return encode.encode(rows, *rest)

    monkeypatch.setattr(sending, "encode", counted)
    rows = [{"value": "v" * 1000, "key": b"%d" % n} for n in range(200)]
    message = write(topic, rows, topic="t", **{"kafka.buffer.memory": "20000"})
    assert message.rows == 200 and len(at_once) > 5
    assert max(at_once) < 2 * 20_000
    assert sorted(len(v) for p in range(3) for v in values(topic, "t", p)) == [1000] * 200


def test_refusals_name_the_partition_and_what_to_do(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ErrorCode.MESSAGE_TOO_LARGE
    monkeypatch.setattr(
        topic, "append", lambda tp, batch: ProducedPartition(tp.topic, tp.partition, int(refused), NO_OFFSET)
    )
    with pytest.raises(WriteFailed, match=r"MESSAGE_TOO_LARGE, u-0.*max\.message\.bytes"):
        write(topic, [{"value": "v"}], topic="u")


def test_a_stream_s_sink_says_once_which_options_have_no_effect(topic, caplog: pytest.LogCaptureFixture) -> None:
    """It is built again for every batch, in other processes."""
    given = write_options({"kafka.bootstrap.servers": "a:1", "topic": "u", "kafka.linger.ms": "5"}, streaming=True)
    shape = row_shape(StructType([StructField("value", StringType())]), "u")
    for batch in range(3):
        KafkaliteStreamWriter(given, shape, lambda _: topic).commit([], batch)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "kafka.linger.ms tunes Kafka's Java client and has no effect here"
    ]


def test_names_that_no_topic_can_have_and_internal_topics(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    monkeypatch.setattr(
        topic, "append", lambda tp, batch: ProducedPartition(tp.topic, tp.partition, int(refused), NO_OFFSET)
    )
    with pytest.raises(WriteFailed, match=r"INVALID_TOPIC_EXCEPTION, u-0.*only brokers write to internal topics"):
        write(topic, [{"value": "v"}], topic="u")
    # a request could not even name them: it would be tried until request.timeout.ms is over
    for name in ("t" * 40_000, "Übersicht"):
        with pytest.raises(BadRow, match=r"'.{9,249}' is no name of a topic"):
            write(topic, [{"value": "v", "topic": name}])
    assert "metadata" not in topic.calls[topic.calls.index("produce_many") :]
    named = TopicMetadata("a b", int(refused), NO_TOPIC_ID, ())
    monkeypatch.setattr(topic, "metadata", lambda topics, **_: Metadata("cluster", BrokerId(1), (), (named,)))
    with pytest.raises(BadRow, match=r"'a b' is no name of a topic: 1 to 249 letters, digits, dots, _ and -"):
        write(topic, [{"value": "v", "topic": "a b"}])


def with_largest_batch(fake: FakeLog, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics' max.message.bytes."""
    append = fake.append

    def checked(tp: TopicPartition, batch: bytes) -> ProducedPartition:
        if len(batch) > most:
            return ProducedPartition(tp.topic, tp.partition, int(ErrorCode.MESSAGE_TOO_LARGE), NO_OFFSET)
        return append(tp, batch)

    monkeypatch.setattr(fake, "append", checked)


@pytest.mark.parametrize("most", [250, 1000, 8000])
def test_batches_are_cut_until_the_topic_takes_them(topic, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """max.message.bytes may be below kafka.batch.size, whose default is larger than that of Kafka's producer."""
    with_largest_batch(topic, most, monkeypatch)
    rows: list[dict[str, Any]] = [
        {"partition": n % 3, "key": None if n % 5 else b"%d" % n, "value": f"{n}" + "v" * (n % 100), "headers": None}
        for n in range(600)
    ]
    rows[7]["headers"] = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    message = write(topic, rows, 4, topic="t", **{"kafka.buffer.memory": "20000"})
    assert message.rows == 600
    for partition in range(3):
        mine = rows[partition::3]
        found = topic.records("t", partition)
        assert [(r.key, r.value) for r in found] == [(row["key"], row["value"].encode()) for row in mine]
        assert [r.offset for r in found] == list(range(200))
    assert topic.records("t", 1)[2].headers == (("h", b"1"), ("h", None))
    assert sorted(message.offsets) == [("t", n, 0, 200) for n in range(3)]


def test_a_small_partition_of_the_round_has_its_batch_once(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    write(topic, [{"partition": n, "value": "before"} for n in (0, 1, 2)], topic="t")
    # one has forgotten the producer: that needs another remedy
    topic.partitions[TopicPartition("t", 2)].sequences.clear()
    with_largest_batch(topic, 300, monkeypatch)
    rows: list[dict[str, Any]] = [{"partition": n % 3 if n < 6 else 1, "value": f"{n}" + "v" * 50} for n in range(30)]
    assert write(topic, rows, topic="t").rows == 30
    for partition in range(3):
        expected = [row["value"].encode() for row in rows if row["partition"] == partition]
        assert values(topic, "t", partition) == [b"before", *expected]


def test_what_a_topic_takes_is_learnt(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every batch of a long task would travel in vain first."""
    with_largest_batch(topic, 1000, monkeypatch)
    rows = [{"value": "v" * 80} for _ in range(2000)]
    write(topic, rows, 20, topic="u", **{"kafka.buffer.memory": "10000"})
    log = topic.partitions[TopicPartition("u", 0)]
    assert len(values(topic, "u", 0)) == 2000
    assert topic.calls.count("produce_many") < 1.2 * len(log.batches)


def test_one_row_that_is_too_large_is_refused_behind_those_that_fit(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    with_largest_batch(topic, 1000, monkeypatch)
    rows = [{"value": "a"}, {"value": "b"}, {"value": "x" * 2000}, {"value": "c"}]
    with pytest.raises(WriteFailed, match=r"MESSAGE_TOO_LARGE, u-0.*one row has 2070 bytes.*max\.message\.bytes"):
        write(topic, rows, topic="u")
    assert values(topic, "u", 0) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("fields", "topic_option", "says"),
    [
        ([("key", StringType())], "t", "no column value"),
        ([("value", LongType())], "t", "must be string or binary to be written, it is bigint"),
        ([("value", StringType())], None, "no topic to write to"),
        ([("value", StringType()), ("partition", LongType())], "t", "must be int"),
        ([("value", StringType()), ("VALUE", StringType())], "t", "two columns"),
    ],
)
def test_schemas_that_cannot_be_written(fields, topic_option, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        row_shape(StructType([StructField(name, kind) for name, kind in fields]), topic_option)


def test_a_refusal_on_the_way_stops_the_task_before_its_end(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """One buffer is sent while the next is collected; the client is never used by two threads at a time."""
    busy, threads = threading.Lock(), set()

    def produce(batches, **_):
        assert busy.acquire(blocking=False)
        threads.add(threading.current_thread().name)
        busy.release()
        if len(topic.calls) > 6:
            raise api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return FakeLog.produce_many(topic, batches)

    monkeypatch.setattr(topic, "produce_many", produce)
    rows = [{"value": "v" * 100} for _ in range(1000)]
    with pytest.raises(WriteFailed, match="TOPIC_AUTHORIZATION_FAILED"):
        write(topic, rows, 100, topic="u", **{"kafka.buffer.memory": "1000"})
    assert 10 <= len(values(topic, "u", 0)) < 200
    assert {name.rpartition("_")[0] for name in threads} == {"kafkalite-send"}


def test_large_rows_of_older_sparks_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BYTES_TOGETHER", 10_000)
    shape = row_shape(StructType([StructField("value", StringType()), StructField("key", BinaryType())]), "t")
    made = [batch.num_rows for batch in batches_of([Row(value="v" * 900, key=None)] * 100, shape)]
    assert sum(made) == 100 and max(made) < 13


def test_rows_of_older_sparks_make_the_same_batches() -> None:
    names = ["other", "key", "value", "partition", "headers"]
    schema = StructType([StructField(n, TYPES[n][0]) for n in names])
    shape = row_shape(schema, "t")
    rows = [
        Row(1, b"k", "v", 2, [Row(key="h", value=b"x"), Row(key="n", value=None)]),
        Row(2, None, None, None, None),
    ]
    (batch,) = batches_of(iter(rows), shape)
    assert batch.slice(0, 1).to_pylist() == [
        {"_0": None, "_1": b"k", "_2": "v", "_3": 2, "_4": [{"key": "h", "value": b"x"}, {"key": "n", "value": None}]}
    ]
    assert batch.slice(1, 1).to_pylist() == [dict.fromkeys(["_0", "_1", "_2", "_3", "_4"])]
    (nulls,) = batches_of([Row(0, None, None, None, None)], shape)
    assert [str(t) for t in nulls.schema.types] == [
        "null", "binary", "binary", "int32", str(pa.list_(HEADER_ARROW)),
    ]  # fmt: skip
    assert [b.num_rows for b in batches_of([Row(0, b"", "", 0, None)] * 25_000, shape)] == [10_000, 10_000, 5_000]


def test_overwrite_is_refused() -> None:
    source = KafkaliteDataSource({"kafka.bootstrap.servers": "a:1", "topic": "t"})
    with pytest.raises(OptionError, match="cannot be overwritten"):
        source.writer(StructType([StructField("value", StringType())]), overwrite=True)


def test_the_source_s_schema_is_spark_s() -> None:
    ddl = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    )
    assert KafkaliteDataSource({}).schema().simpleString() == ddl + ">"
    with_headers = KafkaliteDataSource({"includeHeaders": "true"}).schema().simpleString()
    assert with_headers == ddl + ",headers:array<struct<key:string,value:binary>>>"
