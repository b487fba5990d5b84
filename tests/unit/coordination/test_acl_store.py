"""ACLs in ZooKeeper: Kafka's layout and JSON, followed by every node; what cannot be read opens nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence

import pytest

from kafkalite.coordination import paths
from kafkalite.coordination.acl_store import AclStore
from kafkalite.coordination.acl_znodes import decode_acls, decode_change, encode_acls, encode_change, pattern_path
from kafkalite.coordination.coordinator import Coordinator, Create, SetData, Stat
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.security.acl import (
    OPERATIONS,
    AclEntry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from kafkalite.security.acl_rules import Entries
from kafkalite.security.authorizer import Authorizer
from kafkalite.security.principal import Principal
from kafkalite.testing.simulated.zookeeper import Fate
from kafkalite.testing.simulation.plants import PLANTS

from .conftest import World, in_world

TOPIC = Pattern(ResourceType.TOPIC, "t")
PREFIX = Pattern(ResourceType.TRANSACTIONAL_ID, "app-", PatternType.PREFIXED)
READ = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)
DENY = AclEntry("User:bob", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY)
ANN = Principal("User", "ann")


def add(*entries: AclEntry) -> Callable[[Entries], Iterable[AclEntry]]:
    def change(before: Entries) -> Iterable[AclEntry]:
        return before | set(entries)

    return change


async def following(world: World, host: str) -> tuple[AclStore, Authorizer, Coordinator]:
    session = await world.connect(host)
    authorizer = Authorizer()
    store = AclStore(authorizer, world.loop.time)
    await store.load(session)
    task = world.loop.create_task(store.follow(session))
    task.add_done_callback(lambda done: None if done.cancelled() else done.result())
    return store, authorizer, session


def may(authorizer: Authorizer) -> bool:
    return authorizer.authorize(ANN, "h", Operation.READ, ResourceType.TOPIC, "t")


# --- bytes -----------------------------------------------------------------------------------------


def test_the_layout_is_kafkas() -> None:
    """ZkAclStore and AclEntry of Kafka 3.9, by hand."""
    assert pattern_path(TOPIC) == "/kafka-acl/Topic/t"
    assert pattern_path(PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/app-"
    assert pattern_path(Pattern(ResourceType.CLUSTER, "kafka-cluster")) == "/kafka-acl/Cluster/kafka-cluster"
    assert json.loads(encode_acls({DENY})) == {
        "version": 1,
        "acls": [
            {"principal": "User:bob", "permissionType": "Deny", "operation": "DescribeConfigs", "host": "10.0.0.1"}
        ],
    }
    assert encode_change(TOPIC) == b"TOPIC:t"
    assert json.loads(encode_change(PREFIX)) == {
        "version": 1, "resourceType": "TRANSACTIONAL_ID", "name": "app-", "patternType": "PREFIXED"
    }  # fmt: skip


def test_what_is_written_is_read_back() -> None:
    for kind, operations in OPERATIONS.items():
        name = "kafka-cluster" if kind is ResourceType.CLUSTER else "x:y"
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            pattern = Pattern(kind, name, pattern_type)
            entries = frozenset(
                AclEntry("User:a", "*", operation, permission)
                for operation in (*operations, Operation.ALL)
                for permission in (Permission.ALLOW, Permission.DENY)
            )
            assert decode_acls(encode_acls(entries), pattern) == entries
            parent = paths.ACL_CHANGES if pattern_type is PatternType.LITERAL else paths.ACL_EXTENDED_CHANGES
            assert decode_change(encode_change(pattern), f"{parent}/acl_changes_1") == pattern
    assert decode_acls(b"", TOPIC) == frozenset()


_GOOD = {"principal": "User:a", "host": "*", "operation": "Read", "permissionType": "Allow"}
MALFORMED = [
    b"{", b"[]", b"\xff", b'{"version":2,"acls":[]}', b'{"version":true,"acls":[]}', b'{"version":1}',
    b'{"version":1,"acls":[1]}', b"[" * 100_000,
    *(json.dumps({"version": 1, "acls": [_GOOD, _GOOD | bad]}).encode() for bad in (
        {"operation": "Any"}, {"operation": "Fly"}, {"operation": 3}, {"permissionType": "Maybe"}, {"principal": "a"},
        {"principal": None}, {"host": ""}, {"principal": "User:\ud800"},
    )),
]  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_znode_is_refused(data: bytes) -> None:
    with pytest.raises(ZnodeError, match="/kafka-acl/Topic/t"):
        decode_acls(data, TOPIC)


#: Half a surrogate pair: no path, and no answer, can hold it.
NO_TEXT = json.dumps({"version": 1, "resourceType": "TOPIC", "name": "\ud800", "patternType": "LITERAL"}).encode()


@pytest.mark.parametrize("data", [b"", b"TOPIC", b"TOPIC:", b"SHOE:t", b"TOPIC:a/b", b"\xff", NO_TEXT])
def test_a_malformed_notification_is_refused(data: bytes) -> None:
    with pytest.raises(ZnodeError):
        decode_change(data, "/kafka-acl-changes/acl_changes_0000000001")
    with pytest.raises(ZnodeError):
        decode_change(data, "/kafka-acl-extended-changes/acl_changes_0000000001")


# --- the store -------------------------------------------------------------------------------------


@in_world
async def test_what_one_node_writes_every_node_learns(world: World) -> None:
    nodes = [await following(world, host) for host in "abc"]
    assert await nodes[0][0].update(nodes[0][2], TOPIC, add(READ)) == (frozenset(), frozenset({READ}))
    assert may(nodes[0][1])  # the writer at once
    await asyncio.gather(
        *(store.update(session, PREFIX, add(DENY)) for store, _, session in nodes),
        *(store.update(session, TOPIC, add(AclEntry(f"User:{i}", "*", Operation.ALL, Permission.ALLOW)))
          for i, (store, _, session) in enumerate(nodes)),
    )  # fmt: skip
    await asyncio.sleep(1)
    for _, authorizer, _ in nodes:
        assert may(authorizer)
        assert len(authorizer.bindings(Filter())) == 5  # nobody's write was lost
    await nodes[1][0].update(nodes[1][2], TOPIC, lambda before: ())
    await asyncio.sleep(1)
    assert [may(authorizer) for _, authorizer, _ in nodes] == [False] * 3
    assert await nodes[2][2].exists("/kafka-acl/Topic/t") is None  # Kafka leaves no empty znode either


@in_world
async def test_who_takes_a_right_away_knows_what_another_node_has_acknowledged(world: World) -> None:
    """One node created a right, and another one was asked to delete it: its answer was that there is none."""
    store, authorizer, session = await following(world, "a")
    other, _, theirs = await following(world, "b")
    await other.update(theirs, TOPIC, add(READ))
    await store.catch_up(session)  # nothing is waited for: the notification may not have come
    assert may(authorizer)
    await other.update(theirs, TOPIC, lambda before: ())
    await store.catch_up(session)
    assert not may(authorizer)


@in_world
async def test_what_was_there_before_is_loaded_and_what_went_meanwhile_goes(world: World) -> None:
    session = await world.connect("setup")
    await session.ensure_path("/kafka-acl/Topic")
    world.zk.poke(Create("/kafka-acl/Topic/t", encode_acls({READ})))
    store, authorizer, mine = await following(world, "a")
    assert may(authorizer)
    await session.delete("/kafka-acl/Topic/t")  # by hand, without a notification
    await store.load(mine)
    assert not may(authorizer)


@in_world
async def test_a_znode_that_cannot_be_read_denies_and_is_told_until_it_is_mended(world: World) -> None:
    store, authorizer, session = await following(world, "a")
    await store.update(session, TOPIC, add(READ))
    notify = Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)
    world.zk.poke(SetData("/kafka-acl/Topic/t", b"rubbish"), notify)
    await asyncio.sleep(1)
    assert not may(authorizer)
    assert list(store.malformed) == ["/kafka-acl/Topic/t"]
    assert store.malformed["/kafka-acl/Topic/t"].startswith("not JSON")
    with pytest.raises(ZnodeError):
        await store.update(session, TOPIC, add(DENY))
    world.zk.poke(SetData("/kafka-acl/Topic/t", encode_acls({READ})), notify)
    await asyncio.sleep(1)
    assert may(authorizer)
    assert store.malformed == {}


@pytest.mark.parametrize(
    ("change", "data"),
    [("/kafka-acl-changes/acl_changes_", b"?"), ("/kafka-acl-extended-changes/acl_changes_", NO_TEXT)],
)
@in_world
async def test_a_notification_that_means_nothing_has_everything_read_again(
    world: World, change: str, data: bytes
) -> None:
    store, authorizer, session = await following(world, "a")
    await session.ensure_path("/kafka-acl/Topic")
    await session.ensure_path("/kafka-acl/Shoe")
    world.zk.poke(
        Create("/kafka-acl/Topic/t", encode_acls({READ})),
        Create(change, data, sequential=True),
        Create("/kafka-acl-changes/stranger", b"?"),
    )
    await asyncio.sleep(1)
    assert may(authorizer)
    assert set(store.malformed) == {f"{change}0000000000", "/kafka-acl/Shoe"}


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
@in_world
async def test_a_write_whose_outcome_is_lost_is_made_once(world: World, fate: Fate) -> None:
    store, authorizer, session = await following(world, "a")
    await store.update(session, TOPIC, add(DENY))
    world.zk.lose_next("a", Fate.SERVE, 1)  # the read
    world.zk.lose_next("a", fate)  # the write
    await store.update(session, TOPIC, add(READ))
    assert may(authorizer)
    data, _ = await session.get("/kafka-acl/Topic/t")
    assert decode_acls(data, TOPIC) == {READ, DENY}


@in_world
async def test_old_notifications_are_removed(world: World) -> None:
    store, _, session = await following(world, "a")
    await store.update(session, TOPIC, add(READ))
    await asyncio.sleep(16 * 60)
    await store.update(session, TOPIC, add(DENY))
    await asyncio.sleep(1)
    names, _ = await session.children("/kafka-acl-changes")
    assert names == ["acl_changes_0000000001"]


# --- many of them ----------------------------------------------------------------------------------


class Counting(Authorizer):
    """Counts the patterns that are put in one turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.in_this_turn = self.worst = 0

    def put(self, pattern: Pattern, entries: Iterable[AclEntry] | None) -> bool:
        self.in_this_turn += 1
        self.worst = max(self.worst, self.in_this_turn)
        if self.in_this_turn == 1:
            asyncio.get_running_loop().call_soon(self._turned)
        return super().put(pattern, entries)

    def _turned(self) -> None:
        self.in_this_turn = 0


