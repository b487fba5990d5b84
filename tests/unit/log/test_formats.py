"""The bytes of every file, as Kafka writes and reads them."""

from __future__ import annotations

import struct

import pytest

from kafkalite.log import checkpoints
from kafkalite.log.index import AbortedTxn, OffsetIndex, TimeIndex, decode_aborted
from kafkalite.log.log_dir import partition_of, set_aside_name
from kafkalite.log.producer_state import KeptBatch, PreparedAppend, ProducerStates
from kafkalite.model import TopicId, TopicPartition
from kafkalite.record.batch import parse_header
from tests.support.logs import PATH, batch, make_log
from tests.support.memory_disk import MemoryDisk


def test_offset_checkpoint() -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 10): 2**40, TopicPartition("a", 2): 0}
    data = b"0\n3\na 2 0\na 10 1099511627776\nb 1 7\n"
    assert checkpoints.encode_offsets(offsets) == data
    assert checkpoints.decode_offsets(data) == offsets
    assert checkpoints.encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize(
    "bad", [b"", b"1\n0\n", b"0\n2\na 1 1\n", b"0\n1\na 1\n", b"0\nx\n", b"\xff", b"0\n1\na b c\n", b"0\n1\na 1 12"]
)
def test_damaged_checkpoints_are_recognised(bad: bytes) -> None:
    with pytest.raises(checkpoints.MalformedCheckpoint):
        checkpoints.decode_offsets(bad)


def test_leader_epoch_checkpoint() -> None:
    assert checkpoints.encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert checkpoints.decode_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]


@pytest.mark.checklist("F18")
def test_partition_metadata() -> None:
    topic_id = TopicId("lb2mHQLCRYiRvHvSqjQfAg")
    plain = b"version: 0\ntopic_id: lb2mHQLCRYiRvHvSqjQfAg"
    assert checkpoints.encode_partition_metadata(topic_id, records_compactions=False) == plain
    recorded = checkpoints.encode_partition_metadata(topic_id, records_compactions=True)
    assert recorded == plain + b"\ncompactions: recorded"
    assert checkpoints.decode_partition_metadata(recorded) == topic_id
    assert [checkpoints.records_compactions(each) for each in (plain, recorded)] == [False, True]
    copying = checkpoints.encode_partition_metadata(topic_id, records_compactions=True, copying_in=12)
    assert [checkpoints.copying_in(each) for each in (plain, recorded, copying, copying[:-2])] == [-1, -1, 12, -1]
    assert checkpoints.records_compactions(copying)
    assert checkpoints.decode_partition_metadata(copying) == topic_id
    assert checkpoints.decode_partition_metadata(b"version: 0\ntopic_id: lb2mHQLCRYiRvHvSqjQfAg\n") == topic_id
    for bad in (b"version: 9\ntopic_id: lb2mHQLCRYiRvHvSqjQfAg", b"version: 0\ntopic_id: lb2mHQLCRYiRv", b"version: 0"):
        with pytest.raises(checkpoints.MalformedCheckpoint):
            checkpoints.decode_partition_metadata(bad)


def test_meta_properties() -> None:
    assert checkpoints.decode_meta_properties(checkpoints.encode_meta_properties("AbC_-1", 3)) == ("AbC_-1", 3)
    java = b"#\n#Mon Jan 05 10:00:00 UTC 2026\ncluster.id=AbC\\=\\=\nversion=0\nbroker.id=12\n"
    assert checkpoints.decode_meta_properties(java) == ("AbC==", 12)


def test_offset_index_entries() -> None:
    index = OffsetIndex()
    index.append(5, 4200)
    index.append(9, 70_000)
    assert index.encode().hex() == "0000000500001068" + "0000000900011170"
    assert index.encode(1).hex() == "0000000900011170"
    twin = OffsetIndex.decode(index.encode())
    assert twin is not None
    assert [twin.position_for(offset) for offset in (0, 4, 5, 8, 9, 99)] == [0, 0, 4200, 4200, 70_000, 70_000]
    assert OffsetIndex.decode(b"1234567") is None
    assert OffsetIndex.decode(bytes(16)) is None


def test_time_index_entries() -> None:
    index = TimeIndex()
    for timestamp, offset in ((1000, 1), (1000, 2), (900, 3), (2000, 9)):
        index.maybe_append(timestamp, offset)
    assert index.encode().hex() == "00000000000003e800000001" + "00000000000007d000000009"
    twin = TimeIndex.decode(index.encode())
    assert twin is not None
    first, second = (1000, 1), (2000, 9)
    assert [twin.entry_before(timestamp) for timestamp in (0, 1000, 1001)] == [None, None, first]
    assert [twin.entry_before(timestamp) for timestamp in (2000, 2001)] == [first, second]


