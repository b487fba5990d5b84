"""Fixtures of every suite."""

from __future__ import annotations

from tests.zk import zookeeper

__all__ = ["zookeeper"]
