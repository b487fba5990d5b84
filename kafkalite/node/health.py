"""What this node can see to be wrong, and what it remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalite.admin.disk_healing import disk_problems
from kafkalite.config import BrokerConfig
from kafkalite.controller.controller import Controller
from kafkalite.env.loop_times import SHOWN_FROM_S, LoopTimes
from kafkalite.extension.messages.watching import HealthProblem, HistoryEvent
from kafkalite.log.log_manager import LogManager
from kafkalite.node.clock_check import ClockCheck
from kafkalite.node.descriptor_watch import DescriptorWatch
from kafkalite.node.znode_acl_check import ZnodeAclCheck
from kafkalite.node.zookeeper_health import ZooKeeperHealth
from kafkalite.replica.replica_manager import ReplicaManager
from kafkalite.security.posture import posture

if TYPE_CHECKING:
    from kafkalite.node.security_health import SecurityHealth


class Malformed(Protocol):
    """What is read from ZooKeeper and may be malformed there: path -> reason."""

    @property
    def malformed(self) -> Mapping[str, str]: ...


class NodeHealth:
    """Asks every part.

    Args:
        unusable: path of settings -> which of them cannot be used.
        security: None if no listener asks for anything.
    """

    def __init__(
        self,
        config: BrokerConfig,
        started_ms: int,
        *,
        zookeeper: ZooKeeperHealth,
        znode_acls: ZnodeAclCheck | None,
        clock: ClockCheck,
        replicas: ReplicaManager,
        controller: Controller,
        logs: LogManager,
        loop_times: LoopTimes,
        descriptors: DescriptorWatch,
        malformed: Sequence[Malformed],
        unusable: Mapping[str, str],
        security: SecurityHealth | None,
    ) -> None:
        self._started_ms = started_ms
        self._exposures = posture(config).exposures
        self._zookeeper = zookeeper
        self._znode_acls = znode_acls
        self._clock = clock
        self._replicas = replicas
        self._controller = controller
        self._logs = logs
        self._loop_times = loop_times
        self._descriptors = descriptors
        self._malformed = malformed
        self._unusable = unusable
        self._security = security

    def problems(self) -> tuple[HealthProblem, ...]:
        """What this node can see to be wrong."""
        paths = {path: reason for each in self._malformed for path, reason in each.malformed.items()}
        malformed = (
            HealthProblem("znode.malformed", 0, reason, path)
            for path, reason in sorted({**paths, **self._unusable}.items())
        )
        return (
            *self._zookeeper.problems(),
            *(self._znode_acls.problems() if self._znode_acls is not None else ()),
            *self._clock.problems(),
            *(HealthProblem("listener.open", self._started_ms, each.detail, each.name) for each in self._exposures),
            *self._replicas.describing.problems(),
            *self._controller.problems(),
            *disk_problems(self._logs),
            *(self._security.problems() if self._security is not None else ()),
            *self._descriptors.problems(),
            *_held(self._loop_times),
            *malformed,
        )

    def history(self, subjects: Sequence[str]) -> list[HistoryEvent]:
        """What this node remembers of these subjects (see HistoryRequest), the oldest first."""
        events = [
            HistoryEvent(subject, event.at_ms, event.what, event.detail, event.is_earlier)
            for subject in subjects
            for source in (self._replicas.hosted.history, self._controller.history)
            for event in source.of(subject)
        ]
        return sorted(events, key=lambda event: event.at_ms)


def _held(times: LoopTimes) -> tuple[HealthProblem, ...]:
    """Whether something has held the event loop for long in the last minutes."""
    longest = times.longest()
    if longest is None or longest.seconds < SHOWN_FROM_S:
        return ()
    who = f" of client.id {longest.client_id!r} ({longest.principal})" if longest.client_id else ""
    detail = f"{longest.cause}{who} held the event loop for {longest.seconds * 1000:.0f} ms; everybody else waited"
    return (HealthProblem("loop.held", longest.at_ms, detail),)
