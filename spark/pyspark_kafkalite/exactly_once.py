"""Exactly once: each task attempt prepares a transaction, the driver's commit decides all of them in one step.

A transaction belongs to a group (the query) and to an attempt. Nothing of it is seen by read_committed readers until the
driver's one request commits exactly the attempts that Spark's commit coordinator let through; what else the group has
open (failed attempts, speculative twins, what a dead driver left) is aborted in the same step. A version (a batch) that
is decided stays so: an attempt that comes later writes nothing, a commit that comes later only rolls forward.

What only tasks need (`sending`, and with it Arrow) is imported there: the driver commits in a process of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafkalite.client.transactions import Decided, GroupVersion
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError
from kafkalite.extension.messages.transactions import TransactionMember
from pyspark_kafkalite.clients import LogClient, error_text
from pyspark_kafkalite.options import WriteOptions
from pyspark_kafkalite.task_results import TaskWritten

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalite.row_shape import RowShape

log = logging.getLogger("pyspark_kafkalite")

#: How long a commit waits until readers see it; it holds all the same.
VISIBLE_WAIT_MS = 10_000
_ABORT_TIMEOUT_MS = 5_000
#: Names of an attempt: Spark gives a stage up after four attempts (spark.stage.maxConsecutiveAttempts).
_STAGES = 4
_FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)


class CommitFailed(KafkaliteError):
    """A batch was not committed: none of it is visible. The message says why and what to do."""


@dataclass(frozen=True)
class TaskPrepared(TaskWritten):
    """What one task attempt wrote, in a transaction that is open still. `member` None: it had nothing to write."""

    decided: GroupVersion | None = None
    member: TransactionMember | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The writer: the version that is to be decided, and this attempt's place in it."""

    version: GroupVersion
    partition: int
    attempt: int
    #: Which write it is part of; random, the same for all its tasks.
    writer: str
    #: Of a stream: Spark begins a batch when its checkpoint has the one before, so at most the newest decided batch is repeated.
    is_of_stream: bool = False

    @property
    def members(self) -> list[str]:
        """Names for its transaction, the first one first.

        Attempts have transactions of their own: a speculative twin must not abort the one that wins. Spark counts attempts from 0
        again when it repeats a stage (an executor with its shuffle files is lost): then the name may be in use by an attempt of the
        stage before, which may be the one that counts.
        """
        name = f"{self.partition}-{self.attempt}"
        return [name, *(f"{name}-{stage}" for stage in range(1, _STAGES))]


def streaming_attempt(options: WriteOptions, context: Any, writer: str) -> Attempt:
    """Of a task of a micro-batch, from Spark's TaskContext. Raises WriteFailed if Spark does not give it."""
    from pyspark_kafkalite.sending import WriteFailed

    query = _property(context, "sql.streaming.queryId")
    batch = _property(context, "streaming.sql.batchId")
    if not query or not batch or not batch.isdigit():
        raise WriteFailed(
            "deliveryGuarantee=exactly-once needs the query's id and the batch's number, and this Spark does not give them "
            "to tasks: use deliveryGuarantee=at-least-once"
        )
    version = GroupVersion(options.txn_app_id or query, query, int(batch))
    return Attempt(version, context.partitionId(), context.attemptNumber(), writer, is_of_stream=True)


def batch_attempt(version: GroupVersion, context: Any, writer: str) -> Attempt:
    """Of a task of a batch write."""
    from pyspark_kafkalite.sending import WriteFailed

    if context is None:
        raise WriteFailed("deliveryGuarantee=exactly-once works in Spark's tasks only")
    return Attempt(version, context.partitionId(), context.attemptNumber(), writer)


def _property(context: Any, name: str) -> str | None:
    value = None if context is None else context.getLocalProperty(name)
    return str(value) if value is not None else None


