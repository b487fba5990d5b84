"""What the client of a schema registry says of servers that are none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafkalite_pipelines.decoding.registry import RegistryAway, RegistryClient


@contextmanager
def server(answer: bytes, received: list[bytes] | None = None) -> Iterator[str]:
    """The URL of a server that gives this answer to its first connection, and what it has `received` there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(65536)
                if received is not None:
                    received.append(request)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x00\x00\x00\x04what\r\n", "does not answer"),  # a Kafka listener
        (b"\x15\x03\x03\x00\x02\x02\x46", "does not answer"),  # a TLS listener
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "does not answer"),  # it dies in the middle
        (response(b"<html>"), "does not answer"),
        (response(b"[]"), "is not a schema registry"),
        (response(b'"text"'), "is not a schema registry"),
        (response(b'{"id": "one", "schema": "x"}'), "is not a schema registry"),
        (response(b'{"id": 1}'), "is not a schema registry"),
        (response(b'{"id": 1, "schema": "x", "references": [1]}'), "is not a schema registry"),
    ],
)
def test_another_server_is_one_line_and_no_fault_of_a_record(answer: bytes, words: str) -> None:
    with server(answer) as url, pytest.raises(RegistryAway, match=words):
        RegistryClient(url).latest("t-value")


def test_the_password_does_not_follow_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hush")
    here: list[bytes] = []
    there: list[bytes] = []
    with server(response(b'{"id": 1, "schema": "x"}'), there) as other:
        moved = f"HTTP/1.1 302 Found\r\nLocation: {other}/x\r\nContent-Length: 0\r\n\r\n".encode()
        with server(moved, here) as url:
            assert RegistryClient(url, "user", "PASSWORD").latest("t-value").text == "x"
    assert b"\r\nAuthorization: Basic " in here[0]
    assert there and b"authorization" not in there[0].lower()


def test_a_schema_s_own_references_come_before_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that another reference named first was taken: fields of the newer one were no columns."""

    def reference(name: str, version: int) -> dict[str, object]:
        return {"name": f"{name}.proto", "subject": name, "version": version}

    schemas = {
        "/subjects/t-value/versions/latest": {
            "id": 1, "schemaType": "PROTOBUF", "schema": "T", "references": [reference("address", 1), reference("money", 2)]
        },
        "/subjects/address/versions/1": {"schema": "A", "references": [reference("money", 1)]},
        "/subjects/money/versions/1": {"schema": "M1"},
        "/subjects/money/versions/2": {"schema": "M2"},
    }  # fmt: skip
    client = RegistryClient("http://registry")
    monkeypatch.setattr(client, "_get", schemas.__getitem__)
    assert client.latest("t-value").references == (("money.proto", "M2"), ("address.proto", "A"))
