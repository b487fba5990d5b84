"""Golden bytes of every RPC message: what was once on the wire stays readable.

rpc/messages.txt has one line per message: kind, name, hex of a sample. A field that is appended to a message makes
its sample longer, never other: the old bytes have to stay a prefix. KAFKALITE_REWRITE=1 writes the present samples.
"""

from __future__ import annotations

import dataclasses
import os
import types
from pathlib import Path
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest

import kafkalite.extension.messages  # some of its messages also travel between nodes, and register their kinds
import kafkalite.rpc.messages  # noqa: F401
from kafkalite.rpc.codec import from_fields, pack, to_fields
from kafkalite.rpc.messages.base import by_kind

GOLDEN = Path(__file__).parent / "rpc" / "messages.txt"
HEADER = "# kind, name, a sample's bytes: see test_rpc_messages.py\n"


def sample(hint: Any, number: int) -> Any:
    """A value of the hint that differs from field to field."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if hint is int:
        return (number + 1) * 1001
    if hint is bool:
        return number % 2 == 0
    if hint is str:
        return f"s{number}é"
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        assert isinstance(hint, type)
        return hint(**{f.name: sample(hints[f.name], n) for n, f in enumerate(dataclasses.fields(hint))})
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return sample(next(arg for arg in args if arg is not type(None)), number)
    if get_origin(hint) is dict:
        return {sample(args[0], number): sample(args[1], number)}
    if args[1:] == (Ellipsis,):
        return (sample(args[0], number), sample(args[0], number + 1))
    return tuple(sample(arg, number + index) for index, arg in enumerate(args))


def golden() -> dict[int, tuple[str, bytes]]:
    lines = [line.split() for line in GOLDEN.read_text().splitlines() if line and not line.startswith("#")]
    return {int(kind): (name, bytes.fromhex(data)) for kind, name, data in lines}


def test_golden_file_is_written_on_demand() -> None:
    if os.environ.get("KAFKALITE_REWRITE") == "1":
        rows = [f"{kind} {cls.__name__} {pack(sample(cls, 0)).hex()}\n" for kind, cls in sorted(by_kind.items())]
        GOLDEN.write_text(HEADER + "".join(rows))
    assert GOLDEN.read_text().startswith(HEADER)


@pytest.mark.parametrize("kind", sorted(by_kind))
def test_golden_bytes(kind: int) -> None:
    cls = by_kind[kind]
    name, data = golden()[kind]
    assert name == cls.__name__
    then = msgpack.unpackb(data, strict_map_key=False)
    message = from_fields(cls, then)
    today = msgpack.unpackb(pack(sample(cls, 0)), strict_map_key=False)
    assert is_prefix(then, today)
    assert is_prefix(then, msgpack.unpackb(msgpack.packb(to_fields(message)), strict_map_key=False))


def is_prefix(old: Any, new: Any) -> bool:
    """Whether `old` is `new` with the ends of some arrays missing."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) <= len(new) and all(is_prefix(a, b) for a, b in zip(old, new, strict=False))
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(is_prefix(old[key], new[key]) for key in old)
    return bool(old == new)


def test_no_message_has_vanished() -> None:
    assert golden().keys() <= by_kind.keys()
