"""A consumer's fetch session at one broker (KIP-227): what the broker knows of it already is not sent again. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.client.messages import fetch_request
from kafkalite.errors import ErrorCode, error_code
from kafkalite.model import NO_LEADER_EPOCH, LeaderEpoch, TopicPartition, numbers_by_topic
from kafkalite.protocol import wire

_HIGHEST_EPOCH = 2**31 - 1


class ConsumerFetchSession:
    """One request at a time: `request`, then `answered` or `failed`."""

    def __init__(self) -> None:
        self._session_id = 0
        #: 0: the next request lists everything and asks for a session.
        self._epoch = 0
        #: What the broker has: offset and leader epoch.
        self._listed: dict[TopicPartition, tuple[int, LeaderEpoch]] = {}

    def request(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, LeaderEpoch],
        *,
        max_wait_ms: int,
        max_bytes: int,
        partition_max_bytes: int,
        isolation: int,
        rack: str = "",
    ) -> Any:
        """The fetch of these partitions, of all that the broker has of the session, and of no others."""
        wanted = {key: (offset, epochs.get(key, NO_LEADER_EPOCH)) for key, offset in positions.items()}
        if self._epoch == 0:
            changed, gone = dict(positions), []
        else:
            changed = {key: positions[key] for key, terms in wanted.items() if self._listed.get(key) != terms}
            gone = [key for key in self._listed if key not in wanted]
        self._listed = wanted
        request = fetch_request(
            changed,
            epochs,
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            isolation=isolation,
        )
        request.session_id, request.session_epoch, request.rack_id = self._session_id, self._epoch, rack
        forgotten = wire.FetchRequest.ForgottenTopic
        request.forgotten_topics_data = [
            forgotten(topic=name, partitions=list(numbers)) for name, numbers in numbers_by_topic(gone).items()
        ]
        return request

    def answered(self, response: Any) -> ErrorCode:
        """The broker's answer: its error, after which the next request lists everything."""
        code = error_code(response.error_code)
        if code is not ErrorCode.NONE:
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = 0
            self.failed()
        elif not response.session_id:  # the broker has no room for a session
            self._session_id = 0
            self.failed()
        else:
            self._session_id = response.session_id
            self._epoch = 1 if self._epoch == _HIGHEST_EPOCH else self._epoch + 1
        return code

    def failed(self) -> None:
        """Nobody knows whether the broker has got the request: the next one ends the session, and opens another."""
        self._epoch = 0
        self._listed = {}
