"""The JSON of every znode: Kafka's and the article's examples, our own bytes, and whatever a person may type."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.coordination import admin_znodes, broker_znodes, cluster_znodes, config_znodes, topic_znodes
from kafkalite.coordination.admin_znodes import Election, PartitionRemoval, RestartRequest
from kafkalite.coordination.broker_znodes import BrokerZnode
from kafkalite.coordination.cluster_znodes import ProducerIdBlock
from kafkalite.coordination.topic_znodes import ReassignmentProgress, TopicZnode
from kafkalite.coordination.znode_json import ZnodeError
from kafkalite.model import (
    NO_LEADER,
    NO_TOPIC_ID,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "cluster_id": cluster_znodes.decode_cluster_id,
    "controller": cluster_znodes.decode_controller,
    "controller_epoch": cluster_znodes.decode_controller_epoch,
    "broker": broker_znodes.decode_broker,
    "topic": topic_znodes.decode_topic,
    "state": lambda data: topic_znodes.decode_partition_state(data, 3),
    "first_state": lambda data: topic_znodes.decode_partition_state(data, 0),
    "vanished_topic": topic_znodes.decode_vanished_topic,
    "deleted_topic": admin_znodes.decode_deleted_topic,
    "reassignment": admin_znodes.decode_reassignment,
    "preferred": admin_znodes.decode_preferred_election,
    "delete_topics": admin_znodes.decode_delete_topics,
    "partition_add": admin_znodes.decode_partition_add,
    "partition_remove": admin_znodes.decode_partition_remove,
    "restart": admin_znodes.decode_restart_request,
    "config": config_znodes.decode_config,
    "config_change": config_znodes.decode_config_change,
    "producer_ids": cluster_znodes.decode_producer_id_block,
}

#: Golden bytes: what is in ZooKeeper is a contract with every older version of us, and with Kafka's tools.
GOLDEN = [
    ("cluster_id", cluster_znodes.encode_cluster_id("abc"), b'{"version":"1","id":"abc"}', "abc"),
    (
        "controller",
        cluster_znodes.encode_controller(BrokerId(8), 17),
        b'{"version":1,"brokerid":8,"timestamp":"17"}',
        cluster_znodes.ControllerZnode(BrokerId(8), 17),
    ),
    ("controller_epoch", cluster_znodes.encode_controller_epoch(ControllerEpoch(42)), b"42", 42),
    (
        "broker",
        broker_znodes.encode_broker(
            BrokerZnode("h", 9092, timestamp_ms=5, endpoints=("A://h:9092",), rpc=Endpoint("h", 9192), rack="r",
                        protocols={"A": "SSL"}, http="https://h:9292", release="0.2.0")
        ),
        (b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5","endpoints":["A://h:9092"],'
        b'"listener_security_protocol_map":{"A":"SSL"},"rpc_endpoint":"h:9192","http_endpoint":"https://h:9292","rack":"r",'
        b'"release":"0.2.0"}'),
        BrokerZnode("h", 9092, 5, -1, 5, ("A://h:9092",), Endpoint("h", 9192), "r", protocols={"A": "SSL"},
                    http="https://h:9292", release="0.2.0"),
    ),
    (
        "broker",
        broker_znodes.encode_broker(
            BrokerZnode("h", 1, missing=frozenset({TopicPartition("t", 10), TopicPartition("t", 9), TopicPartition("a", 0)}))
        ),
        b'{"version":5,"host":"h","port":1,"jmx_port":-1,"rack":null,"missing":{"a":[0],"t":[9,10]}}',
        BrokerZnode("h", 1, missing=frozenset({TopicPartition("t", 10), TopicPartition("t", 9), TopicPartition("a", 0)})),
    ),
    (
        "topic",
        topic_znodes.encode_topic(
            TopicZnode(TopicId("id"), {10: brokers(2), 9: brokers(1, 2)}, {9: brokers(3)}, {9: brokers(1)})
        ),
        (b'{"version":3,"topic_id":"id","partitions":{"9":[1,2],"10":[2]},"adding_replicas":{"9":[3]},'
        b'"removing_replicas":{"9":[1]}}'),
        TopicZnode(
            TopicId("id"),
            {9: brokers(1, 2), 10: brokers(2)},
            {9: brokers(3)},
            {9: brokers(1)},
            {9: ReassignmentProgress(brokers(2, 3), brokers(1, 2))},
        ),
    ),
    (
        "topic",
        topic_znodes.encode_topic(
            TopicZnode(
                TopicId("id"),
                {0: brokers(2, 1)},
                {0: brokers(2)},
                {0: brokers(1)},
                {0: ReassignmentProgress(brokers(2), brokers(1), brokers(2), brokers(3), moves_leader=True, throttle=9)},
            )
        ),
        (b'{"version":3,"topic_id":"id","partitions":{"0":[2,1]},"adding_replicas":{"0":[2]},'
        b'"removing_replicas":{"0":[1]},"moves":{"0":{"target":[2],"origin":[1],"step":[2],"dropping":[3],'
        b'"moves_leader":true,"throttle":9}}}'),
        TopicZnode(
            TopicId("id"),
            {0: brokers(2, 1)},
            {0: brokers(2)},
            {0: brokers(1)},
            {0: ReassignmentProgress(brokers(2), brokers(1), brokers(2), brokers(3), moves_leader=True, throttle=9)},
        ),
    ),
    (
        "state",
        topic_znodes.encode_partition_state(
            LeaderAndIsr(BrokerId(1), LeaderEpoch(4), brokers(1, 2), ControllerEpoch(7), PartitionEpoch(99))
        ),
        b'{"version":1,"leader":1,"leader_epoch":4,"isr":[1,2],"controller_epoch":7}',
        LeaderAndIsr(BrokerId(1), LeaderEpoch(4), brokers(1, 2), ControllerEpoch(7), PartitionEpoch(3)),
    ),
    (
        "reassignment",
        admin_znodes.encode_reassignment({TopicPartition("t", 1): brokers(3, 4)}),
        b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[3,4]}]}',
        {TopicPartition("t", 1): brokers(3, 4)},
    ),
    (
        "preferred",
        admin_znodes.encode_preferred_election([TopicPartition("t", 0)]),
        b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
        Election((TopicPartition("t", 0),)),
    ),
    ("delete_topics", admin_znodes.encode_delete_topics(["a", "b"]), b'{"version":1,"topics":["a","b"]}', ("a", "b")),
    ("partition_add", admin_znodes.encode_partition_add(brokers(1, 2)), b"[1,2]", brokers(1, 2)),
    ("partition_remove", admin_znodes.encode_partition_remove(PartitionRemoval()), b"", PartitionRemoval()),
    (
        "partition_remove",
        admin_znodes.encode_partition_remove(PartitionRemoval(drain=True)),
        b'{"version":1,"drain":true}',
        PartitionRemoval(drain=True),
    ),
    (
        "partition_remove",
        admin_znodes.encode_partition_remove(PartitionRemoval(replicas=(BrokerId(1), BrokerId(2)))),
        b'{"version":1,"drain":false,"replicas":[1,2]}',
        PartitionRemoval(replicas=(BrokerId(1), BrokerId(2))),
    ),
    (
        "preferred",
        admin_znodes.encode_preferred_election([TopicPartition("t", 0)], unclean=True),
        b'{"version":1,"partitions":[{"topic":"t","partition":0}],"unclean":true}',
        Election((TopicPartition("t", 0),), unclean=True),
    ),
    (
        "reassignment",
        admin_znodes.encode_reassignment({TopicPartition("t", 0): ()}),
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}]}',
        {TopicPartition("t", 0): ()},
    ),
    (
        "restart",
        admin_znodes.encode_restart_request(
            RestartRequest(BrokerId(1), (TopicPartition("t", 1), TopicPartition("u", 0), TopicPartition("t", 2)))
        ),
        b'{"version":1,"broker":1,"partitions":[{"topic":"t","partitions":[1,2]},{"topic":"u","partitions":[0]}]}',
        RestartRequest(BrokerId(1), (TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0))),
    ),
    ("config", config_znodes.encode_config({"b": "2", "a": "1"}), b'{"version":1,"config":{"a":"1","b":"2"}}', {"a": "1", "b": "2"}),
    (
        "config_change",
        config_znodes.encode_config_change("brokers", "<default>"),
        b'{"version":2,"entity_path":"brokers/<default>"}',
        ("brokers", "<default>"),
    ),
    (
        "producer_ids",
        cluster_znodes.encode_producer_id_block(ProducerIdBlock(BrokerId(1), 1000, 1999)),
        b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}',
        ProducerIdBlock(BrokerId(1), 1000, 1999),
    ),
]  # fmt: skip


@pytest.mark.checklist("C1", "C2", "C17")
@pytest.mark.checklist(3, 4, 5, 6, 7, 8, 9, 10, 11)
@pytest.mark.parametrize(("kind", "encoded", "golden", "decoded"), GOLDEN, ids=[each[0] for each in GOLDEN])
def test_golden_bytes(kind: str, encoded: bytes, golden: bytes, decoded: object) -> None:
    assert encoded == golden
    assert DECODERS[kind](golden) == decoded


def test_a_registration_tells_of_as_many_missing_logs_as_it_has_room_for() -> None:
    few = {TopicPartition(topic, number) for topic in ("a", "b") for number in range(12)}
    assert broker_znodes.with_room(few) == few
    many = [TopicPartition("t" * 200 + str(number // 7), number % 7) for number in range(30_000)]
    told = broker_znodes.with_room(many)
    assert told < set(many)
    assert 400 * 1024 < len(broker_znodes.encode_broker(BrokerZnode("h", 1, missing=told))) < 600 * 1024


@pytest.mark.checklist(5)
def test_the_articles_broker_is_read_and_written_back() -> None:
    article = b'{ "jmx_port":-1, "host":"node1", "version":1, "port":9092 }'
    broker = broker_znodes.decode_broker(article)
    assert broker == BrokerZnode("node1", 9092, version=1)
    assert json.loads(broker_znodes.encode_broker(broker)) == json.loads(article)
    with pytest.raises(ZnodeError, match="not a kafkalite node"):
        broker.info(BrokerId(1), BrokerEpoch(5))


@pytest.mark.checklist(3, 6, 7, 8, 10, 11)
def test_the_articles_other_examples_are_read() -> None:
    assert cluster_znodes.decode_controller(b'{ "version": 1, "brokerid": 8 }').broker_id == 8
    topic = topic_znodes.decode_topic(b'{"version":1, "partitions":{"12":[2],"8":[1],"4":[3],"11":[1,2]}}')
    assert topic == TopicZnode(NO_TOPIC_ID, {4: brokers(3), 8: brokers(1), 11: brokers(1, 2), 12: brokers(2)})
    state = topic_znodes.decode_partition_state(
        b'{ "controller_epoch":29, "leader":2, "version":1, "leader_epoch":48, "isr":[ 2, 1 ] }', 5
    )
    assert state == LeaderAndIsr(BrokerId(2), LeaderEpoch(48), brokers(2, 1), ControllerEpoch(29), PartitionEpoch(5))
    moves = admin_znodes.decode_reassignment(
        b'{"version": 1, "partitions": [{"topic": "Foo", "partition": 1, "replicas": [0, 1, 3]}]}'
    )
    assert moves == {TopicPartition("Foo", 1): brokers(0, 1, 3)}
    elections = b'{"version":1,"partitions":[{"topic":"Foo","partition":1},{"topic":"Bar","partition":0}]}'
    assert admin_znodes.decode_preferred_election(elections) == Election(
        (TopicPartition("Foo", 1), TopicPartition("Bar", 0))
    )
    assert admin_znodes.decode_delete_topics(b'{ "version": 1, "topics": ["foo", "bar"] }') == ("foo", "bar")


def test_kafkas_own_znodes_are_read() -> None:
    broker = broker_znodes.decode_broker(
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://kafka:9092"],"jmx_port":9999,"port":9092,"host":"kafka","version":5,'
        b'"timestamp":"1700000000000","rack":null}'
    )
    assert (broker.host, broker.port, broker.timestamp_ms, broker.rpc) == ("kafka", 9092, 1700000000000, None)
    assert broker.protocols == {"PLAINTEXT": "PLAINTEXT"}
    topic = topic_znodes.decode_topic(
        b'{"removing_replicas":{},"partitions":{"0":[0]},"topic_id":"wQ9cEXzvQWydq0yKsHVkbg","adding_replicas":{},'
        b'"version":3}'
    )
    assert topic.topic_id == "wQ9cEXzvQWydq0yKsHVkbg"
    second = topic_znodes.decode_topic(
        b'{"version":2,"partitions":{"0":[0,1]},"adding_replicas":{"0":[1]},"removing_replicas":{}}'
    )
    assert second.adding_replicas == {0: brokers(1)}
    assert json.loads(topic_znodes.encode_topic(second))["version"] == 2
    assert config_znodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == (
        "topics",
        "t",
    )


MALFORMED = [
    ("topic", b'{"version":3,"topic_id":"x","partitions":{"0":[1,1]}}', "a broker is there twice"),
    ("topic", b'{"version":4,"partitions":{}}', "4 is not one of 1, 2, 3"),
    ("topic", b'{"version":1,"partitions":{"-1":[1]}}', "'-1' is not a partition"),
    ("topic", b'{"version":1,"partitions":{"01":[1]}}', "'01' is not a partition"),
    ("topic", b'{"version":1,"partitions":{"0":[]}}', "partitions.0: not a list of brokers"),
    ("topic", b'{"version":1,"partitions":{"0":[true]}}', "not an integer"),
    ("topic", b'{"version":1}', "partitions: not a JSON object"),
    ("state", b'{"version":1,"leader":3,"leader_epoch":0,"isr":[1],"controller_epoch":1}', "3 is not in the ISR"),
    ("state", b'{"version":1,"leader":-1,"leader_epoch":0,"isr":[],"controller_epoch":1}', "isr: not a list"),
    ("state", b'{"version":1,"leader":1,"leader_epoch":-1,"isr":[1],"controller_epoch":1}', "leader_epoch: not within"),
    ("state", b'{"version":1,"leader":1.0,"leader_epoch":1,"isr":[1],"controller_epoch":1}', "leader: not an integer"),
    ("reassignment", b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}', "t-0 occurs twice"),
    ("reassignment", b'{"version":1,"partitions":[7]}', "partitions[0]: not a JSON object"),
    ("reassignment", b'{"version":1,"partitions":[{"topic":"","partition":0,"replicas":[1]}]}', "topic: empty"),
    ("delete_topics", b'{"version":1,"topics":[1]}', "not a list of names"),
    ("controller_epoch", b"-1", "not an integer"),
    ("controller_epoch", b"", "not an integer"),
    ("controller_epoch", b"99999999999", "not an integer"),
    ("broker", b'{"version":5,"host":"h","port":1,"rpc_endpoint":"h"}', "rpc_endpoint: not host:port"),
    ("broker", b'{"version":5,"host":"h","port":99999}', "port: not within"),
    (
        "broker",
        b'{"version":5,"host":"h","port":1,"listener_security_protocol_map":["SSL"]}',
        "listener_security_protocol_map: not names and protocols",
    ),
    ("broker", b'{"version":5,"host":"h","port":1,"missing":[]}', "missing: not a JSON object"),
    ("broker", b'{"version":5,"host":"h","port":1,"missing":{"t":[-1]}}', "missing.t: not within"),
    ("config", b'{"version":1,"config":{"a":1}}', "config.a: not a string"),
    ("config_change", b'{"version":2,"entity_path":"topics"}', "entity_path: not <type>/<name>"),
    ("producer_ids", b'{"version":1,"broker":1,"block_start":"9","block_end":"8"}', "before block_start"),
    ("cluster_id", b'{"version":"1","id":""}', "id: empty"),
    ("partition_add", b'{"replicas":[1]}', "not a list of brokers"),
    ("partition_remove", b'{"drain":"yes"}', "drain: not a boolean"),
    ("config", b"\xff\xfe", "not JSON"),
    ("delete_topics", b'{"version":1,"topics":["\\ud800"]}', "not JSON"),
    ("config", b"[" * 100_000, "not JSON"),
    ("config", b"1" * 10_000, "not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "data", "reason"), MALFORMED, ids=[f"{k}-{i}" for i, (k, _, _) in enumerate(MALFORMED)]
)
def test_what_cannot_be_used_is_named_in_one_line(kind: str, data: bytes, reason: str) -> None:
    with pytest.raises(ZnodeError) as refused:
        DECODERS[kind](data)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["version", "partitions", "topic", "partition", "replicas", "isr", "leader", "config", "0", "id"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.sampled_from(sorted(DECODERS)),
    st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()),
)
def test_any_bytes_are_read_or_refused_but_never_crash(kind: str, data: bytes) -> None:
    try:
        DECODERS[kind](data)
    except ZnodeError as refused:
        assert refused.reason


broker_lists = st.lists(st.integers(0, 2**31 - 1).map(BrokerId), min_size=1, max_size=5, unique=True).map(tuple)
partition_maps = st.dictionaries(st.integers(0, 10_000), broker_lists, max_size=5)


@given(st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=22), partition_maps, partition_maps)
def test_topics_come_back(topic_id: str, partitions: dict[int, Any], adding: dict[int, Any]) -> None:
    topic = TopicZnode(TopicId(topic_id), partitions, adding)
    decoded = topic_znodes.decode_topic(topic_znodes.encode_topic(topic))
    # Replicas that are being added, without a plan of ours: an order by hand, read as a move (KIP-455).
    assert replace(decoded, moves={}) == topic
    assert all(set(adding[partition]) <= set(move.target) for partition, move in decoded.moves.items())
    assert topic_znodes.decode_topic(topic_znodes.encode_topic(decoded)) == decoded


@given(
    isr=broker_lists,
    led=st.booleans(),
    leader_epoch=st.integers(0, 2**31 - 1),
    controller_epoch=st.integers(0, 2**31 - 1),
    version=st.integers(0, 2**31 - 1),
)
def test_states_come_back(isr: Any, *, led: bool, leader_epoch: int, controller_epoch: int, version: int) -> None:
    state = LeaderAndIsr(
        isr[0] if led else NO_LEADER,
        LeaderEpoch(leader_epoch),
        isr,
        ControllerEpoch(controller_epoch),
        PartitionEpoch(version),
    )
    assert topic_znodes.decode_partition_state(topic_znodes.encode_partition_state(state), version) == state


@pytest.mark.parametrize("member", [2**31, 10**30, -1])
def test_eligible_replicas_that_no_message_could_carry_are_void(member: int) -> None:
    value = {
        "version": 1,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1],
        "controller_epoch": 1,
        "elr": [member],
        "elr_at": 3,
    }
    decoded = topic_znodes.decode_partition_state(json.dumps(value).encode(), 3)
    assert (decoded.elr, decoded.last_known_elr) == ((), ())
    assert topic_znodes.decode_partition_state(json.dumps({**value, "elr": [2]}).encode(), 3).elr == (2,)


def test_the_limits_of_an_order() -> None:
    targets = {TopicPartition("t", 0): (BrokerId(1),)}
    assert admin_znodes.decode_request_limits(admin_znodes.encode_reassignment(targets, limits=(1, 0, 2))) == (1, 0, 2)
    assert admin_znodes.decode_request_limits(admin_znodes.encode_reassignment(targets)) == admin_znodes.NO_LIMITS
    for odd in ("3", [1, 2], [-1, True, "x"]):
        data = json.dumps({"version": 1, "partitions": [], "limits": odd}).encode()
        assert admin_znodes.decode_request_limits(data) == admin_znodes.NO_LIMITS


def test_the_states_of_a_vanished_topic() -> None:
    states = {
        3: LeaderAndIsr(BrokerId(2), LeaderEpoch(7), (BrokerId(2), BrokerId(1)), ControllerEpoch(4), PartitionEpoch(0)),
        0: LeaderAndIsr(BrokerId(-1), LeaderEpoch(1), (BrokerId(3),), ControllerEpoch(5), PartitionEpoch(0)),
    }
    data = topic_znodes.encode_vanished_topic("t", states, BrokerEpoch(2**40))
    assert topic_znodes.decode_vanished_topic(data) == ("t", states, 2**40)
    for data in (
        b"",
        b"{}",
        b'{"version":1,"topic":"t","states":{"x":{}}}',
        '{"version":1,"topic":"t","states":{"²":{}}}'.encode(),  # a digit that int() does not take
        b'{"version":1,"topic":"t","states":3}',
    ):
        with pytest.raises(ZnodeError):
            topic_znodes.decode_vanished_topic(data)


def test_what_is_left_of_a_deleted_topic() -> None:
    left = frozenset({(0, BrokerId(3)), (0, BrokerId(1)), (12, BrokerId(3))})
    data = admin_znodes.encode_deleted_topic("t", left)
    assert json.loads(data) == {"version": 1, "topic": "t", "replicas": {"0": [1, 3], "12": [3]}}
    assert admin_znodes.decode_deleted_topic(data) == ("t", left)
    for bad in (b"", b"{}", b'{"version":1,"topic":"t","replicas":{"0":[1,1]}}'):
        with pytest.raises(ZnodeError):
            admin_znodes.decode_deleted_topic(bad)
