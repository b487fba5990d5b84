"""A half received frame: the buffer that a connection has only meanwhile.

It grows with what has ARRIVED, not with what the length field promises.
"""

from __future__ import annotations

import struct

from kafkalite.kafka.request_memory import FrameMemory, Holder
from kafkalite.large_buffer import LARGE_BYTES, large_buffer

_LENGTH = struct.Struct(">i").unpack_from
#: A buffer starts here.
_MIN_BYTES = 16 * 1024
#: A drained buffer of up to this size is kept while requests keep coming: fresh pages cost more than the copy.
_MAX_KEPT_BYTES = 4 * 2**20
_NONE = memoryview(b"")


class ReceiveBuffer:
    """`view[start:end]` has arrived. `view` is empty while there is no buffer.

    Args:
        worth_keeping: a drained buffer of at most this many bytes is given back at once.
    """

    __slots__ = ("_holder", "_memory", "_worth_keeping", "end", "start", "view")

    def __init__(self, memory: FrameMemory, holder: Holder, worth_keeping: int) -> None:
        self._memory = memory
        self._holder = holder
        self._worth_keeping = worth_keeping
        self.view = _NONE
        self.start = 0
        self.end = 0

    def keep(self, rest: memoryview) -> None:
        """Copy a half received frame out of a buffer that others use, too."""
        self._grow(rest, _frame_bytes(rest, 0, len(rest)))

    def parsed(self, start: int) -> None:
        """What lies before `start` is not needed any more. Makes room for more to arrive, or gives all of it back."""
        self.start = start
        if start == self.end:
            self.start = self.end = 0
            if not self._worth_keeping < len(self.view) <= _MAX_KEPT_BYTES:
                self.release()
            return
        have = self.end - start
        need = _frame_bytes(self.view, start, self.end)
        if start and (need > len(self.view) - start or self.end == len(self.view)):
            self.view[:have] = bytes(self.view[start : self.end])
            self.start, self.end = 0, have
        if self.end == len(self.view):
            # Full, and the frame goes on; or requests are read ahead and none may be started now.
            self._grow(self.view[:have], need)

    def release(self) -> None:
        """Give the memory back."""
        if size := len(self.view):
            self.view = _NONE
            self.start = self.end = 0
            self._memory.give(self._holder, size)

    def _grow(self, data: memoryview, need: int) -> None:
        have = len(data)
        # Every connection may grow once more when memory is full: by little then, or all together exceed it manyfold.
        factor = 4 if self._memory.is_ample else 2
        size = max(_MIN_BYTES, min(need, factor * have), have + 1)
        self._memory.take(self._holder, size - len(self.view))
        own = large_buffer(size) if size > LARGE_BYTES else memoryview(bytearray(size))
        own[:have] = data
        self.view, self.start, self.end = own, 0, have


def _frame_bytes(view: memoryview, start: int, stop: int) -> int:
    """Bytes that the frame at `start` takes, as far as is known."""
    return 4 + int(_LENGTH(view, start)[0]) if stop - start >= 4 else 4
