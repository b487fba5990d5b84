"""One server and one client connection in one process: requests/s, MB/s and CPU per request, by size and depth.

    python -m bench.rpc_roundtrip [--seconds 1] [--json FILE]

The requests are fetches of a follower, whose responses carry the body. The handler does nothing, so this is framing, codec,
dispatch and sockets of both sides together.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.table import Table

from bench.figures import json_option, write_json
from kafkalite.config import BrokerConfig
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.model import BrokerEpoch, BrokerId, Offset
from kafkalite.rpc.answers import Answer
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.greeting import Identity
from kafkalite.rpc.handling import Reply, RpcRequest
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.rpc.messages.replication import ReplicaFetchedPartition, ReplicaFetchRequest, ReplicaFetchResponse
from kafkalite.rpc.server import RpcServer
from kafkalite.telemetry import logs

#: (body bytes, requests under way).
CASES = ((200, 1), (200, 16), (200, 60), (16_384, 16), (131_072, 8), (1_048_576, 4))


async def measure(connection: RpcConnection, size: int, depth: int, seconds: float) -> dict[str, Any]:
    """Keep `depth` requests under way for the given time."""
    request = ReplicaFetchRequest(BrokerId(2), BrokerEpoch(1), 0, 1, size, 7, 7, ())
    free = asyncio.Semaphore(depth)

    def answered(future: asyncio.Future[Answer]) -> None:
        future.result()
        free.release()

    count = 0
    started, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - started < seconds:
        await free.acquire()
        connection.send_nowait(request).add_done_callback(answered)
        count += 1
    for _ in range(depth):
        await free.acquire()
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    return {
        "body_bytes": size,
        "depth": depth,
        "requests_per_s": round(count / elapsed),
        "mb_per_s": round(count * size / elapsed / 1e6, 1),
        "cpu_us_per_request": round(used / count * 1e6, 1),
    }


async def run(seconds: float) -> list[dict[str, Any]]:
    """All cases, one after the other."""
    supervisor = Supervisor(lambda error: None)
    network = RealNetwork()
    bodies = {size: bytes(size) for size, _ in CASES}

    def fetched(request: RpcRequest) -> Reply:
        assert isinstance(request.message, ReplicaFetchRequest)
        size = request.message.max_bytes
        part = ReplicaFetchedPartition("topic", 0, 0, Offset(5), Offset(0), size)
        return Reply(ReplicaFetchResponse(0, 7, (part,)), [bodies[size]])

    server = RpcServer(
        network=network,
        supervisor=supervisor,
        config=BrokerConfig(),
        identity=lambda: Identity("bench", BrokerId(1), BrokerEpoch(1)),
        handlers={ReplicaFetchRequest: fetched},
    )
    endpoint = await server.start("127.0.0.1", 0)
    hello = HelloRequest("bench", BrokerId(2), BrokerEpoch(1))
    connection = await RpcConnection.open(network, endpoint, hello, supervisor=supervisor)
    try:
        return [await measure(connection, size, depth, seconds) for size, depth in CASES]
    finally:
        await connection.close()
        await server.close()
        await supervisor.stop()


@click.command()
@click.option("--seconds", type=float, default=1.0, show_default=True, help="Per case.")
@json_option
def main(seconds: float, json_file: Path | None) -> None:
    """Measure RPC round trips."""
    logs.configure(level="error")
    rows = uvloop.run(run(seconds))
    table = Table(title="RPC round trips, both ends in one process")
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{value:,}" for value in row.values()))
    Console().print(table)
    write_json(rows, json_file)


if __name__ == "__main__":
    main()
