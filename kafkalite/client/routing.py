"""Which node gets which request, and what to do when it fails: leaders, coordinators and the controller are followed.

No I/O. `cluster_requests` performs the effects on asyncio, `blocking` on plain sockets. What a client can ask: `flows`.

Times are seconds on one monotonic clock of the caller's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

from kafkalite.client import messages
from kafkalite.client.cluster_view import ClusterView
from kafkalite.client.effects import Flow, LeaderRequest, Pause, Refresh, ToAny, ToLeaders, ToNode
from kafkalite.client.exchange import Request
from kafkalite.client.results import Metadata
from kafkalite.client.retry import Backoff, wants_metadata
from kafkalite.errors import ApiError, ErrorCode, KafkaliteError, api_error, error_code, is_retriable
from kafkalite.model import MAX_NAME_LENGTH, BrokerId, Endpoint, LeaderEpoch, TopicPartition
from kafkalite.rpc.answers import RpcDisconnected, RpcError, RpcNotSent, RpcTimeout

#: Every batch write of Spark's is a group of its own: no more coordinators are remembered.
_COORDINATORS_KEPT = 1000
#: These say that another node is the coordinator by now, or is about to be.
FIND_AGAIN = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
#: The least that a request is given (seconds), also when the deadline is near.
_LEAST_S = 0.1

#: (partition, its error, more about it)
Outcome = tuple[TopicPartition, ErrorCode, str]
#: What an error of a partition means: False, asking again does not help.
IsPassing = Callable[[ErrorCode], bool]


def can_be_topic(name: str) -> bool:
    """Whether a request can name it: a Metadata request with any other name fails for all its topics."""
    return name.isascii() and 0 < len(name) <= MAX_NAME_LENGTH


def _is_passing(code: ErrorCode) -> bool:
    return is_retriable(code) or wants_metadata(code)


def _invalid_topic(name: str) -> ApiError:
    text = f"{name[:MAX_NAME_LENGTH]!r}: a topic's name has letters, digits, '.', '_' and '-', at most {MAX_NAME_LENGTH} of them"
    return api_error(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def _settle(
    waiting: set[TopicPartition],
    answers: Iterable[tuple[LeaderRequest, Any]],
    take: Callable[[LeaderRequest, Any], Iterable[Outcome]],
    is_passing: IsPassing,
) -> KafkaliteError | None:
    """Take what is done out of `waiting`. Returns the last error of the others; raises one that does not pass, when all answers are taken."""
    last: KafkaliteError | None = None
    failure: ApiError | None = None
    for asked, answer in answers:
        if isinstance(answer, KafkaliteError):
            last = answer
            if isinstance(answer, ApiError) and not is_retriable(answer.code):
                failure = answer
            continue
        for key, code, text in take(asked, answer):
            if code is ErrorCode.NONE:
                waiting.discard(key)
                continue
            last = error = api_error(code, f"{key}: {text or code.name}")
            if not is_passing(code):
                failure = error
    if failure is not None:
        raise failure
    return last


class Router:
    """What both clients know of the cluster, and the flows that use it."""

    def __init__(
        self, view: ClusterView, in_turn: Callable[[], list[Endpoint]], now: Callable[[], float], rng: random.Random,
        *, request_timeout_s: float,
    ) -> None:  # fmt: skip
        self.view = view
        self.backoff = Backoff(rng)
        self.request_timeout_s = request_timeout_s
        self._in_turn = in_turn
        self._now = now
        self._coordinators: dict[tuple[int, str], BrokerId] = {}

    def _left(self, deadline: float) -> float:
        return max(_LEAST_S, deadline - self._now())

    def _pause(self, attempts: int, deadline: float, error: KafkaliteError) -> Flow[None]:
        """Before another try. Raises `error` when there is no time for one."""
        pause = self.backoff.pause_s(attempts)
        if self._now() + pause >= deadline:
            raise error
        yield Pause(pause)

    # --- metadata --------------------------------------------------------------------------------

    def metadata(
        self, topics: Iterable[str] | None, timeout_s: float, *, allow_auto_create: bool = False
    ) -> Flow[Metadata]:
        """Ask for topics (None: all), and remember the answer."""
        request = messages.metadata_request(topics, allow_auto_create=allow_auto_create)
        deadline = self._now() + timeout_s
        attempts = 0
        while not (found := messages.metadata_of((yield ToAny(request, self._left(deadline))))).brokers:
            # A node that has just started: it would say of every topic that there is none.
            attempts += 1
            error = api_error(ErrorCode.BROKER_NOT_AVAILABLE, "the node that answers knows no broker yet")
            yield from self._pause(attempts, deadline, error)
        self.view.update(found, has_all_topics=topics is None)
        return found

    def known_topic(self, topic: str, timeout_s: float) -> Flow[int]:
        """The topic's number of partitions.

        Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION when the cluster says so until the end; others at once.
        """
        if not can_be_topic(topic):
            raise _invalid_topic(topic)
        deadline = self._now() + timeout_s
        attempts = 0
        said: ApiError | None = None
        while not (count := self.view.partition_count(topic)):
            error = yield Refresh(frozenset((topic,)), self._left(deadline))
            if count := self.view.partition_count(topic):
                break
            if error is None:
                error = said = self._topic_error(topic) or api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
                if not is_retriable(error.code):
                    raise error
            elif said is not None and isinstance(error, RpcTimeout):
                error = said  # the end cut off the last question: what the cluster said before it says more
            attempts += 1
            yield from self._pause(attempts, deadline, error)
        return count

    def _topic_error(self, topic: str) -> ApiError | None:
        entry = self.view.topics.get(topic)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if entry is None else error_code(entry.error)
        if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            return _invalid_topic(topic)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return api_error(code, f"there is no topic {topic!r}")
        return None if code is ErrorCode.NONE else api_error(code, f"topic {topic}: {code.name}")

    # --- leaders ---------------------------------------------------------------------------------

    def by_leader(self, keys: Iterable[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        """Those that have a leader."""
        found: dict[BrokerId, list[TopicPartition]] = {}
        for key in keys:
            leader = self.view.leader(key)
            if leader is not None:
                found.setdefault(leader.broker_id, []).append(key)
        return found

    def epochs(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderEpoch]:
        """The leader epochs that are known."""
        leaders = ((key, self.view.leader(key)) for key in keys)
        return {key: leader.leader_epoch for key, leader in leaders if leader is not None}

    def ask_leaders(
        self,
        keys: Collection[TopicPartition],
        request_of: Callable[[BrokerId, list[TopicPartition], float], LeaderRequest],
        take: Callable[[LeaderRequest, Any], Iterable[Outcome]],
        deadline: float,
        *,
        wait_s: float = 0.0,
        is_passing: IsPassing = _is_passing,
    ) -> Flow[None]:
        """Ask the leaders of `keys` until each partition is done.

        Args:
            request_of: the request for partitions of one leader, given its timeout in seconds.
            take: keeps what a response says, and returns what it means for each partition.
        Raises:
            ApiError: what asking again does not change. All leaders that were asked have answered then.
            RpcError: a leader could not be reached in time.
        """
        topics = frozenset(key.topic for key in keys)
        waiting = set(keys)
        attempts = 0
        for topic in sorted(topics):
            yield from self.known_topic(topic, self._left(deadline))
        while waiting:
            patience = wait_s + min(self.request_timeout_s, self._left(deadline))
            requests = tuple(request_of(node, part, patience) for node, part in self.by_leader(sorted(waiting)).items())
            outcomes = yield ToLeaders(requests, patience, wait_s)
            last = _settle(waiting, zip(requests, outcomes, strict=True), take, is_passing)
            if not waiting:
                return
            attempts += 1
            yield from self._pause(attempts, deadline, last or self._leaderless(waiting))
            yield Refresh(topics, self._left(deadline))

    def _leaderless(self, keys: Iterable[TopicPartition]) -> ApiError:
        for topic in sorted({key.topic for key in keys}):
            if (error := self._topic_error(topic)) is not None:
                return error
        missing = sorted(key for key in keys if self.view.leader(key) is None)
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        return api_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{shown}: no leader is known")

    # --- coordinators ----------------------------------------------------------------------------

    def to_coordinator(
        self,
        kind: int,
        key: str,
        request: Request,
        error_of: Callable[[Any], tuple[int, str]],
        timeout_s: float,
        done: ErrorCode | None = None,
    ) -> Flow[tuple[BrokerId, Any]]:
        """(coordinator, its response), which has no error. For requests that do no harm twice.

        Args:
            kind: messages.GROUP or messages.TRANSACTION.
            error_of: (error, message) of a response.
            done: after a try whose outcome was lost this error is success: it was executed.
        """
        deadline = self._now() + timeout_s
        attempts = 0
        maybe_executed = False
        while True:
            error: KafkaliteError
            try:
                node = yield from self.coordinator(kind, key, self._left(deadline))
                response = yield ToNode(node, request, min(self.request_timeout_s, self._left(deadline)))
                number, text = error_of(response)
                if not number:
                    return node, response
                code = error_code(number)
                if maybe_executed and code is done:
                    return node, response
                error = api_error(code, text or code.name)
                if code in FIND_AGAIN:
                    self._coordinators.pop((kind, key), None)
                elif not is_retriable(code):
                    raise error
            except RpcError as failure:
                maybe_executed = maybe_executed or isinstance(failure, RpcDisconnected | RpcTimeout)
                self._coordinators.pop((kind, key), None)
                error = failure
            except ApiError as refusal:
                if not is_retriable(refusal.code):
                    raise
                error = refusal
            attempts += 1
            yield from self._pause(attempts, deadline, error)

    def coordinator(self, kind: int, key: str, timeout_s: float) -> Flow[BrokerId]:
        """Which node coordinates a group or a transactional id."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        deadline = self._now() + timeout_s
        attempts = 0
        while True:
            response = yield ToAny(messages.find_coordinator_request(key, kind), self._left(deadline))
            number, text, node = messages.coordinator_of(response)
            if not number:
                break
            code = error_code(number)
            error = api_error(code, f"no coordinator for {key}: {text or code.name}")
            if not is_retriable(code):
                raise error
            attempts += 1
            yield from self._pause(attempts, deadline, error)
        self.view.learn(node)
        if len(self._coordinators) >= _COORDINATORS_KEPT:
            self._coordinators.clear()
        self._coordinators[kind, key] = node.broker_id
        return node.broker_id

    # --- the controller --------------------------------------------------------------------------

    def to_controller(
        self,
        request: Request,
        timeout_s: float,
        codes_of: Callable[[Any], Collection[int]] = lambda _: (),
    ) -> Flow[tuple[Any, bool]]:
        """(response, whether an earlier try may have been executed). Any node is asked: those of kafkalite, and of Apache Kafka
        without ZooKeeper, all take it. Where one refuses because it is not the controller, the controller is asked."""
        deadline = self._now() + timeout_s
        attempts = 0
        maybe_executed = False
        error: KafkaliteError = RpcNotSent("no node is known")
        only_controller = False
        while True:
            controller = self.view.endpoint(self.view.controller_id) if only_controller else None
            for node in self._in_turn() if controller is None else [controller]:
                left = deadline - self._now()
                if left <= 0:
                    raise error
                try:
                    response = yield ToNode(node, request, left)
                    if ErrorCode.NOT_CONTROLLER not in codes_of(response):
                        return response, maybe_executed
                    error = api_error(ErrorCode.NOT_CONTROLLER, f"{node} is not the controller")
                    only_controller = True
                    break
                except RpcError as failure:
                    maybe_executed = maybe_executed or isinstance(failure, RpcDisconnected | RpcTimeout)
                    error = failure
                except ApiError as refusal:
                    if not is_retriable(refusal.code):
                        raise
                    error = refusal
            attempts += 1
            yield from self._pause(attempts, deadline, error)
            yield Refresh(frozenset(), self._left(deadline))
