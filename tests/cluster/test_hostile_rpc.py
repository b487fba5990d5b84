"""Hostile bytes on every port of a live node, while a producer works.

The node lives, its memory stays bounded, the hostile connection ends with one log line, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import socket
import struct
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc.framing import encode_frame
from kafkalite.rpc.messages.base import by_kind
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.testing.processes import Process, ProcessCluster
from tests.cluster.running import PATIENCE_S, QUICK, Load, create_topic, eye, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.zookeeper]

MIB = 1 << 20
#: What requests under way may take, per listener.
QUEUED = 48 * MIB
FRAME = 16 * MIB
#: Beside twice a listener's limit (buffers grow by doubling): chunks of the size of a read per connection, what the allocator keeps.
SLACK = 96 * MIB
SETTINGS = QUICK | {
    "queued.max.request.bytes": QUEUED,
    "rpc.max.frame.bytes": FRAME,
    "socket.request.max.bytes": FRAME,
    "kafka.port": 0,
    "http.port": 0,
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("hostile"), nodes=2, settings=SETTINGS) as made:
        asyncio.run(create_topic(made, "calm", assignment={0: (1, 2), 1: (2, 1)}, min_insync_replicas="2"))
        yield made


#: Connections that it leaves on the stack stay open while the producer has to go on.
Attack = Callable[[Process, contextlib.ExitStack], None]


async def attack(cluster: ProcessCluster, how: Attack) -> None:
    """Run it against node 1 with a producer at work; nobody may notice."""
    node = cluster.nodes[1]
    with eye(cluster.zookeeper_connect) as zk:
        epochs = [zk.stat(f"/brokers/ids/{number}").czxid for number in cluster.nodes]
        before = node.memory_bytes()
        await asyncio.to_thread(Path(f"/proc/{node.pid}/clear_refs").write_text, "5")  # the peak counts from here
        async with Load(cluster, "calm", rate=200) as load:
            await load.more(20)
            with contextlib.ExitStack() as held:
                await asyncio.to_thread(how, node, held)
                await load.more(20)
            assert not load.failed
        assert [zk.stat(f"/brokers/ids/{number}").czxid for number in cluster.nodes] == epochs
        assert all(sorted(zk.state("calm", partition)["isr"]) == [1, 2] for partition in (0, 1))
    assert node.running
    assert node.peak_memory_bytes() < before + 2 * QUEUED + SLACK, (before, node.peak_memory_bytes())
    assert "Traceback" not in node.log_path.read_text()


#: Hosts of this machine to dial from: of many alike lines about one host a node writes only some.
HOSTS = (f"127.0.{number // 250 + 1}.{number % 250 + 1}" for number in itertools.count())


def dial(node: Process, port: str, source: str = "") -> socket.socket:
    """Connect, from the host `source` if one is given."""
    host, _, number = node.ready[port].rpartition(":")
    return socket.create_connection((host, int(number)), PATIENCE_S, (source, 0) if source else None)


def closed_by_peer(connection: socket.socket) -> bytes:
    """What it still says before it ends the connection. Raises TimeoutError if it does not."""
    said = b""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while chunk := connection.recv(65536):
            said += chunk
    return said


def send(connection: socket.socket, data: bytes) -> None:
    """As much as the peer wants to have."""
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(data)


def pour(connections: list[socket.socket], beginning: bytes) -> None:
    """On each the beginning of a frame and then twelve MiB of it, or what the peer takes."""
    data = bytes(MIB)
    for connection in connections:
        send(connection, beginning)
        connection.settimeout(0)
    for _ in range(12):
        for connection in connections:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                connection.send(data)


def lines_about(node: Process, connection_name: str) -> list[dict[str, Any]]:
    found = []
    for line in node.log_path.read_text().splitlines():
        if connection_name in line:
            told = json.loads(line)
            if told.get("peer") == connection_name:
                found.append(told)
    return found


def must_be_cut(node: Process, port: str, data: bytes) -> None:
    """Send; the peer ends the connection by itself, with one line about it in its log."""
    with dial(node, port, next(HOSTS)) as connection:
        name = "{}:{}".format(*connection.getsockname())
        send(connection, data)
        closed_by_peer(connection)
    if port != "http":
        (line,) = wait_until(lambda: lines_about(node, name), f"a line about {name}, which sent {data[:80]!r}")
        assert line["level"] == "warning"


def must_end(node: Process, port: str, data: bytes) -> bytes:
    """Send, then end our side: the peer may answer, and ends its own."""
    with dial(node, port) as connection:
        send(connection, data)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        return closed_by_peer(connection)


# --- RPC ---------------------------------------------------------------------------------------------------------


def frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def hello_of(cluster_id: str, node_id: int) -> bytes:
    """The first frame of a connection."""
    hello = HelloRequest(cluster_id, BrokerId(node_id), BrokerEpoch(1), client_id="hostile")
    return b"".join(encode_frame(1, hello))


@pytest.fixture(scope="module")
def hello(cluster: ProcessCluster) -> bytes:
    """What node 2 would say: without security any peer may say so."""
    with eye(cluster.zookeeper_connect) as zk:
        return hello_of(zk.json("/cluster/id")["id"], 2)


def test_only_nodes_are_let_in(cluster: ProcessCluster) -> None:
    said = must_end(cluster.nodes[1], "rpc", hello_of("", -1) + frame(msgpack.packb([64, 1, []])))
    size, header = struct.unpack_from(">II", said)
    kind, _, fields = msgpack.unpackb(said[8 : 8 + header])
    assert (kind, fields[0], len(said)) == (3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 4 + size)
    assert "kafka.port" in fields[1]


@pytest.mark.parametrize("is_greeted", [False, True], ids=["stranger", "greeted"])
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        struct.pack(">II", 0xFFFFFFFF, 10),
        struct.pack(">II", FRAME + 5, 10),
        struct.pack(">II", 100, 0xFFFFFFFF),
        struct.pack(">II", 3, 0) + b"abc",
        frame(b""),
        frame(b"\xc1"),
        frame(b"\x93\x02\x01"),
        frame(b"\x91" * 5_000),
        frame(b"\xdd\xff\xff\xff\xff\xc0"),
        frame(msgpack.packb({"kind": 2})),
        frame(msgpack.packb([2, 1])),
        frame(msgpack.packb(["2", 1, []])),
        frame(msgpack.packb([-4, 1, []])),
        frame(msgpack.packb([1 << 40, 1, []])),
        frame(msgpack.packb([20, -1, []])),
        frame(msgpack.packb([20, 1, [1, 2]])),
        frame(msgpack.packb([20, 1, ["all", 1, 0, 1, 1, 0, 0, []]])),
        frame(msgpack.packb([21, 1, [[]]])),
        frame(msgpack.packb([2, 1, [7, 7, 7]])),
    ],
    ids=lambda data: data[:24].hex(),
)
def test_what_is_no_request_ends_the_connection(
    cluster: ProcessCluster, hello: bytes, *, is_greeted: bool, data: bytes
) -> None:
    must_be_cut(cluster.nodes[1], "rpc", hello + data if is_greeted else data)


def test_an_unknown_api_is_refused_and_the_connection_stays(cluster: ProcessCluster, hello: bytes) -> None:
    assert 60_000 not in by_kind
    again = frame(msgpack.packb([60_000, 7, ["some", {"newer": "message"}]]))
    answers = must_end(cluster.nodes[1], "rpc", hello + again + again)
    frames = []
    while answers:
        size, header = struct.unpack_from(">II", answers)
        frames.append(msgpack.unpackb(answers[8 : 8 + header]))
        answers = answers[4 + size :]
    assert [(kind, correlation) for kind, correlation, _ in frames] == [(3, 1), (1, 7), (1, 7)]
    assert all(fields[0] == 35 for _, _, fields in frames[1:])


def junk(rng: random.Random, depth: int = 0) -> object:
    """Something that msgpack can pack."""
    draw = rng.randrange(12 if depth < 3 else 8)
    if draw >= 8:
        return [junk(rng, depth + 1) for _ in range(rng.randrange(5))]
    choices: list[object] = [None, True, -1, rng.getrandbits(63), "calm", rng.randbytes(9), 1.5, rng.randrange(4)]
    return choices[draw]


async def test_random_frames_of_every_kind(cluster: ProcessCluster, hello: bytes) -> None:
    rng = random.Random(2)

    def fuzz(node: Process, stack: contextlib.ExitStack) -> None:
        kinds = sorted(kind for kind in by_kind if kind % 2 == 0 and kind > 2)
        for _ in range(150):
            packed = msgpack.packb([rng.choice(kinds), 1, [junk(rng) for _ in range(rng.randrange(9))]])
            must_end(node, "rpc", hello + frame(packed, rng.randbytes(rng.randrange(40))))
        for _ in range(100):
            must_end(node, "rpc", rng.choice([b"", hello]) + rng.randbytes(rng.randrange(200)))
        for _ in range(100):  # true requests with flipped bits, cut short, or followed by anything
            data = bytearray(hello + frame(msgpack.packb([20, 1, [2, 1, 0, 1, 1_000, 0, 0, []]])))
            for _ in range(rng.randrange(4)):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            must_end(node, "rpc", bytes(data[: rng.randrange(len(data))]) + rng.randbytes(rng.randrange(9)))

    await attack(cluster, fuzz)


async def test_half_frames_do_not_fill_the_memory_nor_hold_up_others(cluster: ProcessCluster, hello: bytes) -> None:
    """Far more promised, and sent, than requests under way may take; and then nothing further."""

    def flood(node: Process, held: contextlib.ExitStack) -> None:
        connections = [held.enter_context(dial(node, "rpc", next(HOSTS))) for _ in range(40)]
        for connection in connections:
            send(connection, hello)
            connection.recv(1000)
        pour(connections, struct.pack(">II", FRAME - 4, 100))
        cut = "a frame arrived too slowly while memory was short"
        wait_until(lambda: cut in node.log_path.read_text(), "the largest are cut")

    await attack(cluster, flood)
    # Other requests did not have to wait until they were cut for taking half a minute.
    told = await asyncio.to_thread(cluster.nodes[1].log_path.read_text)
    assert "a frame took too long" not in told


# --- the Kafka port ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 64,
        struct.pack(">i", 2**31 - 1) + b"\x00" * 20,
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 3, 1, 7, 500),
        struct.pack(">ihhih", 12, 3, 1, 7, -1) + b"\x7f\xff",
        struct.pack(">ihhih", 14, 18, 3, 7, -1) + b"\x00\xff\xff\xff",
        struct.pack(">ihhih", 14, 0, 7, 1, -1) + b"\xff\xff\xff\xff",
    ],
    ids=lambda data: data[:16].hex(),
)
def test_what_is_no_kafka_request_ends_the_connection(cluster: ProcessCluster, data: bytes) -> None:
    must_be_cut(cluster.nodes[1], "kafka", data)


async def test_random_kafka_requests(cluster: ProcessCluster) -> None:
    rng = random.Random(3)

    def fuzz(node: Process, stack: contextlib.ExitStack) -> None:
        for _ in range(300):
            body = rng.randbytes(rng.randrange(60)) if rng.random() < 0.5 else bytes(rng.randrange(60))
            head = struct.pack(">hhih", rng.randrange(-1, 75), rng.randrange(-1, 18), rng.getrandbits(31), -1)
            data = struct.pack(">i", len(head) + len(body)) + head + body
            must_end(node, "kafka", data[: rng.choice([len(data), rng.randrange(len(data))])])

    await attack(cluster, fuzz)


async def test_half_kafka_requests_do_not_fill_the_memory(cluster: ProcessCluster) -> None:
    def flood(node: Process, held: contextlib.ExitStack) -> None:
        connections = [held.enter_context(dial(node, "kafka")) for _ in range(40)]
        pour(connections, struct.pack(">ihhih", FRAME - 8, 0, 7, 1, -1))

    await attack(cluster, flood)


# --- the HTTP port -----------------------------------------------------------------------------------------------


async def test_random_bytes_on_the_http_port(cluster: ProcessCluster) -> None:
    rng = random.Random(4)

    def fuzz(node: Process, stack: contextlib.ExitStack) -> None:
        must_be_cut(node, "http", b"\x00\x01\x02\r\n\r\n")
        must_be_cut(node, "http", b"GET /" + b"a" * 100_000)
        must_be_cut(node, "http", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000)
        must_be_cut(node, "http", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n")
        for _ in range(100):
            must_end(
                node, "http", rng.choice([b"", b"GET / HTTP/1.1\r\nhost: x\r\n"]) + rng.randbytes(rng.randrange(300))
            )
        with contextlib.ExitStack() as held:  # more than it serves at a time, and none of them says a whole word
            for _ in range(150):
                send(held.enter_context(dial(node, "http")), b"GET")
            for page in ("/readyz", "/healthz", "/metrics", "/"):  # they give way
                with urllib.request.urlopen(f"http://{node.ready['http']}{page}", timeout=PATIENCE_S) as answer:
                    assert answer.status == 200

    await attack(cluster, fuzz)


# --- at the end --------------------------------------------------------------------------------------------------


async def test_after_all_this_everything_is_there(cluster: ProcessCluster) -> None:
    async with Load(cluster, "calm") as load:
        await load.more()
    node = cluster.nodes[1]
    # It has let go of what the attackers held.
    await asyncio.to_thread(wait_until, lambda: node.memory_bytes() < QUEUED + 2 * SLACK, "memory given back")
    assert await asyncio.to_thread(node.terminate) == 0
