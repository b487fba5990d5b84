"""Backups: which batches are copied, what is sent back, what damage is found; and the three verbs on a real node."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.quotas import alter_quotas, describe_quotas
from kafkalite.client.admin.records import delete_before
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer import Producer
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.model import Offset, ProducerId, TopicPartition
from kafkalite.partition_values import AbortedTransaction
from kafkalite.protocol import wire
from kafkalite.record.batch import BatchHeader, parse_header, split_batches
from kafkalite.record.builder import (
    RecordBatchBuilder,
    empty_batch,
    encode_batch,
    encode_record,
    end_transaction_marker,
)
from kafkalite.record.compression import Codec
from kafkalite.record.reader import Record, records_of
from kafkalite.security.quotas import Entity
from kafkalite.testing.cluster import Cluster, cluster
from kafkalite_cli.admin.backup import create as backup_create
from kafkalite_cli.admin.backup.files import (
    MANIFEST,
    BackedPartition,
    BackupError,
    Manifest,
    PartitionWriter,
    batches_of,
    finished_manifest,
    records_before,
)
from kafkalite_cli.admin.backup.records import Comparison, batches_to_keep, batches_to_send
from kafkalite_cli.admin.backup.restore import Restore, Restored, RestoreState, Wishes
from kafkalite_cli.main import cli
from tests.support.commands import Outcome
from tests.unit.cli.test_commands import kafkalite


def batch(
    first: int, count: int, *, producer: int = -1, transactional: bool = False, size: int = 5, append_time: bool = False
) -> bytes:
    builder = RecordBatchBuilder(
        Codec.GZIP, base_offset=first, producer_id=producer, transactional=transactional, log_append_time=append_time
    )
    for number in range(first, first + count):
        builder.append(b"k", os.urandom(size) if size > 5 else b"v%d" % number, [("h", None)], 1000 + number)
    return builder.build()


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    built = bytearray(end_transaction_marker(producer, 0, commit=commit, coordinator_epoch=0, timestamp_ms=5))
    built[:8] = offset.to_bytes(8, "big")
    return bytes(built)


def kept(data: bytes, position: int, end: int, *aborted: tuple[int, int]) -> tuple[list[int], int]:
    """Offsets that would be copied, and where the next fetch begins."""
    gone = [AbortedTransaction(ProducerId(producer), Offset(first)) for producer, first in aborted]
    found = batches_to_keep(memoryview(data), position, end, gone)
    offsets = [record.offset for header, one in found.batches for record in records_of(one, 0, header)]
    return offsets, found.position


def test_only_committed_records_are_copied() -> None:
    log = (
        batch(0, 3) + batch(3, 2, producer=7, transactional=True) + batch(5, 2, producer=8, transactional=True)
        + marker(7, 7, commit=False) + marker(8, 8, commit=True) + batch(9, 1, producer=7, transactional=True)
        + marker(10, 7, commit=True) + batch(11, 2)
    )  # fmt: skip
    assert kept(log, 0, 13, (7, 3)) == ([0, 1, 2, 5, 6, 9, 11, 12], 13)
    # Batches after the end have come since; the first one is cut where deleted records end.
    assert kept(log, 1, 11, (7, 3)) == ([1, 2, 5, 6, 9], 11)


def test_an_empty_batch_of_a_compacted_log_is_passed_over() -> None:
    hole = empty_batch(parse_header(batch(0, 4)))
    assert kept(hole + batch(4, 1), 0, 5) == ([4], 5)


def stored(*batches: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    for each in batches:
        yield parse_header(each), each


def compacted(first: int, offsets: list[int], last: int) -> bytes:
    payload = b"".join(encode_record(each - first, 0, b"k", b"v%d" % each, ()) for each in offsets)
    return encode_batch(
        payload, record_count=len(offsets), base_offset=first, last_offset_delta=last - first,
        base_timestamp=9, max_timestamp=9,
    )  # fmt: skip


def sent(*batches: bytes, skip: int = 0) -> list[Record]:
    return [record for each in batches_to_send(stored(*batches), skip) for record in each.records()]


@pytest.mark.parametrize("skip", range(9))
def test_what_is_sent_back_has_neither_gaps_nor_what_is_there_already(skip: int) -> None:
    batches = (compacted(0, [1, 5], 7), batch(8, 3, append_time=True), batch(20, 2, size=20_000), batch(22, 2))
    values = [record.value for record in sent(*batches)]
    assert len(values) == 9 and values[:2] == [b"v1", b"v5"]
    assert [record.value for record in sent(*batches, skip=skip)] == values[skip:]
    # The broker's time has become the record's.
    assert [record.timestamp for record in sent(*batches)][2:5] == [1010] * 3


def test_large_batches_are_sent_as_they_are_and_small_ones_together() -> None:
    large = batch(0, 2, size=20_000)
    made = list(batches_to_send(stored(large, batch(2, 1), batch(3, 1), batch(4, 2, size=20_000))))
    assert [each.record_count for each in made] == [2, 2, 2]
    assert bytes(made[0].payload) == large[61:]
    header = parse_header(made[1].encoded(5, 1, 77))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta) == (5, 1, 77, 1)


def compare(there: bytes, *wanted: bytes) -> int:
    comparison = Comparison(batches_to_send(stored(*wanted)))
    for at, header in split_batches(there):
        comparison.take(there, at, header)
    comparison.finish()
    return comparison.records


def test_records_are_compared_however_batches_are_cut() -> None:
    whole = batch(0, 6)
    cut = [batches_to_keep(memoryview(whole), at, 6, ()).batches[0][1] for at in (0, 2)]
    assert compare(whole, whole) == compare(bytes(whole), batch(0, 2), bytes(cut[1])) == 6
    large = batch(0, 2, size=20_000)
    assert compare(large + batch(2, 1), large, batch(2, 1)) == 3


@pytest.mark.parametrize(
    ("there", "what"),
    [(batch(0, 2), "fewer records"), (batch(0, 4), "more records"), (batch(1, 3), "is not the one"), (b"", "fewer")],
)
def test_a_difference_is_found(there: bytes, what: str) -> None:
    with pytest.raises(ApiError, match=what):
        compare(there, batch(0, 3))


def written(root: Path) -> BackedPartition:
    writer = PartitionWriter(root, "t", 0, file_bytes=100)
    for each in (batch(0, 3), compacted(3, [4, 6], 9), batch(10, 1)):
        writer.write(each, parse_header(each))
    writer.seal()
    return BackedPartition(0, 0, 11, tuple(writer.files))


def test_files_are_whole_or_written_again(tmp_path: Path) -> None:
    part = written(tmp_path)
    assert part.records == 6 and len(part.files) > 1
    again = PartitionWriter(tmp_path, "t", 0, file_bytes=100)
    assert (again.files, again.next_offset) == (list(part.files), 11)
    directory = tmp_path / "topics" / "t" / "0"
    (directory / f"{11:020}.log.part").write_bytes(b"torn")
    with (directory / "files.jsonl").open("a") as journal:
        journal.write('{"name": "to')
    (directory / part.files[-1].name).write_bytes(b"")
    again = PartitionWriter(tmp_path, "t", 0)
    assert again.files == list(part.files[:-1])
    assert not list(directory.glob("*.part"))


def test_what_was_deleted_behind_a_lost_file_does_not_hide_its_offsets(tmp_path: Path) -> None:
    """Else a backup is "whole" without records that the cluster still has."""
    writer = PartitionWriter(tmp_path, "t", 0)
    for first in (0, 20):
        data = batch(first, 10)
        writer.write(data, parse_header(data))
        writer.note_deleted(first + 10, first + 20)
    lost = tmp_path / "topics" / "t" / "0" / writer.files[1].name
    lost.unlink()
    again = PartitionWriter(tmp_path, "t", 0)
    assert (again.next_offset, again.deleted) == (10, [])
    writer = PartitionWriter(tmp_path, "t", 0)
    assert (writer.next_offset, writer.deleted) == (10, [])


@pytest.mark.parametrize("line", [b"\0" * 40, b"{}", b"7", b'{"deleted": [1]}', b'{"name": 7, "size": 1}', b"\xff"])
def test_from_a_damaged_line_of_the_journal_on_everything_is_copied_again(tmp_path: Path, line: bytes) -> None:
    part = written(tmp_path)
    path = tmp_path / "topics" / "t" / "0" / "files.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, line + b"\n", *others]))
    assert PartitionWriter(tmp_path, "t", 0).files == [part.files[0]]


@pytest.mark.parametrize(("offset", "before"), [(0, 0), (2, 2), (3, 3), (5, 4), (7, 5), (10, 5), (11, 6), (99, 6)])
def test_an_offset_becomes_the_number_of_records_before_it(tmp_path: Path, offset: int, before: int) -> None:
    assert records_before(tmp_path, "t", written(tmp_path), offset) == before


def damaged(root: Path, part: BackedPartition) -> str:
    with pytest.raises(BackupError) as error:
        for file in part.files:
            for _ in batches_of(root, "t", 0, file):
                pass
    return str(error.value)


def test_damage_is_found(tmp_path: Path) -> None:
    part = written(tmp_path)
    path = tmp_path / "topics" / "t" / "0" / part.files[0].name
    whole = path.read_bytes()
    for spoilt in (whole[:-1], whole[:75] + bytes([whole[75] ^ 1]) + whole[76:], whole + whole, b"x" * 100, whole[:30]):
        path.write_bytes(spoilt)
        assert path.name in damaged(tmp_path, part)
    path.unlink()
    assert "missing" in damaged(tmp_path, part)


def test_a_manifest_that_was_changed_is_refused(tmp_path: Path) -> None:
    text = Manifest("c", "now", (), notes=("a",), choice={"topics": []}).to_json()
    path = tmp_path / "manifest.json"
    path.write_text(text)
    assert finished_manifest(tmp_path).notes == ("a",)
    for wrong in (text.replace('"now"', '"then"'), text.replace('"version": 1', '"version": 2'), "[]", "{", text[:-9]):
        path.write_text(wrong)
        with pytest.raises(BackupError):
            finished_manifest(tmp_path)


async def run(on: Cluster, *arguments: str) -> Outcome:
    return await kafkalite("admin", "backup", *arguments, "--bootstrap", ",".join(on.bootstrap))


async def share_group(client: AsyncClient, group: str, topic: str) -> None:
    request = wire.AlterShareGroupOffsetsRequest
    part = request.AlterShareGroupOffsetsRequestPartition(0, 1)
    message = request(group, [request.AlterShareGroupOffsetsRequestTopic(topic, [part])])
    await client.call_coordinator(0, group, message, lambda each: (each.error_code, each.error_message), timeout_s=60)


async def test_quotas_of_addresses_and_share_groups(tmp_path: Path) -> None:
    """An address's quota goes with its address; the place of a share group is no offset of a consumer group."""
    directory = str(tmp_path / "b")
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        async with Producer(client) as producer:
            for number in range(3):
                await producer.send("t", None, b"%d" % number)
        await share_group(client, "s", "t")
        limits = {"connection_creation_rate": 7.0}
        await alter_quotas(client, Entity(ip="10.1.2.3"), limits)
        made = await run(on, "create", directory, "--json")
        assert (made.json["groups"], made.json["notes"]) == (0, ["share group s: not in this backup"]), made
        await alter_quotas(client, Entity(ip="10.1.2.3"), dict.fromkeys(limits))
        restored = await run(on, "restore", directory, "--prefix", "x.", "--quotas", "--json")
        assert (restored.code, restored.json["quotas"]) == (0, 1), restored
        assert await describe_quotas(client) == [(Entity(ip="10.1.2.3"), limits)]


