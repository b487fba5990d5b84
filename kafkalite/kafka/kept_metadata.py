"""Encoded responses to Metadata about many partitions, for the clients that ask for the same ones.

A thousand members of a group ask for the same two thousand partitions within moments, when they come and whenever they connect again. To
describe and encode them takes the loop ten milliseconds for each; a client that waits for longer than its request timeout connects and asks
again, so that a node that is too slow for them would never catch up.
"""

from __future__ import annotations

#: Of all bodies that are kept.
MAX_KEPT_BYTES = 8 * 2**20

#: Version, listener, names of the topics.
_Key = tuple[int, str, tuple[str, ...]]


class KeptMetadata:
    """See the module. All that is kept describes the metadata of one version: a change makes all of it useless.

    Attributes:
        bytes: of the bodies.
    """

    def __init__(self) -> None:
        #: Those used last are at the end.
        self._bodies: dict[_Key, bytes] = {}
        self._metadata_version = -1
        self.bytes = 0

    def find(self, metadata_version: int, key: _Key) -> bytes | None:
        """The body of this response, if the metadata has this version."""
        if metadata_version != self._metadata_version or (body := self._bodies.pop(key, None)) is None:
            return None
        self._bodies[key] = body
        return body

    def keep(self, metadata_version: int, key: _Key, body: bytes) -> None:
        """Keep it; those that nobody has asked for longest go if it is too much."""
        if metadata_version < self._metadata_version or len(body) > MAX_KEPT_BYTES:
            return
        if metadata_version > self._metadata_version:
            self._metadata_version = metadata_version
            self._bodies.clear()
            self.bytes = 0
        self._drop(key)
        self._bodies[key] = body
        self.bytes += len(body)
        while self.bytes > MAX_KEPT_BYTES:
            self._drop(next(iter(self._bodies)))

    def _drop(self, key: _Key) -> None:
        self.bytes -= len(self._bodies.pop(key, b""))
