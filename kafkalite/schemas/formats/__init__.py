"""Parsers of the schema types; each is loaded when the first schema of its type comes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from kafkalite.errors import KafkaliteError
from kafkalite.schemas.schema import (
    AVRO,
    JSON,
    MAX_TEXT_BYTES,
    PROTOBUF,
    STUMBLES,
    Import,
    InvalidSchema,
    ParsedSchema,
    check_size,
)

_MODULES = {AVRO: "avro_schemas", JSON: "json_schemas", PROTOBUF: "protobuf_schemas"}


class ParserMissing(KafkaliteError):
    """The packages of the extra `schemas` are not installed on this node."""


def parse(type_: str, text: str, imports: Sequence[Import] = ()) -> ParsedSchema:
    """Parse a text.

    Args:
        imports: what it refers to, each after those that it refers to itself.
    Raises:
        InvalidSchema, ParserMissing.
    """
    module = _MODULES.get(type_)
    if module is None:
        raise InvalidSchema(f"there is no schema type {type_!r}; there are {', '.join(sorted(_MODULES))}")
    check_size(text)
    if sum(len(each.text) for each in imports) > MAX_TEXT_BYTES:
        raise InvalidSchema(f"the schemas that it refers to have more than {MAX_TEXT_BYTES:,} characters together")
    try:
        parser = importlib.import_module(f"kafkalite.schemas.formats.{module}")
    except ImportError as error:
        raise ParserMissing(
            f"schemas of the type {type_} need the package {error.name}: pip install 'kafkalite[schemas]'"
        ) from None
    try:
        parsed: ParsedSchema = parser.parse(text, imports)
        check_size(parsed.text)  # the canonical text may be longer; and "\ud800" of JSON is no text
    except RecursionError:
        raise InvalidSchema("the schema is nested too deep") from None
    except STUMBLES as error:
        raise InvalidSchema(f"not a schema of the type {type_}: {str(error)[:200]}") from None
    return parsed
