"""Protobuf: a .proto file, or a FileDescriptorProto in base64 as some serializers send it.

Names of types are resolved here, as protoc does, so that the descriptor is complete and two versions can be compared.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import itemgetter
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import DecodeError
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from kafkalite.schemas.formats import google_types
from kafkalite.schemas.formats.protobuf_order import ProtoText, in_order
from kafkalite.schemas.formats.protobuf_text import descriptor, text_of
from kafkalite.schemas.schema import MAX_DEPTH, Import, InvalidSchema, ParsedSchema

#: Types with the same bytes for the values that both can have (Protobuf's language guide, Updating A Message Type).
_ALIKE = ({"int32", "uint32", "int64", "uint64", "bool"}, {"sint32", "sint64"}, {"string", "bytes"},
          {"fixed32", "sfixed32"}, {"fixed64", "sfixed64"})  # fmt: skip
_GOOGLE = "google/protobuf/"
#: The grammar takes seconds for a text of this size.
_MAX_TEXT_BYTES = 100_000


class ProtobufSchema:
    """A valid Protobuf schema. `file` is complete: every name of a type is the full one."""

    def __init__(
        self, text: str, file: FileDescriptorProto, known: Mapping[str, DescriptorProto | EnumDescriptorProto]
    ) -> None:
        self.text = text
        self.file = file
        self.messages = {name: each for name, each in known.items() if isinstance(each, DescriptorProto)}
        self._known = known

    def normalized(self) -> str:
        def full_name(name: str, scope: str) -> str:
            return _full_name(name, scope, self._known)

        return ProtoText().generate(in_order(_parsed(self.text), self.file.package, full_name))

    def serialized(self) -> str:
        """The FileDescriptorProto in base64 (`format=serialized`)."""
        return base64.b64encode(self.file.SerializeToString()).decode()

    def cannot_read(self, writer: ParsedSchema) -> Sequence[str]:
        assert isinstance(writer, ProtobufSchema)
        if self.file.package != writer.file.package:
            return [f"the package was {writer.file.package!r} and is {self.file.package!r}"]
        return list(_ProtobufComparison(writer, self).differences())


def parse(text: str, imports: Sequence[Import]) -> ProtobufSchema:
    """Raises InvalidSchema."""
    known: dict[str, DescriptorProto | EnumDescriptorProto] = {}
    names = {each.name for each in imports}
    for each in imports:
        imported = _file(each.text, each.name)[0]
        _add_well_known(imported.dependency, names, known)
        _resolve(imported, known)
    file, canonical = _file(text, "default")
    for name in file.dependency:
        if name not in names and not name.startswith((_GOOGLE, google_types.DIRECTORY)):
            raise InvalidSchema(f"the import {name!r} is not among the references")
    _add_well_known(file.dependency, names, known)
    _resolve(file, known)
    return ProtobufSchema(canonical, file, known)


def _file(text: str, name: str) -> tuple[FileDescriptorProto, str]:
    """(descriptor, canonical text)."""
    _check_text(text)
    binary = _binary(text)
    if binary is not None:
        _check_descriptor(binary)
        canonical = text_of(binary)
        _check_text(canonical)  # that is what is kept, and parsed again
        return binary, canonical
    if not text.strip():
        raise InvalidSchema("the file is empty")
    parsed = _parsed(text)
    return descriptor(parsed, name), ProtoText().generate(parsed)


def _check_descriptor(file: FileDescriptorProto) -> None:
    """What a text may not have either: what is shown for it would be read otherwise than it was written."""
    if file.syntax not in ("", "proto2", "proto3"):
        raise InvalidSchema(f"there is no syntax {file.syntax!r} here: only proto2 and proto3")
    _refuse_groups(file.extension)
    waiting = list(file.message_type)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        _refuse_groups((*message.field, *message.extension))


def _refuse_groups(fields: Iterable[FieldDescriptorProto]) -> None:
    for field in fields:
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            raise InvalidSchema(f"the group {field.name!r}: groups are not supported")


def _check_text(text: str) -> None:
    if len(text.encode()) > _MAX_TEXT_BYTES:
        raise InvalidSchema(f"a .proto file of more than {_MAX_TEXT_BYTES:,} bytes is not taken")


def _parsed(text: str) -> ast.File:
    return Parser(setup_lexer=_fails_at_errors, setup_parser=_fails_at_errors).parse(text)


class _FirstError(ErrorListener):  # type: ignore[misc]
    """The grammar's runtime would print the error and go on with a guess."""

    def syntaxError(
        self, recognizer: object, symbol: object, line: int, column: int, message: str, error: object
    ) -> None:
        raise InvalidSchema(f"not a .proto file: line {line}, column {column + 1}: {message[:200]}")


