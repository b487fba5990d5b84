"""The connections over which nodes bring each other transaction markers, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kafkalite.coordinators.transactions.markers import Marker, MarkerChannel, MarkerChannels
from kafkalite.coordinators.transactions.questions import Asker, CoordinatorChannels
from kafkalite.env.streams import open_stream
from kafkalite.errors import ErrorCode
from kafkalite.model import BrokerEpoch, BrokerId, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.protocol.codec import encode
from kafkalite.rpc.messages.control import Broker as LiveBroker
from tests.support.waiting import until

from .conftest import Broker
from .coordinator_requests import TRANSACTIONS, coordinator


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_reset_while_idle_is_left(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """No leader heard of the end of a transaction any more, on that node, until this one restarted."""

    async def main() -> None:
        dialled = []

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, float]:
            dialled.append(await open_stream(host, port, 4096))
            await until(dialled[-1][1].transport.is_closing)
            return *dialled[-1], float("inf")

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            tasks = []
            services = SimpleNamespace(
                clock=SimpleNamespace(monotonic=asyncio.get_running_loop().time),
                dial_kafka=dial,
                supervisor=SimpleNamespace(spawn=lambda name, work, policy: tasks.append(asyncio.ensure_future(work))),
            )
            channel = MarkerChannel(services, server.sockets[0].getsockname())
            marker = Marker(ProducerId(1), 0, is_commit=True, coordinator_epoch=0, partitions=(TopicPartition("t", 0),))
            for _ in range(2):
                with pytest.raises(OSError):
                    await channel.ask(marker)
            assert len(dialled) == 2
            await asyncio.gather(*tasks)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


class _Recorder:
    """A channel's services without a network: `dial` raises `failures` in turn, then hands out `stream`."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.tasks: list[asyncio.Task[None]] = []
        self.dialling, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.clock = SimpleNamespace(monotonic=lambda: 0.0)
        self.supervisor = SimpleNamespace(spawn=self._spawn)

    def _spawn(self, name: str, work: Any, policy: object) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def dial_kafka(self, host: str, port: int) -> Any:
        self.dialling.set()
        await self.may_go_on.wait()
        raise self.failures.pop(0)


async def test_an_unexpected_error_reaches_every_waiter() -> None:
    """Cancelled, they would leave their transactions prepared until another node coordinates them."""
    services = _Recorder(ValueError("a bug"), OSError("refused"))
    channel = MarkerChannel(services, ("h", 1))  # type: ignore[arg-type]
    marker = Marker(ProducerId(1), 0, is_commit=True, coordinator_epoch=0, partitions=(TopicPartition("t", 0),))
    first = asyncio.ensure_future(channel.ask(marker))
    await services.dialling.wait()
    second = asyncio.ensure_future(channel.ask(marker))  # queues up behind
    await asyncio.sleep(0)
    services.may_go_on.set()
    for waiting in (first, second):
        with pytest.raises(OSError, match="a bug"):
            await waiting
    assert (await asyncio.gather(*services.tasks, return_exceptions=True))[0].args == ("a bug",)  # type: ignore[union-attr]
    with pytest.raises(OSError, match="refused"):  # and the channel works again
        await channel.ask(marker)


async def test_an_error_code_of_a_newer_node_concerns_its_partition_alone() -> None:
    response = wire.WriteTxnMarkersResponse
    topic = response.WritableTxnMarkerTopicResult
    partition = response.WritableTxnMarkerPartitionResult
    body = encode(
        response([response.WritableTxnMarkerResult(1, [topic("t", [partition(0, 0), partition(1, 29_999)])])]), 1
    )

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        answer = (1).to_bytes(4) + b"\0" + body
        writer.write(len(answer).to_bytes(4) + answer)
        with contextlib.suppress(ConnectionResetError):  # a channel that is given up is cut
            await reader.read()
        writer.transport.abort()
        closed.set()

    closed = asyncio.Event()
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        services = _Recorder()
        streams: list[asyncio.StreamWriter] = []

        async def dial(host: str, port: int) -> Any:
            reader, writer = await asyncio.open_connection(host, port)
            streams.append(writer)
            return reader, writer, float("inf")

        services.dial_kafka = dial  # type: ignore[method-assign]
        channel = MarkerChannel(services, server.sockets[0].getsockname())  # type: ignore[arg-type]
        both = (TopicPartition("t", 0), TopicPartition("t", 1))
        errors = await channel.ask(Marker(ProducerId(1), 0, is_commit=True, coordinator_epoch=0, partitions=both))
        assert errors == {both[0]: ErrorCode.NONE, both[1]: ErrorCode.UNKNOWN_SERVER_ERROR}
        channel.close()
        await asyncio.gather(*services.tasks)
        for writer in streams:
            await writer.wait_closed()
        await closed.wait()


