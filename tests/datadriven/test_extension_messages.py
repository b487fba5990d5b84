"""Golden bytes of every message of the extension API: what was once on the wire stays readable.

extension/messages.txt has one line per message: name, hex of a sample. The rules are those of test_rpc_messages.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgpack
import pytest

from kafkalite.extension.apis import APIS
from kafkalite.rpc.codec import from_fields, pack, to_fields
from tests.datadriven.test_rpc_messages import is_prefix, sample

GOLDEN = Path(__file__).parent / "extension" / "messages.txt"
HEADER = "# name, a sample's bytes: see test_extension_messages.py\n"
MESSAGES = {cls.__name__: cls for _, api in sorted(APIS.items()) for cls in (api.request, api.response)}


def golden() -> dict[str, bytes]:
    lines = [line.split() for line in GOLDEN.read_text().splitlines() if line and not line.startswith("#")]
    return {name: bytes.fromhex(data) for name, data in lines}


def test_golden_file_is_written_on_demand() -> None:
    if os.environ.get("KAFKALITE_REWRITE") == "1":
        GOLDEN.write_text(HEADER + "".join(f"{name} {pack(sample(cls, 0)).hex()}\n" for name, cls in MESSAGES.items()))
    assert GOLDEN.read_text().startswith(HEADER)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_golden_bytes(name: str) -> None:
    cls = MESSAGES[name]
    then = msgpack.unpackb(golden()[name], strict_map_key=False)
    message = from_fields(cls, then)
    today = msgpack.unpackb(pack(sample(cls, 0)), strict_map_key=False)
    assert is_prefix(then, today)
    assert is_prefix(then, msgpack.unpackb(msgpack.packb(to_fields(message)), strict_map_key=False))


def test_no_message_has_vanished() -> None:
    assert golden().keys() <= MESSAGES.keys()