def _fails_at_errors(recognizer: Any) -> None:
    recognizer.removeErrorListeners()
    recognizer.addErrorListener(_FirstError())


def _binary(text: str) -> FileDescriptorProto | None:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        found = FileDescriptorProto.FromString(raw)
    except DecodeError:
        return None
    # A word that is no descriptor may be read as one with unknown fields only. A file may consist of imports.
    return found if found.message_type or found.enum_type or found.dependency else None


def _add_well_known(
    files: Iterable[str], names: Collection[str], known: dict[str, DescriptorProto | EnumDescriptorProto]
) -> None:
    """Put the types of files that everybody has into `known`. A reference of that name (`names`) is taken instead."""
    for name in files:
        if name not in names and name.startswith((_GOOGLE, google_types.DIRECTORY)):
            for type_name, each in _well_known(name).items():
                known.setdefault(type_name, each)


@cache
def _well_known(name: str) -> Mapping[str, DescriptorProto | EnumDescriptorProto]:
    """The types of google/protobuf/*.proto, from the package itself, and of google/type/*.proto, with those that they use."""
    import importlib

    if (text := google_types.text_of(name)) is not None:
        known: dict[str, DescriptorProto | EnumDescriptorProto] = {}
        parsed = descriptor(_parsed(text), name)
        _add_well_known(parsed.dependency, (), known)
        _resolve(parsed, known)
        return known

    module = name.removeprefix(_GOOGLE).removesuffix(".proto")
    if not module.replace("_", "").isalnum():
        raise InvalidSchema(f"the import {name!r} does not exist")
    try:
        found = importlib.import_module(f"google.protobuf.{module}_pb2")
    except ImportError:
        raise InvalidSchema(f"the import {name!r} does not exist") from None
    file = FileDescriptorProto()
    found.DESCRIPTOR.CopyToProto(file)
    return dict(_types(file))


def _types(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto | EnumDescriptorProto]]:
    """Full name with a leading dot -> type."""
    prefix = f".{file.package}" if file.package else ""
    for enum in file.enum_type:
        yield f"{prefix}.{enum.name}", enum
    waiting = [(f"{prefix}.{each.name}", each, 1) for each in file.message_type]
    while waiting:
        name, message, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"messages are nested more than {MAX_DEPTH} levels deep")
        yield name, message
        for enum in message.enum_type:
            yield f"{name}.{enum.name}", enum
        waiting += [(f"{name}.{each.name}", each, depth + 1) for each in message.nested_type]


def _resolve(file: FileDescriptorProto, known: dict[str, DescriptorProto | EnumDescriptorProto]) -> None:
    """Check the file, and write full names and kinds into its fields. `known` gets its types. Raises InvalidSchema."""
    own = list(_types(file))
    if not own and not file.dependency:
        raise InvalidSchema("the file has no message")
    for name, each in own:
        if name in known:
            raise InvalidSchema(f"the type {name[1:]} is there twice")
        known[name] = each
    for name, each in own:
        if isinstance(each, EnumDescriptorProto):
            _check_enum(name, each, is_proto3=file.syntax == "proto3")
        else:
            _check_fields(name, each)
            for field in each.field:
                if field.type_name:
                    _complete(field, name, known)
            _complete_extensions(each.extension, name, known)
    _complete_extensions(file.extension, f".{file.package}" if file.package else "", known)
    for service in file.service:
        for method in service.method:
            scope = f".{file.package}" if file.package else ""
            method.input_type = _full_name(method.input_type, scope, known)
            method.output_type = _full_name(method.output_type, scope, known)


