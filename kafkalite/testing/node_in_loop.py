"""A node in the caller's loop, on a ZooKeeper in memory: what the clusters in one process are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.config import broker_config
from kafkalite.env.real import real_env
from kafkalite.env.real_network import die
from kafkalite.env.supervisor import Policy, Supervisor
from kafkalite.node.node import Node
from kafkalite.testing.simulated.zookeeper import SimZooKeeper


def launch(
    settings: Mapping[str, Any],
    zookeeper: SimZooKeeper,
    supervisor: Supervisor,
    on_fatal: Callable[[BaseException], None] = die,
) -> tuple[Node, asyncio.Task[None]]:
    """A node, and the task that runs it; does not wait. `zookeeper` knows its host as `node-ID`.

    Args:
        settings: key with dots -> value. With `listeners` among them, `kafka.port` is left out.
    """
    if "listeners" in settings:
        settings = {key: value for key, value in settings.items() if key != "kafka.port"}
    config, _ = broker_config(settings)
    name = f"node-{config.broker_id}"
    node = Node(config, real_env(connect_coordinator=zookeeper.connector(name), on_fatal=on_fatal))
    return node, supervisor.spawn(name, node.run(), Policy.ISOLATED)


async def until_ready(node: Node, run: asyncio.Task[None], supervisor: Supervisor) -> None:
    """Return when the node serves. Raises what has kept it from that."""
    ready = supervisor.spawn("ready", node.ready.wait(), Policy.ISOLATED)
    try:
        await asyncio.wait([ready, run], return_when=asyncio.FIRST_COMPLETED)
        if run.done():
            await run
    finally:
        ready.cancel()
