"""Log lines: what a node's process writes without structlog is what structlog wrote, and everybody else's lines go through structlog."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from kafkalite.telemetry import logs


@pytest.fixture(autouse=True)
def nobody_has_configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = structlog.get_config() if structlog.is_configured() else None
    structlog.reset_defaults()
    monkeypatch.setattr(logs, "_lines", None)
    yield
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


def structlogs_line(level: str, event: str, **fields: Any) -> dict[str, Any]:
    stream = io.StringIO()
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str),
    ]
    log = structlog.wrap_logger(
        structlog.PrintLogger(stream), processors, structlog.make_filtering_bound_logger(0), node=1
    )
    getattr(log, level)(event, **fields)
    return dict(json.loads(stream.getvalue()))


def failure() -> Exception:
    try:
        raise ValueError("two\nlines") from OSError("cause")
    except ValueError as error:
        return error


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": "grün \n", "number": 1.5, "path": Path("/a"), "many": [None, True]},
        {"node": 7},
        {"exc_info": failure()},
    ],
)
def test_a_line_is_what_structlog_makes_of_it(level, fields) -> None:
    stream = io.StringIO()
    logs.configure(level="debug", stream=stream, node=1)
    getattr(logs.get_logger("x"), level)("noun.verb", **fields)
    [line] = stream.getvalue().splitlines()
    ours, twin = json.loads(line), structlogs_line(level, "noun.verb", **fields)
    at, at_too = str(ours.pop("at")), str(twin.pop("at"))
    assert ours == twin
    assert (len(at), at[-1]) == (len(at_too), "Z")


def test_people_read_a_text_with_time_level_and_event_first() -> None:
    stream = io.StringIO()
    logs.configure(level="info", stream=stream, form="text", node=3)
    logs.get_logger("x").warning("noun.verb", partition="t-0", reason="two words", evil="a\nb", count=2)
    [line] = stream.getvalue().splitlines()
    assert (
        line[12:]
        == ' WARNING noun.verb                    partition=t-0 reason="two words" evil="a\\nb" count=2 node=3'
    )
    assert line[2] == line[5] == ":"


@pytest.mark.parametrize("evil", ["\x1b[31m", "\x9b31m", "a\x7f", "\u202eabc", "\x85", "\u2028x"])
def test_a_value_sends_no_command_to_the_terminal(evil: str) -> None:
    """Users choose names, also of what they may not see; refusals are in the log."""
    stream = io.StringIO()
    logs.configure(stream=stream, form="text")
    logs.get_logger("x").warning("acl.denied", name=evil, other=f"grün {evil}")
    line = stream.getvalue()
    assert line.endswith("\n") and line[:-1].isprintable() and len(line.splitlines()) == 1


def test_auto_is_json_for_pipes_and_text_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_json in ((io.StringIO(), True), (Terminal(), False)):
        logs.configure(stream=stream, form="auto")
        logs.get_logger("x").info("noun.verb")
        assert stream.getvalue().startswith("{") == is_json
        if is_json:
            assert list(json.loads(stream.getvalue())) == ["at", "level", "event"]


def test_what_is_below_the_level_is_not_written() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", stream=stream)
    log = logs.get_logger("x")
    for emit in (log.debug, log.info, log.warning, log.error, log.critical):
        emit("noun.verb")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == ["warning", "error", "critical"]


def test_lines_of_a_process_that_is_not_ours_go_where_it_has_told_structlog() -> None:
    assert not logs.is_configured()
    with capture_logs() as lines:
        logs.get_logger("x").warning("noun.verb", a=1)
    assert lines == [{"a": 1, "event": "noun.verb", "log_level": "warning"}]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    assert logs.is_configured()


def test_a_command_writes_its_own_lines_and_leaves_the_processes_as_they_were(capsys) -> None:
    log = logs.get_logger("x")
    with capture_logs() as lines:
        with logs.configured(level="critical"):
            log.error("noun.dropped")
            log.critical("noun.written")
        log.error("noun.verb")
    assert [line["event"] for line in lines] == ["noun.verb"]
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["noun.written"]


class Pipe(io.StringIO):
    """Takes no more while `error` is set: a full disk, a pipe whose reader is gone."""

    error: Exception | None = None

    def flush(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), BrokenPipeError(32, "Broken pipe"), ValueError("closed")]
)
def test_a_log_that_cannot_be_written_fails_nobody(error: Exception) -> None:
    """The error came up wherever a line was written: of the code for disks it was the disk's, of the controller the node's."""
    stream = Pipe()
    logs.configure(stream=stream, node=1)
    log = logs.get_logger("x")
    stream.error = error
    for number in range(3):
        log.info("part.done", number=number)
    stream.error = None
    stream.truncate(stream.seek(0))
    log.info("part.done", number=3)
    log.info("part.done", number=4)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(each["event"], each.get("number"), each.get("lines")) for each in lines] == [
        ("log.lines_lost", None, 3), ("part.done", 3, None), ("part.done", 4, None),
    ]  # fmt: skip
    assert lines[0]["node"] == 1 and lines[0]["level"] == "warning"
