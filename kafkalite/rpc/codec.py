"""Messages to msgpack and back, by functions compiled once per class from its type hints.

A message travels as the array of its fields in order. A reader fills the fields that an older peer did not
send from their defaults and ignores those that it does not know; anything else that differs from the hints
(a missing required field, another type, an integer beyond 64 bits) is a ProtocolError.

Understood hints: int, str, bool (and NewTypes of them), dataclasses, tuple[X, ...], tuple[X, Y], dict[K, V]
and X | None.
"""

from __future__ import annotations

import dataclasses
import reprlib
import types
from collections.abc import Callable
from typing import Any, NewType, NoReturn, Union, get_args, get_origin, get_type_hints

import msgpack

from kafkalite.errors import ProtocolError
from kafkalite.rpc.messages.base import Message, by_kind

Fields = list[Any]

_INT_HIGH = 2**63 - 1
_SCALARS: dict[Any, str] = {int: "int", str: "str", bool: "bool"}

#: What msgpack raises for bytes that are no (single) value; TypeError is an unhashable map key.
UNPACK_ERRORS = (ValueError, TypeError, msgpack.UnpackException)

_encoders: dict[type, Callable[[Any], Fields]] = {}
_decoders: dict[type, Callable[[Any], Any]] = {}


def to_fields(message: Message) -> Fields:
    """The message's fields as values that msgpack packs."""
    cls = type(message)
    encode = _encoders.get(cls)
    if encode is None:
        encode = _compile(cls)[0]
    return encode(message)


def from_fields(cls: type[Message], fields: object) -> Message:
    """The message of class `cls` that an unpacked array describes. Raises ProtocolError."""
    decode = _decoders.get(cls)
    if decode is None:
        decode = _compile(cls)[1]
    message: Message = decode(fields)
    return message


def pack(message: Message) -> bytes:
    """The message as a msgpack array of its fields."""
    packed: bytes = msgpack.packb(to_fields(message))
    return packed


def unpack(kind: int, payload: bytes | bytearray | memoryview) -> Message:
    """The message of this kind that `payload` (as `pack` made it) holds. Raises ProtocolError."""
    cls = by_kind.get(kind)
    if cls is None:
        raise ProtocolError(f"unknown message kind {kind}")
    return unpack_as(cls, payload)


def unpack_as(
    cls: type[Message], payload: bytes | bytearray | memoryview, *, most_elements: int | None = None
) -> Message:
    """The message of class `cls` that `payload` (as `pack` made it) holds. Raises ProtocolError.

    `most_elements`: of all arrays and maps together; None: any number.
    """
    limits = {} if most_elements is None else _limits(most_elements)
    try:
        fields = msgpack.unpackb(payload, strict_map_key=False, **limits)
    except UNPACK_ERRORS as error:
        raise ProtocolError(f"{cls.__name__}: not msgpack, or too many elements: {error}") from None
    return from_fields(cls, fields)


def _limits(most_elements: int) -> dict[str, Any]:
    """For msgpack: it stops at the first array that is too large, and when all that are complete have too many elements."""
    left = most_elements

    def count(values: Any) -> Any:
        nonlocal left
        left -= len(values)
        if left < 0:
            raise ValueError(f"more than {most_elements}")
        return values

    return {
        "max_array_len": most_elements,
        "max_map_len": most_elements,
        "list_hook": count,
        "object_pairs_hook": lambda pairs: dict(count(pairs)),
    }


def _refuse(where: str, wanted: str, value: object) -> NoReturn:
    # Not repr: the value may have millions of elements.
    raise ProtocolError(f"{where}: {wanted} expected, got {reprlib.repr(value)[:60]}")


# --- compilation ---------------------------------------------------------------------------------


def _plain(hint: Any) -> Any:
    """The hint with NewTypes resolved."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    return hint


def _optional(hint: Any) -> Any | None:
    """X of `X | None`, or None."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        assert len(inner) == 1, f"only X | None is understood, not {hint}"
        return inner[0]
    return None


def _packs_as_is(hint: Any) -> bool:
    """Whether msgpack packs the value without our help (no dataclass inside)."""
    hint = _plain(hint)
    if (inner := _optional(hint)) is not None:
        return _packs_as_is(inner)
    if hint in _SCALARS:
        return True
    return get_origin(hint) in (tuple, dict) and all(_packs_as_is(a) for a in get_args(hint) if a is not Ellipsis)


