"""Our quicker dataclass beside the standard one: the same class body, made by both, behaves alike."""

from __future__ import annotations

import copy
import dataclasses
import operator
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.extension.messages.transactions import TransactionMember
from kafkalite.lazy_dataclass import dataclass

Decorator = Callable[..., Callable[[type], type]]


def classes(decorator: Decorator, **options: bool) -> tuple[type, ...]:
    class Empty:
        """No field."""

    class One:
        a: int

    class Three:
        """Two of them with defaults, one of these a secret."""

        a: int
        b: str = dataclasses.field(default="x", repr=False)
        c: tuple[int, ...] = ()

    class Made:
        """Some are made for each object, and it looks at itself afterwards."""

        kind: ClassVar[str] = "made"
        a: int
        b: list[int] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.b.append(self.a) if isinstance(self.b, list) else None

    made = decorator(**options)(Three)

    class Derived(made):  # type: ignore[valid-type, misc]
        """Three's fields and one more; one of them with another default."""

        b: str = "y"
        d: int = 4

    class Particular:
        """What it says itself stays."""

        a: int

        def __repr__(self) -> str:
            return "particular"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.a % 2 == other.a % 2

    return *(decorator(**options)(each) for each in (Empty, One, Made, Derived, Particular)), made


KINDS: tuple[dict[str, bool], ...] = (
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "order": True},
    {"slots": True},
    {"slots": True, "eq": False},
)
OURS = [classes(dataclass, **options) for options in KINDS]
STANDARD = [classes(dataclasses.dataclass, **options) for options in KINDS]
THREE = OURS[0][-1]
CALLS = st.tuples(
    st.lists(st.integers(0, 2), max_size=5),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=3),
)


def told(what: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What it returns, or the words of its TypeError."""
    try:
        return what(*arguments, **named)
    except TypeError as error:
        return str(error)


def same(ours: Any, twin: Any) -> bool:
    """Equal, or made by the one and the other with equal values."""
    return repr(ours) == repr(twin)


@given(st.sampled_from(range(len(KINDS))), st.integers(0, 5), CALLS, CALLS)
def test_what_is_made_compares_hashes_and_prints_as_the_standard_dataclass_does(options, which, call, other) -> None:
    # new classes each time: what is compiled when the method is first called, and what is then there
    mine, standard = (
        classes(dataclass, **KINDS[options])[which],
        classes(dataclasses.dataclass, **KINDS[options])[which],
    )
    for ours_of, twin_of in ((mine, standard), (OURS[options][which], STANDARD[options][which])):
        ours, twin = told(ours_of, *call[0], **call[1]), told(twin_of, *call[0], **call[1])
        ours_too, twin_too = told(ours_of, *other[0], **other[1]), told(twin_of, *other[0], **other[1])
        assert same(ours, twin)  # or the same words for what cannot be made
        for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
            assert told(compare, ours, ours_too) == told(compare, twin, twin_too)
        if isinstance(ours, str):
            continue
        assert ours == ours and ours != twin and ours != 1
        if KINDS[options].get("eq", True) or isinstance(told(hash, twin), str):
            assert told(hash, ours) == told(hash, twin)
        else:
            assert hash(ours) == hash(ours) != hash(twin)
        assert dataclasses.astuple(ours) == dataclasses.astuple(twin)
        assert (copy.copy(ours) == ours) == (copy.copy(twin) == twin)
        assert same(copy.copy(ours), copy.copy(twin))
        assert same(told(dataclasses.replace, ours, **other[1]), told(dataclasses.replace, twin, **other[1]))
        assert ours_of.__match_args__ == twin_of.__match_args__


@pytest.mark.parametrize(("mine", "standard"), [*zip(OURS, STANDARD, strict=True)])
def test_what_is_said_about_fields_is_the_same(mine, standard) -> None:
    for ours, twin in zip(mine, standard, strict=True):
        assert [str(each) for each in dataclasses.fields(ours)] == [str(each) for each in dataclasses.fields(twin)]
        assert ours.__slots__ == twin.__slots__
        assert ours.__doc__
        assert not hasattr(ours(1) if dataclasses.fields(ours) else ours(), "__dict__")


def test_what_is_said_about_fields_is_made_when_it_is_asked_for() -> None:
    ours, twins = classes(dataclass, slots=True), classes(dataclasses.dataclass, slots=True)
    mine: Any
    for mine, twin in reversed([*zip(ours, twins, strict=True)]):  # a base before what is derived from it
        assert not isinstance(vars(mine)["__dataclass_fields__"], dict)
        assert dataclasses.is_dataclass(mine) and list(mine.__dataclass_fields__) == list(twin.__dataclass_fields__)  # type: ignore[attr-defined]
        assert isinstance(vars(mine)["__dataclass_fields__"], dict)


def test_an_object_is_made_without_what_is_said_about_fields() -> None:
    [_, _, made, *_] = classes(dataclass, slots=True)
    assert made(1).b == [1] and made(3, [0]).b == [0, 3]
    assert not isinstance(vars(made)["__dataclass_fields__"], dict)


def test_each_object_has_its_own_of_what_is_made_for_each() -> None:
    [_, _, made, *_] = OURS[2]
    first, second, given_ = made(1), made(2), made(3, [0])
    assert (first.b, second.b, given_.b) == ([1], [2], [0, 3])


def test_one_that_is_not_frozen_can_be_changed_and_then_compares_anew() -> None:
    three = OURS[2][-1]
    value = three(1)
    value.b = "y"
    assert value == three(1, "y")
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)
    with pytest.raises(AttributeError):
        value.d = 1


def test_one_that_holds_itself_is_printed() -> None:
    for three in (OURS[2][-1], STANDARD[2][-1]):
        value = three(1)
        value.c = value
        assert repr(value).endswith("Three(a=1, c=...)")


def test_nothing_can_be_assigned_deleted_or_added() -> None:
    value = THREE(1)
    for name in ("a", "d"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(value, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del value.a
    assert not hasattr(value, "__dict__")
    assert dataclasses.replace(value, b="y") == THREE(1, "y")


def test_a_message_survives_pickling_before_its_class_has_made_another() -> None:
    member = TransactionMember(*range(len(dataclasses.fields(TransactionMember))))
    assert pickle.loads(pickle.dumps(member)) == member


def test_what_a_subclass_makes_of_the_methods_is_not_overwritten() -> None:
    made: Any = dataclass(frozen=True, slots=True)(type("Base", (), {"__annotations__": {"a": "int"}}))

    class Counted(made):  # type: ignore[misc]
        def __init__(self, a: int) -> None:
            super().__init__(a + 1)

    assert [Counted(1).a, Counted(1).a, made(1).a] == [2, 2, 1]
    assert Counted(1) == Counted(1) != made(2)


@pytest.mark.parametrize(
    "default",
    [
        dataclasses.field(init=False, default=1),
        dataclasses.field(compare=False),
        dataclasses.field(hash=False),
        dataclasses.field(kw_only=True),
    ],
)
def test_what_is_not_understood_is_refused_when_the_class_is_made(default) -> None:
    with pytest.raises(AssertionError, match="not understood"):
        dataclass(slots=True)(type("Odd", (), {"__annotations__": {"a": "int"}, "a": default}))


def test_a_value_for_init_alone_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AssertionError, match="InitVar"):
        dataclass(slots=True)(type("Odd", (), {"__annotations__": {"a": dataclasses.InitVar[int]}}))
