"""The few znodes of the whole cluster: its id, the controller and its epoch, the producer ids. Pure. What it raises, and when: `znode_json`."""

from __future__ import annotations

from kafkalite.coordination import paths
from kafkalite.coordination.znode_json import INT32_MAX, INT64_MAX, ZnodeError, read, timestamp, write
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import BrokerId, ControllerEpoch


@dataclass(frozen=True, slots=True)
class ControllerZnode:
    """/controller: the broker that is the controller. `timestamp_ms` is None if the writer left it out."""

    broker_id: BrokerId
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """/latest_producer_id_block: the newest block of producer ids; both ends belong to it."""

    broker_id: BrokerId
    first: int
    last: int


def encode_cluster_id(cluster_id: str) -> bytes:
    """/cluster/id. Kafka writes the version as text here."""
    return write({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster's id. Raises ZnodeError."""
    reader = read(data, paths.CLUSTER_ID)
    cluster_id = reader.text("id")
    if not cluster_id:
        raise reader.fail("id", "empty")
    return cluster_id


def encode_controller(broker_id: BrokerId, timestamp_ms: int) -> bytes:
    """/controller."""
    return write({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes) -> ControllerZnode:
    """The broker that is the controller. Raises ZnodeError."""
    reader = read(data, paths.CONTROLLER)
    reader.version()
    written_ms = timestamp(reader)
    return ControllerZnode(BrokerId(reader.integer("brokerid", 0, INT32_MAX)), written_ms)


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    """/controller_epoch: a bare integer, not JSON."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    """The controller epoch. Raises ZnodeError."""
    if not data.isdigit() or len(data) > 10 or int(data) > INT32_MAX:
        raise ZnodeError(paths.CONTROLLER_EPOCH, "not an integer")
    return ControllerEpoch(int(data))


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """/latest_producer_id_block. Kafka writes the ends as text."""
    return write(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    """The newest block. Raises ZnodeError."""
    reader = read(data, paths.LATEST_PRODUCER_ID_BLOCK)
    reader.version()
    ends: list[int] = []
    for name in ("block_start", "block_end"):
        text = reader.text(name)
        if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > INT64_MAX:
            raise reader.fail(name, "not an integer")
        ends.append(int(text))
    if ends[1] < ends[0]:
        raise reader.fail("block_end", "before block_start")
    return ProducerIdBlock(BrokerId(reader.integer("broker", -1, INT32_MAX)), ends[0], ends[1])
