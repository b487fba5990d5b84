"""Requests of administrators, on any node: validated, then written to ZooKeeper, where the controller finds them.

So a request survives every crash, and is the same as one given with a ZooKeeper shell.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from kafkalite.admin.decisions import placement
from kafkalite.admin.decisions.topic_checks import (
    Existing,
    TakenNames,
    check_assignment,
    check_name,
    check_open,
    check_partition_count,
    closed_text,
    is_legal,
)
from kafkalite.admin.new_topics import BATCH, NewTopics, PlannedTopic
from kafkalite.config import BrokerConfig, topic_config
from kafkalite.coordination import admin_znodes, paths, topic_znodes
from kafkalite.coordination.broker_states import closed_brokers
from kafkalite.coordination.closed_brokers import read_states
from kafkalite.coordination.coordinator import (
    BadVersionError,
    Coordinator,
    CoordinatorError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionExpiredError,
    Watch,
)
from kafkalite.coordination.patience import DEFAULT_S, refused_at, waiting_at_most
from kafkalite.coordination.registration import new_uuid, registered_brokers
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
from kafkalite.model import NO_TOPIC_ID, Replicas, TopicId
from kafkalite.telemetry.logs import get_logger

_log = get_logger(__name__)

T = TypeVar("T")

RETRY_S = 0.1
MIN_PATIENCE_S = 5.0
DELETION_WAIT_S = 2.0
#: Attempts at a conditional write that others keep winning.
ATTEMPTS = 20


class TopicAdmin:
    """Writes requests of administrators.

    Args:
        session: the current ZooKeeper session, waiting for one if need be (`patience`). May raise ApiError.
        config: defaults for settings that a request does not give; passed each time because they may change.
        rng: topic ids and where placement starts.
        known_settings: see `NewTopics`.
    """

    def __init__(
        self,
        session: Callable[[], Awaitable[Coordinator]],
        config: Callable[[], BrokerConfig],
        rng: random.Random,
        known_settings: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self._session = session
        self._config = config
        self._rng = rng
        self._new_topics = NewTopics(known_settings)
        #: How long a request to delete waits for its execution.
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
        by_name = {result.topic: result for result in results}
        return CreateTopicsResponse(tuple(by_name[name] for name in dict.fromkeys(names)))

    async def _create_each(
        self, request: CreateTopicsRequest, names: Sequence[str], results: list[TopicResult]
    ) -> None:
        existing = await self.repeating(lambda zk: self.existing(zk, names))
        while not existing.brokers and asyncio.get_running_loop().time() + RETRY_S < refused_at():
            await asyncio.sleep(RETRY_S)  # the first node of a cluster can be asked before it is registered
            existing = await self.repeating(lambda zk: self.existing(zk, names))
        times = Counter(names)
        reason = "the topic is in the request more than once"
        results += [TopicResult(name, ErrorCode.INVALID_REQUEST, reason) for name in times if times[name] > 1]
        wanted = [topic for topic in request.topics if times[topic.topic] == 1]
        for first in range(0, len(wanted), BATCH):
            batch = wanted[first : first + BATCH]
            await self._create_batch(batch, existing, results, validate_only=request.validate_only)

    async def _create_batch(
        self, topics: Sequence[NewTopic], existing: Existing, results: list[TopicResult], *, validate_only: bool
    ) -> None:
        """Check each topic, and write those that are right together."""
        planned: list[PlannedTopic] = []
        for topic in topics:
            try:
                assignment = self._validated(topic, existing)
                planned.append(
                    PlannedTopic(topic.topic, TopicId(new_uuid(self._rng)), assignment, self._validated_configs(topic))
                )
            except ApiError as refusal:
                results.append(await self._refused(topic.topic, refusal))
            else:
                existing.topics.add(topic.topic)
        if validate_only:
            results += [_planned_result(plan, topic_id=NO_TOPIC_ID) for plan in planned]
        elif planned:
            await self._write(planned, results)
        _log.info(
            "topics.requested", topics=len(planned), first=planned[0].name if planned else "", check=validate_only
        )

    async def _write(self, planned: Sequence[PlannedTopic], results: list[TopicResult]) -> None:
        zk = await self._session()
        try:
            left = await self._new_topics.write_many(zk, planned)
        except (NotSentError, OutcomeUnknownError, SessionExpiredError):
            left = list(planned)
        alone = {plan.name for plan in left}
        results += [_planned_result(plan) for plan in planned if plan.name not in alone]
        for plan in left:
            try:
                await self.repeating(partial(self._new_topics.write, topic=plan))
            except ApiError as refusal:
                results.append(await self._refused(plan.name, refusal))
            except CoordinatorError as error:
                reason = f"ZooKeeper refused: {error!r}"
                results.append(TopicResult(plan.name, ErrorCode.UNKNOWN_SERVER_ERROR, reason))
            else:
                results.append(_planned_result(plan))

    async def _refused(self, name: str, refusal: ApiError) -> TopicResult:
        reason = str(refusal)
        if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS and await self.repeating(
            lambda zk: self._is_being_deleted(zk, name)
        ):
            reason = f"topic {name!r} is being deleted; its name is free when live brokers have removed it"
        return TopicResult(name, refusal.code, reason)

    async def existing(self, zk: Coordinator, names: Sequence[str] = ()) -> Existing:
        """The live brokers, and the topics that new topics of these names could clash with."""
        topics = await _clashing_topics(zk, names)
        ids, _ = paths.broker_ids((await zk.children(paths.BROKER_IDS))[0])
        registered, malformed = registered_brokers(ids, await zk.get_many([paths.broker(id_) for id_ in ids]))
        brokers = {id_: info.rack for id_, info in registered.items()}
        for path, reason in malformed.items():  # also a Kafka broker on the same ZooKeeper: it can hold nothing of ours
            _log.warning("znode.malformed", path=path, reason=reason)
        if len({rack is None for rack in brokers.values()}) > 1:
            brokers = dict.fromkeys(brokers)  # racks of some brokers only: place as if there were none
        closed = closed_brokers(await read_states(zk, brokers), registered.values())
        return Existing(topics, brokers, closed, await _vanished_topics(zk) if names else frozenset())

    def _validated(self, topic: NewTopic, existing: Existing) -> dict[int, Replicas]:
        """The assignment. Raises ApiError."""
        check_name(topic.topic)
        if topic.topic in existing.topics:
            raise api_error(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.topic}' already exists.")
        if topic.topic in existing.vanished:
            # Clients ask for it all the time, and coordinators for their own: another topic of its name would take its replicas' place.
            reason = f"the znodes of topic {topic.topic!r} have vanished: put them back, or delete it for good (delete-topic --vanished)"
            raise api_error(ErrorCode.TOPIC_ALREADY_EXISTS, reason)
        clashing = existing.topics.clashing(topic.topic)
        if clashing is not None:
            reason = f"Topic '{topic.topic}' collides with existing topic: {clashing}"  # metric names have '_' for '.'
            raise api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        config = self._config()
        if topic.assignment is not None:
            if topic.partitions != -1 or topic.replication_factor != -1:
                reason = "give an assignment, or the numbers of partitions and replicas, not both"
                raise api_error(ErrorCode.INVALID_REQUEST, reason)
            check_assignment(topic.assignment, existing.brokers)
            check_open([broker for replicas in topic.assignment.values() for broker in replicas], existing.closed)
            check_partition_count(len(topic.assignment), config.max_partitions_per_topic)
            return dict(sorted(topic.assignment.items()))
        partitions = config.num_partitions if topic.partitions == -1 else topic.partitions
        replicas = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        check_partition_count(partitions, config.max_partitions_per_topic)
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

    async def _is_being_deleted(self, zk: Coordinator, name: str) -> bool:
        own, kafkas = await zk.get_many([paths.DELETE_TOPICS, paths.delete_topic(name)])
        try:
            return kafkas is not None or (own is not None and name in admin_znodes.decode_delete_topics(own[0]))
        except ZnodeError:
            return False

    # --- delete ----------------------------------------------------------------------------------------------

    async def delete_topics(
        self, request: DeleteTopicsRequest, ids: Mapping[str, TopicId] = MappingProxyType({})
    ) -> DeleteTopicsResponse:
        """Request the deletion of topics. NONE means: the request stands, and will be carried out.

        Waits a little for that, so that as a rule a topic of the same name can be created right afterwards.

        Args:
            ids: of topics that are deleted only if they still have this id (UNKNOWN_TOPIC_ID).
        """
        names = tuple(dict.fromkeys(request.topics))
        if not self._config().delete_topic_enable:
            code, reason = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false"
            return DeleteTopicsResponse(tuple(TopicResult(name, code, reason) for name in names))
        there: list[str] = []
        others: set[str] = set()
        try:
            async with patience(request.timeout_ms):
                legal = list(filter(is_legal, names))
                found = await self.repeating(lambda zk: zk.get_many([paths.topic(name) for name in legal]))
                there = [name for name, each in zip(legal, found, strict=True) if each is not None or request.vanished]
                others = {
                    name
                    for name, each in zip(legal, found, strict=True)
                    if name in ids and each is not None and _topic_id(each[0]) != ids[name]
                }
                there = [name for name in there if name not in others]
                made = {name: each[1].czxid for name, each in zip(legal, found, strict=True) if each is not None}
                if there:
                    await self.repeating(lambda zk: self._request_deletion(zk, there, made))
                    await self._wait_until_gone(there, min(self.deletion_wait_s, request.timeout_ms / 1000))
        except ApiError as refusal:
            return DeleteTopicsResponse(tuple(TopicResult(name, refusal.code, str(refusal)) for name in names))
        except TimeoutError:
            return DeleteTopicsResponse(tuple(map(_unanswered, names)))
        return DeleteTopicsResponse(
            tuple(
                TopicResult(name, ErrorCode.NONE)
                if name in there
                else TopicResult(name, ErrorCode.UNKNOWN_TOPIC_ID, f"topic {name!r} has another id")
                if name in others
                else TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
                for name in names
            )
        )

    async def _wait_until_gone(self, names: Sequence[str], wait_s: float) -> None:
        """Until the topics' znodes are gone, which is the end of a deletion; a dead replica can keep it from ending."""
        changed = asyncio.Event()
        left = sorted(names)  # the controller's order: when the last one goes, the others are gone, as a rule
        try:
            async with asyncio.timeout(wait_s):
                while left:
                    changed.clear()
                    if await self._exists(left[-1], changed.set):
                        await changed.wait()
                    else:
                        left = await self._those_there(left[:-1])
        except TimeoutError:
            _log.info("topic.deletion_goes_on", topics=list(names))

    async def _exists(self, name: str, watch: Watch) -> bool:
        return await self.repeating(lambda zk: zk.exists(paths.topic(name), watch)) is not None

    async def _those_there(self, names: Sequence[str]) -> list[str]:
        found = await self.repeating(lambda zk: zk.get_many([paths.topic(name) for name in names]))
        return [name for name, each in zip(names, found, strict=True) if each is not None]

    async def _request_deletion(self, zk: Coordinator, names: Sequence[str], made: Mapping[str, int]) -> None:
        """Add names to /admin/delete_topics; may be repeated: a topic that somebody has created since is another one.

        Args:
            made: czxid of the topics' znodes; none of those that are not there.
        Raises ApiError, CoordinatorError.
        """
        now = await zk.get_many([paths.topic(name) for name in names])
        names = [
            name
            for name, each in zip(names, now, strict=True)
            if (None if each is None else each[1].czxid) == made.get(name)
        ]
        if not names:
            return
        for _ in range(ATTEMPTS):
            try:
                try:
                    data, stat = await zk.get(paths.DELETE_TOPICS)
                except NoNodeError:
                    await zk.ensure_path(paths.parent(paths.DELETE_TOPICS))
                    await zk.create(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(names))
                    return
                requested = admin_znodes.decode_delete_topics(data)
                wanted = tuple(dict.fromkeys([*requested, *names]))
                if wanted != requested:
                    await zk.set(paths.DELETE_TOPICS, admin_znodes.encode_delete_topics(wanted), stat.version)
                return
            except ZnodeError as error:
                reason = f"{error.path} is malformed ({error.reason}); remove or repair it first"
                raise api_error(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from None
            except (NodeExistsError, BadVersionError, NoNodeError):
                continue  # somebody else has changed it
        raise api_error(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper did not accept the request")


def _topic_id(data: bytes) -> TopicId | None:
    """The id in a topic's znode; None if it has no id, or cannot be read."""
    try:
        return topic_znodes.decode_topic(data).topic_id
    except ZnodeError:
        return None


async def _clashing_topics(zk: Coordinator, names: Iterable[str]) -> TakenNames:
    """Those of `names` that are there; all topics, if a name is like others ('.' and '_') that must be looked for."""
    legal = list(filter(is_legal, names))
    if any("." in name or "_" in name for name in legal):
        return TakenNames((await zk.children(paths.TOPICS))[0])
    found = await zk.get_many([paths.topic(name) for name in legal])
    return TakenNames(name for name, each in zip(legal, found, strict=True) if each is not None)


async def _vanished_topics(zk: Coordinator) -> frozenset[str]:
    """Their names, as far as a controller has seen it (ADR 19)."""
    try:
        ids, _ = await zk.children(paths.VANISHED_TOPICS)
    except NoNodeError:
        return frozenset()
    names: set[str] = set()
    for id_, found in zip(ids, await zk.get_many([paths.vanished_topic(id_) for id_ in ids]), strict=True):
        if found is not None:
            with suppress(ZnodeError):  # the controller says so
                names.add(topic_znodes.decode_vanished_topic(found[0], paths.vanished_topic(id_))[0])
    return frozenset(names)


def _planned_result(topic: PlannedTopic, *, topic_id: TopicId | None = None) -> TopicResult:
    return TopicResult(
        topic.name,
        ErrorCode.NONE,
        topic_id=topic.topic_id if topic_id is None else topic_id,
        partitions=len(topic.assignment),
        replication_factor=len(topic.assignment[0]),
    )


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
