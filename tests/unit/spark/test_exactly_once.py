"""The exactly-once sink as plain classes over a log with transactions: attempts, the decision, repetition, accidents."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from kafkalite.client.transactions import Decided, GroupVersion
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension.messages.transactions import EndTxnGroupResponse, TransactionMember
from kafkalite.model import ProducerId, TopicPartition
from kafkalite.record.batch import parse_header
from kafkalite.record.reader import read_records
from kafkalite.rpc.answers import RpcTimeout
from pyspark_kafkalite.exactly_once import CommitFailed
from pyspark_kafkalite.option_parsing import write_options
from pyspark_kafkalite.options import OptionError
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.sending import WriteFailed
from pyspark_kafkalite.stream_writer import KafkaliteStreamWriter
from pyspark_kafkalite.writer import KafkaliteWriter
from tests.spark.fake_log import FakeLog

SCHEMA = StructType([StructField("value", StringType())])
QUERY = "query-1"


@dataclass
class TransactionalLog(FakeLog):
    """A log whose coordinator keeps what `kafkalite.coordinators.transactions.decisions` promises."""

    #: transactional id -> who has it open
    open: dict[str, TransactionMember] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    decided: dict[str, tuple[str, int]] = field(default_factory=dict)
    committed_producers: set[int] = field(default_factory=set)
    added: set[tuple[int, TopicPartition]] = field(default_factory=set)
    lose_answer: bool = False

    def _covers(self, version: GroupVersion) -> bool:
        owner, number = self.decided.get(version.group, ("", -1))
        return owner == version.owner and number >= version.version

    def begin_transaction(
        self, version: GroupVersion, member: str, *, transaction_timeout_ms: int, writer: str = ""
    ) -> Any:
        self._called("begin_transaction")
        if self._covers(version):
            return Decided(self.decided[version.group][1])
        name = f"{version.group}/{member}"
        if writer and name in self.open and self.writers[name] == writer:
            raise api_error(ErrorCode.INVALID_TXN_STATE)
        self.writers[name] = writer
        producer_id, epoch = self.init_producer_id()
        self.open[name] = TransactionMember(name, ProducerId(producer_id), epoch)
        return self.open[name]

    def add_partitions(self, member: TransactionMember, partitions: Any) -> None:
        self._called("add_partitions")
        if self.open.get(member.transactional_id) != member:
            raise api_error(ErrorCode.PRODUCER_FENCED, "fenced")
        self.added |= {(member.producer_id, tp) for tp in partitions}

    def append(self, tp: TopicPartition, batch: bytes) -> Any:
        header = parse_header(batch)
        if header.is_transactional:
            assert (header.producer_id, tp) in self.added, "written to a partition that is not in the transaction"
        return super().append(tp, batch)

    def commit_group(self, version: GroupVersion, members: Any, *, wait_ms: int = 0) -> EndTxnGroupResponse:
        self._called("commit_group")
        if was_decided := self._covers(version):
            self.abort_group(version, members)
        else:
            for member in members:
                if self.open.get(member.transactional_id) != member:
                    raise api_error(ErrorCode.PRODUCER_FENCED, member.transactional_id)
            self.decided[version.group] = (version.owner, version.version)
            self.committed_producers |= {member.producer_id for member in members}
            self.open = {k: m for k, m in self.open.items() if not k.startswith(f"{version.group}/")}
        if self.lose_answer:
            raise RpcTimeout("no answer")
        return EndTxnGroupResponse(0, was_decided, is_complete=True)

    def abort_group(self, version: GroupVersion, members: Any, *, timeout_ms: int | None = None) -> None:
        self._called("abort_group")
        for member in members:
            if self.open.get(member.transactional_id) == member:
                del self.open[member.transactional_id]

    def visible(self, topic: str = "t") -> list[str]:
        found = []
        for tp, log in sorted(self.partitions.items()):
            for batch in log.batches:
                header = parse_header(batch)
                if tp.topic == topic and (
                    not header.is_transactional or header.producer_id in self.committed_producers
                ):
                    found += [str(record.value or b"", "ascii") for record in read_records(batch)]
        return sorted(found)


@dataclass
class Context:
    """A TaskContext."""

    partition: int = 0
    attempt: int = 0
    batch: int | None = 0
    query: str | None = QUERY

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:
        value = {"sql.streaming.queryId": self.query, "streaming.sql.batchId": self.batch}[name]
        return None if value is None else str(value)


@pytest.fixture
def log() -> TransactionalLog:
    made = TransactionalLog()
    made.add_topic("t", 2)
    return made


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes this thread a task's."""

    def become(**of: Any) -> None:
        monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context(**of))

    return become


