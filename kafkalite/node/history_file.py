"""What a node remembers of its partitions, kept through a restart: two small files in its first log directory that works.

Nothing waits for it, and nothing depends on it: events are written in batches by the directory's own threads, at most one at a
time, without fsync (a loss of power may take the last seconds). A disk that fails or hangs costs the events that do not fit
into memory meanwhile; another directory takes over once the log manager has given the first one up (KIP-18).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import partial

from kafkalite.log.log_dir import LogDir
from kafkalite.log.pool import LogPool
from kafkalite.telemetry.history import Event, History
from kafkalite.telemetry.history_lines import Row, from_lines, to_lines
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

#: In the log directory itself; the second one is the first one of before.
NAMES = ("kafkalite-history-old.jsonl", "kafkalite-history.jsonl")
#: Of each of the two.
MAX_FILE_BYTES = 4 * 1024 * 1024
#: Time for which events are collected.
FLUSH_S = 1.0
#: One batch, and what waits for a disk that does not take it; the oldest are dropped.
MAX_BATCH = 5_000
MAX_PENDING = 20_000
#: After a failed write.
RETRY_S = 10.0
#: Time for which a stop waits for the last events; a start does not wait.
CLOSE_S = 2.0


class HistoryFile:
    """Run `run` as a task once the logs are open, `close` before they are closed.

    Args:
        histories: by a name that stays the same.
    """

    def __init__(self, histories: Mapping[str, History], pool: LogPool) -> None:
        self._histories = histories
        self._pool = pool
        self._disk = pool.disk
        self._pending: deque[Row] = deque(maxlen=MAX_PENDING)
        self._work = asyncio.Event()
        self._writing = asyncio.Lock()
        self._trouble = ""
        for name, history in histories.items():
            history.listeners.append(partial(self._noted, name))

    def _noted(self, source: str, subject: str, event: Event) -> None:
        self._pending.append(Row(source, subject, event))
        self._work.set()

    async def run(self) -> None:
        """Recall what is on the disks, then keep what happens; for ever."""
        await self._recall()
        while True:
            await self._work.wait()
            await asyncio.sleep(FLUSH_S)
            self._work.clear()
            if not await self.flush():
                await asyncio.sleep(RETRY_S)
                self._work.set()

    async def close(self) -> None:
        """Write what is left, if the disk takes it at once."""
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._pending and await self.flush():
                    continue
        except TimeoutError:
            _log.warning("history.not_written", reason="no answer in time", events=len(self._pending))

    async def flush(self) -> bool:
        """Write a batch; False if there is no disk that takes it."""
        async with self._writing:
            log_dir = next((each for each in self._pool.dirs.values() if each.online), None)
            if log_dir is None:
                return False
            batch = [self._pending.popleft() for _ in range(min(MAX_BATCH, len(self._pending)))]
            is_written = False
            try:
                await log_dir.off_loop(partial(self._append, log_dir.path, batch))
                is_written = True
            except OSError as error:
                self._warn(f"{log_dir.path}: {error}")
            finally:
                if not is_written:  # also when the stop does not wait any longer
                    room = MAX_PENDING - len(self._pending)
                    self._pending.extendleft(reversed(batch[len(batch) - min(room, len(batch)) :]))
            if is_written:
                self._trouble = ""
                if self._pending:
                    self._work.set()
            return is_written

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("history.not_written", reason=trouble)

    # --- in the directory's threads ------------------------------------------------------------------

    def _append(self, directory: str, batch: list[Row]) -> None:
        """Raises OSError; also if the directory is gone, which must not come back as an empty one."""
        old, path = (f"{directory}/{name}" for name in NAMES)
        # An empty line first: what a crash has left of a line ends here.
        lines = b"\n" + to_lines(batch)
        file = self._disk.open(path, create=True)
        try:
            if file.size() and file.size() + len(lines) > MAX_FILE_BYTES:
                file.close()
                self._disk.rename(path, old)
                file = self._disk.open(path, create=True)
            file.append([lines])
        finally:
            file.close()

    def _read(self, directory: str, found: list[Row]) -> None:
        damaged = 0
        for name in NAMES:
            path = f"{directory}/{name}"
            if not self._disk.exists(path):
                continue
            file = self._disk.open(path)
            try:
                # Not more than this node writes, even if the file is longer.
                most = MAX_FILE_BYTES + 1
                data = file.read_at(max(0, file.size() - most), most)
            finally:
                file.close()
            rows, bad = from_lines(data)
            found += rows
            damaged += bad
        if damaged:
            _log.warning("history.damaged", directory=directory, lines=damaged)

    # --- the start ---------------------------------------------------------------------------------

    async def _recall(self) -> None:
        """From every directory: which one was the first that worked may have been another one each time."""
        rows: list[Row] = []
        for log_dir in [each for each in self._pool.dirs.values() if each.online]:
            rows += await self._rows_in(log_dir)
        # A batch that a disk seemed to refuse may be there twice.
        rows = sorted(dict.fromkeys(rows), key=lambda row: row.event.at_ms)
        for name, history in self._histories.items():
            history.recall((row.subject, row.event) for row in rows if row.source == name)

    async def _rows_in(self, log_dir: LogDir) -> list[Row]:
        found: list[Row] = []
        try:
            await log_dir.off_loop(partial(self._read, log_dir.path, found))
        except OSError as error:
            _log.warning("history.not_read", directory=log_dir.path, reason=str(error))
            return []
        return found
