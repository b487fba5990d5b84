"""A backup's directory (ADR 42): plan.json while it is written, manifest.json when it is whole, and files of record batches.

A file of records is what a segment of Kafka's log is: record batches v2, one after the other, each with its length and its CRC.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import IO, Any, Self

from kafkalite.errors import ConfigError, KafkaliteError
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import MAX_NAME_LENGTH, Buffer
from kafkalite.record.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, crc_of, parse_header

FORMAT = "kafkalite-backup"
VERSION = 1
PLAN, MANIFEST = "plan.json", "manifest.json"
_JOURNAL = "files.jsonl"
#: A file of this size is closed, and the next one begun: after a crash, no more is copied a second time.
FILE_BYTES = 64 << 20
#: No batch of Kafka's is larger (message.max.bytes is a 32-bit number); a damaged length must not be believed.
_MAX_BATCH_BYTES = 2**31 - 1
_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_NAME_LENGTH}}}")


class BackupError(KafkaliteError):
    """What is wrong with a backup's directory, or with the cluster that it is for."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file with record batches. `records` counts records, the offsets are those of the cluster that was copied."""

    name: str
    first_offset: int
    next_offset: int
    batches: int
    records: int
    size: int
    largest_batch: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackedPartition:
    """Offsets from `start` up to, and without, `end`: what was committed when the backup began."""

    partition: int
    start: int
    end: int
    files: tuple[RecordFile, ...] = ()
    #: Offsets that the cluster deleted before they were copied (retention): [from, to).
    deleted: tuple[tuple[int, int], ...] = ()

    @property
    def records(self) -> int:
        return sum(each.records for each in self.files)

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)


@dataclass(frozen=True, slots=True)
class BackedTopic:
    """`settings`: what was set for the topic, not what held by default."""

    topic: str
    topic_id: str
    replication_factor: int
    settings: dict[str, str]
    partitions: tuple[BackedPartition, ...]

    @property
    def largest_batch(self) -> int:
        return max((file.largest_batch for part in self.partitions for file in part.files), default=0)


