"""One round of a rolling restart under librdkafka's load; `make rolling` does ten, and ten with two versions of the software."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.rolling import is_clean, run

pytestmark = [pytest.mark.cluster]


def test_a_round_of_restarts_reaches_no_application(python_clients: Path, tmp_path: Path) -> None:
    found = run(tmp_path, python_clients, rounds=1, old=None, rate=300)
    assert is_clean(found), found
    assert found["restarts"] == 3 and found["read"] == found["sent"] > 0
