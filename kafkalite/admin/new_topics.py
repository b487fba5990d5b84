"""What ZooKeeper holds of a new topic, and how many new topics are written at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafkalite.coordination import config_znodes, paths, topic_znodes
from kafkalite.coordination.coordinator import (
    Coordinator,
    CoordinatorError,
    Create,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    Op,
    SetData,
    Stat,
    TooBigError,
)
from kafkalite.coordination.topic_configs import TOPICS, notification
from kafkalite.coordination.verbs import size_of_ops
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ErrorCode, api_error
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Replicas, TopicId

#: Topics of a request that are planned and written before the next ones. The controller sees them as one change.
BATCH = 100
#: Bytes of one transaction (a larger one would cut the connection for all requests).
_MAX_BYTES = 512 * 1024
#: Attempts at a conditional write that others keep winning.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic that has passed all checks."""

    name: str
    topic_id: TopicId
    assignment: Mapping[int, Replicas]
    configs: Mapping[str, str]


class NewTopics:
    """Writes topics that have passed all checks.

    Args:
        known_settings: what this node takes for the settings of a topic of this name (empty if it knows of none).
    """

    def __init__(self, known_settings: Callable[[str], Mapping[str, str]]) -> None:
        self._known_settings = known_settings

    async def write_many(self, zk: Coordinator, topics: Sequence[PlannedTopic]) -> list[PlannedTopic]:
        """Write these topics in as few transactions as they fit into.

        Returns:
            The topics that are not known to be written (somebody else was faster, the connection broke): `write` them one by one.
            It does no harm that they may be written already.
        """
        stale = await zk.get_many([paths.config_topic(topic.name) for topic in topics])
        transactions: list[list[Op]] = []
        members: list[list[PlannedTopic]] = []
        size = _MAX_BYTES
        for topic, settings in zip(topics, stale, strict=True):
            ops = self._operations(topic, None if settings is None else settings[1])
            needed = size_of_ops(ops)
            if size + needed > _MAX_BYTES:
                transactions.append([])
                members.append([])
                size = 0
            transactions[-1] += ops
            members[-1].append(topic)
            size += needed
        results = await zk.multi_many(transactions)
        return [
            topic
            for group, result in zip(members, results, strict=True)
            if isinstance(result, CoordinatorError)
            for topic in group
        ]

    async def write(self, zk: Coordinator, topic: PlannedTopic) -> None:
        """Write one topic; may be repeated. Raises ApiError, CoordinatorError."""
        for _ in range(_ATTEMPTS):
            stale = await zk.exists(paths.config_topic(topic.name))
            try:
                await zk.multi(self._operations(topic, stale))
                return
            except TooBigError:
                reason = f"{len(topic.assignment)} partitions do not fit into one znode; create fewer and add the rest"
                raise api_error(ErrorCode.INVALID_PARTITIONS, reason) from None
            except MultiFailedError as error:
                if error.index == 0 and isinstance(error.error, NodeExistsError):
                    if await _is_written(zk, topic):
                        return  # by an earlier attempt of ours, whose answer was lost
                    raise api_error(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.") from None
                if isinstance(error.error, NoNodeError):
                    for parent in (paths.TOPICS, paths.CONFIG_TOPICS, paths.CONFIG_CHANGES):
                        await zk.ensure_path(parent)
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")

    def _operations(self, topic: PlannedTopic, stale: Stat | None) -> list[Op]:
        """Assignment and settings, and the notice of the settings where a node could believe others.

        Settings of an earlier topic of this name that somebody removed by hand are overwritten. A topic without settings of its own
        needs no notice: every node would read it, and list all other notices of the last 15 minutes for it.
        """
        path, settings = paths.config_topic(topic.name), config_znodes.encode_config(topic.configs)
        ops: list[Op] = [
            Create(
                paths.topic(topic.name),
                topic_znodes.encode_topic(topic_znodes.TopicZnode(topic.topic_id, topic.assignment)),
            ),
            Create(path, settings) if stale is None else SetData(path, settings, stale.version),
        ]
        if topic.configs or stale is not None or self._known_settings(topic.name):
            ops.append(notification(TOPICS, topic.name))
        return ops


async def _is_written(zk: Coordinator, topic: PlannedTopic) -> bool:
    try:
        data, _ = await zk.get(paths.topic(topic.name))
        return topic_znodes.decode_topic(data, paths.topic(topic.name)).topic_id == topic.topic_id
    except (NoNodeError, ZnodeError):
        return False