@dataclass(frozen=True, slots=True)
class BackedGroup:
    """Offsets that a group had committed: (topic, partition, offset, metadata)."""

    group: str
    offsets: tuple[tuple[str, int, int, str], ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds. `acls` and `quotas` None: they could not be read; `notes` says why."""

    cluster_id: str
    started: str
    topics: tuple[BackedTopic, ...]
    groups: tuple[BackedGroup, ...] = ()
    acls: tuple[dict[str, Any], ...] | None = None
    quotas: tuple[dict[str, Any], ...] | None = None
    notes: tuple[str, ...] = ()
    finished: str = ""
    #: What was asked for: a later run must ask for the same.
    choice: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """With a checksum over everything else."""
        value = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps({**value, "sha256": _digest(value)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: Path) -> Self:
        """Raises BackupError: not a backup, damaged, or of a later version."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise BackupError(f"{where}: not JSON, so this is no backup, or it is damaged") from None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise BackupError(f"{where}: not a backup of kafkalite's")
        if value.get("version") != VERSION:
            raise BackupError(
                f"{where}: version {value.get('version')} of the format; this program reads version {VERSION}"
            )
        if value.pop("sha256", None) != _digest(value):
            raise BackupError(f"{where}: damaged, its checksum is wrong")
        del value["format"], value["version"]
        topics = tuple(_topic(each) for each in value.pop("topics"))
        for topic in topics:
            check_topic_name(topic.topic)
        groups = tuple(BackedGroup(each["group"], tuple(map(tuple, each["offsets"]))) for each in value.pop("groups"))
        acls, quotas, notes = (value.pop(key) for key in ("acls", "quotas", "notes"))
        return cls(
            topics=topics, groups=groups, acls=None if acls is None else tuple(acls),
            quotas=None if quotas is None else tuple(quotas), notes=tuple(notes), **value,
        )  # fmt: skip


def _topic(value: dict[str, Any]) -> BackedTopic:
    partitions = tuple(
        BackedPartition(
            each["partition"], each["start"], each["end"],
            tuple(RecordFile(**file) for file in each["files"]), tuple(map(tuple, each["deleted"])),
        )
        for each in value["partitions"]
    )  # fmt: skip
    return BackedTopic(value["topic"], value["topic_id"], value["replication_factor"], value["settings"], partitions)


def _digest(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def check_topic_name(name: str) -> None:
    """A name becomes a directory: one that no topic can have is refused. Raises BackupError."""
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise BackupError(f"{name!r} is not a topic's name")


def partition_directory(root: Path, topic: str, partition: int) -> Path:
    """Where the files of a partition are."""
    return root / "topics" / topic / str(partition)


def read_manifest(root: Path, name: str = MANIFEST) -> Manifest | None:
    """None: there is no such file. Raises BackupError, OSError."""
    path = root / name
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise BackupError(f"{path}: not UTF-8, so this is no backup, or it is damaged") from None
    return Manifest.from_json(text, path)


def finished_manifest(root: Path) -> Manifest:
    """Of a backup that is whole. Raises ConfigError (none is there), BackupError, OSError."""
    if not root.is_dir():
        raise ConfigError(f"{root}: no such directory")
    found = read_manifest(root)
    if found is None:
        if (root / PLAN).exists():
            raise BackupError(
                f"{root}: this backup is not finished: run 'kafkalite admin backup create {root}' to go on"
            )
        raise ConfigError(f"{root}: no backup is here ({MANIFEST} is missing)")
    return found


def write_atomically(path: Path, text: str) -> None:
    """The file has either its old content or the new one, also after a loss of power."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class PartitionWriter:
    """Writes a partition's files, and a journal with a line for each that is whole: what a later run need not copy."""

    def __init__(self, root: Path, topic: str, partition: int, *, file_bytes: int = FILE_BYTES) -> None:
        self.directory = partition_directory(root, topic, partition)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file_bytes = file_bytes
        self._open: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._entry = RecordFile("", 0, 0, 0, 0, 0, 0, "")
        self.files: list[RecordFile] = []
        self.deleted: list[tuple[int, int]] = []
        self._read_journal()
        for path in self.directory.glob("*.part"):
            path.unlink()

    @property
    def next_offset(self) -> int:
        """Where the next batch is wanted from; -1: nothing is here."""
        ends = [self.files[-1].next_offset] if self.files else []
        ends += [self.deleted[-1][1]] if self.deleted else []
        return max(ends, default=-1)

    def _read_journal(self) -> None:
        """From the first file that is missing or not whole, or the first line that is damaged, everything is copied again."""
        try:
            lines = (self.directory / _JOURNAL).read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines[:-1]:  # without a line break a line is not whole
            try:
                value = json.loads(line)
                if "deleted" in value:
                    first, after = map(int, value["deleted"])
                    self.deleted.append((first, after))
                    continue
                entry = RecordFile(**value)
                path = self.directory / entry.name
                is_whole = path.exists() and path.stat().st_size == entry.size
            except (ValueError, TypeError):
                break
            if not is_whole:
                break
            self.files.append(entry)
        else:
            self._write_journal()
            return
        # The journal has the deleted offsets in front of the files: those behind the last whole file are looked for again.
        known = self.files[-1].next_offset if self.files else -1
        self.deleted = [each for each in self.deleted if each[0] < known]
        self._write_journal()

    def _write_journal(self) -> None:
        lines = [json.dumps({"deleted": each}) + "\n" for each in self.deleted]
        lines += [json.dumps(asdict(each)) + "\n" for each in self.files]
        write_atomically(self.directory / _JOURNAL, "".join(lines))

    def write(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch. Raises OSError."""
        if self._open is None:
            name = f"{header.base_offset:020}.log"
            self._entry = RecordFile(name, header.base_offset, header.base_offset, 0, 0, 0, 0, "")
            self._digest = hashlib.sha256()
            self._open = (self.directory / (name + ".part")).open("wb")
        self._open.write(batch)
        self._digest.update(batch)
        size, old = len(batch), self._entry
        self._entry = replace(
            old, next_offset=header.next_offset, batches=old.batches + 1, records=old.records + header.record_count,
            size=old.size + size, largest_batch=max(old.largest_batch, size),
        )  # fmt: skip
        if self._entry.size >= self._file_bytes:
            self.seal()

    def note_deleted(self, first: int, after: int) -> None:
        """Offsets that the cluster has deleted before they were copied."""
        self.seal()
        self.deleted.append((first, after))
        self._write_journal()

    def seal(self) -> None:
        """Make the open file a whole one, which survives a crash. Raises OSError."""
        if self._open is None:
            return
        file, self._open = self._open, None
        with file:
            file.flush()
            os.fsync(file.fileno())
        path = self.directory / self._entry.name
        path.with_name(path.name + ".part").replace(path)
        sync_directory(self.directory)
        self.files.append(replace(self._entry, sha256=self._digest.hexdigest()))
        with (self.directory / _JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(asdict(self.files[-1])) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def abandon(self) -> None:
        """Close the open file without keeping it, after an error of the disk."""
        if self._open is not None:
            self._open.close()
            self._open = None


def batches_of(root: Path, topic: str, partition: int, file: RecordFile) -> Iterator[tuple[BatchHeader, bytes]]:
    """(header, bytes) of each batch, one at a time in memory. Raises BackupError: the file is not what it was."""
    path = partition_directory(root, topic, partition) / file.name
    if Path(file.name).name != file.name:
        raise BackupError(f"{file.name!r} is not a file of a partition")
    digest = hashlib.sha256()
    records = batches = 0
    expected = file.first_offset
    try:
        with path.open("rb") as opened:
            while head := opened.read(HEADER_SIZE):
                batch = _rest_of_batch(path, opened, head)
                digest.update(batch)
                header = parse_header(batch)
                if crc_of(batch, 0, header.size) != header.crc or header.base_offset < expected:
                    raise BackupError(f"{path}: damaged at offset {header.base_offset}")
                expected = header.next_offset
                batches, records = batches + 1, records + header.record_count
                yield header, batch
    except FileNotFoundError:
        raise BackupError(f"{path}: this file of the backup is missing") from None
    if (batches, records, digest.hexdigest()) != (file.batches, file.records, file.sha256):
        raise BackupError(
            f"{path}: not the file that was written: its checksum or its number of records is another one"
        )


def check_records(root: Path, manifest: Manifest) -> None:
    """Read every file of a backup. Raises BackupError: one of them is missing, or not what was written."""
    for topic in manifest.topics:
        for part in topic.partitions:
            for file in part.files:
                for _ in batches_of(root, topic.topic, part.partition, file):
                    pass


def _rest_of_batch(path: Path, opened: IO[bytes], head: bytes) -> bytes:
    if len(head) == HEADER_SIZE:
        header = parse_header(head)
        size = header.batch_length + LOG_OVERHEAD
        if header.magic == MAGIC and HEADER_SIZE <= size <= _MAX_BATCH_BYTES:
            batch = head + opened.read(size - HEADER_SIZE)
            if len(batch) == size:
                return batch
    raise BackupError(f"{path}: damaged, byte {opened.tell()} is not where a batch ends")


def records_before(root: Path, topic: str, backed: BackedPartition, offset: int) -> int:
    """How many of the backup's records have a smaller offset: the record's place after a restore. Raises BackupError."""
    from kafkalite.record.reader import records_of

    count = 0
    for file in backed.files:
        if file.next_offset <= offset:
            count += file.records
            continue
        if file.first_offset >= offset:
            return count
        for header, batch in batches_of(root, topic, backed.partition, file):
            if header.next_offset <= offset:
                count += header.record_count
            elif header.base_offset >= offset:
                return count
            else:
                return count + sum(record.offset < offset for record in records_of(batch, 0, header))
    return count
