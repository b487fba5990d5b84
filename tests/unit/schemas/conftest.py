"""The fixture of the tests of the REST API."""

from __future__ import annotations

import pytest

from tests.support.schema_api import Api


@pytest.fixture
def api() -> Api:
    return Api()
