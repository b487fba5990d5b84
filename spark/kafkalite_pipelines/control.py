"""A pipeline that runs, seen from other processes: what it does (status), and the request to stop. Files beside the checkpoint."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.errors import KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.definition import Pipeline, PipelineError
from kafkalite_pipelines.places import OWN, Checkpoint, Place
from kafkalite_pipelines.redaction import secrets_of, without
from kafkalite_pipelines.remote import is_remote
from kafkalite_pipelines.remote import results as remote_results
from kafkalite_pipelines.source import as_in_the_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalite_pipelines.batches import BatchResult

log = logging.getLogger("kafkalite_pipelines")

_RUN, _STOP = "run.json", "stop"
#: How often the request to stop and Spark's progress are looked for.
_POLL_S = 0.3
#: A batch that is running when the pipeline is asked to stop may take this time to end; then it is repeated at the next start.
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """One batch, as people and programs see it."""

    batch: int
    records: int
    bad: int
    rows: dict[str, int]
    #: Of the whole batch.
    seconds: float
    records_per_s: float
    #: Records that were not read yet when the batch was planned; None: Spark did not report it.
    behind: int | None
    maintenance: tuple[str, ...] = ()


def own(pipeline: Pipeline) -> Place:
    """The directory of a pipeline's own files."""
    return Place(f"{pipeline.place(pipeline.checkpoint)}/{OWN}")


def supervise(
    pipeline: Pipeline,
    spark: SparkSession | Callable[[], SparkSession],
    on_progress: Callable[[PipelineProgress], None] = lambda _: None,
) -> int:
    """Run the pipeline until it ends, fails or is asked to stop. 0, or PipelineError with one line on what failed.

    Args:
        spark: the session, or what starts one. Meanwhile the state is "starting"; nothing starts if the pipeline runs already.
    """
    from kafkalite_pipelines.run import start

    place = own(pipeline)
    with only_one(pipeline):
        _check_owner(pipeline, place)
        if (status(pipeline) or {}).get("state") != "starting":  # else it is for us: see `announced`
            place.remove(_STOP)
        results: list[BatchResult] = []
        run = _starting(pipeline)
        place.write(_RUN, json.dumps(run))
        try:
            with in_one_line():
                session = spark() if callable(spark) else spark
                query = start(pipeline, session, results.append)
            run["state"] = "running"
            place.write(_RUN, json.dumps(run))
            if is_remote(session):
                _watch(query, place, run, _Received(pipeline), on_progress)
            else:
                _watch(query, place, run, results, on_progress)
        except KeyboardInterrupt:  # one of the ways in which a pipeline is meant to end
            place.write(_RUN, json.dumps(run | {"state": "ended", "updated": _now()}))
            raise
        except BaseException as error:
            line = without(secrets_of(pipeline), _one_line(error))
            place.write(_RUN, json.dumps(run | {"state": "failed", "error": line, "updated": _now()}))
            raise
        place.write(_RUN, json.dumps(run | {"state": "ended", "updated": _now()}))
    return 0


@contextlib.contextmanager
def announced(pipeline: Pipeline) -> Iterator[None]:
    """The state is "starting" meanwhile, until the process that spark-submit starts writes its own. It heeds a request to stop.

    Raises:
        PipelineError: the pipeline runs already.
    """
    place, run = own(pipeline), _starting(pipeline)
    with only_one(pipeline):
        _check_owner(pipeline, place)
        place.remove(_STOP)
        place.write(_RUN, json.dumps(run))
    try:
        yield
    finally:
        if place.read_json(_RUN) == run:
            line = "spark-submit has ended before the pipeline began: its output says why"
            place.write(_RUN, json.dumps(run | {"state": "failed", "error": line, "updated": _now()}))


def _starting(pipeline: Pipeline) -> dict[str, Any]:
    host = socket.gethostname()
    return {"name": pipeline.name, "pid": os.getpid(), "host": host, "started": _now(), "state": "starting"}


def _check_owner(pipeline: Pipeline, place: Place) -> None:
    """Raises PipelineError: another pipeline has run with this checkpoint. Its tables know it by its name."""
    last = place.read_json(_RUN) or {}
    owner = last.get("name", pipeline.name)
    if owner != pipeline.name:
        raise PipelineError(
            f"checkpoint: {pipeline.place(pipeline.checkpoint)} is that of pipeline {owner}; {pipeline.name} needs one of its own"
        )


