"""Keeps an Iceberg table fast and small: small files become large ones, old snapshots and their files go."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import FileScanTask, Table

from kafkalite_pipelines.definition import Maintenance
from kafkalite_pipelines.sinks import writing
from kafkalite_pipelines.sinks.iceberg_files import OneTry, data_file, remove_files, target_of
from kafkalite_pipelines.sinks.iceberg_reading import read

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

#: Bytes that are merged in one commit: a conflict then costs little.
_ROUND_BYTES = 1 << 30


def maintain(table: Table, plan: Maintenance) -> str:
    """One round. What was done, in words; empty: nothing."""
    done = []
    if plan.compact_below is not None:
        before, after = compact(table, plan)
        if before:
            done.append(f"{before} files merged into {after}")
            table = table.refresh()
    if plan.expire_after_s is not None:
        snapshots, files = expire(table, datetime.now(UTC) - timedelta(seconds=plan.expire_after_s))
        if snapshots:
            done.append(f"{snapshots} snapshots and {files} files removed")
    return ", ".join(done)


def compact(table: Table, plan: Maintenance) -> tuple[int, int]:
    """Merge files below `compact_below` of one partition: (files before, files after). A concurrent change wins: then nothing
    is done until the next round."""
    assert plan.compact_below is not None
    groups: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in table.scan().plan_files():
        same_spec = task.file.spec_id == table.spec().spec_id
        if same_spec and task.file.file_size_in_bytes < plan.compact_below:
            groups[tuple(task.file.partition)].append(task)
    replaced: list[DataFile] = []
    written: list[writing.WrittenFile] = []
    target, prefix, size = target_of(table), f"compacted-{uuid.uuid4().hex[:8]}", 0
    for partition, tasks in groups.items():
        for group in _packed(tasks, plan.target_bytes):
            if len(group) < 2 or size > _ROUND_BYTES:
                continue
            size += sum(task.file.file_size_in_bytes for task in group)
            rows = (read(table.metadata, dict(table.io.properties), table.metadata_location, task) for task in group)
            written += writing.files_of_all(rows, target, prefix, partition)
            replaced += [task.file for task in group]
    if not replaced:
        return 0, 0
    transaction = OneTry(table)
    try:
        with transaction.update_snapshot(
            snapshot_properties={"kafkalite.maintenance": "compaction"}
        ).overwrite() as overwrite:
            for each in replaced:
                overwrite.delete_data_file(each)
            for file in written:
                overwrite.append_data_file(data_file(table, file))
        transaction.commit_transaction()
    except (CommitFailedException, ValidationException):
        remove_files(table, written)
        return 0, 0
    return len(replaced), len(written)


def _packed(tasks: Iterable[FileScanTask], target_bytes: int) -> list[list[FileScanTask]]:
    """Files in groups of about the target's size."""
    groups: list[list[FileScanTask]] = [[]]
    size = 0
    for task in sorted(tasks, key=lambda task: str(task.file.file_path)):
        if size + task.file.file_size_in_bytes > target_bytes and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.file.file_size_in_bytes
    return groups


def expire(table: Table, before: datetime) -> tuple[int, int]:
    """Remove snapshots older than `before` (never the present one) and the files that only they name: (snapshots, files)."""
    old = [
        each.snapshot_id
        for each in table.snapshots()
        if each.timestamp_ms < before.timestamp() * 1000 and each.snapshot_id != table.metadata.current_snapshot_id
    ]
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [each for each in old if each not in named]
    if not old:
        return 0, 0
    was = _files(table, [each for each in table.snapshots() if each.snapshot_id in set(old)])
    table.maintenance.expire_snapshots().by_ids(old).commit()
    table = table.refresh()
    unused = was - _files(table, table.snapshots())
    for path in unused:
        try:
            table.io.delete(path)
        except OSError:
            continue  # somebody else removed it, or it stays: no snapshot names it
    return len(old), len(unused)


def _files(table: Table, snapshots: Iterable[Any]) -> set[str]:
    """Every file that the snapshots name: manifest lists, manifests, data."""
    paths: set[str] = set()
    seen: set[str] = set()
    for snapshot in snapshots:
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            paths.add(manifest.manifest_path)
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                paths |= {entry.data_file.file_path for entry in entries}
    return paths
