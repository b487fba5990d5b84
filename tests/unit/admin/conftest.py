from __future__ import annotations

from tests.unit.controller.conftest import cluster

__all__ = ["cluster"]
