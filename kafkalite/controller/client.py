"""Requests from a broker to the node that is the controller: ISR notices and controlled shutdowns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kafkalite.errors import ApiError, ErrorCode, KafkaliteError
from kafkalite.model import BrokerEpoch, BrokerId, TopicPartition
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.control import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    IsrChange,
    IsrChangedRequest,
    IsrChangedResponse,
)
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

_RETRY_S = 0.2
_CALL_TIMEOUT_S = 5.0

#: Sends a request to the present controller; raises KafkaliteError or OSError when there is none or it does not answer.
CallController = Callable[[Message, float], Awaitable[Message]]


class ControllerClient:
    """Sends the controller ISR changes until it has answered, the newest per partition.

    The change itself is durable in ZooKeeper already (invariant F7); the notice only announces it. So a notice that
    was superseded is dropped, and memory is bounded by the number of partitions led here.
    """

    def __init__(self, call: CallController, identity: Callable[[], tuple[BrokerId, BrokerEpoch]]) -> None:
        self._call = call
        self._identity = identity
        self._pending: dict[TopicPartition, IsrChange] = {}
        self._wake = asyncio.Event()

    def notify_isr(self, changes: Sequence[IsrChange]) -> None:
        """Queue notices; returns at once."""
        for change in changes:
            self._pending[TopicPartition(change.topic, change.partition)] = change
        self._wake.set()

    async def run(self) -> None:
        """Send what is queued, in one request at a time; for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch, self._pending = self._pending, {}
                broker_id, broker_epoch = self._identity()
                request = IsrChangedRequest(broker_id, broker_epoch, tuple(batch.values()))
                try:
                    answer = await self._call(request, _CALL_TIMEOUT_S)
                    assert isinstance(answer, IsrChangedResponse)
                    if answer.error == ErrorCode.NONE:
                        continue
                    if answer.error == ErrorCode.STALE_BROKER_EPOCH:
                        continue  # a notice of an earlier broker epoch: the controller reads the states itself
                except (KafkaliteError, OSError, TimeoutError) as error:
                    _log.debug("isr_notice.not_delivered", error=repr(error), partitions=len(batch))
                # A newer notice for the same partition, queued meanwhile, wins.
                self._pending = batch | self._pending
                await asyncio.sleep(_RETRY_S)

    async def controlled_shutdown(self, patience_s: float, somebody_answers: Callable[[], Awaitable[bool]]) -> bool:
        """Ask the controller to move all leadership away; whether nothing remained within `patience_s`.

        A node that nobody answers has nobody to move it to, whatever ZooKeeper says of the others, and does not wait. The same holds if every
        live node is stopping.
        """
        broker_id, broker_epoch = self._identity()
        request = ControlledShutdownRequest(broker_id, broker_epoch)
        try:
            async with asyncio.timeout(patience_s):
                while await somebody_answers():
                    try:
                        answer = await self._call(request, _CALL_TIMEOUT_S)
                        assert isinstance(answer, ControlledShutdownResponse)
                        if answer.error == ErrorCode.NONE and not answer.remaining:
                            return True
                        _log.info("controlled_shutdown.waits", remaining=len(answer.remaining), error=answer.error)
                        if answer.is_last:
                            return False
                    except (ApiError, KafkaliteError, OSError) as error:
                        _log.info("controlled_shutdown.retries", error=repr(error))
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            pass
        return False
