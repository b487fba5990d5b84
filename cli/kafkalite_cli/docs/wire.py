"""`make docs`: kafkalite/protocol/wire.pyi, the types of the message classes that are made from the schema tables at run time."""

from __future__ import annotations

from kafkalite.protocol.schema import Field, Struct, schemas

_SCALARS = {
    "bool": "bool", "int8": "int", "int16": "int", "uint16": "int", "int32": "int", "uint32": "int", "int64": "int",
    "float64": "float", "string": "str", "bytes": "bytes", "uuid": "bytes",
}  # fmt: skip

#: The end of a number's name -> what the number is (`kafkalite.model`). Messages may be built of any number.
_IDS = {
    "offset": "Offset", "leader_epoch": "LeaderEpoch", "producer_id": "ProducerId", "leader_id": "BrokerId",
    "node_id": "BrokerId", "broker_id": "BrokerId", "controller_id": "BrokerId",
}  # fmt: skip

_HEAD = '''\
"""Types of the generated message classes. Written by `make docs` from kafkalite/protocol/schema: do not edit.

An array is decoded as a list and may be built of any sequence. `| None`: some version has a null there, or a version
without this struct leaves it out. Records are decoded as a memoryview and may be built of several buffers. A class
without a constructor has that of a dataclass.
"""

from collections.abc import Sequence

from kafkalite.model import BrokerId, Buffer, LeaderEpoch, Offset, ProducerId
from kafkalite.protocol.structs import WireStruct
'''


def _type(field: Field, owner: range, root: str, *, is_parameter: bool) -> str:
    """The type of one field. `owner`: the versions in which its struct exists."""
    if field.type == "records":
        return "Buffer | Sequence[Buffer] | None" if is_parameter else "Buffer | None"
    kind = _SCALARS.get(field.type) or f"{root}.{field.type}"
    if kind == "int" and not is_parameter and not field.is_array:
        kind = next((name for end, name in _IDS.items() if field.name.endswith(end)), kind)
    if field.is_array:
        kind = f"Sequence[{kind}]"
    is_left_out = (
        field.struct is not None
        and not field.is_array
        and (is_parameter or len(field.tagged) > 0 or any(version not in field.versions for version in owner))
    )
    return f"{kind} | None" if len(field.nullable) or field.default == "null" or is_left_out else kind


def _body(owner: Struct, versions: range, root: str, depth: int) -> list[str]:
    """The attributes of one class; its constructor where it takes other types than the attributes have."""
    indent = "    " * (depth + 1)
    kinds = {field.name: _type(field, versions, root, is_parameter=False) for field in owner.fields}
    taken = {field.name: _type(field, versions, root, is_parameter=True) for field in owner.fields}
    lines = [f"{indent}{name}: {kind} = ..." for name, kind in kinds.items()]
    if taken != kinds:
        parameters = ", ".join(f"{name}: {kind} = ..." for name, kind in taken.items())
        lines.append(f"{indent}def __init__(self, {parameters}) -> None: ...")
    return lines or [f"{indent}pass"]


def _nested(owner: Struct, versions: range, found: dict[str, tuple[Struct, range]]) -> None:
    """The structs inside `owner` by name, each with the versions in which it exists."""
    for field in owner.fields:
        if field.struct is not None and field.struct.name not in found:
            inside = range(max(versions.start, field.versions.start), min(versions.stop, field.versions.stop))
            found[field.struct.name] = (field.struct, inside)
            _nested(field.struct, inside, found)


def wire_stub() -> str:
    """The text of wire.pyi."""
    lines = [_HEAD]
    for schema in schemas().values():
        found: dict[str, tuple[Struct, range]] = {}
        _nested(schema.root, schema.versions, found)
        lines.append(f"class {schema.name}(WireStruct):")
        for owner, versions in found.values():
            lines += [f"    class {owner.name}(WireStruct):", *_body(owner, versions, schema.name, 1), ""]
        lines += [*_body(schema.root, schema.versions, schema.name, 0), ""]
    return "\n".join(lines)
