"""numpy to Arrow by way of buffers. `pa.array` and `pa.scalar` import pandas, a third of a second in every new worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_ARROW = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}


def numbers(values: npt.NDArray[Any], null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """int32 or int64, not copied; `null` says which are."""
    valid = None
    if null is not None and null.any():
        valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_ARROW[values.dtype], len(values), [valid, pa.py_buffer(values)])


def repeated(text: str, rows: int) -> pa.Array:
    """The same string in every row."""
    data = text.encode()
    offsets = np.arange(0, (rows + 1) * len(data), len(data), dtype=np.int32) if data else np.zeros(rows + 1, np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data * rows)])


def no_bytes() -> pa.Array:
    """A binary array of no rows."""
    return pa.Array.from_buffers(pa.binary(), 0, [None, pa.py_buffer(np.zeros(1, np.int32)), pa.py_buffer(b"")])
