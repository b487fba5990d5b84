"""Copies topics, groups' offsets, permissions and quotas of a cluster into a backup's directory. Reads only."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafkalite.client.admin.acls import describe_acls
from kafkalite.client.admin.configs import ConfigResource, describe_configs
from kafkalite.client.admin.groups import SHARE, Groups
from kafkalite.client.admin.quotas import describe_quotas
from kafkalite.client.admin.refusals import refuse
from kafkalite.client.async_client import AsyncClient
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error, error_code
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import TopicPartition
from kafkalite.partition_values import TopicMetadata
from kafkalite.security.acl import Filter
from kafkalite_cli.admin.backup.files import (
    MANIFEST,
    PLAN,
    BackedGroup,
    BackedPartition,
    BackedTopic,
    BackupError,
    Manifest,
    PartitionWriter,
    check_topic_name,
    read_manifest,
    write_atomically,
)
from kafkalite_cli.admin.backup.pace import Pace, each_in_parallel
from kafkalite_cli.admin.backup.records import batches_to_keep

_FETCH_BYTES = 4 << 20
_READ_COMMITTED = 1
#: A cluster without an authorizer, or we may not ask: the backup goes on without these.
_NOT_FOR_US = frozenset(
    {
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class BackupSelection:
    """What is copied. No topics and no pattern: all topics whose names do not begin with "__"."""

    topics: tuple[str, ...]
    pattern: str | None
    groups: bool


async def create(
    client: AsyncClient, root: Path, selection: BackupSelection, *, limit: int | None, parallel: int, is_shown: bool
) -> Manifest:
    """Copy; go on where an earlier run stopped. Raises BackupError, ApiError, RpcError, OSError."""
    plan = await _plan(client, root, selection)
    total = sum(part.end - part.start for topic in plan.topics for part in topic.partitions)
    pace = Pace("copied", total, limit=limit, is_shown=is_shown)
    done: dict[TopicPartition, BackedPartition] = {}
    wanted = [(topic.topic, part) for topic in plan.topics for part in topic.partitions]

    async def copy(item: tuple[str, BackedPartition]) -> None:
        topic, part = item
        key = TopicPartition(topic, part.partition)
        done[key] = await _copy_partition(client, root, key, part, pace)

    try:
        await each_in_parallel(wanted, copy, parallel=parallel)
    finally:
        pace.close()
    _check_same(plan, {topic.topic: topic for topic in (await client.metadata()).topics})
    topics = tuple(
        replace(topic, partitions=tuple(done[TopicPartition(topic.topic, part.partition)] for part in topic.partitions))
        for topic in plan.topics
    )
    finished = replace(plan, topics=topics, finished=_now(client))
    write_atomically(root / MANIFEST, finished.to_json())
    (root / PLAN).unlink(missing_ok=True)
    return finished


def _now(client: AsyncClient) -> str:
    return datetime.fromtimestamp(client.clock.wall_ms() / 1000, UTC).isoformat(timespec="seconds")


async def _plan(client: AsyncClient, root: Path, selection: BackupSelection) -> Manifest:
    """What the first run has found, or, in an empty directory, what there is now."""
    plan = _plan_in(root)
    metadata = await client.metadata()
    now = {topic.topic: topic for topic in metadata.topics}
    wanted = dataclasses.asdict(selection) | {"topics": list(selection.topics)}
    if plan is not None:
        if plan.cluster_id != metadata.cluster_id:
            raise ConfigError(f"{root}: this backup was begun from another cluster ({plan.cluster_id})")
        if plan.choice != wanted:
            raise ConfigError(
                f"{root}: this backup was begun with other topics or options; use the same, or another directory"
            )
        _check_same(plan, now)
        return plan
    names = _chosen(selection, now)
    groups, notes = await _groups(client, names) if selection.groups else ((), [])
    acls, quotas = await _acls(client, notes), await _quotas(client, notes)
    # After the groups: what a group has committed is then in the backup.
    topics = tuple([await _topic(client, now[name]) for name in names])
    plan = Manifest(metadata.cluster_id, _now(client), topics, groups, acls, quotas, tuple(notes), choice=wanted)
    write_atomically(root / PLAN, plan.to_json())
    return plan


def _check_same(plan: Manifest, now: Mapping[str, TopicMetadata]) -> None:
    """Raises BackupError: a topic was deleted, and perhaps created again with other records."""
    for topic in plan.topics:
        if topic.topic not in now or now[topic.topic].topic_id != topic.topic_id:
            raise BackupError(f"topic {topic.topic!r} was deleted since this backup was begun: use another directory")


def _plan_in(root: Path) -> Manifest | None:
    """The plan of a backup that was begun; None: the directory is new or empty. Raises BackupError, OSError."""
    root.mkdir(parents=True, exist_ok=True)
    if (root / MANIFEST).exists():
        raise ConfigError(f"{root}: a finished backup is here; choose another directory")
    plan = read_manifest(root, PLAN)
    if plan is None and any(each.name != f"{PLAN}.part" for each in root.iterdir()):
        raise ConfigError(f"{root}: not empty, and not a backup")
    return plan


def _chosen(selection: BackupSelection, now: dict[str, TopicMetadata]) -> list[str]:
    """Raises ApiError: there is no such topic."""
    unknown = sorted(set(selection.topics) - now.keys())
    if unknown:
        raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {unknown[0]!r}")
    matches = re.compile(selection.pattern or "").fullmatch
    is_all = not selection.topics and selection.pattern is None
    names = [
        name
        for name in sorted(now)
        if name in selection.topics or (not name.startswith("__") and (is_all or (selection.pattern and matches(name))))
    ]
    if not names:
        missing = "the cluster has no topics" if is_all else f"no topic matches {selection.pattern!r}"
        raise api_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)
    for name in names:
        check_topic_name(name)
        refuse(now[name].error, f"{name}: {error_code(now[name].error).name}")
    return names


async def _topic(client: AsyncClient, topic: TopicMetadata) -> BackedTopic:
    keys = [TopicPartition(topic.topic, each.partition) for each in topic.partitions]
    settings = (await describe_configs(client, ConfigResource.topic(topic.topic))).own
    begins = await client.beginning_offsets(keys)
    ends = await client.end_offsets(keys, isolation=_READ_COMMITTED)
    partitions = tuple(BackedPartition(key.partition, begins[key], ends[key]) for key in sorted(keys))
    factor = max((len(each.replicas) for each in topic.partitions), default=1)
    return BackedTopic(topic.topic, topic.topic_id, factor, settings, partitions)


async def _groups(client: AsyncClient, names: Sequence[str]) -> tuple[tuple[BackedGroup, ...], list[str]]:
    admin = Groups(client)
    found, notes = [], []
    try:
        for _, listed in await admin.list():
            if listed.group_type == SHARE:  # its place in a topic is more than an offset
                notes.append(f"share group {listed.group}: not in this backup")
                continue
            _, described = await admin.describe(listed.group)
            offsets = tuple(
                (each.topic, each.partition, int(each.offset), each.metadata)
                for each in described.offsets
                if each.topic in names and each.offset >= 0
            )
            if offsets:
                found.append(BackedGroup(listed.group, offsets))
    except ApiError as error:
        if error.code not in _NOT_FOR_US:
            raise
        return (), [f"consumer groups: {error.code.name}"]
    return tuple(found), notes


async def _acls(client: AsyncClient, notes: list[str]) -> tuple[dict[str, Any], ...] | None:
    try:
        bindings = await describe_acls(client, Filter())
    except ApiError as error:
        if error.code not in _NOT_FOR_US:
            raise
        if error.code is not ErrorCode.SECURITY_DISABLED:
            notes.append(f"ACLs: {error.code.name}")
        return None
    return tuple(
        {
            "resource_type": each.pattern.resource_type.name,
            "name": each.pattern.name,
            "pattern_type": each.pattern.pattern_type.name,
            "principal": each.entry.principal,
            "host": each.entry.host,
            "operation": each.entry.operation.name,
            "permission": each.entry.permission.name,
        }
        for each in bindings
    )


async def _quotas(client: AsyncClient, notes: list[str]) -> tuple[dict[str, Any], ...] | None:
    try:
        found = await describe_quotas(client)
    except ApiError as error:
        if error.code not in _NOT_FOR_US:
            raise
        notes.append(f"quotas: {error.code.name}")
        return None
    return tuple({**dataclasses.asdict(entity), "limits": limits} for entity, limits in found)


async def _copy_partition(
    client: AsyncClient, root: Path, key: TopicPartition, part: BackedPartition, pace: Pace
) -> BackedPartition:
    writer = PartitionWriter(root, key.topic, key.partition)
    position = max(part.start, writer.next_offset)
    await pace.moved(0, min(position, part.end) - part.start)
    try:
        while position < part.end:
            before = position
            position = await _copy_some(client, writer, key, position, part.end, pace)
            if position == before:
                raise BackupError(f"{key}: nothing could be read at offset {position} within {client.timeout_s:g} s")
        writer.seal()
    except OSError:
        writer.abandon()
        raise
    except BaseException:  # Ctrl-C, too; what is here need not be copied again
        writer.seal()
        raise
    return replace(part, files=tuple(writer.files), deleted=tuple(writer.deleted))


async def _copy_some(
    client: AsyncClient, writer: PartitionWriter, key: TopicPartition, position: int, end: int, pace: Pace
) -> int:
    """The position after what one fetch has brought."""
    deadline = client.now() + client.timeout_s
    while True:
        try:
            fetched, records = await client.fetch_raw(key, position, _FETCH_BYTES, isolation=_READ_COMMITTED)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            first = min((await client.beginning_offsets([key]))[key], end)
            if first <= position:
                raise
            writer.note_deleted(position, first)
            await pace.moved(0, first - position)
            return first
        found = batches_to_keep(records, position, end, fetched.aborted)
        for header, batch in found.batches:
            writer.write(batch, header)
        if found.position > position or client.now() > deadline:
            await pace.moved(len(records), found.position - position)
            return found.position
