"""InitProducerId, the transaction APIs, FindCoordinator. Translation only; see `kafkalite.coordinators.transactions`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafkalite.coordinators.groups.coordinator import GroupCoordinator
from kafkalite.coordinators.internal_log import partition_of
from kafkalite.coordinators.patterns import full_match, matching_texts, text_pieces
from kafkalite.coordinators.services import Services
from kafkalite.coordinators.transactions.coordinator import TransactionCoordinator
from kafkalite.coordinators.transactions.markers import LocalMarkers, Marker
from kafkalite.coordinators.transactions.state import BUMPING_VERSION, TransactionState
from kafkalite.env.side_by_side import SideBySide
from kafkalite.errors import ApiError, ErrorCode, api_error
from kafkalite.kafka.node_requests import may_be_node
from kafkalite.kafka.request import Handler, Request
from kafkalite.kafka.stepped import STEP, Steps, in_slices, sliced
from kafkalite.kafka.topic_names import described
from kafkalite.model import GROUP_TOPIC, INTERNAL_TOPICS, ProducerId, TopicPartition, numbers_by_topic
from kafkalite.protocol import wire
from kafkalite.security.acl import Operation, ResourceType
from kafkalite.security.requirements import KAFKA

if TYPE_CHECKING:
    from kafkalite.coordinators.shares.coordinator import ShareCoordinator

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
#: The version of FindCoordinator that knows coordinators of share groups (KIP-932).
_SHARES_FROM = 6
#: From this version on EndTxn bumps the epoch, and AddPartitionsToTxn knows TRANSACTION_ABORTABLE (KIP-890).
_BUMPS_FROM = 5
_ABORTABLE_FROM = 5
#: From this version on AddPartitionsToTxn comes from nodes, for several transactions at once.
_BATCHED_FROM = 4
#: How long the first partitions of a transaction wait for the markers of the one before. With CONCURRENT_TRANSACTIONS clients would
#: come again 20 ms later, and librdkafka takes an abort in between for a fatal error, since it is sent while none is open.
_MARKERS_PATIENCE_S = 0.1
_, _DESCRIBE_TOPIC = KAFKA["DescribeTransactions"]
[_LIST_TRANSACTION] = KAFKA["ListTransactions"]
#: A state of Kafka through which no transaction goes here.
_FENCING = "PrepareEpochFence"


class TransactionHandlers:
    def __init__(
        self,
        services: Services,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        markers: LocalMarkers,
        shares: Callable[[], ShareCoordinator],
    ) -> None:
        self._services = services
        self._shares = shares
        self._groups = groups
        self._transactions = transactions
        self._markers = markers
        self._access = services.rights.access

    def table(self) -> dict[str, Handler]:
        return {
            "FindCoordinator": self.find_coordinator,
            "InitProducerId": self.init_producer_id,
            "AddPartitionsToTxn": self.add_partitions,
            "AddOffsetsToTxn": self.add_offsets,
            "EndTxn": self.end,
            "WriteTxnMarkers": self.write_markers,
            "DescribeTransactions": self.describe,
            "ListTransactions": self.list_transactions,
        }

    # --- who coordinates ---

    async def find_coordinator(
        self, request: Request, message: wire.FindCoordinatorRequest
    ) -> wire.FindCoordinatorResponse:
        response = wire.FindCoordinatorResponse
        denied = request.denied.keys
        refusals = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if denied and request.version < 4:
            raise api_error(refusals[message.key_type])
        if request.version < 4:
            node_id, host, port = await self._coordinator(request, message.key_type, message.key)
            return response(0, 0, None, node_id, host, port)
        coordinators = []
        for key in message.coordinator_keys:
            try:
                if key in denied:
                    raise api_error(refusals[message.key_type])
                node_id, host, port = await self._coordinator(request, message.key_type, key)
            except ApiError as error:
                coordinators.append(response.Coordinator(key, -1, "", -1, int(error.code), str(error)))
            else:
                coordinators.append(response.Coordinator(key, node_id, host, port, 0, None))
        return response(coordinators=coordinators)

    async def _coordinator(self, request: Request, key_type: int, key: str) -> tuple[int, str, int]:
        """(broker id, host, port) on the listener of the request."""
        if key_type == _GROUP:
            broker = await self._groups.log.coordinator_of(key)
        elif key_type == _TRANSACTION:
            broker = await self._transactions.coordinator_of(key)
        elif key_type == _SHARE and request.version >= _SHARES_FROM:
            # Of a node that wants to know, as Kafka's do: a coordinator of state, not of the group.
            if not may_be_node(self._services, request):
                raise api_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            from kafkalite.coordinators.shares.coordinator import share_key  # loaded only where share groups are used

            broker = await self._shares().coordinator_of(share_key(key))
        else:
            raise api_error(ErrorCode.INVALID_REQUEST, "a coordinator of neither groups, transactions nor shared state")
        endpoint = broker.kafka_on(request.listener_name)
        if endpoint is None:
            raise api_error(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"broker {broker.broker_id} has no listener {request.listener_name}",
            )
        return broker.broker_id, endpoint.host, endpoint.port

    # --- producers ---

    async def init_producer_id(
        self, request: Request, message: wire.InitProducerIdRequest
    ) -> wire.InitProducerIdResponse:
        try:
            producer_id, epoch = await self._transactions.init_producer(
                message.transactional_id,
                message.transaction_timeout_ms,
                (message.producer_id, message.producer_epoch),
            )
        except ApiError as error:
            return wire.InitProducerIdResponse(0, _fenced(error.code, is_old=request.version < 4), -1, -1)
        return wire.InitProducerIdResponse(0, 0, producer_id, epoch)

    async def add_partitions(
        self, request: Request, message: wire.AddPartitionsToTxnRequest
    ) -> wire.AddPartitionsToTxnResponse:
        request_type, response = wire.AddPartitionsToTxnRequest, wire.AddPartitionsToTxnResponse
        if request.version < _BATCHED_FROM:
            txn = request_type.AddPartitionsToTxnTransaction(
                message.v3_and_below_transactional_id,
                message.v3_and_below_producer_id,
                message.v3_and_below_producer_epoch,
                topics=message.v3_and_below_topics,
            )
            return response(results_by_topic_v3_and_below=await self._add(request, txn))
        # Side by side: each that adds waits for replication.
        async with SideBySide() as tasks:
            found = [tasks.create_task(self._add(request, txn)) for txn in message.transactions]
        return response(
            results_by_transaction=[
                response.AddPartitionsToTxnResult(txn.transactional_id, task.result())
                for txn, task in zip(message.transactions, found, strict=True)
            ]
        )

    async def _add(
        self, request: Request, txn: wire.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    ) -> list[wire.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
        is_of_client = request.version < _BATCHED_FROM
        producer = (txn.transactional_id, txn.producer_id, txn.producer_epoch)
        wanted, codes = await in_slices(request, self._sorted_out(request, txn))
        code = 0
        if codes:
            # All or nothing: the others were not attempted.
            code = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
        else:
            try:
                if txn.verify_only:
                    codes = await in_slices(request, self._verified(request, producer, wanted))
                else:
                    await self._transactions.add_partitions(
                        *producer,
                        wanted,
                        client_version=0 if is_of_client else BUMPING_VERSION,
                        patience_s=_MARKERS_PATIENCE_S if is_of_client else 0.0,
                    )
            except ApiError as error:
                codes, code = {}, _fenced(error.code, is_old=request.version < 2)
        return await in_slices(request, _added(txn, codes, code))

    def _sorted_out(
        self, request: Request, txn: wire.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    ) -> Steps[tuple[list[TopicPartition], dict[TopicPartition, int]]]:
        """All partitions that are named, and the codes of those that may not be added."""
        # Later versions come from nodes, whose group offsets lie in internal topics.
        is_of_client = request.version < _BATCHED_FROM
        denied = request.denied.topics | INTERNAL_TOPICS if is_of_client else request.denied.topics
        known = yield from described(self._services, list(dict.fromkeys(topic.name for topic in txn.topics)))
        wanted: list[TopicPartition] = []
        refused: dict[TopicPartition, int] = {}
        for topic in txn.topics:
            count = len(known[topic.name].partitions)
            for index in topic.partitions:
                key = TopicPartition(topic.name, index)
                wanted.append(key)
                if key.topic in denied:
                    refused[key] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif not 0 <= index < count:
                    refused[key] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if not len(wanted) % STEP:
                    yield
        return wanted, refused

    def _verified(
        self, request: Request, producer: tuple[str, int, int], wanted: Sequence[TopicPartition]
    ) -> Steps[dict[TopicPartition, int]]:
        """The code of each. Raises ApiError."""
        codes: dict[TopicPartition, int] = {}
        for number, key in enumerate(wanted, 1):
            code = self._transactions.verify_partition(*producer, key)
            if code is ErrorCode.INVALID_TXN_STATE and request.version >= _ABORTABLE_FROM:
                code = ErrorCode.TRANSACTION_ABORTABLE
            codes[key] = int(code)
            if not number % STEP:
                yield
        return codes

    async def add_offsets(self, request: Request, message: wire.AddOffsetsToTxnRequest) -> wire.AddOffsetsToTxnResponse:
        if not self._groups.log.partition_count():
            await self._groups.log.coordinator_of(message.group_id)  # creates the topic when it is first needed
        partitions = self._groups.log.partition_count()
        if not partitions:
            raise api_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        owner = TopicPartition(GROUP_TOPIC, partition_of(message.group_id, partitions))
        code = 0
        try:
            await self._transactions.add_partitions(
                message.transactional_id,
                message.producer_id,
                message.producer_epoch,
                [owner],
                patience_s=_MARKERS_PATIENCE_S,
            )
        except ApiError as error:
            code = _fenced(error.code, is_old=request.version < 2)
        return wire.AddOffsetsToTxnResponse(0, code)

    async def end(self, request: Request, message: wire.EndTxnRequest) -> wire.EndTxnResponse:
        bumps = request.version >= _BUMPS_FROM
        end = self._transactions.end_and_bump if bumps else self._transactions.end
        try:
            producer = await end(
                message.transactional_id, message.producer_id, message.producer_epoch, is_commit=message.committed
            )
        except ApiError as error:
            return wire.EndTxnResponse(0, _fenced(error.code, is_old=request.version < 2))
        return wire.EndTxnResponse(0, 0, *(producer or ()))

    # --- between nodes ---

    async def write_markers(
        self, request: Request, message: wire.WriteTxnMarkersRequest
    ) -> wire.WriteTxnMarkersResponse:
        if not may_be_node(self._services, request) and not self._may_alter(request):
            raise api_error(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "only nodes, and users that may ALTER the cluster, write markers",
            )
        response = wire.WriteTxnMarkersResponse
        found = await self._markers.write_all(
            [
                Marker(
                    ProducerId(marker.producer_id),
                    marker.producer_epoch,
                    marker.transaction_result,
                    marker.coordinator_epoch,
                    tuple(
                        TopicPartition(topic.name, index)
                        for topic in marker.topics
                        for index in topic.partition_indexes
                    ),
                    marker.transaction_version,
                )
                for marker in message.markers
            ]
        )
        return response(
            [
                response.WritableTxnMarkerResult(
                    marker.producer_id,
                    [
                        response.WritableTxnMarkerTopicResult(
                            topic.name,
                            [
                                response.WritableTxnMarkerPartitionResult(
                                    index, int(errors[TopicPartition(topic.name, index)])
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker, errors in zip(message.markers, found, strict=True)
            ]
        )

    def _may_alter(self, request: Request) -> bool:
        """Whether this is an operator that ends a hanging transaction. Without an authorizer no user counts as one."""
        is_known = self._access.authorizer is not None
        return is_known and self._access.may(request, Operation.ALTER, ResourceType.CLUSTER)

    # --- administration ---

    def describe(
        self, request: Request, message: wire.DescribeTransactionsRequest
    ) -> Steps[wire.DescribeTransactionsResponse]:
        response = wire.DescribeTransactionsResponse
        states = []
        work = 0
        is_visible = self._access.visible(request, _DESCRIBE_TOPIC)
        for transactional_id in dict.fromkeys(message.transactional_ids):
            try:
                if transactional_id in request.denied.keys:
                    raise api_error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                known = self._transactions.describe(transactional_id)
            except ApiError as error:
                states.append(response.TransactionState(int(error.code), transactional_id))
                continue
            work += len(known.partitions)
            if work >= STEP:
                work = 0
                yield
            topics = numbers_by_topic(sorted(known.partitions))
            states.append(
                response.TransactionState(
                    0,
                    transactional_id,
                    known.state.wire_name,
                    known.timeout_ms,
                    known.started_ms,
                    known.producer_id,
                    known.producer_epoch,
                    [response.TopicData(topic, indexes) for topic, indexes in topics.items() if is_visible(topic)],
                )
            )
        return response(transaction_states=states)

    async def list_transactions(
        self, request: Request, message: wire.ListTransactionsRequest
    ) -> wire.ListTransactionsResponse:
        names = {*(state.wire_name for state in TransactionState), _FENCING}
        found = await sliced(request, self._listed(request, message))
        if message.transactional_id_pattern:  # Kafka: an empty pattern means no pattern
            matching = await _matching(request, message.transactional_id_pattern, found)
            found = {name: found[name] for name in matching}
        return wire.ListTransactionsResponse(
            unknown_state_filters=[name for name in dict.fromkeys(message.state_filters) if name not in names],
            transaction_states=list(found.values()),
        )

    def _listed(
        self, request: Request, message: wire.ListTransactionsRequest
    ) -> Steps[dict[str, wire.ListTransactionsResponse.TransactionState]]:
        """By transactional id."""
        wanted, producers = set(message.state_filters), set(message.producer_id_filters)
        now = self._services.clock.wall_ms()
        is_visible = self._access.visible(request, _LIST_TRANSACTION)
        found: dict[str, wire.ListTransactionsResponse.TransactionState] = {}
        for known in self._transactions.transactions():
            yield
            name, state = known.transactional_id, known.state.wire_name
            if (
                (not wanted or state in wanted)
                and (not producers or known.producer_id in producers)
                and is_visible(name)
                # Kafka: an id without a transaction (-1) is older than any duration.
                and (message.duration_filter < 0 or now - known.started_ms > message.duration_filter)
            ):
                found[name] = wire.ListTransactionsResponse.TransactionState(name, known.producer_id, state)
        return found


async def _matching(request: Request, pattern: str, names: Iterable[str]) -> list[str]:
    """Off the loop: a pattern may take long, and so may a name. Raises ApiError INVALID_REGULAR_EXPRESSION."""
    matches = full_match(pattern)
    connection = request.connection
    found: list[str] = []
    for piece in text_pieces(names):
        matching, seconds = await connection.listener.executor.run(
            connection.owner, partial(matching_texts, matches, piece)
        )
        found += matching
        if request.throttle is not None:
            request.throttle.work_s += seconds
    return found


def _added(
    txn: wire.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, int], code: int
) -> Steps[list[wire.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]]:
    """What became of each partition; `code`: of those that `codes` does not have."""
    response = wire.AddPartitionsToTxnResponse
    topics = []
    number = 0
    for topic in txn.topics:
        results = []
        for index in topic.partitions:
            number += 1
            if not number % STEP:
                yield
            own = codes.get(TopicPartition(topic.name, index), code)
            results.append(response.AddPartitionsToTxnPartitionResult(index, own))
        topics.append(response.AddPartitionsToTxnTopicResult(topic.name, results))
    return topics


def _fenced(code: ErrorCode, *, is_old: bool) -> int:
    """Clients of before KIP-588 know a fenced producer under another code."""
    return int(ErrorCode.INVALID_PRODUCER_EPOCH if is_old and code is ErrorCode.PRODUCER_FENCED else code)
