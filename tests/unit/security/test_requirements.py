"""No request without a rule: a change that adds an API or an RPC message adds its row, and says where its names are."""

from __future__ import annotations

import pytest

from kafkalite.extension import messages as extension_messages
from kafkalite.kafka.apis import OFFERED
from kafkalite.kafka.guard import _checks
from kafkalite.protocol import wire
from kafkalite.rpc.messages.base import by_kind
from kafkalite.rpc.messages.connection import HelloRequest
from kafkalite.security.acl import OPERATIONS, Operation, ResourceType
from kafkalite.security.requirements import HTTP, KAFKA, REFUSALS, RPC, Need, Scope

assert extension_messages.AREAS  # nodes ask each other some of these
#: Requests of the RPC protocol; the hello has no handler.
REQUESTS = {cls.__name__: cls for kind, cls in by_kind.items() if kind % 2 == 0 and cls is not HelloRequest}


def test_every_kafka_api_has_a_row() -> None:
    assert sorted(OFFERED.keys() - KAFKA.keys()) == []


def test_every_rpc_request_has_a_row() -> None:
    assert REQUESTS.keys() - RPC.keys() == {"SaslAuthenticateRequest"}  # part of the hello
    assert not RPC.keys() - REQUESTS.keys() - {"ReplicaFetchWake"}


@pytest.mark.parametrize("row", [*KAFKA.values(), *RPC.values(), *HTTP.values()], ids=[*KAFKA, *RPC, *HTTP])
def test_rows_ask_for_operations_that_can_be_given(row: tuple[Need, ...]) -> None:
    for need in row:
        assert need.operation in OPERATIONS[need.resource_type]
        assert need.resource_type in REFUSALS
        # DELETE is not among them, also in Kafka: requests may give it all the same, and ALL has it.
        assert need.or_cluster in (None, Operation.DELETE, *OPERATIONS[ResourceType.CLUSTER])


@pytest.mark.parametrize("api", sorted(OFFERED))
def test_the_names_of_every_row_can_be_found(api: str) -> None:
    checks = _checks(api)
    assert checks is not None
    low, high = OFFERED[api]
    assert len(checks) >= len([need for need in KAFKA[api] if need.scope not in (Scope.HIDE, Scope.OTHERS)]) - (
        api == "Metadata"
    )
    for version in range(low, high + 1):
        message = getattr(wire, api + "Request")()
        for check in checks:
            if version in check.need.versions:
                names = list(check.names(None, message, version))  # type: ignore[arg-type]  # no names, no services
                is_one = check.need.resource_type is ResourceType.CLUSTER or names
                assert check.need.scope is Scope.EACH or is_one or api in ("Produce", "InitProducerId")


@pytest.mark.parametrize("name", sorted(RPC))
def test_rpc_asks_for_the_cluster_alone(name: str) -> None:
    assert all(need.resource_type is ResourceType.CLUSTER and need.scope is Scope.WHOLE for need in RPC[name])
