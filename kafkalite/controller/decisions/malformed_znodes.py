"""Znodes that hold what does not belong there: noted once, left alone. Pure."""

from __future__ import annotations

import dataclasses

from kafkalite.controller.decisions.effects import Effect, Note
from kafkalite.controller.decisions.state import ControllerState


def record_malformed(state: ControllerState, path: str, reason: str | None) -> tuple[ControllerState, list[Effect]]:
    """Remember, or forget, that a znode holds what does not belong there; a note the first time."""
    if state.malformed.get(path) == reason:
        return state, []
    malformed = {each: why for each, why in state.malformed.items() if each != path}
    effects: list[Effect] = []
    if reason is not None:
        malformed[path] = reason
        effects.append(Note("znode.malformed", path, reason))
    return dataclasses.replace(state, malformed=malformed), effects
