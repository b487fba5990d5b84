"""The state of a cluster, as another client sees it: the controller's id, and whether every replica is in sync."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence

from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import KafkaliteError
from kafkalite.testing.processes import ProcessCluster, kazoo_client

#: Time in seconds that a node has to report its state.
_ANSWER_S = 2.0


def controller_of(cluster: ProcessCluster) -> int:
    """The id in /controller, through another client's eyes; -1 while there is none."""
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    try:
        with kazoo_client(cluster.zookeeper_connect, session_s=4, start_s=5) as client:
            return int(json.loads(client.get("/controller")[0])["brokerid"])
    except (KazooException, OSError, ValueError, KazooTimeoutError):
        return -1


def any_controller(cluster: ProcessCluster, within_s: float = math.inf) -> int:
    """Wait until there is one. Raises TimeoutError."""
    until = time.monotonic() + within_s
    while (broker_id := controller_of(cluster)) not in cluster.nodes:
        if time.monotonic() > until:
            raise TimeoutError("no controller")
        time.sleep(0.1)
    return broker_id


async def wait_in_sync(cluster: ProcessCluster, topic: str, replicas: int, deadline_s: float = 90.0) -> float:
    """Wait until every partition has a leader and a full ISR, as far as any node that answers knows; the seconds it took.

    Every node is asked: one that was just cut off still returns its earlier view. Raises TimeoutError.
    """
    began = time.monotonic()
    async with asyncio.timeout(deadline_s):
        while not await _all_see_in_sync(cluster.bootstrap, topic, replicas):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.1)
    return time.monotonic() - began


async def _all_see_in_sync(addresses: Sequence[str], topic: str, replicas: int) -> bool:
    heard = 0
    for address in addresses:
        try:
            # A client of its own for each question: one that knows more nodes may ask any.
            async with asyncio.timeout(_ANSWER_S), AsyncClient.connect([address]) as client:
                found = (await client.metadata([topic])).topics[0]
        except (KafkaliteError, OSError):  # a TimeoutError is an OSError
            continue
        if not found.partitions or not all(p.leader >= 0 and len(p.isr) >= replicas for p in found.partitions):
            return False
        heard += 1
    return heard > 0
