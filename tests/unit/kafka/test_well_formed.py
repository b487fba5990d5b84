"""Every API in every version has an answer to whatever is well formed. (Live nodes: `bench.fuzz_kafka`.)"""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

from kafkalite.errors import ErrorCode
from kafkalite.kafka.apis import OFFERED
from kafkalite.kafka.refusals import refuse
from kafkalite.protocol import wire
from kafkalite.protocol.codec import decode, encode
from kafkalite.protocol.schema import schemas
from kafkalite.testing.kafka_messages import TOPICS, MessageMaker

ROUNDS = 12
GOLDEN = Path(__file__).parent / "refusals.txt"


@pytest.mark.parametrize("name", sorted(OFFERED))
async def test_every_version_answers(make_broker: Any, name: str) -> None:
    broker = await make_broker(max_partitions_per_topic=50)
    for topic in TOPICS[:2]:
        await broker.create(topic, 2)
    client = await broker.client()
    schema = schemas()[name + "Request"]
    for version in schema.versions:
        for number in range(ROUNDS):
            source = random.Random(f"{name}/{version}/{number}")
            message = MessageMaker(source, schema, version, waits=(-1, 0, 1)).message()
            if name == "Produce":
                message.acks = source.choice((-1, 1))  # without acks there is no answer
            answer = await client.ask(message, version)
            assert type(answer).__name__ == name + "Response"


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_every_version_can_be_refused_as_a_whole(name: str) -> None:
    schema = schemas()[name + "Request"]
    for version in schema.versions:
        for number in range(ROUNDS):
            message = MessageMaker(random.Random(f"{name}/{version}/{number}"), schema, version).message()
            data = encode(refuse(name, message, version, ErrorCode.REQUEST_TIMED_OUT, "why"), version)
            assert type(decode(name + "Response", version, data)).__name__ == name + "Response"


def test_a_refusal_repeats_what_kafkas_repeats() -> None:
    """Beside an error of the whole response, as Apache Kafka 4.4.0 was seen to do."""
    election, offsets, transactions = wire.ElectLeadersRequest, wire.OffsetFetchRequest, wire.AddPartitionsToTxnRequest
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for version in range(3):
        answer = refuse("ElectLeaders", election(0, [election.TopicPartitions("t", [3])]), version, code, "why")
        [topic] = answer.replica_election_results
        assert [(each.partition_id, each.error_code) for each in topic.partition_result] == [(3, code)]
    for version in range(8):
        message = offsets("g", [offsets.OffsetFetchRequestTopic("t", [3])])
        assert len(refuse("OffsetFetch", message, version, code, "why").topics) == (version < 2)
    move, moves = wire.AlterPartitionReassignmentsRequest, wire.ListPartitionReassignmentsRequest
    moved = move(topics=[move.ReassignableTopic("t", [move.ReassignablePartition(3, None)])])
    [topic] = refuse("AlterPartitionReassignments", moved, 1, code, "why").responses
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(3, code)]
    listed = moves(topics=[moves.ListPartitionReassignmentsTopics("t", [3])])
    [topic] = refuse("ListPartitionReassignments", listed, 0, code, "why").topics
    assert [each.partition_index for each in topic.partitions] == [3]
    fetched = wire.FetchRequest(topics=[wire.FetchRequest.FetchTopic("t", bytes(16), [])])
    for version in range(4, 19):
        assert len(refuse("Fetch", fetched, version, code, "why").responses) == (version < 13)
    asked = transactions([transactions.AddPartitionsToTxnTransaction("x", 1, 0, verify_only=True, topics=[])])
    answer = refuse("AddPartitionsToTxn", asked, 5, code, "why")
    assert (answer.error_code, list(answer.results_by_transaction)) == (code, [])


def test_refusals_are_the_bytes_they_were() -> None:
    """One line for each API: a hash of its refusals in all versions. `make rewrite` writes the present ones."""
    lines = []
    for name in sorted(OFFERED):
        found = hashlib.sha256()
        for version in schemas()[name + "Request"].versions:
            for number in range(ROUNDS):
                source = random.Random(f"{name}/{version}/{number}")
                message = MessageMaker(source, schemas()[name + "Request"], version).message()
                for text in ("why", ""):
                    found.update(encode(refuse(name, message, version, ErrorCode.REQUEST_TIMED_OUT, text), version))
        lines.append(f"{name} {found.hexdigest()[:16]}\n")
    if os.environ.get("KAFKALITE_REWRITE") == "1":
        GOLDEN.write_text("".join(lines))
    assert GOLDEN.read_text().splitlines(keepends=True) == lines


def test_a_refusal_has_kafkas_values_for_nothing() -> None:
    """InitProducerIdRequest.getErrorResponse and JoinGroupRequest.getErrorResponse."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for version in range(6):
        refused = refuse("InitProducerId", wire.InitProducerIdRequest("x", 1000), version, code, "why")
        assert (refused.producer_id, refused.producer_epoch) == (-1, -1)
    for version in range(10):
        refused = refuse("JoinGroup", wire.JoinGroupRequest("g"), version, ErrorCode.GROUP_AUTHORIZATION_FAILED, "why")
        assert (refused.generation_id, refused.protocol_name) == (-1, None if version >= 7 else "")
