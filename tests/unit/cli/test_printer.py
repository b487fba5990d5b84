"""What `consume` prints, into pipes that are read, not read, and gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from kafkalite_cli.records.printer import Printer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


def never() -> bool:
    return False


async def test_pieces_are_written_in_order(pipe: tuple[int, int]) -> None:
    printer = Printer(pipe[1])
    printer.add([b"one\n", b"", b"two\n"])
    assert await printer.write(never) == 3
    assert os.read(pipe[0], 100) == b"one\ntwo\n"
    assert (await printer.write(never), printer.is_waiting) == (0, False)


async def test_a_reader_that_does_not_read_holds_up_nothing(pipe: tuple[int, int]) -> None:
    """Counted is what is written whole; a line that was begun is finished later, once."""
    printer = Printer(pipe[1])
    lines = [b"%09d\n" % n * 7 for n in range(5_000)]
    printer.add(lines)
    turns = 0

    def is_over() -> bool:
        return turns > 3

    async def other_work() -> None:
        nonlocal turns
        while not is_over():
            await asyncio.sleep(0.01)
            turns += 1

    written, _ = await asyncio.gather(printer.write(is_over), other_work())
    assert 0 < written < len(lines)
    in_the_pipe = os.read(pipe[0], 2**20)
    assert in_the_pipe.startswith(b"".join(lines[:written]))
    assert b"".join(lines[: written + 1]).startswith(in_the_pipe)
    printer.drop()
    printer.add([b"next\n"])
    assert await printer.write(never) == 1, "a piece that was dropped is not counted"
    in_the_pipe += os.read(pipe[0], 2**20)
    assert in_the_pipe in (b"".join(lines[:n]) + b"next\n" for n in (written, written + 1))


async def test_what_is_not_dropped_goes_on(pipe: tuple[int, int]) -> None:
    printer = Printer(pipe[1])
    lines = [b"%099d\n" % n for n in range(3_000)]
    printer.add(lines)
    assert await printer.write(lambda: True) == 0, "it was over before the first"
    read: list[bytes] = []
    written = 0
    while printer.is_waiting:
        calls = 0

        def after_a_few() -> bool:
            nonlocal calls
            calls += 1
            return calls > 20

        written += await printer.write(after_a_few)
        read.append(os.read(pipe[0], 2**20))
    assert (written, b"".join(read)) == (len(lines), b"".join(lines))


async def test_a_reader_that_is_gone_is_an_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    printer = Printer(pipe[1])
    printer.add([b"one\n"])
    with pytest.raises(BrokenPipeError):
        await printer.write(never)
