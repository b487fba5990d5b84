"""Which znodes of ours anybody may change, and closing or opening all of them (Kafka: zookeeper-security-migration).

A znode keeps the ACL that it was made with. So a cluster that was begun in plain text, or a tool that did not know the
cluster's setting, leaves znodes open; a client that reaches ZooKeeper can then become super user.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import AuthFailedError, Coordinator, CoordinatorError, NoNodeError
from kafkalite.coordination.zk_acl_codec import ZnodeAclEntry, exposure
from kafkalite.lazy_dataclass import dataclass

#: Znodes in one step: a controller's own requests must not wait behind a walk of the whole tree.
_BATCH = 128
#: Levels below a root that are walked. Ours have six (a partition's state); somebody who may add one could add any number.
_LEVELS = 8
#: Names that a report has; the others are counted.
MAX_NAMED = 20
#: Everything of a cluster is below these, besides the chroot itself.
ROOTS = (
    paths.CONTROLLER,
    paths.CONTROLLER_EPOCH,
    paths.ACL,
    paths.ACL_CHANGES,
    paths.ACL_EXTENDED_CHANGES,
    paths.LATEST_PRODUCER_ID_BLOCK,
    paths.DELEGATION_TOKENS,
    "/kafka-acl-extended",
    "/config",
    "/cluster",
    "/admin",
    paths.RESTART_PARTITIONS,
    "/brokers",
)
#: Znodes that are created again and again are below these.
_OFTEN_MADE = (
    paths.BROKER_IDS,
    paths.CONFIG_CHANGES,
    paths.ACL_CHANGES,
    paths.ACL_EXTENDED_CHANGES,
    paths.TOKEN_CHANGES,
)


@runtime_checkable
class ZnodeAcls(Protocol):
    """What a session on a real server can do besides the Coordinator's verbs: pipelined, errors as values."""

    @property
    def identities(self) -> frozenset[tuple[str, str]]:
        """How ACLs may name this session: (scheme, identity). None: it has not said who it is."""
        ...

    async def acls(self, paths: Sequence[str]) -> list[tuple[ZnodeAclEntry, ...] | CoordinatorError]:
        """The ACL of each znode."""
        ...

    async def set_acls(self, paths: Sequence[str], *, is_open: bool) -> list[CoordinatorError | None]:
        """Only this session's identity may change these znodes, or (`is_open`) anybody."""
        ...

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | CoordinatorError]:
        """The names below each znode."""
        ...


@dataclass(frozen=True, slots=True)
class AclReport:
    """What a walk over the tree has found.

    Attributes:
        seen: znodes that were examined or changed.
        is_complete: False if there are more than the walk was allowed to visit.
        changeable, readable: of those that anybody may change, or read though they are private: the first ones, by name.
        others: likewise of those that somebody else's identity may change or read; only for a session that has an identity.
        open: how many there are of all these together.
        users: whose credentials anybody could read or replace.
        refused: the first ones that this session may not examine or change.
    """

    seen: int
    is_complete: bool
    changeable: tuple[str, ...]
    readable: tuple[str, ...]
    others: tuple[str, ...]
    open: int
    users: tuple[str, ...]
    refused: tuple[str, ...]


class _Findings:
    def __init__(self, own: frozenset[tuple[str, str]]) -> None:
        self._own = own
        self.seen = 0
        self.open = 0
        self.changeable: list[str] = []
        self.readable: list[str] = []
        self.others: list[str] = []
        self.users: list[str] = []
        self.refused: list[str] = []
        #: What this session may not change, as far as it is known.
        self.foreign: set[str] = set()

    def add(self, path: str, entries: Sequence[ZnodeAclEntry]) -> None:
        self.seen += 1
        what = exposure(path, entries, self._own)
        if not what:
            return
        if what == "other":
            self.foreign.add(path)
        self._add_open(path, {"change": self.changeable, "read": self.readable, "other": self.others}[what])
        parent, _, name = path.rpartition("/")
        if parent == paths.CONFIG_USERS and len(self.users) < MAX_NAMED:
            self.users.append(name)

    def _add_open(self, path: str, named: list[str]) -> None:
        self.open += 1
        if len(named) < MAX_NAMED:
            named.append(path)

    def belongs_to_others(self, path: str) -> None:
        """This session may not even know who may change it."""
        if self._own:
            self._add_open(path, self.others)

    def refuse(self, path: str, error: CoordinatorError) -> None:
        """Raises the error if it is not about this znode."""
        if not isinstance(error, AuthFailedError):
            raise error
        self.foreign.add(path)
        if len(self.refused) < MAX_NAMED and path not in self.refused:
            self.refused.append(path)

    def report(self, *, is_complete: bool) -> AclReport:
        return AclReport(
            self.seen,
            is_complete,
            tuple(self.changeable),
            tuple(self.readable),
            tuple(self.others),
            self.open,
            tuple(self.users),
            tuple(self.refused),
        )


