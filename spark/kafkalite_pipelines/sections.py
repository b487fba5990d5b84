"""One table of a TOML file while it is checked: every key is asked for once, what is left over is a mistake. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

#: Keys of the file itself: after a [table] TOML takes them for keys of this table.
_TOP = ("name", "trigger", "checkpoint", "master")
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
#: 100 years: Spark counts milliseconds, and so do times that are added to these.
_LONGEST_S = 36_500 * 86400
_SIZE = re.compile(r"(\d{1,12})\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)?")
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class Section:
    """Typed access to a table. A wrong value becomes one line in `problems`, and the default is returned."""

    def __init__(self, values: Mapping[str, Any], path: str, problems: list[str]) -> None:
        self._values = dict(values)
        self._asked: set[str] = set()
        #: Key -> the line that says that it is missing.
        self._missing: dict[str, str] = {}
        self.path = path
        self.problems = problems

    def problem(self, key: str, text: str) -> None:
        self.problems.append(f"{self._name(key)}: {text}")

    def missing(self, key: str, text: str) -> None:
        """A key that must be there. The line goes away if `done` finds that the key is there with a slip in its name."""
        self.problem(key, f"is missing: {text}")
        self._missing[key] = self.problems[-1]

    def instead(self, wrong: str, right: str, text: str) -> None:
        """`wrong` is there and means the missing key `right`: one line for both."""
        self._asked.add(wrong)
        self._found(right)
        self.problem(wrong, text)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def any(self, key: str) -> Any:
        """The value as it is; None if it is not there."""
        self._asked.add(key)
        return self._values.get(key)

    def text(self, key: str, default: str | None = None, *, required: str | None = None) -> str | None:
        """`required`: what to say if it is not there."""
        value = self.any(key)
        if value is None:
            if required is not None:
                self.missing(key, required)
            return default
        if not isinstance(value, str):
            self.problem(key, f"must be text, not {kind(value)}")
            return default
        if not value.strip():
            self.problem(key, "is empty")
            return default
        return value

    def choice(self, key: str, values: Iterable[str], default: str) -> str:
        before = len(self.problems)
        value = self.text(key) or default
        allowed = list(values)
        if len(self.problems) > before:  # it is no text, or empty
            return default
        if value not in allowed:
            self.problem(key, f"must be {' or '.join(allowed)}, not {value!r}{_meant(str(value), allowed)}")
            return default
        return value

    def number(self, key: str, *, least: int = 1, most: int = 2**63 - 1) -> int | None:
        value = self.any(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(
                key, f"must be a whole number, not {shown(value) if isinstance(value, float) else kind(value)}"
            )
            return None
        if not least <= value <= most:
            self.problem(key, f"must be {least} or more, not {value}" if value < least else f"must be {most} at most")
            return None
        return value

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self.any(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(key, f"must be true or false, not {kind(value)}")
            return default
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        value = self.any(key)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) and each.strip() for each in values):
            of = " of other values" if isinstance(value, list) else ""
            self.problem(key, f'must be a list of names, such as ["a", "b"], not {kind(value)}{of}')
            return ()
        if len(set(values)) < len(values):
            self.problem(key, "names one twice")
        return tuple(values)

    def texts(self, key: str) -> dict[str, str]:
        """A table of texts (numbers and booleans are written as Kafka and Spark write them), dotted keys joined."""
        value = self.any(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problem(key, f"must be a table of settings, not {kind(value)}")
            return {}
        texts = {}
        for name, each in _flat(value).items():
            if isinstance(each, bool):
                texts[name] = str(each).lower()
            elif isinstance(each, str | int | float):
                texts[name] = str(each)
            else:
                self.problem(f"{key}.{name}", f"must be text or a number, not {kind(each)}")
        return texts

    def seconds(
        self,
        key: str,
        default: float | None = None,
        *,
        least: float = 0.0,
        examples: str = '"10s", "5m", "1h" or "7d"',
    ) -> float | None:
        """A duration: "10s", "5m", "1h", "7d"."""
        value = self.any(key)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            self.problem(key, f"must be a duration such as {examples}, not {shown(value)}")
            return default
        seconds = float(found[1]) * _SECONDS[found[2]]
        if not least <= seconds <= _LONGEST_S:
            limit = f"{least:g} s or more" if seconds < least else f"{_LONGEST_S // 86400} days at most"
            self.problem(key, f"must be {limit}, not {shown(value)}")
            return default
        return seconds

    def size(self, key: str, default: int | None = None) -> int | None:
        """Bytes: a number, or text such as "64MB"."""
        value = self.any(key)
        if value is None:
            return default
        found = (
            _SIZE.fullmatch(str(value).strip())
            if isinstance(value, str | int) and not isinstance(value, bool)
            else None
        )
        size = int(found[1]) * _BYTES[(found[2] or "B").upper()] if found is not None else 0
        if size < 1:
            self.problem(key, f'must be a size such as "64MB", not {shown(value)}')
            return default
        return size

    def section(self, key: str) -> Section | None:
        """A table inside this one; None if it is not there."""
        value = self.any(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.problem(key, f"must be a table ([{self._name(key)}]), not {kind(value)}")
            return None
        return Section(value, self._name(key), self.problems)

    def sections(self, key: str) -> list[Section]:
        """Tables in a list: [[sinks]]."""
        value = self.any(key)
        if value is None:
            return []
        if isinstance(value, Mapping):
            self.problem(key, f"must be written [[{self._name(key)}]], with two brackets, because there may be several")
            return []
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            of = " of other values" if isinstance(value, list) else ""
            self.problem(key, f"must be tables ([[{self._name(key)}]]), not {kind(value)}{of}")
            return []
        return [Section(each, f"{self._name(key)}[{number}]", self.problems) for number, each in enumerate(value, 1)]

    def done(self, known: Iterable[str] = ()) -> None:
        """What nobody has asked for does not exist. `known`: names that exist but were not asked for here."""
        names = [*self._asked, *known]
        for key in self._values:
            if key not in names:
                where = f" in [{self.path}]" if self.path else ""
                close = difflib.get_close_matches(key, names, 1)
                self._found(*close)
                if self.path and key in _TOP:
                    self.problem(key, f"there is no such key{where}: {key} stands above the first [table] of the file")
                    continue
                others = f"; did you mean {close[0]}?" if close else f" ({', '.join(sorted(set(names)))})"
                self.problem(key, f"there is no such key{where}{others}")

    def _found(self, *keys: str) -> None:
        for key in keys:
            if key in self._missing:
                self.problems.remove(self._missing.pop(key))

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def kind(value: Any) -> str:
    """The kind of a TOML value, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else "a date or time"


def shown(value: Any) -> str:
    """A value in an error line."""
    return repr(value) if isinstance(value, str | int | float) else kind(value)


def _meant(value: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(value, list(names), 1)
    return f"; did you mean {close[0]}?" if close else ""


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
