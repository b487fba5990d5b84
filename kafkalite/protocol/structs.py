"""The classes of messages: one per struct, with the fields of all versions, so that handlers do not depend on versions."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, ClassVar, dataclass_transform

from kafkalite.protocol.schema import Field, Struct, schemas

ZERO_UUID = bytes(16)
#: Fields whose values no log and no traceback shows.
_SECRETS = frozenset({"auth_bytes", "hmac", "salt", "salted_password"})


@dataclass_transform()  # for mypy: wire.pyi lists the fields
class WireStruct:
    """Base of the generated classes: positional or keyword construction, comparison and a readable form."""

    __slots__ = ()
    _names: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = (f"{name}=…" if name in _SECRETS else f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_plain(getattr(self, name)) == _plain(getattr(other, name)) for name in self._names)

    __hash__ = None  # type: ignore[assignment]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --- classes -------------------------------------------------------------------------------------


def default_of(field: Field) -> Any:
    text = field.default
    if text == "null":
        return None
    if field.is_array:
        return ()
    if field.struct is not None or field.type == "records":
        return None
    match field.type:
        case "string":
            return text or ""
        case "bytes":
            return b""
        case "uuid":
            return ZERO_UUID
        case "bool":
            return text == "true"
        case "float64":
            return float(text or 0)
        case _:
            return int(text or 0)


def _make_class(owner: Struct, classes: dict[str, type[WireStruct]]) -> None:
    known = classes.get(owner.name)
    names = tuple(field.name for field in owner.fields)
    if known is not None:
        assert known._names == names, f"{owner.name} is two things in one message"
        return
    namespace: dict[str, Any] = {f"d{i}": default_of(field) for i, field in enumerate(owner.fields)}
    parameters = ", ".join(f"{name}=d{i}" for i, name in enumerate(names))
    lines = []
    for i, field in enumerate(owner.fields):
        value = field.name
        is_struct = field.struct is not None and not field.is_array and not field.nullable
        if field.struct is not None and is_struct and field.tag is None and field.versions.start == 0:
            # It is in every version, and never null: without a value it has its defaults.
            namespace[f"make{i}"] = partial(_made, classes, field.struct.name)
            value = f"make{i}() if {field.name} is None else {field.name}"
        lines.append(f"    self.{field.name} = {value}")
    body = "\n".join(lines) or "    pass"
    exec(f"def __init__(self, {parameters}):\n{body}", namespace)
    classes[owner.name] = type(
        owner.name, (WireStruct,), {"__slots__": names, "_names": names, "__init__": namespace["__init__"]}
    )
    for field in owner.fields:
        if field.struct is not None:
            _make_class(field.struct, classes)


def _made(classes: dict[str, type[WireStruct]], name: str) -> WireStruct:
    return classes[name]()


@cache
def classes(message: str) -> dict[str, type[WireStruct]]:
    """The classes of a message: its own, and those of its nested structs, by name."""
    found: dict[str, type[WireStruct]] = {}
    _make_class(schemas()[message].root, found)
    root = found[message]
    for name, cls in found.items():
        if cls is not root:
            # Nested classes are reached as attributes: `FetchResponse.PartitionData`.
            type.__setattr__(root, name, cls)
    return found
