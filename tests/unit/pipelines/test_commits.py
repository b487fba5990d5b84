"""What sinks commit, without Spark: values of partitions in paths, and where a pipeline's last batch is found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable, write_deltalake
from deltalake import Schema as DeltaSchema

from kafkalite.model import TopicPartition
from kafkalite_pipelines import DeltaSink, ParquetSink, Pipeline, PipelineError, Source, TopicSink
from kafkalite_pipelines.batches import Batches, commit, dead_letters_of
from kafkalite_pipelines.definition import DELETED
from kafkalite_pipelines.places import Place
from kafkalite_pipelines.run import check_progress, resume_from
from kafkalite_pipelines.sinks import writing
from kafkalite_pipelines.sinks.delta import DeltaSinkTable, _DeltaAppend
from kafkalite_pipelines.sinks.delta_keyed import KeyedDeltaTable, _Merged
from kafkalite_pipelines.sinks.opening import open_sink
from kafkalite_pipelines.sinks.parquet import ParquetFiles, _StagedFiles, _staging
from kafkalite_pipelines.sinks.sink import Batch
from kafkalite_pipelines.sinks.tables import Interval
from tests.spark.fake_log import FakeLog

ROWS = pa.table({"n": [1, 2]})


def batch(pipeline: str, number: int) -> Batch:
    return Batch(pipeline, f"query of {pipeline}", number, {"t": {"0": number}})


@pytest.mark.parametrize("value", ["plain", "a/b c", "100%", "k=v", "é:?#", "%41", None])
def test_a_partition_has_any_value(tmp_path: Path, value: str | None) -> None:
    sink = DeltaSink("t", partition_by=("kind",))
    table = DeltaSinkTable(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    schema = pa.schema([("kind", pa.string()), ("n", pa.int64())])
    made = DeltaTable.create(table.location, schema=DeltaSchema.from_arrow(schema), partition_by=["kind"])
    files = writing.files_of(ROWS, table._target(made), "prefix", (value,))
    assert _DeltaAppend(table, batch("p", 1), files).commit() == 2
    found = DeltaTable(table.location).to_pyarrow_table().to_pylist()
    assert [(row["kind"], row["n"]) for row in found] == [(value, 1), (value, 2)]


def test_a_delta_table_has_the_last_batch_of_each_pipeline(tmp_path: Path) -> None:
    sink = DeltaSink("t")
    tables = {
        name: DeltaSinkTable(Pipeline(name, {}, Source(("t",)), (sink,), directory=tmp_path), sink) for name in "pqr"
    }
    write_deltalake(tables["p"].location, ROWS)
    for name in "pq":
        present = tables[name].table()
        assert present is not None
        files = writing.files_of(ROWS, tables[name]._target(present), "prefix", ())
        assert _DeltaAppend(tables[name], batch(name, 3), files).commit() == 2
    for _ in range(12):
        write_deltalake(tables["p"].location, ROWS, mode="append")
    for name in "pq":
        recorded = tables[name].recorded()
        assert recorded is not None and recorded.has(batch(name, 3)) and not recorded.has(batch(name, 4))
    assert tables["r"].recorded() is None


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_files_that_no_delta_table_names_are_removed(tmp_path: Path, scheme: str) -> None:
    """A vacuum removes only files that an earlier version names: those of each batch that failed stayed for ever."""
    sink = DeltaSink(f"{scheme}{tmp_path}/t", partition_by=("kind",))
    table = DeltaSinkTable(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    schema = pa.schema([("kind", pa.string()), ("n", pa.int64())])
    made = DeltaTable.create(table.location, schema=DeltaSchema.from_arrow(schema), partition_by=["kind"])

    def staged() -> _DeltaAppend:
        return _DeltaAppend(table, batch("p", 1), writing.files_of(ROWS, table._target(made), "prefix", ("a b",)))

    def files() -> int:
        return len(list(tmp_path.rglob("*.parquet")))

    failed = staged()
    assert files() == 1
    failed.discard()
    failed.discard()  # a failure costs room only
    assert files() == 0
    assert staged().commit() == 2 and files() == 1
    assert staged().commit() == 0 and files() == 1, "a batch that was there already"
    assert DeltaTable(table.location).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("more", [(), (TopicSink("out"),)])
def test_a_checkpoint_that_is_older_than_a_table(tmp_path: Path, more: tuple[TopicSink, ...]) -> None:
    """Its next batch has the number of one that the table has, and other records: it was passed over."""
    sink = DeltaSink("t")
    pipeline = Pipeline("p", {}, Source(("t",)), (sink, *more), directory=tmp_path)
    table = DeltaSinkTable(pipeline, sink)
    write_deltalake(table.location, ROWS)
    present = table.table()
    assert present is not None
    _DeltaAppend(table, batch("p", 3), writing.files_of(ROWS, table._target(present), "prefix", ())).commit()
    nothing: Any = None  # Spark is not asked
    batches = Batches(pipeline, nothing, [open_sink(pipeline, each) for each in pipeline.sinks])
    assert batches._is_done(batch("p", 3)) == (not more) and not batches._is_done(batch("p", 4))
    with pytest.raises(PipelineError, match="is older than Delta table t, where batch 3 ends at other offsets"):
        batches.process(nothing, replace(batch("p", 3), offsets={"t": {"0": 4}}))
    with pytest.raises(PipelineError, match="is older than Delta table t, where batch 2 is followed by 3"):
        batches.process(nothing, batch("p", 2))


def test_a_batch_that_runs_again_with_other_dead_letters(tmp_path: Path) -> None:
    """It had died before its tables' commit, and a new schema was there when it ran again: records that do not fit that one were
    neither in a table nor among the dead letters, which were taken for written."""
    place = Place(str(tmp_path))
    ours = batch("p", 3)
    first = dead_letters_of(place, ours, 17)
    assert first == ours == dead_letters_of(place, ours, 17)
    others = dead_letters_of(place, ours, 18)
    assert others.query != ours.query and replace(others, query=ours.query) == ours
    assert dead_letters_of(place, ours, 18) == others, "it may have died again, before or after these were written"
    assert dead_letters_of(place, batch("p", 4), 18) == batch("p", 4)


@pytest.mark.parametrize(
    ("done", "older"),
    [({}, False), ({"t": 7, "other": 99}, False), ({"t": 8}, True)],
)
def test_a_checkpoint_that_is_older_than_a_topic(
    done: dict[str, int], *, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic cannot say where its batches end: batches that were planned again with more records were passed over."""
    log = FakeLog(committed={"p": {TopicPartition(topic, 0): offset for topic, offset in done.items()}})
    monkeypatch.setattr("pyspark_kafkalite.clients.shared", lambda _: log)
    pipeline = Pipeline("p", {"bootstrap.servers": "h:1"}, Source(("t",)), (TopicSink("out"),))
    if not older:
        check_progress(pipeline, {"t": {"0": 7}})
    else:
        with pytest.raises(
            PipelineError, match="ends at offset 7 of t-0, and group p has committed 8: the checkpoint is older"
        ):
            check_progress(pipeline, {"t": {"0": 7}})


