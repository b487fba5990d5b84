"""Groups of transactions as load: each is committed or aborted by one decision, and counted by a reader of what is committed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.blocking import BlockingClientConfig
from kafkalite.client.consumer import Consumer
from kafkalite.client.transactions import Decided, GroupVersion, TransactionalClient
from kafkalite.errors import KafkaliteError
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import TopicPartition
from kafkalite.record.builder import RecordBatchBuilder
from kafkalite.testing.cluster_state import wait_in_sync
from kafkalite.testing.processes import ProcessCluster

TOPIC = "transactions"
_PARTITIONS = 3
_GROUP = "schedule"
#: One in this number of versions is aborted.
_ABORTED = 4
#: One in this number is left open for a while before it is decided.
_HELD_OPEN = 6
_HELD_OPEN_S = 2.5
_PAUSE_S = 0.05
_TIMEOUT_MS = 120_000
_STOP_S = 120.0
_READ_S = 90.0


class TransactionLoad:
    """One version after the other, each of two transactions that write to every partition; in a thread."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self._enough = threading.Event()
        self._thread: asyncio.Task[None] | None = None
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self._last_error: KafkaliteError | None = None

    async def start(self) -> None:
        """Make the topic and begin."""
        async with AsyncClient.connect(self._cluster.bootstrap) as client:
            await client.create_topics([NewTopic(TOPIC, _PARTITIONS, 3, configs={"min.insync.replicas": "2"})])
        await wait_in_sync(self._cluster, TOPIC, 3)
        self._thread = asyncio.create_task(asyncio.to_thread(self._run))

    async def stop(self) -> None:
        """Return when the last version is decided. Raises TimeoutError, and what ended the load."""
        self._enough.set()
        if self._thread is not None:
            async with asyncio.timeout(_STOP_S):
                await self._thread

    def _run(self) -> None:
        config = BlockingClientConfig(",".join(self._cluster.bootstrap), delivery_timeout_ms=15_000)
        number = 0
        with TransactionalClient(config) as client:
            while not self._enough.is_set():
                until = time.monotonic() + _STOP_S
                while not self._attempt(client, number):
                    if time.monotonic() > until:
                        text = f"version {number} of transactions was not decided within {_STOP_S:.0f} s"
                        raise TimeoutError(f"{text}: {self._last_error!r}")
                    time.sleep(_PAUSE_S)
                number += 1
                time.sleep(_PAUSE_S)

    def _attempt(self, client: TransactionalClient, number: int) -> bool:
        """Whether it is decided, and how. An attempt without a known end is repeated, as Spark does."""
        version = GroupVersion(_GROUP, "load", number)
        members = []
        try:
            for member in ("a", "b"):
                begun = client.begin_transaction(version, member, transaction_timeout_ms=_TIMEOUT_MS)
                if isinstance(begun, Decided):
                    self.committed.add(number)
                    return True
                members.append(begun)
                partitions = [TopicPartition(TOPIC, each) for each in range(_PARTITIONS)]
                client.add_partitions(begun, partitions)
                batches = {}
                for tp in partitions:
                    batch = RecordBatchBuilder(
                        producer_id=begun.producer_id,
                        producer_epoch=begun.producer_epoch,
                        base_sequence=0,
                        transactional=True,
                    )
                    batch.append(
                        None, f"{number}:{member}:{tp.partition}".encode(), timestamp_ms=int(time.time() * 1000)
                    )
                    batches[tp] = batch.build()
                client.produce_many(batches, transactional_id=begun.transactional_id)
            if number % _HELD_OPEN == 0:
                self._enough.wait(_HELD_OPEN_S)
            if number % _ABORTED == _ABORTED - 1:
                client.abort_group(version, members)
                self.aborted.add(number)
            else:
                client.commit_group(version, members)
                self.committed.add(number)
            return True
        except KafkaliteError as error:
            self._last_error = error
            return False

    async def problems(self) -> list[str]:
        """What a reader of what is committed finds wrong."""
        seen: Counter[str] = Counter()
        try:
            async with asyncio.timeout(_READ_S), AsyncClient.connect(self._cluster.bootstrap) as client:
                partitions = [TopicPartition(TOPIC, each) for each in range(_PARTITIONS)]
                while True:  # until nothing is open any more
                    if await client.end_offsets(partitions, isolation=1) == await client.end_offsets(partitions):
                        break
                    await asyncio.sleep(0.2)
                async with Consumer(client, read_committed=True) as consumer:
                    consumer.assign(dict.fromkeys(partitions, "earliest"))
                    while records := await consumer.poll(max_records=5_000, timeout_s=3.0):
                        seen.update((record.value or b"").decode() for record in records)
        except TimeoutError:
            return [f"transactions are open, or cannot be read, {_READ_S:.0f} s after the end"]
        wanted = {f"{v}:{m}:{p}" for v in self.committed for m in "ab" for p in range(_PARTITIONS)}
        lost, surplus = sorted(wanted - seen.keys()), sorted(seen.keys() - wanted)
        twice = sorted(value for value, count in seen.items() if count > 1)
        found = (("lost", lost), ("aborted, and read", surplus), ("read twice", twice))
        return [f"of transactions {what}: {values[:10]}" for what, values in found if values]
