"""`dataclass(slots=True)`, frozen or not, for the hundreds of small classes of which a process uses a few dozen.

The standard one writes and compiles up to six methods per class when the module is imported: 0.36 ms of processor each, a
third of a node's start. Here a method is compiled when it is first called, then takes its place in the class, and is as quick
as the standard one's. What `dataclasses.fields` returns is made when it is first asked for. What both make behaves alike
(tests/unit/test_lazy_dataclass.py); what is not understood is refused when the class is made.
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
        made: type

        def at_first_call(name: str, write: Callable[[type, str, dict[str, Any]], str]) -> Callable[..., Any]:
            """A method that makes way for the one whose source `write` returns; the source sees what it put into the dict."""

            def first(*args: Any, **kwargs: Any) -> Any:
                scope: dict[str, Any] = {}
                exec(write(made, name, scope), scope)
                method = scope[name]
                method.__qualname__ = f"{made.__qualname__}.{name}"
                setattr(made, name, method)
                return method(*args, **kwargs)

            return first

        methods: dict[str, Any] = {
            "__init__": at_first_call("__init__", _frozen_init if frozen else _init),
            "__repr__": _repr,
            "__replace__": dataclasses.replace,
        }
        if eq:
            methods["__eq__"] = at_first_call("__eq__", _comparison)
        if order:
            methods |= {name: at_first_call(name, _comparison) for name in _ORDER}
        if frozen:
            methods |= _FROZEN
        body = methods | cls.__dict__
        if eq and cls.__dict__.get("__hash__") is None:  # as it is, too, where the class has an __eq__ of its own
            body["__hash__"] = at_first_call("__hash__", _hash) if frozen else None
        made = _slotted(cls, body)
        return made

    return make


if TYPE_CHECKING:  # it is the same to type checkers
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _slotted(cls: type, body: dict[str, Any]) -> type:
    """The class again with this body, and with a slot for each field. Raises AssertionError: a field is not understood."""
    own = [name for name, kind in inspect.get_annotations(cls).items() if _is_field(cls, name, str(kind))]
    bases = cls.__mro__[-2:0:-1]
    names = dict.fromkeys(name for base in bases for name in base.__dict__.get("__match_args__", ()))
    names |= dict.fromkeys(own)
    inherited = {name for base in bases for name in base.__dict__.get("__slots__", ())}
    body["__dataclass_fields__"] = _LazyFields({name: body.pop(name, _MISSING) for name in own})
    body["__match_args__"] = (*names,)
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    body["__qualname__"] = cls.__qualname__
    if not cls.__doc__:
        body["__doc__"] = f"{cls.__name__}({', '.join(own)})"
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    return type(cls)(cls.__name__, cls.__bases__, body)


def _is_field(cls: type, name: str, kind: str) -> bool:
    """Whether what is annotated so is a field. Raises AssertionError."""
    default = cls.__dict__.get(name)
    plain = name != "self" and "InitVar" not in kind and "KW_ONLY" not in kind
    if isinstance(default, dataclasses.Field):
        plain &= default.init and default.compare and default.hash is None and default.kw_only is not True
    assert plain, f"{cls}: not understood: {name}: {kind} = {default}"
    return not kind.removeprefix("typing.").startswith("ClassVar")


class _LazyFields:
    """`__dataclass_fields__` until something reads it: the standard library takes as long to make them as Python for the class."""

    __slots__ = ("_made", "own")

    def __init__(self, own: dict[str, Any]) -> None:
        #: Fields of the class that are not only inherited -> their default, `field(...)`, or _MISSING.
        self.own = own

    def __set_name__(self, made: type, name: str) -> None:
        self._made = made

    def __get__(self, instance: object, owner: type) -> dict[str, dataclasses.Field[Any]]:
        made = self._made
        body = {
            "__annotations__": inspect.get_annotations(made),
            "__doc__": made.__doc__,  # without one, dataclasses makes one from the signature, which takes longer than all the rest
            "__module__": made.__module__,
            **{name: default for name, default in self.own.items() if default is not _MISSING},
        }
        plain: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(made.__name__, (), body))
        fields: dict[str, dataclasses.Field[Any]] = {}
        for base in (*made.__mro__[-1:0:-1], plain):
            fields |= getattr(base, "__dataclass_fields__", {})
        made.__dataclass_params__ = plain.__dataclass_params__  # type: ignore[attr-defined]
        made.__dataclass_fields__ = fields  # type: ignore[attr-defined]
        return fields


def _frozen_init(cls: type, name: str, scope: dict[str, Any]) -> str:
    return _init(cls, name, scope, frozen=True)


def _init(cls: type, name: str, scope: dict[str, Any], *, frozen: bool = False) -> str:
    parameters, body = ["self"], []
    for field, declared in _declared(cls).items():
        value = field
        default: Any = declared
        factory: Any = _MISSING
        if isinstance(declared, dataclasses.Field):
            default, factory = declared.default, declared.default_factory
        if default is not _MISSING:
            scope[f"_default_{field}"] = default
            parameters.append(f"{field}=_default_{field}")
        elif factory is not _MISSING:
            scope["_MISSING"] = _MISSING
            scope[f"_make_{field}"] = factory
            parameters.append(f"{field}=_MISSING")
            value = f"_make_{field}() if {field} is _MISSING else {field}"
        else:
            parameters.append(field)
        if frozen:  # the slot itself: assignment is forbidden, and object.__setattr__ takes several times as long
            scope[f"_set_{field}"] = getattr(cls, field).__set__
            body.append(f" _set_{field}(self, {value})")
        else:
            body.append(f" self.{field} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    return f"def {name}({', '.join(parameters)}):\n" + "\n".join(body or [" pass"])


def _declared(cls: type) -> dict[str, Any]:
    """Field -> its default, what `field` returned for it, or _MISSING. The standard library's fields would take ten times as long."""
    declared: dict[str, Any] = {}
    for base in cls.__mro__[::-1]:
        found = base.__dict__.get("__dataclass_fields__", {})
        declared |= found.own if isinstance(found, _LazyFields) else found
    return {name: declared[name] for name in cls.__match_args__}  # type: ignore[attr-defined]


def _values(cls: type, of: str) -> str:
    return "(" + "".join(f"{of}.{name}," for name in cls.__match_args__) + ")"  # type: ignore[attr-defined]


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
    return tuple(getattr(self, name) for name in self.__match_args__)


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


_FROZEN = {
    "__setattr__": _no_setattr,
    "__delattr__": _no_delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}
