"""What a producer says of records that were not acknowledged: never sent, refused, or unknown."""

from __future__ import annotations

import asyncio
import random

import pytest

from kafkalite.client.async_client import AsyncClient
from kafkalite.client.producer_core import Completion, Dispatch, ProducerCore
from kafkalite.client.producer_settings import ProducerSettings
from kafkalite.errors import ApiError, ErrorCode, RecordFate, api_error
from kafkalite.model import BrokerId, ProducerId, TopicPartition
from kafkalite.protocol import wire
from kafkalite.rpc.answers import RpcDisconnected, RpcNotSent
from tests.fake_cluster import FakeCluster

E = ErrorCode
KEY = TopicPartition("t", 0)
NODE = BrokerId(1)
TIMEOUT_S = 10.0


class OneBatch:
    """A producer with one record."""

    def __init__(self) -> None:
        settings = ProducerSettings(linger_s=0, delivery_timeout_s=TIMEOUT_S)
        self.core = ProducerCore(settings, random.Random(1))
        self.core.set_producer_id(ProducerId(7), 0)
        self.core.append(KEY, None, b"x", (), 0, 0.0, "token")
        self.now = 0.0

    def send(self) -> Dispatch:
        self.now += 1.5  # longer than any pause between attempts
        ((dispatch,), _, _) = self.core.plan(self.now, lambda _: NODE, lambda _: True)
        return dispatch

    def answer(self, code: ErrorCode) -> Completion | None:
        dispatch = self.send()
        return self.core.on_answer(dispatch.batches[0], dispatch.attempts[0], code, -1, -1, "", self.now)[0]

    def lose(self, *, was_sent: bool) -> None:
        dispatch = self.send()
        lost = self.core.on_lost(dispatch.batches[0], dispatch.attempts[0], "cut", self.now, was_sent=was_sent)
        assert lost is None

    def timed_out(self) -> ApiError:
        ((completion,), _) = self.core.expire(TIMEOUT_S + 1)
        assert isinstance(completion.error, ApiError)
        return completion.error


def test_a_record_that_no_connection_took_was_never_sent() -> None:
    one = OneBatch()
    one.lose(was_sent=False)
    one.lose(was_sent=False)
    error = one.timed_out()
    assert error.fate is RecordFate.NEVER_SENT
    assert "was never sent; last: cut" in str(error)


def test_a_record_that_was_lost_once_stays_unknown() -> None:
    one = OneBatch()
    one.lose(was_sent=True)
    one.answer(E.NOT_ENOUGH_REPLICAS)
    error = one.timed_out()
    assert error.fate is RecordFate.UNKNOWN
    assert "may or may not be in the log" in str(error)


def test_a_record_under_way_is_unknown() -> None:
    one = OneBatch()
    one.answer(E.NOT_ENOUGH_REPLICAS)
    one.send()
    assert one.timed_out().fate is RecordFate.UNKNOWN


def test_a_leader_that_has_been_replaced_may_have_it() -> None:
    one = OneBatch()
    one.send()
    assert one.core.on_leader_changed(KEY, BrokerId(2), one.now) == []
    assert one.timed_out().fate is RecordFate.UNKNOWN


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        (E.NOT_ENOUGH_REPLICAS, RecordFate.REFUSED),
        (E.UNKNOWN_TOPIC_OR_PARTITION, RecordFate.REFUSED),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, RecordFate.UNKNOWN),
        (E.NOT_LEADER_OR_FOLLOWER, RecordFate.UNKNOWN),
        (E.REQUEST_TIMED_OUT, RecordFate.UNKNOWN),
        (E.KAFKA_STORAGE_ERROR, RecordFate.UNKNOWN),
    ],
)
def test_a_retriable_answer(code: ErrorCode, fate: RecordFate) -> None:
    one = OneBatch()
    assert one.answer(code) is None
    assert one.timed_out().fate is fate


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        (E.INVALID_RECORD, RecordFate.REFUSED),
        (E.TOPIC_AUTHORIZATION_FAILED, RecordFate.REFUSED),
        (E.UNKNOWN_SERVER_ERROR, RecordFate.UNKNOWN),
    ],
)
def test_a_final_answer(code: ErrorCode, fate: RecordFate) -> None:
    completion = OneBatch().answer(code)
    assert completion is not None
    assert isinstance(completion.error, ApiError)
    assert completion.error.fate is fate


def test_a_producer_that_ends() -> None:
    closed = api_error(E.REQUEST_TIMED_OUT, "the producer was closed")
    for was_sent, fate in ((False, RecordFate.NEVER_SENT), (True, RecordFate.UNKNOWN)):
        one = OneBatch()
        if was_sent:
            one.send()
        (completion,) = one.core.fail_all(closed)
        assert isinstance(completion.error, ApiError)
        assert (completion.error.code, completion.error.fate) == (closed.code, fate)


async def test_a_request_that_has_not_left_was_not_sent() -> None:
    async with FakeCluster(1) as cluster, AsyncClient.connect(cluster.bootstrap) as client:
        cluster.create("t")
        await client.known_topic("t")
        connection = await client.connections.to(NODE)
        before = connection.send_nowait(wire.MetadataRequest([]))
        await asyncio.sleep(0)  # what this turn of the loop sends goes out together, at its end
        after = connection.send_nowait(wire.MetadataRequest([]))
        connection.abort("cut")
        assert isinstance(before.exception(), RpcDisconnected)
        assert isinstance(after.exception(), RpcNotSent)
