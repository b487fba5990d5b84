"""The registry's operations: decide on what is registered, append the records, then change the state.

One change is under way at a time, so each decides on what the one before has left.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from kafkalite.lazy_dataclass import dataclass
from kafkalite.schemas import errors, subjects
from kafkalite.schemas.compatibility import DEFAULT_LEVEL, LEVELS, NONE, differences, is_transitive
from kafkalite.schemas.formats import ParserMissing, parse
from kafkalite.schemas.schema import (
    MAX_REFERENCES,
    STUMBLES,
    Import,
    InvalidSchema,
    ParsedSchema,
    Reference,
    Schema,
)
from kafkalite.schemas.subjects import IMPORT, MAX_VERSION, MODES, READONLY, KeyValue, Subjects, Version

#: Parsed schemas that are kept, and their characters: parsed, each of these takes some 20 bytes.
_CACHE_SCHEMAS, _CACHE_CHARACTERS = 500, 4_000_000
#: Earlier versions that a transitive comparison looks at.
_MAX_COMPARED = 1_000

Append = Callable[[Sequence[KeyValue]], Awaitable[None]]
#: Runs what takes long (parsing, comparing) in a thread.
OffLoop = Callable[[Callable[[], object]], Awaitable[Any]]
_Parsing = tuple[Schema, tuple[Import, ...]]


def _characters(parsing: _Parsing) -> int:
    schema, imports = parsing
    return len(schema.text) + sum(len(each.text) for each in imports)


@dataclass(frozen=True, slots=True)
class Registration:
    """What somebody wants to register. `id`, `version` -1: the registry chooses. `normalize`: what differs in order only is the same."""

    schema: Schema
    id: int = -1
    version: int = -1
    normalize: bool = False


class SubjectRegistry:
    """One loaded partition of `_schemas`.

    Args:
        append: returns when the records are committed; raises RegistryError if that is not certain.
    """

    def __init__(self, state: Subjects, append: Append, off_loop: OffLoop) -> None:
        self.state = state
        self._append = append
        self._off_loop = off_loop
        self._changing = asyncio.Lock()
        #: By the schema and what its references lead to: a subject that was deleted may have other schemas by now.
        self._parsed: OrderedDict[_Parsing, ParsedSchema] = OrderedDict()
        #: Of all of them.
        self._characters = 0

    # --- schemas ---------------------------------------------------------------------------------

    async def parsed(self, schema: Schema) -> ParsedSchema:
        """Raises RegistryError 42201."""
        imports = self._imports(schema.references)
        key = (schema, tuple(imports))
        known = self._parsed.get(key)
        if known is not None:
            self._parsed.move_to_end(key)
            return known
        try:
            found: ParsedSchema = await self._off_loop(lambda: parse(schema.type, schema.text, imports))
        except (InvalidSchema, ParserMissing) as error:
            raise errors.invalid_schema(str(error)) from None
        self._keep(key, found)
        return found

    def _keep(self, key: _Parsing, parsed: ParsedSchema) -> None:
        if key not in self._parsed:
            self._characters += _characters(key)
        self._parsed[key] = parsed
        while len(self._parsed) > _CACHE_SCHEMAS or self._characters > _CACHE_CHARACTERS:
            oldest, _ = self._parsed.popitem(last=False)
            self._characters -= _characters(oldest)

    async def canonical(self, schema: Schema) -> Schema:
        """The same schema with the canonical text. Raises RegistryError 42201."""
        parsed = await self.parsed(schema)
        made = Schema(schema.type, parsed.text, schema.references)
        self._keep((made, tuple(self._imports(made.references))), parsed)
        return made

    async def _alike(self, schema: Schema, *, normalize: bool) -> list[Schema]:
        """The texts that count as this schema, the one to register first. Raises RegistryError 42201."""
        canonical = await self.canonical(schema)
        if not normalize:
            return [canonical]
        parsed = await self.parsed(canonical)
        try:
            text = await self._off_loop(parsed.normalized)
        except (InvalidSchema, RecursionError, *STUMBLES) as error:
            raise errors.invalid_schema(f"it has no normal form: {error}") from None
        return [Schema(schema.type, text, schema.references), canonical]

    def _imports(self, references: Sequence[Reference]) -> list[Import]:
        """All schemas that the references lead to. Each comes after those that it refers to. Raises RegistryError 42201."""
        found: dict[tuple[str, int], Import] = {}
        open_: set[tuple[str, int]] = set()

        def visit(reference: Reference) -> None:
            key = (reference.subject, reference.version)
            if key in found or key in open_:
                return
            if len(open_) + len(found) >= MAX_REFERENCES:
                raise errors.invalid_schema(f"it refers to more than {MAX_REFERENCES} schemas")
            open_.add(key)
            try:
                schema = self.state.version(*key, with_deleted=True).schema
            except errors.RegistryError:
                raise errors.no_reference(*key) from None
            for each in schema.references:
                visit(each)
            open_.discard(key)
            found[key] = Import(reference.name, schema.text)

        for each in references:
            visit(each)
        return list(found.values())

    async def register(self, subject: str, wanted: Registration) -> Version:
        """The version that the schema has in the subject, made if it is new. Raises RegistryError."""
        imports = self._imports(wanted.schema.references)
        alike = await self._alike(wanted.schema, normalize=wanted.normalize)
        async with self._changing:
            if self._imports(wanted.schema.references) != imports:  # it refers to another schema by now
                alike = await self._alike(wanted.schema, normalize=wanted.normalize)
            known = self._registered(subject, alike)
            if known is not None and wanted.id in (-1, known.id):
                return known
            version = await self._new_version(subject, alike[0], wanted)
            await self._write([subjects.version_record(version)])
            return version

    def _registered(self, subject: str, alike: Sequence[Schema], *, with_deleted: bool = False) -> Version | None:
        found = (self.state.registered(subject, each, with_deleted=with_deleted) for each in alike)
        return next((each for each in found if each is not None), None)

    async def _new_version(self, subject: str, schema: Schema, wanted: Registration) -> Version:
        mode = self._check_writable(subject)
        number = self.state.next_version(subject)
        if mode == IMPORT:
            if wanted.id < 0:
                raise errors.not_permitted("in the mode IMPORT a schema is registered with its id")
            held = self.state.schemas.get(wanted.id)
            if not self.state.has_room(subject, schema):
                raise errors.no_room()
            if held is not None and held != schema:
                raise errors.not_permitted(f"Overwrite new schema with id {wanted.id} is not permitted.")
            return Version(subject, wanted.version if wanted.version > 0 else number, wanted.id, schema)
        if wanted.id >= 0:
            raise errors.not_permitted(f"Subject {subject} is not in import mode")
        if wanted.version not in (-1, number):
            raise errors.RegistryError(42202, f"the next version of {subject} is {number}, not {wanted.version}")
        if found := await self._differences(subject, schema, self.state.of(subject)):
            raise errors.incompatible(found)
        schema_id = self.state.ids.get(schema, self.state.last_id + 1)
        if not self.state.has_room(subject, schema):
            raise errors.no_room()
        if max(number, schema_id) > MAX_VERSION:
            raise errors.not_permitted(f"there is no number left: {MAX_VERSION} was imported as an id or a version")
        return Version(subject, number, schema_id, schema)

    async def _differences(self, subject: str, schema: Schema, versions: Sequence[Version]) -> list[str]:
        """Why a new schema does not fit to these versions, at the level of the subject."""
        level = self.state.level(subject, DEFAULT_LEVEL)
        if level == NONE or not versions:
            return []
        compared = versions[-_MAX_COMPARED:] if is_transitive(level) else versions[-1:]
        others = [each for each in compared if each.schema.type != schema.type]
        if others:
            return [f"version {others[-1].version} is of the type {others[-1].schema.type}, not {schema.type}"]
        new = await self.parsed(schema)
        earlier = [(each.version, await self.parsed(each.schema)) for each in compared]
        try:
            found: list[str] = []
            for each in earlier:  # a turn of the thread for each, so that others come between them
                found += await self._off_loop(partial(differences, level, new, [each]))
        except (InvalidSchema, RecursionError, *STUMBLES) as error:
            raise errors.invalid_schema(f"it cannot be compared: {error}") from None
        return found

    async def compatibility(self, subject: str, schema: Schema, number: int | None) -> list[str]:
        """Why the schema would not fit. `number`: one version (-1: the newest); None: those that the level asks for.

        To a subject that does not exist every schema fits, so that a check before the first registration passes.
        """
        schema = await self.canonical(schema)
        if number is None or (number == -1 and not self.state.of(subject)):
            return await self._differences(subject, schema, self.state.of(subject))
        return await self._differences(subject, schema, [self.state.version(subject, number)])

    async def lookup(self, subject: str, wanted: Registration, *, with_deleted: bool) -> Version:
        """The version that this schema has. Raises RegistryError 40401, 40403."""
        self.state.existing(subject, with_deleted=with_deleted)
        alike = await self._alike(wanted.schema, normalize=wanted.normalize)
        found = self._registered(subject, alike, with_deleted=with_deleted)
        if found is None:
            raise errors.schema_not_found()
        return found

    # --- deletion --------------------------------------------------------------------------------

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """The versions that were deleted. Raises RegistryError."""
        async with self._changing:
            self._check_writable(subject)
            everything = self.state.existing(subject, with_deleted=True)
            present = self.state.of(subject)
            for each in everything if permanent else present:
                self._check_unreferenced(each)
            if permanent:
                if present:
                    raise errors.subject_not_soft_deleted(subject)
                await self._write(subjects.removal_records(everything, self.state.last_id))
                return [each.version for each in everything]
            if not present:
                raise errors.subject_soft_deleted(subject)
            records = [subjects.delete_subject_record(subject, present[-1].version)]
            records += [subjects.level_record(subject, None)] if subject in self.state.levels else []
            records += [subjects.mode_record(subject, None)] if subject in self.state.modes else []
            await self._write(records)
            return [each.version for each in present]

    async def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Raises RegistryError."""
        async with self._changing:
            self._check_writable(subject)
            version = self.state.version(subject, number, with_deleted=permanent or number != -1)
            self._check_unreferenced(version)
            if permanent:
                if not version.is_deleted:
                    raise errors.version_not_soft_deleted(subject, version.version)
                await self._write(subjects.removal_records([version], self.state.last_id))
                return version.version
            if version.is_deleted:
                raise errors.version_soft_deleted(subject, version.version)
            gone = Version(subject, version.version, version.id, version.schema, is_deleted=True)
            await self._write([subjects.version_record(gone)])
            return version.version

    # --- settings --------------------------------------------------------------------------------

    def level(self, subject: str, *, default_to_global: bool) -> str:
        """Raises RegistryError 40408."""
        if not subject or default_to_global:
            return self.state.level(subject, DEFAULT_LEVEL)
        if subject not in self.state.levels:
            raise errors.no_compatibility(subject)
        return self.state.levels[subject]

    async def set_level(self, subject: str, level: str | None) -> str:
        """None: the subject's own level goes; the level that was there before. Raises RegistryError."""
        if level is not None and level not in LEVELS:
            raise errors.RegistryError(
                42203, f"Invalid compatibility level. Valid values are {', '.join(each.lower() for each in LEVELS)}"
            )
        async with self._changing:
            if level is None and subject and subject not in self.state.levels:
                raise errors.no_compatibility(subject)
            before = self.state.level(subject, DEFAULT_LEVEL)
            await self._write([subjects.level_record(subject, level)])
            return before

    def mode(self, subject: str, *, default_to_global: bool) -> str:
        """Raises RegistryError 40409."""
        if not subject or default_to_global:
            return self.state.mode(subject)
        if subject not in self.state.modes:
            raise errors.no_mode(subject)
        return self.state.modes[subject]

    async def set_mode(self, subject: str, mode: str | None, *, force: bool) -> str:
        """None: the subject's own mode goes; the mode that was there before. Raises RegistryError."""
        if mode is not None and mode not in MODES:
            raise errors.RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        async with self._changing:
            if mode is None and subject and subject not in self.state.modes:
                raise errors.no_mode(subject)
            taken = any(map(self.state.has, [subject] if subject else self.state.versions))
            if mode == IMPORT and taken and not force:
                raise errors.not_permitted("Cannot import since found existing subjects")
            before = self.state.mode(subject)
            await self._write([subjects.mode_record(subject, mode)])
            return before

    def _check_writable(self, subject: str) -> str:
        mode = self.state.mode(subject)
        if mode == READONLY:
            raise errors.not_permitted(f"Subject {subject} is in read-only mode")
        return mode

    def _check_unreferenced(self, version: Version) -> None:
        if self.state.is_referenced(version.subject, version.version):
            raise errors.is_referenced(version.subject, version.version)

    async def _write(self, records: Sequence[KeyValue]) -> None:
        await self._append(records)
        for key, value in records:
            self.state.replay(key, value)
