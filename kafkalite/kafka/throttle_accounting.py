"""What a request costs its client under the quotas, and how long the client has to wait for it.

Used only while a quota is set. Bytes produced and fetched are counted by their handlers; the event loop's time by the
listener. The wait is in the response, and the connection is muted after it (KIP-219).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Protocol

from kafkalite.env.seams import Clock
from kafkalite.protocol.errors import WireError
from kafkalite.protocol.request_header import parse_header
from kafkalite.security.principal import Principal
from kafkalite.security.quotas import Kind, Quotas

#: Between nodes, or a login, which has a limit of its own (KIP-368: a client that waited would lose its session): not limited
#: by time. Requests before the login are not limited either, because the user is not known yet; there are few of them.
EXEMPT = frozenset(
    {
        "SaslAuthenticate",
        "WriteTxnMarkers",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
    }
)

#: The first versions of changes of the cluster whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
STRICT_SINCE = {"CreateTopics": 6, "DeleteTopics": 5, "CreatePartitions": 3}
#: What a request may bring its client beyond, except for time.
_USES = {"Produce": Kind.PRODUCE, "Fetch": Kind.FETCH, "ShareFetch": Kind.FETCH}


class _Named(Protocol):
    """An API."""

    @property
    def name(self) -> str: ...


class Arrears:
    """What has been used under a connection's limits before the connection came: it waits for that once, per client id.

    Otherwise a client would evade its quota with a connection for each request.
    """

    __slots__ = ("_quotas", "_settled")

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        #: The client id of the last request of each kind.
        self._settled: dict[Kind, str] = {}

    def wait_before(self, frame: memoryview, apis: Mapping[int, _Named], user: str, now_ms: int) -> int:
        """As `wait_ms`, for a frame whose beginning, at least, has arrived."""
        try:
            api_key, version, _, client_id, _ = parse_header(frame)
        except (WireError, struct.error, UnicodeDecodeError):
            return 0  # its header is not complete, or it is refused as a whole
        api = apis.get(api_key)
        return 0 if api is None else self.wait_ms(api.name, version, user, client_id, now_ms)

    def wait_ms(self, api: str, version: int, user: str, client_id: str, now_ms: int) -> int:
        """How long the connection has to wait before this request; 0 when it has waited."""
        if api in EXEMPT:
            return 0
        kinds = [Kind.REQUEST] if self._quotas.limits_requests else []
        if (use := _USES.get(api)) is not None:
            kinds.append(use)
        elif (strict := STRICT_SINCE.get(api)) is not None:
            if version < strict:
                kinds.append(Kind.MUTATION)
            elif not self._quotas.owed_ms(Kind.MUTATION, user, client_id, now_ms):
                self._settled[Kind.MUTATION] = client_id  # what is owed from here on, this connection has used, too
        wait_ms = 0
        for kind in kinds:
            if self._settled.get(kind) != client_id:
                self._settled[kind] = client_id
                wait_ms = max(wait_ms, self._quotas.owed_ms(kind, user, client_id, now_ms))
        return wait_ms


class ThrottleAccounting:
    """One request's."""

    __slots__ = (
        "_began",
        "_client_id",
        "_clock",
        "_is_settled",
        "_kinds",
        "_quotas",
        "_spent",
        "_user",
        "throttle_ms",
        "work_s",
    )

    def __init__(self, quotas: Quotas, clock: Clock, principal: Principal, client_id: str) -> None:
        self._quotas = quotas
        self._clock = clock
        self._user = principal.name
        self._client_id = client_id
        self._began = clock.monotonic()
        #: Seconds of the event loop; negative while the handler runs.
        self._spent = -1.0
        self._kinds: dict[Kind, int] = {}
        self._is_settled = False
        self.throttle_ms = 0
        #: Seconds of work in threads that the request has caused.
        self.work_s = 0.0

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def count(self, kind: Kind, amount: float) -> int:
        """Add to what the client has used; the ms that it has to wait for that alone."""
        wait_ms = self._quotas.count(kind, self._user, self._client_id, amount, self._now_ms())
        if wait_ms:
            self._kinds[kind] = wait_ms
        return wait_ms

    def mutate(self, permits: float, *, is_strict: bool, waits: bool = True) -> bool:
        """Pay for a change of the cluster (KIP-599); False: it may not be made now. `waits`: until it may, the client is not served."""
        allowed, wait_ms = self._quotas.mutate(
            self._user, self._client_id, permits, self._now_ms(), is_strict=is_strict
        )
        if wait_ms and waits:
            self._kinds[Kind.MUTATION] = wait_ms
        return allowed

    def take_back(self, kind: Kind, amount: float) -> None:
        """It was not given after all; the wait stands."""
        self._quotas.take_back(kind, self._user, self._client_id, amount, self._now_ms())

    def most_at_once(self, kind: Kind) -> int | None:
        return self._quotas.most_at_once(kind, self._user, self._client_id)

    def started(self) -> int:
        """The handler has returned: what it waits for from here on costs the loop nothing.

        That is counted at once, or all requests that the client has sent ahead would begin before the first one is paid for.
        Returns the ms that the client has to wait before its next request.
        """
        if self._is_settled:
            return 0
        spent = self._clock.monotonic() - self._began
        self._spent = 0.0
        return self.count(Kind.REQUEST, spent * 100) if self._quotas.limits_requests else 0

    def has_worked(self, seconds: float) -> None:
        """The loop has worked for the client after its answer was settled: the next one pays."""
        if self._quotas.limits_requests:
            self.count(Kind.REQUEST, seconds * 100)

    def settle(self, answer: Any) -> None:
        """Just before the answer goes out: the longest wait of all kinds is written into it."""
        if not self._is_settled:
            self._is_settled = True
            if self._quotas.limits_requests:
                spent = self._spent if self._spent >= 0 else self._clock.monotonic() - self._began
                self.count(Kind.REQUEST, (spent + self.work_s) * 100)
            for kind, wait_ms in self._kinds.items():
                self._quotas.record_throttled(kind, wait_ms)
            self.throttle_ms = max(self._kinds.values(), default=0)
        if self.throttle_ms and hasattr(answer, "throttle_time_ms"):
            answer.throttle_time_ms = self.throttle_ms
