"""Our quicker dataclass beside the standard one: the same class body, made by both, behaves alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.rpc.messages.transactions import TransactionMember
from kafkalite.rpc.record_class import dataclass


def classes(decorator: Callable[[type], type]) -> tuple[type, type, type]:
    class Empty:
        """No field."""

    class One:
        """One field."""

        a: int

    class Three:
        """Two of them with defaults, one of these a secret."""

        a: int
        b: str = dataclasses.field(default="x", repr=False)
        c: tuple[int, ...] = ()

    return decorator(Empty), decorator(One), decorator(Three)


OURS = classes(dataclass(frozen=True, slots=True))
STANDARD = classes(dataclasses.dataclass(frozen=True, slots=True))
CALLS = st.tuples(
    st.lists(st.integers(0, 2), max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=3),
)


def made(cls: type, call: tuple[list[int], dict[str, int]]) -> Any:
    try:
        return cls(*call[0], **call[1])
    except TypeError as error:
        return str(error)


@given(st.integers(0, 2), CALLS, CALLS)
def test_what_is_made_compares_hashes_and_prints_as_the_standard_dataclass_does(which, call, other) -> None:
    ours, twin = made(OURS[which], call), made(STANDARD[which], call)
    ours_too, twin_too = made(OURS[which], other), made(STANDARD[which], other)
    assert repr(ours) == repr(twin)  # or the same words for what cannot be made
    assert (ours == ours_too) == (twin == twin_too)
    if not isinstance(ours, str):
        assert hash(ours) == hash(twin)
        assert dataclasses.astuple(ours) == dataclasses.astuple(twin)
        assert copy.copy(ours) == ours != twin


def test_nothing_can_be_assigned_deleted_or_added() -> None:
    value = OURS[2](1)
    for name in ("a", "d"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(value, name, 2)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del value.a
    assert not hasattr(value, "__dict__")
    assert dataclasses.replace(value, b="y") == OURS[2](1, "y")


def test_a_message_survives_pickling_before_its_class_has_made_another() -> None:
    member = TransactionMember(*range(len(dataclasses.fields(TransactionMember))))
    assert pickle.loads(pickle.dumps(member)) == member
