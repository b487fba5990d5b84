"""How each API refuses a request as a whole: the same error for everything that was asked for.

The response comes from its schema. Every `error_code` and `error_message` in it is set. A list in the response has one
element for each element of a list in the request (`_LISTS`), with what names it: its first field (a topic's name, a
partition's number) and the fields of `_COPIED`. All else has its default.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any

from kafkalite.errors import ErrorCode
from kafkalite.protocol.schema import Field, Struct, schemas
from kafkalite.protocol.structs import classes, default_of

#: API, then `list in the response=list in the request`. `a.b`: b of every a. `a,b`: those of a, then of b. `a|b`: the
#: same, each first field once. Nothing: null. `list:0-7`: in these versions. A list that is not named stays empty.
_LISTS = """
Produce responses=topic_data partition_responses=partition_data
Fetch responses:0-12=topics partitions=partitions
ListOffsets topics=topics partitions=partitions
OffsetForLeaderEpoch topics=topics partitions=partitions
DeleteRecords topics=topics partitions=partitions
Metadata topics=topics
DescribeTopicPartitions topics=topics
CreateTopics topics=topics
DeleteTopics responses=topic_names,topics
CreatePartitions results=topics
DescribeConfigs results=resources
AlterConfigs responses=resources
IncrementalAlterConfigs responses=resources
OffsetCommit topics=topics partitions=partitions
TxnOffsetCommit topics=topics partitions=partitions
OffsetFetch topics:0-1=topics partitions=partition_indexes groups=groups
FindCoordinator coordinators=coordinator_keys
DescribeGroups groups=groups
ConsumerGroupDescribe groups=group_ids
StreamsGroupDescribe groups=group_ids
DeleteGroups results=groups_names
AddPartitionsToTxn results_by_topic_v3_and_below=v3_and_below_topics results_by_partition=partitions
WriteTxnMarkers markers=markers topics=topics partitions=partition_indexes
ShareGroupDescribe groups=group_ids
DescribeShareGroupOffsets groups=groups topics=topics partitions=partitions
AlterShareGroupOffsets responses=topics partitions=partitions
InitializeShareGroupState results=topics partitions=partitions
ReadShareGroupState results=topics partitions=partitions
WriteShareGroupState results=topics partitions=partitions
DeleteShareGroupState results=topics partitions=partitions
ReadShareGroupStateSummary results=topics partitions=partitions
DescribeProducers topics=topics partitions=partition_indexes
DescribeTransactions transaction_states=transactional_ids
AlterUserScramCredentials results=deletions|upsertions
CreateAcls results=creations
DeleteAcls filter_results=filters
DescribeClientQuotas entries=
AlterClientQuotas entries=entries entity=entity
ElectLeaders replica_election_results=topic_partitions partition_result=partitions
AlterPartitionReassignments responses=topics partitions=partitions
ListPartitionReassignments topics=topics partitions=partition_indexes
UpdateFeatures results=feature_updates
AlterReplicaLogDirs results=dirs.topics partitions=partitions
"""
#: These fields name what was asked for.
_COPIED = frozenset({"name", "topic_id", "resource_name", "entity_name"})
#: The values that say "none", of fields whose default in the schema says something.
_NONE = dict.fromkeys(
    ["base_offset", "high_watermark", "low_watermark", "committed_offset", "committed_leader_epoch", "node_id", "port"], -1
)  # fmt: skip
#: The same, of one API: the versions, and what it says in them.
_NONE_OF = {
    ("InitProducerId", "producer_epoch"): (range(2**15), -1),
    ("JoinGroup", "protocol_name"): (range(7, 2**15), None),
}


@cache
def _lists(api: str, version: int) -> dict[str, str]:
    """List in the response -> list in the request."""
    found: dict[str, str] = {}
    for line in _LISTS.splitlines():
        name, *lists = line.split() or [""]
        for entry in lists if name == api else ():
            target, _, source = entry.partition("=")
            field, _, versions = target.partition(":")
            low, _, high = versions.partition("-")
            if not versions or int(low) <= version <= int(high):
                found[field] = source
    return found


def _elements(source: Any, path: str) -> list[Any]:
    """The elements of a list of the request, or of several."""
    if "|" in path:
        parts = [element for part in path.split("|") for element in _elements(source, part)]
        return list({_first(element): element for element in parts}.values())
    if "," in path:
        return [element for part in path.split(",") for element in _elements(source, part)]
    head, _, rest = path.partition(".")
    found = getattr(source, head, None) or ()
    return [inner for element in found for inner in _elements(element, rest)] if rest else list(found)


def _first(element: Any) -> Any:
    """The first field of a struct; a scalar stands for itself."""
    return getattr(element, element._names[0]) if hasattr(element, "_names") else element


#: Elements of the answer to a large request that are made in one step.
_STEP = 100


class _Refusal:
    """One refusal: what is said to everything."""

    def __init__(self, api: str, version: int, code: int, text: str) -> None:
        self._api = api
        self._classes = classes(api + "Response")
        self._lists = _lists(api, version)
        self._version = version
        self._code = code
        self._text = text or None

    def fill(self, owner: Struct, source: Any, *, is_root: bool) -> Any:
        """A struct of the response about an element of the request."""
        values = self._values(owner, source, is_root=is_root)
        for field in owner.fields:
            if field.is_array and self._version in field.versions:
                values[field.name] = self._array(field, source)
        return self._classes[owner.name](**values)

    def filling(self, owner: Struct, source: Any, *, is_root: bool) -> Generator[None, None, Any]:
        """As `fill`, in steps."""
        values = self._values(owner, source, is_root=is_root)
        for field in owner.fields:
            if field.is_array and self._version in field.versions:
                values[field.name] = yield from self._filling_array(field, source)
        return self._classes[owner.name](**values)

    def _values(self, owner: Struct, source: Any, *, is_root: bool) -> dict[str, Any]:
        """Its fields that are no lists."""
        key = next((field.name for field in owner.fields if not field.name.startswith("error_")), "")
        values: dict[str, Any] = {}
        for field in owner.fields:
            if self._version not in field.versions:
                continue
            if field.name in ("error_code", "partition_error_code"):
                values[field.name] = self._code
            elif field.name == "error_message":
                values[field.name] = self._text
            elif field.is_array:
                continue
            elif field.type == "records":
                values[field.name] = b""
            elif not is_root and (field.name == key or field.name in _COPIED):
                value = getattr(source, field.name, _first(source) if field.name == key else None)
                is_missing = value is None and self._version not in field.nullable
                values[field.name] = default_of(field) if is_missing else value
            elif field.name in _NONE and self._lists:
                values[field.name] = _NONE[field.name]
            elif (own := _NONE_OF.get((self._api, field.name))) is not None and self._version in own[0]:
                values[field.name] = own[1]
        return values

    def _array(self, field: Field, source: Any) -> Any:
        path = self._lists.get(field.name)
        if path is None or field.struct is None:
            return default_of(field)
        if not path:
            return None
        return [self.fill(field.struct, element, is_root=False) for element in _elements(source, path)]

    def _filling_array(self, field: Field, source: Any) -> Generator[None, None, Any]:
        path = self._lists.get(field.name)
        if not path or field.struct is None:
            return self._array(field, source)
        struct, found = field.struct, []
        has_lists = any(each.is_array for each in struct.fields)
        for number, element in enumerate(_elements(source, path), 1):
            if not number % _STEP:
                yield
            if has_lists:
                found.append((yield from self.filling(struct, element, is_root=False)))
            else:
                found.append(self.fill(struct, element, is_root=False))
        return found


def refuse(api: str, message: Any, version: int, code: ErrorCode, text: str) -> Any:
    """The answer of `api` that says `code` to all of `message`."""
    root = schemas()[api + "Response"].root
    return _Refusal(api, version, int(code), text).fill(root, message, is_root=True)


def refusing(api: str, message: Any, version: int, code: ErrorCode, text: str) -> Generator[None, None, Any]:
    """As `refuse`, in steps: for a request with very many elements."""
    root = schemas()[api + "Response"].root
    return (yield from _Refusal(api, version, int(code), text).filling(root, message, is_root=True))