async def test_markers_of_one_request_are_written_side_by_side(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, two whose followers were slow took as long as the sender waits: it never heard of the others."""
    await broker.create("t", 3)
    partitions = broker.services.partitions
    append, confirmations = partitions.append_internal, []

    def slow(timeout_ms: int, wanted: Any, done: Any, **more: Any) -> None:
        append(timeout_ms, wanted, lambda results: confirmations.append(lambda: done(results)), **more)

    monkeypatch.setattr(partitions, "append_internal", slow)
    request = wire.WriteTxnMarkersRequest
    markers = [
        request.WritableTxnMarker(
            number, 0, transaction_result=True, topics=[request.WritableTxnMarkerTopic("t", [number])]
        )
        for number in range(3)
    ]
    asked = asyncio.create_task((await broker.client()).ask(request(markers), 1))
    await until(lambda: len(confirmations) >= 3)
    for confirm in reversed(confirmations):
        confirm()
    results = (await asked).markers
    assert [(each.producer_id, each.topics[0].partitions[0].error_code) for each in results] == [(0, 0), (1, 0), (2, 0)]


async def test_a_request_has_a_bounded_number_of_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MarkerChannel, "most_at_once", 2)
    services = _Recorder(*(OSError(str(number)) for number in range(3)))
    services.may_go_on.set()
    channel = MarkerChannel(services, ("h", 1))  # type: ignore[arg-type]
    sizes: list[int] = []
    exchange = channel._exchange

    async def counted(markers: Any) -> Any:
        sizes.append(len(markers))
        return await exchange(markers)

    monkeypatch.setattr(channel, "_exchange", counted)
    marker = Marker(ProducerId(1), 0, is_commit=True, coordinator_epoch=0, partitions=(TopicPartition("t", 0),))
    found = await asyncio.gather(*(channel.ask(marker) for _ in range(5)), return_exceptions=True)
    assert (sizes, [type(each) for each in found]) == ([2, 2, 1], [OSError] * 5)


async def test_what_its_asker_has_given_up_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked when the node answered again, maybe for a coordinator that had been replaced since."""
    services = _Recorder(OSError("refused"), OSError("refused"))
    channel = MarkerChannel(services, ("h", 1))  # type: ignore[arg-type]
    asked: list[int] = []
    exchange = channel._exchange

    async def noted(markers: Any) -> Any:
        asked.extend(marker.producer_id for marker in markers)
        return await exchange(markers)

    monkeypatch.setattr(channel, "_exchange", noted)
    waiting = []
    for number in range(3):
        marker = Marker(
            ProducerId(number), 0, is_commit=True, coordinator_epoch=0, partitions=(TopicPartition("t", 0),)
        )
        waiting.append(asyncio.ensure_future(channel.ask(marker)))
        await asyncio.sleep(0)
    await services.dialling.wait()
    waiting[1].cancel()
    await asyncio.sleep(0)
    services.may_go_on.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert asked == [0, 2]


async def test_a_request_has_no_more_markers_than_a_node_takes(make_broker: Any) -> None:
    """A node that came back got those of all transactions that had waited for it, in one request with too many elements: it closed the connection.
    They were repeated together, and the transactions stayed open for ever."""
    there: Broker = await make_broker()
    await there.create("t", 50)
    here: Broker = await make_broker()
    channels = MarkerChannels(here.services, here.side.markers)
    host, port = there.services.kafka_endpoint
    node = LiveBroker(BrokerId(2), BrokerEpoch(2), host, port, host, 1, None, 2)
    partitions = tuple(TopicPartition("t", number) for number in range(50))
    markers = [
        Marker(ProducerId(number), 0, is_commit=True, coordinator_epoch=0, partitions=partitions)
        for number in range(300)
    ]
    answers = await asyncio.gather(*(channels.send(node, marker) for marker in markers))
    assert answers == [dict.fromkeys(partitions, ErrorCode.NONE)] * 300
    absent = tuple(TopicPartition("none", number) for number in range(12_000))
    [answer] = await asyncio.gather(channels.send(node, replace(markers[0], partitions=absent)))
    assert answer == dict.fromkeys(absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    channels.close()


@pytest.mark.parametrize("adds", [False, True])
async def test_a_question_of_many_partitions_is_asked_in_pieces(make_broker: Any, adds: bool) -> None:  # noqa: FBT001
    """A Produce request may list 100,000 partitions, and its records were refused for ever."""
    there: Broker = await make_broker(transaction_state_log_num_partitions=1)
    client = await there.client()
    await coordinator(client, "x", TRANSACTIONS)
    made = await client.ask(wire.InitProducerIdRequest("x", 60_000), 4)
    assert not made.error_code
    here: Broker = await make_broker()
    channels = CoordinatorChannels(here.services)
    host, port = there.services.kafka_endpoint
    node = LiveBroker(BrokerId(2), BrokerEpoch(2), host, port, host, 1, None, 2)
    partitions = tuple(TopicPartition("t", number) for number in range(12_000))
    asker = Asker("x", made.producer_id, made.producer_epoch, adds=adds)
    answers = await channels.ask(node, asker, partitions)
    assert answers.keys() == set(partitions) and len(set(answers.values())) == 1
    channels.close()
