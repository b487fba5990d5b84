"""The generated message classes by name: `wire.FetchResponse`, nested ones as `wire.FetchResponse.PartitionData`."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.structs import classes


def __getattr__(name: str) -> Any:
    try:
        cls: Any = classes(name)[name]
    except KeyError:
        raise AttributeError(name) from None
    globals()[name] = cls
    return cls
