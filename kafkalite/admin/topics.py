"""Orders of administrators, on any node: validated, then written to ZooKeeper, where the controller finds them.

So an order survives every crash, and is the same as one given with a ZooKeeper shell.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TypeVar

from kafkalite.admin.decisions import placement
from kafkalite.config import BrokerConfig, topic_config
from kafkalite.coordination import admin_znodes, paths, znodes
from kafkalite.coordination.broker_states import read_closed
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    Create,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    Op,
    OutcomeUnknownError,
    SessionExpiredError,
    SetData,
    TooBigError,
)
from kafkalite.coordination.patience import DEFAULT_S, waiting_at_most
from kafkalite.coordination.registration import registered_brokers
from kafkalite.coordination.topic_configs import TOPICS, notification
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.errors import ApiError, ConfigError, ErrorCode, api_error
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    TopicResult,
)
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import MAX_NAME_LENGTH, NO_TOPIC_ID, BrokerId, Replicas, TopicId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

T = TypeVar("T")

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
RETRY_S = 0.1
MIN_PATIENCE_S = 5.0
DELETION_WAIT_S = 2.0
#: Attempts at a conditional write that others keep winning.
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Existing:
    """What a new topic must not clash with, and where it can live."""

    topics: frozenset[str]
    #: Every live broker with its rack.
    brokers: Mapping[BrokerId, str | None]
    #: Those that take no new replicas, with their states (`broker.state`).
    closed: Mapping[BrokerId, str] = field(default_factory=dict)

    @property
    def open(self) -> dict[BrokerId, str | None]:
        """The brokers that take new replicas."""
        return {broker: rack for broker, rack in self.brokers.items() if broker not in self.closed}


def check_name(name: str) -> None:
    """Kafka's rules for topic names. Raises ApiError INVALID_TOPIC_EXCEPTION."""
    reason = None
    if not name:
        reason = "a topic name must not be empty"
    elif name in (".", ".."):
        reason = "a topic name must not be '.' or '..'"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"a topic name has at most {MAX_NAME_LENGTH} characters, this one {len(name)}"
    elif _NAME.fullmatch(name) is None:
        reason = f"{name!r}: a topic name consists of ASCII letters and digits, '.', '_' and '-'"
    if reason is not None:
        raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def collision_key(name: str) -> str:
    """Names with the same key would share metric names: '.' and '_' are one there."""
    return name.replace(".", "_")


