"""Memory for some megabytes that are about to be filled."""

from __future__ import annotations

import mmap

#: From here on memory comes from `large_buffer`: with less, the system call costs more than it saves.
LARGE_BYTES = 4 * 2**20


def large_buffer(size: int) -> memoryview:
    """Writable memory of this size, which goes back to the system with its last view.

    A bytearray is cleared before it is filled: 50 MB of it hold the event loop for 20 ms before the first byte is there. This memory is cleared
    page by page, as it is filled. (Not in pages of 2 MB: where a virtual machine's host has yet to give it the memory, they took longer.)
    """
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
