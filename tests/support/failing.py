"""Errors that are expected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from kafkalite.errors import ApiError, ErrorCode


@contextlib.contextmanager
def fails_with(code: ErrorCode) -> Iterator[None]:
    """The block raises an ApiError with this code."""
    with pytest.raises(ApiError) as raised:
        yield
    assert raised.value.code == code, raised.value