@in_world
async def test_thousands_of_patterns_are_read_over_many_turns_of_the_loop(world: World) -> None:
    """100,000 held the loop for two seconds, in every new session."""
    session = await world.connect("n1")
    await session.ensure_path("/kafka-acl/Topic")
    data = encode_acls({READ})
    for number in range(2_000):
        await session.create(f"/kafka-acl/Topic/t{number}", data)
    authorizer = Counting()
    store = AclStore(authorizer, world.loop.time)
    for _ in range(2):
        authorizer.worst = 0
        await store.load(session)
        assert len(authorizer.patterns()) == 2_000
        assert authorizer.worst <= 200


@in_world
async def test_what_a_node_writes_while_it_reads_all_is_in_force(world: World) -> None:
    """A long read must not put what it read before over what has been written and acknowledged since."""
    session = await world.connect("n1")
    await session.ensure_path("/kafka-acl/Topic")
    names = [f"t{number:04}" for number in range(450)]
    for name in names:
        await session.create(f"/kafka-acl/Topic/{name}", encode_acls({READ}))
    last = Pattern(ResourceType.TOPIC, names[-1])
    authorizer = Authorizer()
    store = AclStore(authorizer, world.loop.time)
    reading = world.loop.create_task(store.load(session))
    while len(authorizer.patterns()) < 150:  # it has read all of them, and put some
        await asyncio.sleep(0)
    assert last not in authorizer.patterns()
    store._put(last, frozenset({DENY}))  # as `update` does when ZooKeeper has it
    await reading
    assert len(authorizer.patterns()) == 450
    assert [each.entry for each in authorizer.bindings(Filter(name=last.name))] == [DENY]
    assert not store._overtaken


