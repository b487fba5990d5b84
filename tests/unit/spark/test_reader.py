"""The batch reader as plain classes over an in-memory log: plans, filters, losses, faults."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import datasource as spark

from kafkalite.client.results import Metadata
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import NO_TOPIC_ID, BrokerId
from kafkalite.model import TopicPartition as Tp
from kafkalite.partition_values import TopicMetadata
from pyspark_kafkalite.clients import Unreachable
from pyspark_kafkalite.cluster import DataLoss
from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.fetching import RangeReader, ReadFailed
from pyspark_kafkalite.offsets import OffsetRange
from pyspark_kafkalite.option_parsing import read_options
from pyspark_kafkalite.options import FetchOptions, OptionError
from pyspark_kafkalite.reader import KafkaliteReader, _PushFilters
from tests.spark.fake_log import topic_id

COLUMNS = columns_of(spark_schema(include_headers=False))


def reader(fake, /, **options: str) -> KafkaliteReader:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "fetchOffset.retryIntervalMs": "0"} | options
    return KafkaliteReader(read_options(given, streaming=False), COLUMNS, connect=lambda _: fake)


def offsets_read(source: KafkaliteReader) -> list[tuple[int, int]]:
    batches = [batch for partition in source.partitions() for batch in source.read(partition)]
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def planned(source: KafkaliteReader) -> list[tuple[int, int, int]]:
    return [(p.range.partition, p.range.start, p.range.end) for p in source.partitions()]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the Spark versions that keep the plan of a filter to the scan that has it."""
    monkeypatch.setattr(_PushFilters, "keeps_plans_apart", True)


@pytest.fixture
def topic(fake):
    """Two partitions, ten records each in batches of three and less; record n is from second n."""
    fake.add_topic("t", 2)
    for partition in (0, 1):
        for first in range(0, 10, 3):
            for_batch = range(first, min(first + 3, 10))
            fake.put("t", partition, *[(None, b"%d" % n) for n in for_batch], ts=1000 * first)
    return fake


def test_everything_once(topic) -> None:
    assert offsets_read(reader(topic)) == [(p, n) for p in (0, 1) for n in range(10)]


def test_offsets_cut_batches_in_the_middle(topic) -> None:
    source = reader(topic, startingOffsets='{"t":{"0":4,"1":-2}}', endingOffsets='{"t":{"0":5,"1":2}}')
    assert offsets_read(source) == [(0, 4), (1, 0), (1, 1)]


def test_the_hints_make_more_tasks_and_the_same_rows(topic) -> None:
    source = reader(topic, minPartitions="5", maxRecordsPerPartition="4")
    assert len(source.partitions()) == 6
    assert offsets_read(source) == [(p, n) for p in (0, 1) for n in range(10)]


def test_timestamps(topic) -> None:
    source = reader(topic, startingTimestamp="3000", endingOffsetsByTimestamp='{"t":{"0":9000,"1":99000}}')
    assert planned(source) == [(0, 3, 9), (1, 3, 10)]
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy"):
        reader(topic, startingTimestamp="99000").partitions()
    late = reader(topic, startingTimestamp="99000", startingOffsetsByTimestampStrategy="latest")
    assert planned(late) == []


def test_filters_narrow_the_plan(topic, apart) -> None:
    source = reader(topic)
    filters = [
        spark.EqualTo(("partition",), 1),
        spark.GreaterThanOrEqual(("offset",), 3),
        spark.LessThan(("offset",), 8),
    ]
    assert list(source.pushFilters(filters)) == filters
    assert planned(source) == [(1, 3, 8)]


def test_filters_narrow_nothing_where_spark_would_use_the_plan_for_other_queries(topic, monkeypatch) -> None:
    monkeypatch.setattr(_PushFilters, "keeps_plans_apart", False)
    source = reader(topic)
    assert list(source.pushFilters([spark.EqualTo(("partition",), 1)])) == [spark.EqualTo(("partition",), 1)]
    assert planned(source) == planned(reader(topic))
    asked = reader(topic, filterPushdown="always")
    asked.pushFilters([spark.EqualTo(("partition",), 1)])
    assert planned(asked) == [(1, 0, 10)]


