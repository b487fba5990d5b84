"""A parsed .proto file as text: as it was written, or in one order (`normalize=true`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from proto_schema_parser import ast
from proto_schema_parser.generator import Generator

from kafkalite.schemas.formats.protobuf_text import SCALARS

#: (name of a type as written, scope with a leading dot) -> its full name with a leading dot.
FullName = Callable[[str, str], str]


#: With the pairs of backslashes before it.
_FREE_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')


class ProtoText(Generator):
    """The package's writer. It writes options of a file as quoted text, whatever they are, and drops those of maps and enum values."""

    def generate(self, file: ast.File) -> str:
        lines = [f'syntax = "{file.syntax}";'] if file.syntax else []
        for element in file.file_elements:
            if isinstance(element, ast.Option):
                lines.append(self._generate_option(element))
            elif isinstance(element, ast.Comment) and element.inline and lines:
                lines[-1] = f"{lines[-1]} {element.text}"
            elif isinstance(element, ast.Comment):
                lines.append(element.text)
            else:
                lines.append(super().generate(ast.File(syntax=None, file_elements=[element])))
        return "\n".join(lines)

    def _generate_map_field(self, map_field: ast.MapField, indent_level: int = 0) -> str:
        text: str = super()._generate_map_field(map_field, indent_level)
        return text.removesuffix(";") + self._options(map_field.options) + ";"

    def _generate_enum(self, enum: ast.Enum, indent_level: int = 0) -> str:
        # the writer has no method for one value: its options are written as a part of the value's number
        elements: list[Any] = [
            replace(each, number=f"{each.number}{self._options(each.options)}")  # type: ignore[arg-type]
            if isinstance(each, ast.EnumValue) and each.options
            else each
            for each in enum.elements
        ]
        return str(super()._generate_enum(replace(enum, elements=elements), indent_level))

    def _escape_string(self, value: str) -> str:
        # the parser leaves escapes as they were written; only quotation marks were free within others
        return _FREE_QUOTE.sub(r"\1\"", value)

    def _options(self, options: Sequence[ast.Option]) -> str:
        made = [f"{each.name} = {self._generate_option_value(each.value, 0, inline=True)}" for each in options]
        return f" [{', '.join(made)}]" if made else ""


def in_order(file: ast.File, package: str, full_name: FullName) -> ast.File:
    """The same schema without comments: imports and options by name, fields by number, types by their full names.

    Messages and enums keep their places: serializers write the index of a message in front of a record.
    """
    scope = f".{package}" if package else ""
    elements = [
        replace(each, elements=_method_types(each, scope, full_name))
        if isinstance(each, ast.Service)
        else _element(each, scope, full_name)
        for each in _without_comments(file.file_elements)
    ]
    return replace(file, syntax=file.syntax or "proto2", file_elements=sorted(elements, key=_place_in_file))


def _without_comments(elements: Sequence[Any]) -> list[Any]:
    return [each for each in elements if not isinstance(each, ast.Comment)]


def _place_in_file(element: Any) -> tuple[int, str]:
    match element:
        case ast.Package():
            return (0, "")
        case ast.Import(name):
            return (1, name)
        case ast.Option(name):
            return (2, name)
    return (3, "")


def _place_in_message(element: Any) -> tuple[int, int, str]:
    match element:
        case ast.Option(name):
            return (0, 0, name)
        case ast.Field() | ast.MapField():
            return (2, element.number, "")
        case ast.OneOf():
            return (2, min((each.number for each in element.elements if isinstance(each, ast.Field)), default=0), "")
        case ast.Message() | ast.Enum() | ast.Extension():
            return (3, 0, "")
    return (1, 0, "")


def _element(element: Any, scope: str, full_name: FullName) -> Any:
    """Of a file or a message."""
    match element:
        case ast.Message():
            inner = f"{scope}.{element.name}"
            made = [_element(each, inner, full_name) for each in _without_comments(element.elements)]
            return replace(element, elements=sorted(made, key=_place_in_message))
        case ast.OneOf():
            members = [_element(each, scope, full_name) for each in _without_comments(element.elements)]
            return replace(element, elements=sorted(members, key=_place_in_message))
        case ast.Field():
            return replace(element, type=_type(element.type, scope, full_name), options=_sorted(element.options))
        case ast.MapField():
            kind = _type(element.value_type, scope, full_name)
            return replace(element, value_type=kind, options=_sorted(element.options))
        case ast.Enum():
            values = [
                replace(each, options=_sorted(each.options)) if isinstance(each, ast.EnumValue) else each
                for each in _without_comments(element.elements)
            ]
            return replace(element, elements=values)
        case ast.Extension():
            return replace(element, elements=_without_comments(element.elements))
    return element


def _method_types(service: ast.Service, scope: str, full_name: FullName) -> list[Any]:
    return [
        replace(
            each,
            input_type=replace(each.input_type, type=full_name(each.input_type.type, scope)),
            output_type=replace(each.output_type, type=full_name(each.output_type.type, scope)),
            elements=_without_comments(each.elements),
        )
        if isinstance(each, ast.Method)
        else each
        for each in _without_comments(service.elements)
    ]


def _type(name: str, scope: str, full_name: FullName) -> str:
    return name if name in SCALARS else full_name(name, scope)


def _sorted(options: Sequence[ast.Option]) -> list[ast.Option]:
    return sorted(options, key=lambda each: str(each.name))
