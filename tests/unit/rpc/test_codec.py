"""The codec: what goes out comes back; what differs from the hints is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from kafkalite.errors import ProtocolError
from kafkalite.extension.messages.reassignment import AlterReassignmentsRequest, ListReassignmentsRequest
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    NewTopic,
    RemovePartitionsRequest,
)
from kafkalite.extension.messages.watching import HistoryRequest, StatusRequest
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.rpc.codec import pack, unpack, unpack_as
from kafkalite.rpc.messages.base import Message, by_kind, response_kind
from kafkalite.rpc.messages.replication import ReplicaFetchRequest, ReplicaFetchWake


def test_nested_messages_survive_the_round_trip() -> None:
    request = CreateTopicsRequest(
        (
            NewTopic("t", assignment={0: (BrokerId(1), BrokerId(2))}, configs={"retention.ms": "1"}),
            NewTopic("u"),
        )
    )
    assert unpack_as(CreateTopicsRequest, pack(request)) == request


def test_pairs_and_none_survive_the_round_trip() -> None:
    request = ReplicaFetchRequest(BrokerId(1), BrokerEpoch(2), 3, 4, 5, 6, 7, (), (("t", 0), ("u", 1)))
    assert unpack(request.kind, pack(request)) == request
    assert unpack_as(ListReassignmentsRequest, pack(ListReassignmentsRequest(None))) == ListReassignmentsRequest(None)


def test_fields_an_older_peer_does_not_send_take_their_defaults() -> None:
    assert unpack_as(DeleteTopicsRequest, msgpack.packb([["t"]])) == DeleteTopicsRequest(("t",), 30_000, vanished=False)
    assert unpack_as(StatusRequest, msgpack.packb([])) == StatusRequest()


def test_fields_a_newer_peer_adds_are_ignored() -> None:
    fields = [["t"], 1, True, "new", 7]
    assert unpack_as(DeleteTopicsRequest, msgpack.packb(fields)) == DeleteTopicsRequest(("t",), 1, vanished=True)


@pytest.mark.parametrize(
    ("cls", "fields"),
    [
        (DeleteTopicsRequest, "text"),
        (DeleteTopicsRequest, {"topics": []}),
        (DeleteTopicsRequest, []),
        (DeleteTopicsRequest, [["t", 1]]),
        (DeleteTopicsRequest, [["t"], 1, 1]),
        (DeleteTopicsRequest, [b"t"]),
        (RemovePartitionsRequest, ["t", 1.0]),
        (RemovePartitionsRequest, ["t", True]),
        (RemovePartitionsRequest, ["t", 2**63]),
        (AlterReassignmentsRequest, [[["t", 0]]]),
        (AlterReassignmentsRequest, [[["t", 0, [None]]]]),
        (ReplicaFetchRequest, [1, 2, 3, 4, 5, 6, 7, [], [["t"]]]),
        (ReplicaFetchRequest, [1, 2, 3, 4, 5, 6, 7, [], [["t", "0"]]]),
        (CreateTopicsRequest, [[["t", 1, 1, {"0": [1]}]]]),
        (CreateTopicsRequest, [[["t", 1, 1, [1]]]]),
        (CreateTopicsResponse, [None]),
    ],
)
def test_whatever_differs_from_the_hints_is_refused(cls: type[Message], fields: Any) -> None:
    with pytest.raises(ProtocolError):
        unpack_as(cls, msgpack.packb(fields))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ProtocolError):
        unpack(9999, msgpack.packb([]))


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x92\x01", b"\x90\x90", b"\x91\x81\x90\x01", b"\x91\xd9\x02\xff\xfe"]
)
def test_broken_msgpack_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_as(HistoryRequest, payload)


def test_every_request_has_its_response() -> None:
    one_way = {ReplicaFetchWake}
    for kind, cls in by_kind.items():
        if kind % 2 == 0 and cls not in one_way:
            assert by_kind[response_kind(cls)].__name__ == cls.__name__.replace("Request", "Response")
