"""The listener against well-behaved, broken and hostile peers."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
import socket
from typing import Any

import pytest

from kafkalite.config import TopicConfig
from kafkalite.env import heap, streams
from kafkalite.errors import ErrorCode
from kafkalite.kafka import answers as answers_module
from kafkalite.kafka import connection as connection_module
from kafkalite.kafka import listener as listener_module
from kafkalite.kafka import request_memory
from kafkalite.kafka.apis import OFFERED
from kafkalite.kafka.request import Request
from kafkalite.listener_settings import PerListener
from kafkalite.protocol import wire
from tests.support.waiting import until

from .conftest import Broker, batch, fetch, produce


async def test_answers_keep_the_order_of_the_requests(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    # A long poll in front: what is behind it is carried out at once, and answered after it.
    poll = client.send(fetch("t", max_wait_ms=600_000), 11)
    appended = client.send(produce("t", (0, batch(b"a"))), 8)
    versions = client.send(wire.ApiVersionsRequest("x", "1"), 3)
    async with asyncio.timeout(150):
        answers = [await client.receive() for _ in range(3)]
    assert [correlation_id for correlation_id, _ in answers] == [poll, appended, versions]
    assert len(answers[0][1].responses[0].partitions[0].records) > 0


async def test_frames_may_come_in_any_pieces(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    frames = b"".join(client.frame(produce("t", (0, batch(b"%d" % i))), 7) for i in range(5))
    for byte in frames[:200]:
        client.writer.write(bytes([byte]))
        await client.writer.drain()
    client.writer.write(frames[200:])
    offsets = [(await client.receive())[1].responses[0].partition_responses[0].base_offset for _ in range(5)]
    assert offsets == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [3_000_000, 20_000_000])
async def test_a_frame_larger_than_any_buffer(broker: Broker, size: int) -> None:
    await broker.create("t")
    broker.services.partitions.configs["t"] = TopicConfig(max_message_bytes=2**25)
    client = await broker.client()
    large = batch(random.Random(1).randbytes(size))
    answer = await client.ask(produce("t", (0, large)), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    fetched = await client.ask(fetch("t", max_bytes=2**26), 12)
    assert bytes(fetched.responses[0].partitions[0].records[61:]) == bytes(large[61:])
    small = await client.ask(produce("t", (0, batch(b"after"))), 9)
    assert small.responses[0].partition_responses[0].base_offset == 1
    assert broker.side.listener.memory.bytes <= 4 * 2**20


async def test_api_versions_of_an_unknown_version_is_answered_in_version_0(broker: Broker) -> None:
    client = await broker.client()
    client.writer.write(bytes.fromhex("0000000c 0012 0063 00000007 0000 0000"))
    answer = await client.receive_raw()
    assert answer.hex() == "00000007" + "0023" + "00000001" + "0012" + "0000" + "0005"


async def test_what_is_offered_is_what_is_served(broker: Broker) -> None:
    client = await broker.client()
    answer = await client.ask(wire.ApiVersionsRequest("test", "1.0"), 3)
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    served = {key: (api.versions.start, api.versions.stop - 1) for key, api in broker.side.apis.items()}
    assert offered == served
    assert offered[0] == (0, 13)  # librdkafka compresses nothing if it does not begin at 0 (KAFKA-18659)
    assert len(served) >= len(OFFERED) - 1


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("0000000a 03e7 0000 00000009 ffff", id="an unknown API"),
        pytest.param("0000000b 0003 0063 00000009 ffff 00", id="an unknown version of Metadata"),
    ],
)
async def test_what_is_not_offered_closes_the_connection_after_the_earlier_answers(broker: Broker, raw: str) -> None:
    """As with Kafka: no client can take two bytes of an error code for the response that it expects."""
    client, bystander = await broker.client(), await broker.client()
    client.send(wire.ApiVersionsRequest(), 0)
    client.writer.write(bytes.fromhex(raw))
    assert (await client.receive())[1].error_code == 0
    assert await client.is_closed()
    assert (await bystander.ask(wire.ApiVersionsRequest(), 0)).error_code == 0


async def test_old_produce_versions_are_refused_with_their_own_answer(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    answer = await client.ask(produce("t", (0, batch(b"a"))), 2)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await client.ask(wire.ApiVersionsRequest(), 0)).error_code == 0


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("7fffffff", id="a length of two gigabytes"),
        pytest.param("ffffffff", id="a negative length"),
        pytest.param("00000003 000000", id="too short for a header"),
        pytest.param("01100000 0003", id="17 MB of metadata request"),
        pytest.param("0000000c 0000 0009 00000001 7fff 0000", id="a client id that is not there"),
        pytest.param("0000000c 0003 0001 00000001 0001 ff 00", id="a client id that is no text"),
        pytest.param("0000000b 0003 0001 00000001 ffff 00", id="half a body"),
        pytest.param("474554202f20485454502f312e310d0a0d0a", id="HTTP"),
    ],
)
async def test_a_broken_frame_closes_that_connection_only(broker: Broker, raw: str) -> None:
    client, bystander = await broker.client(), await broker.client()
    client.writer.write(bytes.fromhex(raw))
    assert await client.is_closed()
    assert (await bystander.ask(wire.ApiVersionsRequest(), 0)).error_code == 0


async def test_bytes_behind_a_message_are_let_pass(broker: Broker) -> None:
    """As Kafka does: librdkafka's Metadata v12 for all topics carries three."""
    client = await broker.client()
    client.writer.write(bytes.fromhex("00000011 0003 0001 00000001 ffff ffffffff 000000"))
    assert (await client.receive_raw())[:4] == b"\0\0\0\1"


