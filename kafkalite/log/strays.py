"""A log's directory that was set aside, `<topic>-<partition>.<32 hex digits>-stray`: its partition, age and size."""

from __future__ import annotations

import re

from kafkalite.env.seams import Disk
from kafkalite.lazy_dataclass import dataclass
from kafkalite.log import checkpoints
from kafkalite.log.log_dir import NAME_MAX, STRAY_SUFFIX
from kafkalite.model import NO_TOPIC_ID, TopicId, TopicPartition

#: In the name of a stray that is to be removed: the node that was commanded to may restart before, and nobody commands it again.
REQUESTED = "de1e7ed0"
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

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    def is_of(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether it was a replica of this very partition; a topic made by an old tool has no id, which matches any."""
        topic, number = self.topic_partition
        if number != topic_partition.partition:
            return False
        is_same = topic == topic_partition.topic
        if not is_same and (len(self.name) < NAME_MAX or not topic_partition.topic.startswith(topic)):
            return False
        return self.topic_id == topic_id or NO_TOPIC_ID in (self.topic_id, topic_id)


def parse_name(name: str) -> tuple[TopicPartition, int] | None:
    """The partition of a stray's name, and the wall time in it (ms); None for other names."""
    found = re.match(_STRAY, name)
    return (TopicPartition(found[1], int(found[2])), int(found[3], 16)) if found else None


def is_requested(name: str) -> bool:
    """Whether the name of a stray says that its partition was deleted on request."""
    return name.endswith(STRAY_SUFFIX) and name[: -len(STRAY_SUFFIX)][-16:].startswith(REQUESTED)


def describe_stray(disk: Disk, path: str) -> tuple[TopicId, int]:
    """The topic's id and the bytes in a log's directory; unreadable files count as none. In a thread."""
    topic_id, size = NO_TOPIC_ID, 0
    try:
        names = disk.listdir(path)
    except OSError:
        return topic_id, size
    for name in names:
        try:
            if name == checkpoints.PARTITION_METADATA:
                topic_id = checkpoints.decode_partition_metadata(disk.read_file(f"{path}/{name}"))
            file = disk.open(f"{path}/{name}")
            size += file.size()
            file.close()
        except (OSError, checkpoints.MalformedCheckpoint):
            continue
    return topic_id, size