def write_prepared(
    client: LogClient, options: WriteOptions, shape: RowShape, batches: Iterable[pa.RecordBatch], attempt: Attempt
) -> TaskPrepared:
    """Write all rows into the attempt's transaction and leave it open.

    Raises:
        BadRow, WriteFailed: as RowWriter; the transaction is aborted then. WriteFailed, too, for a batch of a checkpoint that is
            older than what the stream has committed: the batch may have records that the committed one of its number had not.
    """
    from pyspark_kafkalite.sending import RowWriter, WriteFailed

    rest: Iterator[pa.RecordBatch] = iter(batches)
    first = next((batch for batch in rest if batch.num_rows), None)
    if first is None:
        return TaskPrepared(0, 0, (), attempt.version)
    try:
        member = _begin(client, options, attempt)
    except (KafkaliteError, OSError) as error:
        if isinstance(error, ApiError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise WriteFailed(
                f"deliveryGuarantee=exactly-once needs kafkalite brokers: one request commits the transactions of all tasks, "
                f"and Kafka has none for that ({error}). Use deliveryGuarantee=at-least-once here"
            ) from None
        hint = ""
        if isinstance(error, ApiError) and error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            hint = " (kafka.transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms)"
        raise WriteFailed(
            f"no transaction could be started for {attempt.version}: {error_text(options.client, error)}{hint}"
        ) from error
    if isinstance(member, Decided):
        if attempt.is_of_stream and member.newest_version > attempt.version.version:
            raise WriteFailed(
                f"{attempt.version}: its checkpoint is older than what the query has written, batch {member.newest_version} is "
                "committed. Bring the newest checkpoint back; or begin with a new one, and with the endOffset of the newest "
                "batch (lastProgress) as startingOffsets"
            )
        log.info("%s is already decided: nothing is written", attempt.version)
        for _ in rest:  # Spark's side of the pipe wants to be read to its end
            pass
        return TaskPrepared(0, 0, (), attempt.version)
    is_done = False
    try:
        written = RowWriter(client, options, shape, transaction=member).write(chain((first,), rest))
        is_done = True
    finally:
        if not is_done:
            abort(client, [TaskPrepared(0, 0, (), attempt.version, member)])
    return TaskPrepared(written.rows, written.bytes, written.offsets, attempt.version, member)


def _begin(client: LogClient, options: WriteOptions, attempt: Attempt) -> TransactionMember | Decided:
    """Open the first of the attempt's names that no other attempt of this write has open. Raises KafkaliteError, OSError."""
    *others, last = attempt.members
    for name in others:
        try:
            return client.begin_transaction(
                attempt.version,
                name,
                transaction_timeout_ms=options.transaction_timeout_ms,
                writer=attempt.writer,
            )
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
    return client.begin_transaction(attempt.version, last, transaction_timeout_ms=options.transaction_timeout_ms)


def commit(client: LogClient, messages: Sequence[Any]) -> None:
    """Decide: commit what these attempts wrote, all or nothing.

    Raises:
        CommitFailed: nothing was committed, or (no answer came) it is not known; to run the batch again is right in
            both cases.
    """
    version, members = _prepared(messages)
    if version is None or not members:
        return
    try:
        answer = client.commit_group(version, members, wait_ms=VISIBLE_WAIT_MS)
    except ApiError as error:
        hint = ""
        if error.code in _FENCED:
            hint = (
                ". From its first row to the commit of the batch a task has kafka.transaction.timeout.ms; another query "
                "with the same txnAppId or checkpoint aborts its transactions"
            )
        raise CommitFailed(f"{version} was not committed, and none of it is visible: {error}{hint}") from error
    except (KafkaliteError, OSError) as error:
        raise CommitFailed(
            f"it is unknown whether {version} is committed: {error}. Run it again to find out"
        ) from error
    if answer.was_decided:
        log.info("%s was already decided: rolled forward", version)
    elif not answer.is_complete:
        log.info("%s is committed; readers of some partitions see it a little later", version)


def abort(client: LogClient, messages: Sequence[Any]) -> None:
    """Abort what is open of these attempts, as far as the cluster can be reached: its timeout does the rest.

    What is decided stays committed: Spark calls this after a commit that failed, too.
    """
    version, members = _prepared(messages)
    if version is None or not members:
        return
    try:
        client.abort_group(version, members, timeout_ms=_ABORT_TIMEOUT_MS)
    except (KafkaliteError, OSError) as error:
        log.warning("%s: its transactions could not be aborted; they end with their timeout: %s", version, error)


def _prepared(messages: Sequence[Any]) -> tuple[GroupVersion | None, list[TransactionMember]]:
    prepared = [message for message in messages if isinstance(message, TaskPrepared)]
    versions = {message.decided for message in prepared if message.decided is not None}
    if len(versions) > 1:
        raise CommitFailed(f"tasks of different batches in one commit: {', '.join(sorted(map(str, versions)))}")
    members = [message.member for message in prepared if message.member is not None]
    return next(iter(versions), None), members