@pytest.mark.parametrize("event", ["records are deleted by the topic's own settings", "the topic is deleted"])
async def test_a_restore_that_failed_at_its_end_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        async with Producer(client) as producer:
            for number in range(10):
                await producer.send("t", None, b"%d" % number)
        assert (await run(on, "create", str(tmp_path))).code == 0

        async def run_restore() -> Restored:
            manifest, state = finished_manifest(tmp_path), RestoreState(tmp_path / "state.json")
            wishes = Wishes("x.", quotas=True)
            return await Restore(client, tmp_path, manifest, wishes, state).run(limit=None, parallel=1, is_shown=False)

        with monkeypatch.context() as patch:
            patch.setattr(Restore, "_quotas", refuses)
            with pytest.raises(ApiError, match="not yours"):
                await run_restore()
        key = TopicPartition("x.t", 0)
        if "deleted by" in event:
            await delete_before(client, {key: 4}, {key: 1}, 60)
        else:
            await client.delete_topics(["x.t"])
        restored = await run_restore()
        assert (restored.records, restored.earlier) == (10, 10 if "deleted by" in event else 0)
        ends = await client.end_offsets([key])
        assert (ends[key], (tmp_path / "state.json").exists()) == (10, False)


async def refuses(*_: object) -> int:
    raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not yours")


