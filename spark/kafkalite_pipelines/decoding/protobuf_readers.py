"""Values in Protobuf, read one by one in Spark's tasks."""

from __future__ import annotations

from typing import Any

from kafkalite_pipelines.decoding.protobuf import (
    Convert,
    Misfit,
    at_path,
    columns,
    converter,
    message_index,
    message_of,
)
from kafkalite_pipelines.decoding.protobuf_schemas import Files, messages, of_file, of_registry
from kafkalite_pipelines.decoding.registry import HEADER_BYTES, RegistryAway, RegistryClient, RegistrySchema, schema_id
from kafkalite_pipelines.definition import Decode, Pipeline, PipelineError

#: Pairs of schema and message whose converters a reader keeps.
_KEPT = 200


class _MessageReader:
    """Parses with one descriptor, and converts to the columns of another."""

    def __init__(self, writer: Any, reader: Any, number: int | None) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._parse = GetMessageClass(writer).FromString
        self._name = writer.full_name
        self._shown = "" if number is None else f" of schema {number}"
        self._convert: Convert | None = None
        self._misfit = ""
        if writer.full_name != reader.full_name:
            self._misfit = f"is a {writer.full_name}, and the columns are those of {reader.full_name}"
            return
        try:
            self._convert = converter(writer, reader)
        except Misfit as error:
            self._misfit = f"does not fit the columns: {error}"

    def read(self, value: bytes) -> Any:
        if self._convert is None:
            raise ValueError(self._misfit)
        try:
            return self._convert(self._parse(value))
        except Exception as error:  # noqa: BLE001 - any bytes from outside
            shown = f"{type(error).__name__} {error}"[:200]
            raise ValueError(f"is not a {self._name}{self._shown}: {shown}") from None


class RegistryReader:
    """Values with a schema id and a message index in front. Travels to tasks."""

    def __init__(self, registry: RegistryClient, reader: RegistrySchema, message: str) -> None:
        self._registry = registry
        self._reader = reader
        self._message = message
        self._ready: dict[tuple[int, tuple[int, ...]], _MessageReader | str] = {}

    def __reduce__(self) -> Any:
        return RegistryReader, (self._registry, self._reader, self._message)

    def read(self, value: bytes) -> Any:
        """One value. Raises ValueError: it cannot be read; the message says why, without a subject."""
        number = schema_id(value)
        path, begin = message_index(value, HEADER_BYTES)
        ready = self._ready.get((number, path))
        if ready is None:
            ready = self._made(number, path)
            if len(self._ready) < _KEPT:
                self._ready[number, path] = ready
        if isinstance(ready, str):
            raise ValueError(ready)
        return ready.read(value[begin:])

    def _made(self, number: int, path: tuple[int, ...]) -> _MessageReader | str:
        """What reads values of a schema; or why none of them can be read."""
        try:
            written = messages(of_registry(self._registry.schema(number)))
            theirs = at_path(written.top, path)
        except RegistryAway:
            raise
        except PipelineError as error:
            return f"has a schema that cannot be used: {error}"
        except ValueError as error:
            return str(error)
        ours = messages(of_registry(self._reader)).by_name[self._message]
        return _MessageReader(theirs, ours, number)


class FileReader:
    """Values without anything in front, in the message that a file describes. Travels to tasks."""

    def __init__(self, files: Files, message: str) -> None:
        self._files = files
        self._message = message
        self._ready: _MessageReader | None = None

    def __reduce__(self) -> Any:
        return FileReader, (self._files, self._message)

    def read(self, value: bytes) -> Any:
        """As RegistryReader."""
        if self._ready is None:
            message = messages(self._files).by_name[self._message]
            self._ready = _MessageReader(message, message, None)
        return self._ready.read(value)


def registry_reader(
    registry: RegistryClient, schema: RegistrySchema, decode: Decode
) -> tuple[dict[str, str], RegistryReader]:
    """The columns, and what reads values into them. Raises PipelineError."""
    message = message_of(messages(of_registry(schema)).by_name, decode.message)
    return columns(message), RegistryReader(registry, schema, message.full_name)


def file_reader(pipeline: Pipeline) -> tuple[dict[str, str], FileReader]:
    """Raises PipelineError: the file is wrong, or has no such message."""
    decode = pipeline.decode
    assert decode.schema_file is not None
    files = of_file(pipeline.directory / decode.schema_file, pipeline.directory)
    message = message_of(messages(files).by_name, decode.message)
    return columns(message), FileReader(files, message.full_name)