def streaming(log: TransactionalLog, **options: str) -> KafkaliteStreamWriter:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "deliveryGuarantee": "exactly-once"} | options
    parsed = write_options(given, streaming=True)
    return KafkaliteStreamWriter(parsed, row_shape(SCHEMA, parsed.topic), lambda _: log)


def rows(*values: str, then: Exception | None = None) -> Iterator[pa.RecordBatch]:
    for value in values:
        yield pa.RecordBatch.from_arrays([pa.array([value])], names=["value"])
    if then is not None:
        raise then


def through_pickle(message: Any) -> Any:
    """As Spark takes it from the task to the driver."""
    return pickle.loads(pickle.dumps(message))


@pytest.mark.checklist("F27")
def test_nothing_is_seen_before_the_commit_and_all_of_it_after(log, task) -> None:
    writer = streaming(log)
    messages = []
    for partition in (0, 1, 2):
        task(partition=partition)
        messages.append(through_pickle(writer.write(rows("a", "b") if partition < 2 else rows())))
    assert log.visible() == [] and [m.rows for m in messages] == [2, 2, 0]
    writer.commit(messages, 0)
    assert log.visible() == ["a", "a", "b", "b"]
    assert log.decided == {QUERY: (QUERY, 0)}


@pytest.mark.checklist("F27")
def test_a_batch_that_is_decided_is_not_written_again(log, task) -> None:
    task()
    writer = streaming(log)
    writer.commit([writer.write(rows("a"))], 0)
    again = writer.write(rows("a", "a"))
    assert again.rows == 0 and again.member is None
    writer.commit([again], 0)
    task(batch=1)
    writer.commit([writer.write(rows("b"))], 1)
    assert log.visible() == ["a", "b"]


@pytest.mark.checklist("F27")
def test_an_older_checkpoint_is_noticed(log, task) -> None:
    """Its batches were passed over without a word, whatever records they had."""
    writer = streaming(log)
    for number, value in enumerate("ab"):
        task(batch=number)
        writer.commit([writer.write(rows(value))], number)
    task(batch=0)
    with pytest.raises(WriteFailed, match=r"batch 0 of query-1: its checkpoint is older .* batch 1 is committed"):
        writer.write(rows("a", "c"))
    assert log.open == {} and log.visible() == ["a", "b"]


@pytest.mark.checklist("F27")
def test_the_winner_of_two_attempts_is_what_is_committed_whichever_began_later(log, task) -> None:
    writer = streaming(log)
    task(attempt=0)
    winner = writer.write(rows("a"))
    task(attempt=1)
    writer.write(rows("a"))  # the speculative twin: it ends too, and Spark lets the other one through
    writer.commit([winner], 0)
    assert log.visible() == ["a"] and log.open == {}


@pytest.mark.checklist("F27")
def test_a_task_that_fails_takes_its_rows_back(log, task) -> None:
    task()
    writer = streaming(log, **{"kafka.buffer.memory": "1"})
    with pytest.raises(ZeroDivisionError):
        writer.write(rows("a", "b", then=ZeroDivisionError()))
    assert log.open == {} and sum(len(p.batches) for p in log.partitions.values()) > 0
    task(attempt=1)
    writer.commit([writer.write(rows("a", "b"))], 0)
    assert log.visible() == ["a", "b"]


@pytest.mark.checklist("F27")
def test_after_a_lost_answer_an_abort_and_a_repetition_change_nothing(log, task) -> None:
    task()
    writer = streaming(log)
    message = writer.write(rows("a"))
    log.lose_answer = True
    with pytest.raises(CommitFailed, match="unknown"):
        writer.commit([message], 0)
    log.lose_answer = False
    writer.abort([message, None], 0)
    assert log.visible() == ["a"]
    writer.commit([writer.write(rows("a"))], 0)
    assert log.visible() == ["a"]


@pytest.mark.checklist("F27")
def test_a_transaction_that_was_taken_away_fails_the_batch_and_says_why(log, task) -> None:
    task()
    writer = streaming(log)
    first = writer.write(rows("a"))
    second = streaming(log).write(rows("a"))  # another driver on the same checkpoint
    with pytest.raises(CommitFailed, match=r"none of it is visible.*transaction\.timeout\.ms"):
        writer.commit([first], 0)
    writer.abort([first], 0)
    writer.commit([second], 0)
    assert log.visible() == ["a"]


