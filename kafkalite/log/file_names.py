"""Names of a log's files: Kafka's, so that its tools read them."""

from __future__ import annotations

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
#: Behind the name of a file that is removed later.
DELETED = ".deleted"


def file_name(base_offset: int, suffix: str) -> str:
    """The base offset in 20 digits, and the suffix."""
    return f"{base_offset:020d}{suffix}"
