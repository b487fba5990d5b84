"""Access control lists as Kafka has them: resources, patterns, operations, entries, filters. Pure.

Numbers are the wire's. Sources: Kafka 4.4's AclOperation, ResourceType, PatternType, AclEntry, ResourcePatternFilter.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import TypeVar

from kafkalite.lazy_dataclass import dataclass
from kafkalite.security.addresses import address_range


class ResourceType(IntEnum):
    """What an ACL is about. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def title(self) -> str:
        """As ZooKeeper's paths write it: TransactionalId."""
        return _title(self.name)


class PatternType(IntEnum):
    """How a pattern's name is meant. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What somebody wants to do. ANY is for filters, ALL for entries."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @property
    def title(self) -> str:
        """As the JSON in ZooKeeper writes it: DescribeConfigs."""
        return _title(self.name)


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @property
    def title(self) -> str:
        return _title(self.name)


@cache
def _title(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


#: Literal name that means every resource of its type, and host that means every host.
WILDCARD = "*"
EVERYBODY = "User:*"
#: The one resource of type CLUSTER.
CLUSTER_NAME = "kafka-cluster"

#: What can be asked of a resource of each type. Entries may say something else, as with Kafka: it allows nothing.
OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip

#: Operation -> those whose permission gives it too. Only permission: a denied READ denies no DESCRIBE.
IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """Which resources: one by name, all (`*`), or those whose names begin so."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether a resource of this type and that name is meant."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (WILDCARD, name)

    def problem(self) -> str | None:
        """Why no entries can be written for it; None if they can."""
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            return "an ACL's pattern must be literal or prefixed"
        if self.resource_type not in OPERATIONS:
            return "an ACL is about one type of resource"
        if not self.name:
            return "Invalid empty resource name"
        if "/" in self.name or self.name in (".", ".."):
            return "a resource's name has no '/' and is neither '.' nor '..'"
        if not (self.name.isascii() and self.name.isprintable()) and any(map(_is_unfit, self.name)):
            return "a resource's name has characters that no znode's may have"
        if self.resource_type is ResourceType.CLUSTER and self.name != CLUSTER_NAME:
            return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        return None


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """A permission, or its refusal: a principal, an operation, and from where. `principal` is KIND:NAME or `User:*`, `host` an address, a range (10.0.0.0/8), or `*`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def problem(self) -> str | None:
        """Why this cannot be written; None if it can."""
        if self.permission not in (Permission.ALLOW, Permission.DENY):
            return "an ACL allows or denies"
        if self.operation in (Operation.UNKNOWN, Operation.ANY):
            return "an ACL is about one operation, or all of them"
        kind, colon, name = self.principal.partition(":")
        if not (kind and colon and name):
            return f"{self.principal!r} is no principal: KIND:NAME"
        if "/" in self.host and address_range(self.host) is None:
            return f"{self.host!r} is no range of addresses, such as 10.0.0.0/8"
        return None if self.host else "an ACL needs a host, or *"


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """One entry of one pattern."""

    pattern: Pattern
    entry: AclEntry

    def problem(self) -> str | None:
        """Why this cannot be written; None if it can."""
        return self.pattern.problem() or self.entry.problem()

    def exactly(self) -> Filter:
        """The filter that matches this one only."""
        pattern, entry = self.pattern, self.entry
        return Filter(
            pattern.resource_type,
            pattern.name,
            pattern.pattern_type,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission,
        )


def _is_unfit(letter: str) -> bool:
    code = ord(letter)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xF900 or code >= 0xFFF0


@dataclass(frozen=True, slots=True)
class Filter:
    """Which bindings: None, ANY (and for names MATCH) mean whatever.

    `pattern_type` ANY takes `name` as written in a pattern of either type; MATCH asks for the patterns that cover a
    resource of that name.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def is_unknown(self) -> bool:
        """Whether a part is of a kind that this software does not know: such a filter is refused."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches_pattern(self, pattern: Pattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return pattern.covers(self.name) if self.pattern_type is PatternType.MATCH else pattern.name == self.name

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, binding: Binding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)


def operation_bits(operations: tuple[Operation, ...]) -> int:
    """Operations as the bit field of the wire's `authorized_operations`."""
    return sum(1 << operation for operation in operations)


E = TypeVar("E", bound=IntEnum)


def known_or_unknown(kind: type[E], value: int) -> E:
    """What came over a wire; what is not known here is UNKNOWN (0)."""
    try:
        return kind(value)
    except ValueError:
        return kind(0)