@pytest.mark.checklist("F27")
def test_a_stage_that_is_repeated_leaves_finished_attempts_alone(log, task) -> None:
    """Spark counts attempts from 0 again: the second fenced the first, whose message counted, and the query stopped."""
    task()
    writer = streaming(log)
    first = writer.write(rows("a"))
    second = writer.write(rows("a"))
    names = [each.member.transactional_id for each in (first, second)]
    assert names == [f"{QUERY}/0-0", f"{QUERY}/0-0-1"]
    writer.commit([first], 0)
    assert log.visible() == ["a"] and log.open == {}


def test_no_more_names_than_spark_has_attempts_of_a_stage(log, task) -> None:
    task()
    writer = streaming(log)
    made = [writer.write(rows("a")) for _ in range(6)]
    assert len({each.member.transactional_id for each in made}) == 4 == len(log.open)
    writer.commit([made[-1]], 0)
    assert log.visible() == ["a"]


def test_a_broker_that_is_not_kafkalite_is_named_as_the_cause(log, task) -> None:
    task()

    def before(name: str) -> None:
        if name == "begin_transaction":
            raise api_error(ErrorCode.UNSUPPORTED_VERSION, "b:1 does not offer the extension API")

    log.before = before
    with pytest.raises(WriteFailed, match=r"exactly-once needs kafkalite brokers.*b:1.*at-least-once"):
        streaming(log).write(rows("a"))
    assert log.visible() == []


def test_without_the_query_s_id_it_refuses(log, task) -> None:
    for missing in ({"query": None}, {"batch": None}):
        task(**missing)
        with pytest.raises(WriteFailed, match="at-least-once"):
            streaming(log).write(rows("a"))
    assert log.calls == []


def test_a_name_of_its_own(log, task) -> None:
    task(batch=4)
    writer = streaming(log, txnAppId="app")
    writer.commit([writer.write(rows("a"))], 4)
    assert log.decided == {"app": (QUERY, 4)}
    # a new checkpoint is a new query: its batch 0 is not the old one's
    task(batch=0, query="query-2")
    writer.commit([writer.write(rows("b"))], 0)
    assert log.visible() == ["a", "b"]


def batch_writer(log: TransactionalLog, **options: str) -> KafkaliteWriter:
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "deliveryGuarantee": "exactly-once"} | options
    parsed = write_options(given)
    return KafkaliteWriter(parsed, row_shape(SCHEMA, parsed.topic), lambda _: log)


@pytest.mark.checklist("F27")
def test_a_batch_write_is_committed_as_a_whole(log, task) -> None:
    writer, other = batch_writer(log), batch_writer(log)
    task(partition=0)
    messages = [writer.write(rows("a"))]
    failed = [other.write(rows("x"))]
    task(partition=1)
    messages.append(writer.write(rows("b")))
    assert log.visible() == []
    other.abort(failed)
    writer.commit(messages)
    assert log.visible() == ["a", "b"] and log.open == {}


@pytest.mark.checklist("F27")
def test_a_batch_write_under_a_name_and_a_version_happens_once(log, task) -> None:
    task()
    for version in ("1", "1", "2"):
        writer = batch_writer(log, txnAppId="nightly", txnVersion=version)
        writer.commit([writer.write(rows(version))])
    assert log.visible() == ["1", "2"]


@pytest.mark.checklist("F27")
def test_a_version_counts_for_each_topic(log, task) -> None:
    """As Delta's does for each table: in `foreachBatch` the second topic of a batch got no row, and nothing was said."""
    task()
    log.add_topic("u", 1)
    for topic in ("t", "u", "t", "u"):
        writer = batch_writer(log, txnAppId="split", txnVersion="7", topic=topic)
        writer.commit([writer.write(rows(topic))])
    assert (log.visible("t"), log.visible("u")) == (["t"], ["u"])


@pytest.mark.parametrize(
    ("options", "is_stream", "says"),
    [
        ({"deliveryGuarantee": "twice"}, True, "at-least-once or exactly-once"),
        ({"txnAppId": "a"}, True, "are only for deliveryGuarantee=exactly-once"),
        ({"deliveryGuarantee": "exactly-once", "txnAppId": " "}, True, "txnAppId is empty"),
        ({"deliveryGuarantee": "exactly-once", "txnVersion": "1"}, True, "for batch writes"),
        ({"deliveryGuarantee": "exactly-once", "txnAppId": "a"}, False, "needs both"),
        ({"deliveryGuarantee": "exactly-once", "txnVersion": "1"}, False, "needs both"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str], *, is_stream: bool, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        write_options({"kafka.bootstrap.servers": "a:1"} | options, streaming=is_stream)
