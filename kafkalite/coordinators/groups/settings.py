"""A setting of one group: its own, else the broker's."""

from __future__ import annotations

from kafkalite.coordinators.services import Services
from kafkalite.resource_configs import group_setting


def int_setting(services: Services, group_id: str, name: str) -> int:
    """As it is now. `name`: of the group's setting, such as "share.session.timeout.ms"."""
    return int(group_setting(services.group_settings(group_id), name, services.config))
