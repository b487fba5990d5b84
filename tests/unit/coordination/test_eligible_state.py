"""Eligible leader replicas in the state znode (ADR 16): what older nodes make of it, and what is void."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkalite.coordination import broker_znodes, topic_znodes
from kafkalite.coordination.broker_znodes import BrokerZnode
from kafkalite.model import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    Endpoint,
    LeaderAndIsr,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


#: On top of version 7: written, it has version 8.
STATE = LeaderAndIsr(BrokerId(3), LeaderEpoch(4), ids(3), ControllerEpoch(1), PartitionEpoch(7), ids(1, 2), ids(4))


def test_the_fields_of_kafka_stay_as_they_were_and_ours_follow() -> None:
    assert topic_znodes.encode_partition_state(STATE) == (
        b'{"version":1,"leader":3,"leader_epoch":4,"isr":[3],"controller_epoch":1,'
        b'"elr":[1,2],"last_known_elr":[4],"elr_at":8}'
    )


def test_it_holds_for_the_version_that_its_write_has_made() -> None:
    read = topic_znodes.decode_partition_state(topic_znodes.encode_partition_state(STATE), 8)
    assert (read.elr, read.last_known_elr, read.partition_epoch) == (ids(1, 2), ids(4), 8)


def test_an_older_nodes_write_drops_it() -> None:
    """It decodes what it knows, and writes that again."""
    value = json.loads(topic_znodes.encode_partition_state(STATE))
    older = {name: value[name] for name in ("version", "leader", "leader_epoch", "isr", "controller_epoch")}
    read = topic_znodes.decode_partition_state(json.dumps(older).encode(), 9)
    assert (read.isr, read.elr, read.last_known_elr) == (ids(3), (), ())


def test_it_is_void_for_any_other_version() -> None:
    """Somebody who keeps fields that he does not know has changed the rest: who was eligible then need not be now."""
    value = json.loads(topic_znodes.encode_partition_state(STATE))
    value["isr"] = [3, 1]
    for version in (7, 9):
        read = topic_znodes.decode_partition_state(json.dumps(value).encode(), version)
        assert (read.isr, read.elr, read.last_known_elr) == (ids(3, 1), (), ())


def test_it_holds_for_a_copy_that_was_put_back() -> None:
    """The znode was removed and created again with its value, and has version 0."""
    read = topic_znodes.decode_partition_state(topic_znodes.encode_partition_state(STATE), 0)
    assert (read.isr, read.elr, read.last_known_elr) == (ids(3), ids(1, 2), ids(4))


@pytest.mark.parametrize(
    "spoilt", [{"elr": "1"}, {"elr": [1, "2"]}, {"elr": [True]}, {"elr": [-1]}, {"last_known_elr": 5}, {"elr_at": None}]
)
def test_what_cannot_be_used_is_void_and_the_rest_counts(spoilt: dict[str, Any]) -> None:
    value = {**json.loads(topic_znodes.encode_partition_state(STATE)), **spoilt}
    read = topic_znodes.decode_partition_state(json.dumps(value).encode(), 8)
    assert (read.leader, read.elr, read.last_known_elr) == (3, (), ())


def test_a_member_of_the_isr_is_not_eligible_as_well() -> None:
    value = {**json.loads(topic_znodes.encode_partition_state(STATE)), "elr": [1, 3, 1], "last_known_elr": [1, 4]}
    read = topic_znodes.decode_partition_state(json.dumps(value).encode(), 8)
    assert (read.elr, read.last_known_elr) == (ids(1), ids(4))


def test_a_registration_says_which_logs_are_in_doubt() -> None:
    doubtful = frozenset({TopicPartition("t", 0), TopicPartition("u", 3)})
    value = BrokerZnode("h", 1, rpc=Endpoint("h", 2), doubtful=doubtful, keeps_elr=True)
    info = broker_znodes.decode_broker(broker_znodes.encode_broker(value)).info(BrokerId(1), BrokerEpoch(5))
    assert info.doubts(TopicPartition("u", 3)) and not info.doubts(TopicPartition("u", 2)) and info.keeps_elr
    older = broker_znodes.decode_broker(broker_znodes.encode_broker(BrokerZnode("h", 1, rpc=Endpoint("h", 2))))
    assert not older.info(BrokerId(1), BrokerEpoch(5)).keeps_elr
