"""Every API of the listener, in every version, by one who may and by one who may not."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.kafka.apis import OFFERED, is_served
from kafkalite.protocol import topic_ids, wire
from kafkalite.protocol.structs import ZERO_UUID
from kafkalite.security.access import NAMES_PER_STEP
from kafkalite.security.acl import CLUSTER_NAME, Operation, ResourceType
from kafkalite.security.requirements import FREE, KAFKA, Scope

from .api_requests import CLUSTER, CODES, GROUP, NAMES, REFUSALS, TOPIC, TRANSACTION, request_of
from .conftest import Broker, batch, produce
from .consumer_members import Member as ConsumerMember
from .coordinator_requests import commit, coordinator
from .rights import allow, client_of, codes_in, forget_all, guarded, restore
from .test_share_groups import Member as ShareMember


@pytest.fixture
async def broker(make_broker: Any) -> Broker:
    return await guarded(make_broker)


SERVED = [(api, v) for api in sorted(OFFERED) for v in range(OFFERED[api][0], OFFERED[api][1] + 1) if is_served(api, v)]


def needs_of(api: str, version: int) -> list[Any]:
    """Those of the row that this test's request has: a group's coordinator, a transactional producer."""
    row = [need for need in KAFKA[api] if version in need.versions and need.scope is not Scope.HIDE]
    if api == "FindCoordinator":
        return row[:1]
    if api in ("InitProducerId", "ShareAcknowledge"):  # without a session no topic is read
        return row[:1]
    if api == "Produce":
        return row[1:]
    if api == "CreateDelegationToken":
        return row if version >= 3 else []  # before, nobody names another user
    return row[:1] if api == "Metadata" else row


async def test_whoever_may_not_is_refused_with_the_code_of_the_resource(broker: Broker) -> None:
    client = await client_of(broker, "nobody")
    before = broker.services.partitions.logs
    for api, version in SERVED:
        needs = needs_of(api, version)
        answer = await client.ask(request_of(api, version, broker), version)
        codes = set(codes_in(answer))
        if KAFKA[api] == FREE or not needs:
            assert not codes & REFUSALS, (api, version)
            continue
        if api == "DescribeLogDirs" and version < 3:
            assert list(answer.results) == []  # no room for a code in those
            continue
        assert CODES[needs[0].resource_type] in codes, (api, version, answer)
        nested = list(codes_in(answer))
        if hasattr(answer, "error_code"):
            nested.remove(answer.error_code)
        assert getattr(answer, "error_code", 0) or 0 not in nested, (api, version, answer)
    assert broker.services.partitions.logs == before
    assert not any(len(log.batches) for key, log in before.items() if key.topic == "t")


async def test_every_need_of_a_row_alone_is_not_enough_and_all_together_are(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    for api, version in SERVED:
        needs = needs_of(api, version)
        for missing in [*needs, None]:
            forget_all(broker)
            given: dict[ResourceType, set[Operation]] = {}
            for need in needs:
                if need is not missing:
                    given.setdefault(need.resource_type, set()).add(need.operation)
            for kind, operations in given.items():
                allow(broker, "ann", kind, NAMES[kind], *operations)
            answer = await client.ask(request_of(api, version, broker), version)
            refused = set(codes_in(answer)) & REFUSALS
            if missing is None:
                assert refused <= ({29} if api == "CreateTopics" else set()) and not refused, (api, version, answer)
            elif api == "DescribeLogDirs" and version < 3:
                assert list(answer.results) == []
            else:
                assert refused == {CODES[missing.resource_type]}, (api, version, missing, answer)
        forget_all(broker)
        await restore(broker)


async def test_a_right_that_a_member_of_a_share_group_loses(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    allow(broker, "ann", GROUP, "g", Operation.READ)
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    fetch = wire.ShareFetchRequest
    topic_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    listed = [fetch.FetchTopic(topic_id, [fetch.FetchPartition(0)])]
    assert (await client.ask(fetch("g", "m", 0, topics=listed), 2)).error_code == 0
    allow(broker, "ann", TOPIC, "t")
    answer = await client.ask(fetch("g", "m", 1, max_records=1), 2)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    said = wire.ShareAcknowledgeRequest
    batches = [said.AcknowledgePartition(0, [said.AcknowledgementBatch(0, 0, [1])])]
    answer = await client.ask(said("g", "m", 2, topics=[said.AcknowledgeTopic(topic_id, batches)]), 2)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_operations_on_the_cluster_that_do_as_well(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    for api, version, operation in (
        ("CreateTopics", 7, Operation.CREATE),
        ("WriteTxnMarkers", 1, Operation.ALTER),
        ("OffsetForLeaderEpoch", 4, Operation.CLUSTER_ACTION),
        ("ListGroups", 4, Operation.DESCRIBE),
    ):
        allow(broker, "ann", CLUSTER, CLUSTER_NAME, operation)
        answer = await client.ask(request_of(api, version, broker), version)
        assert not set(codes_in(answer)) & REFUSALS, api
        assert api != "ListGroups" or [group.group_id for group in answer.groups] == ["g"]


async def test_idempotence_comes_with_the_right_to_write_anything(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    request = wire.InitProducerIdRequest(None, 60_000)
    assert (await client.ask(request, 4)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow(broker, "ann", TOPIC, "anything", Operation.WRITE)
    assert (await client.ask(request, 4)).error_code == 0
    allow(broker, "ann", TOPIC, "anything")
    allow(broker, "ann", CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE)
    assert (await client.ask(request, 4)).error_code == 0


async def test_lists_show_what_may_be_described(broker: Broker) -> None:
    client, root = await client_of(broker, "ann"), await client_of(broker, "root")
    for group in ("g2", "g3"):
        await root.ask(commit(group, 1), 8)
    await root.ask(wire.InitProducerIdRequest("y", 60_000), 4)
    everything = wire.MetadataRequest(None)

    async def seen() -> tuple[list[str], list[str], list[str]]:
        topics = (await client.ask(everything, 9)).topics
        groups = (await client.ask(wire.ListGroupsRequest(), 4)).groups
        transactions = (await client.ask(wire.ListTransactionsRequest(), 0)).transaction_states
        return (
            [topic.name for topic in topics],
            sorted(group.group_id for group in groups),
            [each.transactional_id for each in transactions],
        )

    assert await seen() == ([], [], [])
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    allow(broker, "ann", GROUP, "g2", Operation.DELETE)
    allow(broker, "ann", TRANSACTION, "y", Operation.WRITE)
    assert await seen() == (["t"], ["g2"], ["y"])


async def test_metadata_tells_unknown_and_not_allowed_apart_as_kafka_does(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    topic = wire.MetadataRequest.MetadataRequestTopic
    the_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)

    async def ask(*topics: Any, create: bool = False) -> list[tuple[str | None, bytes, int]]:
        answer = await client.ask(wire.MetadataRequest(list(topics), create), 12)
        return [(each.name, each.topic_id, each.error_code) for each in answer.topics]

    zeros = bytes(16)
    assert await ask(topic(name="t"), topic(name="no")) == [("t", zeros, 29), ("no", zeros, 29)]
    assert await ask(topic(the_id, None)) == [(None, the_id, 29)]
    allow(broker, "ann", TOPIC, "*", Operation.DESCRIBE)
    assert await ask(topic(the_id, None)) == [("t", the_id, 0)]
    assert await ask(topic(name="no")) == [("no", zeros, 3)]
    # A topic is created for those who may create it, there or anywhere.
    assert await ask(topic(name="no"), create=True) == [("no", zeros, 29)]
    assert broker.services.metadata(["no"]).topics[0].error
    allow(broker, "ann", TOPIC, "no", Operation.CREATE)
    assert [code for _, _, code in await ask(topic(name="no"), topic(name="no2"), create=True)] == [0, 29]
    allow(broker, "ann", CLUSTER, CLUSTER_NAME, Operation.CREATE)
    assert [code for _, _, code in await ask(topic(name="no2"), create=True)] == [0]


async def test_authorized_operations(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    topic = wire.MetadataRequest.MetadataRequestTopic(name="t")
    allow(broker, "ann", TOPIC, "t", Operation.READ, Operation.ALTER_CONFIGS)
    allow(broker, "ann", GROUP, "g", Operation.ALL)

    async def cluster_bits() -> tuple[int, int]:
        answer = await client.ask(
            wire.MetadataRequest(
                [topic],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=True,
                include_topic_authorized_operations=True,
            ),
            8,
        )
        bits = sum(
            1 << op for op in (Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
        )
        assert answer.topics[0].topic_authorized_operations == bits
        described = await client.ask(wire.DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
        return answer.cluster_authorized_operations, described.cluster_authorized_operations

    assert await cluster_bits() == (0, 0)
    allow(broker, "ann", CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)
    assert await cluster_bits() == (1 << Operation.DESCRIBE,) * 2
    groups = (await client.ask(wire.DescribeGroupsRequest(["g"], include_authorized_operations=True), 5)).groups
    bits = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    assert groups[0].authorized_operations == sum(1 << bit for bit in bits)
    unasked = await client.ask(wire.MetadataRequest([topic], allow_auto_topic_creation=False), 8)
    assert unasked.topics[0].topic_authorized_operations == -(2**31)


async def test_of_several_topics_those_allowed_are_served(broker: Broker) -> None:
    root, client = await client_of(broker, "root"), await client_of(broker, "ann")
    request = wire.CreateTopicsRequest
    await root.ask(request([request.CreatableTopic("u", 1, 1)], 1000), 4)
    allow(broker, "ann", TOPIC, "u", Operation.ALL)
    both = wire.ProduceRequest(
        acks=1,
        timeout_ms=100,
        topic_data=[
            wire.ProduceRequest.TopicProduceData(
                name, partition_data=[wire.ProduceRequest.PartitionProduceData(0, batch(b"v"))]
            )
            for name in ("t", "u")
        ],
    )
    answer = await client.ask(both, 9)
    assert [(each.name, each.partition_responses[0].error_code) for each in answer.responses] == [("t", 29), ("u", 0)]
    fetching = wire.FetchRequest
    topics = [
        fetching.FetchTopic(name, partitions=[fetching.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)])
        for name in ("t", "u")
    ]
    got = await client.ask(fetching(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=topics), 12)
    assert [each.partitions[0].error_code for each in got.responses] == [29, 0]
    assert [len(each.partitions[0].records or b"") > 61 for each in got.responses] == [False, True]
    deleted = await client.ask(wire.DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=100), 5)
    assert {each.name: each.error_code for each in deleted.responses} == {"t": 29, "u": 0}


async def test_whoever_may_not_describe_a_topic_does_not_learn_its_name_from_its_id(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    the_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    request = wire.DeleteTopicsRequest([wire.DeleteTopicsRequest.DeleteTopicState(None, the_id)], timeout_ms=100)
    [answer] = (await client.ask(request, 6)).responses
    assert (answer.name, answer.topic_id, answer.error_code) == (None, the_id, 29)
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    [answer] = (await client.ask(request, 6)).responses
    assert (answer.name, answer.topic_id, answer.error_code) == ("t", the_id, 29)


async def test_whoever_may_describe_a_topic_hears_that_it_is_not_there_to_be_deleted(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    state = wire.DeleteTopicsRequest.DeleteTopicState

    async def codes(*names: str) -> list[int]:
        request = wire.DeleteTopicsRequest([state(name, bytes(16)) for name in names], timeout_ms=100)
        return [each.error_code for each in (await client.ask(request, 6)).responses]

    assert await codes("t", "no") == [29, 29]
    allow(broker, "ann", TOPIC, "*", Operation.DESCRIBE)
    assert await codes("t", "no") == [29, 3]


@pytest.mark.parametrize("by_name", [True, False])
async def test_the_right_to_delete_on_the_cluster_is_for_every_topic(broker: Broker, *, by_name: bool) -> None:
    """As in Kafka (ControllerApis.handleDeleteTopics)."""
    client = await client_of(broker, "ann")
    the_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    state = wire.DeleteTopicsRequest.DeleteTopicState
    request = wire.DeleteTopicsRequest([state("t", bytes(16)) if by_name else state(None, the_id)], timeout_ms=100)
    assert [each.error_code for each in (await client.ask(request, 6)).responses] == [29]
    allow(broker, "ann", CLUSTER, CLUSTER_NAME, Operation.DELETE)
    assert [(each.name, each.error_code) for each in (await client.ask(request, 6)).responses] == [("t", 0)]


@pytest.mark.parametrize("version", [12, 17])
async def test_a_follower_needs_the_right_to_cluster_actions(broker: Broker, version: int) -> None:
    client = await client_of(broker, "ann")
    fetch = wire.FetchRequest
    the_id = topic_ids.to_wire(broker.services.metadata(["t"]).topics[0].topic_id)
    wanted = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
    topic = (
        fetch.FetchTopic("t", partitions=[wanted])
        if version < 13
        else fetch.FetchTopic(topic_id=the_id, partitions=[wanted])
    )
    request = fetch(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])
    if version < 15:
        request.replica_id = 1
    else:
        request.replica_state = fetch.ReplicaState(1, 1)

    async def code() -> int:
        return int((await client.ask(request, version)).responses[0].partitions[0].error_code)

    assert await code() == 29
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    assert await code() == 29
    allow(broker, "ann", CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)
    assert await code() == 0


@pytest.mark.parametrize("kind", ["consumer", "share"])
async def test_a_description_does_not_name_topics_that_members_still_have_but_do_not_subscribe_to_any_more(
    broker: Broker, kind: str
) -> None:
    root, client = await client_of(broker, "root"), await client_of(broker, "ann")
    create = wire.CreateTopicsRequest
    assert (await root.ask(create([create.CreatableTopic("u", 1, 1)], 1000), 4)).topics[0].error_code == 0
    allow(broker, "ann", GROUP, "g2", Operation.DESCRIBE)
    allow(broker, "ann", TOPIC, "u", Operation.DESCRIBE)
    await coordinator(root, "g2")
    members: dict[str, Any] = {"consumer": ConsumerMember, "share": ShareMember}
    member = members[kind](root, "m", "t", "u", group="g2")
    await member.beat()
    assert len(member.owned if kind == "consumer" else member.assigned) == 2
    # Partitions of `t` are assigned until it has given them up, or until the next assignment is due.
    broker.services.settings["groups"]["g2"] = {"share.assignment.interval.ms": "15000"}
    await member.beat(subscribed_topic_names=["u"])
    request = {"consumer": wire.ConsumerGroupDescribeRequest, "share": wire.ShareGroupDescribeRequest}[kind](["g2"])
    [shown] = (await root.ask(request, 1)).groups
    assert {each.topic_name for each in shown.members[0].assignment.topic_partitions} == {"t", "u"}
    [hidden] = (await client.ask(request, 1)).groups
    assert (hidden.error_code, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    allow(broker, "ann", TOPIC, "t", Operation.DESCRIBE)
    assert len((await client.ask(request, 1)).groups[0].members) == 1


async def test_start_offsets_of_share_groups_do_not_say_whether_a_hidden_topic_exists(broker: Broker) -> None:
    root, client = await client_of(broker, "root"), await client_of(broker, "ann")
    member = ShareMember(root, "m", "t", group="g2")
    await coordinator(root, "g2")
    await member.beat()
    await member.beat(-1)
    allow(broker, "ann", GROUP, "g2", *Operation)
    allow(broker, "ann", TOPIC, "u", *Operation)
    describe, alter, delete = (
        wire.DescribeShareGroupOffsetsRequest,
        wire.AlterShareGroupOffsetsRequest,
        wire.DeleteShareGroupOffsetsRequest,
    )
    start = alter.AlterShareGroupOffsetsRequestPartition(0, 0)
    named = [
        describe.DescribeShareGroupOffsetsRequestTopic("t", [0]),
        describe.DescribeShareGroupOffsetsRequestTopic("u", [0]),
    ]
    described = await client.ask(describe([describe.DescribeShareGroupOffsetsRequestGroup("g2", named)]), 1)
    altered = await client.ask(alter("g2", [alter.AlterShareGroupOffsetsRequestTopic("t", [start])]), 0)
    of_delete = delete.DeleteShareGroupOffsetsRequestTopic
    deleted = await client.ask(delete("g2", [of_delete("t"), of_delete("u")]), 0)
    for answer in (described.groups[0].topics, altered.responses, deleted.responses):
        hidden = next(each for each in answer if each.topic_name == "t")
        assert ErrorCode.TOPIC_AUTHORIZATION_FAILED in set(codes_in(hidden))
        assert hidden.topic_id == ZERO_UUID


async def test_a_heartbeat_without_the_right_to_its_topics_is_refused_before_it_is_read(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    allow(broker, "ann", GROUP, "g", Operation.READ)
    # Of a member that joins there would have to be a time-out and owned partitions, too.
    request = wire.ConsumerGroupHeartbeatRequest(group_id="g", member_epoch=0, subscribed_topic_names=["t"])
    assert (await client.ask(request, 1)).error_code == int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    allow(broker, "ann", TOPIC, "t", Operation.DESCRIBE)
    assert (await client.ask(request, 1)).error_code == int(ErrorCode.INVALID_REQUEST)


async def test_the_first_heartbeat_of_streams_says_which_topics_the_client_may_not_create(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    allow(broker, "ann", GROUP, "g", Operation.READ)
    allow(broker, "ann", TOPIC, "*", Operation.DESCRIBE)
    of_topology = wire.StreamsGroupHeartbeatRequest
    counts = of_topology.TopicInfo("counts", partitions=0, replication_factor=1)
    part = of_topology.Subtopology("0", source_topics=["t"], state_changelog_topics=[counts])
    request = of_topology(
        "g", member_id="m", member_epoch=0, rebalance_timeout_ms=10_000, process_id="p",
        topology=of_topology.Topology(1, [part]), active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip
    answer = await client.ask(request, 0)
    missing = "Internal topics are missing: counts; Unauthorized to CREATE on topics counts."
    assert (answer.error_code, answer.status[-1].status_detail) == (0, missing)


async def test_a_refused_produce_without_acks_ends_the_connection(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    client.send(produce("t", (0, batch(b"v")), acks=0), 9)
    assert await client.is_closed()


async def test_a_transactional_batch_needs_the_right_to_its_transactional_id(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    allow(broker, "ann", TOPIC, "t", Operation.WRITE)
    records = batch(b"v", producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
    for transactional_id in ("x", None):
        request = produce("t", (0, records), transactional_id=transactional_id)
        assert set(codes_in(await client.ask(request, 9))) == {53}
    allow(broker, "ann", TRANSACTION, "x", Operation.WRITE)
    request = produce("t", (0, records), transactional_id="x")
    assert not set(codes_in(await client.ask(request, 9))) & REFUSALS


async def test_a_created_topic_is_told_in_full_to_those_who_may_describe_its_configuration(broker: Broker) -> None:
    client = await client_of(broker, "ann")
    request = wire.CreateTopicsRequest
    allow(broker, "ann", TOPIC, "new", Operation.CREATE)
    [made] = (await client.ask(request([request.CreatableTopic("new", 3, 1)], 1000), 7)).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions, made.configs) == (0, 29, -1, None)
    allow(broker, "ann", TOPIC, "new2", Operation.CREATE, Operation.DESCRIBE_CONFIGS)
    [made] = (await client.ask(request([request.CreatableTopic("new2", 3, 1)], 1000), 7)).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, 0, 3)
    [refused] = (await client.ask(request([request.CreatableTopic("other", 3, 1)], 1000), 7)).topics
    assert (refused.error_code, refused.topic_config_error_code, refused.num_partitions) == (29, 0, -1)


async def test_an_api_without_a_rule_is_refused(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KAFKA, "ListGroups")  # a dict behind its type
    client = await client_of(broker, "ann")
    assert (await client.ask(wire.ListGroupsRequest(), 4)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_without_an_authorizer_acls_are_not_to_be_had(make_broker: Any) -> None:
    broker = await make_broker()
    client = await broker.client()
    for api in ("DescribeAcls", "CreateAcls", "DeleteAcls"):
        for version in range(4):
            answer = await client.ask(request_of_acls(api), version)
            assert set(codes_in(answer)) == {ErrorCode.SECURITY_DISABLED}
    assert broker.side.listener.guard is None


def request_of_acls(api: str) -> Any:
    request = getattr(wire, api + "Request")
    if api == "DescribeAcls":
        return request(1, None, 1, None, None, 1, 1)
    if api == "CreateAcls":
        return request([request.AclCreation(2, "n", 3, "User:a", "*", 3, 3)])
    return request([request.DeleteAclsFilter(2, "n", 3, None, None, 1, 1)])


@pytest.mark.parametrize("kind", ["Consumer", "Share", "Streams"])
async def test_the_description_of_no_group_and_of_another_kind_of_group(broker: Broker, kind: str) -> None:
    client = await client_of(broker, "root")
    answer = await client.ask(getattr(wire, f"{kind}GroupDescribeRequest")(["g", "no"]), 1)
    texts = [f"Group g is not a {kind.lower()} group.", "Group no not found."]
    assert [(each.error_code, each.error_message) for each in answer.groups] == [(69, text) for text in texts]


async def test_rights_of_a_large_request_are_decided_in_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on 12,000 topics held the loop for 46 ms, on 100,000 for 380 ms."""
    client = await client_of(broker, "ann")
    allow(broker, "ann", GROUP, "g", Operation.READ)
    allow(broker, "ann", TOPIC, "t", Operation.READ)
    guard = broker.side.listener.guard
    assert guard is not None
    steps = 0
    checking = guard.checking

    def counted(request: Any, message: Any) -> Any:
        nonlocal steps
        work = checking(request, message)
        while True:
            try:
                next(work)
            except StopIteration as stop:
                return stop.value
            steps += 1
            yield

    monkeypatch.setattr(guard, "checking", counted)
    monkeypatch.setattr(guard, "check", None)  # not asked, too
    request = wire.OffsetCommitRequest
    part = [request.OffsetCommitRequestPartition(0, 1)]
    names = ["t", *(f"t{number}" for number in range(3_000))]
    asked = request("g", topics=[request.OffsetCommitRequestTopic(name, partitions=part) for name in names])
    answer = await client.ask(asked, 8)
    codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    assert codes[0] != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert set(codes[1:]) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED} and len(codes) == len(names)
    assert steps >= len(names) // NAMES_PER_STEP
    asked.group_id = "another"
    answer = await client.ask(asked, 8)
    assert {each.error_code for topic in answer.topics for each in topic.partitions} == {
        ErrorCode.GROUP_AUTHORIZATION_FAILED
    }


async def test_a_page_of_partitions_refuses_only_topics_from_its_cursor_on(broker: Broker) -> None:
    """As in Kafka (DescribeTopicPartitionsRequestHandler)."""
    client = await client_of(broker, "ann")
    allow(broker, "ann", TOPIC, "t", Operation.DESCRIBE)
    request = wire.DescribeTopicPartitionsRequest
    asked = [request.TopicRequest(name) for name in ("a", "t", "z")]
    for cursor, names in ((None, ["t", "a", "z"]), (request.Cursor("t", 0), ["t", "z"])):
        answer = await client.ask(request(asked, 100, cursor), 0)
        assert [each.name for each in answer.topics] == names
