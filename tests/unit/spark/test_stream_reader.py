"""The streaming reader as a plain class over an in-memory log, called as Spark calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from kafkalite.client.results import Metadata
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.model import NO_TOPIC_ID, BrokerId
from kafkalite.model import TopicPartition as Tp
from kafkalite.partition_values import TopicMetadata
from pyspark_kafkalite.cluster import DataLoss
from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.option_parsing import read_options
from pyspark_kafkalite.options import OptionError
from pyspark_kafkalite.stream_reader import KafkaliteStreamReader

COLUMNS = columns_of(spark_schema(include_headers=False))


class Query:
    """What Spark does with a reader: plan a batch, read it, remember its end."""

    def __init__(self, fake, checkpoint: dict[str, Any] | None = None, /, **options: str) -> None:
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "fetchOffset.retryIntervalMs": "0"} | options
        self.now = 0.0
        self.reader = KafkaliteStreamReader(
            read_options(given, streaming=True), COLUMNS, lambda _: fake, lambda: self.now
        )
        self.limit = self.reader.getDefaultReadLimit()
        self.start = self.reader.initialOffset() if checkpoint is None else checkpoint

    def batch(self) -> list[tuple[int, int]]:
        """The (partition, offset)s of one batch, which there is."""
        rows = self.next()
        assert rows is not None
        return rows

    def next(self) -> list[tuple[int, int]] | None:
        """The (partition, offset)s of one batch; None if there is none."""
        end = json.loads(json.dumps(self.reader.latestOffset(self.start, self.limit)))
        if end == self.start:
            return None
        rows = self.read(end)
        self.start = end
        return rows

    def read(self, end: dict[str, Any]) -> list[tuple[int, int]]:
        batches = [b for part in self.reader.partitions(self.start, end) for b in self.reader.read(part)]
        return [(row["partition"], row["offset"]) for b in batches for row in b.to_pylist()]


@pytest.fixture
def topic(fake):
    fake.add_topic("t", 2)
    return fake


def grow(fake, partition: int, rows: int) -> None:
    fake.put("t", partition, *[(None, b"v")] * rows)


def test_a_stream_begins_at_the_end_and_follows(topic) -> None:
    grow(topic, 0, 5)
    query = Query(topic)
    assert query.batch() == []  # nothing yet, but where it began is in the checkpoint now
    assert query.next() is None
    grow(topic, 0, 2)
    grow(topic, 1, 1)
    assert query.batch() == [(0, 5), (0, 6), (1, 0)]
    assert query.next() is None
    assert query.reader.reportLatestOffset() == {"t": {"0": 7, "1": 1}}


def test_a_replayed_first_batch_begins_where_the_query_began(topic) -> None:
    grow(topic, 0, 5)
    first = Query(topic)
    grow(topic, 0, 3)
    end = first.reader.latestOffset(first.start, ReadAllAvailable())
    grow(topic, 0, 10)
    again = Query(topic)  # Spark asks the new process for the initial offset
    assert again.read(end) == first.read(end) == [(0, 5), (0, 6), (0, 7)]


def test_a_position_without_topic_ids_is_gone_on_from(topic) -> None:
    """As in the checkpoint of a query that read with Spark's own Kafka source, whose positions look the same."""
    grow(topic, 0, 5)
    query = Query(topic, {"t": {"0": 3, "1": 0}})
    grow(topic, 1, 1)
    assert query.batch() == [(0, 3), (0, 4), (1, 0)]
    grow(topic, 0, 1)
    assert query.batch() == [(0, 5)]


def test_a_batch_that_spark_s_own_source_has_planned_has_new_partitions_too(topic) -> None:
    """Its positions do not say where a partition begins that was new in the batch: at its first record."""
    grow(topic, 0, 5)
    grow(topic, 1, 4)
    strict = Query(topic, {"t": {"0": 3}})
    lenient = Query(topic, {"t": {"0": 3}}, failOnDataLoss="false")
    assert strict.read({"t": {"0": 5, "1": 4}}) == [(0, 3), (0, 4), *((1, n) for n in range(4))]
    topic.partitions[Tp("t", 1)].log_start_offset = 2
    with pytest.raises(DataLoss, match="new partitions t-1 do not start at offset 0"):
        strict.read({"t": {"0": 5, "1": 4}})
    assert lenient.read({"t": {"0": 5, "1": 4}}) == [(0, 3), (0, 4), (1, 2), (1, 3)]


