"""One ShareFetch: reads what is free, gives it to the member, waits if there is too little."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.coordinators.services import Partitions
from kafkalite.coordinators.shares.decisions.deliveries import Acquired, WantedRecords
from kafkalite.coordinators.shares.delivery import holding, placed_batches
from kafkalite.coordinators.shares.leading import Led, SharedPartitions
from kafkalite.coordinators.shares.settings import ShareSettings
from kafkalite.env.fair_queue import Owner
from kafkalite.errors import ApiError, ErrorCode
from kafkalite.kafka.shares.sessions import Listed, ShareSession
from kafkalite.lazy_dataclass import dataclass
from kafkalite.model import Buffer, Offset, TopicId
from kafkalite.replica.client_fetch import READ_COMMITTED, ClientFetch, FetchEntry
from kafkalite.replica.consumer_fetch import COLD_WAIT_MS

#: Reads in a row that found only what is no record, before the loop turns.
_MOST_EMPTY_READS = 8
#: Bytes read at once for records that were released: there may be few of them.
_AGAIN_BYTES = 256 * 1024
_INT_MAX = 2**31 - 1


class ShareTerms(NamedTuple):
    """What one request asks for. `reader`: whose turn reads from the disk take."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    records: int
    batch_size: int
    is_exact: bool
    reader: Owner


@dataclass(slots=True)
class Delivered:
    """What a member gets of a partition."""

    records: list[Buffer]
    acquired: list[Acquired]


