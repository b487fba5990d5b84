"""The quota of what changes the cluster: partitions that are created and deleted per second (KIP-599).

A client that has used more than its bucket holds is in debt. Until the debt is paid, a new version of its request is
refused with THROTTLING_QUOTA_EXCEEDED, topic by topic, and clients repeat it later; older ones are carried out, and
the client waits. Each node has its own bucket, as for the other quotas. Source: Kafka's ControllerMutationQuotaManager.
"""

from __future__ import annotations

from kafkalite.errors import ErrorCode
from kafkalite.kafka.request import Request
from kafkalite.kafka.throttle_accounting import STRICT_SINCE

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."


def may_change(request: Request, partitions: int) -> bool:
    """Pay for this number of partitions; False: not now."""
    if request.throttle is None or partitions <= 0:
        return True
    assert request.api is not None
    name = request.api.name
    is_heartbeat = name == "StreamsGroupHeartbeat"  # whose member would be taken for dead while it waits
    first = 0 if is_heartbeat or name == "Extension" else STRICT_SINCE.get(name)
    is_strict = first is not None and request.version >= first
    return request.throttle.mutate(partitions, is_strict=is_strict, waits=not is_heartbeat)
