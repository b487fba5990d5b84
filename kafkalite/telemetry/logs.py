"""Structured logs; `event` is a constant noun.verb.

A process that calls `configure`, as every node's does, writes its lines on stderr without structlog, which imports rich and would
cost it 40 ms of processor at each start. One JSON object a line, or on a terminal a text that people read. In any other process, an application with our client for
example, the lines go through structlog as the application has configured it.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
#: auto: text on a terminal, else JSON.
FORMATS = ("auto", "json", "text")
_EVENT_WIDTH = 28
_NUMBERS = {**LEVELS, "critical": logging.CRITICAL}


class Logger:
    """One module's log. A line's fields are given by name; `exc_info` is an exception, written with its traceback."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._through_structlog: Any = None

    def debug(self, event: str, **fields: Any) -> None:
        self._emit("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._emit("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._emit("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._emit("error", event, fields)

    def critical(self, event: str, **fields: Any) -> None:
        self._emit("critical", event, fields)

    def _emit(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if _lines is not None:
            _lines.emit(level, event, fields)
            return
        if self._through_structlog is None:
            import structlog

            self._through_structlog = structlog.get_logger(self._name)
        getattr(self._through_structlog, level)(event, **fields)


class _LineLogger:
    """JSON or text on a stream, a line at a time. A line that cannot be written is counted: the log must not fail its callers."""

    def __init__(self, lowest: int, stream: TextIO, bound: dict[str, Any], *, is_text: bool) -> None:
        self._lowest = lowest
        self._is_text = is_text
        self._stream = stream
        self._bound = bound
        self._lock = threading.Lock()
        self._lost = 0

    def emit(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if _NUMBERS[level] < self._lowest:
            return
        text = self._line(level, event, fields)
        with self._lock:
            if self._lost:
                text = self._line("warning", "log.lines_lost", {"lines": self._lost}) + text
            try:
                self._stream.write(text)
                self._stream.flush()
                self._lost = 0
            except (OSError, ValueError):  # no room, nobody reads the pipe, the stream is closed
                self._lost += 1

    def _line(self, level: str, event: str, fields: dict[str, Any]) -> str:
        error = fields.pop("exc_info", None)
        now = datetime.now(UTC)
        exception = "" if error is None else "".join(traceback.format_exception(error)).rstrip("\n")
        fields = {**fields, **{name: value for name, value in self._bound.items() if name not in fields}}
        if self._is_text:
            return _text(now, level, event, fields, exception)
        line = {"at": now.isoformat().replace("+00:00", "Z"), "level": level, "event": event, **fields}
        return json.dumps({**line, "exception": exception} if exception else line, default=str) + "\n"


_lines: _LineLogger | None = None


def get_logger(name: str) -> Logger:
    """The log of the module of that name."""
    return Logger(name)


def _text(now: datetime, level: str, event: str, fields: dict[str, Any], exception: str) -> str:
    """Time of day (local), level and event first, then the fields; control characters of a value cannot end the line."""
    said = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    head = f"{now.astimezone():%H:%M:%S.%f}"[:-3] + f" {level.upper():7} {event:{_EVENT_WIDTH}} {said}"
    return head.rstrip() + "\n" + (exception + "\n" if exception else "")


def _value(value: Any) -> str:
    text = str(value)
    # JSON leaves U+007F alone, and those beyond: terminals take U+009B for the beginning of a command.
    if not text.isprintable():
        return json.dumps(text).replace("\x7f", "\\u007f")
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def configure(*, level: str = "info", stream: TextIO | None = None, form: str = "json", **bound: Any) -> None:
    """From now on this process writes its own lines; `bound` (node=…) goes into every one. `form`: one of FORMATS."""
    global _lines
    out = stream if stream is not None else sys.stderr
    is_text = form == "text" or (form == "auto" and out.isatty())
    _lines = _LineLogger(_NUMBERS[level], out, bound, is_text=is_text)


def is_configured() -> bool:
    """Whether somebody has said where the lines go: we, or the application to structlog."""
    structlog = sys.modules.get("structlog")
    return _lines is not None or (structlog is not None and structlog.is_configured())


@contextmanager
def configured(*, level: str) -> Iterator[None]:
    """`configure` for a while, for a command among others in one process."""
    global _lines
    before = _lines
    configure(level=level)
    try:
        yield
    finally:
        _lines = before
