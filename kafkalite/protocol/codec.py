"""Encoding and decoding of Kafka's messages: each (message, version) is compiled to a Python function once.

One class per struct, with the fields of all versions, so that handlers do not depend on versions. `records`
are decoded as memoryviews of the frame (valid as long as its buffer is) and encoded without a copy when they
are large: they become chunks of their own. `bytes` are copied: groups keep them.

What a decoder raises for bytes that are no such message: WireError, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import Any, ClassVar, TypeVar, cast, overload

from kafkalite.errors import ProtocolError
from kafkalite.model import Buffer
from kafkalite.protocol.schema import Field, Schema, Struct, schemas

#: Record sets from this size on are handed to the socket as they are; smaller ones are copied into the answer.
CHUNK_BYTES = 4096
#: Elements of one array: far above any real request, and a bound on what one frame can make us allocate.
MAX_ARRAY_ELEMENTS = 200_000
#: Elements of all arrays of one request. (A response of ours may list more.)
MAX_REQUEST_ELEMENTS = 200_000
#: Elements that are decoded or encoded in one go; more: in pieces (`decoding`, `encoding`).
ELEMENTS_AT_ONCE = 500
#: In pieces: after this number of elements the generator yields.
_ELEMENTS_PER_PIECE = 128
#: Bytes of a string, as Kafka's own codec has it: also in flexible versions, whose length fields could say more.
MAX_STRING_BYTES = 0x7FFF
ZERO_UUID = bytes(16)

_FIXED = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "float64": "d", "uuid": "16s",
}  # fmt: skip

#: Fields whose values no log and no traceback shows.
_SECRETS = frozenset({"auth_bytes", "salt", "salted_password"})

Decoder = Callable[..., "tuple[Any, int]"]
Encoder = Callable[[Any, bytearray, list[Buffer]], bytearray]


class WireError(ProtocolError):
    """The bytes are no message of that version."""


class TooManyAtOnce(WireError):
    """There are more elements than may be decoded or encoded in one go."""


_Struct = TypeVar("_Struct", bound="WireStruct")


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


# --- what the generated functions call -----------------------------------------------------------


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits: (value, position after it). Raises WireError, IndexError."""
    result = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
        if shift > 28:
            raise WireError("a varint of more than 5 bytes")


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < len(_VARINTS):
        return _VARINTS[value]
    return _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_VARINTS = tuple(_varint(i) for i in range(2048))


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


# --- compilation ---------------------------------------------------------------------------------


class _Writer:
    """Lines of one generated function, its variables and what it refers to."""

    def __init__(self, schema: Schema, version: int, *, counts: bool = False, in_pieces: bool = False) -> None:
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
            "MAX_ELEMENTS": MAX_ARRAY_ELEMENTS, "MAX_STRING": MAX_STRING_BYTES, "VARINTS": _VARINTS, "to_bytes": bytes, "count": len, "to_str": str,
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


def _fixed(field: Field) -> str | None:
    return None if field.is_array or field.struct is not None else _FIXED.get(field.type)