async def test_the_three_verbs(tmp_path: Path) -> None:
    directory = str(tmp_path / "b")
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 2, 1, None, "shifted", {"retention.ms": "60000"})])
        async with Producer(client) as producer:
            for number in range(20):
                await producer.send("t", None, b"%d" % number, partition=number % 2, timestamp_ms=1_000_000)
        await Groups(client).commit("g", {TopicPartition("t", 1): 4})
        assert "there is no topic 'nope'" in (await run(on, "create", directory, "--topic", "nope")).err
        before = os.umask(0o022)
        try:
            made = await run(on, "create", directory, "--limit", "10MB")
        finally:
            os.umask(before)
        assert (made.code, made.err) == (0, "")
        written = [tmp_path / "b", *(tmp_path / "b").rglob("*")]
        assert len(written) > 5 and not [path for path in written if path.stat().st_mode & 0o007], (
            "records are not for every user"
        )
        assert re.fullmatch("copied: 20 records, [0-9]+ B, 1 group", made.out.splitlines()[-1])
        assert "a finished backup is here" in (await run(on, "create", directory)).err
        exists = await run(on, "restore", directory)
        assert (exists.code, "use --prefix, or --replace" in exists.err) == (2, True)
        assert "add --yes" in (await run(on, "restore", directory, "--replace")).err
        group = await run(on, "restore", directory, "--prefix", "x.", "--replication-factor", "1")
        assert (group.code, group.err) == (0, "")
        ends = await client.end_offsets([TopicPartition("x.t", 0), TopicPartition("x.t", 1)])
        assert list(ends.values()) == [10, 10]
        _, described = await Groups(client).describe("g")
        assert [(each.topic, each.partition, each.offset) for each in described.offsets] == [("t", 1, 4), ("x.t", 1, 4)]
        settings = await kafkalite(
            "admin", "config", "get", "--topic", "x.t", "--json", "--bootstrap", ",".join(on.bootstrap)
        )
        assert json.loads(settings.out)["settings"] == {"retention.ms": "60000"}
        whole = await kafkalite("admin", "backup", "verify", directory)
        assert (whole.code, whole.out.splitlines()[-1][:18]) == (0, "whole: 20 records,")
        next((tmp_path / "b").rglob("*.log")).write_bytes(b"")
        refused = await run(on, "restore", directory, "--prefix", "x.", "--replace", "--yes")
        assert (refused.code, "checksum" in refused.err) == (1, True), refused
        ends = await client.end_offsets([TopicPartition("x.t", 0), TopicPartition("x.t", 1)])
        assert list(ends.values()) == [10, 10], "nothing is deleted for a backup that cannot be restored"
    broken = await kafkalite("admin", "backup", "verify", directory)
    assert (broken.code, broken.err.count("\n"), "checksum" in broken.err) == (1, 1, True)