@pytest.mark.parametrize("is_planted", [False, True])
@in_world
async def test_a_long_read_does_not_bring_back_what_a_newer_one_has_taken_away(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    """A session's first read decodes for a while. Meanwhile a notification is followed: its read is newer.

    No seed of the simulation can find it: decoding takes none of its virtual time.
    """
    if is_planted:
        PLANTS["acl-read"](monkeypatch.setattr)

    ours, theirs = await world.connect("n1"), await world.connect("n2")
    writer = AclStore(Authorizer(), world.loop.time)
    await writer.load(theirs)
    patterns = [Pattern(ResourceType.TOPIC, f"t{number:03}") for number in range(400)]
    for pattern in patterns:
        await writer.update(theirs, pattern, lambda before: {READ})
    authorizer = Authorizer()
    reader = AclStore(authorizer, world.loop.time)
    get_many, is_held = ours.get_many, asyncio.Event()

    async def read(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found = await get_many(paths)
        if len(paths) > 300 and not is_held.is_set():
            is_held.set()
            await writer.update(theirs, patterns[-1], lambda before: ())
            await reader.catch_up(ours)
        return found

    ours.get_many = read  # type: ignore[method-assign]
    await reader.load(ours)
    assert patterns[0] in authorizer.patterns()
    assert (patterns[-1] in authorizer.patterns()) is is_planted


@in_world
async def test_a_read_that_finds_nothing_new_does_not_hide_what_is_written_during_another(world: World) -> None:
    """Of reads under way, each ends as itself: one was taken for another that had seen as much, and the node stopped."""
    ours, theirs = await world.connect("n1"), await world.connect("n2")
    writer = AclStore(Authorizer(), world.loop.time)
    await writer.load(theirs)
    authorizer = Authorizer()
    reader = AclStore(authorizer, world.loop.time)
    await reader.load(ours)
    get_many, is_held = ours.get_many, asyncio.Event()

    async def read(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        found = await get_many(paths)
        if paths == [pattern_path(PREFIX)] and not is_held.is_set():
            is_held.set()
            await reader.catch_up(ours)
            await reader.update(ours, PREFIX, lambda before: ())
        return found

    ours.get_many = read  # type: ignore[method-assign]
    await writer.update(theirs, PREFIX, lambda before: {READ})
    await reader.catch_up(ours)
    assert is_held.is_set() and not authorizer.patterns()
