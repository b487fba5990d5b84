"""`kafkalite pipeline`: from topics to tables and topics, on Spark, from one file."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalite.errors import ConfigError, KafkaliteError
from kafkalite_cli.output import Output
from kafkalite_cli.parameters import Real, Whole, json_option, with_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalite_pipelines import Pipeline

_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group("pipeline")
def pipeline() -> None:
    """Run data pipelines on Spark: from topics to tables and topics, exactly once, described in a file."""


@pipeline.command()
@_FILE
@click.option("--topic", default="events", show_default=True, help="The topic to read.")
@click.option("--name", help="The pipeline's name [default: the file's].")
@click.option("--bootstrap", default="localhost:9092", show_default=True, metavar="HOST:PORT,…", help="Brokers.")
@click.option("--force", is_flag=True, help="Replace the file.")
def init(file: Path, topic: str, name: str | None, bootstrap: str, *, force: bool) -> None:
    """Write a pipeline file to begin with: JSON from a topic into an Iceberg table.

    Example:

    \b
      kafkalite pipeline init flights.toml --topic flights
    """
    import tomllib

    from kafkalite_pipelines import PipelineError, parse
    from kafkalite_pipelines.template import template

    if file.exists() and not force:
        raise click.UsageError(f"{file} exists; --force replaces it")
    text = template(name or file.stem, topic, bootstrap)
    try:
        parse(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"a name, topic or address has characters that it cannot have ({error})") from None
    except PipelineError as error:
        raise click.UsageError("; ".join(error.problems)) from None
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    click.echo(f"{file} is written; next: kafkalite pipeline check {file}")


@pipeline.command()
@_FILE
@click.option("--spark", "in_spark", is_flag=True, help="Start Spark in this process, and let it check the steps.")
@json_option
def check(file: Path, *, in_spark: bool, as_json: bool) -> None:
    """Check a pipeline file, and print a line for each mistake. Starts nothing, and connects to nothing.

    With --spark the steps run on no rows: wrong SQL is found, and wrong columns if the file names the columns (decode.schema).

    Example:

    \b
      kafkalite pipeline check flights.toml
      kafkalite pipeline check flights.toml --spark
    """
    from kafkalite_pipelines import PipelineError, load
    from kafkalite_pipelines.checking import problems_around, problems_in_spark
    from kafkalite_pipelines.control import in_one_line
    from kafkalite_pipelines.session import session

    try:
        found = load(file)
        problems = tuple(problems_around(found))
        if in_spark and not problems:
            with tempfile.TemporaryDirectory(prefix="kafkalite-") as scratch, in_one_line():
                spark = session(replace(found, master=None), log_file=Path(scratch) / "spark.log")
            problems = tuple(problems_in_spark(found, spark))
    except PipelineError as error:
        problems = error.problems
    if as_json:
        click.echo(json.dumps({"file": str(file), "problems": list(problems)}))
    elif not problems:
        click.echo(f"{file} is correct")
    else:
        for problem in problems:
            click.echo(f"{file}: {problem.removeprefix(f'{file}: ')}", err=True)
    if problems:
        raise click.exceptions.Exit(2)


@pipeline.command()
@_FILE
@json_option
def plan(file: Path, *, as_json: bool) -> None:
    """Show what `run` would do: partitions, where it begins, how many records wait, and the tables' state.

    Example:

    \b
      kafkalite pipeline plan flights.toml
    """
    from kafkalite_pipelines.overview import overview

    described = _loaded(file)
    with _without_secrets(described):
        found = overview(described, file.resolve())
    if as_json:
        click.echo(json.dumps(found))
        return
    out = Output(as_json)
    rows = [
        (each["topic"], each["partition"], each["next"], each["end"], each["waiting"]) for each in found["partitions"]
    ]
    out.table(("topic", "partition", "reads from", "end", "records waiting"), rows, title="source")
    click.echo(f"decode       {found['decode']}")
    for sink in found["sinks"]:
        click.echo(f"sink         {sink['name']}: {sink['state']}")
    click.echo(f"trigger      {found['trigger']}")
    click.echo(f"checkpoint   {found['checkpoint']}")
    click.echo(f"cluster      {found['submit']}")


@pipeline.command()
@_FILE
@click.option("--once", is_flag=True, help="Read what is there now, then end.")
@click.option("--master", metavar="URL", help="Run by spark-submit on this cluster (spark://…, yarn, k8s://…).")
@click.option("--remote", metavar="URL", help="Run on a Spark Connect server (sc://host:15002).")
@click.option("--print-command", is_flag=True, help="Print the spark-submit command and end.")
@json_option
def run(file: Path, *, once: bool, master: str | None, remote: str | None, print_command: bool, as_json: bool) -> None:
    """Run a pipeline until Ctrl-C, `kafkalite pipeline stop`, or its end.

    Without --master and --remote Spark runs in this process. A pipeline that is started again continues where it was; every
    record is in the tables once. --json prints a line per batch.

    Examples:

    \b
      kafkalite pipeline run flights.toml
      kafkalite pipeline run flights.toml --once
      kafkalite pipeline run flights.toml --master spark://host:7077
    """
    from kafkalite_pipelines.control import announced
    from kafkalite_pipelines.session import submit_command

    if remote is not None and (master is not None or print_command):
        raise click.UsageError("--remote cannot be combined with --master and --print-command")
    if remote is not None and not remote.startswith("sc://"):
        raise click.UsageError(f"--remote: must be the URL of a Spark Connect server, sc://host:15002, not {remote!r}")
    if once and master is not None:
        raise click.UsageError('--once needs trigger = "available-now" in the file if spark-submit runs it')
    described = _loaded(file, once=once, runs_here=master is None and remote is None and not print_command)
    if master is not None or print_command:
        command = submit_command(described, file.resolve(), master or "spark://HOST:7077")
        click.echo(command.shown())
        if print_command:
            if command.secret:
                click.echo(f"FILE: a file of properties, mode 600, with {', '.join(sorted(command.secret))}", err=True)
            return
        if shutil.which(command.words[0]) is None:
            raise ConfigError("spark-submit is not on the PATH: install Spark, or pip install pyspark")
        with announced(described):
            code = command.run()
        raise click.exceptions.Exit(1 if code else 0)
    with _without_secrets(described):
        _run(described, remote, as_json=as_json)


@contextlib.contextmanager
def _without_secrets(described: Pipeline) -> Iterator[None]:
    """Warnings on stderr, and errors, without the secrets of the pipeline."""
    from kafkalite_pipelines.redaction import secrets_of, without

    secrets = secrets_of(described)
    logger, echo = logging.getLogger("kafkalite_pipelines"), _EchoLog(secrets)
    logger.addHandler(echo)
    try:
        yield
    except KafkaliteError as error:
        if (line := without(secrets, str(error))) != str(error):
            error.args = (line,)
        raise
    finally:
        logger.removeHandler(echo)


@pipeline.command()
@_FILE
@json_option
def status(file: Path, *, as_json: bool) -> None:
    """Show whether a pipeline runs, its last batch, and how far it is behind.

    Exit code 0 if it runs or has ended, 1 if it has failed.

    Example:

    \b
      kafkalite pipeline status flights.toml
    """
    from kafkalite_pipelines.overview import state

    found = state(_loaded(file))
    if as_json:
        click.echo(json.dumps(found))
    else:
        for line in found["lines"]:
            click.echo(line)
    if found["state"] in ("failed", "dead"):
        raise click.exceptions.Exit(1)


@pipeline.command()
@_FILE
@click.option(
    "--timeout",
    "timeout_s",
    type=Real(1, 86_400),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit.",
)
def stop(file: Path, timeout_s: float) -> None:
    """Stop a pipeline that runs, between two batches.

    Example:

    \b
      kafkalite pipeline stop flights.toml
    """
    from kafkalite_pipelines.control import is_active, request_stop
    from kafkalite_pipelines.control import status as last_run

    described = _loaded(file)
    found = last_run(described)
    if not is_active(found):
        state = "it was never started" if found is None else f"its state is {found['state']}"
        click.echo(f"{described.name} does not run: {state}")
        return
    if not request_stop(described, timeout_s):
        raise KafkaliteError(
            f"the pipeline has not stopped within {timeout_s:g} s; it stops after the batch that it is in"
        )
    click.echo("stopped")


def _loaded(file: Path, *, once: bool = False, runs_here: bool = False) -> Pipeline:
    """The pipeline, or every mistake on a line of its own and exit code 2. `runs_here`: also those that this host shows."""
    from kafkalite_pipelines import PipelineError, load
    from kafkalite_pipelines.checking import problems_around

    try:
        described = load(file)
        if runs_here and (problems := problems_around(described)):
            raise PipelineError(*problems)
    except PipelineError as error:
        for problem in error.problems[:-1]:
            click.echo(f"{file}: {problem}", err=True)
        raise ConfigError(f"{file}: {error.problems[-1].removeprefix(f'{file}: ')}") from None
    return replace(described, every_s=None) if once else described


def _run(described: Pipeline, remote: str | None, *, as_json: bool) -> None:
    from kafkalite_cli.pipeline.progress import progress_view
    from kafkalite_pipelines.cluster import check_source
    from kafkalite_pipelines.control import supervise
    from kafkalite_pipelines.session import session

    view = progress_view(described, as_json=as_json)
    with view, contextlib.ExitStack() as at_the_end:

        def start() -> SparkSession:
            if remote is None:  # a Spark Connect server may reach brokers that this host does not
                check_source(described)
            spark = session(described, remote=remote, log_file=_log_file(described))
            at_the_end.callback(spark.stop)
            return spark

        supervise(described, start, view.show)


def _log_file(described: Pipeline) -> Path | None:
    """Where Spark's processes log: beside the checkpoint, if that is on this host."""
    from kafkalite_pipelines.control import own

    location = own(described).location
    if "://" in location:
        return None
    Path(location).mkdir(parents=True, exist_ok=True)
    return Path(location) / "spark.log"


