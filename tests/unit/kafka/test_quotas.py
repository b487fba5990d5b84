"""Quotas on the Kafka listener: the answer first, with the wait in it, then nothing is read until the wait is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kafkalite.config import BrokerConfig
from kafkalite.env.real_network import RealNetwork
from kafkalite.env.supervisor import Supervisor
from kafkalite.errors import AuthenticationFailed, ErrorCode
from kafkalite.kafka.broker_apis import KafkaSide
from kafkalite.protocol import topic_ids, wire
from kafkalite.security.principal import Principal
from kafkalite.security.quotas import DEFAULT, Entity, Kind
from tests.support.memory_services import MemoryServices
from tests.support.security import listener_security
from tests.support.waiting import until

from .conftest import Broker, FrameClient, batch, fetch, produce
from .coordinator_requests import coordinator
from .rights import counted_turns


class Handwound:
    """A clock for the quotas: it stands until it is wound."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def processor(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)


async def limited(make_broker: Any, **limits: float) -> tuple[Broker, FrameClient, FrameClient]:
    """A broker, a client id "test" under these limits, and one more of its connections."""
    broker: Broker = await make_broker()
    await broker.create("t")
    broker.services.rights.quotas.put(Entity(None, "test"), limits)
    return broker, await broker.client(), await broker.client()