def _check_enum(name: str, enum: EnumDescriptorProto, *, is_proto3: bool) -> None:
    if not enum.value:
        raise InvalidSchema(f"the enum {name[1:]} has no value")
    if is_proto3 and enum.value[0].number != 0:
        raise InvalidSchema(f"the first value of the enum {name[1:]} must be 0")


def _check_fields(name: str, message: DescriptorProto) -> None:
    numbers: dict[int, str] = {}
    names: set[str] = set()
    reserved_names = frozenset(message.reserved_name)
    spans = sorted((span.start, span.end) for span in message.reserved_range)
    ends = list(accumulate((end for _, end in spans), max))
    for field in message.field:
        if field.number in numbers:
            raise InvalidSchema(
                f"{name[1:]}: {numbers[field.number]} and {field.name} have the same number {field.number}"
            )
        if field.name in names:
            raise InvalidSchema(f"{name[1:]}: the field {field.name} is there twice")
        if not 1 <= field.number < 2**29 or 19_000 <= field.number < 20_000:
            raise InvalidSchema(f"{name[1:]}.{field.name}: {field.number} cannot be the number of a field")
        place = bisect_right(spans, field.number, key=itemgetter(0)) - 1
        if place >= 0 and field.number < ends[place]:  # of the ranges that begin before it
            raise InvalidSchema(f"{name[1:]}.{field.name}: the number {field.number} is reserved")
        if field.name in reserved_names:
            raise InvalidSchema(f"{name[1:]}.{field.name}: the name is reserved")
        numbers[field.number] = field.name
        names.add(field.name)


def _complete_extensions(
    fields: Iterable[FieldDescriptorProto], scope: str, known: Mapping[str, DescriptorProto | EnumDescriptorProto]
) -> None:
    """Of `extend` blocks. Raises InvalidSchema."""
    for field in fields:
        field.extendee = _full_name(field.extendee, scope, known)
        if isinstance(known[field.extendee], EnumDescriptorProto):
            raise InvalidSchema(f"{field.name}: the enum {field.extendee[1:]} cannot be extended")
        if field.type_name:
            _complete(field, scope, known)


def _complete(
    field: FieldDescriptorProto, scope: str, known: Mapping[str, DescriptorProto | EnumDescriptorProto]
) -> None:
    full = _full_name(field.type_name, scope, known)
    field.type_name = full
    is_enum = isinstance(known[full], EnumDescriptorProto)
    field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE


def _full_name(name: str, scope: str, known: Mapping[str, DescriptorProto | EnumDescriptorProto]) -> str:
    """From the innermost scope outwards."""
    if name.startswith("."):
        if name in known:
            return name
    else:
        while True:
            if f"{scope}.{name}" in known:
                return f"{scope}.{name}"
            if not scope:
                break
            scope = scope.rpartition(".")[0]
    raise InvalidSchema(f"the type {name!r} is not defined")


