"""What reads values with a schema: one for each format."""

from __future__ import annotations

from typing import Any, Protocol


class Reader(Protocol):
    def read(self, value: bytes) -> Any:
        """A value as a dict of what pyarrow takes. Raises ValueError: why it cannot be read."""
        ...