async def test_random_frames_harm_nobody(broker: Broker) -> None:
    """Random bodies under valid headers, in every API and version: refused or answered, never a crash."""
    source = random.Random(7)
    bystander = await broker.client()
    for api in sorted(broker.side.apis.values(), key=lambda api: api.key):
        client = await broker.client()
        for version in api.known_versions:
            body = source.randbytes(source.randrange(40))
            frame = (
                api.key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\1" + b"\xff\xff"
                + (b"\0" if version in api.flexible_requests else b"") + body
            )  # fmt: skip
            client.writer.write(len(frame).to_bytes(4) + frame)
            if client.writer.is_closing():
                break
        client.close()
    assert (await bystander.ask(wire.ApiVersionsRequest(), 0)).error_code == 0


async def test_memory_follows_what_has_arrived_not_what_was_promised(broker: Broker) -> None:
    clients = [await broker.client() for _ in range(20)]
    for client in clients:
        client.writer.write((100 * 2**20).to_bytes(4) + b"\0\0\0\x09" + b"x" * 1000)
    await (await broker.client()).ask(wire.ApiVersionsRequest(), 0)
    assert 0 < broker.side.listener.memory.bytes < 20 * 64 * 1024
    for client in clients:
        client.close()
    while broker.side.listener.memory.bytes:
        await asyncio.sleep(0)