async def test_fewer_replicas_are_said_by_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that made the topics, while a broker was away, may be killed before its notes."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        assert (await run(on, "create", str(tmp_path / "b"))).code == 0
        manifest = finished_manifest(tmp_path / "b")
        manifest = replace(manifest, topics=tuple(replace(each, replication_factor=3) for each in manifest.topics))

        async def run_restore() -> Restored:
            state = RestoreState(tmp_path / "state.json")
            run = Restore(client, tmp_path / "b", manifest, Wishes("x.", quotas=True), state)
            return await run.run(limit=None, parallel=1, is_shown=False)

        with monkeypatch.context() as patch:
            patch.setattr(Restore, "_quotas", refuses)
            with pytest.raises(ApiError, match="not yours"):
                await run_restore()
        assert "x.t: 1 replica instead of 3" in (await run_restore()).notes


async def test_a_copy_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended like after Ctrl-C, with the advice to run the same command again."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        await client.create_topics([NewTopic("t", 2, 1)])
        async with Producer(client) as producer:
            await producer.send("t", None, b"x")
        assert (await run(on, "create", str(tmp_path))).code == 0
        monkeypatch.setattr(Restore, "_load", refuses)
        arguments = ["admin", "backup", "restore", str(tmp_path), "--prefix", "x."]
        said = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--bootstrap", ",".join(on.bootstrap)])
        assert "not yours" in str(said.exception)


async def test_a_topic_that_is_created_again_meanwhile_is_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest was copied from the next topic of that name, and the backup counted as finished."""
    async with cluster(1) as on, AsyncClient.connect(on.bootstrap) as client:
        copy = backup_create._copy_partition

        async def filled(*values: bytes) -> None:
            await client.create_topics([NewTopic("t", 1, 1)])
            async with Producer(client) as producer:
                for value in values:
                    await producer.send("t", None, value)

        async def slow(*arguments: Any) -> BackedPartition:
            await client.delete_topics(["t"])
            await filled(b"of", b"another", b"topic")
            return await copy(*arguments)

        await filled(b"a", b"b")
        monkeypatch.setattr(backup_create, "_copy_partition", slow)
        with pytest.raises(BackupError, match="topic 't' was deleted since this backup was begun"):
            await backup_create.create(
                client, tmp_path, backup_create.BackupSelection(("t",), None, groups=False),
                limit=None, parallel=1, is_shown=False,
            )  # fmt: skip
        assert not (tmp_path / MANIFEST).exists()
