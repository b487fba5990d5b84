"""The extension API on the Kafka listener: what is advertised, refusals, rights, quotas."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from kafkalite.coordinators.transactions import extension
from kafkalite.errors import ErrorCode, api_error
from kafkalite.extension import apis
from kafkalite.extension.messages.open_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    OpenTransactionsRequest,
    OpenTransactionsResponse,
)
from kafkalite.extension.messages.reassignment import (
    AlterReassignmentsRequest,
    AlterReassignmentsResponse,
    WantedReassignment,
)
from kafkalite.extension.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
    NewTopic,
    RemovePartitionsRequest,
    RemovePartitionsResponse,
    ReplicaDescription,
    TopicResult,
)
from kafkalite.extension.messages.transactions import BeginTxnGroupRequest, EndTxnGroupRequest, TransactionMember
from kafkalite.extension.messages.watching import HealthRequest, HealthResponse
from kafkalite.extension.transaction_groups import transactional_id
from kafkalite.model import BrokerEpoch, BrokerId
from kafkalite.protocol import wire
from kafkalite.rpc.codec import pack, unpack_as
from kafkalite.rpc.messages.base import Message
from kafkalite.security.acl import CLUSTER_NAME, Operation, ResourceType
from kafkalite.security.quotas import Entity, Kind
from tests.datadriven.test_rpc_messages import sample

from .conftest import Broker, FrameClient
from .coordinator_requests import coordinator
from .rights import allow, client_of, counted_turns

E = ErrorCode
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def refused(answer: Any) -> tuple[ErrorCode, str]:
    assert answer.body is None
    return ErrorCode(answer.error_code), answer.error_message


async def ask(client: FrameClient, message: Message) -> Any:
    """The response message, or (error, text) if the request was refused as a whole."""
    kind = type(message).__name__
    answer = await client.ask(wire.ExtensionRequest(kind, pack(message)), 0)
    return refused(answer) if answer.error_code else unpack_as(apis.APIS[kind].response, answer.body)


def serving(broker: Broker, request: type[Message], answer: Message) -> list[Message]:
    """The node answers such requests like this; the list of what it was asked."""
    asked: list[Message] = []

    async def serve(message: Message) -> Message:
        asked.append(message)
        return answer

    broker.services.extension[request] = serve
    return asked


async def test_it_is_advertised_and_served(broker: Broker) -> None:
    client = await broker.client()
    offered = {each.api_key: each for each in (await client.ask(wire.ApiVersionsRequest("test", "1"), 3)).api_keys}
    assert (offered[20_000].min_version, offered[20_000].max_version) == (0, 0)
    serving(broker, HealthRequest, sample(HealthResponse, 0))
    assert await ask(client, HealthRequest()) == sample(HealthResponse, 0)


async def test_an_unknown_kind_is_an_unsupported_version(broker: Broker) -> None:
    client = await broker.client()
    answer = await client.ask(wire.ExtensionRequest("GuessWhatRequest", b"\x90"), 0)
    assert refused(answer) == (E.UNSUPPORTED_VERSION, "unknown extension request 'GuessWhatRequest'")
    # Known to others of the cluster, not to this node.
    assert (await ask(client, HealthRequest()))[0] is E.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"nothing", msgpack.packb({}), msgpack.packb([7]), b"\x91" * 2000, msgpack.packb([{(): 1}])],
)
async def test_a_bad_body_is_an_invalid_request(broker: Broker, body: bytes) -> None:
    client = await broker.client()
    asked = serving(broker, RemovePartitionsRequest, RemovePartitionsResponse(0))
    code, text = refused(await client.ask(wire.ExtensionRequest("RemovePartitionsRequest", body), 0))
    assert code is E.INVALID_REQUEST and "RemovePartitionsRequest" in text and not asked


async def test_a_body_has_a_limit(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalite.kafka.handlers.extension.MAX_BODY_BYTES", 100)
    client = await broker.client()
    serving(broker, HealthRequest, sample(HealthResponse, 0))
    body = msgpack.packb(["x" * 200])
    code, text = refused(await client.ask(wire.ExtensionRequest("HealthRequest", body), 0))
    assert code is E.INVALID_REQUEST and "at most 100" in text
    assert await ask(client, HealthRequest()) == sample(HealthResponse, 0)


async def test_a_body_has_a_number_of_elements(broker: Broker) -> None:
    """A body of 8 MiB that was a list of partitions took the event loop two seconds, with or without any right."""
    client = await broker.client()
    asked = serving(broker, DescribeReplicasRequest, sample(DescribeReplicasResponse, 0))
    for partitions in ((("", 0),) * 100_001, (("", 0),) * 34_000):
        code, text = await ask(client, DescribeReplicasRequest((), partitions))
        assert code is E.INVALID_REQUEST and "too many elements" in text and not asked
    await ask(client, DescribeReplicasRequest((), (("", 0),) * 33_000))
    assert len(asked) == 1
    # A plan for a whole cluster may be larger: its user may alter the cluster.
    serving(broker, AlterReassignmentsRequest, AlterReassignmentsResponse(0))
    plan = tuple(WantedReassignment("t", number, None) for number in range(40_000))
    assert await ask(client, AlterReassignmentsRequest(plan)) == AlterReassignmentsResponse(0)


async def test_what_the_node_refuses_has_its_code_and_text(broker: Broker) -> None:
    async def serve(message: Message) -> Message:
        raise api_error(E.NOT_CONTROLLER, "ask the other one")

    broker.services.extension[HealthRequest] = serve
    assert await ask(await broker.client(), HealthRequest()) == (E.NOT_CONTROLLER, "ask the other one")


# --- rights ---


@pytest.fixture
async def secured(make_broker: Any) -> Broker:
    made: Broker = await make_broker(authorizer_enabled=True, super_users="User:root")
    return made


async def test_a_whole_request_is_refused(secured: Broker) -> None:
    asked = serving(secured, HealthRequest, sample(HealthResponse, 0))
    alice = await client_of(secured, "alice")
    code, text = await ask(alice, HealthRequest())
    assert code is E.CLUSTER_AUTHORIZATION_FAILED and "DESCRIBE" in text and not asked
    allow(secured, "alice", CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)
    assert await ask(alice, HealthRequest()) == sample(HealthResponse, 0)


async def test_a_request_about_the_cluster_is_refused_before_it_is_decoded(secured: Broker) -> None:
    client = await client_of(secured, "alice")
    answer = await client.ask(wire.ExtensionRequest("AlterReassignmentsRequest", b"nothing"), 0)
    assert refused(answer)[0] is E.CLUSTER_AUTHORIZATION_FAILED
    root = await client_of(secured, "root")
    answer = await root.ask(wire.ExtensionRequest("AlterReassignmentsRequest", b"nothing"), 0)
    assert refused(answer)[0] is E.INVALID_REQUEST


async def test_the_names_of_a_request_are_looked_up_in_slices(secured: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = await client_of(secured, "alice")
    turns = counted_turns(monkeypatch)
    answer = await ask(alice, DeleteTopicsRequest(tuple(map(str, range(300)))))
    assert {each.error for each in answer.topics} == {E.TOPIC_AUTHORIZATION_FAILED} and len(answer.topics) == 300
    assert len(turns) >= 300


async def test_every_need_is_needed(secured: Broker) -> None:
    asked = serving(secured, RemovePartitionsRequest, RemovePartitionsResponse(0))
    alice = await client_of(secured, "alice")
    request = RemovePartitionsRequest("t", 1)
    allow(secured, "alice", TOPIC, "t", Operation.ALTER)
    assert (await ask(alice, request))[0] is E.TOPIC_AUTHORIZATION_FAILED and not asked
    allow(secured, "alice", TOPIC, "t", Operation.ALTER, Operation.DELETE)
    assert await ask(alice, request) == RemovePartitionsResponse(0)


async def test_topics_are_refused_one_by_one(secured: Broker) -> None:
    asked = serving(secured, CreateTopicsRequest, CreateTopicsResponse((TopicResult("a", 0),)))
    alice = await client_of(secured, "alice")
    allow(secured, "alice", TOPIC, "a", Operation.CREATE)
    answer = await ask(alice, CreateTopicsRequest((NewTopic("a"), NewTopic("b"))))
    assert asked == [CreateTopicsRequest((NewTopic("a"),))]
    assert [(each.topic, each.error) for each in answer.topics] == [("a", 0), ("b", E.TOPIC_AUTHORIZATION_FAILED)]
    answer = await ask(alice, CreateTopicsRequest((NewTopic("b"),)))
    assert len(asked) == 1 and answer.topics[0].error == E.TOPIC_AUTHORIZATION_FAILED


async def test_what_may_not_be_described_is_left_out(secured: Broker) -> None:
    one = sample(ReplicaDescription, 0)
    other = replace(one, topic="hidden")
    answer = DescribeReplicasResponse(sample(DescribeReplicasResponse, 0).broker_id, 1, (one, other))  # type: ignore[arg-type]
    serving(secured, DescribeReplicasRequest, answer)
    alice = await client_of(secured, "alice")
    assert (await ask(alice, DescribeReplicasRequest())).replicas == ()
    allow(secured, "alice", TOPIC, one.topic, Operation.DESCRIBE)
    assert (await ask(alice, DescribeReplicasRequest())).replicas == (one,)
    assert (await ask(await client_of(secured, "root"), DescribeReplicasRequest())).replicas == (one, other)


async def test_what_an_answer_lists_is_looked_up_in_slices(secured: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without any right could ask for all transactional ids, or replicas: each right was looked up in one turn of the loop."""
    one = sample(ReplicaDescription, 0)
    replicas = tuple(replace(one, topic=f"t{number}") for number in range(300))
    serving(secured, DescribeReplicasRequest, DescribeReplicasResponse(BrokerId(1), BrokerEpoch(1), replicas))
    alice = await client_of(secured, "alice")
    allow(secured, "alice", TOPIC, "t7", Operation.DESCRIBE)
    turns = counted_turns(monkeypatch)
    assert [each.topic for each in (await ask(alice, DescribeReplicasRequest())).replicas] == ["t7"]
    assert len(turns) >= 300


