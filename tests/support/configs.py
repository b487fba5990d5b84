"""Configurations that a test changes."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.admin import configs
from kafkalite.client.admin.configs import ConfigResource
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.model import BrokerId


async def alter_broker(
    client: AsyncClient, broker_id: int | None, changes: Mapping[str, str], deletions: tuple[str, ...] = ()
) -> ErrorCode:
    """The error code. `broker_id` None: the settings of all brokers."""
    resource = ConfigResource.broker(None if broker_id is None else BrokerId(broker_id))
    try:
        await configs.alter_configs(client, resource, changes, deletions)
    except ApiError as refusal:
        return refusal.code
    return ErrorCode.NONE
