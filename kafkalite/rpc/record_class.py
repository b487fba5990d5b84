"""`dataclass(frozen=True, slots=True)` for many small classes of which a process uses few.

The standard one writes and compiles six methods per class when the module is imported: 90 ms of processor for the messages,
in every process of ours, Spark's short-lived ones included. Here `__init__` is compiled at a class's first object, and
the others are shared.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any, Literal

_MISSING = dataclasses.MISSING


def dataclass(*, frozen: Literal[True], slots: Literal[True]) -> Callable[[type], type]:
    """The decorator. Fields have a plain default or none and all compare; there is no `__post_init__`."""

    def make(cls: type) -> type:
        made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        for name, method in _SHARED.items():
            if name not in cls.__dict__:
                setattr(made, name, method)
        return made

    assert frozen
    return make


def _init_at_first(self: Any, *args: Any, **kwargs: Any) -> None:
    cls = type(self)
    cls.__init__ = _compiled_init(cls)
    cls.__init__(self, *args, **kwargs)


def _compiled_init(cls: type) -> Callable[..., None]:
    scope: dict[str, Any] = {}
    parameters, body = ["self"], []
    for field in dataclasses.fields(cls):
        assert field.init and field.compare and field.default_factory is _MISSING, f"{cls}: not understood: {field}"
        assert not hasattr(cls, "__post_init__"), cls
        # the slot itself: assignment is forbidden, and object.__setattr__ takes several times as long
        scope[f"_set_{field.name}"] = getattr(cls, field.name).__set__
        if field.default is _MISSING:
            parameters.append(field.name)
        else:
            scope[f"_default_{field.name}"] = field.default
            parameters.append(f"{field.name}=_default_{field.name}")
        body.append(f"    _set_{field.name}(self, {field.name})")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or ["    pass"]), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


#: A class's values as a tuple.
_values: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def _values_of(self: Any) -> tuple[Any, ...]:
    getter = _values.get(type(self))
    if getter is None:
        getter = _values[type(self)] = _getter([field.name for field in dataclasses.fields(self)])
    return getter(self)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _repr(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]  # secrets are not
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values_of(self) == _values_of(other)


def _hash(self: Any) -> int:
    return hash(_values_of(self))


def _no_setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> tuple[Any, ...]:
    return _values_of(self)


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED = {
    "__init__": _init_at_first,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _no_setattr,
    "__delattr__": _no_delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
