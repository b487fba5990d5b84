"""The APIs that are served: their versions, their handlers, and how each refuses a whole request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.kafka.refusals import refuse
from kafkalite.kafka.request import Handler, ManyHandler, OfferedApi, Recall
from kafkalite.protocol.codec import ELEMENTS_AT_ONCE
from kafkalite.protocol.schema import schemas

#: Versions that are known and not advertised: their records are in formats before version 2.
_LOWEST = {"Fetch": 4}
#: API -> (lowest, highest) version advertised: every request of the schema. What is known below is refused politely.
OFFERED = {
    (api := name.removesuffix("Request")): (_LOWEST.get(api, schema.versions[0]), schema.versions[-1])
    for name, schema in schemas().items()
    if name.endswith("Request")
}

#: Versions that are advertised and refused: librdkafka turns compression off unless Produce begins at 0
#: (KAFKA-18659), yet they carry message formats before version 2.
_REFUSED = {"Produce": range(3)}

#: Their answers say offsets, and a client takes the last one for the newest: an end offset from before the records of a fetch in front of
#: it makes a consumer's lag negative, and Kafka Streams then waits for the partition's next record.
_IN_TURN = frozenset({"ListOffsets", "OffsetForLeaderEpoch", "OffsetFetch"})

#: They change nothing: one whose client is gone is given up.
_READ_ONLY = frozenset({
    "ListOffsets", "Metadata", "OffsetFetch", "DescribeGroups", "ListGroups", "DescribeConfigs", "DescribeCluster",
    "DescribeLogDirs", "DescribeAcls", "DescribeClientQuotas", "DescribeProducers", "DescribeTransactions",
    "ListTransactions", "DescribeUserScramCredentials", "ListPartitionReassignments", "DescribeTopicPartitions",
    "ListConfigResources", "ConsumerGroupDescribe", "StreamsGroupDescribe", "ShareGroupDescribe",
    "DescribeShareGroupOffsets", "DescribeDelegationToken",
})  # fmt: skip


def is_served(name: str, version: int) -> bool:
    """Whether an advertised version of the API `name` is served (rather than refused)."""
    return version not in _REFUSED.get(name, ())


def refusal(api: OfferedApi, message: Any, version: int, code: ErrorCode, text: str) -> Any:
    """The answer that says `code` for everything the request asks for."""
    return refuse(api.name, message, version, code, text)


def make_apis(
    handlers: Mapping[str, Handler],
    many: Mapping[str, ManyHandler],
    recall: Mapping[str, Recall],
    in_place: Mapping[str, int],
) -> dict[int, OfferedApi]:
    """The table of APIs by key for those that have a handler. `many`, `recall`, `in_place`: see `OfferedApi`."""
    table: dict[int, OfferedApi] = {}
    for name, handler in handlers.items():
        request, response = schemas()[name + "Request"], schemas()[name + "Response"]
        low, high = OFFERED[name]
        table[request.api_key] = OfferedApi(
            key=request.api_key,
            name=name,
            versions=range(low, high + 1),
            served_versions=frozenset(version for version in range(low, high + 1) if is_served(name, version)),
            known_versions=frozenset(request.versions),
            flexible_requests=frozenset(version for version in request.versions if version in request.flexible),
            # KIP-511: a client that does not know the broker yet must be able to read this one's header.
            flexible_responses=frozenset(
                version for version in request.versions if version in response.flexible and name != "ApiVersions"
            ),
            handler=handler,
            many=many.get(name),
            recall=recall.get(name),
            in_place=in_place.get(name, ELEMENTS_AT_ONCE),
            is_in_turn=name in _IN_TURN,
            is_read_only=name in _READ_ONLY,
        )
    return table
