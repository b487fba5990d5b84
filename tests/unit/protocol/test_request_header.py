"""The header of a request."""

from __future__ import annotations

from kafkalite.protocol.request_header import parse_header


def test_a_client_id_that_is_not_utf_8_is_read_as_kafka_reads_it() -> None:
    """librdkafka sends the bytes of its setting as they are, those of `Büro` in Latin-1 for example."""
    frame = memoryview(b"\x00\x03\x00\x01\x00\x00\x00\x07\x00\x04B\xfcro" + b"\x00\x00\x00\x00")
    assert parse_header(frame) == (3, 1, 7, "B\N{REPLACEMENT CHARACTER}ro", 14)