async def examine(zookeeper: ZnodeAcls, limit: int) -> AclReport:
    """The open znodes among at most `limit`; credentials and rules come first. Raises CoordinatorError."""
    findings = _Findings(zookeeper.identities)
    async for batch in _batches(zookeeper, findings):
        allowed = batch[: limit - findings.seen]
        _add_all(findings, allowed, await zookeeper.acls(allowed))
        if len(allowed) < len(batch):
            return findings.report(is_complete=False)
    return findings.report(is_complete=True)


async def open_now(zookeeper: ZnodeAcls) -> list[str]:
    """Open ones among the few znodes that every node makes when it starts or changes something: another node may lack zookeeper.set.acl.

    Cheap, for a frequent look. Raises CoordinatorError.
    """
    below = await zookeeper.children_many(_OFTEN_MADE)
    names = [
        f"{parent}/{name}"
        for parent, found in zip(_OFTEN_MADE, below, strict=True)
        if not isinstance(found, CoordinatorError)
        for name in found[:_BATCH]
    ]
    watched = [paths.CONTROLLER, *names]
    acls = await zookeeper.acls(watched)
    return [
        path
        for path, found in zip(watched, acls, strict=True)
        if not isinstance(found, CoordinatorError) and exposure(path, found, zookeeper.identities)
    ]


async def change(zookeeper: ZnodeAcls, *, is_open: bool) -> AclReport:
    """Give every znode of ours the ACL that it would be made with now. Safe to repeat; the report is on the state before.

    A parent comes before its children: what somebody adds meanwhile is found, and afterwards nobody can add anything.
    Raises CoordinatorError.
    """
    findings = _Findings(zookeeper.identities)
    async for batch in _batches(zookeeper, findings):
        before = await zookeeper.acls(batch)
        # Also of those that were not there: somebody may have made one since, as long as its parent was open.
        results = await zookeeper.set_acls(batch, is_open=is_open)
        _add_all(findings, batch, before)
        for path, error in zip(batch, results, strict=True):
            if error is None:
                findings.foreign.discard(path)
            elif not isinstance(error, NoNodeError):
                findings.refuse(path, error)
    return findings.report(is_complete=True)


def _add_all(
    findings: _Findings, batch: Sequence[str], found: Sequence[tuple[ZnodeAclEntry, ...] | CoordinatorError]
) -> None:
    for path, entries in zip(batch, found, strict=True):
        if not isinstance(entries, CoordinatorError):
            findings.add(path, entries)
        elif not isinstance(entries, NoNodeError):
            findings.refuse(path, entries)
            findings.belongs_to_others(path)


async def _batches(zookeeper: ZnodeAcls, findings: _Findings) -> AsyncIterator[list[str]]:
    """The chroot and the roots, then what is below each, level by level. Raises CoordinatorError.

    Children are listed after the caller is done with their parents. What belongs to somebody else is not walked: that one could add to
    it for ever.
    """
    yield ["/", *ROOTS]
    for root in ROOTS:
        level = [root]
        for _ in range(_LEVELS):
            level = [path for path in level if path not in findings.foreign]
            below: list[str] = []
            for start in range(0, len(level), _BATCH):
                parents = level[start : start + _BATCH]
                for parent, names in zip(parents, await zookeeper.children_many(parents), strict=True):
                    if isinstance(names, AuthFailedError):
                        findings.refuse(parent, names)
                    elif not isinstance(names, CoordinatorError):
                        below += [f"{parent}/{name}" for name in names]
                    elif not isinstance(names, NoNodeError):
                        raise names
            for start in range(0, len(below), _BATCH):
                yield below[start : start + _BATCH]
            level = below


def as_acls(coordinator: Coordinator) -> ZnodeAcls | None:
    """The session's other half; None for one that has no ACLs (the simulation's)."""
    return coordinator if isinstance(coordinator, ZnodeAcls) else None