class _DecoderWriter(_Writer):
    def length(self, depth: int, target: str, *, is_flexible: bool, is_short: bool) -> None:
        if is_flexible:
            self.emit(depth, f"{target} = buf[pos]; pos += 1")
            self.emit(depth, f"if {target} > 127: {target}, pos = read_varint(buf, pos - 1)")
            self.emit(depth, f"{target} -= 1")
        else:
            name, size = self.struct_format("h" if is_short else "i")
            self.emit(depth, f"{target} = {name}_u(buf, pos)[0]; pos += {size}")

    def value(self, depth: int, field: Field, target: str) -> None:
        is_nullable = self.version in field.nullable
        if field.is_array:
            self.array(depth, field, target, is_nullable=is_nullable)
        elif field.struct is not None:
            if is_nullable:
                self.emit(depth, "pos += 1")
                self.emit(depth, f"if buf[pos - 1] > 127: {target} = None")
                self.emit(depth, "else:")
                self.struct(depth + 1, field.struct, target)
            else:
                self.struct(depth, field.struct, target)
        else:
            self.scalar(depth, field, target, is_nullable=is_nullable)

    def array(self, depth: int, field: Field, target: str, *, is_nullable: bool) -> None:
        n = self.variable()
        self.length(depth, n, is_flexible=self.field_is_flexible(field), is_short=False)
        self.emit(depth, f"if {n} < 0:")
        self.emit(depth + 1, f"{target} = None" if is_nullable else f"raise WireError('{field.name} may not be null')")
        self.emit(depth, f"elif {n} > MAX_ELEMENTS or {n} > end - pos:")
        self.emit(depth + 1, f"raise WireError('{field.name} has too many elements')")
        self.emit(depth, "else:")
        if self.counts:
            self.emit(depth + 1, f"room -= {n}")
            self.emit(depth + 1, "if room < 0: raise TooManyAtOnce('the request has too many elements')")
        code = _FIXED.get(field.type) if field.struct is None else None
        if code is not None and code != "16s":
            self.emit(depth + 1, f"{target} = list(unpack_from('>%d{code}' % {n}, buf, pos))")
            self.emit(depth + 1, f"pos += {n} * {struct.calcsize('>' + code)}")
            return
        element = self.variable()
        self.emit(depth + 1, f"{target} = []")
        self.emit(depth + 1, f"for _ in range({n}):")
        self.pace(depth + 2)
        if field.struct is not None:
            self.struct(depth + 2, field.struct, element)
        else:
            self.scalar(depth + 2, field, element, is_nullable=False)
        self.emit(depth + 2, f"{target}.append({element})")

    def scalar(self, depth: int, field: Field, target: str, *, is_nullable: bool) -> None:
        code = _FIXED.get(field.type)
        if code is not None:
            name, size = self.struct_format(code)
            self.emit(depth, f"{target} = {name}_u(buf, pos)[0]; pos += {size}")
            return
        n = self.variable()
        self.length(depth, n, is_flexible=self.field_is_flexible(field), is_short=field.type == "string")
        self.emit(depth, f"if {n} < 0:")
        may_be_null = is_nullable or field.type == "records"
        self.emit(depth + 1, f"{target} = None" if may_be_null else f"raise WireError('{field.name} may not be null')")
        self.emit(depth, "else:")
        if field.type == "string" and self.field_is_flexible(field):
            self.emit(depth + 1, f"if {n} > MAX_STRING: raise WireError('{field.name} is too long')")
        self.emit(depth + 1, f"if {n} > end - pos: raise WireError('{field.name} overruns the frame')")
        piece = f"buf[pos:pos + {n}]"
        form = {"string": f"to_str({piece}, 'utf-8')", "bytes": f"to_bytes({piece})", "records": piece}[field.type]
        self.emit(depth + 1, f"{target} = {form}; pos += {n}")

    def struct(self, depth: int, owner: Struct, target: str) -> None:
        plain, tagged = self.split(owner)
        values: dict[str, str] = {}
        position = 0
        while position < len(plain):
            run: list[Field] = []
            while position < len(plain) and _fixed(plain[position]):
                run.append(plain[position])
                position += 1
            if run:
                name, size = self.struct_format("".join(_fixed(field) or "" for field in run))
                for field in run:
                    values[field.name] = self.variable()
                names = "".join(values[field.name] + ", " for field in run)
                self.emit(depth, f"{names}= {name}_u(buf, pos); pos += {size}")
            if position < len(plain):
                values[plain[position].name] = self.variable()
                self.value(depth, plain[position], values[plain[position].name])
                position += 1
        if self.is_flexible:
            self.tags(depth, tagged, values)
        arguments = ", ".join(values.get(field.name) or self.default(field) for field in owner.fields)
        self.emit(depth, f"{target} = C_{owner.name}({arguments})")

    def tags(self, depth: int, tagged: list[Field], values: dict[str, str]) -> None:
        for field in tagged:
            values[field.name] = self.variable()
            self.emit(depth, f"{values[field.name]} = {self.default(field)}")
        n, key, stop = self.variable(), self.variable(), self.variable()
        self.emit(depth, "if buf[pos] == 0: pos += 1")
        self.emit(depth, "else:")
        self.emit(depth + 1, f"{n}, pos = read_varint(buf, pos)")
        self.emit(depth + 1, f"for _ in range({n}):")
        self.pace(depth + 2)
        self.emit(depth + 2, f"{key}, pos = read_varint(buf, pos)")
        self.emit(depth + 2, f"{stop}, pos = read_varint(buf, pos)")
        self.emit(depth + 2, f"{stop} += pos")
        self.emit(depth + 2, f"if {stop} > end: raise WireError('a tagged field overruns the frame')")
        for index, field in enumerate(tagged):
            self.emit(depth + 2, f"{'elif' if index else 'if'} {key} == {field.tag}:")
            self.value(depth + 3, field, values[field.name])
            self.emit(depth + 3, f"if pos != {stop}: raise WireError('{field.name} is not as long as its tag says')")
        self.emit(depth + 2, f"pos = {stop}")


