"""The process takes the files it may have, and the nodes in it leave some for connections."""

from __future__ import annotations

import resource

import pytest

from kafkalite.env import open_files

UNLIMITED = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """[soft, hard], in place of this process's."""
    held = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(held))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: held.__setitem__(slice(None), wanted))
    return held


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([1024, 4096], [4096, 4096]),
        ([1024, UNLIMITED], [1 << 20, UNLIMITED]),
        ([1024, 1 << 30], [1 << 20, 1 << 30]),
        ([1 << 21, 1 << 22], [1 << 21, 1 << 22]),
        ([UNLIMITED, UNLIMITED], [UNLIMITED, UNLIMITED]),
    ],
)
def test_the_limit_is_raised_and_never_lowered(limits: list[int], before: list[int], after: list[int]) -> None:
    limits[:] = before
    open_files.raise_limit()
    assert limits == after


@pytest.mark.parametrize(
    ("soft", "files"), [(256, 512), (1024, 512), (20_000, 5_000), (1 << 20, 8192), (UNLIMITED, 8192)]
)
def test_a_quarter_is_for_the_logs_of_one_node(limits: list[int], soft: int, files: int) -> None:
    limits[0] = soft
    assert open_files.log_files() == files
