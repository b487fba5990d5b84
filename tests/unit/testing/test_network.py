"""What the switch in kafkalite.testing.network makes itself: resets of connections."""

from __future__ import annotations

import socket
import struct

from kafkalite.testing.network import resets_for

_MACS = b"\x02\0\0\0\1\2" + b"\x02\0\0\0\1\1"
_FROM, _TO = socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2")


def frame(data: bytes, flags: int = 0x18, protocol: int = socket.IPPROTO_TCP) -> bytes:
    """A segment with 12 bytes of options, padded as Ethernet pads short frames."""
    tcp = struct.pack("!HHIIHHHH", 1111, 2222, 0xFFFFFFFE, 77, 8 << 12 | flags, 500, 0, 0) + bytes(12)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp) + len(data), 9, 0, 64, protocol, 0) + _FROM + _TO
    return (_MACS + b"\x08\x00" + ip + tcp + data).ljust(60, b"\0")


def summed(data: bytes) -> int:
    """0xFFFF if the checksum within is right."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return total % 0xFFFF or 0xFFFF


def test_both_ends_are_told_with_the_number_they_expect_next() -> None:
    pair = resets_for(frame(b"12345"))
    assert pair is not None
    for reset, macs, source, target, ports, sequence, acknowledged in (
        (pair[0], _MACS, _FROM, _TO, (1111, 2222), 0xFFFFFFFE, 77),
        (pair[1], _MACS[6:] + _MACS[:6], _TO, _FROM, (2222, 1111), 77, 3),
    ):
        assert (reset[:12], reset[26:30], reset[30:34], len(reset)) == (macs, source, target, 54)
        *found, offset_flags = struct.unpack_from("!HHIIH", reset, 34)
        assert found == [*ports, sequence, acknowledged]
        assert offset_flags == 5 << 12 | 0x14
        assert summed(reset[14:34]) == 0xFFFF
        assert summed(source + target + struct.pack("!HH", 6, 20) + reset[34:]) == 0xFFFF


def test_what_carries_no_data_of_a_connection_is_left_alone() -> None:
    assert resets_for(frame(b"")) is None
    assert resets_for(frame(b"x", flags=0x02)) is None
    assert resets_for(frame(b"x", flags=0x14)) is None
    assert resets_for(frame(b"x", protocol=socket.IPPROTO_UDP)) is None
