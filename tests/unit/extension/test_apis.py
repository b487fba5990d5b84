"""No message of the extension API without a row that says its response, what it needs, and where its names are."""

from __future__ import annotations

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.extension import messages
from kafkalite.extension.apis import APIS, with_refusals, without
from kafkalite.extension.messages.topics import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from kafkalite.protocol.schema import schemas
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.base import Message
from kafkalite.security.acl import OPERATIONS, ResourceType
from kafkalite.security.requirements import REFUSALS, Scope
from tests.datadriven.test_rpc_messages import sample

#: Requests between the parts of a node: clients use Kafka's API for the same.
_INTERNAL = {
    "AddPartitionsRequest",
    "ElectLeadersRequest",
    "DescribeTransactionRequest",
}
REQUESTS = {
    name: cls
    for area in messages.AREAS
    for name, cls in vars(getattr(messages, area)).items()
    if isinstance(cls, type) and issubclass(cls, Message) and name.endswith("Request")
}


def test_every_message_has_a_row() -> None:
    assert sorted(REQUESTS.keys() - APIS.keys() - _INTERNAL) == []
    assert sorted(APIS.keys() - REQUESTS.keys()) == []


def test_the_key_is_the_one_of_the_wire_table() -> None:
    """In a range that no Apache Kafka release uses. Clients and nodes of other versions know it."""
    assert schemas()["ExtensionRequest"].api_key == schemas()["ExtensionResponse"].api_key == 20_000


@pytest.mark.parametrize("kind", sorted(APIS))
def test_rows(kind: str) -> None:
    api = APIS[kind]
    assert api.response.__name__ == kind.replace("Request", "Response")
    for need in api.needs:
        assert need.operation in OPERATIONS[need.resource_type]
        assert need.resource_type in REFUSALS
        match need.scope:
            case Scope.WHOLE if need.resource_type is not ResourceType.CLUSTER:
                assert api.names is not None and list(api.names(sample(api.request, 0)))
            case Scope.EACH:
                assert api.names is not None and list(api.names(sample(api.request, 0)))
            case Scope.HIDE:
                assert api.hide is not None
                assert api.hide(sample(api.response, 0), lambda name: True) is not None


@pytest.mark.parametrize("kind", sorted(APIS))
def test_round_trip(kind: str) -> None:
    for cls in (APIS[kind].request, APIS[kind].response):
        message = sample(cls, 0)
        assert unpack_as(cls, pack(message)) == message


def test_topics_are_refused_one_by_one() -> None:
    create = CreateTopicsRequest((NewTopic("a"), NewTopic("b")))
    assert without(create, frozenset("a")) == CreateTopicsRequest((NewTopic("b"),))
    assert without(DeleteTopicsRequest(("a", "b")), frozenset("ab")) is None
    refused = with_refusals(
        APIS["DeleteTopicsRequest"], None, frozenset("ab"), ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not authorized"
    )
    assert [(each.topic, each.error) for each in refused.topics] == [("a", 29), ("b", 29)]  # type: ignore[attr-defined]
