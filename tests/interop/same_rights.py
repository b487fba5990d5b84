"""Users with a few rights: which are drawn for a case, and how they are given and taken away.

A case of rights is that of an API (`same_requests_all`): a super user makes what the request is about, and asks afterwards
what has become of it; the request itself comes from a user who may do something, everything or nothing.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Any

from kafkalite.protocol import wire
from kafkalite.protocol.schema import Struct, schemas
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.security.acl import CLUSTER_NAME, OPERATIONS, Operation, PatternType, Permission, ResourceType

from .same_answers import Case, Mutation, Side, mutations
from .same_requests import committed, create_topic, producer
from .same_requests_all import BASES

#: The connection of a case that belongs to its user; all others are the super user's.
USER = "user"
#: The test's own address, all, and one that nobody has.
_HOSTS = ("*", "*", "*", "*", "*", "*", "127.0.0.1", "10.9.9.9")
#: Fields of a struct that say which topic, group or transactional id it is about.
_NAMES = frozenset({"name", "topic", "topic_name", "topic_id", "group_id", "transactional_id", "resource_name"})
_LISTS_OF_NAMES = frozenset({
    "topic_names", "groups", "groups_names", "group_ids", "coordinator_keys", "transactional_ids", "subscribed_topic_names",
    "source_topics",
})  # fmt: skip
#: They are not about names.
FOR_BROKERS = frozenset({
    "ReadShareGroupState", "ReadShareGroupStateSummary", "WriteShareGroupState", "DeleteShareGroupState", "InitializeShareGroupState",
})  # fmt: skip
Right = tuple[int, str, int, str, str, int, int]


def names_of(tag: str) -> dict[ResourceType, list[str]]:
    """What the good requests are about."""
    return {
        ResourceType.TOPIC: [f"t{tag}", "shared", "nope"],
        ResourceType.GROUP: [f"g{tag}", f"s{tag}", f"k{tag}", "nope"],
        ResourceType.CLUSTER: [CLUSTER_NAME],
        ResourceType.TRANSACTIONAL_ID: [f"x{tag}", "nope"],
        ResourceType.DELEGATION_TOKEN: ["nope"],
        ResourceType.USER: ["User:ann", "User:nope"],
    }


def drawn_rights(source: random.Random, tag: str, user: str) -> list[Right]:
    """Nothing, everything, everything but one operation, or a few; by any kind of pattern, and with denials."""
    every = [(kind, operation) for kind, operations in OPERATIONS.items() for operation in operations]
    how = source.random()
    if how < 0.1:
        wanted = []
    elif how < 0.2:
        wanted = every
    elif how < 0.5:
        without = source.choice(every)
        wanted = [each for each in every if each != without]
    else:
        share = source.choice((0.2, 0.4, 0.6))
        wanted = [each for each in every if source.random() < share]
    names = names_of(tag)
    found: list[Right] = []

    def put(kind: ResourceType, operation: Operation, permission: Permission) -> None:
        host, form = source.choice(_HOSTS), source.randrange(4)
        patterns: list[tuple[str, PatternType]]
        if kind is ResourceType.CLUSTER or form == 0:
            patterns = [(CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", PatternType.LITERAL)]
        elif form == 1:
            some = [each for each in names[kind] if source.random() < 0.6]
            patterns = [(each[: source.randint(1, len(each))], PatternType.PREFIXED) for each in some]
        else:
            some = names[kind] if form == 2 else [each for each in names[kind] if source.random() < 0.6]
            patterns = [(each, PatternType.LITERAL) for each in some]
        said = Operation.ALL if source.random() < 0.08 else operation
        found.extend((kind, name, form, f"User:{user}", host, said, permission) for name, form in patterns)

    for kind, operation in wanted:
        put(kind, operation, Permission.ALLOW)
    for kind, operation in every:
        if source.random() < 0.04:
            put(kind, operation, Permission.DENY)
    return list(dict.fromkeys(found))


def widened(source: random.Random, message: Any, version: int, hidden: str, topic_id: bytes) -> str:
    """Ask for what is hidden too, or for what is not there, wherever the request has a list of names; which."""
    name = source.choice((hidden, hidden, hidden, "nope"))
    is_first = source.random() < 0.5
    found: list[str] = []

    def into(owner: Struct, value: Any) -> None:
        for each in owner.fields:
            if version not in each.versions:
                continue
            inner = getattr(value, each.name)
            if not each.is_array or not inner:
                if not each.is_array and each.struct is not None and inner is not None:
                    into(each.struct, inner)
                continue
            if each.struct is None:
                if each.type == "string" and each.name in _LISTS_OF_NAMES:
                    setattr(value, each.name, [name, *inner] if is_first else [*inner, name])
                    found.append(each.name)
                continue
            for one in inner:
                into(each.struct, one)
            has = {field.name for field in each.struct.fields if version in field.versions} & _NAMES
            if has:
                other = copy.deepcopy(inner[0])
                for field in has:
                    is_id = field == "topic_id"
                    setattr(other, field, (topic_id if name == hidden else bytes(range(16))) if is_id else name)
                if {"name", "topic_id"} <= has:  # of a topic one of the two
                    setattr(other, *(("name", None) if inner[0].name is None else ("topic_id", ZERO_UUID)))
                setattr(value, each.name, [other, *inner] if is_first else [*inner, other])
                found.append(each.name)

    into(schemas()[type(message).__name__].root, message)
    return (
        f"{','.join(found)} {'first' if is_first else 'then'} {'nope' if name == 'nope' else 'hidden'}" if found else ""
    )


async def hide(s: Side) -> tuple[str, bytes]:
    """A topic, a group and a transactional id that no right is about, unless it is about every name."""
    name, topic_id = await create_topic(s, f"h{s.tag}", 2, records=2)
    await committed(s, name, name)
    await producer(s, name)
    return name, topic_id


async def _seen(s: Side, user: str) -> int:
    answer = await s.ask(wire.DescribeAclsRequest(1, None, 1, f"User:{user}", None, 1, 1), 3, traced=False)
    return sum(len(each.acls) for each in answer.resources)


async def _until(s: Side, user: str, count: int) -> None:
    for _ in range(500):
        if await _seen(s, user) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{count} ACLs were to be seen, not {await _seen(s, user)}")


async def give(s: Side, user: str, rights: list[Right]) -> None:
    r = wire.CreateAclsRequest
    if rights:
        answer = await s.ask(r([r.AclCreation(*each) for each in rights]), 3, traced=False)
        assert not any(each.error_code for each in answer.results), answer
    await _until(s, user, len(rights))


async def take_all(s: Side, user: str) -> None:
    r = wire.DeleteAclsRequest
    await s.ask(r([r.DeleteAclsFilter(1, None, 1, f"User:{user}", None, 1, 1)]), 3, traced=False)
    await _until(s, user, 0)


def told(rights: list[Right], tag: str) -> str:
    """The rights of a case, for who reads a difference."""
    return " ".join(
        f"{'' if permission == Permission.ALLOW else 'not '}{ResourceType(kind).name}:{name.replace(tag, '@')}"
        f"{'' if form == PatternType.LITERAL else '…'}:{Operation(operation).name}{'' if host == '*' else '@' + host}"
        for kind, name, form, _, host, operation, permission in rights
    )


def by_user(api: str, version: int, user: str, seed: int, choose: Callable[[list[Mutation]], list[Mutation]]) -> Case:
    """The good request of an API, or a change of it, by a user with some rights."""

    async def case(s: Side) -> None:
        await take_all(s, user)
        message, follow = await BASES[api](s, version)
        given = drawn_rights(random.Random(seed), s.tag, user)
        await give(s, user, given)
        source = random.Random(seed)
        label = ""
        if api not in FOR_BROKERS and source.random() < 0.5:
            label = widened(source, message, version, *await hide(s))
        for each in [] if label else choose(mutations(message, version)):
            each.apply(message)
            label = f"{each.path} {each.what}"
        s.rights = told(given, s.tag)
        await s.ask(message, version, label or "good", connection=USER)
        for request, its_version in follow:
            await s.ask(request, its_version, f"after {label or 'good'}")
        await take_all(s, user)

    return case
