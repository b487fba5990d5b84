"""Checks each request of the Kafka listener against its row of `kafkalite.security.requirements`, before its handler.

A need for the whole request refuses it here. What is refused one by one is noted in `request.denied`: the handler
leaves it alone and answers with the code. What an answer lists is filtered by the handler, which knows the names.
A cluster without an authorizer has no guard at all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.coordinators.services import Services
from kafkalite.env.turns import at_once
from kafkalite.errors import ErrorCode
from kafkalite.kafka.apis import refusal
from kafkalite.kafka.request import Denied, Request
from kafkalite.lazy_dataclass import dataclass
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.security.access import Access
from kafkalite.security.acl import CLUSTER_NAME, ResourceType
from kafkalite.security.requirements import KAFKA, REFUSALS, Need, Scope

#: (services, message, version) -> the names of the resources of one type that the request is about.
Names = Callable[[Services, Any, int], Iterable[str]]

if TYPE_CHECKING:  # the classes are made when a request of their kind comes
    _ConfigRequest = wire.DescribeConfigsRequest | wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest

_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_TOPIC_RESOURCE = 2
_GROUP_RESOURCE = 32
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
#: Clients show these, where the answer has room for a text.
_TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
#: Byte 21 of a batch: its attributes; this bit of them says that it belongs to a transaction.
_ATTRIBUTES = slice(21, 23)
_IS_TRANSACTIONAL = 0x10


def _of(attribute: str, name: str = "name") -> Names:
    """The names of the structs in a list of the message."""

    def names(services: Services, message: Any, version: int) -> Iterable[str]:
        return (getattr(each, name) for each in getattr(message, attribute) or ())

    return names


def _one(attribute: str) -> Names:
    def names(services: Services, message: Any, version: int) -> Iterable[str]:
        value = getattr(message, attribute)
        return () if value is None else (value,)

    return names


def _listed(attribute: str) -> Names:
    return lambda services, message, version: getattr(message, attribute)


def _known_names(services: Services, topics: Iterable[Any], attribute: str) -> Iterator[str]:
    """Names of topics that are asked for by name or by id; ids that nobody knows have no name. One at a time: there may be 100,000."""
    for topic in topics:
        if topic.topic_id == ZERO_UUID:
            yield getattr(topic, attribute) or ""
        elif (name := services.topic_name(topic_ids.from_wire(topic.topic_id))) is not None:
            yield name


def _names_of_ids(services: Services, topics: Iterable[Any]) -> list[str]:
    """Names of topics that are asked for by id; ids that nobody knows have no name."""
    names = (services.topic_name(topic_ids.from_wire(topic.topic_id)) for topic in topics)
    return [name for name in names if name is not None]


def _produced_transaction(services: Services, message: wire.ProduceRequest, version: int) -> Iterable[str]:
    """The transactional id, if there is any batch of a transaction; without an id such a batch is nobody's ("")."""
    for topic in message.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            attributes = bytes(records[_ATTRIBUTES]) if records else b""
            if len(attributes) == 2 and int.from_bytes(attributes) & _IS_TRANSACTIONAL:
                return (message.transactional_id or "",)
    return ()


def _offset_fetch_groups(services: Services, message: wire.OffsetFetchRequest, version: int) -> Iterable[str]:
    return [group.group_id for group in message.groups] if version >= 8 else (message.group_id,)


def _offset_fetch_topics(services: Services, message: wire.OffsetFetchRequest, version: int) -> Iterable[str]:
    if version < 8:
        return [topic.name for topic in message.topics or ()]
    return [name for group in message.groups for name in _known_names(services, group.topics or (), "name")]


def _coordinator_keys(key_type: int) -> Names:
    def names(services: Services, message: wire.FindCoordinatorRequest, version: int) -> Iterable[str]:
        if message.key_type != key_type:
            return ()
        keys: Iterable[str] = message.coordinator_keys if version >= 4 else (message.key,)
        return keys

    return names


def _deleted_topics(services: Services, message: wire.DeleteTopicsRequest, version: int) -> Iterable[str]:
    return _known_names(services, message.topics, "name") if version >= 6 else message.topic_names


