"""`dataclass(slots=True)`, frozen or not, for the hundreds of small classes of which a process uses a few dozen.

The standard one writes and compiles up to six methods per class when the module is imported: 0.36 ms of processor each, a
third of a node's start. Here a method is compiled when it is first called, then takes its place in the class, and is as quick
as the standard one's. What both make behaves alike (tests/unit/test_lazy_dataclass.py); what is not understood is refused
when the class is made.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Literal

__all__ = ["dataclass"]

_MISSING = dataclasses.MISSING
_ORDER = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _dataclass(
    *, slots: Literal[True], frozen: bool = False, eq: bool = True, order: bool = False
) -> Callable[[type], type]:
    """The decorator. Every field is an argument of `__init__` and compares; none is for keywords only."""
    assert slots and (eq or not order)

    def make(cls: type) -> type:
        if not cls.__doc__:  # what is missing is made with inspect.signature, which takes longer than all the rest
            cls.__doc__ = f"{cls.__name__}({', '.join(inspect.get_annotations(cls))})"
        made: type = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
        _check(made)
        methods: dict[str, Any] = {
            "__init__": _at_first_call(made, "__init__", _frozen_init if frozen else _init),
            "__repr__": _repr,
        }
        if eq:
            methods["__eq__"] = _at_first_call(made, "__eq__", _comparison)
        if order:
            methods |= {name: _at_first_call(made, name, _comparison) for name in _ORDER}
        if frozen:
            methods |= _FROZEN
        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(made, name, method)
        if eq and cls.__dict__.get("__hash__") is None:  # as it is, too, where the class has an __eq__ of its own
            made.__hash__ = _at_first_call(made, "__hash__", _hash) if frozen else None  # type: ignore[assignment]
        return made

    return make


if TYPE_CHECKING:  # it is the same to type checkers
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _check(cls: type) -> None:
    fields = dataclasses.fields(cls)
    for field in fields:
        plain = field.init and field.compare and field.hash is None and not field.kw_only and field.name != "self"
        assert plain, f"{cls}: not understood: {field}"
    assert len(cls.__match_args__) == len(fields), f"{cls}: InitVar is not understood"  # type: ignore[attr-defined]


def _at_first_call(cls: type, name: str, write: Callable[[type, str, dict[str, Any]], str]) -> Callable[..., Any]:
    """A method that makes way for the one whose source `write` returns; the source sees what it put into the dict."""

    def first(*args: Any, **kwargs: Any) -> Any:
        scope: dict[str, Any] = {}
        exec(write(cls, name, scope), scope)
        method = scope[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(*args, **kwargs)

    return first


def _frozen_init(cls: type, name: str, scope: dict[str, Any]) -> str:
    return _init(cls, name, scope, frozen=True)


def _init(cls: type, name: str, scope: dict[str, Any], *, frozen: bool = False) -> str:
    parameters, body = ["self"], []
    for field in dataclasses.fields(cls):
        value = field.name
        if field.default is not _MISSING:
            scope[f"_default_{field.name}"] = field.default
            parameters.append(f"{field.name}=_default_{field.name}")
        elif field.default_factory is not _MISSING:
            scope["_MISSING"] = _MISSING
            scope[f"_make_{field.name}"] = field.default_factory
            parameters.append(f"{field.name}=_MISSING")
            value = f"_make_{field.name}() if {field.name} is _MISSING else {field.name}"
        else:
            parameters.append(field.name)
        if frozen:  # the slot itself: assignment is forbidden, and object.__setattr__ takes several times as long
            scope[f"_set_{field.name}"] = getattr(cls, field.name).__set__
            body.append(f" _set_{field.name}(self, {value})")
        else:
            body.append(f" self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    return f"def {name}({', '.join(parameters)}):\n" + "\n".join(body or [" pass"])


def _values(cls: type, of: str) -> str:
    return "(" + "".join(f"{of}.{field.name}," for field in dataclasses.fields(cls)) + ")"


def _comparison(cls: type, name: str, scope: dict[str, Any]) -> str:
    compared = f"{_values(cls, 'self')} {_ORDER.get(name, '==')} {_values(cls, 'other')}"
    return f"def {name}(self, other):\n return {compared} if other.__class__ is self.__class__ else NotImplemented"


def _hash(cls: type, name: str, scope: dict[str, Any]) -> str:
    return f"def {name}(self):\n return hash({_values(cls, 'self')})"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]  # secrets are not
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _no_setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN = {
    "__setattr__": _no_setattr,
    "__delattr__": _no_delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