async def test_half_received_frames_share_a_bound(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_S", 0.01)
    monkeypatch.setattr(request_memory, "MEMORY_GRACE_S", 0.05)
    broker = await make_broker(queued_max_request_bytes=2**20)
    await broker.create("t")
    hogs = [await broker.client() for _ in range(4)]
    for hog in hogs:
        hog.writer.write((8 * 2**20).to_bytes(4) + b"\0\0\0\x09" + bytes(2**20))
    bystander = await broker.client()
    answer = await bystander.ask(produce("t", (0, batch(b"small"))), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert broker.side.listener.memory.bytes <= 16 * 2**20
    # One that needs memory too gets it, because those that hold it do not come along.
    large = await bystander.ask(produce("t", (0, batch(bytes(600_000)))), 9)
    assert large.responses[0].partition_responses[0].error_code == 0


async def test_requests_in_flight_are_bounded(make_broker: Any) -> None:
    broker = await make_broker(max_inflight_requests_per_connection=2)
    await broker.create("t")
    client = await broker.client()
    for _ in range(2):
        client.send(fetch("t", max_wait_ms=300), 11)
    waiting = [client.send(produce("t", (0, batch(b"x"))), 8) for _ in range(20)]
    answers = [await client.receive() for _ in range(22)]
    assert [correlation_id for correlation_id, _ in answers[2:]] == waiting
    # The produces had to wait for the polls: these found nothing.
    assert not answers[0][1].responses[0].partitions[0].records
    assert [answer.responses[0].partition_responses[0].base_offset for _, answer in answers[2:]] == list(range(20))


async def test_connections_are_bounded(make_broker: Any) -> None:
    broker = await make_broker(max_connections=2)
    first, _ = await broker.client(), await broker.client()
    third = await broker.client()
    assert await third.is_closed()
    assert (await first.ask(wire.ApiVersionsRequest(), 0)).error_code == 0


async def test_an_idle_connection_is_closed(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_S", 0.01)
    broker = await make_broker(connections_max_idle_ms=50)
    assert await (await broker.client()).is_closed()


async def test_a_frame_that_never_ends_is_given_up(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_SWEEP_S", 0.01)
    monkeypatch.setattr(listener_module, "FRAME_DEADLINE_S", 0.05)
    broker = await make_broker()
    client = await broker.client()
    client.writer.write(b"\0\0")
    assert await client.is_closed()


async def test_a_client_that_does_not_read_stops_being_served(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(bytes(500_000)))), 9)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(200):
        client.send(fetch("t"), 11)
    bystander = await broker.client()
    for _ in range(50):
        await bystander.ask(wire.ApiVersionsRequest(), 0)
    [served] = [each for each in broker.side.listener.connections if each.peer != "" and each.unread_since]
    assert served.out.bytes <= connection_module._FLUSH_BYTES + 600_000


async def _reads_nothing(broker: Broker, asked: bytes) -> socket.socket:
    """A peer that has asked, and takes a few kilobytes of the answers."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(0)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, broker.services.kafka_endpoint)
    await loop.sock_sendall(peer, asked)
    return peer


async def test_answers_that_nobody_reads_share_a_bound(make_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients ask for 50 MiB as a matter of course: who does not read them must not use up the memory of all."""
    monkeypatch.setattr(listener_module, "_SWEEP_S", 0.01)
    monkeypatch.setattr(answers_module, "UNREAD_GRACE_S", 3600.0)
    given_back: list[bool] = []
    monkeypatch.setattr(heap, "give_back", lambda: given_back.append(True))
    limit = 8 * 2**20
    broker = await make_broker(queued_max_request_bytes=limit)
    await broker.create("t")
    client = await broker.client()
    for _ in range(100):
        await client.ask(produce("t", (0, batch(bytes(500_000)))), 9)
    everything = fetch("t", max_bytes=2**26)
    everything.topics[0].partitions[0].partition_max_bytes = 2**26
    memory = broker.side.listener.answers
    asked = client.frame(everything, 11) * 20
    peers = [await _reads_nothing(broker, asked) for _ in range(40)]
    while memory.bytes < limit or not memory._waiting:
        await client.ask(wire.ApiVersionsRequest(), 0)  # the others are served
    assert memory.bytes <= limit + len(peers) * 500_200  # each connection may exceed it by one batch
    # One who reads waits for those who do not, and for no longer than their grace.
    asked_later = client.send(everything, 11)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not client.reader._buffer
    monkeypatch.setattr(answers_module, "UNREAD_GRACE_S", 0.0)
    correlation_id, answer = await client.receive()
    assert correlation_id == asked_later and len(answer.responses[0].partitions[0].records) > 500_000
    for peer in peers:
        peer.close()
    while len(broker.side.listener.connections) > 1 or memory._waiting:
        await client.ask(wire.ApiVersionsRequest(), 0)
    assert memory.bytes == 0
    while not given_back:  # the holes that they left in the heap
        await asyncio.sleep(0.001)


async def test_an_answer_that_was_sent_is_gone_without_the_collector_of_cycles(broker: Broker) -> None:
    """It comes by rarely: megabytes of each fetch would lie about until then."""
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(bytes(100_000)))), 9)
    gc.collect()
    gc.disable()
    try:
        for wait_ms, offset in ((0, 0), (0, 1), (20, 1)):
            await client.ask(fetch("t", offset, max_wait_ms=wait_ms), 11)
        assert not [each for each in gc.get_objects() if type(each) is Request]
    finally:
        gc.enable()


