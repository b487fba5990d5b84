from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.controller.cluster import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    await made.close()
