"""Where the leader of a partition is now, in answers that refuse a request because another node leads it (KIP-951).

Without it the client asks for metadata, perhaps of a node that has not heard of the change yet, and waits before it asks again.
"""

from __future__ import annotations

from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode
from kafkalite.kafka.request import Request
from kafkalite.model import TopicPartition
from kafkalite.partition_values import CurrentLeader

#: The client has to look for another leader, or for another epoch of the same one.
MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class CurrentLeaders:
    """The leaders that one answer names."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._listener_name = request.listener_name
        self._found: dict[int, CurrentLeader] = {}

    def of(self, partition: TopicPartition) -> CurrentLeader | None:
        """None: this node does not know. Those that were found are among the `endpoints`."""
        leader = self._services.current_leader(partition, self._listener_name)
        if leader is not None:
            self._found[leader.broker_id] = leader
        return leader

    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of each leader that was found."""
        return [(id_, found.host, found.port, found.rack) for id_, found in self._found.items()]
