"""Where a node listens: each listener is bound in turn, and an error names the setting."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial

from kafkalite.config import BrokerConfig, kafka_listeners
from kafkalite.errors import CannotListen
from kafkalite.http.server import HttpServer
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.listeners import kafka_endpoints
from kafkalite.model import Endpoint
from kafkalite.rpc.server import RpcServer


async def bind(
    config: BrokerConfig, rpc: RpcServer, kafka: KafkaSide, http: HttpServer, endpoints: dict[str, Endpoint]
) -> None:
    """Start all listeners, and write into `endpoints` where each of them is. Raises CannotListen."""

    async def start_http(host: str, port: int) -> Endpoint:
        return Endpoint(*await http.start(host, port))

    endpoints["rpc"] = await _listen("rpc.port", rpc.start, config.host, config.rpc_port)
    listeners = kafka_listeners(config)
    key = "listeners" if config.listeners else "kafka.port"
    for name, each in zip(kafka_endpoints(listeners), listeners, strict=True):
        endpoints[name] = await _listen(key, partial(kafka.start, name=each.name), each.host, each.port)
    if config.http_port >= 0:
        endpoints["http"] = await _listen("http.port", start_http, config.host, config.http_port)


async def _listen(key: str, start: Callable[[str, int], Awaitable[Endpoint]], host: str, port: int) -> Endpoint:
    """Raises CannotListen."""
    try:
        return await start(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise CannotListen(f"cannot listen on {host}:{port} ({key}): {reason}") from None