def test_filters_narrow_nothing_if_nobody_wants_it(topic, apart) -> None:
    source = reader(topic, filterPushdown="never")
    source.pushFilters([spark.EqualTo(("partition",), 1)])
    assert planned(source) == planned(reader(topic))


def test_a_timestamp_filter_seeks(topic, apart) -> None:
    import datetime

    source = reader(topic)
    source.pushFilters([spark.GreaterThan(("timestamp",), datetime.datetime(1970, 1, 1, 0, 0, 3, tzinfo=datetime.UTC))])
    assert planned(source) == [(0, 6, 10), (1, 6, 10)]


def test_spark_takes_the_reader_with_pushdown_off_and_the_reader_travels(topic, apart) -> None:
    """What Spark checks before it refuses a reader, see pyspark.sql.worker.plan_data_source_read."""
    assert reader(topic).pushFilters.__func__ is spark.DataSourceReader.pushFilters
    source = KafkaliteReader(
        read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, streaming=False), COLUMNS
    )
    source.pushFilters([spark.EqualTo(("partition",), 1)])
    again = pickle.loads(pickle.dumps(source))
    assert again._narrowing == source._narrowing


def test_the_empty_plan_reads_nothing(topic) -> None:
    assert list(reader(topic).read(spark.InputPartition(None))) == []


def test_unknown_topics_and_partial_offsets_are_refused(topic) -> None:
    with pytest.raises(OptionError, match="nope: no such topic"):
        reader(topic, subscribe="t,nope").partitions()
    with pytest.raises(OptionError, match="t-7: no such"):
        KafkaliteReader(
            read_options({"kafka.bootstrap.servers": "a:1", "assign": '{"t":[7]}'}, streaming=False),
            COLUMNS,
            lambda _: topic,
        ).partitions()
    with pytest.raises(OptionError, match="t-1 missing"):
        reader(topic, startingOffsets='{"t":{"0":4}}').partitions()
    with pytest.raises(OptionError, match="t-2 not subscribed"):
        reader(topic, startingOffsets='{"t":{"0":4,"1":1,"2":0}}').partitions()
    with pytest.raises(OptionError, match="the start is beyond the end for t-0: t-0 would be read from offset 4 to 3"):
        reader(topic, startingOffsets='{"t":{"0":4,"1":1}}', endingOffsets='{"t":{"0":3,"1":5}}').partitions()
    with pytest.raises(OptionError, match="the start is beyond the end"):
        reader(topic, startingOffsets='{"t":{"0":4,"1":1}}', endingTimestamp="0").partitions()


@pytest.mark.parametrize("named", [{"subscribe": "t"}, {"assign": '{"t":[0,1]}'}])
def test_a_node_that_has_not_heard_of_a_topic_yet_is_asked_again(topic, named: dict[str, str]) -> None:
    """One that has just started, or the topic is new. A query that runs already was not ended by that, one that began was."""
    ids = dict(topic.topic_ids)
    topic.topic_ids.clear()

    def before(name: str) -> None:
        if topic.calls.count("metadata") == 3:
            topic.topic_ids.update(ids)

    topic.before = before
    options = {"kafka.bootstrap.servers": "a:1", "fetchOffset.retryIntervalMs": "0"} | named
    source = KafkaliteReader(read_options(options, streaming=False), COLUMNS, lambda _: topic)
    assert len(offsets_read(source)) == 20


def test_a_pattern_takes_what_matches(topic) -> None:
    topic.add_topic("tt", 1)
    topic.put("tt", 0, (None, b"x"))
    source = KafkaliteReader(
        read_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "t+"}, streaming=False),
        COLUMNS,
        lambda _: topic,
    )
    assert {p.range.topic for p in source.partitions()} == {"t", "tt"}


