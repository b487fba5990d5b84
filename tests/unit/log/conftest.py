from __future__ import annotations

import pytest

from tests.support.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()
