"""Creates the topics that a topology needs between its parts and for its state, with the rights of the client that asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from kafkalite.coordination.coordinator import CoordinatorError
from kafkalite.coordinators.groups.decisions.streams.topology import InternalTopic, shown
from kafkalite.coordinators.groups.partition import StreamsRuntime
from kafkalite.coordinators.services import Services
from kafkalite.env.supervisor import Policy
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.extension.messages.topics import CreateTopicsRequest, NewTopic
from kafkalite.model import MAX_NAME_LENGTH
from kafkalite.telemetry.logs import get_logger
from kafkalite.telemetry.repeats import Repeats

_log = get_logger(__name__)

_TIMEOUT_MS = 30_000
#: Time that a new topic gets to become known here; time before another try.
_PAUSE_S, _FAILED_PAUSE_S = 5.0, 1.0
#: Topics that one line of the log, and one answer, names: a topology has thousands.
_NAMED = 20


class InternalTopics:
    """See the module. A topic that is being created, or was a moment ago, is not created a second time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: Topic -> until when it is left alone (seconds, monotonic).
        self._until: dict[str, float] = {}
        self._repeats = Repeats(services.clock.monotonic)

    def refused(
        self, runtime: StreamsRuntime, topics: Sequence[InternalTopic], may_create: Callable[[InternalTopic], ErrorCode]
    ) -> list[str]:
        """Names of those that the client may not create (now), sorted; noted in `runtime.creation`, which its answer shows."""
        found = {topic.name: code for topic in self._wanted(topics) if (code := may_create(topic))}
        denied = sorted(name for name, code in found.items() if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if denied:
            runtime.creation = f"Unauthorized to CREATE on topics {shown(denied, _NAMED)}."
        elif found:
            failed = shown((f"{name} ({code.name})" for name, code in found.items()), _NAMED)
            runtime.creation = f"Creation failed: {failed}."
        return sorted(found)

    def _wanted(self, topics: Sequence[InternalTopic]) -> list[InternalTopic]:
        now = self._services.clock.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        return [topic for topic in topics if topic.name not in self._until]

    def create(
        self, group_id: str, runtime: StreamsRuntime, topics: Sequence[InternalTopic], refused: Sequence[str]
    ) -> None:
        """Have them created, but for `refused`. What goes wrong is noted in `runtime.creation`."""
        wanted = self._wanted(topics)
        allowed = [topic for topic in wanted if topic.name not in refused]
        if not allowed:
            return
        self._until.update((topic.name, inf) for topic in allowed)
        name = f"groups.topics.{group_id}"
        self._services.supervisor.spawn(name, self._create(group_id, runtime, allowed, refused), Policy.ISOLATED)

    async def _create(
        self, group_id: str, runtime: StreamsRuntime, topics: Sequence[InternalTopic], refused: Sequence[str]
    ) -> None:
        new_topics = tuple(
            NewTopic(
                topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replication_factor or -1,
                configs=dict(topic.configs),
            )
            for topic in topics
        )
        failed: list[str] = []
        try:
            response = await self._services.create_topics(CreateTopicsRequest(new_topics, _TIMEOUT_MS))
            for result in response.topics:
                if result.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    failed.append(_reason(result.topic, result.message or ErrorCode(result.error).name))
        except (ApiError, CoordinatorError) as error:
            failed = [_reason(topic.name, str(error)) for topic in topics]
        finally:
            pause_s = _FAILED_PAUSE_S if failed else _PAUSE_S
            until = self._services.clock.monotonic() + pause_s
            self._until.update((topic.name, until) for topic in topics)
        if failed:
            why = shown(failed, _NAMED)
            runtime.creation = f"Creation failed: {why}."
            if (suppressed := self._repeats.admit(group_id)) is not None:
                _log.warning("group.topics_not_created", group=group_id, failed=why, suppressed=suppressed)
        else:
            if not refused:
                runtime.creation = ""
            _log.info("group.topics_created", group=group_id, topics=shown((topic.name for topic in topics), _NAMED))


def _reason(name: str, text: str) -> str:
    """Why one was not created; a name that is none may be long."""
    return f"{name[:MAX_NAME_LENGTH]} ({text[:MAX_NAME_LENGTH]})"
