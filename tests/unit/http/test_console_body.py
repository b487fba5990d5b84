"""What a page sends with an action: whatever it is, the response says what is wrong with it."""

from __future__ import annotations

import pytest

from kafkalite.http.console.body import binary, long, numbers, object_of, partition, value


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body is not JSON: line 1, column 1"),
        (b'{"a": }', "the body is not JSON: line 1, column 7"),
        (b"[]", "not a JSON object"),
        (b'{"action":"\xff"}', "the body is not UTF-8"),
        (b'{"action":' + b"9" * 60_000 + b"}", "a number with too many digits"),
        (b"[" * 60_000, "nested too deep"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested too deep"),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        object_of(body)


def test_an_object() -> None:
    assert object_of(b'{"action": "topic.create"}') == {"action": "topic.create"}


@pytest.mark.parametrize("text", ["é", "====", "a b"])
def test_what_is_no_base64_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="salt is not base64"):
        binary({"salt": text}, "salt")
    with pytest.raises(ValueError, match="salt is missing"):
        binary({}, "salt")


def test_a_list_of_numbers() -> None:
    assert numbers({"replicas": [1, 2]}, "replicas") == [1, 2]
    for wrong in ([None], ["1"], [1.0], [True], "12"):
        with pytest.raises(ValueError, match="replicas is not a list"):
            numbers({"replicas": wrong}, "replicas")


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 10**4000])
def test_a_number_that_no_request_can_carry(number: int) -> None:
    """It was refused in the words of what writes the request: "CreateTopicsRequest: argument out of range"."""
    with pytest.raises(ValueError, match=r"^partitions is out of range$"):
        value({"partitions": number}, "partitions", int)
    with pytest.raises(ValueError, match=r"^partition is out of range$"):
        partition({"topic": "t", "partition": number})
    with pytest.raises(ValueError, match=r"^replicas is not a list of whole numbers$"):
        numbers({"replicas": [1, number]}, "replicas")
    large = {"start_offset": number}
    if abs(number) < 2**63:
        assert long(large, "start_offset") == number
    else:
        with pytest.raises(ValueError, match=r"^start_offset is out of range$"):
            long(large, "start_offset")
