"""`kafkalite dev`: a whole cluster in one process, in the foreground, without a JVM."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import click
import uvloop

from kafkalite.errors import CannotListen
from kafkalite.telemetry import logs
from kafkalite_cli.imports import uncollected


@click.command()
@click.option("--nodes", type=click.IntRange(1, 9), default=3, show_default=True, help="How many nodes.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False),
    help="Keep the data in this directory; default: delete it at the end.",
)
@click.option(
    "--kafka-port",
    type=click.IntRange(0, 65000),
    default=9092,
    show_default=True,
    help="Kafka port of the first node; RPC is 100 and HTTP 200 above; 0: any free ports.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any configuration key, for every node.")
@click.option("--json", "as_json", is_flag=True, help="Print the ready line as JSON.")
@click.option("--log-level", type=click.Choice(sorted(logs.LEVELS)), default="error", show_default=True)
def dev(
    nodes: int, directory: str | None, kafka_port: int, settings: tuple[str, ...], *, as_json: bool, log_level: str
) -> None:
    """Run a whole cluster in the foreground until Ctrl-C.

    Every Kafka client and Spark can use it. Prints `ready` and the bootstrap addresses.
    The ZooKeeper is in memory; with --dir its state and the logs are kept for the next run.
    Needs the package kafkalite-testing.

    Examples:

    \b
      kafkalite dev
      kafkalite dev --nodes 1 --dir data --set auto.create.topics.enable=false
    """
    logs.configure(level=log_level, form="auto")
    extra = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--set: {setting!r} is not key=value")
        extra[key.strip()] = value.strip()
    path = Path(directory).resolve() if directory else None
    try:
        uvloop.run(_run(nodes, path, kafka_port, extra, as_json=as_json))
    except CannotListen as error:
        text = f"kafkalite: {error}; --kafka-port chooses other ports (0: any that are free)"
        click.echo(text, err=True)
        sys.exit(1)


async def _run(nodes: int, directory: Path | None, kafka_port: int, settings: dict[str, str], *, as_json: bool) -> None:
    with uncollected():
        from kafkalite.env import open_files

        try:
            from kafkalite.testing.cluster import Cluster
        except ModuleNotFoundError as error:
            if error.name != "kafkalite.testing":
                raise
            click.echo(
                "kafkalite: `dev` is not part of what servers need: install the package kafkalite-testing too"
                " (a clone makes its wheel in dist/testing, `make dist`)",
                err=True,
            )
            sys.exit(2)

    open_files.raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    began = time.monotonic()
    cluster = await Cluster(nodes=nodes, directory=directory, kafka_port=kafka_port, settings=settings).start()
    try:
        took = time.monotonic() - began
        if as_json:
            ready = {"event": "dev.ready", "kafka": cluster.bootstrap}
            ready["http"] = [str(node.endpoints["http"]) for node in cluster.nodes.values()]
            click.echo(json.dumps(ready))
        else:
            click.echo(f"ready: {nodes} nodes in {took:.2f} s{'' if directory else ', in memory of this run only'}")
            click.echo(f"bootstrap    {','.join(cluster.bootstrap)}")
            click.echo(f"console      http://{cluster.nodes[1].endpoints['http']}/")
        await stop.wait()
    finally:
        await cluster.stop()
