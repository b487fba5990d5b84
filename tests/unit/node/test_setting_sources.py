"""Where a node's settings come from, and which of several holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafkalite.config import for_listener, load

_FILE = """
log.retention.ms = 1
retention.ms = 2
message.max.bytes = 100
min.insync.replicas = 1
"""


@pytest.mark.parametrize(
    ("environ", "flags", "expected"),
    [
        ({}, {}, (2, 100)),
        ({"KAFKALITE_LOG_RETENTION_MS": "3"}, {}, (3, 100)),
        ({"KAFKALITE_LOG_RETENTION_HOURS": "2"}, {}, (7_200_000, 100)),
        ({"KAFKALITE_LOG_RETENTION_HOURS": "2", "KAFKALITE_RETENTION_MS": "4"}, {}, (4, 100)),
        ({"KAFKALITE_RETENTION_MS": "4"}, {"log.retention.minutes": "1"}, (60_000, 100)),
        ({"KAFKALITE_MAX_MESSAGE_BYTES": "5"}, {"log.retention.ms": "6"}, (6, 5)),
        ({"KAFKALITE_MAX_MESSAGE_BYTES": "5"}, {"message.max.bytes": "7"}, (2, 7)),
        ({}, {"log.retention.hours": -1}, (-1, 100)),
    ],
)
def test_a_stronger_source_wins_whatever_its_spelling(
    environ: Mapping[str, str], flags: Mapping[str, Any], expected: tuple[int, int]
) -> None:
    topic = load(_FILE, environ, flags)[0].topic
    assert (topic.retention_ms, topic.max_message_bytes) == expected


def test_the_name_of_a_listener_may_be_written_in_any_case() -> None:
    file = """
listeners = "EXTERNAL://127.0.0.1:0"
listener.security.protocol.map = "EXTERNAL:PLAINTEXT"
listener.name.External.max.connections = 9
"""
    config, _ = load(file, {}, {"listener.name.external.max.connections": 5})
    assert for_listener(config, "EXTERNAL").max_connections == 5
