"""LZ4 frames as Java's client wants them."""

from __future__ import annotations

from kafkalite.record.compression import Codec, compress, decompress


def test_blocks_are_independent() -> None:
    """Kafka's Lz4BlockInputStream: "Dependent block stream is unsupported". Bit 5 of the frame's FLG byte says so."""
    data = b"abc" * 100_000
    frame = compress(Codec.LZ4, memoryview(data))
    assert frame[4] & 0x20
    assert bytes(decompress(Codec.LZ4, frame)) == data