def test_a_batch_that_changes_nothing_is_recorded_too(tmp_path: Path) -> None:
    """Else the tables of a pipeline end at different offsets, and it cannot continue without its checkpoint."""
    sink = DeltaSink("t", key=("n",))
    table = KeyedDeltaTable(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    write_deltalake(table.location, pa.table({"n": [1, 2]}))
    nothing = pa.table({"n": pa.array([], pa.int64()), DELETED: pa.array([], pa.bool_())})
    deletion = pa.table({"n": [3], DELETED: [True]})
    for number, (rows, changed) in enumerate([(nothing, 0), (deletion, 1), (nothing, 0)]):
        assert _Merged(table, batch("p", number), rows).commit() == changed
        assert _Merged(table, batch("p", number), rows).commit() == 0, "it is there"
        recorded = table.recorded()
        assert recorded is not None and recorded.number == number
    assert DeltaTable(table.location).version() == 3
    new = pa.table({"n": [5], DELETED: [False]})
    assert _Merged(table, batch("p", 3), new).commit() == 1 and DeltaTable(table.location).version() == 4
    assert sorted(DeltaTable(table.location).to_pyarrow_table().column("n").to_pylist()) == [1, 2, 5]


def test_a_row_replaces_another_as_a_whole(tmp_path: Path) -> None:
    """As in an Iceberg table: a column that the rows no longer have kept its old value in Delta."""
    sink = DeltaSink("t", key=("n",))
    table = KeyedDeltaTable(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    write_deltalake(table.location, pa.table({"n": [1, 2], "name": ["old", "old"]}))
    assert _Merged(table, batch("p", 0), pa.table({"n": [1], DELETED: [False]})).commit() == 1
    found = DeltaTable(table.location).to_pyarrow_table().to_pylist()
    assert {row["n"]: row["name"] for row in found} == {1: None, 2: "old"}


def test_the_memory_of_a_task_is_bounded_over_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_WAITING_BYTES", 10_000)
    most: list[int] = []
    flush = writing._File.flush

    def flushed(file: writing._File) -> None:
        most.append(file.waiting_bytes)
        flush(file)

    monkeypatch.setattr(writing._File, "flush", flushed)
    target = writing.Target(str(tmp_path), ROWS.schema, ("kind",))
    rows = pa.RecordBatch.from_pydict({"n": range(200), f"{writing.PARTITION}0": [n % 20 for n in range(200)]})
    written = list(writing.files(iter([rows] * 50), target, "prefix"))
    assert len(written) == 20 and sum(file.rows for file in written) == 200 * 50
    assert len(most) > 20 and sum(most) == 200 * 50 * 8
    assert ds.dataset(tmp_path).count_rows() == 200 * 50


def test_plain_files_have_the_last_batch_of_each_pipeline(tmp_path: Path) -> None:
    """A backfill into the pipeline's own directory leaves the pipeline's record as it is."""
    sink = ParquetSink("files")
    for name, number in (("p", 3), ("p.backfill", 7), ("p", 4)):
        files = ParquetFiles(Pipeline(name, {}, Source(("t",)), (sink,), directory=tmp_path), sink)
        ours = batch(name, number)
        target = writing.Target(f"{files.location}/{_staging(ours)}", ROWS.schema, ())
        written = writing.files_of(ROWS, target, ours.prefix, ())
        writing.files_of(ROWS, target, "of an attempt that lost", ())
        assert _StagedFiles(files, ours, written).commit() == 2
        assert _StagedFiles(files, ours, written).commit() == 0, "it is there"
    for name, number in (("p.backfill", 7), ("p", 4)):
        recorded = ParquetFiles(Pipeline(name, {}, Source(("t",)), (sink,), directory=tmp_path), sink).recorded()
        assert recorded is not None and recorded.number == number and recorded.has(batch(name, number))
    assert ds.dataset(tmp_path / "files").count_rows() == 6
    assert list((tmp_path / "files" / "_staging").iterdir()) == []


@pytest.mark.parametrize("at", ["the record", "the rename", "the record behind it"])
def test_plain_files_that_die_around_their_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Dead between rename and record, and without its checkpoint, a pipeline wrote the batch again."""
    sink = ParquetSink("files")
    files = ParquetFiles(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)

    def staged(number: int) -> _StagedFiles:
        ours = batch("p", number)
        target = writing.Target(f"{files.location}/{_staging(ours)}", ROWS.schema, ())
        return _StagedFiles(files, ours, writing.files_of(ROWS, target, ours.prefix, ()))

    def visible() -> int:
        return int(ds.dataset(tmp_path / "files").count_rows())

    assert staged(0).commit() == 2
    write, move = Place.write, Place.move
    died: list[str] = []

    def dies(*, when: bool) -> None:
        if when and not died:
            died.append(at)
            raise KeyboardInterrupt

    def writes(place: Place, name: str, text: str) -> None:
        dies(when=at == "the record" or (at == "the record behind it" and "before" not in json.loads(text)))
        write(place, name, text)

    def moves(place: Place, name: str, to: str) -> None:
        dies(when=at == "the rename" and to.startswith("batch="))
        move(place, name, to)

    monkeypatch.setattr(Place, "write", writes)
    monkeypatch.setattr(Place, "move", moves)
    with pytest.raises(KeyboardInterrupt):
        staged(1).commit()
    recorded = files.recorded()
    assert recorded is not None and (recorded.number, visible()) == ((1, 4) if at == "the record behind it" else (0, 2))
    staged(1).commit()
    recorded = files.recorded()
    assert recorded is not None and recorded.number == 1 and visible() == 4
    staged(2).commit()
    recorded = files.recorded()
    shutil.rmtree(tmp_path / "files" / f"batch={batch('p', 2).prefix}")  # no longer wanted: the record stays
    assert files.recorded() == recorded


def test_a_delta_table_says_where_a_pipeline_ends_behind_many_commits_of_others(tmp_path: Path) -> None:
    """Behind 1,000 of them its batches were written again, if its checkpoint was lost."""
    sink = DeltaSink("t")
    pipeline = Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path)
    table = DeltaSinkTable(pipeline, sink)
    write_deltalake(table.location, ROWS)
    for number in range(2):
        present = table.table()
        assert present is not None
        files = writing.files_of(ROWS, table._target(present), "prefix", ())
        assert _DeltaAppend(table, batch("p", number), files).commit() == 2
    newest = table.location + "/_delta_log/00000000000000000002.json"
    for _ in range(12):
        write_deltalake(table.location, ROWS, mode="append")
    present = table.table()
    assert present is not None
    present.create_checkpoint()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafkalite_pipelines.sinks.delta._OLD_COMMITS", 0)
        recorded = table.recorded()
        assert recorded is not None and (recorded.number, recorded.offsets) == (1, {"t": {"0": 1}})
        for file in sorted(Path(newest).parent.glob("*.json"))[:4]:
            file.unlink()  # as a clean-up of the log does
        lost = table.recorded()
        assert lost is not None and not lost.has(batch("p", 0))
        with pytest.raises(PipelineError, match="the log of Delta table t no longer says where its batches end"):
            resume_from(pipeline, [table])


def test_tables_are_committed_after_topics() -> None:
    """A topic cannot say that it lacks a batch; a pipeline that lost its checkpoint begins where its tables end."""
    done: list[str] = []

    class Sink:
        def __init__(self, name: str, *, eager: bool) -> None:
            self.name, self.eager = name, eager

        def commit(self) -> int:
            done.append(self.name)
            return 1

    sinks: list[Any] = [Sink("a", eager=True), Sink("b", eager=False), Sink("c", eager=True)]
    assert commit([(sink, sink) for sink in sinks]) == {"a": 1, "b": 1, "c": 1}
    assert done == ["b", "a", "c"]


def test_a_round_of_maintenance_is_due_over_restarts(tmp_path: Path) -> None:
    """A pipeline that is started every ten minutes, for what is there, never merged a file."""
    now = [1_000.0]
    pipeline = Pipeline("p", {}, Source(("t",)), (DeltaSink("t"),), directory=tmp_path)
    asked = []
    for _ in range(13):
        asked.append(Interval(pipeline, "Delta table t", lambda: now[0]).is_over(3600))
        now[0] += 600
    assert [number for number, due in enumerate(asked) if due] == [6, 12]
    now[0] = 0.0  # the clock was set back
    assert Interval(pipeline, "Delta table t", lambda: now[0]).is_over(3600)
    running = Interval(pipeline, "another", lambda: now[0])
    assert [running.is_over(3600), running.is_over(3600)] == [False, False]


def test_minus_zero_is_the_key_zero() -> None:
    """To Spark they are one key, to Arrow two: the table had both."""
    from kafkalite_pipelines.sinks.iceberg_keyed import others

    rows = pa.table({"f": [-0.0, 0.0, float("nan"), 1.5], "n": [1, 2, 3, 4]})
    keys = pa.table({"f": [0.0, float("nan")]})
    assert others(rows, keys).column("n").to_pylist() == [4]
    both = keys.append_column("g", pa.array(["x", "x"]))
    assert others(rows.append_column("g", pa.array(["x"] * 4)), both).column("n").to_pylist() == [4]


def test_an_empty_text_is_no_name_of_a_directory() -> None:
    """Spark refuses the whole directory."""
    from kafkalite_pipelines.sinks.partitions import directory

    assert directory(["a", "b"], ["", None]) == "a=__HIVE_DEFAULT_PARTITION__/b=__HIVE_DEFAULT_PARTITION__"
    assert directory(["a", "b"], [False, 0]) == "a=false/b=0"


@pytest.mark.parametrize("exists", [False, True])
def test_a_delta_table_whose_files_have_other_names_of_columns_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exists: bool
) -> None:
    """Our files have the columns' own names: readers saw null in all of their rows."""
    mapped = {"delta.columnMapping.mode": "name"}
    sink = DeltaSink("t", properties=mapped)
    table = DeltaSinkTable(Pipeline("p", {}, Source(("t",)), (sink,), directory=tmp_path), sink)
    if exists:
        DeltaTable.create(table.location, schema=DeltaSchema.from_arrow(ROWS.schema), configuration=mapped)
    monkeypatch.setattr("kafkalite_pipelines.sinks.delta.arrow_schema", lambda rows: rows.schema)
    with pytest.raises(PipelineError, match=r"has delta.columnMapping.mode = name, which a pipeline cannot write"):
        table.prepared(ROWS)
