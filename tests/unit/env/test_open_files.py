"""How many of the process's files are for logs."""

from __future__ import annotations

import resource

import pytest

from kafkalite.env import open_files


@pytest.mark.parametrize(
    ("limit", "logs"),
    [(64, 32), (256, 128), (1_024, 512), (4_096, 1_024), (1 << 20, 8_192), (resource.RLIM_INFINITY, 8_192)],
)
def test_the_share_of_logs(limit: int, logs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found with `ulimit -n 128`: 512 files were for logs, and a sound disk was given up for want of one."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert open_files.log_files() == logs
