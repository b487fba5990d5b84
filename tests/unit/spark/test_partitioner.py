"""Keys land where Kafka's own clients put them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalite.partitioner import Partitioner, murmur2


# Source: Kafka's UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_kafka_s_own_vectors(key: bytes, hashed: int) -> None:
    assert murmur2(pa.array([key], pa.binary())).tolist() == [hashed]


def plain_murmur2(data: bytes) -> int:
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    for at in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(st.lists(st.binary(max_size=70)), st.integers(0, 3), st.integers(1, 12))
def test_agrees_with_a_plain_murmur2(keys: list[bytes], skip: int, partitions: int) -> None:
    array = pa.array(keys, pa.binary())[skip:]
    chosen = Partitioner(partitions, 1000, random.Random(1)).keyed(array)
    assert chosen.tolist() == [(plain_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys[skip:]]


def test_rows_without_a_key_stick_until_a_batch_is_full() -> None:
    partitioner = Partitioner(4, 1000, random.Random(3))
    chosen = np.concatenate([partitioner.unkeyed(np.full(7, 100)) for _ in range(10)])
    runs = np.flatnonzero(np.diff(chosen)) + 1
    assert runs.tolist() == [10, 20, 30, 40, 50, 60]
    assert len(set(chosen.tolist())) > 1


def test_one_partition_takes_all() -> None:
    assert set(Partitioner(1, 10, random.Random(1)).unkeyed(np.full(9, 100)).tolist()) == {0}