async def test_what_may_not_be_described_is_not_looked_up(secured: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that it takes shows whether a topic exists, and how many partitions it has."""
    answer = DescribeReplicasResponse(BrokerId(1), BrokerEpoch(1), ())
    replicas = serving(secured, DescribeReplicasRequest, answer)
    opened = serving(secured, OpenTransactionsRequest, OpenTransactionsResponse(0))
    alice = await client_of(secured, "alice")
    allow(secured, "alice", TOPIC, "mine", Operation.READ)
    for message, passed in (
        (DescribeReplicasRequest(("mine", "hidden")), DescribeReplicasRequest(("mine",))),
        (DescribeReplicasRequest(("hidden",)), DescribeReplicasRequest(("",))),
        (DescribeReplicasRequest((), (("hidden", 1), ("mine", 2))), DescribeReplicasRequest((), (("mine", 2),))),
        (DescribeReplicasRequest(("hidden",), (("hidden", 1),)), DescribeReplicasRequest(("",), (("", 0),))),
        (DescribeReplicasRequest(), DescribeReplicasRequest()),
    ):
        await ask(alice, message)
        assert replicas.pop() == passed
    for partitions, left in (((("mine", 0), ("hidden", 0)), (("mine", 0),)), ((("hidden", 0),), (("", 0),)), ((), ())):
        await ask(alice, OpenTransactionsRequest(partitions))
        assert opened.pop() == OpenTransactionsRequest(left)
    turns = counted_turns(monkeypatch)
    await ask(alice, OpenTransactionsRequest(tuple((str(number), 0) for number in range(300))))
    assert len(turns) >= 300


# --- transaction groups: the coordinator is here ---


async def test_a_transaction_of_a_group(broker: Broker) -> None:
    client = await broker.client()
    name = transactional_id("g", "m")
    await coordinator(client, name, 1)
    begun = await ask(client, BeginTxnGroupRequest(name, "query", 0))
    assert begun.error == 0 and begun.producer_id >= 0 and not begun.is_decided
    listed = await ask(client, ListTransactionsRequest())
    assert isinstance(listed, ListTransactionsResponse)
    assert [each.transactional_id for each in listed.transactions] == [name]
    member = TransactionMember(name, begun.producer_id, begun.producer_epoch)
    ended = await ask(client, EndTxnGroupRequest("g", "query", 0, (member,), is_commit=True))
    assert ended.error == E.INVALID_TXN_STATE, "nothing was written"
    ended = await ask(client, EndTxnGroupRequest("g", "query", 1, (), is_commit=True))
    assert (ended.error, ended.was_decided) == (0, False)
    again = await ask(client, BeginTxnGroupRequest(name, "query", 0))
    assert (again.error, again.is_decided, again.newest_version, again.producer_id) == (0, True, 1, -1)
    assert (await ask(client, BeginTxnGroupRequest("no-group", "query", 0))).error == E.INVALID_REQUEST


async def test_transactions_are_listed_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask: 20,000 transactional ids held the loop for 25 ms."""
    client = await broker.client()
    names = [transactional_id("g", member) for member in "abc"]
    for name in names:
        await coordinator(client, name, 1)
        assert (await ask(client, BeginTxnGroupRequest(name, "query", 0))).error == 0
    monkeypatch.setattr(extension, "_STEP", 1)
    turns = 0
    sleep = asyncio.sleep

    async def counted(delay: float) -> None:
        nonlocal turns
        turns += delay == 0
        await sleep(delay)

    seen = SimpleNamespace(sleep=counted, get_running_loop=asyncio.get_running_loop)
    monkeypatch.setattr("kafkalite.env.turns.asyncio", seen)
    listed = await ask(client, ListTransactionsRequest())
    assert [each.transactional_id for each in listed.transactions] == names
    assert turns == len(names) and len(listed.coordinated) > 0


async def test_ending_a_group_takes_the_right_to_the_group(secured: Broker) -> None:
    alice = await client_of(secured, "alice")
    name = transactional_id("g", "m")
    allow(secured, "alice", ResourceType.TRANSACTIONAL_ID, name, Operation.WRITE)
    member = TransactionMember(name, 1, 0)  # type: ignore[arg-type]
    code, _ = await ask(alice, EndTxnGroupRequest("g", "query", 0, (member,), is_commit=True))
    assert code is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# --- quotas ---


async def test_requests_are_limited_as_others_are(broker: Broker) -> None:
    serving(broker, HealthRequest, sample(HealthResponse, 0))
    client = await broker.client()
    broker.services.rights.quotas.put(Entity(None, "test"), {"request_percentage": 1e-9})
    answer = await client.ask(wire.ExtensionRequest("HealthRequest", pack(HealthRequest())), 0)
    assert answer.error_code == 0 and answer.throttle_time_ms > 0
    assert broker.services.rights.quotas.throttled[Kind.REQUEST] == 1
    assert "Extension" in broker.side.listener.requests.by_api


async def test_changes_count_for_the_rate_of_changes(make_broker: Any) -> None:
    """controller_mutation_rate (KIP-599): whatever API creates or deletes partitions, with and without an authorizer."""
    broker: Broker = await make_broker()
    await broker.create("there", partitions=50)
    broker.services.rights.quotas.put(Entity(None, "test"), {"controller_mutation_rate": 0.01})
    client = await broker.client()
    made = serving(broker, CreateTopicsRequest, CreateTopicsResponse((TopicResult("a", 0),)))
    wanted = tuple(NewTopic(name, 100, 1) for name in ("a", "b"))
    answer = await ask(client, CreateTopicsRequest(wanted))
    code = E.THROTTLING_QUOTA_EXCEEDED
    assert made == [CreateTopicsRequest(wanted[:1])], "the first one uses what there is"
    assert [(each.topic, each.error) for each in answer.topics] == [("a", 0), ("b", code)]
    removed = serving(broker, RemovePartitionsRequest, RemovePartitionsResponse(0))

    async def unmuted(message: Message) -> Any:
        for connection in broker.side.listener.connections:
            connection._flow.unmute_at = 0.0
            connection._unmute()
        return await ask(client, message)

    assert (await unmuted(RemovePartitionsRequest("there", 1)))[0] == code
    deleted = serving(broker, DeleteTopicsRequest, DeleteTopicsResponse((TopicResult("new", 0),)))
    answer = await unmuted(DeleteTopicsRequest(("there", "new")))
    assert [each.error for each in answer.topics] == [0, code]
    assert (removed, deleted) == ([], [DeleteTopicsRequest(("new",))]), "what is not there costs nothing"
    checked = replace(CreateTopicsRequest(wanted), validate_only=True)
    await unmuted(checked)
    assert made[1:] == [checked]
