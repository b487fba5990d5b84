"""The in-memory log for tests of plain classes."""

from __future__ import annotations

import pytest

from tests.spark.fake_log import FakeLog


@pytest.fixture
def fake() -> FakeLog:
    return FakeLog()
