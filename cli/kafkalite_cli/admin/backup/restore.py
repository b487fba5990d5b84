"""Puts a backup's topics, offsets, permissions and quotas into a cluster, and compares what is there then.

A restored partition has the backup's records from offset 0 on, without gaps. So its end offset says how many records are there, and a run
that was killed goes on from there; nothing has to be remembered but which topics are ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kafkalite.client.admin.acls import create_acls
from kafkalite.client.admin.configs import ConfigResource, alter_configs
from kafkalite.client.admin.groups import Groups
from kafkalite.client.admin.quotas import alter_quotas
from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.client.messages import first_commit_error
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error, error_code
from kafkalite.extension.messages.topics import NewTopic
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer, TopicPartition, numbers_by_topic
from kafkalite.partition_values import TopicMetadata
from kafkalite.protocol import wire
from kafkalite.record.batch import BatchHeader, split_batches
from kafkalite.security.acl import AclEntry, Binding, Operation, Pattern, PatternType, Permission, ResourceType
from kafkalite.security.quotas import Entity
from kafkalite.wording import number_of
from kafkalite_cli.admin.backup.files import (
    BackedGroup,
    BackedPartition,
    BackedTopic,
    BackupError,
    Manifest,
    batches_of,
    check_records,
    check_topic_name,
    records_before,
    write_atomically,
)
from kafkalite_cli.admin.backup.pace import Pace, each_in_parallel
from kafkalite_cli.admin.backup.records import Comparison, batches_to_send

_FETCH_BYTES = 4 << 20
_WAIT_S = 0.1
_LONG_TEXT = str(2**63 - 1)
#: While records are put back, nothing may delete, compact, stamp or compress them again, nor refuse them for their age.
_WHILE_LOADING = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.after.max.ms": _LONG_TEXT,
    "message.timestamp.before.max.ms": _LONG_TEXT,
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
_MAX_MESSAGE = "max.message.bytes"
_LEAST_MAX_MESSAGE = 1_048_588
_BEGIN_AGAIN = "delete the topic, and run the same command again"
#: An old topic is gone from one node before it is from another.
_DELETION_S = 30.0


@dataclass(frozen=True, slots=True)
class Wishes:
    """`replace`: topics that are there are deleted first, and groups' offsets are overwritten. `left_out`: settings."""

    prefix: str = ""
    replication_factor: int | None = None
    left_out: frozenset[str] = frozenset()
    replace: bool = False
    groups: bool = True
    acls: bool = False
    quotas: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    records: int
    size: int
    #: Records that had been restored by an earlier run.
    earlier: int
    groups: int
    acls: int
    quotas: int
    #: What could not be done as in the backup.
    notes: tuple[str, ...]


class RestoreState:
    """What a later run has to know: which topics of the cluster are this restore's. Kept in a file until all is done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Name -> topic id; "" before it is known.
        self.topics: dict[str, str] = {}
        #: Those with all records: from then on their own settings may delete some.
        self.compared: set[str] = set()
        if path.exists():
            try:
                kept = json.loads(path.read_text())
                self.topics = {str(name): str(topic_id) for name, topic_id in kept["topics"].items()}
                self.compared = set(map(str, kept["compared"]))
            except (ValueError, AttributeError, TypeError, KeyError):
                raise BackupError(f"{path}: damaged; remove it to begin the restore again") from None

    def keep(self, topic: str, topic_id: str) -> None:
        """The topic is this restore's, and new."""
        self.topics[topic] = topic_id
        self.compared.discard(topic)
        self._write()

    def keep_compared(self, topics: Iterable[str]) -> None:
        """All records of these are there."""
        self.compared.update(topics)
        self._write()

    def _write(self) -> None:
        kept = {"topics": self.topics, "compared": sorted(self.compared)}
        write_atomically(self.path, json.dumps(kept, indent=1) + "\n")

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)


