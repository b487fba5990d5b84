"""Closing the tree while an attacker and a node change it; znodes that belong to somebody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.coordinator import AuthFailedError, CoordinatorError, NoNodeError
from kafkalite.coordination.zk_acl_codec import ZnodeAclEntry, digest_identities, exposure, is_private
from kafkalite.coordination.znode_acls import ROOTS, AclReport, change, examine, open_now

_OPEN = (ZnodeAclEntry(31, "world", "anyone"),)
_OURS = digest_identities(b"nodes:hush")
_OWN = ZnodeAclEntry(31, *sorted(_OURS)[0])
_READ = ZnodeAclEntry(1, "world", "anyone")
_THEIRS = ZnodeAclEntry(31, "digest", "attacker:abc")

Acl = tuple[ZnodeAclEntry, ...]


class Tree:
    """ZooKeeper as `ZnodeAcls` shows it. `between`: called after each request, as the other clients' turn."""

    identities = _OURS

    def __init__(self, *found: str) -> None:
        self.acl: dict[str, Acl] = {"/": _OPEN, **dict.fromkeys(found, _OPEN)}
        self.between: Callable[[], None] = lambda: None

    def may(self, path: str, permission: int, identity: ZnodeAclEntry | None = None) -> bool:
        return any(
            entry.permissions & permission
            and (entry.scheme == "world" or (identity is not None and entry.identity == identity.identity))
            for entry in self.acl[path]
        )

    def make(self, path: str, acl: Acl, identity: ZnodeAclEntry | None = None) -> bool:
        """As somebody else."""
        parent = path.rpartition("/")[0] or "/"
        if path in self.acl or parent not in self.acl or not self.may(parent, 4, identity):
            return False
        self.acl[path] = acl
        return True

    async def acls(self, paths: Sequence[str]) -> list[Acl | CoordinatorError]:
        found: list[Acl | CoordinatorError] = []
        for path in paths:
            if path not in self.acl:
                found.append(NoNodeError(path))
            elif not self.may(path, 1 | 16, _OWN):
                found.append(AuthFailedError(path))
            else:
                found.append(self.acl[path])
        self.between()
        return found

    async def set_acls(self, paths: Sequence[str], *, is_open: bool) -> list[CoordinatorError | None]:
        results: list[CoordinatorError | None] = []
        for path in paths:
            if path not in self.acl:
                results.append(NoNodeError(path))
            elif not self.may(path, 16, _OWN):
                results.append(AuthFailedError(path))
            else:
                self.acl[path] = _OPEN if is_open else (_OWN,) if is_private(path) else (_OWN, _READ)
                results.append(None)
        self.between()
        return results

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | CoordinatorError]:
        found: list[list[str] | CoordinatorError] = []
        for path in paths:
            below = f"{path.rstrip('/')}/"
            if path not in self.acl:
                found.append(NoNodeError(path))
            elif not self.may(path, 1, _OWN):
                found.append(AuthFailedError(path))
            else:
                found.append(
                    [each[len(below) :] for each in self.acl if each.rpartition("/")[0] == path and each != "/"]
                )
        self.between()
        return found


def _tree() -> Tree:
    return Tree(
        "/config", "/config/users", "/config/users/alice", "/config/changes", "/brokers", "/brokers/ids", "/brokers/ids/1",
        "/brokers/topics", "/cluster", "/cluster/decoy_key", "/admin",
    )  # fmt: skip


async def _left(tree: Tree) -> AclReport:
    tree.between = lambda: None
    return await examine(tree, 1000)


