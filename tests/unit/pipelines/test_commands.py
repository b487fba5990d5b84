"""`kafkalite pipeline`: what is refused before Spark starts, in one line, and what `stop` says of a pipeline that does not run."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from kafkalite.model import TopicPartition as Tp
from kafkalite_cli.pipeline.command import pipeline
from kafkalite_cli.pipeline.targets import replay_target
from kafkalite_pipelines import IcebergSink, ParquetSink, PipelineError, TopicSink, backfill, cluster, load, session
from kafkalite_pipelines.control import announced, own, request_stop, status, supervise
from kafkalite_pipelines.places import Checkpoint
from kafkalite_pipelines.session import SubmitCommand
from kafkalite_pipelines.template import template
from pyspark_kafkalite.clients import Unreachable
from pyspark_kafkalite.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flights.toml"
    path.write_text(template("flights", "flights", "localhost:9092"))
    return path


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (None, "flights does not run: it was never started"),
        ({"state": "ended", "host": "h", "pid": 1}, "flights does not run: its state is ended"),
        ({"state": "failed", "host": "h", "pid": 1}, "flights does not run: its state is failed"),
    ],
)
def test_a_pipeline_that_does_not_run_is_not_said_to_have_stopped(
    run: dict[str, object] | None, line: str, file: Path
) -> None:
    if run is not None:
        own(load(file)).write("run.json", json.dumps(run))
    result = CliRunner().invoke(pipeline, ["stop", str(file)])
    assert (result.exit_code, result.output) == (0, f"{line}\n")


NAMES = "must be letters, digits, '.', '_' and '-', 200 at most, not"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("init new.toml --name=a%b", f"name: {NAMES} 'a b'"),
        ("init new.toml --topic=a%b", "source.topics: 'a b' is not a topic's name; for a pattern use source.pattern"),
        ("init new.toml --bootstrap=nohost", "kafka.bootstrap.servers: 'nohost' is not host:port"),
        ('init new.toml --name=a"b', "a name, topic or address has characters that it cannot have"),
        ("run FILE --remote=http://h", "--remote: must be the URL of a Spark Connect server, sc://host:15002, not 'http://h'"),
        ("run FILE --remote=sc://h --master=local", "--remote cannot be combined with --master and --print-command"),
        ("run FILE --once --master=local", '--once needs trigger = "available-now" in the file if spark-submit runs it'),
        ("backfill FILE --from=earliest --table=a.b.c", "--table: 'a.b.c' is not a name or namespace.name"),
        ("backfill FILE --from=earliest --table=flights", "--table flights is the file's own; --same-sinks if that is meant"),
        ("backfill FILE --from=earliest --table=default.flights", "--table default.flights is the file's own; --same-sinks if that is meant"),
        ("backfill FILE --from=earliest --topic=a%b", "--topic: 'a b' is not a topic's name"),
        ("backfill FILE --from=earliest --table=t --name=../t", f"--name: {NAMES} '../t'"),
        ("backfill FILE --from=yesterday --table=t", "'yesterday' is not earliest, latest, a time (2026-11-22T10:00:00Z), a time ago (-15m, -2h, -1d) or offsets as JSON"),
        ("backfill FILE --from=earliest", "give one of --table, --path, --topic and --same-sinks"),
        ("replay FILE --from=earliest --topic=a%b", "--topic: 'a b' is not a topic's name"),
        ("replay FILE --from=earliest", "give one of --table, --path and --topic"),
        ("replay FILE --from=earliest --table=t --topic=t", "give one of --table, --path and --topic"),
        ("replay FILE --from=earliest --table=default.flights", "--table default.flights is the file's own; a replay goes into another one"),
        ("replay FILE --from=earliest --path=p", "--path needs a delta or parquet sink in the file; use --table"),
        ("replay FILE --from=earliest --table=t --at-least-once", "--at-least-once is for --topic: a table has each record once on every cluster"),
    ],
)  # fmt: skip
def test_what_is_refused_before_spark_starts(
    words: str, line: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    arguments = [word.replace("%", " ").replace("FILE", file.name) for word in words.split(" ")]
    result = CliRunner().invoke(pipeline, arguments)
    assert result.exit_code == 2 and f"Error: {line}" in result.output, result.output
    assert not Path("new.toml").exists()


@pytest.mark.parametrize("target", ["--path=./lake/x", "--path=lake/y", "--topic=out"])
def test_a_backfill_into_a_place_of_the_file_itself_is_refused(
    target: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first sink was compared, as it was written: old rows replaced newer ones of a table with a key."""
    monkeypatch.chdir(file.parent)
    with file.open("a") as more:
        for place in ('"delta"\npath = "lake/x"', '"delta"\npath = "lake/y"', '"topic"\ntopic = "out"'):
            more.write(f"\n[[sinks]]\nformat = {place}\n")
    result = CliRunner().invoke(pipeline, ["backfill", file.name, "--from=earliest", target])
    line = f"{target.replace('=', ' ')} is the file's own; --same-sinks if that is meant"
    assert result.exit_code == 2 and line in result.output, result.output


