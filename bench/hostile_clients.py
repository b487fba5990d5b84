"""What one hostile client costs the others: librdkafka produces and reads small records before, during and after each attack.

    python -m bench.hostile_clients [--rows REGEX] [--seconds 10] [--tree CHECKOUT] [--json FILE]

The victims are one producer (acks=all, 100 B, 100/s) and one consumer of the same partition; "read" is the time from the producer's call to
the consumer. All attacks go to the node that leads it, without any right: slow and endless TLS handshakes (on the RPC listener, which has
TLS here), compressed batches that stand for much or consist of empty blocks, expressions of groups, filters of the console's message
browser, and HTTP requests that never end. Needs pip (confluent-kafka) and openssl.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import socket
import ssl
import struct
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click
import cramjam
from rich.console import Console
from rich.table import Table

from bench.beside import BesideClient, helper
from bench.beside_kafka_system import System
from bench.figures import json_option, write_json
from bench.peers import ROOT, PeerLoad, Side, scratch_python
from kafkalite.protocol import wire
from kafkalite.record.builder import encode_batch, encode_record
from kafkalite.record.compression import Codec, compress
from kafkalite.testing.certificates import Authority

RATE_PER_S = 100.0
TOPICS = 300
#: RE2 needs about 2 ms for each name of a topic.
EXPRESSION = "((((.{0,30}){0,30})?)?)*"
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
PROBLEMS = ("broker.suspected", "controller.broker.gone", "Traceback")
console = Console(width=200)

Attack = Callable[["Attacks", float], None]


class Attacks:
    """Where they go. Each attack runs until its deadline (monotonic seconds) and returns what it did in `did`."""

    def __init__(self, kafka: str, http: str, rpc: str) -> None:
        self.kafka, self.http, self.rpc = kafka, http, rpc
        self.did = 0
        self._lock = threading.Lock()

    def count(self, number: int = 1) -> None:
        with self._lock:
            self.did += number


def dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def together(count: int, work: Callable[[], None]) -> None:
    """In that number of threads."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kept_open(attacks: Attacks, address: str, count: int, until: float, pieces: list[bytes], pause_s: float) -> None:
    """Connections that send a piece each `pause_s`, and are opened again when the node ends them."""
    open_now: dict[socket.socket, Iterator[bytes]] = {}
    try:
        while time.monotonic() < until:
            while len(open_now) < count:
                try:
                    made = dial(address)
                except OSError:
                    break
                made.settimeout(0)
                open_now[made] = iter(pieces)
                attacks.count()
            for each, rest in list(open_now.items()):
                try:
                    each.send(next(rest, b""))
                    if each.recv(4096) == b"":
                        raise ConnectionResetError
                except BlockingIOError:
                    continue
                except OSError:
                    each.close()
                    del open_now[each]
            time.sleep(pause_s)
    finally:
        for each in open_now:
            each.close()


# --- TLS ------------------------------------------------------------------------------------------


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(into, out).do_handshake()
    return out.read()


def half_handshakes(attacks: Attacks, until: float) -> None:
    kept_open(attacks, attacks.rpc, 500, until, [HALF_HELLO], 0.2)


def dripping_handshakes(attacks: Attacks, until: float) -> None:
    kept_open(attacks, attacks.rpc, 300, until, [bytes([each]) for each in client_hello()], 1.0)


def whole_handshakes(attacks: Attacks, until: float) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def again() -> None:
        while time.monotonic() < until:
            with contextlib.suppress(OSError), dial(attacks.rpc) as raw, context.wrap_socket(raw):
                attacks.count()

    together(8, again)


# --- Kafka ----------------------------------------------------------------------------------------


def a_batch(codec: Codec, payload: bytes) -> bytes:
    now = int(time.time() * 1000)
    return bytes(
        encode_batch(
            payload, record_count=1, last_offset_delta=0, attributes=int(codec), base_timestamp=now, max_timestamp=now
        )
    )  # fmt: skip


def bomb(codec: Codec) -> bytes:
    """As much as fits into a batch of 1 MB, or 250 MB."""
    size = {Codec.SNAPPY: 18, Codec.LZ4: 200, Codec.GZIP: 250, Codec.ZSTD: 250}[codec] << 20
    return a_batch(codec, compress(codec, encode_record(0, 0, b"k", bytes(size), ())))


def blocks(codec: Codec) -> bytes:
    """Empty blocks, members or frames, in 16 kB: less is looked into on the loop."""
    match codec:
        case Codec.LZ4:
            payload = b"\x04\x22\x4d\x18\x60\x70\x00" + (struct.pack("<I", 2) + b"\x10A") * 2600 + bytes(4)
        case Codec.GZIP:
            payload = gzip.compress(b"") * 780
        case _:
            payload = bytes(cramjam.zstd.compress(b"")) * 1700
    return a_batch(codec, payload)


