"""The small text files of a log directory and of a partition, in Kafka's formats. Pure: bytes in, values out.

offset checkpoints        "0\\n<N>\\n" and N lines "<topic> <partition> <offset>"
leader-epoch-checkpoint   "0\\n<N>\\n" and N lines "<epoch> <start offset>"
partition.metadata        "version: 0\\ntopic_id: <id>"
meta.properties           "version=0", "broker.id=<id>", "cluster.id=<id>", a line each, # comments
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.model import NO_LEADER_EPOCH, TopicId, TopicPartition

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
#: Ours: logs that this node had may be missing: the directory was empty when it came, or a log in it was given up (invariant F28).
INCOMPLETE = ".kafkalite-incomplete"
#: Ours: the boot id of the host that used the directory last; logs that may lack committed records (as offsets, all 0).
BOOT = ".kafkalite-boot"
DOUBTFUL = ".kafkalite-doubtful"
#: Ours: the number of the node's start that used the directory last; ZooKeeper has it too.
STARTS = ".kafkalite-starts"


#: Ours, in a partition's directory: offsets are missing in this log. Recovery then accepts gaps where a loss of power, or a
#: wrong base offset, could look the same.
COMPACTED = ".kafkalite-compacted"


class MalformedCheckpoint(ValueError):
    """The file is not what its name says."""


def _encode_lines(lines: list[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def _decode_lines(data: bytes, fields: int) -> list[list[str]]:
    if not data.endswith(b"\n"):
        raise MalformedCheckpoint("cut off: the last line may lack digits")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise MalformedCheckpoint("not text") from None
    if len(lines) < 2 or lines[0] != "0":
        raise MalformedCheckpoint(f"version line {lines[:1]}")
    rows = [line.split() for line in lines[2:] if line]
    if lines[1] != str(len(rows)) or any(len(row) != fields for row in rows):
        raise MalformedCheckpoint(f"{len(rows)} lines, the file says {lines[1]!r}")
    return rows


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Sorted, so that equal content is equal bytes."""
    return _encode_lines([f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())])


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Raises MalformedCheckpoint."""
    try:
        return {
            TopicPartition(topic, int(partition)): _bounded(offset, 64)
            for topic, partition, offset in _decode_lines(data, 3)
        }
    except ValueError as error:
        raise MalformedCheckpoint(str(error)) from None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _encode_lines([f"{epoch} {start}" for epoch, start in entries])


def decode_epochs(data: bytes) -> list[tuple[int, int]]:
    """Raises MalformedCheckpoint."""
    try:
        return [(_bounded(epoch, 32), _bounded(start, 64)) for epoch, start in _decode_lines(data, 2)]
    except ValueError as error:
        raise MalformedCheckpoint(str(error)) from None


def whole_epochs(data: bytes) -> list[tuple[int, int]]:
    """The entries in front of the first one that is not whole, of a file that `decode_epochs` refuses.

    What a loss of power leaves of the file is its beginning (see `epoch_file`). Only entries that rise are believed.
    """
    found: list[tuple[int, int]] = []
    lines = data.split(b"\n")[:-1]  # the last one lacks its end
    if len(lines) < 2 or lines[0] != b"0" or not lines[1].isdigit() or len(lines[1]) > 9:
        return found
    for line in lines[2 : 2 + int(lines[1])]:
        try:
            epoch, start = line.split()
            entry = _bounded(epoch.decode(), 32), _bounded(start.decode(), 64)
        except ValueError:
            break
        if found and not (entry[0] > found[-1][0] and entry[1] > found[-1][1]):
            break
        found.append(entry)
    return found


def _bounded(text: str, bits: int) -> int:
    """A number that is not negative, that fits into a signed field of this width. Raises ValueError."""
    number = int(text)
    if not 0 <= number < 1 << (bits - 1):
        raise ValueError(f"{text} is out of range")
    return number


_RECORDED = b"\ncompactions: recorded"
_COPYING = b"\ncopying in leader epoch: "


def encode_partition_metadata(
    topic_id: TopicId, *, records_compactions: bool, copying_in: int = NO_LEADER_EPOCH
) -> bytes:
    """`records_compactions`: since the log's beginning, every compaction has been recorded (COMPACTED). `copying_in`: see `LocalLog`."""
    recorded = _RECORDED if records_compactions else b""
    copying = _COPYING + str(copying_in).encode() if copying_in != NO_LEADER_EPOCH else b""
    return f"version: 0\ntopic_id: {topic_id}".encode() + recorded + copying


def records_compactions(partition_metadata: bytes) -> bool:
    """What the file says of the log; False for one that an older version has made."""
    return _RECORDED in partition_metadata


def copying_in(partition_metadata: bytes) -> int:
    """See `LocalLog.copying_in`."""
    epoch = partition_metadata.partition(_COPYING)[2]
    return int(epoch) if epoch.isdigit() and len(epoch) < 11 else NO_LEADER_EPOCH


def decode_partition_metadata(data: bytes) -> TopicId:
    """Raises MalformedCheckpoint."""
    fields = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    topic_id = fields.get("topic_id", "")
    # A torn file can hold a part of the id, which would be another topic's (invariant F18): ids are 16 bytes in base64.
    if fields.get("version") != "0" or len(topic_id) != 22:
        raise MalformedCheckpoint(f"{data[:80]!r}")
    return TopicId(topic_id)


def encode_compacted(end: int) -> bytes:
    """`end`: compactions of this log were below it; 0: offsets are missing only in copied batches."""
    return f"{end}\n".encode()


def decode_compacted(data: bytes) -> int:
    """0 if the file is damaged: offsets are missing at unknown places."""
    text = data.strip()
    return int(text) if data.endswith(b"\n") and text.isdigit() and len(text) < 20 else 0


def encode_meta_properties(cluster_id: str, broker_id: int) -> bytes:
    return f"#\nbroker.id={broker_id}\ncluster.id={cluster_id}\nversion=0\n".encode()


def decode_meta_properties(data: bytes) -> tuple[str, int]:
    """(cluster id, broker id). Raises MalformedCheckpoint."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    fields = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        return fields["cluster.id"].replace("\\", ""), int(fields["broker.id"])
    except (KeyError, ValueError):
        raise MalformedCheckpoint(f"{data[:80]!r}") from None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Kafka 3.7 and later put the epoch of the last registration there (KIP-966); older ones leave it empty."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def encode_starts(number: int) -> bytes:
    """How often the node has started."""
    return f"{number}\n".encode()


def decode_starts(data: bytes) -> int:
    """0 if the file is damaged: the directory counts as older than every start that is known."""
    text = data.strip()
    return int(text) if data.endswith(b"\n") and text.isdigit() and len(text) < 20 else 0