def _idempotence(services: Services, message: wire.InitProducerIdRequest, version: int) -> Iterable[str]:
    return (CLUSTER_NAME,) if message.transactional_id is None else ()


def _config_topics(services: Services, message: _ConfigRequest, version: int) -> Iterable[str]:
    return [each.resource_name for each in message.resources if each.resource_type == _TOPIC_RESOURCE]


def _config_cluster(services: Services, message: _ConfigRequest, version: int) -> Iterable[str]:
    others = (_TOPIC_RESOURCE, _GROUP_RESOURCE)
    return [CLUSTER_NAME for each in message.resources if each.resource_type not in others]


def _config_groups(services: Services, message: _ConfigRequest, version: int) -> Iterable[str]:
    return [each.resource_name for each in message.resources if each.resource_type == _GROUP_RESOURCE]


def _topology_topics(services: Services, message: wire.StreamsGroupHeartbeatRequest, version: int) -> Iterable[str]:
    if message.topology is None:
        return ()
    return {
        name
        for each in message.topology.subtopologies
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    }


def _cluster(services: Services, message: Any, version: int) -> Iterable[str]:
    return (CLUSTER_NAME,)


#: Where each API names its resources, for the rows that do not name the cluster, a group_id or a transactional_id.
_NAMES: dict[tuple[str, ResourceType], Names] = {
    ("Produce", _TRANSACTION): _produced_transaction,
    ("Produce", _TOPIC): lambda services, message, version: _known_names(services, message.topic_data, "name"),
    ("Fetch", _TOPIC): lambda services, message, version: _known_names(services, message.topics, "topic"),
    ("ListOffsets", _TOPIC): _of("topics"),
    ("Metadata", _TOPIC): lambda services, message, version: _known_names(services, message.topics or (), "name"),
    ("OffsetCommit", _TOPIC): lambda services, message, version: _known_names(services, message.topics, "name"),
    ("OffsetFetch", _GROUP): _offset_fetch_groups,
    ("OffsetFetch", _TOPIC): _offset_fetch_topics,
    ("FindCoordinator", _GROUP): _coordinator_keys(_GROUP_KEY),
    ("FindCoordinator", _TRANSACTION): _coordinator_keys(_TRANSACTION_KEY),
    ("DescribeGroups", _GROUP): _listed("groups"),
    ("ConsumerGroupDescribe", _GROUP): _listed("group_ids"),
    ("ConsumerGroupHeartbeat", _TOPIC): lambda services, message, version: message.subscribed_topic_names or (),
    ("StreamsGroupDescribe", _GROUP): _listed("group_ids"),
    ("StreamsGroupHeartbeat", _TOPIC): _topology_topics,
    ("ShareGroupDescribe", _GROUP): _listed("group_ids"),
    ("ShareGroupHeartbeat", _TOPIC): lambda services, message, version: message.subscribed_topic_names or (),
    ("DescribeShareGroupOffsets", _GROUP): lambda services, message, version: [
        group.group_id for group in message.groups
    ],
    ("DescribeShareGroupOffsets", _TOPIC): lambda services, message, version: (
        topic.topic_name for group in message.groups for topic in group.topics or ()
    ),
    ("AlterShareGroupOffsets", _TOPIC): _of("topics", "topic_name"),
    ("DeleteShareGroupOffsets", _TOPIC): _of("topics", "topic_name"),
    ("ShareFetch", _GROUP): lambda services, message, version: (message.group_id or "",),
    ("ShareAcknowledge", _GROUP): lambda services, message, version: (message.group_id or "",),
    ("ShareFetch", _TOPIC): lambda services, message, version: _names_of_ids(services, message.topics),
    ("ShareAcknowledge", _TOPIC): lambda services, message, version: _names_of_ids(services, message.topics),
    ("CreateTopics", _TOPIC): _of("topics"),
    ("DeleteTopics", _TOPIC): _deleted_topics,
    ("DeleteRecords", _TOPIC): _of("topics"),
    ("InitProducerId", _CLUSTER): _idempotence,
    ("OffsetForLeaderEpoch", _TOPIC): _of("topics", "topic"),
    ("AddPartitionsToTxn", _TRANSACTION): _one("v3_and_below_transactional_id"),
    ("AddPartitionsToTxn", _TOPIC): _of("v3_and_below_topics"),
    ("TxnOffsetCommit", _TOPIC): lambda services, message, version: _known_names(services, message.topics, "name"),
    ("DescribeConfigs", _TOPIC): _config_topics,
    ("DescribeConfigs", _CLUSTER): _config_cluster,
    ("DescribeConfigs", _GROUP): _config_groups,
    ("AlterConfigs", _TOPIC): _config_topics,
    ("AlterConfigs", _CLUSTER): _config_cluster,
    ("AlterConfigs", _GROUP): _config_groups,
    ("IncrementalAlterConfigs", _TOPIC): _config_topics,
    ("IncrementalAlterConfigs", _CLUSTER): _config_cluster,
    ("IncrementalAlterConfigs", _GROUP): _config_groups,
    ("CreatePartitions", _TOPIC): _of("topics"),
    ("DeleteGroups", _GROUP): _listed("groups_names"),
    ("OffsetDelete", _TOPIC): _of("topics"),
    ("DescribeProducers", _TOPIC): _of("topics"),
    ("DescribeTransactions", _TRANSACTION): _listed("transactional_ids"),
    ("DescribeTopicPartitions", _TOPIC): _of("topics"),
}
_DEFAULT_NAMES: dict[ResourceType, Names] = {
    _CLUSTER: _cluster,
    _GROUP: _one("group_id"),
    _TRANSACTION: _one("transactional_id"),
}


