"""The codec: what goes out comes back; what differs from the hints is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from kafkalite.errors import ProtocolError
from kafkalite.extension.messages.topics import CreateTopicsRequest, NewTopic
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.replica.requests import InitProducerIdRequest, MetadataRequest
from kafkalite.rpc.codec import pack, unpack
from kafkalite.rpc.messages.base import by_kind, response_kind
from kafkalite.rpc.messages.replication import ReplicaFetchRequest, ReplicaFetchWake


def test_nested_messages_survive_the_round_trip() -> None:
    request = CreateTopicsRequest(
        (
            NewTopic("t", assignment={0: (BrokerId(1), BrokerId(2))}, configs={"retention.ms": "1"}),
            NewTopic("u"),
        )
    )
    assert unpack(CreateTopicsRequest.kind, pack(request)) == request


def test_pairs_and_none_survive_the_round_trip() -> None:
    request = ReplicaFetchRequest(BrokerId(1), BrokerEpoch(2), 3, 4, 5, 6, 7, (), (("t", 0), ("u", 1)))
    assert unpack(request.kind, pack(request)) == request
    assert unpack(36, pack(MetadataRequest(None))) == MetadataRequest(None)


def test_fields_an_older_peer_does_not_send_take_their_defaults() -> None:
    assert unpack(36, msgpack.packb([["t"]])) == MetadataRequest(("t",), allow_auto_create=False)
    assert unpack(38, msgpack.packb([])) == InitProducerIdRequest()


def test_fields_a_newer_peer_adds_are_ignored() -> None:
    assert unpack(36, msgpack.packb([["t"], True, "new", 7])) == MetadataRequest(("t",), allow_auto_create=True)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (36, "text"),
        (36, {"topics": []}),
        (36, []),
        (36, [["t", 1]]),
        (36, [["t"], 1]),
        (36, [b"t"]),
        (30, [1, 1.0, []]),
        (30, [True, 1, []]),
        (30, [2**63, 1, []]),
        (30, [1, 1, [["t", 0]]]),
        (30, [1, 1, [["t", 0, None]]]),
        (20, [1, 2, 3, 4, 5, 6, 7, [], [["t"]]]),
        (20, [1, 2, 3, 4, 5, 6, 7, [], [["t", "0"]]]),
        (40, [[["t", 1, 1, {"0": [1]}]]]),
        (40, [[["t", 1, 1, [1]]]]),
        (41, [None]),
        (9999, []),
    ],
)
def test_whatever_differs_from_the_hints_is_refused(kind: int, fields: Any) -> None:
    with pytest.raises(ProtocolError):
        unpack(kind, msgpack.packb(fields))


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x92\x01", b"\x90\x90", b"\x91\x81\x90\x01", b"\x91\xd9\x02\xff\xfe"]
)
def test_broken_msgpack_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(36, payload)


def test_every_request_has_its_response() -> None:
    one_way = {ReplicaFetchWake}
    for kind, cls in by_kind.items():
        if kind % 2 == 0 and cls not in one_way:
            assert by_kind[response_kind(cls)].__name__ == cls.__name__.replace("Request", "Response")
