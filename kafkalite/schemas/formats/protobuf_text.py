"""A .proto file as a FileDescriptorProto, and back to text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.text_encoding import CEscape, CUnescape
from proto_schema_parser import ast

from kafkalite.schemas.schema import InvalidSchema

SCALARS: Mapping[str, int] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_LABELS = {
    ast.FieldCardinality.REQUIRED: FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.OPTIONAL: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REPEATED: FieldDescriptorProto.LABEL_REPEATED,
}
_MAX_NUMBER = 2**29 - 1


# --- from text ---------------------------------------------------------------------------------


def descriptor(file: ast.File, name: str) -> FileDescriptorProto:
    """Of a parsed file; names of types are as written. Raises InvalidSchema."""
    if file.edition is not None:
        raise InvalidSchema("editions of Protobuf are not supported; there are proto2 and proto3")
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise InvalidSchema(f"there is no syntax {syntax!r}")
    found = FileDescriptorProto(name=name)
    if syntax == "proto3":
        found.syntax = syntax
    for element in file.file_elements:
        match element:
            case ast.Package(package):
                found.package = package
            case ast.Import():
                found.dependency.append(element.name)
                if element.public:
                    found.public_dependency.append(len(found.dependency) - 1)
            case ast.Message():
                _message(element, found.message_type.add(), is_proto3=syntax == "proto3")
            case ast.Enum():
                _enum(element, found.enum_type.add())
            case ast.Extension():
                _extensions(element, found.extension, is_proto3=syntax == "proto3")
            case ast.Service():
                service = found.service.add(name=element.name)
                for method in element.elements:
                    if isinstance(method, ast.Method):
                        service.method.add(
                            name=method.name,
                            input_type=method.input_type.type,
                            output_type=method.output_type.type,
                            client_streaming=method.input_type.stream,
                            server_streaming=method.output_type.stream,
                        )
            case ast.Option(option, value) if option in ("java_package", "java_outer_classname", "go_package"):
                setattr(found.options, option, str(value))
            case ast.Option("java_multiple_files", value):
                found.options.java_multiple_files = value is True
            case _:  # comments, other options: they change nothing of how records are read
                pass
    return found


def _message(message: ast.Message, into: DescriptorProto, *, is_proto3: bool) -> None:
    into.name = message.name
    synthetic: list[FieldDescriptorProto] = []
    for element in message.elements:
        match element:
            case ast.Field():
                field = _field(element, into.field.add(), is_proto3=is_proto3)
                if is_proto3 and element.cardinality is ast.FieldCardinality.OPTIONAL:
                    field.proto3_optional = True
                    synthetic.append(field)
            case ast.MapField():
                _map(element, into)
            case ast.OneOf():
                into.oneof_decl.add(name=element.name)
                for each in element.elements:
                    if isinstance(each, ast.Field):
                        _field(each, into.field.add(), is_proto3=is_proto3).oneof_index = len(into.oneof_decl) - 1
            case ast.Group():
                raise InvalidSchema(f"the group {element.name!r}: groups are not supported")
            case ast.Message():
                _message(element, into.nested_type.add(), is_proto3=is_proto3)
            case ast.Enum():
                _enum(element, into.enum_type.add())
            case ast.Extension():
                _extensions(element, into.extension, is_proto3=is_proto3)
            case ast.Reserved():
                for text in element.ranges:
                    first, last = _range(text)
                    into.reserved_range.add(start=first, end=last + 1)
                into.reserved_name.extend(element.names)
            case ast.ExtensionRange():
                for text in element.ranges:
                    first, last = _range(text)
                    into.extension_range.add(start=first, end=last + 1)
            case _:
                pass
    for field in synthetic:  # after the others, as protoc has them
        into.oneof_decl.add(name=f"_{field.name}")
        field.oneof_index = len(into.oneof_decl) - 1


def _extensions(block: ast.Extension, into: Any, *, is_proto3: bool) -> None:
    """The fields of an `extend` block. `into`: a descriptor's list of them."""
    for element in block.elements:
        match element:
            case ast.Field():
                field = _field(element, into.add(), is_proto3=is_proto3)
                field.extendee = block.typeName
                field.proto3_optional = is_proto3 and element.cardinality is ast.FieldCardinality.OPTIONAL
            case ast.Group():
                raise InvalidSchema(f"the group {element.name!r}: groups are not supported")
            case _:
                pass


def _field(field: ast.Field, into: FieldDescriptorProto, *, is_proto3: bool) -> FieldDescriptorProto:
    into.name = field.name
    into.number = field.number
    cardinality = field.cardinality or ast.FieldCardinality.OPTIONAL
    if is_proto3 and cardinality is ast.FieldCardinality.REQUIRED:
        raise InvalidSchema(f"the field {field.name!r}: proto3 has no required fields")
    into.label = _LABELS[cardinality]
    _set_type(into, field.type)
    for option in field.options:
        if option.name == "deprecated":
            into.options.deprecated = option.value is True
        elif option.name == "packed":
            into.options.packed = option.value is True
        elif option.name == "json_name":
            into.json_name = str(option.value)
        elif option.name == "default":
            value = option.value
            into.default_value = _default(into.type, value)
    return into


def _set_type(into: FieldDescriptorProto, name: str) -> None:
    if name in SCALARS:
        into.type = SCALARS[name]
    else:
        into.type_name = name