def test_aborted_transaction_entries() -> None:
    entry = AbortedTxn(producer_id=7, first_offset=10, last_offset=20, last_stable_offset=15)
    assert (
        entry.encode().hex()
        == "0000" + "0000000000000007" + "000000000000000a" + "0000000000000014" + "000000000000000f"
    )
    assert decode_aborted(entry.encode()) == [entry]
    assert decode_aborted(b"x" * 33) is None


def test_producer_snapshot_is_kafkas_when_each_producer_has_one_batch() -> None:
    states = ProducerStates()
    prepared = PreparedAppend()
    made = batch(["a", "b"], producer_id=7, producer_epoch=2, base_sequence=10, transactional=True, timestamp_ms=1000)
    states.prepare(prepared, parse_header(made), 40, None, from_client=True, replicated=False)
    states.apply(prepared)
    data = states.encode_snapshot()
    assert data[:2] == b"\x00\x01"
    assert data[6:].hex() == (
        "00000001"  # one producer
        "000000000000000700020000000b00000000000000290000000100000000000003e8ffffffff0000000000000028"
    )  # fmt: skip
    twin = ProducerStates.decode_snapshot(data)
    assert twin is not None and twin.active()[7].batches == (KeptBatch(11, 41, 1, 1000),)
    assert twin.first_unstable_offset == 40


def test_producer_snapshot_keeps_five_batches_behind_what_kafka_reads() -> None:
    states = ProducerStates()
    for number in range(8):
        prepared = PreparedAppend()
        made = batch(["a"], producer_id=7, producer_epoch=0, base_sequence=number)
        states.prepare(prepared, parse_header(made), number, None, from_client=True, replicated=False)
        states.apply(prepared)
    data = states.encode_snapshot()
    twin = ProducerStates.decode_snapshot(data)
    assert twin is not None
    assert [kept.last_sequence for kept in twin.active()[7].batches] == [3, 4, 5, 6, 7]
    (count,) = struct.unpack_from(">i", data, 6)
    assert count == 1
    for position in range(len(data)):
        spoiled = bytearray(data)
        spoiled[position] ^= 0x40
        assert ProducerStates.decode_snapshot(bytes(spoiled)) is None
        assert ProducerStates.decode_snapshot(data[:position]) is None


def test_segment_files_after_a_roll() -> None:
    disk = MemoryDisk()
    log = make_log(disk, index_interval_bytes=0)
    sizes = [len(batch(["a"])), len(batch(["b", "c"])), len(batch(["d"]))]
    log.append_as_leader(batch(["a"], timestamp_ms=1000), 1)
    log.append_as_leader(batch(["b", "c"], timestamp_ms=3000), 1)
    log.append_as_leader(batch(["d"], timestamp_ms=2000), 1)
    log.roll()
    prefix = f"{PATH}/{0:020d}"
    assert disk.read_file(prefix + ".index") == struct.pack(">IIII", 2, sizes[0], 3, sizes[0] + sizes[1])
    assert disk.read_file(prefix + ".timeindex") == struct.pack(">qI", 3000, 2)
    assert disk.exists(f"{PATH}/{4:020d}.snapshot") and disk.exists(f"{PATH}/{4:020d}.log")


def test_directory_names() -> None:
    assert partition_of("my-topic-12") == TopicPartition("my-topic", 12)
    for other in ("meta.properties", "t-1.0123-delete", "lost+found", "-1", ".lock"):
        assert partition_of(other) is None
    name = set_aside_name(TopicPartition("x" * 249, 99999), "f" * 32, "-delete")
    assert len(name) == 255 and name.endswith("-99999." + "f" * 32 + "-delete") and partition_of(name) is None


@pytest.mark.parametrize("entry", ["3 -17", "3 9223372036854775808", "2147483648 17", "-1 17", "3 " + "9" * 30])
def test_numbers_out_of_range_are_damage(entry: str) -> None:
    """A long number in one epoch file ended the start of the node: OverflowError."""
    with pytest.raises(checkpoints.MalformedCheckpoint):
        checkpoints.decode_epochs(f"0\n2\n0 0\n{entry}\n".encode())


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_offsets_out_of_range_are_damage(offset: int) -> None:
    with pytest.raises(checkpoints.MalformedCheckpoint):
        checkpoints.decode_offsets(f"0\n1\nt 0 {offset}\n".encode())