class _EncoderWriter(_Writer):
    def length(self, depth: int, expression: str, *, is_flexible: bool, is_short: bool) -> None:
        if is_flexible:
            self.emit(depth, f"w += VARINTS[{expression} + 1] if {expression} < 2047 else varint({expression} + 1)")
        else:
            self.emit(depth, f"w += {self.struct_format('h' if is_short else 'i')[0]}_p({expression})")

    def null(self, *, is_flexible: bool, is_short: bool) -> str:
        return repr(b"\x00" if is_flexible else b"\xff\xff" if is_short else b"\xff\xff\xff\xff")

    def value(self, depth: int, field: Field, source: str) -> None:
        is_nullable = self.version in field.nullable
        is_flexible = self.field_is_flexible(field)
        if field.is_array:
            if is_nullable:
                self.emit(depth, f"if {source} is None: w += {self.null(is_flexible=is_flexible, is_short=False)}")
                self.emit(depth, "else:")
                depth += 1
            self.array(depth, field, source, is_flexible=is_flexible)
        elif field.struct is not None:
            if is_nullable:
                self.emit(depth, f"if {source} is None: w += b'\\xff'")
                self.emit(depth, "else:")
                depth += 1
                self.emit(depth, "w += b'\\x01'")
            self.struct(depth, field.struct, source)
        else:
            self.scalar(depth, field, source, is_nullable=is_nullable)

    def array(self, depth: int, field: Field, source: str, *, is_flexible: bool) -> None:
        self.emit(depth, f"n = count({source})")
        self.length(depth, "n", is_flexible=is_flexible, is_short=False)
        code = _FIXED.get(field.type) if field.struct is None else None
        if code is not None and code != "16s":
            self.emit(depth, f"if n: w += pack('>%d{code}' % n, *{source})")
            return
        if self.counts:
            self.emit(depth, "room -= n")
            self.emit(depth, "if room < 0: raise TooManyAtOnce('too many elements')")
        element = self.variable()
        self.emit(depth, f"for {element} in {source}:")
        self.pace(depth + 1)
        if field.struct is not None:
            self.struct(depth + 1, field.struct, element)
        else:
            self.scalar(depth + 1, field, element, is_nullable=False)

    def scalar(self, depth: int, field: Field, source: str, *, is_nullable: bool) -> None:
        code = _FIXED.get(field.type)
        if code is not None:
            self.emit(depth, f"w += {self.struct_format(code)[0]}_p({source})")
            return
        is_flexible = self.field_is_flexible(field)
        if is_nullable or field.type == "records":
            self.emit(
                depth,
                f"if {source} is None: w += {self.null(is_flexible=is_flexible, is_short=field.type == 'string')}",
            )
            self.emit(depth, "else:")
            depth += 1
        if field.type == "string":
            text = self.variable()
            self.emit(depth, f"{text} = {source}.encode(); n = count({text})")
            self.length(depth, "n", is_flexible=is_flexible, is_short=True)
            self.emit(depth, f"w += {text}")
        elif field.type == "records":
            self.emit(depth, f"n = records_size({source})")
            self.length(depth, "n", is_flexible=is_flexible, is_short=False)
            self.emit(depth, f"if n: w = put_records({source}, w, chunks, n)")
        else:
            self.emit(depth, f"n = count({source})")
            self.length(depth, "n", is_flexible=is_flexible, is_short=False)
            self.emit(depth, f"w += {source}")

    def struct(self, depth: int, owner: Struct, source: str) -> None:
        plain, tagged = self.split(owner)
        position = 0
        while position < len(plain):
            run: list[Field] = []
            while position < len(plain) and _fixed(plain[position]):
                run.append(plain[position])
                position += 1
            if run:
                name, _ = self.struct_format("".join(_fixed(field) or "" for field in run))
                self.emit(depth, f"w += {name}_p({', '.join(f'{source}.{field.name}' for field in run)})")
            if position < len(plain):
                local = self.variable()
                self.emit(depth, f"{local} = {source}.{plain[position].name}")
                self.value(depth, plain[position], local)
                position += 1
        if self.is_flexible:
            self.tags(depth, tagged, source)
        elif not plain:
            self.emit(depth, "pass")

    def tags(self, depth: int, tagged: list[Field], source: str) -> None:
        if not tagged:
            self.emit(depth, "w += b'\\0'")
            return
        present = [f"({source}.{field.name} != {self.default(field)})" for field in tagged]
        for index, field in enumerate(tagged):
            if field.is_array and field.default != "null":  # () and [] are the same default
                present[index] = f"(count({source}.{field.name}) != 0)"
        self.emit(depth, f"w += varint({' + '.join(present)})")
        for field, condition in zip(tagged, present, strict=True):
            saved, local = self.variable(), self.variable()
            self.emit(depth, f"if {condition}:")
            self.emit(depth + 1, f"{saved} = w; w = bytearray(); {local} = {source}.{field.name}")
            self.value(depth + 1, field, local)
            self.emit(depth + 1, f"{saved} += varint({field.tag}); {saved} += varint(count(w)); {saved} += w")
            self.emit(depth + 1, f"w = {saved}")


