"""`kafkalite zookeeper`: a real ZooKeeper server, until SIGTERM."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from kafkalite.coordination.embedded import EmbeddedZooKeeper, ZooKeeperUnavailable, cache_directory
from kafkalite_cli.new_files import keep_from_others

_LOOK_S = 3600.0


class _Stop(BaseException):
    """Raised by the signal handler out of whatever waits."""


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("kafkalite-zookeeper"),
    show_default=True,
    help="Data directory.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=2181, show_default=True, help="0: a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--json", "as_json", is_flag=True, help="No effect: the ready line is JSON always.")
def zookeeper(directory: Path, port: int, host: str, *, as_json: bool) -> None:
    """Run a real ZooKeeper server (jars: KAFKALITE_ZOOKEEPER_JARS, pyspark's, or Debian's libzookeeper-java) until SIGTERM or Ctrl-C.

    Example:

    \b
      kafkalite zookeeper --dir zk --port 2181
    """
    del as_json
    keep_from_others()
    server = EmbeddedZooKeeper(directory.absolute(), port, host=host, class_cache=cache_directory())

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Once: a second signal must not interrupt the clean stop half-way.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise _Stop

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        server.start()
        ready = {"event": "zookeeper.ready", "port": server.port, "dir": str(server.directory)}
        click.echo(json.dumps(ready))
        sys.stdout.flush()
        code = None
        while code is None:
            code = server.wait(_LOOK_S)
    except _Stop:
        server.stop()
        return
    except ZooKeeperUnavailable as error:
        click.echo(f"kafkalite zookeeper: {error}", err=True)
        raise SystemExit(1) from None
    click.echo(f"kafkalite zookeeper: the server ended with {code} (see {directory}/zookeeper.out)", err=True)
    raise SystemExit(1)
