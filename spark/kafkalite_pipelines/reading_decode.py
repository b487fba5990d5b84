"""The table [decode] of a pipeline file. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from kafkalite_pipelines.decoding.types import BadType, spark_type
from kafkalite_pipelines.definition import Decode, is_own
from kafkalite_pipelines.sections import Section, kind

FORMATS = ("json", "avro", "protobuf", "raw")
_OURS = "a name of the pipeline's own columns"
#: No space and no control character.
_URL = re.compile(r"[!-~]+")
COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_decode(top: Section, *, has_dead_letters: bool) -> Decode:
    """The table [decode]; mistakes are in the section's problems."""
    default = "dead-letters" if has_dead_letters else "stop"
    section = top.section("decode")
    if section is None:
        return Decode(on_error=default)
    format_ = section.choice("format", FORMATS, "json")
    columns = _columns(section)
    file = _for_protobuf(section, format_, "schema_file")
    registry = _registry(section, format_, file)
    if columns and format_ != "json":
        section.problem("schema", f"is for json; {format_} has its own columns")
    on_error = section.choice("on_error", ("dead-letters", "stop", "skip"), default)
    if on_error == "dead-letters" and not has_dead_letters:
        section.problem("on_error", "dead-letters needs a table [dead_letters] with a topic")
    required, key_column = section.names("required"), section.text("key_column")
    for each in required:
        if columns and each not in columns:
            section.problem("required", f"{each!r} is not in decode.schema")
    if required and format_ == "raw":
        section.problem("required", "raw records have no columns that could be missing; use json, avro or protobuf")
    if key_column is not None and not COLUMN.fullmatch(key_column):
        section.problem("key_column", f"{key_column!r} is not a column's name")
    elif key_column is not None and is_own(key_column):
        section.problem("key_column", _OURS)
    elif key_column is not None and format_ == "raw":
        section.problem("key_column", "raw records have the column key")
    debezium = section.boolean("debezium", default=False)
    if debezium and format_ == "raw":
        section.problem("debezium", "raw records are not taken apart; use json, avro or protobuf")
    decode = Decode(
        format=format_,
        columns=columns,
        required=required,
        key_column=key_column,
        debezium=debezium,
        registry=registry,
        registry_user=section.text("registry_user"),
        registry_password_env=section.text("registry_password_env"),
        schema_file=file,
        message=_for_protobuf(section, format_, "message"),
        on_error=on_error,
    )
    section.done()
    return decode


def _registry(section: Section, format_: str, file: str | None) -> str | None:
    registry = section.text("registry")
    if format_ == "avro" and "registry" not in section:
        section.problem("registry", "is missing: avro needs a schema registry's URL")
    if format_ == "protobuf" and ("registry" in section) == ("schema_file" in section):
        what = "is missing: protobuf needs a schema registry's URL, or schema_file"
        section.problem("registry", "cannot be combined with schema_file" if "registry" in section else what)
    if registry is not None and format_ == "raw":
        section.problem("registry", "raw records are not decoded; use json, avro or protobuf")
    if registry is not None:
        _check_url(section, registry)
    user, password = "registry_user" in section, "registry_password_env" in section
    if registry is None:
        for key in ("registry_user", "registry_password_env"):
            if key in section:
                section.problem(key, "is for a registry")
    elif user and not password:
        section.missing("registry_password_env", "the environment variable with the password of registry_user")
    elif password and not user:
        section.missing("registry_user", "the user of registry_password_env")
    if file is not None and format_ == "protobuf" and not file.endswith((".proto", ".desc", ".pb", ".binpb")):
        section.problem("schema_file", f"must be a .proto file or a descriptor set (.desc) of protoc, not {file!r}")
    return registry


def _check_url(section: Section, url: str) -> None:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number of a port, or there is half a pair of brackets
        right = False
    if not right or not _URL.fullmatch(url):
        shown = "a text with an @" if "@" in url else repr(url)  # with a password in it
        section.problem("registry", f"must be a URL (http://host:8081), not {shown}")
    elif parts.username is not None:
        section.problem("registry", "must have no user in it; use registry_user and registry_password_env")


def _for_protobuf(section: Section, format_: str, key: str) -> str | None:
    value = section.text(key)
    if value is not None and format_ != "protobuf":
        section.problem(key, "is for protobuf")
    return value


def _columns(section: Section) -> dict[str, str]:
    value = section.any("schema")
    if value is None or value == "infer":
        return {}
    if not isinstance(value, Mapping):
        section.problem("schema", 'must be a table of columns, { number = "long" }, or "infer"')
        return {}
    if not value:
        section.problem("schema", "has no columns")
    columns: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for name, type_ in value.items():
        if not isinstance(type_, str):
            section.problem(f"schema.{name}", f'must be a type such as "long", not {kind(type_)}')
            continue
        if is_own(name):
            section.problem(f"schema.{name}", _OURS)
        if (other := spelt.setdefault(name.lower(), name)) != name:
            section.problem(
                f"schema.{name}", f"differs from {other} in upper and lower case only: to Spark they are the same"
            )
        try:
            columns[name] = spark_type(type_)
        except BadType as error:
            section.problem(f"schema.{name}", str(error))
    return columns