def producing(topic: str, batch: bytes, partitions: int = 1) -> Attack:
    request = wire.ProduceRequest

    def attack(attacks: Attacks, until: float) -> None:
        parts = [request.PartitionProduceData(number, batch) for number in range(partitions)]
        message = request(None, -1, 30_000, [request.TopicProduceData(topic, partition_data=parts)])

        def again() -> None:
            client = BesideClient(attacks.kafka)
            while time.monotonic() < until:
                client.ask(message, 9)
                attacks.count()
            client.close()

        together(4, again)

    return attack


def expressions(attacks: Attacks, until: float) -> None:
    """Groups whose members subscribe to a costly expression, each to another one."""
    request = wire.ConsumerGroupHeartbeatRequest
    client = BesideClient(attacks.kafka)
    number = 0
    while time.monotonic() < until:
        number += 1
        client.ask(wire.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"hostile-{number}"]), 5)
        client.ask(
            request(
                f"hostile-{number}", f"member-{number}", 0, rebalance_timeout_ms=10_000, topic_partitions=[],
                subscribed_topic_regex=f"{EXPRESSION}|x{number}",
            ),
            1,
        )  # fmt: skip
        attacks.count()
    client.close()


# --- HTTP -----------------------------------------------------------------------------------------


def get(attacks: Attacks, path: str, until: float) -> None:
    while time.monotonic() < until:
        with contextlib.suppress(OSError), dial(attacks.http) as raw:
            host = attacks.http.rpartition(":")[0]
            raw.sendall(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
            while raw.recv(1 << 16):
                pass
            attacks.count()


def filters(topic: str) -> Attack:
    path = f"/api/console/messages?topic={topic}&from=start&limit=100&text={urllib.parse.quote('not there')}"
    return lambda attacks, until: together(8, lambda: get(attacks, path, until))


def http_floods(kind: str) -> Attack:
    head = b"GET / HTTP/1.1\r\nhost: localhost\r\n"

    def attack(attacks: Attacks, until: float) -> None:
        if kind == "headers":

            def again() -> None:
                while time.monotonic() < until:
                    with contextlib.suppress(OSError), dial(attacks.http) as raw:
                        raw.sendall(head + b"a:\n" * 5000 + b"\n")
                        raw.recv(1000)
                        attacks.count()

            together(8, again)
        elif kind == "line":
            kept_open(attacks, attacks.http, 90, until, [head, b"x: ", *[b"x" * 100] * 1000], 0.1)
        elif kind == "body":
            start = b"POST /subjects/t/versions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
            kept_open(attacks, attacks.http, 50, until, [start, *[b"1\r\nx\r\n" * 2000] * 1000], 0.05)
        else:
            kept_open(attacks, attacks.http, 500, until, [b"G"], 0.2)

    return attack


# --- the rows -------------------------------------------------------------------------------------


def rows() -> dict[str, Attack]:
    found: dict[str, Attack] = {
        "TLS: half handshakes": half_handshakes,
        "TLS: one byte per second": dripping_handshakes,
        "TLS: whole handshakes": whole_handshakes,
    }
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        for topic in ("plain", "compacted"):
            found[f"bomb: {codec.name.lower()}, {topic}"] = producing(topic, bomb(codec))
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        found[f"empty blocks: {codec.name.lower()}"] = producing("plain", blocks(codec))
    small = a_batch(Codec.GZIP, compress(Codec.GZIP, encode_record(0, 0, b"k", bytes(250_000), ())))
    return {
        **found,
        "a bomb for each of 200 partitions": producing("wide", small, 200),
        "expressions of groups": expressions,
        "console: filter on bombs": filters("plain"),
        "console: filter on small records": filters("victim"),
        "HTTP: many headers": http_floods("headers"),
        "HTTP: endless header": http_floods("line"),
        "HTTP: endless body": http_floods("body"),
        "HTTP: idle connections": http_floods("idle"),
    }


class Measured:
    """The victims and the node under one attack after the other."""

    def __init__(self, system: System, victim: PeerLoad, seconds: float) -> None:
        self._nodes = system.nodes.values()
        self._victim = victim
        self._seconds = seconds
        leader = system.address_of_leader("victim")
        self._node = next(node for node in self._nodes if node.ready["kafka"] == leader)
        self._attacks = Attacks(leader, str(self._node.ready["http"]), str(self._node.ready["rpc"]))

    def _phase(self) -> dict[str, Any]:
        return {"ack": self._victim.ask("take"), "read": self._victim.ask("take_reader")}

    def _problems(self) -> int:
        texts = [node.log_path.read_text() for node in self._nodes]
        return sum(text.count(word) for text in texts for word in PROBLEMS)

    def row(self, name: str, attack: Attack) -> dict[str, Any]:
        self._phase()
        time.sleep(self._seconds)
        before, cpu, problems = self._phase(), self._node.cpu_seconds(), self._problems()
        Path(f"/proc/{self._node.pid}/clear_refs").write_text("5")  # the peak counts from here
        self._attacks.did = 0
        attack(self._attacks, time.monotonic() + self._seconds)
        during, cpu = self._phase(), self._node.cpu_seconds() - cpu
        peak = self._node.peak_memory_bytes() >> 20
        time.sleep(self._seconds)
        return {
            "row": name, "before": before, "during": during, "after": self._phase(), "did": self._attacks.did,
            "cpu_s": round(cpu, 2), "peak_mb": peak, "problems": self._problems() - problems,
        }  # fmt: skip


def shown(phase: dict[str, Any]) -> str:
    return " ".join(f"{phase[kind][p]:.0f}" for kind in ("ack", "read") for p in ("p50", "p99.9", "max"))


@click.command(help=__doc__)
@click.option("--rows", "wanted", default="", help="only rows that match this regular expression")
@click.option("--seconds", default=10.0, show_default=True, help="of each phase")
@click.option(
    "--tree",
    type=click.Path(path_type=Path, exists=True),
    default=ROOT,
    help="another checkout whose brokers are measured",
)
@json_option
def main(wanted: str, seconds: float, tree: Path, json_file: Path | None) -> None:
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        authority = Authority(Path(directory) / "authority")
        settings = {
            "rpc.security.protocol": "SSL",
            "http.security.protocol": "PLAINTEXT",
            "ssl.keystore.location": authority.issue("node"),
            "ssl.truststore.location": authority.truststore,
            "ssl.client.auth": "required",
        }
        system = System(partial(Side, tree=tree, settings=settings), Path(directory) / "cluster")
        with system.side.cluster, closing(system.load) as load, closing(helper(scratch_python())) as victim:
            load.ask("create", system.bootstrap, "victim", 1, 3)
            leader = system.address_of_leader("victim")
            broker = next(number for number, node in system.nodes.items() if node.ready["kafka"] == leader)
            for topic, partitions, configs in (
                ("plain", 1, {}), ("compacted", 1, {"cleanup.policy": "compact"}), ("wide", 200, {}),
            ):  # fmt: skip
                create_on(leader, topic, partitions, broker, configs)
            for number in range(TOPICS if re.search(wanted, "expressions of groups") else 0):
                load.ask("create", system.bootstrap, f"{'ab' * 100}-{number}", 1, 1)
            victim.ask("victim", system.bootstrap, "victim", RATE_PER_S, {}, 100)
            victim.ask("reader", system.bootstrap, "victim")
            time.sleep(3)
            measured = Measured(system, victim, seconds)
            for name, attack in rows().items():
                if re.search(wanted, name):
                    results.append(measured.row(name, attack))
                    each = results[-1]
                    console.print(
                        name,
                        *(shown(each[phase]) for phase in ("before", "during", "after")),
                        each["did"],
                        sep=" | ",
                    )
    table = Table(
        "attack",
        "ack p50 p99.9 max, read p50 p99.9 max: before",
        "during",
        "after",
        "failed",
        "did",
        "CPU s",
        "peak MB",
        "problems",
    )
    for each in results:
        table.add_row(
            each["row"], *(shown(each[phase]) for phase in ("before", "during", "after")),
            str(sum(each[phase]["ack"]["failed"] for phase in ("before", "during", "after"))),
            *(str(each[key]) for key in ("did", "cpu_s", "peak_mb", "problems")),
        )  # fmt: skip
    console.print(table)
    write_json(results, json_file)


def create_on(address: str, topic: str, partitions: int, broker: int, configs: dict[str, str]) -> None:
    """With all partitions on one node, where the victim's leader is."""
    request = wire.CreateTopicsRequest
    placed = [request.CreatableReplicaAssignment(number, [broker]) for number in range(partitions)]
    given = [request.CreatableTopicConfig(key, value) for key, value in configs.items()]
    client = BesideClient(address)
    answer = client.ask(request([request.CreatableTopic(topic, -1, -1, placed, given)], 30_000), 7)
    assert not answer.topics[0].error_code, answer
    client.close()


if __name__ == "__main__":
    main()
