"""Protobuf messages as rows: which columns a message has, and values as Arrow takes them. Pure but for google.protobuf.

A value is parsed with the descriptor that it was written with. Its fields go to the columns by their numbers, so a value that
does not fit a column is found, where parsing with the newest descriptor would lose it silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from kafkalite_pipelines.definition import PipelineError

#: Kind of a scalar -> Spark's type.
_SCALARS = {
    "double": "double", "float": "float", "int64": "bigint", "uint64": "decimal(20,0)", "int32": "int",
    "fixed64": "decimal(20,0)", "fixed32": "bigint", "bool": "boolean", "string": "string", "bytes": "binary",
    "uint32": "bigint", "enum": "string", "sfixed32": "int", "sfixed64": "bigint", "sint32": "int", "sint64": "bigint",
}  # fmt: skip
#: FieldDescriptor.type, a number of descriptor.proto, as text.
_KINDS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    10: "message", 11: "message", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32",
    18: "sint64",
}  # fmt: skip
_WHOLE = {"int64", "uint64", "int32", "fixed64", "fixed32", "uint32", "sfixed32", "sfixed64", "sint32", "sint64"}
_DECIMALS = {"uint64", "fixed64"}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_ANY_JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"

Convert = Callable[[Any], Any]


class Misfit(ValueError):
    """Values of one schema cannot be in the columns of another; the message names the field."""


def columns(message: Any) -> dict[str, str]:
    """Column -> Spark type of a message's descriptor. Raises PipelineError: it has a field that no column can hold."""
    if not message.fields:
        raise PipelineError(f"the message {message.full_name} has no fields: they would be the columns")
    outer = (message.full_name,)
    return {field.name: _field_type(field, field.name, outer) for field in message.fields}


def message_of(messages: Mapping[str, Any], wanted: str | None) -> Any:
    """The message whose fields are the columns. `messages`: those of a file by their full names, also those within others.

    Raises:
        PipelineError: there is no such message, or several and none is named.
    """
    top = {name: each for name, each in messages.items() if each.containing_type is None}
    if wanted is not None:
        for some in (top, messages):  # a name of one at the top is not that of one within another
            found = [each for name, each in some.items() if f".{name}".endswith(f".{wanted}")]
            if len(found) == 1:
                return found[0]
        what = f"{len(found)} messages are called {wanted}" if found else f"there is no message {wanted}"
        raise PipelineError(f"decode.message: {what}; there are: {', '.join(sorted(messages))}")
    if len(top) != 1:
        names = ", ".join(sorted(top)) or "(none)"
        raise PipelineError(f"decode.message is missing: the schema has the messages {names}")
    return next(iter(top.values()))


