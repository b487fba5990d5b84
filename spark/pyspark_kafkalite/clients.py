"""The connection to the cluster: what the source needs of a client, and one client per thread that lives on.

Spark's Python workers serve many tasks, so a client is kept between them. Importing this module connects to nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.errors import ApiError, KafkaliteError
from pyspark_kafkalite.options import ClientOptions

if TYPE_CHECKING:
    from kafkalite.client.results import Metadata
    from kafkalite.client.transactions import Decided, GroupVersion
    from kafkalite.extension.messages.transactions import EndTxnGroupResponse, TransactionMember
    from kafkalite.model import TopicPartition
    from kafkalite.partition_values import AbortedTransaction, ListedOffset, ProducedPartition


class Fetched(Protocol):
    """Record batches of one partition; the first may begin below the offset that was asked for."""

    @property
    def records(self) -> bytes | memoryview: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def aborted(self) -> Sequence[AbortedTransaction]: ...


class LogClient(Protocol):
    """The part of kafkalite.client.transactions.TransactionalClient that is used here. It follows leaders and retries."""

    def metadata(self, topics: Iterable[str] | None = None, /, *, allow_auto_create: bool = False) -> Metadata: ...

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], /, *, isolation: int = 0
    ) -> Mapping[TopicPartition, ListedOffset]: ...

    def fetch_raw(
        self, key: TopicPartition, offset: int, max_bytes: int, max_wait_ms: int, /, *, isolation: int = 0
    ) -> Fetched: ...

    def init_producer_id(self) -> tuple[int, int]: ...

    def produce_many(
        self,
        batches: Mapping[TopicPartition, bytes | memoryview],
        /,
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
        transactional_id: str | None = None,
    ) -> Mapping[TopicPartition, ProducedPartition]: ...

    def begin_transaction(
        self, wanted: GroupVersion, member: str, *, transaction_timeout_ms: int, writer: str = ""
    ) -> TransactionMember | Decided: ...

    def add_partitions(self, member: TransactionMember, partitions: Iterable[TopicPartition], /) -> None: ...

    def commit_group(
        self, decided: GroupVersion, members: Iterable[TransactionMember], *, wait_ms: int = 0
    ) -> EndTxnGroupResponse: ...

    def abort_group(
        self, decided: GroupVersion, members: Iterable[TransactionMember], *, timeout_ms: int | None = None
    ) -> None: ...

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> None: ...

    def committed_offsets(self, group_id: str, *, timeout_ms: int | None = None) -> Mapping[TopicPartition, int]: ...

    def close(self) -> None: ...


Connect = Callable[[ClientOptions], LogClient]

#: Of each thread.
KEPT_CLIENTS = 8
#: A cluster that has never answered is given up after this time, if its addresses refuse: a typing error shows at once.
FIRST_ANSWER_MS = 3_000

_clients: dict[tuple[int, int, ClientOptions], LogClient] = {}


class Unreachable(KafkaliteError):
    """No node answers. The message says which were asked, and what may be wrong with the options."""


def error_text(options: ClientOptions, error: Exception) -> str:
    """An error for a message: a refusal with its code, anything else with who did not answer, and what may be wrong."""
    if isinstance(error, ApiError):
        return str(error) if error.code.name in str(error) else f"{error.code.name}, {error}"
    return (
        f"{','.join(options.bootstrap)} cannot be reached: {error}. kafka.bootstrap.servers are Kafka listeners (port 9092 by "
        "default; kafkalite's 9192 is for its nodes only); kafka.security.protocol must be what they are set to"
    )


def shared(options: ClientOptions) -> LogClient:
    """This thread's client for these options, connected at first use. Never one from before a fork.

    Of those with other options the last few are kept: a worker serves one task at a time, so that none of them is in use.
    """
    mine = (os.getpid(), threading.get_ident())
    client = _clients.pop((*mine, options), None)
    if client is None:
        client = connect(options)
        ours = [key for key in _clients if key[:2] == mine]
        for key in ours[: max(0, len(ours) + 1 - KEPT_CLIENTS)]:
            _clients.pop(key).close()
    _clients[(*mine, options)] = client  # the last one used is the last to go
    return client


def connect(options: ClientOptions) -> LogClient:
    """A client of its own."""
    from kafkalite.client.blocking import BlockingClientConfig
    from kafkalite.client.transactions import TransactionalClient

    config = BlockingClientConfig(
        ",".join(options.bootstrap),
        options.client_id,
        options.request_timeout_ms,
        first_answer_ms=FIRST_ANSWER_MS,
        security=options.security,
    )
    client: LogClient = TransactionalClient(config)
    return client
