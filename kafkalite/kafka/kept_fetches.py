"""The last fetch of each connection whose client knows no fetch sessions and lists many partitions.

Of the next request only what has changed is read (`kafkalite.replica.client_fetch`), and only what has changed is decoded, if it lists the
same partitions (`kafkalite.kafka.fetch_listing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.kafka.fetch_listing import FetchListing, listing
from kafkalite.protocol import wire
from kafkalite.replica.client_fetch import ClientFetch

if TYPE_CHECKING:
    from kafkalite.kafka.connection import KafkaConnection

#: A fetch is kept from this number of partitions on (with ten it saves a seventh of what the fetch costs); partitions of all that are kept.
KEPT_FROM = 8
MAX_KEPT = 100_000


class _Kept:
    """`is_free`: it is not under way now."""

    __slots__ = ("fetch", "is_free", "listed", "listing", "recalled", "rights", "size", "version")

    def __init__(self, version: int, fetch: ClientFetch) -> None:
        self.version = version
        self.fetch = fetch
        self.is_free = True
        self.size = len(fetch.entries)
        #: What the client lists, as the entries of `fetch` have it; None: not known.
        self.listing: FetchListing | None = None
        #: What the request lists that is being taken up now, and the rights that hold for it.
        self.listed: FetchListing | None = None
        self.rights = 0
        #: The message that stands for this request.
        self.recalled: wire.FetchRequest | None = None


class KeptFetches:
    """See the module.

    Args:
        rights: a number that grows with every change of the rights.
    """

    def __init__(self, rights: Callable[[], int]) -> None:
        self._rights = rights
        self._kept: dict[KafkaConnection, _Kept] = {}
        #: Of all that are kept.
        self.partitions = 0
        #: Requests of which only what had changed was decoded.
        self.recalled = 0

    def recall(self, connection: KafkaConnection, version: int, body: memoryview) -> wire.FetchRequest | None:
        """A message with only those partitions that the last request did not list in the same way; None: decode it.

        It stands for the whole request: `take` knows it.
        """
        kept = self._kept.get(connection)
        if kept is None or not kept.is_free or kept.version != version:
            return None
        before, rights = kept.listing, kept.rights
        # Until the request is taken up (`listed`), it is not known what the entries have.
        kept.listing, kept.recalled = None, None
        kept.listed, kept.rights = listing(version, body), self._rights()
        if before is None or kept.listed is None or rights != kept.rights or kept.fetch.has_unknown_topics:
            return None
        changed = before.changed(kept.listed)
        if changed is None:
            return None
        self.recalled += 1
        kept.recalled = kept.listed.request(changed)
        return kept.recalled

    def __len__(self) -> int:
        return len(self._kept)

    def is_free(self, connection: KafkaConnection) -> bool:
        """Whether it has one that is not under way now."""
        kept = self._kept.get(connection)
        return kept is not None and kept.is_free

    def take(self, connection: KafkaConnection, version: int, message: wire.FetchRequest) -> ClientFetch | None:
        """The free fetch of the connection, for this request of a client without sessions; None: the request needs another one."""
        kept = self._kept[connection]
        fetch = kept.fetch
        if message is not kept.recalled:
            if (kept.version, fetch.isolation, fetch.rack) != (version, message.isolation_level, message.rack_id):
                return None
            fetch.begin_listing()
        kept.recalled = None
        kept.is_free = False
        return fetch

    def listed(self, connection: KafkaConnection, fetch: ClientFetch) -> None:
        """The entries of `fetch` have all that the request lists."""
        kept = self._kept.get(connection)
        if kept is not None and kept.fetch is fetch and kept.listed is not None:
            kept.listing = kept.listed if kept.listed.count == fetch.listed == len(fetch.entries) else None
            kept.listed = None

    def keep(self, connection: KafkaConnection, version: int, fetch: ClientFetch) -> bool:
        """It is answered. False: it is not kept, and has to end."""
        kept, size = self._kept.get(connection), len(fetch.entries)
        if kept is not None and kept.fetch is fetch:
            kept.is_free = True
            self.partitions += size - kept.size
            kept.size = size
        elif kept is not None or connection.is_closed or self.partitions + size > MAX_KEPT:
            return False
        else:
            self._kept[connection] = _Kept(version, fetch)
            self.partitions += size
        return True

    def drop(self, connection: KafkaConnection) -> ClientFetch | None:
        """What was kept for it, and has to end."""
        kept = self._kept.pop(connection, None)
        if kept is None:
            return None
        self.partitions -= kept.size
        return kept.fetch
