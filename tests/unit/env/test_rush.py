"""A rush of short work: what one turn of the loop serves of it, and who comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalite.env.turns import RUSH_S, Rush, with_pauses


class Sources:
    """Each piece takes a third of what a rush may take of a turn."""

    def __init__(self) -> None:
        self.now = 100.0
        self.served: list[str] = []
        self.rush = Rush(lambda: self.now)

    def comes(self, user: str, number: int = 0) -> None:
        serve = self._piece(user)
        if self.rush.must_wait(self.now):
            self.rush.wait((user, number), serve)
        else:
            serve()

    def _piece(self, user: str) -> Callable[[], None]:
        def serve() -> None:
            self.served.append(user)
            self.now += RUSH_S / 3 * 1.001
            self.rush.ended = self.now

        return serve


async def test_a_turn_serves_only_so_much_and_users_take_turns() -> None:
    sources = Sources()
    for number in range(100):
        sources.comes("many", number)
    sources.comes("one")
    assert sources.served == ["many"] * 3
    for _ in range(2):
        await asyncio.sleep(0)
    assert "one" in sources.served[3:6], "behind a hundred connections of another user"
    sources.comes("late")
    assert sources.served[-1] != "late", "nobody gets in front of those who wait"
    while len(sources.served) < 102:
        before = len(sources.served)
        await asyncio.sleep(0)
        assert len(sources.served) - before <= 3
    assert sources.served.count("many") == 100


async def test_little_work_waits_for_nothing() -> None:
    sources = Sources()
    for _ in range(20):
        sources.comes("one")
        sources.comes("two")
        sources.now += RUSH_S  # the loop does something else, or nothing
        for _ in range(2):
            await asyncio.sleep(0)
    assert sources.served == ["one", "two"] * 20


async def test_others_come_in_between_many_short_pieces() -> None:
    done: list[str] = []

    async def pieces() -> None:
        async for number in with_pauses(range(250)):
            done.append(str(number))

    async def other() -> None:
        while len(done) < 250:
            done.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(pieces(), other())
    assert done.count("other") == 2
    assert done[100] == done[201] == "other"
