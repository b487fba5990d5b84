"""How a setting is declared: its default, its text for docs/configuration.md, and what is checked of a value."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any, TypeVar, dataclass_transform, get_type_hints

#: The largest number that Kafka's clients have for a setting (a long).
MAX = 2**63 - 1
#: The largest values of settings that are of Kafka's types INT and SHORT: many are sent in fields of that size.
INT_MAX, SHORT_MAX = 2**31 - 1, 2**15 - 1


def setting(
    default: Any,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[str, ...] = (),
    secret: bool = False,
    dynamic: bool = False,
    is_set: bool = False,
    is_list_of_replicas: bool = False,
    is_only: bool | None = None,
    without: int | None = None,
) -> Any:
    """`secret`: the value is shown nowhere: not in a repr, an error, DescribeConfigs or a page.

    `is_set`: a text of names with commas between them; spaces around them, and a name that comes twice, mean nothing.
    `is_only`: the one value that is taken: Kafka has others. `without`: a number between `low` and `high` that is not taken.
    """
    meta = {
        "doc": doc, "low": low, "high": high, "choices": choices, "secret": secret, "dynamic": dynamic, "is_set": is_set,
        "is_list_of_replicas": is_list_of_replicas, "is_only": is_only, "without": without,
    }  # fmt: skip
    return field(default=default, metadata=meta, repr=not secret)


_Area = TypeVar("_Area")


@dataclass_transform(frozen_default=True)
def area(cls: type[_Area]) -> type[_Area]:
    """A table of settings that `BrokerConfig` is made of. It has no values of its own: nobody makes one."""
    return dataclasses.dataclass(init=False, repr=False, eq=False)(cls)


def fields_of(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The settings of a table by key, each with the type of its values.

    Files of tables do not postpone annotations: to evaluate 300 texts would take longer than all the rest of the configuration.
    """
    hints = get_type_hints(cls)
    return {f.name.replace("_", "."): (f, hints[f.name]) for f in dataclasses.fields(cls) if f.metadata}