async def test_the_producer_is_told_and_then_not_read(make_broker: Any) -> None:
    broker, client, other = await limited(make_broker, producer_byte_rate=10.0)
    answer = await client.ask(produce("t", (0, batch(b"x" * 150))), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0  # it was written all the same
    assert answer.throttle_time_ms >= 10_000
    client.send(wire.ApiVersionsRequest("a", "1"), 3)
    # Its other connection is served meanwhile: what is muted is the connection.
    assert (await other.ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0
    [muted] = [each for each in broker.side.listener.connections if each.is_muted]
    assert muted.is_busy  # not idle: the sweeper leaves it alone
    assert not muted._waiting
    # The wait is over (early, by hand): it is read again, and what was sent in between is answered.
    muted._flow.unmute_at = 0.0
    muted._unmute()
    _, answer = await client.receive()
    assert answer.error_code == 0
    counts = broker.services.rights.quotas
    assert counts.throttled[Kind.PRODUCE] == 1
    assert counts.throttled_ms[Kind.PRODUCE] >= 10_000


async def test_requests_sent_ahead_wait_as_well(make_broker: Any) -> None:
    broker, client, _ = await limited(make_broker, producer_byte_rate=10.0)
    frames = [client.frame(produce("t", (0, batch(b"x" * 150))), 9), client.frame(wire.ApiVersionsRequest("a", "1"), 3)]
    client.writer.write(b"".join(frames))
    _, answer = await client.receive()
    assert answer.throttle_time_ms >= 10_000
    [muted] = [each for each in broker.side.listener.connections if each.is_muted]
    assert not muted._waiting  # the second was not begun
    muted._flow.unmute_at = 0.0
    muted._unmute()
    _, answer = await client.receive()
    assert answer.error_code == 0


async def test_a_fetch_beyond_the_quota_brings_nothing_and_uses_nothing_up(make_broker: Any) -> None:
    broker, client, other = await limited(make_broker)
    await client.ask(produce("t", (0, batch(b"x" * 600)), (1, None)), 9)
    await client.ask(produce("t", (0, batch(b"y" * 600))), 9)
    quotas = broker.services.rights.quotas
    quotas.put(Entity(None, "test"), {Kind.FETCH: 70.0})  # 700 bytes in ten seconds
    first = await client.ask(fetch("t", max_wait_ms=0), 12)
    assert first.throttle_time_ms == 0
    assert len(first.responses[0].partitions[0].records) > 600
    second = await other.ask(fetch("t", 1, max_wait_ms=0), 12)
    assert second.throttle_time_ms > 0
    assert second.responses[0].partitions[0].error_code == 0
    assert not second.responses[0].partitions[0].records
    [rate] = quotas._rates.values()
    assert sum(sample[1] for sample in rate._samples) == len(first.responses[0].partitions[0].records)


async def test_a_batch_larger_than_all_windows_of_quota_is_still_given(make_broker: Any) -> None:
    broker, client, _ = await limited(make_broker)
    await client.ask(produce("t", (0, batch(b"x" * 600))), 9)
    broker.services.rights.quotas.put(Entity(None, "test"), {Kind.FETCH: 1.0})
    answer = await client.ask(fetch("t", max_wait_ms=0), 12)
    assert answer.throttle_time_ms > 0
    assert len(answer.responses[0].partitions[0].records) > 600


async def test_one_answer_is_never_more_than_a_whole_window_of_quota(make_broker: Any) -> None:
    broker, client, _ = await limited(make_broker)
    for _ in range(5):
        await client.ask(produce("t", (0, batch(b"x" * 200))), 9)
    broker.services.rights.quotas.put(Entity(None, DEFAULT), {Kind.FETCH: 60.0})
    answer = await client.ask(fetch("t", max_wait_ms=0), 12)
    assert answer.throttle_time_ms == 0
    assert 200 < len(answer.responses[0].partitions[0].records) <= 600


async def test_the_loops_time_is_limited_from_the_first_request_on(make_broker: Any) -> None:
    """ApiVersions counts, as in Kafka: a client could hold the loop with it."""
    broker, client, _ = await limited(make_broker, request_percentage=1e-9)
    requests = (
        (wire.ApiVersionsRequest("a", "1"), 3),
        (wire.MetadataRequest([]), 9),
        (wire.ListGroupsRequest(), 4),
    )
    for request, version in requests:
        answer = await client.ask(request, version)
        assert 0 < answer.throttle_time_ms <= 1000  # one window at most
    assert broker.services.rights.quotas.throttled[Kind.REQUEST] == 3


async def test_without_quotas_no_request_has_a_bill(make_broker: Any) -> None:
    broker, client, _ = await limited(make_broker)
    assert not broker.services.rights.quotas.is_active
    answer = await client.ask(produce("t", (0, batch(b"x" * 150))), 9)
    assert answer.throttle_time_ms == 0


async def test_connections_per_address(make_broker: Any) -> None:
    broker: Broker = await make_broker(
        max_connections_per_ip=100, max_connections_per_ip_overrides="127.0.0.1:2, 10.0.0.1:0"
    )
    kept = [await broker.client() for _ in range(2)]
    for client in kept:
        assert (await client.ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0
    refused = await broker.client()
    assert await refused.is_closed()
    kept[0].close()
    await until(lambda: len(broker.side.listener.connections) <= 1)
    again = await broker.client()
    assert (await again.ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0


async def test_a_connection_that_proves_nothing_does_not_count(make_broker: Any) -> None:
    """A certificate that is nobody's: refused, and its place under the limit is free again."""
    broker: Broker = await make_broker(max_connections_per_ip=1)
    security = broker.services.security["PLAINTEXT"] = listener_security(mechanisms=())

    def nobody(connection: object) -> Principal:
        raise AuthenticationFailed("no rule fits")

    security.certified = nobody  # type: ignore[method-assign]
    for _ in range(3):
        assert await (await broker.client()).is_closed()
    broker.services.security.clear()
    client = await broker.client()
    assert (await client.ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0


async def test_describing_and_altering_quotas_on_the_wire(make_broker: Any) -> None:
    broker: Broker = await make_broker()
    quotas = broker.services.rights.quotas
    quotas.put(Entity("u", None), {Kind.PRODUCE: 1024.0, Kind.REQUEST: 12.5})
    quotas.put(Entity("u", "c"), {Kind.FETCH: 1.0})
    quotas.put(Entity(DEFAULT, None), {Kind.FETCH: 2.0})
    quotas.put(Entity(None, "c"), {Kind.FETCH: 3.0})
    client = await broker.client()
    request = wire.DescribeClientQuotasRequest

    async def ask(*components: Any, strict: bool = False) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        found = []
        for version in (0, 1):
            answer = await client.ask(request([request.ComponentData(*each) for each in components], strict), version)
            assert answer.error_code == 0
            found.append(
                [
                    (
                        {part.entity_type: part.entity_name for part in entry.entity},
                        {v.key: v.value for v in entry.values},
                    )
                    for entry in answer.entries
                ]
            )
        assert found[0] == found[1]
        return found[0]

    user = ({"user": "u"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})
    pair = ({"user": "u", "client-id": "c"}, {"consumer_byte_rate": 1.0})
    default, lone = ({"user": None}, {"consumer_byte_rate": 2.0}), ({"client-id": "c"}, {"consumer_byte_rate": 3.0})
    assert len(await ask()) == 4
    exact, is_default, anything = 0, 1, 2
    assert sorted(map(str, await ask(("user", exact, "u")))) == sorted(map(str, [user, pair]))
    assert await ask(("user", exact, "u"), strict=True) == [user]
    assert await ask(("user", is_default, None)) == [default]
    assert await ask(("client-id", anything, None), strict=True) == [lone]
    assert await ask(("user", anything, None), ("client-id", exact, "c")) == [pair]
    quotas.put(Entity(ip="::1"), {"connection_creation_rate": 7.0})
    quotas.put(Entity(ip=DEFAULT), {"connection_creation_rate": 9.0, "producer_byte_rate": 1.0})
    address = ({"ip": "::1"}, {"connection_creation_rate": 7.0})
    assert await ask(("ip", exact, "0:0:0:0:0:0:0:1"), strict=True) == [address]
    assert await ask(("ip", anything, None)) == [({"ip": None}, {"connection_creation_rate": 9.0}), address]
    for kind in (
        "user",
        "client-id",
        "ip",
    ):  # as with Kafka: nobody has an empty name, which is not that of the defaults
        assert await ask((kind, exact, "")) == await ask((kind, exact, ""), strict=True) == []
    for bad, code in (
        (("group", anything, None), 35), (("", anything, None), 42), (("user", exact, None), 42), (("user", 9, None), 42),
    ):  # fmt: skip
        answer = await client.ask(request([request.ComponentData(*bad)]), 1)
        assert (answer.error_code, answer.entries) == (code, None)
    alter = wire.AlterClientQuotasRequest

    async def change(entity: Sequence[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> int:
        entry = alter.EntryData([alter.EntityData(*part) for part in entity], [alter.OpData(*op) for op in ops])
        answer = await client.ask(alter([entry], validate_only=True), 1)
        assert [part.entity_name for part in answer.entries[0].entity] == [name for _, name in entity]
        return int(answer.entries[0].error_code)

    assert await change([("user", "a"), ("client-id", None)], ("producer_byte_rate", 5.0, False)) == 0
    assert await change([("user", "a")], ("controller_mutation_rate", 0.5, False)) == 0
    assert await change([("user", "a")], ("producer_byte_rate", 1.1 * 100, False)) == 0  # 110.00000000000001
    assert await change([("ip", "10.0.0.1")], ("connection_creation_rate", 5.0, False)) == 0
    assert await change([("ip", None)], ("connection_creation_rate", 5.0, False)) == 0
    for entity, ops in (
        ([], [("producer_byte_rate", 5.0, False)]),
        ([("ip", "a")], []),
        ([("user", "a"), ("user", "b")], []),
        ([("user", "")], []),
        ([("user", "a")], [("connection_creation_rate", 5.0, False)]),
        ([("ip", "10.0.0.1")], [("producer_byte_rate", 5.0, False)]),
        ([("ip", "10.0.0.1")], [("connection_creation_rate", 0.5, False)]),
        ([("ip", "10.0.0.1"), ("user", "a")], [("connection_creation_rate", 5.0, False)]),
        ([("ip", "a host")], [("connection_creation_rate", 5.0, False)]),
        ([("user", "a")], [("controller_mutation_rate", 0.0, False)]),
        ([("user", "a")], [("producer_byte_rate", 0.5, False)]),
        ([("user", "a")], [("producer_byte_rate", 1e-7, False)]),
        ([("user", "a")], [("request_percentage", float("nan"), False)]),
        ([("user", "a")], [("producer_byte_rate", float("inf"), False)]),
        ([("user", "a")], [("producer_byte_rate", 5.0, False), ("producer_byte_rate", 0.0, True)]),
    ):
        assert await change(entity, *ops) == 42
    # As with Kafka: what is not there can be removed, and an entity that comes twice is refused and answered once.
    assert await change([("user", "a")], ("no_such", 0.0, True)) == 0
    twice = [alter.EntryData([alter.EntityData("user", "a")], [alter.OpData("producer_byte_rate", 5.0)])] * 2
    answer = await client.ask(alter(twice), 1)
    assert [entry.error_code for entry in answer.entries] == [42]
    assert Entity("a", None) not in quotas.entities()


async def test_quotas_are_described_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = broker.services.rights.quotas
    for number in range(1_000):
        quotas.put(Entity(f"u{number:04}", None), {Kind.PRODUCE: 1024.0})
    client = await broker.client()
    turns = counted_turns(monkeypatch)
    answer = await client.ask(wire.DescribeClientQuotasRequest(strict=False), 1)
    assert [entry.entity[0].entity_name for entry in answer.entries] == [f"u{number:04}" for number in range(1_000)]
    assert len(turns) >= 10


async def test_connections_of_an_address_are_limited_as_soon_as_the_quota_is_set(make_broker: Any) -> None:
    broker: Broker = await make_broker()
    quotas = broker.services.rights.quotas
    assert (await (await broker.client()).ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0
    quotas.put(Entity(ip=DEFAULT), {"connection_creation_rate": 0.1})
    quotas.put(Entity(ip="10.0.0.1"), {"connection_creation_rate": 1.0})
    assert (await (await broker.client()).ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0
    assert await (await broker.client()).is_closed()
    quotas.put(Entity(ip="127.0.0.1"), {"connection_creation_rate": 100.0})
    assert (await (await broker.client()).ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0


async def test_changes_of_the_cluster_are_paid_for(make_broker: Any) -> None:
    """KIP-599: new versions are refused while the client is in debt, older ones wait."""
    broker, client, _ = await limited(make_broker)
    clock = broker.services.clock = Handwound()  # type: ignore[assignment]
    broker.services.rights.quotas.put(Entity(None, "test"), {Kind.MUTATION: 1.0})  # eleven partitions at once
    create, delete, add = wire.CreateTopicsRequest, wire.DeleteTopicsRequest, wire.CreatePartitionsRequest

    async def created(version: int, *topics: tuple[str, int], validate: bool = False) -> tuple[list[int], int]:
        wanted = [create.CreatableTopic(name, count, 1) for name, count in topics]
        answer = await client.ask(create(wanted, 1000, validate), version)
        for connection in broker.side.listener.connections:
            connection._flow.unmute_at = 0.0
            connection._unmute()
        return [each.error_code for each in answer.topics], answer.throttle_time_ms

    # What is not made, costs nothing.
    assert await created(7, ("a", 500), validate=True) == ([0], 0)
    assert await created(7, ("t", 500)) == ([36], 0)
    # The first one takes the client into debt, the second one finds it there.
    assert await created(7, ("a", 14), ("b", 1)) == ([0, 89], 3_000)
    assert await created(6, ("b", 1)) == ([89], 3_000)
    clock.now += 2.0
    deleted = await client.ask(delete(topics=[delete.DeleteTopicState("a")], timeout_ms=1000), 6)
    assert ([each.error_code for each in deleted.responses], deleted.throttle_time_ms) == ([89], 1_000)
    [kept] = broker.services.metadata(["a"]).topics
    assert not kept.error
    for connection in broker.side.listener.connections:
        connection._flow.unmute_at = 0.0
        connection._unmute()
    # One that names it by its id is answered with the id: Java's Admin looks for that.
    by_id = delete.DeleteTopicState(None, topic_ids.to_wire(kept.topic_id))
    deleted = await client.ask(delete(topics=[by_id], timeout_ms=1000), 6)
    assert [(each.topic_id, each.error_code) for each in deleted.responses] == [(by_id.topic_id, 89)]
    for connection in broker.side.listener.connections:
        connection._flow.unmute_at = 0.0
        connection._unmute()
    more = [add.CreatePartitionsTopic("t", 2, None)]
    assert [each.error_code for each in (await client.ask(add(more, 1000, validate_only=False), 3)).results] == [89]
    for connection in broker.side.listener.connections:
        connection._flow.unmute_at = 0.0
        connection._unmute()
    # A client that does not know the error gets what it asks for, and waits.
    assert await created(5, ("b", 4)) == ([0], 5_000)
    clock.now += 6.0
    assert await created(7, ("c", 1)) == ([0], 0)


async def test_a_topic_that_is_created_by_its_first_use_is_paid_for_and_not_refused(make_broker: Any) -> None:
    broker, client, _ = await limited(make_broker, controller_mutation_rate=0.01)
    for name in ("x", "y"):
        answer = await client.ask(
            wire.MetadataRequest(
                [wire.MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            ),
            9,
        )
        assert answer.topics[0].error_code in (0, 5)
        assert answer.throttle_time_ms > 0
        for connection in broker.side.listener.connections:
            connection._flow.unmute_at = 0.0
            connection._unmute()


async def test_topics_of_a_topology_are_paid_for(make_broker: Any) -> None:
    """Otherwise a heartbeat creates what the quota keeps back. Its client is not made to wait: the member would be taken for dead."""
    broker, client, _ = await limited(make_broker, controller_mutation_rate=0.01)
    await coordinator(client, "g")
    beat = wire.StreamsGroupHeartbeatRequest
    topics = [beat.TopicInfo(name, 0, 1, []) for name in ("g-a-changelog", "g-b-changelog")]
    topology = beat.Topology(1, [beat.Subtopology("0", ["t"], [], topics, [], [], [])])
    nothing: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    said = beat("g", "m", 0, rebalance_timeout_ms=9_000, process_id="m", topology=topology, **nothing)
    answer = await client.ask(said, 1)
    assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
    details = [each.status_detail for each in answer.status]
    assert any("g-b-changelog (THROTTLING_QUOTA_EXCEEDED)" in each for each in details), details
    await until(lambda: not broker.services.metadata(["g-a-changelog"]).topics[0].error)
    assert broker.services.metadata(["g-b-changelog"]).topics[0].error


def test_services_in_memory_are_those_of_a_node() -> None:
    fatal: list[BaseException] = []
    services = MemoryServices(BrokerConfig(), Handwound(), RealNetwork(fatal.append), Supervisor(fatal.append))  # type: ignore[arg-type]
    assert KafkaSide(services).listener.guard is None


async def muted(broker: Broker, number: int) -> list[Any]:
    """The connections that a quota keeps waiting, when there are `number` of them."""
    async with asyncio.timeout(150):
        while True:
            found = [each for each in broker.side.listener.connections if each.is_muted]
            if len(found) == number:
                return found
            await asyncio.sleep(0.01)


async def test_a_new_connection_waits_for_what_others_have_used(make_broker: Any) -> None:
    """A client that reconnects for each request is not served faster than one that stays."""
    broker, client, _ = await limited(make_broker, producer_byte_rate=10.0)
    await client.ask(produce("t", (0, batch(b"x" * 150))), 9)
    [first] = await muted(broker, 1)
    again = await broker.client()
    # What costs no bytes is served: the client finds the leader.
    assert (await again.ask(wire.ApiVersionsRequest("a", "1"), 3)).error_code == 0
    again.send(produce("t", (0, batch(b"y" * 150))), 9)
    [waiting] = [each for each in await muted(broker, 2) if each is not first]
    assert not waiting._waiting  # it was not begun
    waiting._flow.unmute_at = 0.0
    waiting._unmute()
    _, answer = await again.receive()
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms > 20_000  # for both


async def test_a_muted_connection_ends_when_its_client_is_gone(make_broker: Any) -> None:
    """Nobody reads from it, so nobody would see that; clients that come and go would use all connections up."""
    broker, client, _ = await limited(make_broker, producer_byte_rate=10.0)
    await client.ask(produce("t", (0, batch(b"x" * 1500))), 9)
    await muted(broker, 1)
    client.close()
    await muted(broker, 0)


async def test_more_bytes_than_the_memory_do_not_wait_with_muted_connections(make_broker: Any) -> None:
    broker, client, other = await limited(make_broker, producer_byte_rate=10.0)
    await client.ask(produce("t", (0, batch(b"x" * 1500))), 9)
    await muted(broker, 1)
    other.send(produce("t", (0, batch(b"y" * 1_500_000))), 9)
    _, holding = await muted(broker, 2)
    assert holding.frame_began, "it is closed if others starve (FrameMemory.evict)"


async def test_a_large_request_is_paid_for_as_small_ones_are(make_broker: Any) -> None:
    """It is served in pieces."""
    _, client, _ = await limited(make_broker, controller_mutation_rate=1.0)
    create = wire.CreateTopicsRequest
    names = [f"t-{number}" for number in range(600)]
    made = await client.ask(create([create.CreatableTopic(name, 1, 1) for name in names], 1000), 7)
    codes = [each.error_code for each in made.topics]
    assert (set(codes), made.throttle_time_ms > 0) == ({0, ErrorCode.THROTTLING_QUOTA_EXCEEDED}, True)
    assert codes.count(0) < 20
