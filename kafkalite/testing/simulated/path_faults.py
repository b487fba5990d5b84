"""Which paths of a simulated disk fail or hang."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping

from kafkalite.testing.simulated.process import current_process

#: What no kernel answers to an operation, by its kind: a fault with such an error spares it.
_NEVER: Mapping[str, frozenset[int]] = {
    # The file was found and opened before.
    **dict.fromkeys(("append", "read_at", "truncate", "write_at"), frozenset({errno.ENOENT, errno.EMFILE})),
    "sync": frozenset({errno.ENOENT, errno.EMFILE, errno.ENOMEM}),
    # That there is no such file is no error to these (Disk).
    **dict.fromkeys(("exists", "remove"), frozenset({errno.ENOENT, errno.EMFILE})),
    "modified_ms": frozenset({errno.EMFILE}),
    "rename": frozenset({errno.EMFILE}),
}


class PathFaults:
    """The faults of one disk: a dead or hanging disk is a path prefix."""

    def __init__(self) -> None:
        #: Path prefix -> errno of every operation below it (a dead disk).
        self._failing: dict[str, int] = {}
        #: Path prefix -> what syncs and work in threads below it wait for (a disk that hangs).
        self._hanging: dict[str, asyncio.Event] = {}
        #: It has failed, hung, or lost something: since then a node may have reason to complain of it.
        self.was_faulty = False

    def fail(self, path: str, error: int = errno.EIO) -> None:
        """Every operation at or below `path` that can give this error raises OSError(error) from now on."""
        self._failing[path] = error
        self.was_faulty = True

    @property
    def is_failing(self) -> bool:
        """Whether some path fails."""
        return bool(self._failing or self._hanging)

    def hang(self, path: str) -> None:
        """No sync and no work in a thread at or below `path` ends before the repair. The page cache goes on."""
        self._hanging.setdefault(path, asyncio.Event())
        self.was_faulty = True

    def repair(self, path: str) -> None:
        self._failing.pop(path, None)
        if path in self._hanging:
            self._hanging.pop(path).set()

    def repair_all(self) -> None:
        """Nothing fails or hangs any more."""
        for path in [*self._failing, *self._hanging]:
            self.repair(path)

    async def answers(self, path: str) -> None:
        """Wait while the disk of `path` hangs."""
        while (repaired := self.hanging_at(path)) is not None:
            await repaired.wait()

    def hanging_at(self, path: str) -> asyncio.Event | None:
        """What is set when the disk of `path` is repaired; None: it does not hang."""
        for prefix, repaired in self._hanging.items():
            if path == prefix or path.startswith(prefix + "/"):
                return repaired
        return None

    def check(self, path: str, kind: str) -> None:
        """Raise what the disk would answer to an operation of this kind. A dead process has no system calls."""
        process = current_process()
        if process is not None and not process.alive:
            raise OSError(errno.EIO, "the process is dead", path)
        for prefix, error in self._failing.items():
            if (path == prefix or path.startswith(prefix + "/")) and error not in _NEVER.get(kind, ()):
                raise OSError(error, os.strerror(error), path)
