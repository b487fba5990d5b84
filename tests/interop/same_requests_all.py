"""The good requests of all APIs: each family's module adds its own to `BASES`."""

from __future__ import annotations

from . import (
    same_requests_administration,
    same_requests_data,
    same_requests_groups,
    same_requests_new_groups,
    same_requests_security,
    same_requests_share_groups,
    same_requests_transactions,
)
from .same_requests import BASES

FAMILIES = (
    same_requests_data,
    same_requests_groups,
    same_requests_transactions,
    same_requests_administration,
    same_requests_security,
    same_requests_new_groups,
    same_requests_share_groups,
)

__all__ = ["BASES", "FAMILIES"]