def test_lost_offsets_fail_the_plan_or_are_left_out(topic) -> None:
    topic.partitions[Tp("t", 0)].log_start_offset = 5
    given = '{"t":{"0":2,"1":0}}'
    with pytest.raises(DataLoss, match=r"t-0 has offsets 5 to 10, not 2.*failOnDataLoss=false"):
        reader(topic, startingOffsets=given).partitions()
    assert planned(reader(topic, startingOffsets=given, failOnDataLoss="false")) == [(0, 5, 10), (1, 0, 10)]
    assert planned(reader(topic, endingOffsets='{"t":{"0":99,"1":1}}', failOnDataLoss="false")) == [
        (0, 5, 10),
        (1, 0, 1),
    ]


def test_offsets_beyond_the_end_are_not_called_deleted(topic) -> None:
    with pytest.raises(
        DataLoss, match=r"t-0 has offsets 0 to 10, not 99\. Nothing was written there yet.* transactions"
    ):
        reader(topic, endingOffsets='{"t":{"0":99,"1":1}}').partitions()


def test_a_loss_between_plan_and_read(topic) -> None:
    strict, lenient = reader(topic), reader(topic, failOnDataLoss="false")
    work = strict.partitions()[0]
    topic.partitions[Tp("t", 0)].log_start_offset = 5
    with pytest.raises(DataLoss, match="t-0: offsets 0 to 5 cannot be read"):
        list(strict.read(work))
    rows = [row["offset"] for batch in lenient.read(work) for row in batch.to_pylist()]
    assert rows == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("records", [0, 1, 10, 20])
def test_a_topic_made_anew_is_told_apart(topic, records: int) -> None:
    """However much is in it: its offsets may be those that were planned, its records are others."""
    strict, lenient = reader(topic), reader(topic, failOnDataLoss="false")
    work = strict.partitions()[0]
    topic.add_topic("t", 2)
    topic.topic_ids["t"] = "another"
    for _ in range(records):
        topic.put("t", 0, (None, b"x"))
    with pytest.raises(DataLoss, match=r"t-0: offsets \d+ to 10 .*deleted and created again .*failOnDataLoss=false"):
        list(strict.read(work))
    assert list(lenient.read(work)) == []  # or a batch that is in a checkpoint could never be replayed


def test_a_topic_that_is_gone_when_it_is_to_be_read(topic) -> None:
    strict, lenient = reader(topic), reader(topic, failOnDataLoss="false")
    work = strict.partitions()[0]

    def before(name: str) -> None:
        if name == "fetch_raw":
            raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    topic.before = before
    del topic.topic_ids["t"]
    with pytest.raises(DataLoss, match=r"t-0: offsets 0 to 10 cannot be read, the topic does not exist any more"):
        list(strict.read(work))
    assert list(lenient.read(work)) == []


