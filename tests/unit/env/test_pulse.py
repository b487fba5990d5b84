"""Waiting for the next change of something."""

from __future__ import annotations

import asyncio

from kafkalite.env.pulse import Pulse


async def test_a_beat_wakes_all_who_wait() -> None:
    pulse = Pulse()
    waiting = [asyncio.ensure_future(pulse.wait(3600)) for _ in range(2)]
    await asyncio.sleep(0)
    pulse.beat()
    await asyncio.gather(*waiting)


async def test_who_gives_up_takes_nothing_from_the_others() -> None:
    pulse = Pulse()
    one, other = (asyncio.ensure_future(pulse.wait(3600)) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    pulse.beat()
    await other


async def test_without_a_beat_the_wait_ends_in_time() -> None:
    await Pulse().wait(0.001)


async def test_a_beat_before_the_wait_is_not_kept() -> None:
    pulse = Pulse()
    pulse.beat()
    waiting = asyncio.ensure_future(pulse.wait(3600))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
