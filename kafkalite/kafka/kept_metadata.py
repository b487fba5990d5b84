"""Encoded responses to Metadata about many partitions, for the clients that ask for the same ones.

A thousand members of a group ask for the same two thousand partitions within moments, when they come and whenever they connect again. To
describe and encode them takes the loop ten milliseconds for each; a client that waits for longer than its request timeout connects and asks
again, so that a node that is too slow for them would never catch up.
"""

from __future__ import annotations

from operator import is_

from kafkalite.lazy_dataclass import dataclass
from kafkalite.replica.requests import MetadataResponse

#: Of all bodies that are kept.
MAX_KEPT_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class _Kept:
    known: MetadataResponse
    body: bytes


#: Version, listener, names of the topics.
_Key = tuple[int, str, tuple[str, ...]]


class KeptMetadata:
    """See the module. What is kept holds as long as the metadata consists of the same objects: a change replaces them."""

    def __init__(self) -> None:
        #: Those used last are at the end.
        self._kept: dict[_Key, _Kept] = {}
        self.bytes = 0

    def find(self, version: int, listener_name: str, known: MetadataResponse) -> bytes | None:
        """The body of a response in this version, on this listener, that describes this."""
        key = _key(version, listener_name, known)
        kept = self._kept.get(key)
        if kept is None:
            return None
        if not _is_same(kept.known, known):
            self._drop(key)
            return None
        self._kept[key] = self._kept.pop(key)
        return kept.body

    def keep(self, version: int, listener_name: str, known: MetadataResponse, body: bytes) -> None:
        """Keep it; those that nobody has asked for longest go if it is too much."""
        if len(body) > MAX_KEPT_BYTES:
            return
        key = _key(version, listener_name, known)
        if key in self._kept:
            self._drop(key)
        self._kept[key] = _Kept(known, body)
        self.bytes += len(body)
        while self.bytes > MAX_KEPT_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        self.bytes -= len(self._kept.pop(key).body)


def _key(version: int, listener_name: str, known: MetadataResponse) -> _Key:
    return version, listener_name, tuple(topic.topic for topic in known.topics)


def _is_same(kept: MetadataResponse, known: MetadataResponse) -> bool:
    return (
        len(kept.topics) == len(known.topics)
        and all(map(is_, kept.topics, known.topics))
        and kept.brokers == known.brokers
        and (kept.cluster_id, kept.controller_id) == (known.cluster_id, known.controller_id)
    )