def test_the_first_batch_of_spark_s_own_source_is_not_passed_over(topic) -> None:
    """Only that source knows where it began; the batch was taken for an empty one."""
    grow(topic, 0, 5)
    query = Query(topic)
    with pytest.raises(
        KafkaliteError, match="the first batch of this checkpoint was planned by Spark's own Kafka source"
    ):
        query.read({"t": {"0": 5, "1": 0}})


def test_a_limit_in_bytes_goes_by_what_records_take_in_the_log(topic) -> None:
    """Partition 0 has large records, partition 1 small ones: each batch takes the same share of the bytes of both."""
    for _ in range(20):
        topic.put("t", 0, (None, b"x" * 2_000))
        topic.put("t", 1, (None, b"x" * 20))
    query = Query(topic, startingOffsets="earliest", maxBytesPerTrigger="11000")
    first = query.batch()
    assert [sum(partition == p for partition, _ in first) for p in (0, 1)] == [5, 5]
    rest = [row for batch in iter(query.next, None) for row in batch]
    assert sorted(first + rest) == [(p, n) for p in (0, 1) for n in range(20)]
    tiny = Query(topic, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert tiny.batch() == [(0, 0), (1, 0)]  # less than one record: one goes all the same


def test_both_limits_hold(topic) -> None:
    grow(topic, 0, 30)
    query = Query(topic, startingOffsets="earliest", maxBytesPerTrigger="1000000", maxOffsetsPerTrigger="7")
    assert len(query.batch()) == 7


def test_progress_is_committed_to_the_group_that_the_user_names(topic, caplog) -> None:
    grow(topic, 0, 3)
    query = Query(topic, **{"startingOffsets": "earliest", "kafkalite.group.id": "g"})
    assert len(query.batch()) == 3 and topic.committed == {}  # it is not done before Spark asks for the next
    assert query.next() is None and topic.committed == {"g": {Tp("t", 0): 3, Tp("t", 1): 0}}
    assert topic.calls.count("commit_offsets") == 1
    assert query.next() is None and topic.calls.count("commit_offsets") == 1
    grow(topic, 1, 2)
    query.batch()

    def away(name: str) -> None:
        if name == "commit_offsets":
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator")

    topic.before = away
    assert query.next() is None  # the query goes on
    assert "progress could not be committed to group g" in caplog.text
    topic.before = lambda name: None
    assert query.next() is None and topic.committed["g"][Tp("t", 1)] == 2


def test_limits(topic) -> None:
    grow(topic, 0, 30)
    grow(topic, 1, 10)
    query = Query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert query.limit == ReadMaxRows(20)
    assert query.batch() == [*((0, n) for n in range(15)), *((1, n) for n in range(5))]
    query.limit = ReadAllAvailable()
    assert len(query.batch()) == 20


def test_too_few_offsets_wait_but_not_for_ever(topic) -> None:
    query = Query(topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert query.limit == ReadMinRows(10)
    assert query.batch() == []
    grow(topic, 0, 4)
    assert query.next() is None
    query.now = 61
    assert len(query.batch()) == 4
    grow(topic, 0, 10)
    assert len(query.batch()) == 10


def test_available_now_ends_though_the_log_grows(topic) -> None:
    grow(topic, 0, 25)
    query = Query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="8")
    query.reader.prepareForTriggerAvailableNow()
    read = []
    for _ in range(10):
        rows = query.next()
        if rows is None:
            break
        read += rows
        grow(topic, 0, 5)
        topic.partitions.setdefault(Tp("t", 2), type(topic.partitions[Tp("t", 0)])())
    assert read == [(0, n) for n in range(25)]
    following = Query(topic, query.start)
    assert following.batch()[:1] == [(0, 25)]


def test_new_partitions_are_read_from_their_first_record(topic) -> None:
    query = Query(topic)
    query.batch()
    topic.partitions[Tp("t", 2)] = type(topic.partitions[Tp("t", 0)])()
    grow(topic, 2, 3)
    grow(topic, 0, 1)
    before = dict(query.start)
    assert query.batch() == [(0, 0), (2, 0), (2, 1), (2, 2)]
    end, query.start = query.start, before
    grow(topic, 2, 9)
    assert query.read(end) == [(0, 0), (2, 0), (2, 1), (2, 2)]  # the replay


def test_new_partitions_that_lost_their_beginning(topic) -> None:
    query, lenient = Query(topic), Query(topic, failOnDataLoss="false")
    query.batch(), lenient.batch()
    topic.partitions[Tp("t", 2)] = type(topic.partitions[Tp("t", 0)])()
    grow(topic, 2, 3)
    topic.partitions[Tp("t", 2)].log_start_offset = 2
    with pytest.raises(DataLoss, match="t-2 do not start at offset 0"):
        query.batch()
    assert lenient.batch() == [(2, 2)]


def test_partitions_that_are_gone(topic) -> None:
    strict, lenient = (
        Query(topic, startingOffsets="earliest"),
        Query(topic, startingOffsets="earliest", failOnDataLoss="false"),
    )
    strict.batch(), lenient.batch()
    del topic.partitions[Tp("t", 1)]
    grow(topic, 0, 1)
    with pytest.raises(
        DataLoss,
        match=r"t-1: this query has read them before, but they do not exist or are not subscribed any more.*failOnDataLoss",
    ):
        strict.batch()
    assert lenient.batch() == [(0, 0)]
    assert lenient.next() is None


def test_rights_that_were_taken_away_are_no_lost_topic(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or failOnDataLoss=false would leave it out without a word."""
    query = Query(topic, failOnDataLoss="false")
    grow(topic, 1, 1)
    query.batch()
    refused = TopicMetadata("t", int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), NO_TOPIC_ID, ())
    monkeypatch.setattr(topic, "metadata", lambda topics: Metadata("cluster", BrokerId(1), (), (refused,)))
    with pytest.raises(ApiError, match="topic t: TOPIC_AUTHORIZATION_FAILED"):
        query.batch()


def test_a_node_that_knows_no_topics_for_a_moment_is_asked_again(topic) -> None:
    query = Query(topic)
    query.batch()
    partitions, ids = dict(topic.partitions), dict(topic.topic_ids)
    topic.topic_ids.clear()

    def before(name: str) -> None:
        if topic.calls[-2:] == ["metadata", "metadata"]:
            topic.topic_ids.update(ids)

    topic.before = before
    assert query.next() is None
    assert topic.partitions == partitions


def test_a_topic_made_anew(topic) -> None:
    grow(topic, 0, 5)
    strict, lenient = Query(topic), Query(topic, failOnDataLoss="false")
    strict.batch(), lenient.batch()
    topic.add_topic("t", 2)
    topic.topic_ids["t"] = "another"
    grow(topic, 0, 9)
    with pytest.raises(DataLoss, match="topic t was deleted and created again"):
        strict.batch()
    assert lenient.batch() == [(0, n) for n in range(9)]
    assert lenient.next() is None


def test_an_end_below_what_was_read_is_a_loss_only_if_it_stays_so(topic) -> None:
    grow(topic, 0, 5)
    strict, lenient = Query(topic), Query(topic, failOnDataLoss="false")
    strict.batch(), lenient.batch()
    log = topic.partitions[Tp("t", 0)]
    log.batches.clear()
    log.log_end_offset = 0
    grow(topic, 0, 3)
    assert strict.next() is None and lenient.next() is None
    strict.now = lenient.now = 121
    with pytest.raises(DataLoss, match="t-0 ends at offset 3, but was read up to 5"):
        strict.batch()
    assert lenient.batch() == []
    grow(topic, 0, 1)
    assert lenient.batch() == [(0, 3)]


def test_an_open_transaction_behind_the_position_is_no_loss(topic) -> None:
    """A checkpoint of Spark's own source, or one with another isolation level: it has read beyond what is decided now."""
    grow(topic, 0, 8)
    log = topic.partitions[Tp("t", 0)]
    log.undecided = 3
    position = {"t": {"0": 8, "1": 0}}
    strict, lenient = Query(topic, position), Query(topic, position, failOnDataLoss="false")
    for query in (strict, lenient):
        assert query.next() in (None, [])
        query.now = 121
        assert query.next() is None and query.start["t"]["0"] == 8
    log.undecided = None
    grow(topic, 0, 1)
    assert strict.batch() == lenient.batch() == [(0, 8)]  # and not once more what was read already


def test_a_stream_may_begin_at_an_offset_that_is_not_decided_yet(topic) -> None:
    """The endOffset of a query with Spark's own source, which docs/spark.md says to begin at, reads records of open transactions, too."""
    grow(topic, 0, 8)
    log = topic.partitions[Tp("t", 0)]
    log.undecided = 3
    given = {"startingOffsets": '{"t":{"0":6,"1":0}}'}
    queries = [Query(topic, **given), Query(topic, failOnDataLoss="false", **given)]
    assert [query.next() for query in queries] == [[], []]
    log.undecided = None
    assert [query.batch() for query in queries] == [[(0, 6), (0, 7)]] * 2
    with pytest.raises(DataLoss, match="t-0 has offsets 0 to 8, not 9"):
        Query(topic, startingOffsets='{"t":{"0":9,"1":0}}')


def test_available_now_does_not_end_without_a_word_behind_what_was_read(topic) -> None:
    """Each run has a clock of its own: the loss would never show, and records of the new log up to the old position be passed over."""
    grow(topic, 0, 3)
    position = {"t": {"0": 5, "1": 0}}  # of Spark's own source: without the id of the topic
    strict, lenient = Query(topic, position), Query(topic, position, failOnDataLoss="false")
    for query in (strict, lenient):
        query.reader.prepareForTriggerAvailableNow()

        def before(name: str, query: Query = query) -> None:
            query.now += 50.0

        topic.before = before
        if query is strict:
            with pytest.raises(DataLoss, match="t-0 ends at offset 3, but was read up to 5"):
                query.next()
    assert lenient.batch() == []
    grow(topic, 0, 1)
    assert Query(topic, lenient.start).batch() == [(0, 3)]


def test_available_now_waits_for_a_leader_that_is_behind(topic) -> None:
    grow(topic, 0, 3)
    query = Query(topic, {"t": {"0": 5, "1": 0}})
    query.reader.prepareForTriggerAvailableNow()

    def before(name: str) -> None:
        if topic.calls.count("list_offsets") == 3:
            topic.before = lambda name: None
            grow(topic, 0, 4)

    topic.before = before
    assert query.batch() == [(0, 5), (0, 6)]


def test_older_spark_asks_without_a_start(topic) -> None:
    """4.0 and 4.1: latestOffset() without arguments; the start is the end that was planned last."""
    grow(topic, 0, 5)
    query = Query(topic, startingOffsets="earliest")
    end = query.reader.latestOffset()
    assert query.read(end) == [(0, n) for n in range(5)]
    assert query.reader.latestOffset() == end
    grow(topic, 0, 1)
    query.start, end = end, query.reader.latestOffset()
    assert query.read(end) == [(0, 5)]


def test_older_spark_has_no_limits_per_trigger(topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is not kept would be found out in production."""
    monkeypatch.setattr("pyspark_kafkalite.stream_reader.ReadMaxRows", None)
    with pytest.raises(OptionError, match=r"maxBytesPerTrigger needs Spark 4\.2"):
        Query(topic, maxBytesPerTrigger="1000")
    Query(topic)


def test_a_pattern_finds_new_topics(topic) -> None:
    query = Query.__new__(Query)
    options = read_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "t.*"}, streaming=True)
    query.reader = KafkaliteStreamReader(options, COLUMNS, lambda _: topic)
    query.limit, query.start = ReadAllAvailable(), query.reader.initialOffset()
    query.batch()
    topic.add_topic("tea", 1)
    topic.put("tea", 0, (None, b"x"))
    assert query.batch() == [(0, 0)]


def test_a_missing_topic_is_refused_at_the_start(topic) -> None:
    with pytest.raises(OptionError, match="x: no such topic"):
        Query(topic, subscribe="x")