@dataclass(frozen=True, slots=True)
class _Check:
    need: Need
    names: Names


def _checks(api: str) -> tuple[_Check, ...] | None:
    """A row with its names; None: there is no row. Silent needs, other users' tokens, and topics to be created are the handlers'."""
    row = KAFKA.get(api)
    if row is None:
        return None
    found: list[_Check] = []
    for need in row:
        is_first_of_type = all(check.need.resource_type is not need.resource_type for check in found)
        if need.scope in (Scope.HIDE, Scope.OTHERS) or (api == "Metadata" and not is_first_of_type):
            continue
        names = _NAMES.get((api, need.resource_type)) or _DEFAULT_NAMES[need.resource_type]
        found.append(_Check(need, names))
    return tuple(found)


def _note(request: Request, denied: Mapping[ResourceType, frozenset[str]]) -> None:
    if denied:
        keys = denied.get(_GROUP, frozenset()) | denied.get(_TRANSACTION, frozenset())
        request.denied = Denied(denied.get(_TOPIC, frozenset()), keys, _CLUSTER in denied)


class Guard:
    """See the module."""

    def __init__(self, services: Services, access: Access) -> None:
        self._services = services
        self._access = access
        self._rows: dict[str, tuple[_Check, ...] | None] = {}

    def check(self, request: Request, message: Any) -> Any:
        """The answer that refuses the request; None: it may go on, apart from `request.denied`."""
        return at_once(self.checking(request, message))

    def checking(self, request: Request, message: Any) -> Generator[None, None, Any]:
        """As `check`, in steps: of a request with very many elements that is not cut."""
        api = request.api
        assert api is not None
        if api.name not in self._rows:
            self._rows[api.name] = _checks(api.name)
        row = self._rows[api.name]
        if row is None:
            return self._refusal(request, message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        denied: dict[ResourceType, frozenset[str]] = {}
        for check in row:
            need = check.need
            if request.version not in need.versions:
                continue
            names = yield from self._access.denying(
                request, need, check.names(self._services, message, request.version)
            )
            if not names:
                continue
            if need.scope is Scope.WHOLE:
                return self._refusal(request, message, REFUSALS[need.resource_type])
            denied[need.resource_type] = names
        _note(request, denied)
        return None

    def _refusal(self, request: Request, message: Any, code: ErrorCode) -> Any:
        assert request.api is not None
        return refusal(request.api, message, request.version, code, _TEXTS[code])