def test_init_into_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    result = CliRunner().invoke(pipeline, ["init", str(tmp_path / "nowhere" / "a.toml")])
    assert "a.toml cannot be written: No such file or directory" in str(result.exception)


def test_a_checkpoint_of_another_pipeline(file: Path) -> None:
    """It was continued: from the other one's offsets, under a name that the tables do not know."""
    own(load(file)).write("run.json", json.dumps({"name": "other", "state": "ended"}))
    with pytest.raises(
        PipelineError, match=r"checkpoint: .*/flights is that of pipeline other; flights needs one of its own"
    ):
        supervise(load(file), object())


def test_a_pipeline_whose_spark_starts_is_starting(file: Path) -> None:
    """It was said to be new, and `stop` found nothing to stop: Spark takes a minute on a busy host."""
    described = load(file)
    seen = []

    def start() -> SparkSession:
        seen.append((status(described) or {})["state"])
        seen.append(request_stop(described, 0.0))
        with pytest.raises(PipelineError, match="flights runs already"):
            supervise(described, lambda: pytest.fail("a second Spark starts"))
        raise PipelineError("no Java")

    with pytest.raises(PipelineError, match="no Java"):
        supervise(described, start)
    assert seen == ["starting", False]
    last = status(described) or {}
    assert (last["state"], last["error"]) == ("failed", "no Java")


def test_a_start_that_was_killed_is_dead(file: Path) -> None:
    run = {"name": "flights", "state": "starting", "host": socket.gethostname(), "pid": 2**22 + 1}
    own(load(file)).write("run.json", json.dumps(run))
    assert (status(load(file)) or {})["state"] == "dead"


@pytest.mark.parametrize("words", [["run"], ["backfill", "--from=earliest", "--table=again"]])
def test_what_check_would_find_is_found_before_spark_starts(words: list[str], file: Path) -> None:
    """The first batch found it, a minute later."""
    with file.open("a") as more:
        more.write('\n[[steps]]\npython = "nowhere:clean"\n')
    result = CliRunner().invoke(pipeline, [words[0], str(file), *words[1:]])
    assert "steps[1].python: there is no module nowhere" in str(result.exception)


def test_a_pipeline_that_is_ended_by_ctrl_c_has_not_failed(file: Path) -> None:
    """`run` runs until Ctrl-C; `status` said that it had failed, with exit code 1."""

    def start() -> SparkSession:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise(load(file), start)
    last = status(load(file)) or {}
    assert last["state"] == "ended" and "error" not in last


