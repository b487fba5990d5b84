"""Moves between two disks, truncations, new starts and crashes in any order, against a list of records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.errors import ApiError
from kafkalite.log import moving
from tests.support.logs import batch, config
from tests.support.moving import T0, Host, values
from tests.support.waiting import until

Step = Callable[[Host, list[bytes]], Awaitable[None]]


async def append(host: Host, model: list[bytes]) -> None:
    value = b"%d" % len(host.disk.calls)
    host.log.append_as_leader(batch([value]), 1 + host.lives)  # type: ignore[attr-defined]
    model.append(value)


async def truncate(host: Host, model: list[bytes]) -> None:
    keep = max(int(host.log.log_start_offset), len(model) - 3)
    host.log.truncate_to(keep)
    del model[keep:]
    host.lives += 1  # type: ignore[attr-defined]


async def trim(host: Host, model: list[bytes]) -> None:
    host.log.advance_log_start_offset(min(len(model), int(host.log.log_start_offset) + 2))


async def to_d1(host: Host, model: list[bytes]) -> None:
    await order(host, "/d1")


async def to_d2(host: Host, model: list[bytes]) -> None:
    await order(host, "/d2")


async def order(host: Host, directory: str) -> None:
    try:
        host.manager.moves.start(T0, directory)
    except ApiError as error:
        assert "just moved" in str(error)


async def step(host: Host, model: list[bytes]) -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def crash(host: Host, model: list[bytes]) -> None:
    await host.manager.offsets.save_offsets()
    host.lives += 1  # type: ignore[attr-defined]
    await host.restart({"segment.bytes": "1024"})


STEPS = [append, append, append, truncate, trim, to_d1, to_d2, step, step, crash]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_whatever_happens_the_current_log_is_what_was_written(steps: list[Step]) -> None:
    async def run() -> None:
        host = Host()
        host.lives = 0  # type: ignore[attr-defined]
        model: list[bytes] = []
        await host.start()
        host.create(config(segment_bytes=1024))
        for each in steps:
            await each(host, model)
            log = host.log
            assert log.log_end_offset == len(model)
            assert values(log) == [(n, v) for n, v in enumerate(model) if n >= log.log_start_offset]
        await until(lambda: not host.manager.moves.under_way())
        assert values(host.log)[-3:] == list(enumerate(model))[max(host.log.log_start_offset, len(model) - 3) :]
        await host.supervisor.stop()

    moving_chunk, moving.CHUNK_BYTES = moving.CHUNK_BYTES, 200
    try:
        asyncio.run(run())
    finally:
        moving.CHUNK_BYTES = moving_chunk