async def test_a_closed_connection_does_not_wait_for_ever_for_its_peer_to_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LINGER_S", 0.01)
    await broker.create("t")
    client = await broker.client()
    await client.ask(produce("t", (0, batch(random.Random(1).randbytes(900_000)))), 9)
    peer = await _reads_nothing(broker, client.frame(fetch("t", max_bytes=2**26), 11) * 20)
    connections = broker.side.listener.connections
    while not (unread := [each for each in connections if each.unread_since]):
        await asyncio.sleep(0)
    unread[0].close()
    await until(lambda: len(connections) <= 1)
    assert broker.side.listener.answers.bytes == 0
    peer.close()


async def test_acks_0_is_not_answered_and_an_error_closes_the_connection(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    client.send(produce("t", (0, batch(b"a")), acks=0), 9)
    assert (await client.ask(wire.ApiVersionsRequest(), 0)).error_code == 0
    client.send(produce("nowhere", (0, batch(b"a")), acks=0), 9)
    assert await client.is_closed()
    client = await broker.client()
    client.send(produce("t", (0, batch(b"a")), acks=0), 2)  # a version that is refused
    assert await client.is_closed()


@pytest.mark.parametrize("version", [0, 4])
async def test_a_text_in_an_answer_is_as_long_as_any_version_can_say(broker: Broker, version: int) -> None:
    """Strings have 32,767 bytes at most, and names in the request are shown with what is not printable escaped."""
    client = await broker.client()
    request = wire.DescribeConfigsRequest
    answer = await client.ask(request([request.DescribeConfigsResource(4, "\1" * 30_000, None)]), version)
    assert answer.results[0].error_code == ErrorCode.INVALID_REQUEST
    assert len(answer.results[0].error_message) < 5000


async def test_an_answer_that_no_bytes_can_say_ends_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a bug, but the client must not wait for ever, nor the connection be busy for ever."""

    async def answer(request: Request, message: Any) -> Any:
        return wire.DescribeClusterResponse(controller_id=2**40)

    apis = broker.side.listener.apis
    monkeypatch.setitem(apis, 60, dataclasses.replace(apis[60], handler=answer))
    client = await broker.client()
    client.send(wire.DescribeClusterRequest(), 1)
    async with asyncio.timeout(150):
        assert await client.is_closed()


async def test_each_listener_has_its_own_number_of_connections(make_broker: Any) -> None:
    broker = await make_broker(max_connections=3, per_listener=PerListener((("PLAINTEXT", "max_connections", 1),)))
    other = await broker.side.listener.start("OTHER", "127.0.0.1", 0)
    client = await broker.client()
    assert (await client.ask(wire.MetadataRequest([]), 4)).brokers
    writers = []

    async def is_open(host: str, port: int) -> bool:
        reader, writer = await asyncio.open_connection(host, port)
        writers.append(writer)
        writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))  # ApiVersions v0
        return bool(await reader.read(1))

    assert not await is_open(*broker.services.kafka_endpoint)
    assert [await is_open(other.host, other.port) for _ in range(3)] == [True, True, False]
    client.close()
    async with asyncio.timeout(150):
        while not await is_open(*broker.services.kafka_endpoint):
            await asyncio.sleep(0)
    for writer in writers:
        writer.close()
