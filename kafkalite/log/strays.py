"""A log's directory that was set aside, `<topic>-<partition>.<32 hex digits>-stray`: its partition, age and size."""

from __future__ import annotations

import re

from kafkalite.env.seams import Disk
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log import checkpoints
from kafkalite.log.file_names import LOG
from kafkalite.log.log_dir import NAME_MAX, STRAY_SUFFIX
from kafkalite.model import NO_LEADER_EPOCH, NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition

#: In the name of a stray that is to be removed: the node that was commanded to may restart before, and nobody commands it again.
REQUESTED = "de1e7ed0"
#: In the name of a stray that had a later leader epoch than ZooKeeper: only then is it certain that ZooKeeper was restored from an earlier time.
LATER = "1a7e51de"
#: In the name of a stray that was not opened because synced bytes are missing (ADR 18): nothing is cut from it if it becomes the log again.
LOST_BYTES = "105eb17e"
_STRAY = rf"^(.+)-(\d{{1,9}})\.([0-9a-f]{{16}})[0-9a-f]{{16}}{STRAY_SUFFIX}$"


@dataclass(slots=True, eq=False)
class Stray:
    """`topic_partition`: of a name that was too long, the topic is a prefix of the true one."""

    directory: str
    name: str
    topic_partition: TopicPartition
    topic_id: TopicId
    #: Wall time in ms.
    since_ms: int
    size_bytes: int
    #: Monotonic seconds: not removed earlier.
    due: float
    #: The partition was deleted on request: no other copy is needed.
    is_requested: bool = False
    #: Of its last record.
    latest_epoch: LeaderEpoch = NO_LEADER_EPOCH
    #: It goes as far as this at least.
    log_end_offset: Offset = Offset(0)
    #: A copy of a leader's log that was not finished: its records were on that leader, and the one after has others.
    is_unfinished: bool = False
    #: Its records are later than what ZooKeeper knew of the partition: they are nowhere else, whatever the replicas say.
    is_later: bool = False
    #: A closed segment lacks what was synced: what is behind it is kept.
    has_lost_bytes: bool = False

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def is_cut(self) -> bool:
        """Whether its name may have a part of the topic's only."""
        return len(self.name) >= NAME_MAX

    @property
    def extent(self) -> tuple[LeaderEpoch, Offset]:
        """How far it goes; the larger one is more complete."""
        return self.latest_epoch, self.log_end_offset

    def is_of(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether it was a replica of this very partition; a topic made by an old tool has no id, which matches any."""
        topic, number = self.topic_partition
        if number != topic_partition.partition:
            return False
        is_same = topic == topic_partition.topic
        if not is_same and not (self.is_cut and topic_partition.topic.startswith(topic)):
            return False
        return self.topic_id == topic_id or NO_TOPIC_ID in (self.topic_id, topic_id)


def parse_name(name: str) -> tuple[TopicPartition, int] | None:
    """The partition of a stray's name, and the wall time in it (ms); None for other names."""
    found = re.match(_STRAY, name)
    return (TopicPartition(found[1], int(found[2])), int(found[3], 16)) if found else None


def mark_of(name: str) -> str:
    """REQUESTED, LATER or LOST_BYTES, if the name of a stray says so; otherwise digits."""
    return name[: -len(STRAY_SUFFIX)][-16:-8] if name.endswith(STRAY_SUFFIX) else ""


@dataclass(frozen=True, slots=True)
class StrayFiles:
    """What the files in a stray's directory say. `latest_epoch`: of the last record; `log_end_offset`: the log goes as far as this at least.
    `is_unfinished`: see Stray."""

    topic_id: TopicId
    size_bytes: int
    latest_epoch: LeaderEpoch
    log_end_offset: Offset = Offset(0)
    is_unfinished: bool = False


def describe_stray(disk: Disk, path: str) -> StrayFiles:
    """Unreadable files count as none. In a thread."""
    topic_id, size, latest_epoch, end, is_unfinished = NO_TOPIC_ID, 0, NO_LEADER_EPOCH, Offset(0), False
    try:
        names = disk.listdir(path)
    except OSError:
        return StrayFiles(topic_id, size, latest_epoch)
    for name in names:
        try:
            if name == checkpoints.PARTITION_METADATA:
                metadata = disk.read_file(f"{path}/{name}")
                topic_id = checkpoints.decode_partition_metadata(metadata)
                is_unfinished = checkpoints.copying_in(metadata) != NO_LEADER_EPOCH
            if name == checkpoints.LEADER_EPOCHS and (
                epochs := checkpoints.decode_epochs(disk.read_file(f"{path}/{name}"))
            ):
                latest_epoch = LeaderEpoch(epochs[-1][0])
            if name.endswith(LOG) and name[: -len(LOG)].isdecimal():
                end = max(end, Offset(int(name[: -len(LOG)])))
            file = disk.open(f"{path}/{name}")
            size += file.size()
            file.close()
        except (OSError, checkpoints.MalformedCheckpoint):
            continue
    return StrayFiles(topic_id, size, latest_epoch, end, is_unfinished)