class _ProtobufComparison:
    """What the reader cannot read of what the writer writes."""

    def __init__(self, writer: ProtobufSchema, reader: ProtobufSchema) -> None:
        self._writer = writer
        self._reader = reader
        self._seen: set[tuple[str, str]] = set()

    def differences(self) -> Iterator[str]:
        prefix = f".{self._writer.file.package}" if self._writer.file.package else ""
        for message in self._writer.file.message_type:
            name = f"{prefix}.{message.name}"
            if name not in self._reader.messages:
                yield f"the message {name[1:]} is no longer there"
            else:
                yield from self._messages(name, name)

    def _messages(self, ours: str, theirs: str) -> Iterator[str]:
        if (ours, theirs) in self._seen:
            return
        self._seen.add((ours, theirs))
        writer, reader = self._writer.messages[ours], self._reader.messages[theirs]
        written = {field.number: field for field in writer.field}
        for field in reader.field:
            before = written.get(field.number)
            where = f"{theirs[1:]}.{field.name}"
            if before is None:
                if field.label == FieldDescriptorProto.LABEL_REQUIRED:
                    yield f"{where}: the required field is new"
                continue
            yield from self._fields(before, field, where)
        yield from _oneofs(writer, reader, theirs)

    def _fields(self, writer: FieldDescriptorProto, reader: FieldDescriptorProto, where: str) -> Iterator[str]:
        is_message = FieldDescriptorProto.TYPE_MESSAGE
        repeated = FieldDescriptorProto.LABEL_REPEATED
        if writer.type == is_message and reader.type == is_message:
            if writer.type_name != reader.type_name and not self._is_map(writer, reader):
                yield f"{where}: the type was {writer.type_name[1:]} and is {reader.type_name[1:]}"
            elif writer.type_name in self._writer.messages and reader.type_name in self._reader.messages:
                yield from self._messages(writer.type_name, reader.type_name)
        elif not _are_alike(writer, reader):
            yield f"{where}: the type was {_kind(writer)} and is {_kind(reader)}"
        if (writer.label == repeated) != (reader.label == repeated):
            before, now = ("repeated", "single") if writer.label == repeated else ("single", "repeated")
            # Of strings, bytes and messages the last one counts, or one is a list of one; packed numbers are read wrongly.
            if _kind(writer) not in ("string", "bytes") and writer.type != is_message:
                yield f"{where}: the field was {before} and is {now}"
        if reader.label == FieldDescriptorProto.LABEL_REQUIRED and writer.label != reader.label:
            yield f"{where}: the field is required now"

    def _is_map(self, writer: FieldDescriptorProto, reader: FieldDescriptorProto) -> bool:
        one, other = self._writer.messages.get(writer.type_name), self._reader.messages.get(reader.type_name)
        return one is not None and other is not None and one.options.map_entry and other.options.map_entry


def _oneofs(writer: DescriptorProto, reader: DescriptorProto, name: str) -> Iterator[str]:
    """Fields that were independent must not exclude each other; a field must not leave its oneof."""

    def groups(message: DescriptorProto) -> dict[int, str]:
        return {
            field.number: message.oneof_decl[field.oneof_index].name
            for field in message.field
            if field.HasField("oneof_index") and not field.proto3_optional
        }

    before, now = groups(writer), groups(reader)
    existing = {field.number for field in writer.field}
    still = {field.number for field in reader.field}
    were_independent = existing - before.keys()
    moved_into: dict[str, list[int]] = {}
    for number in sorted(now.keys() & were_independent):
        moved_into.setdefault(now[number], []).append(number)
    for group, moved in sorted(moved_into.items()):
        if len(moved) > 1:
            yield f"{name[1:]}: the fields {', '.join(map(str, moved))} exclude each other now, in {group}"
    for number, group in sorted(before.items()):
        if number not in still:
            yield f"{name[1:]}: the field {number} of the oneof {group} is no longer there"


def _are_alike(writer: FieldDescriptorProto, reader: FieldDescriptorProto) -> bool:
    one, other = _kind(writer), _kind(reader)
    if one == other:
        return True
    if "enum" in (one, other):  # an enum is a number on the wire
        return {one, other} - {"enum"} <= _ALIKE[0]
    return any({one, other} <= group for group in _ALIKE)


def _kind(field: FieldDescriptorProto) -> str:
    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()
