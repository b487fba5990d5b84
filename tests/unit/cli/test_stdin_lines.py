"""The lines that `produce` reads, up to the end of its input and up to a signal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from kafkalite_cli.records import produce


@pytest.mark.parametrize(
    ("is_stopped", "lines"),
    [(False, [[b"one", b"two"], [b"thr"]]), (True, [[b"one", b"two"]])],
    ids=["end of the input", "signal"],
)
async def test_the_beginning_of_a_line_is_a_line_at_the_end_of_the_input_only(
    monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool, lines: list[list[bytes]]
) -> None:
    stops: list[Callable[[], object]] = []
    monkeypatch.setattr(produce, "on_stop", stops.append)
    reader, writer = os.pipe()
    os.write(writer, b"one\r\ntwo\nthr")
    found = []
    async for chunk in produce.stdin_lines(reader):
        found.append(chunk)
        if len(found) > 1:
            continue
        if is_stopped:
            stops[0]()
        else:
            os.close(writer)
    if is_stopped:
        os.close(writer)
    for thread in threading.enumerate():
        if thread.name == "stdin":
            thread.join()
    os.close(reader)
    assert found == lines