@pytest.mark.parametrize("acl", [_OPEN, (_THEIRS, _READ)], ids=["open", "the attacker's"])
async def test_an_attacker_who_makes_znodes_meanwhile(acl: Acl) -> None:
    """In every moment whatever can be made is made: what is open to the world is closed, and what is the attacker's is reported."""
    tree = _tree()
    made: list[str] = []

    def attack() -> None:
        for path in [*ROOTS, *(f"{path}/x" for path in list(tree.acl) if path != "/")]:
            if len(made) < 500 and tree.make(path, acl):
                made.append(path)

    tree.between = attack
    report = await change(tree, is_open=False)
    assert paths.ACL in made and "/config/users/x" in made
    left = await _left(tree)
    assert left.changeable == ()
    if acl == _OPEN:
        assert left.open == 0 and not report.refused
    else:
        assert left.others and {*left.others, *left.readable} <= set(made), "reported, and not taken for closed"
        assert report.refused


async def test_a_root_that_is_made_between_two_requests() -> None:
    """/kafka-acl is not there before a node has an authorizer: who makes it owns all ACLs."""
    tree = _tree()
    seen = 0

    def attack() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            assert tree.make(paths.ACL, _OPEN)

    tree.between = attack
    await change(tree, is_open=False)
    assert (await _left(tree)).open == 0


async def test_a_node_without_set_acl_is_found() -> None:
    """It has the identity, and makes znodes that are open."""
    tree = _tree()
    await change(tree, is_open=False)
    assert await open_now(tree) == []
    assert not tree.make("/brokers/ids/2", _OPEN), "without the identity it cannot"
    assert tree.make("/brokers/ids/2", _OPEN, _OWN)
    assert await open_now(tree) == ["/brokers/ids/2"]
    assert (await _left(tree)).changeable == ("/brokers/ids/2",)


async def test_a_znode_that_another_identity_may_change_or_read() -> None:
    tree = _tree()
    await change(tree, is_open=False)
    for path, acl in (
        ("/config/users/alice", (_OWN, ZnodeAclEntry(1, "digest", "attacker:abc"))),
        ("/config/users/mallory", (_THEIRS, _READ)),
        ("/brokers/topics/t", (_OWN, ZnodeAclEntry(1, "digest", "reader:abc"))),
        ("/brokers/topics/u", (_OWN, ZnodeAclEntry(31, "x509", "CN=node1"), _READ)),
        ("/admin/x", (_THEIRS,)),
    ):
        tree.acl[path] = acl
    report = await _left(tree)
    assert (report.changeable, report.readable) == ((), ("/config/users/mallory",))
    assert sorted(report.others) == ["/admin/x", "/config/users/alice"]
    assert report.open == 3
    assert report.users == ("alice", "mallory")


@pytest.mark.parametrize(
    ("path", "acl", "found"),
    [
        ("/", (_OWN, ZnodeAclEntry(31, "digest", "operator:abc"), _READ), ""),
        ("/", (_THEIRS, _READ), "other"),
        ("/config", (ZnodeAclEntry(31, "digest", "nodes:x"), _READ), "other"),
        ("/config", (ZnodeAclEntry(31, "ip", "10.0.0.1"), _OWN, _READ), "other"),
        ("/config", (_OWN, _READ), ""),
        ("/config/users", (_OWN, _READ), "read"),
    ],
)
def test_who_is_exposed(path: str, acl: Acl, found: str) -> None:
    assert exposure(path, acl, _OURS) == found
    assert exposure(path, acl) in (found, ""), "without an identity nobody is known to be somebody else"


def test_identities() -> None:
    """As ZooKeeper's DigestAuthenticationProvider writes `super:test`."""
    assert ("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=") in digest_identities(b"super:test")


@pytest.mark.parametrize("acl", [_OPEN, (_THEIRS, _READ)], ids=["open", "the attacker's"])
async def test_a_walk_ends_although_somebody_goes_on_adding(acl: Acl) -> None:
    """Below a znode of its own, or one level deeper whenever the walk has come to the last one."""
    tree = _tree()
    deepest = "/admin"
    count = 0

    def attack() -> None:
        nonlocal deepest, count
        count += 1
        assert count < 500, "the walk does not end"
        path = f"{deepest}/x"
        if tree.make(path, acl, _THEIRS):
            deepest = path

    tree.between = attack
    await examine(tree, 2**31)
    await change(tree, is_open=False)
    assert (await _left(tree)).changeable == ()
