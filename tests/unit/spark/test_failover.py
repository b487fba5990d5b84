"""Tasks over the real blocking client while nodes die, leaders move and answers get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from kafkalite.client.blocking import BlockingClient, BlockingClientConfig
from kafkalite.errors import ErrorCode
from pyspark_kafkalite.clients import LogClient
from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.fetching import RangeReader
from pyspark_kafkalite.offsets import OffsetRange
from pyspark_kafkalite.option_parsing import write_options
from pyspark_kafkalite.options import FetchOptions
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.sending import RowWriter
from tests.fake_cluster import FakeCluster

SHAPE = row_shape(StructType([StructField("key", BinaryType()), StructField("value", BinaryType())]), "t")
COLUMNS = columns_of(spark_schema(include_headers=False))
ROWS, STEP = 600, 50


class Faults:
    """Runs the cluster's coroutines from the task's thread, at a given row."""

    def __init__(self, cluster: FakeCluster, at: dict[int, Callable[[FakeCluster], Any]]) -> None:
        self._cluster = cluster
        self._at = at
        self._loop = asyncio.get_running_loop()

    def at(self, row: int) -> None:
        fault = self._at.get(row)
        if fault is not None:
            asyncio.run_coroutine_threadsafe(self._do(fault), self._loop).result(10)

    async def _do(self, fault: Callable[[FakeCluster], Any]) -> None:
        outcome = fault(self._cluster)
        if isinstance(outcome, Coroutine):
            await outcome


def cut(before: int, after: int) -> Callable[[FakeCluster], None]:
    def fault(cluster: FakeCluster) -> None:
        for node in cluster.nodes.values():
            node.cut_before_append, node.cut_after_append = before, after

    return fault


FAULTS: dict[str, dict[int, Callable[[FakeCluster], Any]]] = {
    "a node dies": {200: lambda c: c.kill(1, new_leader=2)},
    "answers are lost after the append": {100: cut(0, 1), 300: cut(1, 1)},
    "leaders move": {100: lambda c: c.move_leader("t", 0, 3), 300: lambda c: c.move_leader("t", 1, 1)},
    "refused for now": {
        150: lambda c: c.errors.extend(
            [ErrorCode.NOT_ENOUGH_REPLICAS, None, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        )
    },
}


@pytest.mark.checklist(94)
@pytest.mark.checklist("F27")
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
async def test_each_row_once_and_in_order(faults: dict[int, Callable[[FakeCluster], Any]]) -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t", 3)
        plan = Faults(cluster, faults)

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, ROWS, STEP):
                plan.at(first)
                numbers = range(first, first + STEP)
                keys = pa.array([b"k%d" % (n % 10) for n in numbers], pa.binary())
                yield pa.RecordBatch.from_arrays([keys, pa.array([b"%d" % n for n in numbers])], names=["key", "value"])

        def write(bootstrap: str) -> int:
            options = write_options({"kafka.bootstrap.servers": bootstrap, "topic": "t", "kafka.buffer.memory": "1"})
            with BlockingClient(BlockingClientConfig(bootstrap, connect_timeout_ms=300)) as client:
                return RowWriter(cast(LogClient, client), options, SHAPE).write(batches()).rows

        assert await asyncio.to_thread(write, ",".join(cluster.bootstrap)) == ROWS
        found = [[int(v or b"") for v in cluster.log("t", p).values()] for p in range(3)]
        assert sorted(n for partition in found for n in partition) == list(range(ROWS))
        for key in range(10):
            in_order = [n for partition in found for n in partition if n % 10 == key]
            assert in_order == sorted(in_order)


@pytest.mark.checklist(94)
async def test_a_read_goes_on_at_the_new_leader() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create("t", 1)
        plan = Faults(cluster, {1: lambda c: c.move_leader("t", 0, 2), 3: lambda c: c.kill(2, new_leader=3)})

        def work(bootstrap: str) -> list[int]:
            options = write_options({"kafka.bootstrap.servers": bootstrap, "topic": "t"})
            config = BlockingClientConfig(bootstrap, connect_timeout_ms=300)
            with BlockingClient(config) as client:
                for n in range(6):
                    row = pa.RecordBatch.from_arrays(
                        [pa.nulls(1, pa.binary()), pa.array([b"%d" % n])], names=["key", "value"]
                    )
                    RowWriter(cast(LogClient, client), options, SHAPE).write([row])
                read = []
                reader = RangeReader(cast(LogClient, client), FetchOptions(max_bytes=1, max_wait_ms=10))
                for batch in reader.read(OffsetRange("t", 0, 0, 6), COLUMNS):
                    read += [int(v) for v in batch["value"].to_pylist()]
                    plan.at(len(read))
                return read

        assert await asyncio.to_thread(work, ",".join(cluster.bootstrap)) == list(range(6))
