"""Reaches the share coordinator of a key, on this node or another one (KIP-932): `SharePersister` for the whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.shares.channels import ShareApi, ShareChannels
from kafkalite.coordinators.shares.coordinator import ShareCoordinator, ShareSummary
from kafkalite.coordinators.shares.delivery_states import StateBatch
from kafkalite.coordinators.shares.persistence import ShareKey, ShareState
from kafkalite.coordinators.shares.records import batches_of, wire_batches
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.model import Offset
from kafkalite.protocol import wire
from kafkalite.rpc.messages.control import Broker

#: A request is repeated for this long while its coordinator changes or cannot be reached.
_PATIENCE_S = 15.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_AGAIN = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)

_Answer = TypeVar("_Answer")


def _nothing(_: Any) -> None:
    return None


def _state(partition: Any) -> ShareState:
    return ShareState(partition.state_epoch, -1, Offset(partition.start_offset), batches_of(partition.state_batches))


def _summary(partition: Any) -> ShareSummary:
    return ShareSummary(
        partition.state_epoch, partition.leader_epoch, Offset(partition.start_offset), partition.delivery_complete_count
    )


_INITIALIZE = ShareApi("InitializeShareGroupState", 0, "InitializeStateData", _nothing)
_READ = ShareApi("ReadShareGroupState", 0, "ReadStateData", _state)
_WRITE = ShareApi("WriteShareGroupState", 1, "WriteStateData", _nothing)
_DELETE = ShareApi("DeleteShareGroupState", 0, "DeleteStateData", _nothing)
_SUMMARY = ShareApi("ReadShareGroupStateSummary", 1, "ReadStateSummaryData", _summary)


class ClusterSharePersister:
    """See the module, and SharePersister. What it raises after its patience is the last error."""

    def __init__(self, services: Services, coordinator: ShareCoordinator) -> None:
        self._services = services
        self._coordinator = coordinator
        self._channels = ShareChannels(services)

    def close(self) -> None:
        """Give up the connections."""
        self._channels.close()

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: Offset) -> None:
        """See SharePersister."""
        await self._ask(
            key,
            lambda: self._coordinator.initialize(key, state_epoch, start_offset),
            lambda broker: self._channels.ask(broker, _INITIALIZE, key, state_epoch, start_offset),
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """See SharePersister."""
        state = await self._ask(
            key,
            lambda: self._coordinator.read(key, leader_epoch),
            lambda broker: self._channels.ask(broker, _READ, key, leader_epoch),
        )
        return state._replace(leader_epoch=leader_epoch)

    async def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, start_offset: Offset, batches: Sequence[StateBatch]
    ) -> None:
        """See SharePersister."""
        elements = wire_batches(wire.WriteShareGroupStateRequest.StateBatch, batches)
        await self._ask(
            key,
            lambda: self._coordinator.write(key, state_epoch, leader_epoch, start_offset, batches),
            # The count of what is delivered, -1, is the coordinator's to say: it has all batches.
            lambda broker: self._channels.ask(
                broker, _WRITE, key, state_epoch, leader_epoch, start_offset, -1, elements
            ),
        )

    async def delete(self, key: ShareKey) -> None:
        """See SharePersister."""
        await self._ask(
            key, lambda: self._coordinator.delete(key), lambda broker: self._channels.ask(broker, _DELETE, key)
        )

    async def start_offset(self, key: ShareKey) -> Offset:
        """See SharePersister."""
        return (await self.summary(key)).start_offset

    async def summary(self, key: ShareKey) -> ShareSummary:
        """The start offset is -1 if there is no state. Raises ApiError."""
        return await self._ask(
            key,
            lambda: self._coordinator.summary(key),
            lambda broker: self._channels.ask(broker, _SUMMARY, key, -1),
        )

    async def _ask(
        self, key: ShareKey, here: Callable[[], Awaitable[_Answer]], there: Callable[[Broker], Awaitable[_Answer]]
    ) -> _Answer:
        clock = self._services.clock
        until = clock.monotonic() + _PATIENCE_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                broker = await self._coordinator.coordinator_of(key)
                if broker.broker_id == self._services.broker_id:
                    return await here()
                return await there(broker)
            except ApiError as error:
                failure = error
            except (OSError, CoordinatorError) as error:
                failure = api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
            if failure.code not in _AGAIN or clock.monotonic() + pause_s > until:
                raise failure
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