class ShareFetch:
    """See the module. `done` is called once, with what was acquired and with errors; not if `is_over` says so.

    Args:
        refused: listed partitions that the member may not read now, with why.
        room: how many bytes the answer may have; 0: none.
        may_send: whether an answer with this number of bytes of records is sent now; otherwise nothing is acquired.
        is_over: nobody waits for the answer any more.
        is_outdated: the session has had another request: the answer has no records.
    """

    def __init__(
        self,
        shares: SharedPartitions,
        partitions: Partitions,
        session: ShareSession,
        settings: ShareSettings,
        terms: ShareTerms,
        refused: Callable[[], dict[Listed, ErrorCode]],
        *,
        room: Callable[[], int],
        may_send: Callable[[int], bool],
        is_over: Callable[[], bool],
        is_outdated: Callable[[], bool],
        done: Callable[[dict[Listed, Delivered], dict[Listed, ErrorCode]], None],
    ) -> None:
        self._shares = shares
        self._partitions = partitions
        self._session = session
        self._settings = settings
        self._terms = terms
        self._refused = refused
        self._room = room
        self._may_send = may_send
        self._is_over = is_over
        self._is_outdated = is_outdated
        self._done = done
        self._fetch = ClientFetch(settings.isolation)
        self._led: dict[Listed, Led] = {}
        self._deadline_ms = shares.now_ms() + terms.max_wait_ms

    def start(self) -> None:
        """Read at once, and answer or wait."""
        for _ in range(_MOST_EMPTY_READS):
            if not self._attempt():
                return
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if self._session.waiting is self._fetch:
            self._session.waiting = None
        self._fetch.unwatch()
        for led in self._led.values():
            led.waiters.pop(self._fetch, None)
        if self._is_over():
            self._fetch.end()
        else:
            self.start()

    def _attempt(self) -> bool:
        """Whether nothing but holes was found, so that it is to be tried again."""
        if self._is_outdated():
            self._fetch.end()
            self._done({}, {})
            return False
        self._fetch.has_missed = False
        errors = self._find()
        found = self._read(errors)
        size = sum(entry.records_size for entry in found.values())
        rest_ms = self._deadline_ms - self._shares.now_ms()
        if size and (size >= self._terms.min_bytes or rest_ms <= 0):
            if not self._may_send(size):
                self._finish({}, errors)
                return False
            delivered = self._acquire(found, errors)
            if delivered:
                self._finish(delivered, errors)
                return False
            if self._has_moved(found):
                return True
        if any(self._session.partitions.get(listed) != code for listed, code in errors.items()):
            self._finish({}, errors)
            return False
        if self._fetch.has_missed:
            # There are records, but the disk has to give them first: an empty answer would say that there are none.
            rest_ms += COLD_WAIT_MS
        elif self._terms.min_bytes <= 0 and any(led.state and led.state.can_acquire for led in self._led.values()):
            rest_ms = 0
        if rest_ms <= 0 or not self._session.partitions or not self._wait(rest_ms):
            self._finish({}, errors)
        return False

    def _has_moved(self, found: dict[Listed, FetchEntry]) -> bool:
        """Whether something was read that has no records for the group (markers, for example), so that the next read may find some."""
        states = {listed: self._led[listed].state for listed in found}
        return any(
            state is not None and state.next_offset > found[listed].fetch_offset for listed, state in states.items()
        )

    def _finish(self, delivered: dict[Listed, Delivered], errors: dict[Listed, ErrorCode]) -> None:
        session = self._session
        for listed in list(session.partitions):
            session.partitions[listed] = errors.get(listed, ErrorCode.NONE)
            if listed in delivered:  # it is read last the next time
                session.partitions[listed] = session.partitions.pop(listed)
        self._fetch.end()
        self._done(delivered, errors)

    def _wait(self, wait_ms: int) -> bool:
        """False: too many wait already."""
        for entry in self._fetch.entries.values():
            entry.drop_records()
        if not self._partitions.wait_for_entries(self._fetch, wait_ms, self._terms.reader, self._resume):
            return False
        for led in self._led.values():
            led.waiters[self._fetch] = None
        self._session.waiting = self._fetch
        return True

    # --- partitions ---

    def _find(self) -> dict[Listed, ErrorCode]:
        """Look up the shared partitions again; errors by partition."""
        session = self._session
        errors: dict[Listed, ErrorCode] = {}
        # What could not be loaded is loaded again for the next request, not for this one.
        failed = {listed: led.failure for listed, led in self._led.items() if led.failure}
        self._led = {}
        unknown: set[TopicId] = set()
        refused = self._refused()
        for listed in session.partitions:
            topic_id, number = listed
            if listed in refused:
                errors[listed] = refused[listed]
                continue
            if listed in failed:
                errors[listed] = failed[listed]
                continue
            if topic_id in unknown:
                errors[listed] = ErrorCode.UNKNOWN_TOPIC_ID
                continue
            try:
                led = self._shares.find(session.group_id, topic_id, number, session.member)
                if led.state is not None:
                    led.state.log_starts_at(self._shares.bounds(led.partition)[0])
            except ApiError as error:
                errors[listed] = error.code
                if error.code is ErrorCode.UNKNOWN_TOPIC_ID:
                    unknown.add(topic_id)
                continue
            self._led[listed] = led
        return errors

    def _read(self, errors: dict[Listed, ErrorCode]) -> dict[Listed, FetchEntry]:
        """What the log has from the first free record on, of partitions where the member may get some."""
        left = min(self._terms.max_bytes, self._room())
        found: dict[Listed, FetchEntry] = {}
        is_full = left <= 0
        for listed, led in self._led.items():
            state = led.state
            entry = self._entry(listed, led)
            if state is None or is_full:
                continue
            led.set_up(self._settings)
            if state.expire(self._shares.now_ms()):
                led.changed()
            if not state.can_acquire or (left <= 0 and found):
                continue
            entry.fetch_offset = state.next_offset
            most = left if state.next_offset >= state.end_offset else min(left, _AGAIN_BYTES)
            entry.drop_records()
            self._partitions.read_entry(entry, max(0, most), is_first=not found)
            if entry.error:
                errors[listed] = ErrorCode(entry.error)
            elif entry.records_size:
                found[listed] = entry
                left -= entry.records_size
        return found

    def _entry(self, listed: Listed, led: Led) -> FetchEntry:
        key = (listed[0], listed[1])
        entry = self._fetch.entries.get(key)
        if entry is None or entry.key != led.partition or entry.leader_epoch != led.leader_epoch:
            if entry is not None:
                self._fetch.forget(*key)
            entry = self._fetch.list(led.partition, Offset(0), _INT_MAX, led.leader_epoch, listed[0])
        self._fetch.ready[entry] = None
        return entry

    def _acquire(self, found: dict[Listed, FetchEntry], errors: dict[Listed, ErrorCode]) -> dict[Listed, Delivered]:
        delivered: dict[Listed, Delivered] = {}
        left = self._terms.records
        for listed, entry in found.items():
            if left <= 0:
                break
            led = self._led[listed]
            assert led.state is not None
            try:
                placed = placed_batches(
                    entry.records, entry.aborted, is_committed=self._settings.isolation == READ_COMMITTED
                )
            except ApiError as error:
                errors[listed] = error.code
                continue
            wanted = WantedRecords(left, self._terms.batch_size, self._terms.is_exact)
            acquired = led.state.acquire(
                self._session.member, entry.fetch_offset, [each.batch for each in placed], wanted, self._shares.now_ms()
            )
            led.changed()
            if not acquired:
                continue
            records = holding(entry.records, placed, acquired)
            count = sum(each.last - each.first + 1 for each in acquired)
            left -= count
            delivered[listed] = Delivered(records, acquired)
            self._partitions.entry_sent(entry, sum(map(len, records)), count)
        return delivered