def _field_type(field: Any, where: str, outer: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{_single_type(key, where, outer)},{_single_type(value, where, outer)}>"
    kind = _single_type(field, where, outer)
    return f"array<{kind}>" if _is_repeated(field) else kind


def _single_type(field: Any, where: str, outer: tuple[str, ...]) -> str:
    """`outer`: names of the messages around it, to find one within itself."""
    kind = _KINDS[field.type]
    if kind != "message":
        return _SCALARS[kind]
    message = field.message_type
    name = message.full_name
    if name == _TIMESTAMP:
        return "timestamp"
    if name == _DURATION:
        return "decimal(21,9)"
    if name in _WRAPPERS:
        return _SCALARS[_KINDS[message.fields_by_name["value"].type]]
    if name in _ANY_JSON:
        return "string"
    if not message.fields:
        return "boolean"
    if name in outer:
        raise PipelineError(f"{where}: {name} contains itself, and a column cannot")
    inner = (*outer, name)
    fields = [f"`{each.name}`:{_field_type(each, f'{where}.{each.name}', inner)}" for each in message.fields]
    return f"struct<{','.join(fields)}>"


def converter(writer: Any, reader: Any) -> Convert:
    """From messages of one descriptor to dicts with the columns of another. Raises Misfit."""
    written = {field.number: field for field in writer.fields}
    getters: list[tuple[str, Convert]] = []
    for field in reader.fields:
        theirs = written.get(field.number)
        getters.append((field.name, _absent if theirs is None else _getter(theirs, field)))
    return lambda message: {name: get(message) for name, get in getters}


def _absent(_: Any) -> None:
    """The writer did not know the field."""


def _getter(writer: Any, reader: Any) -> Convert:
    """From a whole message to one column."""
    name = writer.name
    if _is_map(reader) or _is_map(writer):
        if not (_is_map(reader) and _is_map(writer)):
            raise Misfit(f"the field {reader.name} is a map in one of the schemas only")
        key, value = (_single(*_entry(writer, reader, part)) for part in ("key", "value"))
        return lambda message: [(key(each), value(inner)) for each, inner in getattr(message, name).items()]
    convert = _single(writer, reader)
    if _is_repeated(reader):
        if _is_repeated(writer):
            return lambda message: [convert(each) for each in getattr(message, name)]
        if writer.has_presence:
            return lambda message: [convert(getattr(message, name))] if message.HasField(name) else []
        return lambda message: [convert(getattr(message, name))]
    if _is_repeated(writer):
        raise Misfit(f"the field {reader.name} is repeated, and its column has one value")
    if writer.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _entry(writer: Any, reader: Any, part: str) -> tuple[Any, Any]:
    return writer.message_type.fields_by_name[part], reader.message_type.fields_by_name[part]


def _single(writer: Any, reader: Any) -> Convert:
    """Of one value. Numbers that are too large for their column are found later, by Arrow."""
    ours, theirs = _KINDS[reader.type], _KINDS[writer.type]
    if ours == "message" and theirs == "message":
        return _message(writer, reader)
    if ours == theirs == "enum" or (ours == "enum" and theirs in _WHOLE):
        names = _names(reader.enum_type)
        if theirs == "enum":  # the writer's names first: they are what it meant
            names |= _names(writer.enum_type)
        return lambda value: names.get(value, str(value))
    if ours in _WHOLE and (theirs in _WHOLE or theirs in ("enum", "bool")):
        return Decimal if ours in _DECIMALS else int
    if ours in ("float", "double") and (theirs in _WHOLE or theirs in ("float", "double")):
        return float
    if ours == "bytes" and theirs == "string":
        return lambda value: value.encode()
    if ours == "string" and theirs == "bytes":
        return _text
    if ours == theirs:
        return _same
    raise Misfit(f"the field {reader.name} is {theirs}, and its column has {ours}")


def _names(enum: Any) -> dict[int, str]:
    """Of numbers with several names (allow_alias) the first, as Protobuf's own JSON has it."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names


def _message(writer: Any, reader: Any) -> Convert:
    name = reader.message_type.full_name
    if writer.message_type.full_name != name:
        raise Misfit(f"the field {reader.name} is {writer.message_type.full_name}, and its column has {name}")
    if name == _TIMESTAMP:
        return lambda value: _microseconds(value.seconds, value.nanos)
    if name == _DURATION:
        return lambda value: Decimal(value.seconds) + Decimal(value.nanos).scaleb(-9)
    if name in _WRAPPERS:
        inner = _single(writer.message_type.fields_by_name["value"], reader.message_type.fields_by_name["value"])
        return lambda value: inner(value.value)
    if name in _ANY_JSON:
        return _json
    if not reader.message_type.fields:
        return lambda _: True
    return converter(writer.message_type, reader.message_type)


def _microseconds(seconds: int, nanos: int) -> int:
    """Since 1970, which is what Arrow's timestamps are."""
    return seconds * 1_000_000 + nanos // 1000


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    """Raises ValueError: it is no text."""
    return value.decode()


def _json(value: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(value, indent=None))


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # from protobuf 6.31 on; `label` goes away after that
    return bool(field.label == 3 if found is None else found)


def _is_map(field: Any) -> bool:
    return _KINDS[field.type] == "message" and is_map_entry(field.message_type)


def is_map_entry(message: Any) -> bool:
    """Whether a message is the pair of key and value of a map."""
    return bool(message.GetOptions().map_entry)


def message_index(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message of its file follows a schema id (a path of indexes), and where the message begins.

    Zigzag varints: how many, then each; a single 0 stands for the first message. Source: "Wire format" in Confluent's
    serializer documentation. Raises ValueError.
    """
    count, at = _varint(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= 100:
        raise ValueError("has no message index after its schema id: it was not written by a Protobuf serializer")
    path = []
    for _ in range(count):
        number, at = _varint(value, at)
        path.append(number)
    return tuple(path), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 35:
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("has no message index after its schema id: it was not written by a Protobuf serializer")


def at_path(messages: Sequence[Any], path: tuple[int, ...]) -> Any:
    """The descriptor that a message index names.

    A map is a message within its message. Serializers count maps (Confluent's in Python), or do not (the one in Java with
    normalize.schemas), and their places are lost where a schema is text. What can be meant by both ways of counting is not guessed.

    Raises:
        ValueError: there is none, or it may be one of several.
    """
    found: Any = None
    maps = 0
    for number in path:
        may = messages[max(number - maps, 0) : number + 1] if number >= 0 else []
        if not may:
            raise ValueError(f"names the message {list(path)} of its schema, which does not exist")
        if len(may) > 1:
            names = " or ".join(each.full_name for each in may)
            raise ValueError(
                f"names the message {list(path)} of its schema, which is {names}: serializers count maps or not"
            )
        [found] = may
        messages = [each for each in found.nested_types if not is_map_entry(each)]
        maps = len(found.nested_types) - len(messages)
    return found
