"""Descriptors of Protobuf: from a schema registry, a .proto file with its imports, or what protoc wrote (--descriptor_set_out)."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kafkalite.lazy_dataclass import dataclass
from kafkalite_pipelines.decoding.protobuf import is_map_entry
from kafkalite_pipelines.decoding.registry import RegistrySchema
from kafkalite_pipelines.definition import PipelineError

_GOOGLE = "google/protobuf/"
BINARY = (".desc", ".pb", ".binpb")


@dataclass(frozen=True, slots=True)
class Files:
    """FileDescriptorProtos as bytes, each after those that it imports; the last one has the messages. Travels to tasks."""

    serialized: tuple[bytes, ...]


class Messages:
    """The messages of one file, in a pool of their own: two versions of a message have the same name."""

    def __init__(self, files: Files) -> None:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        known: set[str] = set()
        found = [FileDescriptorProto.FromString(each) for each in files.serialized]
        for file in found:
            for name in file.dependency:
                if name.startswith(_GOOGLE):
                    _add_googles(pool, name, known)
            if file.name not in known:
                known.add(file.name)
                try:
                    pool.AddSerializedFile(file.SerializeToString())
                except (TypeError, ValueError) as error:
                    raise PipelineError(f"{file.name}: {' '.join(str(error).split())}"[:300]) from None
        main = pool.FindFileByName(found[-1].name)
        ordered = [main.message_types_by_name[message.name] for message in found[-1].message_type]
        #: In the order of the file, which message indexes count.
        self.top: Sequence[Any] = ordered
        #: Also those within others.
        self.by_name = {message.full_name: message for message in _with_inner(ordered)}


def _with_inner(found: Iterable[Any]) -> Iterator[Any]:
    for message in found:
        if not is_map_entry(message):
            yield message
            yield from _with_inner(message.nested_types)


def _add_googles(pool: Any, name: str, known: set[str]) -> None:
    """A file of google/protobuf, from the package itself."""
    if name in known:
        return
    known.add(name)
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise PipelineError(f"the import {name!r} does not exist") from None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for each in file.dependency:
        _add_googles(pool, each, known)
    pool.AddSerializedFile(file.SerializeToString())


@functools.lru_cache(maxsize=200)
def messages(files: Files) -> Messages:
    """Once in each process. Raises PipelineError: the descriptors do not fit together."""
    return Messages(files)


@functools.lru_cache(maxsize=200)
def of_registry(schema: RegistrySchema) -> Files:
    """Raises PipelineError: it is not Protobuf."""
    if schema.kind != "PROTOBUF":
        raise PipelineError(
            f"schema {schema.id} is {schema.kind}, not PROTOBUF: decode.format must be the format of the records"
        )
    imports = [(name, text) for name, text in schema.references if not name.startswith(_GOOGLE)]
    return _parsed(schema.text, imports, f"schema-{schema.id}.proto", f"schema {schema.id}")


def _parsed(text: str, imports: Sequence[tuple[str, str]], name: str, shown: str) -> Files:
    """`imports`: (name, text), each after those that it imports."""
    from kafkalite.schemas.formats.protobuf_schemas import parse
    from kafkalite.schemas.schema import Import, InvalidSchema

    done: list[bytes] = []
    before: list[Import] = []
    for number, (each, content) in enumerate([*imports, (name, text)]):
        try:
            file = parse(content, before).file
        except InvalidSchema as error:
            where = shown if number == len(imports) else each
            raise PipelineError(f"{where}: {error}" if where else str(error)) from None
        file.name = each
        done.append(file.SerializeToString())
        before.append(Import(each, content))
    return Files(tuple(done))


def of_file(path: Path, root: Path) -> Files:
    """A .proto file (imports are searched beside it, and in the directories above it up to `root`), or a descriptor set.

    Raises:
        PipelineError: one line on what is wrong with it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PipelineError(f"decode.schema_file: {path}: {error.strerror or error}") from None
    try:
        found = _descriptor_set(content) if path.suffix in BINARY else _proto(path, content, root)
        messages(found)
    except PipelineError as error:
        raise PipelineError(f"decode.schema_file: {path.name}: {error}") from None
    return found


def _descriptor_set(content: bytes) -> Files:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        files = FileDescriptorSet.FromString(content).file
    except DecodeError:
        files = []
    if not files or not files[-1].message_type:
        raise PipelineError(
            "is no descriptor set with messages: protoc --include_imports --descriptor_set_out writes one"
        )
    names = {file.name for file in files}
    for file in files:
        for name in file.dependency:
            if name not in names and not name.startswith(_GOOGLE):
                raise PipelineError(f"does not contain {name}: protoc --include_imports adds it")
    return Files(tuple(file.SerializeToString() for file in files if not file.name.startswith(_GOOGLE)))


def _proto(path: Path, content: bytes, root: Path) -> Files:
    imports: dict[str, str] = {}
    text = _text(content, path.name)
    _collect(text, path, root, imports, (path.name,))
    return _parsed(text, list(imports.items()), path.name, "")


def _collect(text: str, path: Path, root: Path, into: dict[str, str], outer: tuple[str, ...]) -> None:
    """What a file imports, depth first."""
    import re

    for name in re.findall(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"\s*;', text, re.MULTILINE):
        if name.startswith(_GOOGLE) or name in into:
            continue
        if name in outer:
            raise PipelineError(f"{name} imports itself")
        found = next((each / name for each in _search(path, root) if (each / name).is_file()), None)
        if found is None:
            raise PipelineError(f"the import {name!r} is not beside the file")
        inner = _text(found.read_bytes(), name)
        _collect(inner, found, root, into, (*outer, name))
        into[name] = inner


def _search(path: Path, root: Path) -> list[Path]:
    above = [each for each in path.resolve().parents if each == root.resolve() or root.resolve() in each.parents]
    return [path.resolve().parent, *above]


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise PipelineError(f"{name} is not UTF-8 text; a file of protoc --descriptor_set_out ends in .desc") from None
