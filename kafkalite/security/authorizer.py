"""The decision: may this principal, from this host, do this to that? Pure, and kept for those who ask again.

Deny wins; what is not allowed is denied. Source: Kafka 3.9's AclAuthorizer (and StandardAuthorizer, which decides the
same), KIP-679 for `authorize_any`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from kafkalite.security.acl import (
    EVERYBODY,
    IMPLIED_BY,
    WILDCARD,
    AclEntry,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from kafkalite.security.acl_rules import AclRules, Entries, in_order
from kafkalite.security.addresses import canonical, is_within
from kafkalite.security.principal import Principal

#: Decisions kept, and bytes of their names with what each costs beside; with more, all are forgotten.
MAX_DECISIONS = 20_000
MAX_DECISION_BYTES = 8 * 2**20
#: A decision about a name that takes more memory than this (bytes) is not kept: names are the client's choice.
_LONG_NAME_BYTES = 1024
#: Estimated cost of one decision beside its name: the question, and its place in the table.
_DECISION_OVERHEAD_BYTES = 200

#: What nodes need of each other: to act as nodes, and to look, for pages that show the whole cluster.
NODES_MAY = frozenset({Operation.CLUSTER_ACTION, Operation.DESCRIBE})

#: The filter that means all.
EVERYTHING = Filter()
#: What a pattern whose entries cannot be read means: nothing is opened by mistake.
DENY_ALL: Entries = frozenset({AclEntry(EVERYBODY, WILDCARD, Operation.ALL, Permission.DENY)})

_Question = tuple[Principal, str, Operation, ResourceType, str]


def parse_super_users(text: str) -> frozenset[str]:
    """`User:a;User:CN=b,O=c` (Kafka's notation: names may hold commas). Raises ValueError."""
    return frozenset(str(Principal.parse(part.strip())) for part in text.split(";") if part.strip())


def _is_from(entry: AclEntry, host: str) -> bool:
    """Whether the entry is about this address, in whatever spelling, or about a range with it. `host`: canonical."""
    return entry.host == WILDCARD or canonical(entry.host) == host or is_within(host, entry.host)


class Authorizer:
    """The rules in force.

    Args:
        allow_if_none: a resource that no ACL is about is open (allow.everyone.if.no.acl.found).
        nodes: who the nodes are: they may do what NODES_MAY says to anything, whatever the ACLs say.
    """

    def __init__(
        self,
        super_users: frozenset[str] = frozenset(),
        *,
        allow_if_none: bool = False,
        nodes: frozenset[str] = frozenset(),
    ) -> None:
        self.super_users = super_users
        self._nodes = nodes
        self._allow_if_none = allow_if_none
        #: How often the rules have changed: a caller that keeps a decision keeps this number with it.
        self.changes = 0
        self._rules = AclRules()
        self._unreadable: dict[Pattern, None] = {}
        self._decisions: dict[_Question, bool] = {}
        self._decision_bytes = 0
        self._any_decisions: dict[tuple[Principal, str, Operation, ResourceType], bool] = {}

    # --- rules ---

    def put(self, pattern: Pattern, entries: Iterable[AclEntry] | None) -> bool:
        """Replace a pattern's entries (none: the pattern goes; None: they cannot be read). Returns whether that changes anything."""
        is_readable = entries is not None
        found = frozenset(entries) if entries is not None else DENY_ALL
        if self._rules.entries(pattern) == found and is_readable == (pattern not in self._unreadable):
            return False
        self._rules.put(pattern, found)
        if is_readable:
            self._unreadable.pop(pattern, None)
        else:
            self._unreadable[pattern] = None
        self._forget_decisions()
        self._any_decisions.clear()
        self.changes += 1
        return True

    def patterns(self, wanted: Filter = EVERYTHING) -> list[Pattern]:
        """Those that a filter means, in order."""
        return self._rules.candidates(wanted)

    def is_readable(self, pattern: Pattern) -> bool:
        """Whether its entries could be read."""
        return pattern not in self._unreadable

    def matching(self, wanted: Filter) -> Iterator[tuple[Pattern, list[AclEntry]]]:
        """Each pattern that the filter means, in order, with those of its entries that are in force and match, which may be none.

        The rules may change between two of them: each is as it is when its turn has come.
        """
        for pattern in self.patterns(wanted):
            if pattern not in self._unreadable:
                yield pattern, in_order([each for each in self._rules.entries(pattern) if wanted.matches_entry(each)])

    def bindings(self, wanted: Filter) -> list[Binding]:
        """What has been written and is in force, in order."""
        return [Binding(pattern, entry) for pattern, entries in self.matching(wanted) for entry in entries]

    # --- decisions ---

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether it is allowed."""
        question = (principal, host, operation, resource_type, name)
        known = self._decisions.get(question)
        if known is None:
            known = self._decide(*question)
            self._keep(question, known)
        return known

    def _keep(self, question: _Question, decision: bool) -> None:  # noqa: FBT001 - it is the value
        size = sys.getsizeof(question[-1])
        if size > _LONG_NAME_BYTES:
            return
        size += _DECISION_OVERHEAD_BYTES
        if len(self._decisions) >= MAX_DECISIONS or self._decision_bytes + size > MAX_DECISION_BYTES:
            self._forget_decisions()
        self._decisions[question] = decision
        self._decision_bytes += size

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self._decision_bytes = 0

    def _decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        who = str(principal)
        if who in self.super_users or (operation in NODES_MAY and who in self._nodes):
            return True
        allowing = IMPLIED_BY.get(operation, frozenset({operation}))
        is_allowed = is_found = False
        host = canonical(host)
        for pattern in self._rules.covering(resource_type, name):
            is_found = True
            for entry in self._rules.about(pattern, who):
                if not _is_from(entry, host):
                    continue
                if entry.permission is Permission.DENY:
                    if entry.operation in (operation, Operation.ALL):
                        return False
                elif entry.operation is Operation.ALL or entry.operation in allowing:
                    is_allowed = True
        return is_allowed if is_found else self._allow_if_none

    def authorize_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether it is allowed for any one resource of the type that could exist (KIP-679)."""
        question = (principal, host, operation, resource_type)
        known = self._any_decisions.get(question)
        if known is None:
            if len(self._any_decisions) >= MAX_DECISIONS:
                self._any_decisions.clear()
            known = self._any_decisions[question] = self._decide_any(*question)
        return known

    def _decide_any(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        who = str(principal)
        if who in self.super_users:
            return True
        host = canonical(host)

        def has(pattern: Pattern, permission: Permission) -> bool:
            return any(
                entry.permission is permission
                and entry.operation in (operation, Operation.ALL)
                and _is_from(entry, host)
                for entry in self._rules.about(pattern, who)
            )

        def is_dominated(pattern: Pattern) -> bool:
            """Whether everything that the pattern covers is denied."""
            if has(pattern, Permission.DENY):
                return True
            if pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD:
                return False
            return any(has(each, Permission.DENY) for each in self._rules.prefixes(resource_type, pattern.name))

        if has(Pattern(resource_type, WILDCARD), Permission.DENY):
            return False
        if self._allow_if_none:
            return True
        return any(
            has(pattern, Permission.ALLOW) and not is_dominated(pattern)
            for pattern in self._rules.allowing(resource_type, who, operation)
        )
