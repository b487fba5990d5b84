"""Configurations that a test changes through Kafka's IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.client.async_client import AsyncClient
from kafkalite.protocol import wire

#: Resource types.
TOPIC, BROKER = 2, 4
_SET, _DELETE = 0, 1


async def alter_configs(
    client: AsyncClient, kind: int, name: str, changes: Mapping[str, str], deletions: tuple[str, ...] = ()
) -> int:
    """The error code. `name` "" of BROKER: the default of all brokers."""
    message = wire.IncrementalAlterConfigsRequest
    configs = [message.AlterableConfig(key, _SET, value) for key, value in changes.items()]
    configs += [message.AlterableConfig(key, _DELETE, None) for key in deletions]
    request = message([message.AlterConfigsResource(kind, name, configs)])
    return int((await client.call_controller(request, timeout_s=30.0)).responses[0].error_code)
