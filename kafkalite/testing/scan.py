"""What outsiders find on a running cluster: a client that does not log in, a user without rights, a ZooKeeper client without
credentials. `python -m kafkalite.testing.scan --help`; exit 1 if there is anything.

For a cluster that is meant to be closed: docs/security.md, followed literally, gives one on which nothing is found.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

from kafkalite.coordination.aiozk_adapter import connect
from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordination.znode_acls import as_acls, examine
from kafkalite.env.real import RealClock
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import KafkaliteError
from kafkalite.model import NO_BROKER_EPOCH, BrokerId, Endpoint
from kafkalite.rpc.client import RpcConnection
from kafkalite.rpc.messages.connection import HelloRequest

_PATIENCE_S = 15.0
_MAX_ZNODES = 1_000_000
#: Metadata version 1 for all topics, from client "scan".
_METADATA = bytes.fromhex("00000012 0003 0001 00000001 0004 7363616e ffffffff".replace(" ", ""))
_PAGES = ("/", "/api/status", "/metrics")
#: What a user without rights tries, and what its output may have although it is not refused.
_VERBS: tuple[tuple[str, ...], ...] = (
    ("create-topic", "made-by-a-stranger"),
    ("users", "list"),
    ("users", "delete", "admin", "--yes"),
    ("acls", "list"),
    ("quotas", "list"),
    ("health",),
    ("config", "get", "--cluster"),
    ("config", "set", "--cluster", "min.insync.replicas=1"),
    ("disk", "list"),
)
_EMPTY = (("list-topics",), ("groups", "list"), ("transactions", "list"))


def _no_checks() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def unauthenticated(kafka: Endpoint) -> list[str]:
    """What a Kafka listener answers to a client that does not log in, in plain text and over TLS."""
    found = []
    for name, context in (("plain text", None), ("TLS", _no_checks())):
        try:
            async with asyncio.timeout(_PATIENCE_S):
                reader, writer = await asyncio.open_connection(kafka.host, kafka.port, ssl=context)
                writer.write(_METADATA)
                answer = await reader.read(4096)
                writer.close()
        except (OSError, TimeoutError):
            continue
        if len(answer) > 8 and answer[4:8] == _METADATA[8:12]:
            found.append(f"{kafka}: answers Metadata in {name} without a login")
    return found


async def as_a_node(rpc: Endpoint) -> list[str]:
    """Whether the RPC listener accepts a peer that says that it is a node."""
    hello = HelloRequest("", BrokerId(1), NO_BROKER_EPOCH, client_id="scan")
    supervisor = Supervisor(lambda error: None)
    try:
        connection = await RpcConnection.open(RealNetwork(), rpc, hello, supervisor=supervisor, timeout_s=_PATIENCE_S)
    except (KafkaliteError, OSError, TimeoutError) as error:
        is_asked = "cluster" in str(error).lower() and "authoriz" not in str(error).lower()
        return [f"{rpc}: a client without a login gets as far as: {error}"] if is_asked else []
    finally:
        await supervisor.stop()
    await connection.close()
    return [f"{rpc}: a client without a login is accepted as a node"]


def pages(http: Endpoint) -> list[str]:
    """Pages that are shown to anybody."""
    found = []
    for scheme in ("http", "https"):
        for path in _PAGES:
            try:
                with urllib.request.urlopen(
                    f"{scheme}://{http}{path}", timeout=_PATIENCE_S, context=_no_checks() if scheme == "https" else None
                ) as answer:
                    found.append(f"{scheme}://{http}{path}: {answer.status} without a login")
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                continue
    return found


async def zookeeper(connect_string: str) -> list[str]:
    """What a ZooKeeper client without credentials may change, or read and should not."""
    try:
        session = await connect(connect_string, 10_000, clock=RealClock(), network=RealNetwork(), rng=random.Random())
    except CoordinatorError as error:
        return [] if "credentials" in str(error) else [f"{connect_string}: not examined: {error}"]
    try:
        acls = as_acls(session)
        assert acls is not None
        report = await examine(acls, _MAX_ZNODES)
    finally:
        await session.close()
    found = [f"{connect_string}: anybody may change {path}" for path in report.changeable]
    return found + [f"{connect_string}: anybody may read {path}" for path in report.readable]


def user(bootstrap: str, client_config: str) -> Iterator[str]:
    """What a user without any permission can do by the command line."""
    for verb, may_succeed in (*((each, False) for each in _VERBS), *((each, True) for each in _EMPTY)):
        where = ("--bootstrap", bootstrap, "--client-config", client_config)
        done = subprocess.run(
            [sys.executable, "-m", "kafkalite_cli", "admin", *verb, *where, "--json"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        is_empty = may_succeed and not any(mark in done.stdout for mark in ('"name"', '"group"', '"transactional_id"'))
        if done.returncode == 0 and not is_empty:
            yield f"a user without rights: admin {' '.join(verb)} succeeds: {done.stdout.strip()[:200]}"


def _endpoint(text: str) -> Endpoint:
    host, _, port = text.rpartition(":")
    return Endpoint(host.strip("[]"), int(port))


def scan(kafka: str, rpc: str, http: str, zookeeper_connect: str, client_config: str) -> list[str]:
    """Everything that was found; empty arguments are left out."""

    async def network() -> list[str]:
        found = []
        if kafka:
            found += await unauthenticated(_endpoint(kafka))
        if rpc:
            found += await as_a_node(_endpoint(rpc))
        if zookeeper_connect:
            found += await zookeeper(zookeeper_connect)
        return found

    found = asyncio.run(network())
    if http:
        found += pages(_endpoint(http))
    if client_config:
        found += user(kafka, client_config)
    return found


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m kafkalite.testing.scan", description=(__doc__ or "").split("\n\n")[0]
    )
    for name, text in (
        ("kafka", "HOST:PORT of a Kafka listener"),
        ("rpc", "HOST:PORT of an RPC listener"),
        ("http", "HOST:PORT of an HTTP listener"),
        ("zookeeper", "HOST:PORT,…/chroot"),
        ("client-config", "TOML file of a user without rights"),
    ):
        parser.add_argument(f"--{name}", default="", help=text)
    given = parser.parse_args(arguments)
    found = scan(given.kafka, given.rpc, given.http, given.zookeeper, given.client_config)
    for line in found:
        print(line)
    print(f"{len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
