"""What the controller's event loop has yet to handle: sources to read again, events, and reasons to stop."""

from __future__ import annotations

import asyncio

from kafkalite.controller.decisions.events import Event
from kafkalite.controller.sources import EventSource
from kafkalite.env.seams import Clock
from kafkalite.errors import ErrorCode
from kafkalite.model import ControllerEpoch


class Inbox:
    """One for each elected epoch. Watches, channels, failure detectors and requests write into it; the event loop empties it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Set whenever something has arrived.
        self.arrived = asyncio.Event()
        #: What has to be read -> when (monotonic seconds) that became known first.
        self.dirty: dict[EventSource, float] = {}
        self.posted: list[Event] = []
        self.resign_reason: str | None = None
        self.is_expired = False
        self.must_verify = False
        #: The latest controller epoch that a broker follows.
        self.latest_epoch = ControllerEpoch(-1)

    @property
    def is_empty(self) -> bool:
        return not (self.dirty or self.posted or self.resign_reason or self.is_expired or self.must_verify)

    def post(self, event: Event) -> None:
        """Handle this event when its turn comes. At most a few per command sent: bounded by the queues."""
        self.posted.append(event)
        self.arrived.set()

    def mark(self, source: EventSource) -> None:
        """Something about this source may have changed."""
        self.dirty.setdefault(source, self._clock.monotonic())
        self.arrived.set()

    def resign(self, reason: str) -> None:
        """There is a newer controller: resign as soon as the current step is over."""
        self.resign_reason = reason
        self.arrived.set()

    def expire(self) -> None:
        """The session is over."""
        self.is_expired = True
        self.arrived.set()

    def stale(self, code: ErrorCode, epoch: ControllerEpoch) -> None:
        """A broker refused a command as stale. `epoch`: of the controller that it follows."""
        self.latest_epoch = max(self.latest_epoch, epoch)
        if code is ErrorCode.STALE_CONTROLLER_EPOCH:
            self.must_verify = True  # it knows a newer controller: the next fenced write shows that; make one now
            self.arrived.set()
        else:
            self.mark(EventSource.BROKERS)  # the command met another broker epoch
