"""The source of a function while it is written: its lines, its variables, what it refers to."""

from __future__ import annotations

import struct
from typing import Any

from kafkalite.model import Buffer
from kafkalite.protocol.errors import TooManyAtOnce, WireError
from kafkalite.protocol.schema import Field, MessageSchema, Struct
from kafkalite.protocol.structs import classes, default_of
from kafkalite.protocol.varints import VARINTS, read_varint, varint

#: Record sets from this size on are handed to the socket as they are; smaller ones are copied into the answer.
CHUNK_BYTES = 4096
#: Elements of one array: far above any real request, and a bound on what one frame can make us allocate.
MAX_ARRAY_ELEMENTS = 200_000
#: In pieces: after this number of elements the generator yields.
_ELEMENTS_PER_PIECE = 128
#: Bytes of a string, as Kafka's own codec has it: also in flexible versions, whose length fields could say more.
MAX_STRING_BYTES = 0x7FFF

FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "float64": "d", "uuid": "16s",
}  # fmt: skip


def _put_records(records: Any, w: bytearray, chunks: list[Buffer], size: int) -> bytearray:
    """Append `size` bytes of records (one buffer or several); large ones become chunks."""
    parts = records if isinstance(records, list | tuple) else (records,)
    if size < CHUNK_BYTES:
        for part in parts:
            w += part
        return w
    chunks.append(w)
    chunks.extend(parts)
    return bytearray()


def _records_size(records: Any) -> int:
    return sum(map(len, records)) if isinstance(records, list | tuple) else len(records)


class FunctionSource:
    """Lines of one generated function, its variables and what it refers to."""

    def __init__(self, schema: MessageSchema, version: int, *, counts: bool = False, in_pieces: bool = False) -> None:
        """`counts`: elements take of `room`. `in_pieces`: the function is a generator."""
        self.version = version
        self.counts = counts
        self.in_pieces = in_pieces
        self.is_flexible = version in schema.flexible
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {
            "TooManyAtOnce": TooManyAtOnce,
            "read_varint": read_varint, "varint": varint, "WireError": WireError, "unpack_from": struct.unpack_from,
            "pack": struct.pack, "put_records": _put_records, "records_size": _records_size,
            "MAX_ELEMENTS": MAX_ARRAY_ELEMENTS, "MAX_STRING": MAX_STRING_BYTES, "VARINTS": VARINTS, "to_bytes": bytes, "count": len, "to_str": str,
            "new": object.__new__,
        }  # fmt: skip
        self._variables = 0
        for name, cls in classes(schema.name).items():
            self.globals["C_" + name] = cls

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def pace(self, depth: int) -> None:
        """In a loop over elements: let others run now and then."""
        if self.in_pieces:
            self.emit(depth, "pace += 1")
            self.emit(depth, f"if not pace % {_ELEMENTS_PER_PIECE}: yield")

    def variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def struct_format(self, code: str) -> tuple[str, int]:
        """The name under which the function sees a struct.Struct, and its size."""
        name = "S_" + code.replace("?", "B_").replace("16s", "U")
        compiled = struct.Struct(">" + code)
        self.globals.setdefault(name + "_u", compiled.unpack_from)
        self.globals.setdefault(name + "_p", compiled.pack)
        return name, compiled.size

    def default(self, field: Field) -> str:
        value = default_of(field)
        return "()" if value == () else repr(value)

    def field_is_flexible(self, field: Field) -> bool:
        return self.is_flexible if field.flexible is None else self.version in field.flexible

    def split(self, owner: Struct) -> tuple[list[Field], list[Field]]:
        """The fields of this version: (in order, tagged)."""
        live = [field for field in owner.fields if self.version in field.versions]
        tagged = [field for field in live if self.is_flexible and self.version in field.tagged]
        return [field for field in live if field not in tagged], sorted(tagged, key=lambda field: field.tag or 0)

    def function(self, head: str) -> Any:
        source = "\n".join(self.lines)
        exec(compile(source, f"<{head}>", "exec"), self.globals)
        return self.globals["f"]


def fixed(field: Field) -> str | None:
    return None if field.is_array or field.struct is not None else FIXED.get(field.type)