@pytest.mark.parametrize(
    ("logged", "line"),
    [
        (
            "WARNING: Using incubator modules\nInvalid maximum heap size: -Xmx9e\nError: Could not create the Java Virtual Machine.\n",
            "Invalid maximum heap size: -Xmx9e; Error: Could not create the Java Virtual Machine.",
        ),
        ("", "nothing is in .*spark.log"),
    ],
)
def test_a_java_that_does_not_start_says_why(
    file: Path, logged: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a stack of Python's, and the reason in a file that nobody named."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    def exits(_: object) -> None:
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1 -XX:+DisplayVMOutputToStderr", "else it says why on stdout"
        os.write(2, logged.encode())
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", exits)
    monkeypatch.setattr(session, "_prepare_host", lambda: None)
    log_file = tmp_path / "spark.log"
    log_file.write_text("of an earlier run\n")
    with pytest.raises(PipelineError, match=f"^Spark's process did not start: {line}$"):
        session.session(load(file), log_file=log_file)
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"


def test_what_spark_says_while_it_starts_is_one_line(file: Path) -> None:
    """As of a master or a Connect server that does not answer: it was a stack of Python's."""
    from pyspark.errors import PySparkException

    def start() -> SparkSession:
        raise PySparkException("[CANNOT_CONNECT] nobody is there\n\tat org.apache.spark")

    with pytest.raises(PipelineError, match=r"^\[CANNOT_CONNECT\] nobody is there$"):
        supervise(load(file), start)


def test_a_range_without_records_is_a_line_and_starts_no_spark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json it printed nothing."""
    ends = {Tp("flights", 0): 7}
    monkeypatch.setattr(backfill, "_bounds", lambda *_: (ends, ends))
    monkeypatch.setattr(backfill, "_topic_ids", lambda *_: {})
    monkeypatch.setattr(session, "session", lambda *_, **__: pytest.fail("Spark starts"))
    words = ["backfill", str(file), "--from=latest", "--table=t"]
    result = CliRunner().invoke(pipeline, [*words, "--json"], catch_exceptions=False)
    wanted: dict[str, object] = {
        "batch": None,
        "records": 0,
        "bad": 0,
        "rows": {},
        "seconds": 0.0,
        "total": 0,
        "done": 0,
    }
    assert json.loads(result.output) == wanted
    result = CliRunner().invoke(pipeline, words, catch_exceptions=False)
    assert result.output == "nothing to do: the range has no records, or was finished before\n"


def test_a_replay_into_a_table_keeps_what_records_have(file: Path) -> None:
    """Its columns are key, value, headers and the hidden ones."""
    text = file.read_text().replace('["day(_timestamp)"]', '["day(_timestamp)", "number"]\nkey = ["number"]')
    file.write_text(f'{text}\n[[sinks]]\nformat = "parquet"\npath = "files"\npartition_by = ["number", "_topic"]\n')
    described = load(file)
    own_table = described.sinks[0]
    assert isinstance(own_table, IcebergSink) and own_table.key == ("number",)
    found = replay_target(described, "raw", None, None, at_least_once=False)
    assert found == replace(own_table, table="raw", key=(), partition_by=("day(_timestamp)",))
    found = replay_target(described, None, "raw", None, at_least_once=False)
    assert found == ParquetSink("raw", ("_topic",))
    assert replay_target(described, None, None, "again", at_least_once=True) == TopicSink(
        "again", None, "at-least-once"
    )


def test_a_pipeline_that_spark_submit_starts_is_starting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to be new until the Python process of spark-submit ran, and `stop` found nothing to stop."""
    seen = []

    def spark_submit(_: SubmitCommand) -> int:
        seen.append((status(load(file)) or {})["state"])
        assert not request_stop(load(file), 0.0)
        return 3

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/spark-submit")
    monkeypatch.setattr(SubmitCommand, "run", spark_submit)
    result = CliRunner().invoke(pipeline, ["run", str(file), "--master=local"])
    last = status(load(file)) or {}
    assert (result.exit_code, seen, last["state"]) == (1, ["starting"], "failed")
    assert last["error"] == "spark-submit has ended before the pipeline began: its output says why"


def test_a_stop_is_heard_while_spark_submit_starts(file: Path) -> None:
    """Its process took the request for one of an earlier run."""
    described = load(file)

    def start() -> SparkSession:
        assert own(described).exists("stop")
        raise PipelineError("as far as this goes")

    with announced(described):
        request_stop(described, 0.0)
        with pytest.raises(PipelineError, match="as far as this goes"):
            supervise(described, start)
    assert (status(described) or {})["error"] == "as far as this goes", "what the process wrote stays"
    with pytest.raises(AssertionError):
        supervise(described, start)


def test_brokers_that_cannot_be_reached_are_found_before_spark_starts(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark said so, ten seconds after its start."""
    unreachable = SimpleNamespace(partitions=Mock(side_effect=Unreachable("localhost:9092 cannot be reached")))
    monkeypatch.setattr(cluster, "connected", lambda *_: unreachable)
    monkeypatch.setattr(session, "session", lambda *_, **__: pytest.fail("Spark starts"))
    result = CliRunner().invoke(pipeline, ["run", str(file)])
    assert isinstance(result.exception, PipelineError) and "localhost:9092 cannot be reached" in str(result.exception)
    assert (status(load(file)) or {})["state"] == "failed"


def test_a_topic_that_is_gone_does_not_keep_a_pipeline_from_going_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With source.fail_on_data_loss false its stream goes on with the other topics; a pipeline that has not begun needs all of them."""
    without = SimpleNamespace(
        partitions=Mock(side_effect=OptionError("topic flights does not exist")), existing_partitions=dict
    )
    monkeypatch.setattr(cluster, "connected", lambda *_: without)
    with pytest.raises(PipelineError, match="topic flights does not exist"):
        cluster.check_source(load(file))
    monkeypatch.setattr(Checkpoint, "last_batch", lambda _: 3)
    cluster.check_source(load(file))
