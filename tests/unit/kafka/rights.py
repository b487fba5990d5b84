"""Users and their rights, for tests of a broker with an authorizer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite.env.turns import Turns
from kafkalite.protocol import wire
from kafkalite.protocol.structs import WireStruct
from kafkalite.security.acl import AclEntry, Operation, Pattern, Permission, ResourceType
from kafkalite.security.principal import Principal

from .conftest import Broker, FrameClient
from .coordinator_requests import commit, coordinator


def allow(broker: Broker, who: str, kind: ResourceType, name: str, *operations: Operation) -> None:
    """These operations and, of that resource, no others that were allowed before."""
    authorizer = broker.services.rights.access.authorizer
    assert authorizer is not None
    authorizer.put(
        Pattern(kind, name), {AclEntry(f"User:{who}", "*", operation, Permission.ALLOW) for operation in operations}
    )


def forget_all(broker: Broker) -> None:
    authorizer = broker.services.rights.access.authorizer
    assert authorizer is not None
    for pattern in authorizer.patterns():
        authorizer.put(pattern, ())


async def client_of(broker: Broker, who: str) -> FrameClient:
    """A connection of that user: what SASL or TLS will do, done from outside."""
    client = await broker.client()
    port = client.writer.get_extra_info("sockname")[1]
    async with asyncio.timeout(150):
        while True:
            for connection in broker.side.listener.connections:
                if connection.peer.endswith(f":{port}"):
                    connection.principal = Principal("User", who)
                    return client
            await asyncio.sleep(0)


async def restore(broker: Broker) -> None:
    """What DeleteTopics, DeleteGroups and their like have really done."""
    if broker.services.metadata(["t"]).topics[0].error:
        root = await client_of(broker, "root")
        request = wire.CreateTopicsRequest
        assert (await root.ask(request([request.CreatableTopic("t", 1, 1)], 1000), 4)).topics[0].error_code == 0
        root.close()


def counted_turns(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each step of a long computation takes a turn of its own from now on; whose turns there were."""
    owners = []
    call = Turns.call

    def counted(self: Turns, owner: Any, begin: Any) -> None:
        owners.append(owner)
        call(self, owner, begin)

    monkeypatch.setattr(Turns, "call", counted)
    monkeypatch.setattr("kafkalite.env.turns.SLICE_S", 1e-9)
    return owners


def codes_in(message: Any) -> Iterator[int]:
    """Every error code in an answer."""
    if isinstance(message, WireStruct):
        for name in message._names:
            value = getattr(message, name)
            if name in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from codes_in(value)
    elif isinstance(message, list | tuple):
        for each in message:
            yield from codes_in(each)


async def guarded(make_broker: Any) -> Broker:
    """A broker with an authorizer, topic `t`, a committed offset of group `g`, a producer id of transactional id `x`."""
    made: Broker = await make_broker(
        authorizer_enabled=True, super_users="User:root", group_min_session_timeout_ms=1, auto_create_topics_enable=True
    )
    root = await client_of(made, "root")
    request = wire.CreateTopicsRequest
    answer = await root.ask(request([request.CreatableTopic("t", 1, 1)], 1000), 4)
    assert answer.topics[0].error_code == 0
    await coordinator(root, "g")
    await root.ask(commit("g", 3), 8)
    await coordinator(root, "x", 1)
    granted = await root.ask(wire.InitProducerIdRequest("x", 60_000), 4)
    assert granted.error_code == 0
    made.services.clock.monotonic()
    made.services.feature_level = lambda name: 1  # type: ignore[method-assign]
    return made