def _schema(message: str, version: int) -> Schema:
    schema = schemas()[message]
    if version not in schema.versions:
        raise KeyError(f"{message} has no version {version}")
    return schema


def _compiled_decoder(message: str, version: int, *, in_pieces: bool) -> Any:
    schema = _schema(message, version)
    writer = _DecoderWriter(schema, version, counts=message.endswith("Request"), in_pieces=in_pieces)
    writer.emit(0, f"def f(buf, room={MAX_REQUEST_ELEMENTS}, pos=0, pace=0):")
    if in_pieces:
        writer.emit(1, "yield")
    writer.emit(1, "end = count(buf)")
    writer.struct(1, schema.root, "message")
    writer.emit(1, "return message, pos")
    return writer.function(f"decode {message} v{version}")


@cache
def decoder(message: str, version: int) -> Decoder:
    """decode(view[, room]) -> (message, bytes used). Raises WireError; KeyError here for a message or version that is not.

    A request with more than `room` elements, MAX_REQUEST_ELEMENTS by default, raises TooManyAtOnce.
    """
    inner = _compiled_decoder(message, version, in_pieces=False)

    def decode(view: memoryview, room: int = MAX_REQUEST_ELEMENTS) -> tuple[Any, int]:
        try:
            return inner(view, room)  # type: ignore[no-any-return]
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise WireError(f"{message} v{version}: {error}") from None

    return decode


_compiled_decoding = cache(lambda message, version: _compiled_decoder(message, version, in_pieces=True))


def decoding(
    message: str, version: int, view: memoryview, room: int = MAX_REQUEST_ELEMENTS
) -> Generator[None, None, Any]:
    """As `decoder`, piece by piece; returns the message. Raises WireError."""
    try:
        decoded, _ = yield from _compiled_decoding(message, version)(view, room)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{message} v{version}: {error}") from None
    return decoded


def _compiled_encoder(message: str, version: int, *, counts: bool = False, in_pieces: bool = False) -> Any:
    schema = _schema(message, version)
    writer = _EncoderWriter(schema, version, counts=counts, in_pieces=in_pieces)
    writer.emit(0, f"def f(message, w, chunks, room={ELEMENTS_AT_ONCE}, pace=0):")
    if in_pieces:
        writer.emit(1, "yield")
    writer.struct(1, schema.root, "message")
    writer.emit(1, "return w")
    return writer.function(f"encode {message} v{version}")


@cache
def encoder(message: str, version: int) -> Encoder:
    """encode(message, w, chunks) -> w: appends to `w`; when large records cut it, finished pieces go to `chunks`."""
    return _compiled_encoder(message, version)  # type: ignore[no-any-return]


@cache
def small_encoder(message: str, version: int) -> Encoder:
    """As `encoder`, but a message with more than ELEMENTS_AT_ONCE elements raises TooManyAtOnce: `encoding` is for those."""
    return _compiled_encoder(message, version, counts=True)  # type: ignore[no-any-return]


_compiled_encoding = cache(lambda message, version: _compiled_encoder(message, version, in_pieces=True))


def encoding(
    name: str, message: Any, version: int, w: bytearray, chunks: list[Buffer]
) -> Generator[None, None, bytearray]:
    """As `encoder`, piece by piece; returns `w`."""
    return cast("Generator[None, None, bytearray]", _compiled_encoding(name, version)(message, w, chunks))


def encode(message: Any, version: int) -> bytes:
    """A whole message as bytes (what is stored, tests; answers use `encoder`)."""
    chunks: list[Buffer] = []
    chunks.append(encoder(type(message).__name__, version)(message, bytearray(), chunks))
    return b"".join(chunks)


@overload
def decode(kind: type[_Struct], version: int, data: Buffer) -> _Struct: ...


@overload
def decode(kind: str, version: int, data: Buffer) -> Any: ...


def decode(kind: type[WireStruct] | str, version: int, data: Buffer) -> Any:
    """A whole message, given by its class or name, from bytes. Raises WireError, also when bytes are left over."""
    name = kind if isinstance(kind, str) else kind.__name__
    message, used = decoder(name, version)(memoryview(data))
    if used != len(data):
        raise WireError(f"{name} v{version}: {len(data) - used} bytes are left over")
    return message
