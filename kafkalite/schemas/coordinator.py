"""The schema registry of the cluster: the leader of `_schemas` decides, each node takes requests and passes them on.

A change is acknowledged when its record is committed. If that is not certain, the state is loaded from the log again, which
waits until all of it is committed: what was acknowledged or seen once is not lost with a leader.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

from kafkalite.coordinators.internal_log import InternalLog, KeyValue
from kafkalite.coordinators.services import Services
from kafkalite.env.fair_executor import FairExecutor
from kafkalite.env.fair_queue import Owner
from kafkalite.env.turns import Slices, Turns
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import SCHEMA_TOPIC, BrokerId, LeaderEpoch, Offset
from kafkalite.record.batch import BatchHeader
from kafkalite.record.reader import EndTransactionMarker, Record
from kafkalite.rpc.messages.base import Message
from kafkalite.rpc.messages.schemas import SchemaRegistryRequest, SchemaRegistryResponse
from kafkalite.schemas import rest
from kafkalite.schemas.errors import RegistryError
from kafkalite.schemas.registry import OffLoop, SubjectRegistry
from kafkalite.schemas.subjects import Subjects
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.principal import Principal
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

_PARTITION = 0
#: How long a request waits for a coordinator, or for its answer, and the pause between attempts.
_PATIENCE_S = 8.0
_RETRY_S = 0.05
#: Errors after which another node, or the same one a moment later, may answer.
_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
#: Requests that are under way at a node, of all users and of one user at one address; more are refused.
_MAX_REQUESTS, _MAX_OF_ONE = 64, 48

#: For whom this task works.
_client: ContextVar[Owner] = ContextVar("_client", default=("", ""))

AskNode = Callable[[BrokerId, Message, float], Awaitable[Message | KafkaliteError]]


@dataclass(frozen=True, slots=True)
class RegistryUser:
    """The user of the request (a Subject of the authorizer)."""

    principal: Principal
    client_host: str


class SchemaRegistry:
    """One per node.

    Args:
        ask: asks another node, within seconds; returns its response or an error.
        off_loop: runs a function in a thread. Parsers and comparisons are pure Python and take the interpreter from the event
            loop, so one runs at a time, clients in turn.
    """

    def __init__(self, services: Services, ask: AskNode, off_loop: OffLoop) -> None:
        self._services = services
        self._ask = ask
        self._executor = FairExecutor(off_loop, services.clock, at_once=1)
        self._log: InternalLog[SubjectRegistry] = InternalLog(
            services, SCHEMA_TOPIC, self._made, self._replay, lambda _: None, lambda _: None, when_committed=True
        )
        self._turns = Turns(services.clock.monotonic)
        self._under_way: Counter[Owner] = Counter()
        self._repeats = Repeats(services.clock.monotonic)

    def start(self) -> None:
        """Coordinate when this node leads the topic."""
        self._services.supervisor.spawn("schemas.leadership", self._log.run())

    # --- any node ---------------------------------------------------------------------------------

    async def serve(self, request: SchemaRegistryRequest) -> SchemaRegistryResponse:
        """The coordinator's answer to a client's request, wherever the coordinator is."""
        client = (request.principal, request.client_host)
        if self._under_way.total() >= _MAX_REQUESTS or self._under_way[client] >= _MAX_OF_ONE:
            return _failed(RegistryError(503, "too many requests at once"))
        self._under_way[client] += 1
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._passed_on(request)
        except TimeoutError:
            return _failed(RegistryError(50003, "no node coordinates the schema registry at present"))
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]

    async def _passed_on(self, request: SchemaRegistryRequest) -> SchemaRegistryResponse:
        while True:
            if not self._log.partition_count() and request.method == "GET":
                return await self._answered(self._empty(), request)  # nothing was ever registered
            try:
                owner = (await self._log.coordinator_of(SCHEMA_TOPIC)).broker_id
            except KafkaliteError as error:
                _log.debug("schemas.no_coordinator", error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if owner == self._services.broker_id:
                answer: Message | KafkaliteError = await self.coordinate(request)
            else:
                answer = await self._ask(owner, request, _PATIENCE_S)
            if isinstance(answer, SchemaRegistryResponse) and answer.error not in _AGAIN:
                return answer
            if not isinstance(answer, SchemaRegistryResponse) and request.method == "DELETE":
                # It may have been done, and the same again would be an error. A registration that is repeated gets its id.
                return _failed(RegistryError(50003, f"the node that coordinates the registry did not answer: {answer}"))
            await asyncio.sleep(_RETRY_S)

    # --- the coordinator --------------------------------------------------------------------------

    async def coordinate(self, request: SchemaRegistryRequest) -> SchemaRegistryResponse:
        """Answer on this node if it coordinates."""
        try:
            registry = self._log.state_of(_PARTITION)
        except ApiError as error:
            return SchemaRegistryResponse(int(error.code))
        return await self._answered(registry, request)

    async def _answered(self, registry: SubjectRegistry, request: SchemaRegistryRequest) -> SchemaRegistryResponse:
        client = RegistryUser(Principal.parse(request.principal), request.client_host)
        _client.set((request.principal, request.client_host))
        access = self._services.rights.access
        slices = Slices(self._turns, (request.principal, request.client_host))

        async def pause() -> None:
            if slices.is_over:
                await slices.next()

        def may(operation: Operation, resource_type: ResourceType, name: str = "", /) -> bool:
            if resource_type is ResourceType.CLUSTER:
                return access.may(client, operation, resource_type, is_logged=False)
            return access.may(client, operation, resource_type, name, is_logged=False)

        asked = rest.RestRequest(request.method, request.path, request.query, request.body.encode())
        try:
            value = await rest.answer(registry, asked, may, pause)
        except RegistryError as error:
            return _failed(error)
        except ApiError as error:
            return SchemaRegistryResponse(int(error.code))
        if isinstance(value, rest.Raw):
            return SchemaRegistryResponse(0, 200, rest.CONTENT_TYPE, value.text)
        if not isinstance(value, list):
            return SchemaRegistryResponse(0, 200, rest.CONTENT_TYPE, json.dumps(value, ensure_ascii=False))
        parts = []
        for each in value:
            await pause()
            parts.append(json.dumps(each, ensure_ascii=False))
        return SchemaRegistryResponse(0, 200, rest.CONTENT_TYPE, f"[{', '.join(parts)}]")

    # --- the log ----------------------------------------------------------------------------------

    async def _off_loop(self, function: Callable[[], object]) -> object:
        return (await self._executor.run(_client.get(), function))[0]

    def _empty(self) -> SubjectRegistry:
        async def refuse(records: Sequence[KeyValue]) -> None:
            raise api_error(ErrorCode.NOT_COORDINATOR)

        return SubjectRegistry(Subjects(), refuse, self._off_loop)

    def _made(self, partition: int, leader_epoch: LeaderEpoch) -> SubjectRegistry:
        async def append(records: Sequence[KeyValue]) -> None:
            await self._append(partition, registry, records)

        registry = SubjectRegistry(Subjects(), append, self._off_loop)
        return registry

    def _replay(
        self, registry: SubjectRegistry, header: BatchHeader, records: list[Record], marker: EndTransactionMarker | None
    ) -> None:
        for record in records:
            try:
                registry.state.replay(
                    None if record.key is None else bytes(record.key),
                    None if record.value is None else bytes(record.value),
                )
            except ValueError as error:
                if (suppressed := self._repeats.admit("schemas.record_ignored")) is not None:
                    _log.warning(
                        "schemas.record_ignored", offset=record.offset, error=str(error), suppressed=suppressed
                    )

    async def _append(self, partition: int, registry: SubjectRegistry, records: Sequence[KeyValue]) -> None:
        """Raises RegistryError; ApiError NOT_COORDINATOR if what the change was decided on is no longer what is loaded."""
        if self._log.state_of(partition) is not registry:
            raise api_error(ErrorCode.NOT_COORDINATOR)
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def finished(error: ErrorCode, offset: Offset) -> None:
            if not done.done():
                done.set_result(error)

        self._log.append(partition, registry, records, finished)
        try:
            error = await done
        except asyncio.CancelledError:  # the request's time is up: the records may be committed nevertheless
            self._log.reload(partition)
            raise
        if error:
            self._log.reload(partition)
            raise RegistryError(50001, f"the change may not be stored: {error.name}")


def _failed(error: RegistryError) -> SchemaRegistryResponse:
    body = json.dumps({"error_code": error.code, "message": str(error)})
    return SchemaRegistryResponse(0, error.status, rest.CONTENT_TYPE, body)
