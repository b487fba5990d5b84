"""`kafkalite pipeline`: what is refused before Spark starts, in one line, and what `stop` says of a pipeline that does not run."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalite_cli.pipeline.command import pipeline
from kafkalite_pipelines import PipelineError, load
from kafkalite_pipelines.control import announced, own, request_stop, status, supervise
from kafkalite_pipelines.session import SubmitCommand
from kafkalite_pipelines.template import template

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
        ("backfill FILE --from=yesterday --table=t", "'yesterday' is not earliest, latest, a time (2026-11-22T08:00:00Z) or offsets as JSON"),
        ("backfill FILE --from=earliest", "give one of --table, --path, --topic and --same-sinks"),
        ("replay FILE --from=earliest --topic=a%b", "--topic: 'a b' is not a topic's name"),
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
