"""A response of the HTTP listener, and the parameters of a request."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.lazy_dataclass import dataclass

#: Parameter -> value; the last one counts.
Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """A response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
