"""Which earlier versions a new schema is compared with, and in which direction (Confluent: Schema Evolution and Compatibility)."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.schemas.schema import ParsedSchema

NONE = "NONE"
BACKWARD = "BACKWARD"
FORWARD = "FORWARD"
FULL = "FULL"
_TRANSITIVE = "_TRANSITIVE"
LEVELS = (
    NONE, BACKWARD, BACKWARD + _TRANSITIVE, FORWARD, FORWARD + _TRANSITIVE, FULL, FULL + _TRANSITIVE,
)  # fmt: skip
#: Where none was set, as with Confluent.
DEFAULT_LEVEL = BACKWARD


def is_transitive(level: str) -> bool:
    """Whether all earlier versions count, and not only the newest one."""
    return level.endswith(_TRANSITIVE)


def differences(level: str, new: ParsedSchema, earlier: Sequence[tuple[int, ParsedSchema]]) -> list[str]:
    """Why `new` is not compatible; empty if it is.

    Args:
        earlier: (version, schema) in order; all of the type of `new`.
    """
    direction = level.removesuffix(_TRANSITIVE)
    compared = earlier if is_transitive(level) else earlier[-1:]
    found: list[str] = []
    for version, old in compared:
        if direction in (BACKWARD, FULL):
            found += [f"cannot read version {version}: {each}" for each in new.cannot_read(old)]
        if direction in (FORWARD, FULL):
            found += [f"version {version} cannot read it: {each}" for each in old.cannot_read(new)]
    return found
