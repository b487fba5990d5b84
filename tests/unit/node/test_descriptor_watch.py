"""A process that runs out of file descriptors says so before new connections are closed."""

from __future__ import annotations

import os
import resource

import pytest

from kafkalite.env import open_files
from kafkalite.env.real import RealClock
from kafkalite.node.descriptor_watch import DescriptorWatch


def test_it_is_a_problem_from_nine_tenths_on_until_some_are_free() -> None:
    used = 0
    watch = DescriptorWatch(lambda: (used, 200), RealClock())
    seen: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for used in (0, 179, 180, 200, 171, 170, 169, 179):
        watch.measure()
        seen[used, len(seen)] = [(each.what, each.detail) for each in watch.problems()]
    short = "descriptors.short"
    assert list(seen.values()) == [
        [],
        [],
        [(short, "180 of 200 file descriptors are in use")],
        [(short, "200 of 200 file descriptors are in use")],
        [(short, "171 of 200 file descriptors are in use")],
        [(short, "170 of 200 file descriptors are in use")],
        [],
        [],
    ]


def test_it_is_since_the_first_time() -> None:
    used = 95
    watch = DescriptorWatch(lambda: (used, 100), RealClock())
    watch.measure()
    (first,) = watch.problems()
    used = 99
    watch.measure()
    (later,) = watch.problems()
    assert later.since_ms == first.since_ms


def test_the_process_counts_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before, limit = open_files.in_use()
    assert limit == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    try:
        assert open_files.in_use()[0] >= 50
        assert before <= open_files.in_use()[0] <= len(os.listdir("/proc/self/fd")) + max(opened)

        def used_up(*_: object) -> int:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(os, "open", used_up)
        assert open_files.in_use() == (limit, limit)
    finally:
        for descriptor in opened:
            os.close(descriptor)
