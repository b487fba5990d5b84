"""Requests that another node forwards for a user."""

from __future__ import annotations

import asyncio

import pytest

from kafkalite.errors import ApiError, ErrorCode
from kafkalite.kafka.forwarded import Forwarded
from kafkalite.rpc.messages.forwarding import ForwardRequest

from .conftest import Broker, batch, produce


async def test_a_request_that_has_no_response_is_refused(broker: Broker) -> None:
    await broker.create("t")
    client = await broker.client()
    frame = client.frame(produce("t", (0, batch(b"a")), acks=0), 9)
    forwarded = Forwarded(broker.side.listener, "PLAINTEXT")
    async with asyncio.timeout(150):
        with pytest.raises(ApiError, match="no response") as raised:
            await forwarded.answer(ForwardRequest("User:a", "127.0.0.1"), frame[4:])
    assert raised.value.code is ErrorCode.INVALID_REQUEST
