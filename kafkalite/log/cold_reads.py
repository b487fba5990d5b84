"""Reads of what is not in the page cache: the missing bytes are read in the disk's threads, readers in turn, then the read is repeated.

See `kafkalite.env.residency`. Each reader (a client, a follower's session, a pass over the logs) has its turns on each disk, so
one that reads a year of records from its beginning delays another one by a megabyte, not by a year.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.fair_queue import Owner
from kafkalite.env.residency import NotResident, ResidentOnly
from kafkalite.env.seams import Clock, Disk
from kafkalite.env.supervisor import Policy, Supervisor

_T = TypeVar("_T")

#: The least that is read (bytes); the same amount behind it is read ahead, because readers go on where they are.
READ_AHEAD_BYTES = 1024 * 1024
#: After this number of loads a read may wait for the disk on the loop: memory is so short that pages go as they come.
ATTEMPTS = 4
#: A load that takes longer (seconds) keeps its turn no longer: the disk hangs, and goes offline because of that.
_DEADLINE_S = 30.0
#: Reads of one disk under way at once.
_AT_ONCE = 4


class ColdReads:
    """One per node."""

    def __init__(self, disk: Disk, clock: Clock, supervisor: Supervisor) -> None:
        self._disk = disk
        self._clock = clock
        self._supervisor = supervisor
        #: By log directory.
        self._executors: dict[str, FairExecutor] = {}
        #: For metrics: loads, and their bytes.
        self.loads = 0
        self.loaded_bytes = 0

    @property
    def waiting(self) -> int:
        """Loads that wait for their turn."""
        return sum(executor.waiting for executor in self._executors.values())

    def executor(self, directory: str) -> FairExecutor:
        """The turns of readers of one log directory."""
        executor = self._executors.get(directory)
        if executor is None:

            async def run(function: Callable[[], object]) -> object:
                return await self._disk.run_blocking(function, directory)

            executor = self._executors[directory] = FairExecutor(run, self._clock, at_once=_AT_ONCE)
        return executor

    async def load(self, owner: Owner, directory: str, missing: NotResident) -> None:
        """Bring what is missing into the page cache, in the owner's turn."""
        async with self.executor(directory).turn(owner):
            self.loads += 1
            self.loaded_bytes += missing.size
            size = max(missing.size, READ_AHEAD_BYTES)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DEADLINE_S):
                    await self._disk.load(missing.path, missing.offset, size, READ_AHEAD_BYTES)

    def then(self, owner: Owner, directory: str, missing: NotResident, proceed: Callable[[], None]) -> None:
        """Load, then call `proceed`."""

        async def work() -> None:
            await self.load(owner, directory, missing)
            proceed()

        self._supervisor.spawn("log.cold_read", work(), Policy.ISOLATED)

    async def attempt(self, owner: Owner, directory: str, read: Callable[[], _T], *, loads: int = ATTEMPTS) -> _T:
        """What `read` returns; it is called again after each load, `loads` times. Raises what it raises, but not NotResident."""
        for _ in range(loads):
            try:
                with ResidentOnly():
                    return read()
            except NotResident as error:
                missing = error
            await self.load(owner, directory, missing)
        return read()