class TopicAdmin:
    """Writes orders of administrators.

    Args:
        session: the current ZooKeeper session, waiting for one if need be (`patience`). May raise ApiError.
        config: defaults for settings that a request does not give; passed each time because they may change.
        rng: topic ids and where placement starts.
    """

    def __init__(
        self,
        session: Callable[[], Awaitable[Coordinator]],
        config: Callable[[], BrokerConfig],
        rng: random.Random,
    ) -> None:
        self._session = session
        self._config = config
        self._rng = rng
        #: How long an order to delete waits for its execution.
        self.deletion_wait_s = DELETION_WAIT_S

    async def repeating(self, call: Callable[[Coordinator], Awaitable[T]]) -> T:
        """Do what may be done twice until ZooKeeper answers, in the next session if need be."""
        while True:
            zk = await self._session()
            try:
                return await call(zk)
            except (NotSentError, OutcomeUnknownError, SessionExpiredError):
                await asyncio.sleep(RETRY_S)

    # --- create ----------------------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Create topics, each on its own: one bad topic does not fail the others. An error is a result, never raised."""
        names = [topic.topic for topic in request.topics]
        results: list[TopicResult] = []
        try:
            async with patience(request.timeout_ms):
                await self._create_each(request, names, results)
        except (TimeoutError, ApiError) as error:
            done = {result.topic for result in results}
            left = [name for name in dict.fromkeys(names) if name not in done]
            results += [
                TopicResult(name, error.code, str(error)) if isinstance(error, ApiError) else _unanswered(name)
                for name in left
            ]
        return CreateTopicsResponse(tuple(results))

    async def _create_each(
        self, request: CreateTopicsRequest, names: Sequence[str], results: list[TopicResult]
    ) -> None:
        existing = await self.repeating(self.existing)
        for topic in request.topics:
            if names.count(topic.topic) > 1:
                if all(result.topic != topic.topic for result in results):
                    reason = "the topic is in the request more than once"
                    results.append(TopicResult(topic.topic, ErrorCode.INVALID_REQUEST, reason))
                continue
            result = await self._create(topic, existing, validate_only=request.validate_only)
            if result.error == ErrorCode.NONE:
                existing = Existing(existing.topics | {topic.topic}, existing.brokers, existing.closed)
            results.append(result)

    async def existing(self, zk: Coordinator) -> Existing:
        topics, _ = await zk.children(paths.TOPICS)
        ids, _ = paths.broker_ids((await zk.children(paths.BROKER_IDS))[0])
        registered, malformed = registered_brokers(ids, await zk.get_many([paths.broker(id_) for id_ in ids]))
        brokers = {id_: info.rack for id_, info in registered.items()}
        for path, reason in malformed.items():  # also a Kafka broker on the same ZooKeeper: it can hold nothing of ours
            _log.warning("znode.malformed", path=path, reason=reason)
        if len({rack is None for rack in brokers.values()}) > 1:
            brokers = dict.fromkeys(brokers)  # racks of some brokers only: place as if there were none
        return Existing(frozenset(topics), brokers, await read_closed(zk, brokers))

    async def _create(self, topic: NewTopic, existing: Existing, *, validate_only: bool) -> TopicResult:
        try:
            assignment = self._validated(topic, existing)
            configs = self._validated_configs(topic)
            topic_id = self._new_topic_id()
            if not validate_only:
                await self.repeating(lambda zk: self._write_topic(zk, topic.topic, topic_id, assignment, configs))
        except ApiError as refusal:
            reason = str(refusal)
            if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS and await self.repeating(
                lambda zk: self._is_being_deleted(zk, topic.topic)
            ):
                reason = f"topic {topic.topic!r} is being deleted; its name is free when live brokers have removed it"
            return TopicResult(topic.topic, refusal.code, reason)
        except CoordinatorError as error:
            return TopicResult(topic.topic, ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refused: {error!r}")
        _log.info("topic.ordered", topic=topic.topic, partitions=len(assignment), validate_only=validate_only)
        replicas = len(assignment[0])
        return TopicResult(
            topic.topic,
            ErrorCode.NONE,
            topic_id=NO_TOPIC_ID if validate_only else topic_id,
            partitions=len(assignment),
            replication_factor=replicas,
        )

    def _validated(self, topic: NewTopic, existing: Existing) -> dict[int, Replicas]:
        """The assignment. Raises ApiError."""
        check_name(topic.topic)
        if topic.topic in existing.topics:
            raise api_error(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.topic!r} already exists")
        clashing = sorted(name for name in existing.topics if collision_key(name) == collision_key(topic.topic))
        if clashing:
            reason = f"topic {topic.topic!r} collides with {clashing[0]!r}: '.' and '_' are the same in metric names"
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        config = self._config()
        if topic.assignment is not None:
            if topic.partitions != -1 or topic.replication_factor != -1:
                reason = "give an assignment, or the numbers of partitions and replicas, not both"
                raise api_error(ErrorCode.INVALID_REQUEST, reason)
            check_assignment(topic.assignment, existing.brokers)
            check_open([broker for replicas in topic.assignment.values() for broker in replicas], existing.closed)
            check_partition_count(len(topic.assignment), config)
            return dict(sorted(topic.assignment.items()))
        partitions = config.num_partitions if topic.partitions == -1 else topic.partitions
        replicas = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        check_partition_count(partitions, config)
        return dict(enumerate(self.place(topic.placement, existing, partitions, replicas)))

    def place(self, how: str, existing: Existing, partitions: int, replicas: int) -> list[Replicas]:
        """Raises ApiError."""
        brokers = existing.open
        try:
            if how == "mod":
                return placement.mod(sorted(brokers), partitions, replicas)
            if how != "shifted":
                raise api_error(ErrorCode.INVALID_REQUEST, f"placement {how!r} is neither shifted nor mod")
            count = max(1, len(brokers))
            start, shift = self._rng.randrange(count), self._rng.randrange(count)
            return placement.shifted(brokers, partitions, replicas, start=start, shift=shift)
        except placement.PlacementError as error:
            raise api_error(ErrorCode.INVALID_REPLICATION_FACTOR, f"{error}{closed_text(existing.closed)}") from None

    def _validated_configs(self, topic: NewTopic) -> dict[str, str]:
        configs = topic.configs or {}
        try:
            topic_config(self._config().topic, configs)
        except ConfigError as error:
            raise api_error(ErrorCode.INVALID_CONFIG, str(error)) from None
        return configs

    def _new_topic_id(self) -> TopicId:
        """A random UUID in Kafka's text form; never one with a leading dash, which command lines mistake (KAFKA-16010)."""
        while True:
            number = self._rng.getrandbits(128)
            number = number & ~(0xF << 76) | (4 << 76)  # version 4
            number = number & ~(0x3 << 62) | (2 << 62)  # variant 1
            text = base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")
            if not text.startswith("-"):
                return TopicId(text)

    async def _write_topic(
        self,
        zk: Coordinator,
        name: str,
        topic_id: TopicId,
        assignment: Mapping[int, Replicas],
        configs: Mapping[str, str],
    ) -> None:
        """Settings, assignment and the notice of the settings in one transaction; may be repeated.

        Raises ApiError, CoordinatorError.
        """
        value = znodes.encode_topic(znodes.TopicZnode(topic_id, assignment))
        settings = znodes.encode_config(configs)
        for _ in range(ATTEMPTS):
            # Settings of an earlier topic of this name that somebody removed by hand are overwritten.
            stale = await zk.exists(paths.config_topic(name))
            config_op: Op = Create(paths.config_topic(name), settings)
            if stale is not None:
                config_op = SetData(paths.config_topic(name), settings, stale.version)
            try:
                await zk.multi([Create(paths.topic(name), value), config_op, notification(TOPICS, name)])
                return
            except TooBigError:
                reason = f"{len(assignment)} partitions do not fit into one znode; create fewer and add the rest"
                raise api_error(ErrorCode.INVALID_PARTITIONS, reason) from None
            except MultiFailedError as error:
                if error.index == 0 and isinstance(error.error, NodeExistsError):
                    if await self._is_written(zk, name, topic_id):
                        return  # by an earlier attempt of ours, whose answer was lost
                    raise api_error(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists") from None
                if isinstance(error.error, NoNodeError):
                    for parent in (paths.TOPICS, paths.CONFIG_TOPICS, paths.CONFIG_CHANGES):
                        await zk.ensure_path(parent)
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")

    async def _is_being_deleted(self, zk: Coordinator, name: str) -> bool:
        own, kafkas = await zk.get_many([paths.DELETE_TOPICS, paths.delete_topic(name)])
        try:
            return kafkas is not None or (own is not None and name in admin_znodes.decode_delete_topics(own[0]))
        except ZnodeError:
            return False

    async def _is_written(self, zk: Coordinator, name: str, topic_id: TopicId) -> bool:
        try:
            data, _ = await zk.get(paths.topic(name))
            return znodes.decode_topic(data, paths.topic(name)).topic_id == topic_id
        except (NoNodeError, ZnodeError):
            return False

    # --- delete ----------------------------------------------------------------------------------------------

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Order the deletion of topics. NONE means: the order stands, and will be carried out.

        Waits a little for that, so that as a rule a topic of the same name can be created right afterwards.
        """
        names = tuple(dict.fromkeys(request.topics))
        if not self._config().delete_topic_enable:
            code, reason = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
            return DeleteTopicsResponse(tuple(TopicResult(name, code, reason) for name in names))
        there: list[str] = []
        try:
            async with patience(request.timeout_ms):
                legal = [name for name in names if _NAME.fullmatch(name)]
                found = await self.repeating(lambda zk: zk.get_many([paths.topic(name) for name in legal]))
                there = [name for name, each in zip(legal, found, strict=True) if each is not None or request.vanished]
                if there:
                    await self.repeating(lambda zk: self._request_deletion(zk, there))
                    await self._wait_until_gone(there, min(self.deletion_wait_s, request.timeout_ms / 1000))
        except ApiError as refusal:
            return DeleteTopicsResponse(tuple(TopicResult(name, refusal.code, str(refusal)) for name in names))
        except TimeoutError:
            return DeleteTopicsResponse(tuple(map(_unanswered, names)))
        return DeleteTopicsResponse(
            tuple(
                TopicResult(name, ErrorCode.NONE)
                if name in there
                else TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
                for name in names
            )
        )

    async def _wait_until_gone(self, names: Sequence[str], wait_s: float) -> None:
        """Until the topics' znodes are gone, which is the end of a deletion; a dead replica can keep it from ending."""
        changed = asyncio.Event()
        try:
            async with asyncio.timeout(wait_s):
                for name in names:
                    changed.clear()
                    while await self.repeating(lambda zk, name=name: zk.exists(paths.topic(name), changed.set)):  # type: ignore[misc]
                        await changed.wait()
                        changed.clear()
        except TimeoutError:
            _log.info("topic.deletion_goes_on", topics=list(names))

    async def _request_deletion(self, zk: Coordinator, names: Sequence[str]) -> None:
        """Add names to /admin/delete_topics; may be repeated. Raises ApiError, CoordinatorError."""
        for _ in range(ATTEMPTS):
            try:
                try:
                    data, stat = await zk.get(paths.DELETE_TOPICS)
                except NoNodeError:
                    await zk.ensure_path(paths.parent(paths.DELETE_TOPICS))
                    await zk.create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(names))
                    return
                ordered = admin_znodes.decode_delete_topics(data)
                wanted = tuple(dict.fromkeys([*ordered, *names]))
                if wanted != ordered:
                    await zk.set(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(wanted), stat.version)
                return
            except ZnodeError as error:
                reason = f"{error.path} is malformed ({error.reason}); remove or repair it first"
                raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from None
            except (NodeExistsError, BadVersionError, NoNodeError):
                continue  # somebody else has changed it
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")


def check_partition_count(partitions: int, config: BrokerConfig) -> None:
    """Raises ApiError INVALID_PARTITIONS."""
    if not 1 <= partitions <= config.max_partitions_per_topic:
        reason = f"{partitions} partitions: not between 1 and {config.max_partitions_per_topic}"
        raise api_error(ErrorCode.INVALID_PARTITIONS, reason)


def check_assignment(assignment: Mapping[int, Sequence[BrokerId]], brokers: Mapping[BrokerId, str | None]) -> None:
    """A replica assignment given by hand. Raises ApiError INVALID_REPLICA_ASSIGNMENT."""
    reason = None
    if sorted(assignment) != list(range(len(assignment))) or not assignment:
        reason = "partitions must be numbered from 0 without a gap"
    elif len({len(replicas) for replicas in assignment.values()}) != 1:
        reason = "all partitions must have the same number of replicas"
    for partition, replicas in sorted(assignment.items()):
        unknown = sorted(set(replicas) - brokers.keys())
        if not replicas:
            reason = reason or f"partition {partition} has no replica"
        elif len(set(replicas)) != len(replicas):
            reason = reason or f"partition {partition} has a broker twice: {list(replicas)}"
        elif unknown:
            reason = reason or f"partition {partition} names brokers that are not alive: {unknown}"
    if reason is not None:
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def closed_text(closed: Mapping[BrokerId, str]) -> str:
    """ "; broker 3 is cordoned": an addition to the message that there are too few brokers."""
    return "".join(f"; broker {broker} is {state}" for broker, state in sorted(closed.items()))


def check_open(brokers: Iterable[BrokerId], closed: Mapping[BrokerId, str]) -> None:
    """Whether all of these take new replicas. Raises ApiError INVALID_REPLICA_ASSIGNMENT."""
    for broker in sorted(set(brokers) & closed.keys()):
        reason = (
            f"broker {broker} is {closed[broker]}: it takes no new replicas (kafkalite admin broker uncordon {broker})"
        )
        raise api_error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


@asynccontextmanager
async def patience(timeout_ms: int | None) -> AsyncIterator[None]:
    """The scope of one request: if ZooKeeper is away, its return is waited for within the request's own timeout.

    Raises TimeoutError if ZooKeeper takes longer to carry it out. A request of a client in a hurry has MIN_PATIENCE_S for that,
    since its work goes on anyway.
    """
    limit_s = DEFAULT_S if timeout_ms is None else timeout_ms / 1000
    with waiting_at_most(timeout_ms):
        async with asyncio.timeout(max(limit_s, MIN_PATIENCE_S)):
            yield


def _unanswered(name: str) -> TopicResult:
    reason = "ZooKeeper has not answered: it is unknown whether the request was stored"
    return TopicResult(name, ErrorCode.REQUEST_TIMED_OUT, reason)
