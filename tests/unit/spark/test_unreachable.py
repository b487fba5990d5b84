"""Endpoints that are wrong: the plan fails at once, with one line that names them and the cause."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pyspark_kafkalite import clients
from pyspark_kafkalite.clients import Unreachable
from pyspark_kafkalite.columns import columns_of, spark_schema
from pyspark_kafkalite.option_parsing import read_options, write_options
from pyspark_kafkalite.reader import KafkaliteReader
from pyspark_kafkalite.row_shape import row_shape
from pyspark_kafkalite.sending import RowWriter, WriteFailed
from tests.spark.fake_log import FakeLog
from tests.spark.log_server import LogServer
from tests.unit.spark.test_old_broker import SCHEMA

#: The first bytes of what listens elsewhere; b"": it closes.
PORTS = {
    "the nodes' own port": (b"", "not a Kafka listener, or one that wants TLS"),
    "a web server": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP: this is not a Kafka listener"),
    "a TLS listener": (b"\x15\x03\x03\x00\x02\x02\x28", "set security.protocol to SSL or SASL_SSL"),
    "something else": (b"220 mail.example ESMTP ready\r\n", "this is not a Kafka listener"),
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "FIRST_ANSWER_MS", 1)


@pytest.fixture
def listening() -> Iterator[Callable[[bytes], str]]:
    """Starts a server that answers whatever comes with these bytes, and closes."""
    opened: list[socket.socket] = []

    def serve(server: socket.socket, answer: bytes) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

    def start(answer: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        opened.append(server)
        threading.Thread(target=serve, args=(server, answer), daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in opened:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def plan(*endpoints: str, **options: str) -> None:
    # nothing is waited for: with these times the test would not end
    given = {"kafka.bootstrap.servers": ",".join(endpoints), "subscribe": "t", "kafka.request.timeout.ms": "1000000"}
    KafkaliteReader(
        read_options(given | options, streaming=False), columns_of(spark_schema(include_headers=False))
    ).partitions()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_nobody_listens() -> None:
    first, second = closed_port(), closed_port()
    with pytest.raises(
        Unreachable, match=rf"^{first},{second} cannot be reached: .*refused.*Kafka listeners \(port 9092"
    ):
        plan(first, second)


def test_no_such_host() -> None:
    with pytest.raises(Unreachable, match=r"^no-such-host\.invalid:9092 cannot be reached: "):
        plan("no-such-host.invalid:9092")


@pytest.mark.parametrize("which", PORTS)
def test_something_else_listens(listening: Callable[[bytes], str], which: str) -> None:
    answer, says = PORTS[which]
    with pytest.raises(Unreachable, match=rf"cannot be reached: .*{says}") as raised:
        plan(listening(answer))
    assert ("before it said its versions" in str(raised.value)) == (answer == b"")


def test_one_of_several_is_enough(listening: Callable[[bytes], str]) -> None:
    server = LogServer(FakeLog())
    server.start()
    server.log.add_topic("t", 1)
    try:
        plan(closed_port(), listening(b""), server.address)
    finally:
        server.stop()


def test_a_write_says_it_too() -> None:
    import pyarrow as pa

    options = write_options(
        {"kafka.bootstrap.servers": closed_port(), "kafka.request.timeout.ms": "1000000", "topic": "t"}
    )
    rows = pa.RecordBatch.from_pydict({"key": ["k"], "value": [b"v"]})
    with pytest.raises(WriteFailed, match=r"writing to t failed: .* cannot be reached: .*refused"):
        RowWriter(clients.connect(options.client), options, row_shape(SCHEMA, "t")).write([rows])
