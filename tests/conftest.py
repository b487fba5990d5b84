"""Fixtures and options of every suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.zk import zookeeper

__all__ = ["zookeeper"]

pytest_plugins = ["tests.checklist"]

# Machines differ in speed: an example that takes long is no failure. `thorough` is for a hunt by hand.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start many processes go last and one after the other, so that they have the machine for themselves."""
    for item in items:
        if "/cluster/" in str(item.path) or "/interop/" in str(item.path):
            item.add_marker(pytest.mark.xdist_group("processes"))
        elif "/spark/" in str(item.path) and "/unit/" not in str(item.path):
            item.add_marker(pytest.mark.xdist_group("spark"))