class _EchoLog(logging.Handler):
    """Warnings of a pipeline on stderr."""

    def __init__(self, secrets: frozenset[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def emit(self, record: logging.LogRecord) -> None:
        from kafkalite_pipelines.redaction import without

        click.echo(f"kafkalite pipeline: {without(self._secrets, record.getMessage())}", err=True)


@dataclass(frozen=True, slots=True)
class _RangeOptions:
    """Which records, in what pieces, into what."""

    begin: str
    end: str
    table: str | None
    path: str | None
    topic: str | None
    rate: float | None
    batch_records: int
    name: str | None

    @property
    def target(self) -> str:
        return self.table or self.path or self.topic or ""


def _range_options(verb: Callable[..., None]) -> Callable[..., None]:
    """What `backfill` and `replay` have in common: the argument `wanted` of the verb."""

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        verb(wanted=_RangeOptions(**{each.name: given.pop(each.name) for each in fields(_RangeOptions)}), **given)

    options = [
        click.option(
            "--from",
            "begin",
            required=True,
            metavar="BOUND",
            help="earliest, latest, a time (or -2h, -7d), or offsets as JSON.",
        ),
        click.option("--to", "end", default="latest", show_default=True, metavar="BOUND", help="The same; exclusive."),
        click.option("--table", metavar="NAME", help="Write into this Iceberg table, instead of the file's."),
        click.option(
            "--path", metavar="PATH", help="Write into this Delta table or Parquet directory, instead of the file's."
        ),
        click.option("--topic", metavar="TOPIC", help="Write into this topic, instead of the file's."),
        click.option("--rate", type=Real(1), metavar="RECORDS", help="At most this number of records per second."),
        click.option("--batch-records", type=Whole(1), default=500_000, show_default=True, help="Records per batch."),
        click.option(
            "--name", help="A name of this range, to continue it after an interruption [default: from the target]."
        ),
    ]
    return with_options(command, options)


@pipeline.command()
@_FILE
@_range_options
@click.option("--same-sinks", is_flag=True, help="Write into the file's own sinks: the range must not be in them yet.")
@json_option
def backfill(file: Path, wanted: _RangeOptions, *, same_sinks: bool, as_json: bool) -> None:
    """Put a range of records through a pipeline's decoding and steps into another table or topic, exactly once.

    The pipeline itself may run meanwhile. The same command continues a range that was interrupted.

    Examples:

    \b
      kafkalite pipeline backfill flights.toml --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --table flights_week
      kafkalite pipeline backfill flights.toml --from earliest --to '{"flights": {"0": 5000, "1": 5000}}' --same-sinks --rate 20000
    """
    from kafkalite_cli.pipeline.targets import label, targets
    from kafkalite_pipelines.backfill import backfill_of

    described = _loaded(file, runs_here=True)
    sinks = targets(described, wanted.table, wanted.path, wanted.topic, same_sinks=same_sinks)
    chosen = label(wanted.name, "backfill", wanted.target or "same")
    _run_range(backfill_of(described, chosen, sinks), wanted, as_json=as_json)


@pipeline.command()
@_FILE
@_range_options
@click.option(
    "--at-least-once",
    is_flag=True,
    help="With --topic, for brokers of Apache Kafka, which have no exactly-once for Spark.",
)
@json_option
def replay(file: Path, wanted: _RangeOptions, *, at_least_once: bool, as_json: bool) -> None:
    """Copy a range of a pipeline's records, as they are, into another topic or table, exactly once.

    A table gets the columns key, value, headers and the hidden ones. The same command continues a range that was interrupted.

    Examples:

    \b
      kafkalite pipeline replay flights.toml --from 2026-11-22T08:00:00Z --to 2026-11-22T09:00:00Z --topic flights-again
      kafkalite pipeline replay flights.toml --from earliest --table flights_raw
    """
    from kafkalite_cli.pipeline.targets import label, replay_target
    from kafkalite_pipelines.backfill import replay_of

    described = _loaded(file)
    sink = replay_target(described, wanted.table, wanted.path, wanted.topic, at_least_once=at_least_once)
    chosen = label(wanted.name, "replay", wanted.target)
    _run_range(replay_of(described, chosen, sink), wanted, as_json=as_json)


def _run_range(described: Pipeline, options: _RangeOptions, *, as_json: bool) -> None:
    from kafkalite_cli.pipeline.targets import bound
    from kafkalite_pipelines.backfill import Range, Report, run
    from kafkalite_pipelines.session import session

    wanted, rate = Range(bound(options.begin), bound(options.end)), options.rate
    largest = options.batch_records if rate is None else min(options.batch_records, max(int(rate * 10), 1))

    def show(report: Report) -> None:
        if as_json:
            click.echo(json.dumps(asdict(report)))
            return
        if report.batch is None:
            click.echo("nothing to do: the range has no records, or was finished before")
            return
        share = 100 * report.done / report.total if report.total else 100.0
        bad = f", {report.bad:,} not decoded" if report.bad else ""
        click.echo(
            f"batch {report.batch}: {report.records:,} records in {report.seconds:.1f} s{bad}; {share:.0f} % of {report.total:,}"
        )

    with _without_secrets(described), contextlib.ExitStack() as at_the_end:

        def start() -> SparkSession:
            spark = session(described, log_file=_log_file(described))
            at_the_end.callback(spark.stop)
            return spark

        if run(described, start, wanted, show, max_records=largest, records_per_s=rate) and not as_json:
            click.echo("done")
