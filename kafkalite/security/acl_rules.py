"""The rules of an authorizer, with an index for each question: the cost of an answer does not grow with the number of rules. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence

from kafkalite.security.acl import (
    EVERYBODY,
    OPERATIONS,
    WILDCARD,
    AclEntry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

Entries = frozenset[AclEntry]

#: A pattern with more entries has an index of its principals.
_MANY_ENTRIES = 16
_NO_ENTRIES: Entries = frozenset()
_PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)

#: Orders patterns as they compare; the pattern itself is never compared.
_Place = tuple[int, str, int, Pattern]
_Kind = tuple[ResourceType, str, Operation]


def _place(pattern: Pattern) -> _Place:
    return int(pattern.resource_type), pattern.name, int(pattern.pattern_type), pattern


def in_order(entries: Collection[AclEntry]) -> list[AclEntry]:
    """Sorted as entries compare, several times as fast."""
    return sorted(entries, key=lambda entry: (entry.principal, entry.host, entry.operation, entry.permission))


class AclRules:
    """Patterns, each with its entries (never empty)."""

    def __init__(self) -> None:
        self._entries: dict[Pattern, Entries] = {}
        self._ordered: list[_Place] = []
        #: Type -> length of a prefix -> how many have it: a question costs as many look-ups as there are lengths.
        self._lengths: dict[ResourceType, dict[int, int]] = {}
        #: Of patterns with many entries: principal -> its entries.
        self._by_principal: dict[Pattern, dict[str, list[AclEntry]]] = {}
        #: (Type, principal, operation) -> patterns that have an ALLOW entry for it -> from how many hosts.
        self._allowing: dict[_Kind, dict[Pattern, int]] = {}

    def __contains__(self, pattern: Pattern) -> bool:
        return pattern in self._entries

    def entries(self, pattern: Pattern) -> Entries:
        """Its entries, which may be none."""
        return self._entries.get(pattern, _NO_ENTRIES)

    def put(self, pattern: Pattern, entries: Entries) -> None:
        """Replace a pattern's entries; none: the pattern goes."""
        before = self.entries(pattern)
        if bool(entries) != bool(before):
            self._add_or_remove(pattern, is_there=bool(entries))
        if entries:
            self._entries[pattern] = entries
        else:
            self._entries.pop(pattern, None)
        self._by_principal.pop(pattern, None)
        if len(entries) > _MANY_ENTRIES:
            by_principal: dict[str, list[AclEntry]] = {}
            for entry in entries:
                by_principal.setdefault(entry.principal, []).append(entry)
            self._by_principal[pattern] = by_principal
        for entry in before - entries:
            self._count_allowing(pattern, entry, -1)
        for entry in entries - before:
            self._count_allowing(pattern, entry, 1)

    def _add_or_remove(self, pattern: Pattern, *, is_there: bool) -> None:
        place = _place(pattern)
        if is_there:
            insort(self._ordered, place)
        else:
            del self._ordered[bisect_left(self._ordered, place)]
        if pattern.pattern_type is PatternType.PREFIXED:
            by_length = self._lengths.setdefault(pattern.resource_type, {})
            length = len(pattern.name)
            by_length[length] = by_length.get(length, 0) + (1 if is_there else -1)
            if not by_length[length]:
                del by_length[length]

    def _count_allowing(self, pattern: Pattern, entry: AclEntry, change: int) -> None:
        if entry.permission is not Permission.ALLOW:
            return
        kind = (pattern.resource_type, entry.principal, entry.operation)
        patterns = self._allowing.setdefault(kind, {})
        patterns[pattern] = patterns.get(pattern, 0) + change
        if not patterns[pattern]:
            del patterns[pattern]
            if not patterns:
                del self._allowing[kind]

    # --- questions ---

    def about(self, pattern: Pattern, who: str) -> Sequence[AclEntry]:
        """The pattern's entries for a principal, and those for everybody."""
        by_principal = self._by_principal.get(pattern)
        if by_principal is None:
            return [entry for entry in self.entries(pattern) if entry.principal in (who, EVERYBODY)]
        return [*by_principal.get(who, ()), *by_principal.get(EVERYBODY, ())]

    def covering(self, resource_type: ResourceType, name: str) -> Iterator[Pattern]:
        """The patterns that a resource of that name falls under."""
        for literal in (name,) if name == WILDCARD else (name, WILDCARD):
            if (pattern := Pattern(resource_type, literal)) in self._entries:
                yield pattern
        yield from self.prefixes(resource_type, name)

    def prefixes(self, resource_type: ResourceType, name: str) -> Iterator[Pattern]:
        """The prefixed ones among them."""
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                pattern = Pattern(resource_type, name[:length], PatternType.PREFIXED)
                if pattern in self._entries:
                    yield pattern

    def allowing(self, resource_type: ResourceType, who: str, operation: Operation) -> Iterator[Pattern]:
        """Patterns of the type with an entry that allows the operation, or all, to a principal or everybody, from some host."""
        for each in (operation, Operation.ALL):
            for principal in (who, EVERYBODY):
                yield from self._allowing.get((resource_type, principal, each), ())

    def candidates(self, wanted: Filter) -> list[Pattern]:
        """The patterns that a filter means, in order."""
        if wanted.name is None:
            return [place[-1] for place in self._ordered if wanted.matches_pattern(place[-1])]
        types = OPERATIONS if wanted.resource_type is ResourceType.ANY else (wanted.resource_type,)
        found: list[Pattern] = []
        for kind in types:
            if wanted.pattern_type is PatternType.MATCH:
                found += self.covering(kind, wanted.name)
            else:
                found += [each for each in (Pattern(kind, wanted.name, how) for how in _PATTERN_TYPES) if each in self]
        return sorted((pattern for pattern in found if wanted.matches_pattern(pattern)), key=_place)
