"""A client's SASL session on one connection: when to log in again (KIP-368). No I/O."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalite.protocol.login import log_in
from kafkalite.security.dialling import Dialling
from kafkalite.security.sasl import Entropy

#: The share of a session after which one logs in again; each connection somewhere between, so that not all come at once.
RENEWED_AFTER = (0.6, 0.8)


class Session:
    """Times are seconds on one clock of the caller's; the broker counts from a little later than we do."""

    def __init__(self, dialling: Dialling, entropy: Entropy) -> None:
        assert dialling.credentials is not None
        self._credentials = dialling.credentials
        self._entropy = entropy
        low, high = RENEWED_AFTER
        self._renewed_after = low + (high - low) * entropy(1)[0] / 255
        self.renew_at = float("inf")
        self._ends_at = float("inf")

    def exchange(self) -> Generator[tuple[Any, int], Any, float]:
        """A new login as the same user; what it returns is for `renewed`. See `protocol.login`."""
        return log_in(self._credentials.mechanism, self._credentials.client(self._entropy))

    def renewed(self, began: float, lifetime_s: float) -> None:
        """A login that began then is complete. inf: the session has no end."""
        self.renew_at = began + lifetime_s * self._renewed_after
        self._ends_at = began + lifetime_s

    def has_ended(self, now: float) -> bool:
        """Whether the broker takes nothing but a login."""
        return now > self._ends_at