def _map(field: ast.MapField, into: DescriptorProto) -> None:
    """A map is a repeated message of a key and a value (Protobuf's language guide, Maps)."""
    entry = into.nested_type.add(name=_camel(field.name) + "Entry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate((("key", field.key_type), ("value", field.value_type)), start=1):
        part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(part, kind)
    if field.key_type not in SCALARS or field.key_type in ("float", "double", "bytes"):
        raise InvalidSchema(f"the map {field.name!r}: {field.key_type} cannot be a key")
    into.field.add(
        name=field.name, number=field.number, label=FieldDescriptorProto.LABEL_REPEATED, type_name=entry.name
    )


def _enum(enum: ast.Enum, into: EnumDescriptorProto) -> None:
    into.name = enum.name
    for element in enum.elements:
        if isinstance(element, ast.EnumValue):
            into.value.add(name=element.name, number=element.number)
        elif isinstance(element, ast.Option) and element.name == "allow_alias":
            into.options.allow_alias = element.value is True
        elif isinstance(element, ast.EnumReserved):
            for text in element.ranges:
                first, last = _range(text)
                into.reserved_range.add(start=first, end=last)
            into.reserved_name.extend(element.names)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(" to ")
    try:
        return int(first), _MAX_NUMBER if last == "max" else int(last or first)
    except ValueError:
        raise InvalidSchema(f"not a range of numbers: {text!r}") from None


# --- to text -----------------------------------------------------------------------------------


def _default(kind: int, value: Any) -> str:
    """As a descriptor has it: texts as they are, bytes with escapes. The parser leaves all escapes as they were written."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(getattr(value, "name", value))
    try:
        found: bytes = CUnescape(value)
        return found.decode() if kind == FieldDescriptorProto.TYPE_STRING else str(CEscape(found, as_utf8=False))
    except ValueError as error:
        raise InvalidSchema(f"the default {value!r}: {error}") from None


def text_of(file: FileDescriptorProto) -> str:
    """A .proto file that says the same. Options that change nothing of how records are read are not in it."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    public = frozenset(file.public_dependency)
    for number, name in enumerate(file.dependency):
        lines.append(f"import {'public ' if number in public else ''}{_quoted(name)};")
    for option in ("java_package", "java_outer_classname", "go_package"):
        if file.options.HasField(option):
            lines.append(f"option {option} = {_quoted(getattr(file.options, option))};")
    is_proto3 = file.syntax == "proto3"
    for message in file.message_type:
        lines += _message_lines(message, is_proto3=is_proto3)
    for enum in file.enum_type:
        lines += _enum_lines(enum)
    lines += _extension_lines(file.extension, is_proto3=is_proto3)
    for service in file.service:
        lines.append(f"service {service.name} {{")
        for method in service.method:
            given = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            returned = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            lines.append(f"  rpc {method.name} ({given}) returns ({returned});")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _message_lines(message: DescriptorProto, *, is_proto3: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    for span in message.reserved_range:
        yield f"  reserved {span.start} to {span.end - 1};"
    for name in message.reserved_name:
        yield f"  reserved {_quoted(name)};"
    for span in message.extension_range:
        yield f"  extensions {span.start} to {span.end - 1};"
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield f"  {_field_text(field, maps, is_proto3=is_proto3)}"
    groups: dict[int, list[FieldDescriptorProto]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            groups.setdefault(field.oneof_index, []).append(field)
    for number, oneof in enumerate(message.oneof_decl):
        if members := groups.get(number):
            yield f"  oneof {oneof.name} {{"
            for each in members:
                yield f"    {_field_text(each, maps, is_proto3=is_proto3, is_in_oneof=True)}"
            yield "  }"
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from (f"  {line}" for line in _message_lines(nested, is_proto3=is_proto3))
    for enum in message.enum_type:
        yield from (f"  {line}" for line in _enum_lines(enum))
    yield from (f"  {line}" for line in _extension_lines(message.extension, is_proto3=is_proto3))
    yield "}"


def _extension_lines(fields: Iterable[FieldDescriptorProto], *, is_proto3: bool) -> Iterator[str]:
    """`extend` blocks: neighbours that extend the same message are in one."""
    for extendee, block in groupby(fields, key=attrgetter("extendee")):
        yield f"extend {extendee} {{"
        for field in block:
            yield f"  {_field_text(field, {}, is_proto3=is_proto3)}"
        yield "}"


def _field_text(
    field: FieldDescriptorProto, maps: Mapping[str, DescriptorProto], *, is_proto3: bool, is_in_oneof: bool = False
) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        kind = f"map<{_type_text(entry.field[0])}, {_type_text(entry.field[1])}>"
    else:
        kind = _type_text(field)
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            kind = f"repeated {kind}"
        elif field.label == FieldDescriptorProto.LABEL_REQUIRED:
            kind = f"required {kind}"
        elif field.proto3_optional or (not is_proto3 and not is_in_oneof):
            kind = f"optional {kind}"
    options = []
    if field.HasField("default_value"):
        default = field.default_value
        if field.type == FieldDescriptorProto.TYPE_STRING:
            default = f'"{CEscape(default, as_utf8=True)}"'
        elif field.type == FieldDescriptorProto.TYPE_BYTES:  # with its escapes
            default = f'"{default}"'
        options.append(f"default = {default}")
    if field.options.HasField("packed"):
        options.append(f"packed = {str(field.options.packed).lower()}")
    if field.options.deprecated:
        options.append("deprecated = true")
    suffix = f" [{', '.join(options)}]" if options else ""
    return f"{kind} {field.name} = {field.number}{suffix};"


def _type_text(field: FieldDescriptorProto) -> str:
    return field.type_name or _SCALAR_NAMES[field.type]


def _enum_lines(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    if enum.options.allow_alias:
        yield "  option allow_alias = true;"
    for span in enum.reserved_range:
        yield f"  reserved {span.start} to {span.end};"
    for name in enum.reserved_name:
        yield f"  reserved {_quoted(name)};"
    for value in enum.value:
        yield f"  {value.name} = {value.number};"
    yield "}"


def _quoted(value: Any) -> str:
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