class _FieldWriter:
    """Writes the source of one class's two functions. Expressions and statements nest, so names are numbered."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.scope: dict[str, Any] = {"_refuse": _refuse, "_cls": cls}
        self._count = 0

    def name(self, stem: str) -> str:
        self._count += 1
        return f"_{stem}{self._count}"

    def bind(self, stem: str, value: Any) -> str:
        name = self.name(stem)
        self.scope[name] = value
        return name

    def construct(self, names: list[str]) -> list[str]:
        """Statements that return the object, made through its slots: a frozen class's own __init__ costs four times that."""
        specs = dataclasses.fields(self.cls)
        slots = [getattr(self.cls, spec.name, None) for spec in specs]
        if hasattr(self.cls, "__post_init__") or not all(isinstance(s, types.MemberDescriptorType) for s in slots):
            return [f"    return _cls({', '.join(names)})"]
        self.scope["_new"] = object.__new__
        setters = [self.bind("set", slot.__set__) for slot in slots if slot is not None]
        calls = [f"    {setter}(o, {name})" for setter, name in zip(setters, names, strict=True)]
        return ["    o = _new(_cls)", *calls, "    return o"]

    def encode(self, hint: Any, value: str) -> str:
        """An expression for `value` as msgpack takes it."""
        hint = _plain(hint)
        if _packs_as_is(hint):
            return value
        if (inner := _optional(hint)) is not None:
            return f"(None if {value} is None else {self.encode(inner, value)})"
        args = get_args(hint)
        item = self.name("x")
        match get_origin(hint):
            case None if dataclasses.is_dataclass(hint) and isinstance(hint, type):
                return f"{self.bind('encode', _compile(hint)[0])}({value})"
            case origin if origin is tuple and args[1:] == (Ellipsis,):
                return f"[{self.encode(args[0], item)} for {item} in {value}]"
            case origin if origin is dict:
                key = self.name("k")
                pair = f"{self.encode(args[0], key)}: {self.encode(args[1], item)}"
                return f"{{{pair} for {key}, {item} in {value}.items()}}"
        raise TypeError(f"{self.cls.__name__}: cannot encode {hint}")

    def decode(self, hint: Any, value: str, where: str, pad: str) -> list[str]:
        """Statements that check and convert the local variable `value` in place."""
        hint = _plain(hint)
        if (inner := _optional(hint)) is not None:
            return [f"{pad}if {value} is not None:", *self.decode(inner, value, where, pad + "    ")]
        if hint in _SCALARS:
            wrong = f"type({value}) is not {_SCALARS[hint]}"
            if hint is int:  # msgpack has none below -2**63, but some above
                wrong += f" or {value} > {_INT_HIGH}"
            return [f"{pad}if {wrong}:", f"{pad}    _refuse({where!r}, {_SCALARS[hint]!r}, {value})"]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return [f"{pad}{value} = {self.bind('decode', _compile(hint)[1])}({value})"]
        args = get_args(hint)
        item, result = self.name("x"), self.name("r")
        deeper = pad + "    "
        if get_origin(hint) is tuple and args[1:] == (Ellipsis,):
            lines = [f"{pad}if type({value}) is not list:", f"{deeper}_refuse({where!r}, 'array', {value})"]
            element = _plain(args[0])
            if isinstance(element, type) and dataclasses.is_dataclass(element):
                return [*lines, f"{pad}{value} = tuple(map({self.bind('decode', _compile(element)[1])}, {value}))"]
            if element in _SCALARS:
                check = self.decode(element, item, where + "[]", deeper)
                return [*lines, f"{pad}for {item} in {value}:", *check, f"{pad}{value} = tuple({value})"]
            check = self.decode(element, item, where + "[]", deeper)
            return [
                *lines,
                f"{pad}{result} = []",
                f"{pad}for {item} in {value}:",
                *check,
                f"{deeper}{result}.append({item})",
                f"{pad}{value} = tuple({result})",
            ]
        if get_origin(hint) is tuple:
            names = [self.name("x") for _ in args]
            lines = [
                f"{pad}if type({value}) is not list or len({value}) != {len(args)}:",
                f"{deeper}_refuse({where!r}, 'array of {len(args)}', {value})",
                f"{pad}{', '.join(names)}, = {value}",
            ]
            for name, arg in zip(names, args, strict=True):
                lines += self.decode(arg, name, where + "()", pad)
            return [*lines, f"{pad}{value} = ({', '.join(names)},)"]
        if get_origin(hint) is dict:
            key = self.name("k")
            return [
                f"{pad}if type({value}) is not dict:",
                f"{deeper}_refuse({where!r}, 'map', {value})",
                f"{pad}{result} = {{}}",
                f"{pad}for {key}, {item} in {value}.items():",
                *self.decode(args[0], key, where + "{key}", deeper),
                *self.decode(args[1], item, where + "{}", deeper),
                f"{deeper}{result}[{key}] = {item}",
                f"{pad}{value} = {result}",
            ]
        raise TypeError(f"{where}: cannot decode {hint}")


def _on_the_wire(default: Any) -> Any:
    """A field's default as msgpack would have read it: it goes through the same checks."""
    return [_on_the_wire(each) for each in default] if isinstance(default, tuple) else default


def _compile(cls: type) -> tuple[Callable[[Any], Fields], Callable[[Any], Any]]:
    """Encoder and decoder of a dataclass, compiled at first use."""
    if cls in _encoders:
        return _encoders[cls], _decoders[cls]
    hints = get_type_hints(cls)
    specs = dataclasses.fields(cls)
    writer = _FieldWriter(cls)
    values = ", ".join(writer.encode(hints[f.name], f"m.{f.name}") for f in specs)
    encoder = f"def encode(m):\n    return [{values}]\n"
    lines = ["def decode(f):", "    if type(f) is not list:", f"        _refuse({cls.__name__!r}, 'array', f)"]
    if specs:
        required = sum(spec.default is dataclasses.MISSING for spec in specs)
        assert all(s.default is dataclasses.MISSING for s in specs[:required]), f"{cls.__name__}: defaults go last"
        names = [f"v_{spec.name}" for spec in specs]
        tail = writer.bind("tail", tuple(_on_the_wire(spec.default) for spec in specs[required:]))
        lines += [
            f"    if len(f) != {len(specs)}:",
            f"        if len(f) < {required}:",
            f"            _refuse({cls.__name__!r}, 'at least {required} fields', f)",
            f"        f = f[:{len(specs)}]",
            f"        f.extend({tail}[len(f) - {required}:])",
            f"    {', '.join(names)}, = f",
        ]
        for spec, name in zip(specs, names, strict=True):
            lines += writer.decode(hints[spec.name], name, f"{cls.__name__}.{spec.name}", "    ")
        lines += writer.construct(names)
    else:
        lines.append("    return _cls()")
    exec(compile(encoder + "\n".join(lines), f"<codec of {cls.__name__}>", "exec"), writer.scope)
    _encoders[cls], _decoders[cls] = writer.scope["encode"], writer.scope["decode"]
    return _encoders[cls], _decoders[cls]
