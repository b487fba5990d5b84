"""The lines that `produce` reads, up to the end of its input and up to a signal."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable

import pytest

from kafkalite.errors import ErrorCode
from kafkalite_cli.records import produce
from tests.fake_cluster import FakeCluster
from tests.support.commands import PROGRAM, environment
from tests.support.waiting import until
from tests.unit.cli.test_commands import kafkalite, start


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


async def test_an_input_that_cannot_be_read_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk's error in the middle of a file must not look like its end: the rest would be lost, and half a line a record."""
    monkeypatch.setattr(produce, "on_stop", lambda _: None)
    pieces = iter([b"one\ntw"])

    def read(_fd: int, _count: int) -> bytes:
        for piece in pieces:
            return piece
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "read", read)
    found = []
    with pytest.raises(OSError, match="Input/output error"):
        async for chunk in produce.stdin_lines():
            found += chunk
    assert found == [b"one"]


async def test_produce_says_that_its_input_cannot_be_read() -> None:
    unreadable = os.open(os.devnull, os.O_WRONLY)
    async with FakeCluster(1) as cluster:
        await kafkalite("admin", "create-topic", "t", cluster=cluster)
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "produce", "t", stdin=unreadable, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environment(cluster.bootstrap),
        )  # fmt: skip
        out, err = await process.communicate()
    os.close(unreadable)
    assert (process.returncode, out, err) == (1, b"0 acked\n", b"kafkalite: stdin: Bad file descriptor\n")


async def test_a_second_ctrl_c_ends_what_cannot_be_delivered() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create("t")
        cluster.errors.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 1_000_000)
        process = await start("produce", "t", "--timeout", "3600", cluster=cluster)
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        await until(lambda: (1, "ProduceRequest") in cluster.requests)
        process.send_signal(signal.SIGINT)
        asked = len(cluster.requests)
        while len(cluster.requests) < asked + 3:  # the first one waits for what was taken
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err.strip()) == (130, b"")