class _Received(list["BatchResult"]):
    """Results of batches that run in another process: those that are new are added before they are looked at."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self._pipeline = pipeline

    def receive(self) -> None:
        self.extend(remote_results(self._pipeline))


def _watch(
    query: Any,
    place: Place,
    run: dict[str, Any],
    results: list[BatchResult],
    on_progress: Callable[[PipelineProgress], None],
) -> None:
    shown = -1
    while True:
        ended = not query.isActive
        for progress in _new_progress(query, results, shown):
            shown = progress.batch
            run["last"] = {
                "batch": progress.batch, "records": progress.records, "bad": progress.bad, "rows": progress.rows,
                "seconds": progress.seconds, "records_per_s": progress.records_per_s, "behind": progress.behind,
            }  # fmt: skip
            if progress.bad:  # the next batch would hide them
                before = run.get("undecoded", {}).get("records", 0)
                run["undecoded"] = {"records": before + progress.bad, "batch": progress.batch}
            place.write(_RUN, json.dumps(run | {"updated": _now()}))
            on_progress(progress)
        if ended:
            break
        if place.read(_STOP) is not None:
            _stop(query)
        time.sleep(_POLL_S)
    failure = query.exception()
    if failure is not None:
        raise failed(failure)


def _new_progress(query: Any, results: list[BatchResult], shown: int) -> Iterator[PipelineProgress]:
    """Batches that are complete by Spark's own report, each with what the sinks did."""
    from pyspark_kafkalite.progress import behind

    if isinstance(results, _Received):
        results.receive()
    done = {result.number: result for result in results}
    for each in query.recentProgress:
        number = each["batchId"] if isinstance(each, dict) else each.batchId
        if number <= shown or number not in done:
            continue
        report = each if isinstance(each, dict) else json.loads(each.json)
        if "addBatch" not in report["durationMs"]:
            continue  # a trigger that found nothing is reported with the number of the batch that comes next
        result = done[number]
        seconds = report["durationMs"].get("triggerExecution", 0) / 1000
        lag = behind(report["sources"][0])
        records = result.records or report["numInputRows"]
        yield PipelineProgress(
            number, records, result.bad, dict(result.rows), seconds,
            records / seconds if seconds else 0.0, None if lag is None else lag.total, result.maintenance,
        )  # fmt: skip
    if len(results) > 1000:
        del results[:-100]


def _stop(query: Any) -> None:
    """Stop between two batches, if that comes soon."""
    give_up = time.monotonic() + _STOP_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < give_up:
        time.sleep(0.05)
    query.stop()


@contextlib.contextmanager
def only_one(pipeline: Pipeline) -> Iterator[None]:
    """One process per checkpoint on this host. (Between hosts the tables' commits keep two runs apart.)"""
    location = pipeline.place(pipeline.checkpoint)
    if "://" in location:
        yield
        return
    directory = Path(location) / OWN
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(f"{pipeline.name} runs already, with the checkpoint {location}") from None
        yield


def status(pipeline: Pipeline) -> dict[str, Any] | None:
    """What the last run wrote; None: there was none. A process that is gone without a word is "dead"."""
    run = own(pipeline).read_json(_RUN)
    if run is None:
        return None
    if is_active(run) and run["host"] == socket.gethostname() and not _alive(run["pid"]):
        run["state"] = "dead"
    return dict(run)


def is_active(run: Mapping[str, Any] | None) -> bool:
    """Whether a process runs the pipeline, or starts Spark for it, by what it wrote last."""
    return run is not None and run["state"] in ("starting", "running")


def request_stop(pipeline: Pipeline, timeout_s: float) -> bool:
    """Ask the pipeline that runs to stop, and wait. Whether it has stopped; True also if none ran."""
    place = own(pipeline)
    if not is_active(status(pipeline)):
        return True
    place.write(_STOP, _now())
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up:
        if not is_active(status(pipeline)):
            return True
        time.sleep(0.2)
    return False


def position(pipeline: Pipeline) -> tuple[int, dict[str, dict[str, int]]] | None:
    """The newest batch that Spark has completed, and the offsets after it; None: there is none."""
    checkpoint = Checkpoint(f"{pipeline.place(pipeline.checkpoint)}/query")
    done = [int(name) for name in checkpoint.place.names("commits") if name.isdigit()]
    if not done:
        return None
    offsets = checkpoint.offsets(max(done))
    return None if offsets is None else (max(done), offsets)


@contextlib.contextmanager
def in_one_line(*others: type[Exception]) -> Iterator[None]:
    """What Spark raises meanwhile is a PipelineError, and so are exceptions of these classes."""
    try:
        yield
    except KafkaliteError:
        raise
    except Exception as error:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if isinstance(error, PySparkException | Py4JError):
            raise failed(error) from error
        if isinstance(error, others):
            raise PipelineError(f"{type(error).__name__}: {_one_line(error)}") from error
        raise


def failed(error: BaseException) -> PipelineError:
    """Spark's exception as one line: what Python said last, or the first line of what Java said."""
    text = str(error)
    ours = re.findall(
        r"(?:PipelineError|OptionError|DataLoss|\b(?:kafkalite|kafkalite_pipelines|pyspark_kafkalite)(?:\.\w+)*\.[A-Z]\w*): (.+)",
        text,
    )
    ours = ours or re.findall(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: P0001)?$", text, re.MULTILINE)
    if ours:
        return PipelineError(as_in_the_file(ours[-1].strip()))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"^(\w+\.)*\w*(Error|Exception|Failed|ArrowInvalid)\b.*: ", line)]
    bare = re.findall(r"Traceback .*\n(?:[ \t].*\n)+(\w+(?:Error|Exception))\s*$", text, re.MULTILINE)
    if not python and bare:  # an exception without a message: where it was raised says more
        places = re.findall(r'File "([^"]+)", line (\d+), in', text)
        where = f" in {places[-1][0].rpartition('/')[2]}, line {places[-1][1]}" if places else ""
        return PipelineError(f"{bare[-1]}{where}")
    line = (python[-1] if python else lines[0] if lines else type(error).__name__)[:500]
    return PipelineError(_with_its_sql(line, text))


def _with_its_sql(line: str, text: str) -> str:
    """A line of Spark's with the part of a step's SQL that Spark shows below it, as a row of a batch made it fail."""
    said = re.sub(r"^pyspark\.errors\.exceptions\.\w+\.\w+: (?=\[)", "", line)
    found = re.search(re.escape(line) + r".*\n== SQL .*==\n(.*)\n( *)(\^+)", text)
    if found is None:
        return said
    sql, before, under = found.groups()
    return f"steps: {said} (in {sql[len(before) : len(before) + len(under)]})"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
