"""Requests that change and show settings."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol import wire

from .conftest import FrameClient

TOPIC, BROKER = 2, 4


async def alter(client: FrameClient, *changes: tuple[str, int, str | None], name: str = "t", kind: int = TOPIC) -> int:
    request = wire.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(*change) for change in changes]
    answer = await client.ask(request([request.AlterConfigsResource(kind, name, configs)]), 1)
    return int(answer.responses[0].error_code)


async def described(client: FrameClient, *keys: str, name: str = "t", kind: int = TOPIC, version: int = 4) -> Any:
    request = wire.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(kind, name, list(keys) or None)
    answer = await client.ask(request([resource], include_synonyms=True, include_documentation=True), version)
    return answer.results[0]
