"""Structured logs; `event` is a constant noun.verb.

A process that calls `configure`, as every node's does, writes one JSON object a line on stderr, by itself: structlog, which
imports rich, would cost it 40 ms of processor at each start. In any other process, an application with our client for
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
_NUMBERS = {**LEVELS, "critical": logging.CRITICAL}


class Logger:
    """One module's log. A line's fields are given by name; `exc_info` is an exception, told with its traceback."""

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


class _Lines:
    """JSON on a stream, a line at a time."""

    def __init__(self, lowest: int, stream: TextIO, bound: dict[str, Any]) -> None:
        self._lowest = lowest
        self._stream = stream
        self._bound = bound
        self._lock = threading.Lock()

    def emit(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if _NUMBERS[level] < self._lowest:
            return
        error = fields.pop("exc_info", None)
        line = {**fields, "event": event}
        for name, value in self._bound.items():
            line.setdefault(name, value)
        line["level"] = level
        line["at"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if error is not None:
            line["exception"] = "".join(traceback.format_exception(error)).rstrip("\n")
        text = json.dumps(line, default=str) + "\n"
        with self._lock:
            self._stream.write(text)
            self._stream.flush()


_lines: _Lines | None = None


def get_logger(name: str) -> Logger:
    """The log of the module of that name."""
    return Logger(name)


def configure(*, level: str = "info", stream: TextIO | None = None, **bound: Any) -> None:
    """From now on this process writes its own lines; `bound` (node=…) goes into every one."""
    global _lines
    _lines = _Lines(_NUMBERS[level], stream if stream is not None else sys.stderr, bound)


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