class Restore:
    """One run. Every method raises ConfigError (what is there is in the way), BackupError, ApiError, RpcError, OSError."""

    def __init__(
        self, client: AsyncClient, root: Path, manifest: Manifest, wishes: Wishes, state: RestoreState
    ) -> None:
        self._client = client
        self._root = root
        self._manifest = manifest
        self._wishes = wishes
        self._state = state
        self._notes: list[str] = []
        self._earlier = 0
        #: Ids of topics that this run has deleted, and that some node may still show.
        self._deleted: set[str] = set()

    def _name(self, topic: str) -> str:
        return self._wishes.prefix + topic

    async def obstacles(self) -> list[str]:
        """Topics of the cluster that would have to be deleted. Also sees that the names are possible."""
        found = {each.topic: each for each in (await self._client.metadata()).topics}
        blocked = []
        for topic in self._manifest.topics:
            name = self._name(topic.topic)
            check_topic_name(name)
            if name in found and not await self._is_ours(topic, found[name]):
                blocked.append(name)
        return blocked

    async def _is_ours(self, topic: BackedTopic, there: TopicMetadata) -> bool:
        """Whether an earlier run of this restore has made it. It may have died before it knew the id: then the topic is empty."""
        known = self._state.topics.get(there.topic)
        if known is None or known:
            return known == there.topic_id
        if there.topic_id in self._deleted:
            return False
        if len(there.partitions) != len(topic.partitions):
            return False
        keys = [TopicPartition(there.topic, number) for number in range(len(topic.partitions))]
        return not any((await self._client.end_offsets(keys)).values())

    async def run(self, *, limit: int | None, parallel: int, is_shown: bool) -> Restored:
        """Everything, in an order in which a run that was killed can be repeated."""
        blocked = await self.obstacles()
        if blocked and not self._wishes.replace:
            more = f" and {len(blocked) - 1} more" if len(blocked) > 1 else ""
            verb, them = ("exist", "them") if more else ("exists", "it")
            raise ConfigError(f"topic {blocked[0]!r}{more} {verb}: use --prefix, or --replace to delete {them} first")
        await self._refuse_groups()
        if blocked:  # what is deleted for a backup that cannot be read would be lost with it
            await asyncio.to_thread(check_records, self._root, self._manifest)
        for name in blocked:
            await self._delete(name)
        for topic in self._manifest.topics:
            await self._create(topic)
        every = [part for topic in self._manifest.topics for part in topic.partitions]
        total, size = sum(part.records for part in every), sum(part.size for part in every)
        waiting = [topic for topic in self._manifest.topics if self._name(topic.topic) not in self._state.compared]
        parts = [(topic, part) for topic in waiting for part in topic.partitions]
        left = sum(part.records for _, part in parts)
        self._earlier = total - left
        await self._in_parallel("restored", left, parts, self._load, limit, parallel, is_shown=is_shown)
        await self._in_parallel("compared", left, parts, self._compare, limit, parallel, is_shown=is_shown)
        self._state.keep_compared(self._name(topic.topic) for topic in waiting)
        for topic in self._manifest.topics:
            await self._settle(topic)
        groups = [await self._commit(group) for group in self._manifest.groups] if self._wishes.groups else []
        acls = await self._acls() if self._wishes.acls else 0
        quotas = await self._quotas() if self._wishes.quotas else 0
        self._state.drop()
        return Restored(total, size, self._earlier, len(groups), acls, quotas, tuple(self._notes))

    async def _in_parallel(
        self, what: str, total: int, parts: list[Any], work: Any, limit: int | None, parallel: int, *, is_shown: bool
    ) -> None:
        pace = Pace(what, total, limit=limit, is_shown=is_shown)
        try:
            await each_in_parallel(parts, lambda item: work(*item, pace), parallel=parallel)
        finally:
            pace.close()

    # --- topics ----------------------------------------------------------------------------------

    async def _delete(self, name: str) -> None:
        self._deleted.add((await self._client.metadata([name])).topics[0].topic_id)
        (result,) = await self._client.delete_topics([name])
        refuse(result.error, f"{name}: {result.message or error_code(result.error).name}")

    async def _create(self, topic: BackedTopic) -> None:
        name = self._name(topic.topic)
        factor = self._wishes.replication_factor or topic.replication_factor
        known = self._state.topics.get(name)
        if known:
            there = (await self._client.metadata([name])).topics[0]
            if not there.error and there.topic_id == known:
                fewest = min((len(each.replicas) for each in there.partitions), default=factor)
                if fewest < factor:  # an earlier run, which may have died before it said so
                    self._notes.append(f"{name}: {number_of(fewest, 'replica')} instead of {factor}")
                return
        brokers = len((await self._client.metadata(())).brokers)
        if self._wishes.replication_factor is None and factor > brokers:
            self._notes.append(
                f"{name}: {number_of(brokers, 'replica')} instead of {factor}: there are no more brokers"
            )
            factor = brokers
        settings = self._settings(topic) | _WHILE_LOADING
        settings[_MAX_MESSAGE] = str(max(_LEAST_MAX_MESSAGE, 2 * topic.largest_batch))
        if not known:
            self._state.keep(name, "")
        deadline = self._client.now() + _DELETION_S
        while True:
            wanted = NewTopic(name, len(topic.partitions), factor, None, "shifted", settings)
            (result,) = await self._client.create_topics([wanted])
            if result.error != ErrorCode.TOPIC_ALREADY_EXISTS:
                break
            there = (await self._client.metadata([name])).topics[0]
            if not there.error and await self._is_ours(topic, there):
                if not known:
                    self._state.keep(name, there.topic_id)
                return
            if self._client.now() > deadline:
                break
            await asyncio.sleep(_WAIT_S)
        refuse(result.error, f"{name}: {result.message or error_code(result.error).name}")
        self._state.keep(name, await self._known_id(name, result.topic_id))

    async def _known_id(self, name: str, stored_id: str) -> str:
        await self._client.known_topic(name, timeout_s=self._client.timeout_s)
        return stored_id or str(self._client.view.topics[name].topic_id)

    def _settings(self, topic: BackedTopic) -> dict[str, str]:
        return {key: value for key, value in topic.settings.items() if key not in self._wishes.left_out}

    async def _settle(self, topic: BackedTopic) -> None:
        """The settings as in the backup, now that its records are there."""
        own = self._settings(topic)
        loading = {*_WHILE_LOADING, _MAX_MESSAGE}
        resource = ConfigResource.topic(self._name(topic.topic))
        kept = {key: value for key, value in own.items() if key in loading}
        await alter_configs(self._client, resource, kept, sorted(loading - own.keys()))

    # --- records ---------------------------------------------------------------------------------

    def _stored(self, topic: BackedTopic, part: BackedPartition) -> Iterator[tuple[BatchHeader, Buffer]]:
        for file in part.files:
            yield from batches_of(self._root, topic.topic, part.partition, file)

    async def _load(self, topic: BackedTopic, part: BackedPartition, pace: Pace) -> None:
        key = TopicPartition(self._name(topic.topic), part.partition)
        begins = await self._client.beginning_offsets([key])
        done = (await self._client.end_offsets([key]))[key]
        if begins[key] or done > part.records:
            raise BackupError(f"{key}: something else has written to the topic, or deleted from it: {_BEGIN_AGAIN}")
        self._earlier += done
        await pace.moved(0, done)
        if done == part.records:
            return
        producer_id, epoch = await self._client.init_producer_id(timeout_s=self._client.timeout_s)
        sequence = 0
        for each in batches_to_send(self._stored(topic, part), done):
            batch = each.encoded(producer_id, epoch, sequence)
            # An idempotent producer: a batch that is sent again after a lost response is not there twice.
            await self._client.run(self._client.routing.produce({key: batch}, -1, self._client.timeout_s))
            sequence = (sequence + each.record_count) & 0x7FFFFFFF
            await pace.moved(len(batch), each.record_count)

    async def _compare(self, topic: BackedTopic, part: BackedPartition, pace: Pace) -> None:
        key = TopicPartition(self._name(topic.topic), part.partition)
        comparison = Comparison(batches_to_send(self._stored(topic, part)))
        position, end = 0, (await self._client.end_offsets([key]))[key]
        deadline = self._client.now() + self._client.timeout_s
        while position < end:
            _, records = await self._client.fetch_raw(key, position, _FETCH_BYTES)
            before = position
            for at, header in split_batches(records):
                if header.next_offset <= position:
                    continue
                try:
                    comparison.take(records, at, header)
                except ApiError as error:
                    raise api_error(error.code, f"{key}: {error}: {_BEGIN_AGAIN}") from None
                position = header.next_offset
            if position > before:
                deadline = self._client.now() + self._client.timeout_s
            elif self._client.now() > deadline:
                raise BackupError(
                    f"{key}: nothing could be read at offset {position} within {self._client.timeout_s:g} s"
                )
            await pace.moved(len(records), position - before)
        try:
            comparison.finish()
        except ApiError as error:
            raise api_error(error.code, f"{key}: {error}: {_BEGIN_AGAIN}") from None

    # --- groups and rights -----------------------------------------------------------------------

    async def _refuse_groups(self) -> None:
        """Groups that have members, or offsets that would be overwritten."""
        if not self._wishes.groups:
            return
        admin = Groups(self._client)
        for group in self._manifest.groups:
            _, described = await admin.describe(group.group)
            if described.members:
                raise api_error(
                    ErrorCode.NON_EMPTY_GROUP, f"group {group.group!r} has members: stop them, or use --no-groups"
                )
            wanted = self._translated(group)
            there = {TopicPartition(e.topic, e.partition): int(e.offset) for e in described.offsets}
            other = [key for key, (offset, _) in wanted.items() if there.get(key, offset) != offset]
            if other and not self._wishes.replace:
                raise ConfigError(
                    f"group {group.group!r} has offsets of {other[0].topic!r}: use --replace to overwrite them, or --no-groups"
                )

    def _translated(self, group: BackedGroup) -> dict[TopicPartition, tuple[int, str]]:
        """Offsets of the restored topics: how many records of the backup come before them."""
        topics = {topic.topic: {part.partition: part for part in topic.partitions} for topic in self._manifest.topics}
        return {
            TopicPartition(self._name(topic), partition): (
                records_before(self._root, topic, topics[topic][partition], offset),
                metadata,
            )
            for topic, partition, offset, metadata in group.offsets
            if partition in topics.get(topic, {})
        }

    async def _commit(self, group: BackedGroup) -> str:
        offsets = self._translated(group)
        request = wire.OffsetCommitRequest
        topics = [
            request.OffsetCommitRequestTopic(
                name,
                partitions=[
                    request.OffsetCommitRequestPartition(
                        number, offsets[key := TopicPartition(name, number)][0], committed_metadata=offsets[key][1]
                    )
                    for number in numbers
                ],
            )
            for name, numbers in numbers_by_topic(sorted(offsets)).items()
        ]
        message = request(group.group, -1, "", topics=topics)

        def meaning(response: Any) -> tuple[int, str]:
            number, where = first_commit_error(response)
            return number, f"group {group.group!r}: {where or error_code(number).name}"

        await self._client.call_coordinator(0, group.group, message, meaning)
        return group.group

    async def _acls(self) -> int:
        if self._manifest.acls is None:
            self._notes.append("the backup has no ACLs")
            return 0
        bindings = [_binding(each) for each in self._manifest.acls]
        if bindings:
            await create_acls(self._client, bindings)
        return len(bindings)

    async def _quotas(self) -> int:
        if self._manifest.quotas is None:
            self._notes.append("the backup has no quotas")
            return 0
        owned = [each for each in self._manifest.quotas if {each["user"], each["client_id"], each.get("ip")} != {None}]
        # Until 2026-11 a backup had limits of addresses without the address.
        if len(owned) < len(self._manifest.quotas):
            self._notes.append("the backup does not have the addresses of some quotas: set these by hand")
        for each in owned:
            entity = Entity(each["user"], each["client_id"], each.get("ip"))
            await alter_quotas(self._client, entity, each["limits"])
        return len(owned)


def _binding(value: Mapping[str, str]) -> Binding:
    try:
        pattern = Pattern(ResourceType[value["resource_type"]], value["name"], PatternType[value["pattern_type"]])
        operation, permission = Operation[value["operation"]], Permission[value["permission"]]
    except KeyError as error:
        raise BackupError(f"an ACL of the backup has {error}, which this version does not know") from None
    return Binding(pattern, AclEntry(value["principal"], value["host"], operation, permission))