@pytest.mark.parametrize("name", ["fetch_raw", "list_offsets", "metadata"])
def test_a_leader_that_is_looked_for_is_waited_for_and_a_refusal_is_told_with_its_place(topic, name: str) -> None:
    """Whatever is asked: one that went away between two questions of the same task included."""
    failures = [api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionError("gone")] * 3
    wanted = OffsetRange("t", 0, 0, 10, topic_id("t"))
    topic.partitions[Tp("t", 0)].log_start_offset = 2

    def before(asked: str) -> None:
        if asked == name and failures:
            raise failures.pop(0)

    topic.before = before
    rows = list(range_reader(topic, fail_on_data_loss=False).read(wanted, COLUMNS))
    assert sum(batch.num_rows for batch in rows) == 8 and not failures
    failures[:] = [api_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(ReadFailed, match="t-0 at offset 0: TOPIC_AUTHORIZATION_FAILED"):
        list(range_reader(topic, fail_on_data_loss=False).read(wanted, COLUMNS))


def range_reader(fake, **options) -> RangeReader:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def clock() -> float:
        now[0] += 0.01
        return now[0]

    return RangeReader(fake, FetchOptions(**options), clock, sleep)


def test_an_end_that_a_new_leader_does_not_know_yet_is_waited_for(topic) -> None:
    log = topic.partitions[Tp("t", 0)]
    kept, log.batches, log.log_end_offset = list(log.batches), log.batches[:1], 3
    asked = []

    def before(name: str) -> None:
        asked.append(name)
        if len(asked) == 20:
            log.batches, log.log_end_offset = kept, 10

    topic.before = before
    rows = list(range_reader(topic).read(OffsetRange("t", 0, 0, 10), COLUMNS))
    assert sum(batch.num_rows for batch in rows) == 10


def test_patience_ends_with_the_offset_and_the_reason(topic) -> None:
    log = topic.partitions[Tp("t", 0)]
    log.batches, log.log_end_offset = log.batches[:1], 3
    with pytest.raises(ReadFailed, match=r"t-0: no record arrived at offset 3 .*range ends at 10.*pollTimeoutMs"):
        list(range_reader(topic, poll_timeout_ms=1000).read(OffsetRange("t", 0, 0, 10), COLUMNS))
    with pytest.raises(ReadFailed, match="the log ends at 3"):
        list(range_reader(topic, poll_timeout_ms=1000).read(OffsetRange("t", 0, 5, 10), COLUMNS))


@pytest.mark.parametrize(("start", "found"), [(0, [0, 1, 2]), (3, []), (5, [])])
def test_a_log_that_was_cut_does_not_hold_up_a_stream_for_ever(topic, start: int, found: list[int]) -> None:
    """After an unclean election a batch that the checkpoint has may be beyond the log: with failOnDataLoss=false it was tried again
    and again."""
    log = topic.partitions[Tp("t", 0)]
    log.batches, log.log_end_offset = log.batches[:1], 3
    lenient = range_reader(topic, poll_timeout_ms=1000, fail_on_data_loss=False)
    rows = list(lenient.read(OffsetRange("t", 0, start, 10), COLUMNS))
    assert [row["offset"] for batch in rows for row in batch.to_pylist()] == found
    assert len(topic.calls) > 10  # not before its patience is over: a new leader may learn of the records


def test_offset_questions_are_asked_again_and_refusals_are_not(topic) -> None:
    failures = [api_error(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionError("gone"), None]

    def before(name: str) -> None:
        if name == "list_offsets" and failures and (failure := failures.pop(0)) is not None:
            raise failure

    topic.before = before
    assert planned(reader(topic)) == [(0, 0, 10), (1, 0, 10)]
    failures[:] = [api_error(ErrorCode.UNSUPPORTED_VERSION)]
    with pytest.raises(type(api_error(ErrorCode.UNSUPPORTED_VERSION))):
        reader(topic).partitions()


def test_a_topic_that_may_not_be_seen_is_not_called_missing(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = TopicMetadata("t", int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), NO_TOPIC_ID, ())
    monkeypatch.setattr(topic, "metadata", lambda topics: Metadata("cluster", BrokerId(1), (), (refused,)))
    with pytest.raises(ApiError, match="topic t: TOPIC_AUTHORIZATION_FAILED"):
        reader(topic).partitions()


def test_a_cluster_that_nobody_reaches_is_named_with_what_may_be_wrong(topic) -> None:
    """The nodes' own port in place of the Kafka listener, or plain text to a node that wants TLS, are the usual ways."""

    def before(name: str) -> None:
        raise ConnectionError("the peer closed the connection")

    topic.before = before
    says = r"a:1 .*the peer closed the connection.*kafka\.bootstrap\.servers.*Kafka listeners.*security\.protocol"
    with pytest.raises(Unreachable, match=says):
        reader(topic).partitions()
    assert len(topic.calls) == 4


def test_small_fetches_read_the_same(topic) -> None:
    source = reader(topic, **{"kafka.max.partition.fetch.bytes": "1"})
    assert offsets_read(source) == [(p, n) for p in (0, 1) for n in range(10)]


def test_schemas_that_users_give() -> None:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    some = columns_of(
        StructType([StructField("OFFSET", LongType(), nullable=False), StructField("topic", StringType())])
    )
    assert [(c.field, c.name, c.nullable) for c in some] == [("offset", "OFFSET", False), ("topic", "topic", True)]
    with pytest.raises(OptionError, match="the columns are key, value"):
        columns_of(StructType([StructField("body", StringType())]))
    with pytest.raises(OptionError, match="'offset' is bigint, the schema asks for int"):
        columns_of(StructType([StructField("offset", IntegerType())]))
